"""The rules that every lesson's source keeps, and lessons that break each of them."""

import ast
import re
import sys
from itertools import pairwise

import pytest

from course_utils.authoring import pace, source
from course_utils.authoring.source import called_with, learner, number_of, read_source, read_whole, tags_of
from course_utils.exercises.declaration import Prediction
from course_utils.exercises.engine import predictions_of
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


def find_problems(path, predictions):
    """What is wrong with the lesson at `path`. predictions: by their names."""
    whole = read_source(path)
    cells = [cell for cell in whole.cells if "instructor" not in tags_of(cell)]
    found = [*layout_problems(cells, path.stem[:2]), *cell_problems(whole.cells), *check_problems(cells)]
    return [*found, *seal_problems(cells, predictions)]


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


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_keeps_the_rules(lesson):
    problems = find_problems(lesson, {each.name: each for each in predictions_of(number_of(lesson))})
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
CELLS = ["[markdown]\n# # A lesson\n#\n# ## What you will be able to do\n# - see\n# - do\n# - say"]
CELLS += ['find the course tags=["setup"]\n' + first_code(read_source(LESSONS[0]).cells)[1]]
CELLS += ['tags=["explore"]\nexplore()']
CELLS += [f'tags=["predict"]\npredict("p{n}")\n\n# %%\nrun({n})\n\n# %% tags=["why"]\nwhy("p{n}")' for n in range(3)]
for _number in range(5):
    CELLS += [f'tags=["answer"]\ndef f{_number}(tensor): ...', f'tags=["check"]\ncheck(f{_number})']
CELLS += [f"[markdown]\n# ## {section}" for section in SECTIONS[1:]]
REPLIES = {"7": "It adds up.", "12": "This is no sum, it is a product.", "3 + 5": "Go on and add them."}
PREDICTIONS = {f"p{n}": Prediction(f"p{n}", 1, "3 and 4?", REPLIES, "12", "Products, not sums.") for n in range(3)}
GOOD = "".join(f"# %% {cell}\n\n" for cell in CELLS)

LINES = "\n".join(f"x = {n}" for n in range(19))
ANSWER = '# %% tags=["answer"]\ndef f3'
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
        (ASKED, "# %%" + ASKED[21:], ["`predict`; here 2", "tagged `predict` where", "p0.. stands"]),
        ('predict("p0"', 'predict("q"', ["p0.. stands", "q has no why"]),
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
        (ANSWER, ANSWER[21:], ["`answer`; here 4"]),
        (CHECK, CHECK.replace("f3", "f33"), [r"check\(f3\) below"]),
        (CHECK, CHECK.replace(' tags=["check"]', ""), [r"check\(f3\) below"]),
    ],
)
def test_a_lesson_that_breaks_a_rule_is_found(tmp_path, old, new, complaints):
    assert not old or GOOD.count(old) == 1
    path = tmp_path / "91_lesson.py"
    path.write_text(GOOD.replace(old, new) if old else GOOD, encoding="utf-8")
    found = find_problems(path, PREDICTIONS)
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
