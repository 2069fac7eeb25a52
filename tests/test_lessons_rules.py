"""The rules that every lesson's source keeps, and lessons that break each of them.

A rule is a function from the path of a source to what is wrong with it, in sentences. Rules that compare a lesson with
its exercises take these as an argument, so that a lesson made up here can be judged too.
"""

import ast
import re
import sys
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import pytest

from course_utils.authoring import source
from course_utils.authoring.source import (
    answer_cells,
    called_with,
    defined_name,
    number_of,
    read_source,
    sources,
    tags_of,
)
from course_utils.exercises.engine import exercises_of, predictions_of

CODE_LINES = 18
SECTIONS = ("What you will be able to do", "What old tutorials say", "Summary", "Go further")
BANNED_CALLS = {
    "Output": "its output is lost in a saved notebook: show text and pictures in widgets whose value is set",
    "clear_output": "it flickers and empties saved notebooks: set the value of a widget",
    "interact": "it prints into an Output widget: connect controls with observe",
    "interactive": "it prints into an Output widget: connect controls with observe",
}
UNCOMPARED_TAGS = {"nbval-skip", "nbval-ignore-output", "nbval-raises-exception", "raises-exception"}
UNCOMPARED_MARKER = re.compile(r"^\s*#\s*(NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$", re.MULTILINE)
REASON = re.compile(r"^\s*# Not compared: \S+ \S+ \S+", re.MULTILINE)
PICTURE = re.compile(r"!\[\s*\]\([^)]*\)|<(?:img|svg)\b(?![^>]*(?:alt|aria-label)=[\"'][^\"'])[^>]*>")

LESSONS = sources()
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


@cache
def read_once(path, text):
    return source.learner(path)


def learner(path):
    return read_once(path, path.read_text(encoding="utf-8"))


def cells_with(path, tag):
    return [cell for cell in learner(path).cells if tag in tags_of(cell)]


def code_cells(path):
    """(number, cell) for each code cell of the learner's edition."""
    return [(number, cell) for number, cell in enumerate(learner(path).cells, start=1) if cell.cell_type == "code"]


def prose(path, cells=None):
    return "\n".join(cell.source for cell in learner(path).cells[:cells] if cell.cell_type == "markdown")


def headings(path):
    """(level, text) of each Markdown heading."""
    return [(len(marks), text) for marks, text in re.findall(r"^(#+) +(.+?) *$", prose(path), re.MULTILINE)]


# --------------------------------------------------------------------------------------------------------------- rules


def one_title_on_top(path):
    titles = [text for level, text in headings(path) if level == 1]
    if not prose(path, 1).startswith("# ") or len(titles) != 1:
        return [f"the first cell starts with the one heading of level 1; there are {len(titles)}: {titles}"]
    return []


def finds_the_course_first(path):
    """The first code cell is the one that says how to get the course where it is missing: the same in every lesson."""
    first, wanted = code_cells(path)[0][1], code_cells(LESSONS[0])[0][1]
    same = (first.id, first.source) == (wanted.id, wanted.source)
    return [] if same else [f"the first code cell is a copy of {LESSONS[0].stem}'s `{wanted.id}`, not `{first.id}`"]


def sections_in_order(path):
    found = [text.lower() for _, text in headings(path)]
    places = []
    for section in SECTIONS:
        matching = [place for place, text in enumerate(found) if text.startswith(section.lower())]
        if len(matching) != 1:
            return [f"one heading starts with {section!r}; there are {len(matching)}"]
        places += matching
    return [] if places == sorted(places) else [f"the sections come in this order: {', '.join(SECTIONS)}"]


def three_to_five_abilities(path):
    section = re.search(r"^#+ *What you will be able to do.*?\n(.*?)(?=^#|\Z)", prose(path), re.M | re.S | re.I)
    items = re.findall(r"^ {0,3}(?:[-*]|\d+\.) ", section[1], re.MULTILINE) if section else []
    return [] if 3 <= len(items) <= 5 else [f"'What you will be able to do' lists 3 to 5 things; here {len(items)}"]


def says_minutes(path):
    said = re.search(r"\b[1-9]\d* minutes\b", prose(path, 4))
    return [] if said else ["the first cells say how many minutes the lesson takes"]


def enough_to_do(path):
    wanted = {"predict": 3, "answer": 5, "explore": 1} if number_of(path) else {"answer": 1}
    counts = {tag: len(cells_with(path, tag)) for tag in wanted}
    return [
        f"there are at least {least} cells tagged `{tag}`; here {counts[tag]}"
        for tag, least in wanted.items()
        if counts[tag] < least
    ]


def check_follows_answer(path):
    problems = []
    for cell, following in pairwise([*learner(path).cells, None]):
        if "answer" in tags_of(cell):
            name = defined_name(cell.source)
            if following is None or "check" not in tags_of(following) or called_with(following.source, "check") != name:
                problems.append(f"the cell after the answer cell of {name} is tagged `check` and calls check({name})")
    return problems


def short_code_cells(path):
    problems = []
    for number, cell in code_cells(path):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        if "answer" not in tags_of(cell) and len(lines) > CODE_LINES:
            problems.append(f"cell {number} ({cell.id}) has {len(lines)} lines of code; at most {CODE_LINES}")
    return problems


def alt_text_for_pictures(path):
    texts = [cell.source for cell in read_source(path).cells if cell.cell_type == "markdown"]
    return [f"there is a picture without alt text: {picture}" for text in texts for picture in PICTURE.findall(text)]


def no_banned_calls(path):
    problems = []
    for number, cell in code_cells(path):
        calls = [node.func for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
        names = [getattr(call, "id", getattr(call, "attr", None)) for call in calls]
        problems += [f"cell {number} calls {name}: {BANNED_CALLS[name]}" for name in names if name in BANNED_CALLS]
    return problems


def compared_or_a_reason(path):
    problems = []
    for number, cell in code_cells(path):
        excused = sorted({*UNCOMPARED_TAGS.intersection(tags_of(cell)), *UNCOMPARED_MARKER.findall(cell.source)})
        if excused and not REASON.search(cell.source):
            problems.append(f"cell {number} is excused by {', '.join(excused)} without `# Not compared: the reason`")
    return problems


def skeletons_match(path, exercises):
    """Each skeleton has the reference's signature and docstring, and is blank."""
    problems = []
    known = {exercise.name: exercise.source for exercise in exercises}
    for name, cell in answer_cells(learner(path), path.stem).items():
        if name in known:  # what is not known is another rule's finding
            skeleton, reference = definition(cell.source), definition(known[name])
            problems += [f"{name}: {problem}" for problem in skeleton_problems(skeleton, reference)]
            if ast.get_docstring(skeleton) != ast.get_docstring(reference):
                problems.append(f"{name}: the skeleton's docstring is not the reference's")
    return problems


def definition(text):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return next(node for node in ast.parse(text).body if isinstance(node, kinds))


def skeleton_problems(skeleton, reference):
    if type(skeleton) is not type(reference):
        return ["the skeleton and the reference are not the same kind of definition"]
    if isinstance(skeleton, ast.ClassDef):
        return class_problems(skeleton, reference)
    problems, pair = [], (skeleton, reference)
    given, wanted = (f"({ast.unparse(node.args)}) -> {node.returns and ast.unparse(node.returns)}" for node in pair)
    if given != wanted:
        problems.append(f"the skeleton's signature is {given}, the reference's {wanted}")
    body = skeleton.body[1:] if ast.get_docstring(skeleton) is not None else skeleton.body
    if [ast.unparse(statement) for statement in body] not in (["..."], []):
        problems.append("the skeleton does something: its body is a docstring and `...`")
    return problems


def class_problems(skeleton, reference):
    bases = [[ast.unparse(base) for base in node.bases] for node in (skeleton, reference)]
    problems = [] if bases[0] == bases[1] else [f"the skeleton's bases are {bases[0]}, the reference's {bases[1]}"]
    methods = [{part.name: part for part in node.body if hasattr(part, "args")} for node in (skeleton, reference)]
    for name, method in methods[0].items():
        if name not in methods[1]:
            problems.append(f"the reference has no method {name}")
        else:
            problems += [f"{name}: {problem}" for problem in skeleton_problems(method, methods[1][name])]
    return problems


def declared_and_shown(path, exercises, predictions):
    """Each exercise and prediction is declared and shown. (What is shown twice cannot even be read: see ids.)"""
    problems = []
    predicted = [called_with(cell.source, "predict") for cell in cells_with(path, "predict")]
    for kind, shown, declared in (
        ("exercise", list(answer_cells(learner(path), path.stem)), [exercise.name for exercise in exercises]),
        ("prediction", predicted, [prediction.name for prediction in predictions]),
    ):
        problems += [f"the {kind} {name} is declared and not in the lesson" for name in declared if name not in shown]
        problems += [f"the {kind} {name} is in the lesson and not declared" for name in shown if name not in declared]
    return problems


EVERY_LESSON = [
    one_title_on_top,
    finds_the_course_first,
    enough_to_do,
    check_follows_answer,
    short_code_cells,
    alt_text_for_pictures,
    no_banned_calls,
    compared_or_a_reason,
]
SKELETON = [sections_in_order, three_to_five_abilities, says_minutes]


LESSONS_AND_RULES = [
    pytest.param(lesson, rule, id=f"{lesson.stem}-{rule.__name__}")
    for lesson in LESSONS
    for rule in (EVERY_LESSON if number_of(lesson) == 0 else EVERY_LESSON + SKELETON)  # the start has its own skeleton
]


@pytest.mark.parametrize(("lesson", "rule"), LESSONS_AND_RULES)
def test_lesson_keeps(lesson, rule):
    assert rule(lesson) == []


@each_lesson
def test_skeletons_match_the_references(lesson):
    assert skeletons_match(lesson, exercises_of(number_of(lesson))) == []


@each_lesson
def test_what_is_declared_is_shown(lesson):
    assert declared_and_shown(lesson, exercises_of(number_of(lesson)), predictions_of(number_of(lesson))) == []


# ----------------------------------------------------------------------------------------- lessons that break the rules


def exercise_named(name):
    source = f'def {name}(tensor, factor=2):\n    """Scale it.\n\n    By `factor`."""\n    return tensor * factor\n'
    return SimpleNamespace(name=name, source=source)


def good_lesson():
    parts = [
        "# %% [markdown]\n# # A lesson\n#\n# ## What you will be able to do\n# - see\n# - do\n# - say\n#\n"
        "# 25 minutes.\n",
        f'# %% find the course tags=["setup"]\n{code_cells(LESSONS[0])[0][1].source}\n',
        '# %% tags=["setup"]\nimport torch\n',
        "# %% [markdown]\n# ![A graph with two paths](graph.svg)\n",
        '# %% tags=["explore"]\nexplore()\n',
    ]
    parts += [f'# %% tags=["predict"]\npredict("p{n}", options=[1, 2])\n' for n in range(3)]
    for n in range(5):
        docstring = '"""Scale it.\n\n    By `factor`.\n    """'
        parts.append(f'# %% tags=["answer"]\ndef f{n}(tensor, factor=2):\n    {docstring}\n    ...\n')
        parts.append(f'# %% tags=["check"]\ncheck(f{n})\n')
    for section in SECTIONS[1:]:
        parts.append(f"# %% [markdown]\n# ## {section}\n")
    return "\n".join(parts)


EXERCISES = [exercise_named(f"f{n}") for n in range(5)]
PREDICTIONS = [SimpleNamespace(name=f"p{n}") for n in range(3)]


@pytest.fixture
def write_lesson(tmp_path):
    def write(text, number="91"):
        path = tmp_path / f"{number}_lesson.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_good_lesson_keeps_every_rule(write_lesson):
    path = write_lesson(good_lesson())
    assert [problem for rule in (*EVERY_LESSON, *SKELETON) for problem in rule(path)] == []
    assert skeletons_match(path, EXERCISES) == []
    assert declared_and_shown(path, EXERCISES, PREDICTIONS) == []


@pytest.mark.parametrize(
    ("rule", "old", "new", "complaint"),
    [
        (one_title_on_top, "# # A lesson", "# ## A lesson", "there are 0"),
        (one_title_on_top, "# ## Summary", "# # Summary", "there are 2"),
        (one_title_on_top, "# %% [markdown]\n# # A", "# %%\n1\n\n# %% [markdown]\n# # A", "the first cell"),
        (finds_the_course_first, "find the course", "see the course", "not `see-the-course`"),
        (finds_the_course_first, "    import course_utils\n", "    import course\n", "copy of 00_start_here's"),
        (sections_in_order, "# ## Summary", "# ## In short", "'Summary'; there are 0"),
        (sections_in_order, "# ## Go further", "# ## Summary again", "'Summary'; there are 2"),
        (three_to_five_abilities, "# - say\n", "", "3 to 5 things; here 2"),
        (three_to_five_abilities, "# - say\n", "# - say\n# - a\n# - b\n# - c\n", "here 6"),
        (says_minutes, "25 minutes", "Not long", "minutes"),
        (enough_to_do, '["explore"]', '["setup"]', "at least 1 cells tagged `explore`; here 0"),
        (enough_to_do, '# %% tags=["predict"]\npredict("p0"', '# %%\npredict("p0"', "`predict`; here 2"),
        (enough_to_do, '# %% tags=["answer"]\ndef f3', "# %%\ndef f3", "`answer`; here 4"),
        (check_follows_answer, "check(f3)", "check(f33)", r"after the answer cell of f3 .* check\(f3\)"),
        (check_follows_answer, '# %% tags=["check"]\ncheck(f3)', "# %% \ncheck(f3)", "tagged `check`"),
        (check_follows_answer, '# %% tags=["check"]\ncheck(f3)', "# %%\n7\n\n# %%\ncheck(f3)", "tagged `check`"),
        (short_code_cells, "explore()", "\n".join(f"x = {n}" for n in range(19)), "has 19 lines"),
        (alt_text_for_pictures, "![A graph with two paths]", "![]", "without alt text"),
        (alt_text_for_pictures, "![A graph with two paths](graph.svg)", '<img src="a.png">', "without alt text"),
        (no_banned_calls, "explore()", "widgets.Output()", "calls Output"),
        (no_banned_calls, "explore()", "interact(f, x=3)", "calls interact"),
        (no_banned_calls, "explore()", "clear_output(wait=True)", "calls clear_output"),
        (compared_or_a_reason, '["explore"]', '["explore", "nbval-skip"]', "excused by nbval-skip"),
        (compared_or_a_reason, "explore()", "# NBVAL_IGNORE_OUTPUT\nexplore()", "excused by NBVAL_IGNORE_OUTPUT"),
        (compared_or_a_reason, '["explore"]', '["explore", "raises-exception"]', "raises-exception"),
    ],
)
def test_a_lesson_that_breaks_a_rule_is_found(write_lesson, rule, old, new, complaint):
    text = good_lesson()
    assert text.count(old) == 1
    found = rule(write_lesson(text.replace(old, new)))
    assert len(found) == 1
    assert re.search(complaint, found[0])


def test_the_first_cell_says_how_to_get_the_course_where_it_is_missing(monkeypatch):
    first = code_cells(LESSONS[0])[0][1].source
    exec(first, {})  # where the course is, nothing happens
    monkeypatch.setitem(sys.modules, "course_utils", None)  # as Python looks where there is none
    with pytest.raises(SystemExit) as caught:
        exec(first, {})
    assert "make lab" in str(caught.value)
    assert "%pip install the-file.zip" in str(caught.value)
    assert caught.value.__suppress_context__, "no traceback of an import that failed"


def test_sections_out_of_order_are_found(write_lesson):
    swapped = good_lesson().replace("## Summary", "## X").replace("## Go further", "## Summary")
    swapped = swapped.replace("## X", "## Go further")
    assert "in this order" in sections_in_order(write_lesson(swapped))[0]


def test_an_uncompared_cell_with_its_reason_is_fine(write_lesson):
    reason = "# NBVAL_IGNORE_OUTPUT\n# Not compared: it shows the installed version\n"
    excused = good_lesson().replace("explore()", f"{reason}explore()")
    assert compared_or_a_reason(write_lesson(excused)) == []


def test_the_start_notebook_needs_one_exercise(write_lesson):
    assert "`answer`; here 0" in enough_to_do(write_lesson("# %% [markdown]\n# # Start\n", "00"))[0]
    start = '# %% [markdown]\n# # Start\n\n# %% tags=["answer"]\ndef f():\n    ...\n'
    assert enough_to_do(write_lesson(start, "00")) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("def f2(tensor, factor=2)", "def f2(tensor, factor=3)", "f2: the skeleton's signature is .tensor, factor=3"),
        ("def f2(tensor, factor=2)", "def f2(tensor, factor=2) -> int", "f2: the skeleton's signature"),
        ('def f2(tensor, factor=2):\n    """Scale it.', 'def f2(tensor, factor=2):\n    """Scale.', "f2: .*docstring"),
        ('    ...\n\n# %% tags=["check"]\ncheck(f2)', '    7\n\n# %% tags=["check"]\ncheck(f2)', "does something"),
    ],
)
def test_a_skeleton_unlike_its_reference_is_found(write_lesson, old, new, complaint):
    text = good_lesson()
    assert text.count(old) == 1
    found = skeletons_match(write_lesson(text.replace(old, new)), EXERCISES)
    assert len(found) == 1
    assert re.search(complaint, found[0])


CLASS = 'class Recorder(Base):\n    """Record."""\n\n    def stop(self, now):\n        """Stop."""\n        {body}\n'


@pytest.mark.parametrize(
    ("skeleton", "complaint"),
    [
        (CLASS.format(body="..."), None),
        (CLASS.format(body="return 3"), "Recorder: stop: the skeleton does something"),
        (CLASS.format(body="...").replace("(Base)", ""), "Recorder: the skeleton's bases"),
        (CLASS.format(body="...").replace("now", "then"), "Recorder: stop: the skeleton's signature"),
        (CLASS.format(body="...").replace("def stop", "def halt"), "Recorder: the reference has no method halt"),
        ('def Recorder():\n    """Record."""\n    ...\n', "not the same kind"),
    ],
)
def test_a_class_is_compared_method_by_method(write_lesson, skeleton, complaint):
    path = write_lesson(f'# %% tags=["answer"]\n{skeleton}')
    reference = SimpleNamespace(name="Recorder", source=CLASS.format(body="return now"))
    found = skeletons_match(path, [reference])
    assert found == [] if complaint is None else re.search(complaint, "\n".join(found))


def test_what_is_declared_and_not_shown_or_shown_and_not_declared_is_found(write_lesson):
    path = write_lesson(good_lesson())
    found = declared_and_shown(path, [*EXERCISES[1:], exercise_named("g")], [*PREDICTIONS, SimpleNamespace(name="q")])
    assert found == [
        "the exercise g is declared and not in the lesson",
        "the exercise f0 is in the lesson and not declared",
        "the prediction q is declared and not in the lesson",
    ]
