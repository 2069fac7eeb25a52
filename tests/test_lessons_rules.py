"""The rules that every lesson's source keeps, and lessons that break each of them."""

import ast
import re
import sys
from itertools import pairwise

import pytest

from course_utils.authoring import pace, source
from course_utils.authoring.source import called_with, learner, number_of, read_source, read_whole, tags_of
from course_utils.exercises.declaration import Prediction
from course_utils.exercises.engine import exercises_of, predictions_of
from tests.sealing import seal_problems

LESSONS = source.sources()
CODE_LINES = 18
MOST_CORE, MOST = 75, 120  # minutes of a lesson's core, and of all of it
CORE_EXERCISES = {"00": (1, 1), "09": (3, 10)}  # fewest and most; the reference has short puzzles
SECTIONS = ("What you will be able to do", "What old tutorials say", "Summary", "Go further")
LEAST = {"predict": 3, "answer": 5, "explore": 1}  # cells with this tag
LESS = {"00": {"answer": 1}, "09": {"predict": 1, "answer": 17}, "10": {"answer": 3}}  # start, reference, last
LOST = {"Output", "clear_output", "interact", "interactive"}  # what they show is not in a saved notebook
UNCOMPARED = re.compile(r"nbval-\S+|raises-exception|^\s*#\s*(?:NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$", re.M)
REASON = re.compile(r"^\s*# Not compared: \S+ \S+ \S+", re.M)


def find_problems(path, exercises, predictions):
    """What is wrong with the lesson at `path`. exercises: {name: the reference answer}; predictions: by their names."""
    whole = read_source(path)
    cells = [cell for cell in whole.cells if "instructor" not in tags_of(cell)]
    found = [*layout_problems(cells, path.stem[:2]), *cell_problems(whole.cells), *check_problems(cells)]
    found += seal_problems(cells, predictions)
    answers = {name: cell.source for name, cell in source.answer_cells(whole).items()}
    predicted = {called_with(cell.source, "predict") for cell in cells if "predict" in tags_of(cell)}
    for name in sorted((answers.keys() ^ exercises.keys()) | (predicted ^ predictions.keys())):
        found.append(f"{name} is {'shown and not declared' if name in {*answers, *predicted} else 'not shown'}")
    for name in answers.keys() & exercises.keys():
        found += [f"{name}: {problem}" for problem in skeleton_problems(answers[name], exercises[name])]
    return found


def layout_problems(cells, number):
    texts = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    headings = re.findall(r"^(#+) +(.+?) *$", texts, re.M)
    titles = [text for marks, text in headings if marks == "#"]
    if cells[0].cell_type != "markdown" or not cells[0].source.startswith("# ") or len(titles) != 1:
        yield f"the one heading of level 1 starts the first cell; there are {len(titles)}"
    if first_code(cells) != first_code(read_source(LESSONS[0]).cells):
        yield f"the first code cell says how to get the course, as that of {LESSONS[0].stem} does"
    for tag, least in LESS.get(number, LEAST).items():
        if (count := sum(tag in tags_of(cell) for cell in cells)) < least:
            yield f"at least {least} cells are tagged `{tag}`; here {count}"
    if number != "00":
        sections = [each for _, text in headings for each in SECTIONS if text.lower().startswith(each.lower())]
        if sections != list(SECTIONS):
            yield f"these sections, each once, in this order: {SECTIONS}; here {sections}"
        abilities = re.search(rf"^#+ *{SECTIONS[0]}.*?\n(.*?)(?=^#|\Z)", texts, re.M | re.S | re.I)
        items = re.findall(r"^ {0,3}(?:[-*]|\d+\.) ", abilities[1] if abilities else "", re.M)
        if not 3 <= len(items) <= 5:
            yield f"{SECTIONS[0]!r} lists 3 to 5 things; here {len(items)}"


def first_code(cells):
    return next((cell.id, cell.source) for cell in cells if cell.cell_type == "code")


def cell_problems(cells):
    for cell in [cell for cell in cells if cell.cell_type == "code"]:
        if "answer" not in tags_of(cell) and (lines := len(re.findall(r"^.*\S", cell.source, re.M))) > CODE_LINES:
            yield f"{cell.id} has {lines} lines of code; at most {CODE_LINES}"
        calls = [node.func for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
        lost = LOST.intersection(getattr(call, "id", getattr(call, "attr", None)) for call in calls)
        yield from (f"{cell.id} calls {name}: set the value of a widget instead" for name in lost)
        if UNCOMPARED.search("\n".join([*tags_of(cell), cell.source])) and not REASON.search(cell.source):
            yield f"{cell.id} is not compared, and has no `# Not compared: the reason`"


def check_problems(cells):
    for cell, after in pairwise([*cells, cells[0]]):
        if "answer" in tags_of(cell):
            name = source.defined_name(cell.source)
            if "check" not in tags_of(after) or called_with(after.source, "check") != name:
                yield f"a cell tagged `check` calls check({name}) below the answer"


def skeleton_problems(skeleton, reference):
    """What the skeleton has that the reference has not; or what its functions do."""
    (given, blank), (wanted, _) = outline(skeleton), outline(reference)
    yield from (f"the skeleton has {line!r}, and the reference has not" for line in given - wanted)
    if not blank:
        yield "the skeleton does something"


def outline(text):
    """A definition's own first line and docstring, its methods' first lines; and whether no body does anything."""
    top = next(node for node in ast.parse(text).body if hasattr(node, "decorator_list"))
    lines, blank = {f"the task {ast.get_docstring(top)}"}, True
    for node in [top, *(part for part in top.body if isinstance(top, ast.ClassDef) and hasattr(part, "args"))]:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        blank &= isinstance(node, ast.ClassDef) or "".join(map(ast.unparse, body)) in ("...", "")
        node.body, node.decorator_list = [], []
        lines.add(ast.unparse(node))
    return lines, blank


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_keeps_the_rules(lesson):
    number = number_of(lesson)
    exercises = {each.name: each.source for each in exercises_of(number)}
    problems = find_problems(lesson, exercises, {each.name: each for each in predictions_of(number)})
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_takes_no_more_minutes_than_anybody_has(lesson):
    whole, number = read_whole(lesson), lesson.stem[:2]
    found = pace.parts(whole.cells, number)
    said = f"{lesson.stem} says: {pace.say_minutes(found)}"
    mend = "Tag a heading `more`, or tag the heading of an exercise that you added yourself `local`: it is not counted."
    core, everything = pace.total(found, pace.CORE), pace.total(found, pace.CORE, pace.MORE)
    assert core <= MOST_CORE, f"The core takes {core} minutes, and {MOST_CORE} is the limit. {mend} {said}"
    assert everything <= MOST, f"All of it takes {everything} minutes, and {MOST} is the limit. {mend} {said}"
    exercises = sum(len(part.exercises) for part in found if part.kind == pace.CORE)
    least, most = CORE_EXERCISES.get(number, (3, 5))
    assert least <= exercises <= most, f"{exercises} exercises are core; {least} to {most} should be. {said}"


@pytest.mark.parametrize("page", source.pages(), ids=lambda path: path.stem)
def test_a_page_beside_the_lessons_finds_the_course_as_they_do(page):
    assert first_code(learner(page).cells) == first_code(learner(LESSONS[0]).cells)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_what_is_more_is_called_so(lesson):
    for cell in learner(lesson).cells:
        assert ("more" in tags_of(cell)) == bool(re.match("##+ More: ", cell.source)), cell.source[:60]


# A lesson that keeps the rules.
TASK = 'def {}(tensor, factor=2):\n    """Scale it.\n\n    By `factor`."""\n'
CLASS = 'class Recorder(Base):\n    """Record."""\n\n    def stop(self, now):\n        """Stop."""\n'
SKELETONS = {f"f{n}": TASK.format(f"f{n}") + "    ...\n" for n in range(4)} | {"Recorder": CLASS + "        ...\n"}
EXERCISES = {name: text.replace("...", "return now") for name, text in SKELETONS.items()}
EXERCISES["Recorder"] += "\n    def help(self): ...\n"
CELLS = ["[markdown]\n# # A lesson\n#\n# ## What you will be able to do\n# - see\n# - do\n# - say"]
CELLS += ['find the course tags=["setup"]\n' + first_code(read_source(LESSONS[0]).cells)[1]]
CELLS += ['tags=["explore"]\nexplore()']
CELLS += [f'tags=["predict"]\npredict("p{n}")\n\n# %%\nrun({n})\n\n# %% tags=["why"]\nwhy("p{n}")' for n in range(3)]
for _name, _text in SKELETONS.items():
    CELLS += [f'tags=["answer"]\n{_text}', f'tags=["check"]\ncheck({_name})']
CELLS += [f"[markdown]\n# ## {section}" for section in SECTIONS[1:]]
REPLIES = {"7": "It adds up.", "12": "This is no sum, it is a product.", "3 + 5": "Go on and add them."}
PREDICTIONS = {f"p{n}": Prediction(f"p{n}", 1, "3 and 4?", REPLIES, "12", "Products, not sums.") for n in range(3)}
GOOD = "".join(f"# %% {cell}\n\n" for cell in CELLS)

LINES = "\n".join(f"x = {n}" for n in range(19))
ANSWER = '# %% tags=["answer"]\n' + TASK.format("f3")
ASKED = '# %% tags=["predict"]\npredict("p0"'
CHECK = '# %% tags=["check"]\ncheck(f3)'


@pytest.mark.parametrize(
    ("old", "new", "complaints"),
    [
        ("", "", []),
        ("# # A lesson", "# ## A lesson", ["there are 0"]),
        ("# ## Summary", "# ## Summary\n# # Two", ["there are 2"]),
        ("# %% [markdown]\n# # A", "# %%\n1\n\n# %% [markdown]\n# # A", ["first cell", "of 00_start_here"]),
        ("# ## Summary", "# ## In short", [r"each once, .*tutorials say', 'Go"]),
        ("# - say\n", "", ["3 to 5 things; here 2"]),
        ('["explore"]', '["setup"]', ["1 cells are tagged `explore`; here 0"]),
        (ASKED, "# %%" + ASKED[21:], ["`predict`; here 2", "tagged `predict` where", "p0.. stands", "p0 is not shown"]),
        ('predict("p0"', 'predict("q"', ["p0.. stands", "q has no why", "p0 is not shown", "q is shown and not"]),
        ("run(0)\n\n# %%", "run(0)\n\n# %% [markdown]\n# ## New\n\n# %%", ["p0 has no why", "p0.. stands where no"]),
        ('# %% tags=["why"]\nwhy("p1")', '# %%\nwhy("p1")', ["tagged `why` where", "p1 has no why"]),
        ("# %%\nrun(1)\n\n", "", [r"p1.. stands where no cell since predict\(.p1.\) shows"]),
        ("run(2)", "run(2)  # a product: 12", ["p2 is given away by: 12"]),
        ("run(2)", "f_12(2)", [r"p2 is given away by: f_12\(2\)"]),
        ("run(2)", "run(7, 12)", []),
        ("# - say\n", "# - say: this is *no* sum;\n#   it is a product!\n", ["p. is given away by the lesson"] * 3),
        ("explore()", LINES, ["has 19 lines of code; at most 18"]),
        ("explore()", "widgets.Output()\ninteract(f)", ["calls (Output|interact)"] * 2),
        ('["explore"]', '["explore", "nbval-skip"]', ["is not compared, and"]),
        ("explore()", "# NBVAL_IGNORE_OUTPUT\n# Not compared: it shows the version\nexplore()", []),
        (ANSWER, ANSWER[21:], ["`answer`; here 4", "f3 is not shown"]),
        (CHECK, CHECK.replace("f3", "f33"), [r"check\(f3\) below"]),
        (CHECK, CHECK.replace(' tags=["check"]', ""), [r"check\(f3\) below"]),
        ("def f2(tensor, factor=2)", "def f2(tensor, factor=3)", [r"f2: .* has 'def f2\(tensor, factor=3\):'"]),
        (TASK.format("f2"), TASK.format("f2").replace("By", "Of"), ["f2: the skeleton has 'the task"]),
        (SKELETONS["f2"], SKELETONS["f2"].replace("...", "7"), ["f2: the skeleton does something"]),
        ("(Base)", "", ["Recorder: the skeleton has 'class Recorder:'"]),
        ('"""Stop."""\n        ...', '"""Stop."""\n        return 3', ["Recorder: the skeleton does something"]),
    ],
)
def test_a_lesson_that_breaks_a_rule_is_found(tmp_path, old, new, complaints):
    assert not old or GOOD.count(old) == 1
    path = tmp_path / "91_lesson.py"
    path.write_text(GOOD.replace(old, new) if old else GOOD, encoding="utf-8")
    found = find_problems(path, EXERCISES, PREDICTIONS)
    assert len(found) == len(complaints), found
    assert all(map(re.search, complaints, found)), found


def test_the_first_cell_says_how_to_get_the_course_where_it_is_missing(monkeypatch):
    first = first_code(read_source(LESSONS[0]).cells)[1]
    exec(first, {})  # where the course is, nothing happens
    monkeypatch.setitem(sys.modules, "course_utils", None)  # as Python looks where there is none
    with pytest.raises(SystemExit, match=r"make lab[\s\S]*%pip install the-file.zip") as caught:
        exec(first, {})
    assert caught.value.__suppress_context__, "no traceback of an import that failed"


LESSON_OF_MINUTES = f"""# %% [markdown]
# # Title
#
# **Minutes:** counted by the build
#
# {"word " * 179}

# %% [markdown] tags=["instructor"]
# {"note " * 900}

# %% tags=["setup"]
folded = 1

# %% tags=["explore"]
explore()

# %% [markdown] tags=["sealed"]
# {"question " * 45}
#
# - [ ] 1: {"wrong " * 500}
#   > {"asked " * 500}
# - [x] 2: {"right " * 20}
#
# {"why " * 114}

# %% tags=["predict"]
predict("p")

# %%
{LINES}

# %% [markdown] tags=["sealed"]
# 3 points
# 1. {"hint " * 900}

# %% tags=["answer"]
def first():
    ...

# %% [markdown] tags=["more"]
# ## More: the second part
#
# ### An exercise

# %% [markdown] tags=["sealed"]
# 1 point
# 1. A hint.

# %% tags=["answer"]
def second():
    ...

# %% [markdown]
# ## Core again
#
# {"word " * 178}

# %% [markdown] tags=["local"]
# ### Mine

# %% [markdown] tags=["sealed"]
# 2 points

# %% tags=["answer"]
def third():
    ...
"""


def test_the_minutes_are_those_of_the_stated_model(tmp_path):
    """1 of 180 words, 3 of the explorer, 1.5 of the prediction, 2.5 of 19 lines, 10 of 3 points, and 1 of 180 words."""
    path = tmp_path / "91_lesson.py"
    path.write_text(LESSON_OF_MINUTES, encoding="utf-8")
    lines = learner(path).cells[0].source.splitlines()
    assert lines[2] == "**Minutes:** core 19, all of it 25. Leave out first: *the second part* (6)."
    path.write_text(LESSON_OF_MINUTES.replace("More: ", "").replace('["more"]', "[]"), encoding="utf-8")
    assert learner(path).cells[0].source.splitlines()[2] == "**Minutes:** 25."
    assert pace.say_minutes(pace.parts(read_whole(path).cells, "91")) == "**Minutes:** 25.", "the line counts nothing"
    more = [
        pace.Part("c", "s", pace.MORE, title, minutes, ()) for title, minutes in (("To look up", 0), ("To read", 4))
    ]
    assert pace.say_minutes(more) == "**Minutes:** core 0, all of it 4. Leave out first: *To read* (4)."
