"""What a learner reads is said once, in the lessons' sources; what nobody may see stands on a page an exercise."""

import json
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from lesson_runs import run_python

from course_utils import root
from course_utils.authoring import seal, source
from course_utils.exercises import declaration, engine, saved_progress
from course_utils.exercises.answers import Equivalent, apply_changes, parse_page, with_docstrings
from course_utils.exercises.engine import exercises_of, predictions_of
from course_utils.root import ANSWERS, CourseError

HALF = "def halve(x, by=2):\n    y = x / by\n    print(y)\n    return y"
PAGE = f"""# halve

## Answers

```python
{HALF}
```

```python
def halve(x, by=2):
    return x * (1 / by)
```
"""
MISTAKES = PAGE + "\n## Mistakes\n\n```diff\n{}\n```\n"


def test_no_sealed_file_is_stale():
    """`make notebooks` renews them."""
    assert [lesson.stem for lesson, _ in seal.stale()] == []


def test_each_exercise_has_its_page_and_each_page_its_exercise():
    assert sorted(path.stem for path in ANSWERS.glob("*")) == sorted(each.name for each in exercises_of())
    for each in exercises_of():
        title = (ANSWERS / f"{each.name}.md").read_text(encoding="utf-8").partition("\n")[0]
        assert title == f"# {each.name}"


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ("-    y = x / by\n+    y = x * by", HALF.replace("x / by", "x * by")),
        ("-    print(y)", HALF.replace("    print(y)\n", "")),
        ("     print(y)\n+    y = -y", HALF.replace("print(y)", "print(y)\n    y = -y")),
        ("-    y = x / by\n@@\n-    return y", "def halve(x, by=2):\n    print(y)"),
        ("-    return y\n+    return x\n-    print(y)", "def halve(x, by=2):\n    y = x / by\n    return x"),
        ("+def halve(x, by=2):\n+\n+    return x", "def halve(x, by=2):\n\n    return x"),
        ("--- answer 2\n-    return x * (1 / by)", "def halve(x, by=2):"),
    ],
)
def test_a_mistake_is_what_is_different(changes, wanted):
    page = parse_page(MISTAKES.format(f"@@ A message that goes\n@@ on.\n{changes}"))
    assert page.mistakes == [("A message that goes on.", wanted)]


def test_a_mistake_may_change_an_earlier_one():
    text = "@@ You print first.\n-    print(y)\n@@ You return x.\n--- You print\n-    return y\n+    return x"
    assert parse_page(MISTAKES.format(text)).mistakes[1][1] == "def halve(x, by=2):\n    y = x / by\n    return x"


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (MISTAKES.format("@@ Stale.\n-    y = x // by"), "mistake `Stale.`: what it changes stands 0 times"),
        (MISTAKES.format("@@ Not unique.\n--- twice\n-    pass"), "`--- twice` names no answer"),
        (MISTAKES.format("@@ Far apart.\n-    y = x / by\n-    return y"), "stands 0 times"),
        (MISTAKES.format("@@ Nowhere.\n+    pass\n-    y = x / by"), "nothing says where the line belongs"),
        (MISTAKES.format("@@ No such answer.\n--- answer 3\n-    pass"), "`--- answer 3` names no answer"),
        (MISTAKES.format("-    pass"), "stands above the first message"),
        (MISTAKES.format("@@ A sign.\n?    pass"), "a line begins with [?]"),
        ("# halve\n", "no section `## Answers`"),
        (PAGE + "\n## Hint\n\nOne.\n", "no section is called Hint"),
        (PAGE + "\n## Mistakes\n\n```python\nx\n```\n", "a block is called python, where diff is read"),
    ],
)
def test_a_page_without_its_form_and_a_mistake_that_does_not_fit_its_base_are_refused(page, complaint):
    with pytest.raises(CourseError, match=complaint):
        parse_page(page)


def test_a_line_that_stands_twice_is_no_place():
    with pytest.raises(CourseError, match="stands 2 times"):
        apply_changes(["-    x += 1"], "def f(x):\n    x += 1\n    x += 1")


def test_equivalent_edits_are_read_by_operator_and_piece_of_code():
    items = "- It does not\n  matter.\n  - backwards, no call\n  - one operand: `a + b` → `a`, → `c`\n"
    found = parse_page(f"{PAGE}\n## Equivalent edits\n\n{items}").equivalents
    assert set(found.values()) == {"It does not matter."}
    wanted = [("backwards", "", ""), ("no call", "", ""), ("one operand", "a + b", "a"), ("one operand", "", "c")]
    assert [tuple(each) for each in found] == wanted
    one = Equivalent("one operand", "a + b", "a")
    assert one.covers("one operand", ["- return a + b", "+ return a"])
    assert not one.covers("one operand", ["- return b", "+ return a"])
    assert not one.covers("no sign", ["- return a + b", "+ return a"])


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_an_answer_gets_the_docstrings_of_its_task():
    task = 'def halve(x, by=2):\n    """Halve it."""\n    ...'
    assert with_docstrings(HALF, task) == HALF.replace(":\n", ':\n    """Halve it."""\n', 1) + "\n"
    inner = "        def inner():\n            return x / 2\n\n        return inner()"
    answer = f"class Half:\n    def __call__(self, x):\n{inner}"
    task = 'class Half:\n    """Halve."""\n\n    def __call__(self, x):\n        """Do."""\n        ...'
    whole = answer.replace("class Half:\n", 'class Half:\n    """Halve."""\n\n')
    assert with_docstrings(answer, task) == whole.replace("x):\n", 'x):\n        """Do."""\n\n', 1) + "\n"
    with pytest.raises(CourseError, match=r"begins with `def halve\(x, by=2\)`, and its task with `def halve\(x\)`"):
        with_docstrings(HALF, "def halve(x):\n    ...")


QUESTION = """Which of
these?

- [ ] `a`: Not this one,
  because it is late.
  > Why not?
- [x] both: Yes.

Because of **this**.

- And of that."""


def test_a_prediction_is_read_with_options_replies_and_the_teachers_questions():
    assert seal.read_prediction(QUESTION) == {
        "question": "Which of these?",
        "options": {"`a`": "Not this one, because it is late.", "both": "Yes."},
        "answer": "both",
        "why": "Because of **this**.\n\n- And of that.",
        "ask": {"`a`": "Why not?"},
    }


ANSWER = '# %% tags=["answer"]\ndef f(x):\n    """Do."""\n    ...\n'
PREDICT = '# %% tags=["predict"]\npredict("p")\n'
SEALED = '# %% [markdown] tags=["sealed"]\n# {}\n\n'


def test_a_tagged_cell_below_the_explanation_waits_for_the_prediction_too():
    (path,) = source.choose(["07"])
    (explorer,) = (cell for cell in source.learner(path).cells if "explore" in source.tags_of(cell))
    waits = seal.seal(path)["predictions"]
    assert [name for name, each in waits.items() if explorer.id in each["waits"]] == ["where_the_second_looks"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ANSWER, r"01_one, cell 1 .*`sealed` stands directly above each answer"),
        (SEALED.format("1 point") + "# %%\nprint(1)\n\n" + ANSWER, "stands directly above"),
        (SEALED.format("a point") + ANSWER, "the points come first"),
        (SEALED.format("1 point\n# A hint.") + ANSWER, "this is no hint, .*: A hint"),
        (SEALED.format("Which?") + PREDICT, "0 options are marked as right"),
        (SEALED.format("Which?\n#\n# - [x] a: Yes.\n# - [ ] b") + PREDICT, "an option is not written as"),
    ],
)
def test_a_lesson_that_cannot_be_sealed_says_where(tmp_path, text, complaint):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "01_one.py").write_text(text)
    with pytest.raises(CourseError, match=complaint):
        list(seal.stale(tmp_path))


def test_two_lessons_with_one_name_are_refused(tmp_path):
    (tmp_path / "source").mkdir()
    for name in ("01_one", "02_two"):
        (tmp_path / "source" / f"{name}.py").write_text(SEALED.format("1 point") + ANSWER)
    with pytest.raises(CourseError, match=r"f stands in 01_one and in 02_two: a name is a key"):
        list(seal.stale(tmp_path))


def test_an_exercise_that_moves_to_another_lesson_takes_its_answers_progress_and_points_along(tmp_path, monkeypatch):
    """Nothing but its cells and its cases has to be moved; here, `hook_once` goes from lesson 01 to lesson 02."""
    sealed = [json.loads(root.sealed_path(lesson).read_text(encoding="utf-8")) for lesson in (1, 2)]
    sealed[1]["exercises"]["hook_once"] = sealed[0]["exercises"].pop("hook_once")
    for lesson, said in enumerate(sealed, start=1):
        (tmp_path / f"sealed_{lesson:02d}.json").write_text(json.dumps(said), encoding="utf-8")
    monkeypatch.setattr(saved_progress, "_in_memory", {"exercises": {"hook_once": {"attempts": 4, "passed": True}}})
    before = engine.find("hook_once")
    monkeypatch.setattr(root, "ASSETS", tmp_path)
    declaration._read.cache_clear()
    try:
        (moved,) = [each for each in declaration.read_declarations(2) if each.name == "hook_once"]
    finally:
        declaration._read.cache_clear()
    after = engine.Exercise(**vars(moved), make_cases=before.make_cases)
    assert (after.lesson, after.points, after.hints) == (2, before.points, before.hints)
    assert after.source == before.source
    assert [each.message for each in after.mistakes] == [each.message for each in before.mistakes]
    assert after.check(before.reference, 0).passed
    assert saved_progress.of_exercise("hook_once")["passed"]


GUIDE = root.ROOT / "course_utils" / "authoring" / "README.md"
TRY = """
from course_utils.authoring import seal
seal.seal_lessons()
from course_utils.exercises.engine import find
from course_utils.exercises import check
exercise = find("double_output")
reference, mistakes = exercise.key(0)
print([str(check(answer.function)) for answer in exercise.answers])
print([exercise.judge(did, reference, mistakes.items()).cause == message for message, did in mistakes.items()])
print(exercise.points, len(exercise.all_hints), exercise.source.count("Make every call"))
"""


def test_the_authors_guide_is_followed_as_written(tmp_path):
    """Its example, in a copy of the course, is an exercise that works."""
    for folder in ("course_utils", "notebooks/source"):
        shutil.copytree(root.ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = re.findall(r"^   (`{3,})(\w+)\n(.*?)^   \1$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    cells, cases, page = (textwrap.dedent(block) for _, _, block in blocks)
    for name, text in {"notebooks/source/03_module_hooks": cells, "course_utils/lessons/lesson_03": cases}.items():
        path = tmp_path / f"{name}.py"
        path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{text}", encoding="utf-8")
    (tmp_path / "course_utils/lessons/answers/double_output.md").write_text(page, encoding="utf-8")
    passes, causes, rest = run_python(tmp_path, "-c", TRY, cwd=tmp_path).splitlines()
    assert eval(passes) == ["double_output: passed (1 point)"] * 2
    assert (eval(causes), rest) == ([True] * 3, "1 3 1")


# --- seals and ruff ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lesson", source.sources(), ids=lambda path: path.stem)
def test_what_is_sealed_is_in_no_edition(lesson):
    sealed = [cell for cell in source.read_whole(lesson).cells if source.SEALED in source.tags_of(cell)]
    number = source.number_of(lesson)
    assert len(sealed) == len(exercises_of(number)) + len(predictions_of(number))
    ids = {cell.id for cell in sealed}
    for edition in (source.learner(lesson), source.read_source(lesson)):
        assert not ids & {cell.id for cell in edition.cells}


def test_right_answers_keep_the_rules_of_ruff(tmp_path):
    """Names that are not defined (F821) are those of the lesson's module; that they are there is proved by running."""
    for each in exercises_of():
        for number, text in enumerate(each.page.answers):
            (tmp_path / f"{each.name}_{number}.py").write_text(f"{text}\n", encoding="utf-8")
    width = ["--isolated", "--line-length", "120"]
    rules = ["--select", "E,F,W,UP,B,C4,SIM", "--ignore", "F821"]
    for command in (["check", *width, *rules], ["format", "--check", *width]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
