"""Notebooks and answers for the grader's tests, made from the real lessons."""

import ast
import builtins
import functools
import inspect
import json
import random
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from hypothesis import strategies as st

from course_utils.authoring import source
from course_utils.authoring.release import KNOWN
from course_utils.exercises.answers import Answer
from course_utils.exercises.engine import Exercise, exercises_of, find
from course_utils.grading.answers import CollectedAnswer, collect_answers
from course_utils.grading.definitions import read_cells
from course_utils.grading.evidence import judge_answer, seed_for, to_score
from course_utils.grading.report import Score
from course_utils.grading.sandbox import driver
from course_utils.grading.sandbox.key import Key, make_key
from course_utils.grading.sandbox.tasks import Closing, Ran, Task
from course_utils.grading.submissions import Lesson, read_lessons
from course_utils.root import write_whole

LESSONS = {name: replace(each, exercises=(*exercises_of(int(name[:2])),)) for name, each in read_lessons().items()}
START, TENSOR_HOOKS = LESSONS["00_start_here"], LESSONS["01_tensor_hooks"]
EXERCISES = [exercise for lesson in LESSONS.values() for exercise in lesson.exercises]
SEED = 20_261
ONE = "def scale_gradient(tensor, factor):\n    return 1\n"
TWO = "def scale_gradient(tensor, factor):\n    return 2\n"


def lesson_of(name: str) -> Lesson:
    return next(lesson for lesson in LESSONS.values() if name in [each.name for each in lesson.exercises])


def through_json(value: object) -> object:
    return json.loads(json.dumps(value))


@functools.cache
def key_of(name: str) -> Key:
    """The key of an exercise with one of its mistakes; to run all of them would take most of the time of a test."""
    reference, mistakes = find(name).lazy_key(seed_for(find(name), SEED))
    message, observe_it = mistakes[-1]
    return Key(*through_json([reference, [(message, observe_it())]]))


def only(answers: Sequence[CollectedAnswer], name: str = "scale_gradient") -> CollectedAnswer:
    return next(answer for answer in answers if answer.exercise.name == name)


def answer_in(notebook: nbformat.NotebookNode, name: str = "scale_gradient") -> CollectedAnswer:
    """What the grader takes from a notebook as the answer to the exercise called `name`."""
    return only(collect_answers(read_cells(json.dumps(notebook).encode()), lesson_of(name)), name)


def answer_to(name: str, source: str) -> CollectedAnswer:
    return CollectedAnswer(find(name), textwrap.dedent(source))


def judge(answer: CollectedAnswer, ran: Ran) -> Score:
    """Ann's score for an answer by what came of it, before nbval is asked."""
    judged = to_score(answer.exercise, answer.outcome)
    if not answer.outcome:
        judged = judge_answer(answer.exercise, key_of(answer.exercise.name), ran)
    return replace(judged, student="ann", lesson=START.name, seconds=ran.seconds)


def observe(task: Task) -> Ran:
    """What comes of a task in this process."""
    return Ran("\n".join(json.dumps(record) for record in driver.observe_answers(**vars(task))))


class Open(Closing):
    def close(self):
        """Nothing is open."""


class DeskHere(Open):
    """Reads and judges in this process."""

    def ask(self, work, *arguments):
        return work(*arguments)


class Equal(Open):
    """Finds equal texts equal, in the place of nbval."""

    def ask(self, scores):
        return [(one.got == one.expected, "") for one in scores]


class Crew(Open):
    """Runs answers in this process, and notes how many submissions it was given."""

    isolation, given, key = ("isolation: none",), [], None

    def run_all(self, batches, limits):
        self.given.append(len(batches))
        for number, tasks in enumerate(batches):
            yield number, [observe(task) for task in tasks]


def make_keys(wanted: Sequence[tuple[str, int]], _: object) -> dict[str, Key]:
    """What `ask_for_key` gives, made in this process."""
    return {name: Key(**found) for name, found in json.loads(make_key(json.dumps(wanted).encode())).items()}


def grade_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, nbval is not asked, and the commands run answers, read, judge and make keys in this process."""
    monkeypatch.setattr(Crew, "given", [])
    for place, stand_in in {
        "grade._make_crew": lambda *_: Crew(),
        "batch.ask_for_key": make_keys,
        "verdict.Comparer": Equal,
        "grade.Comparer": Equal,
        "grade.Desk": DeskHere,
        "batch.Desk": DeskHere,
    }.items():
        monkeypatch.setattr(f"course_utils.grading.{place}", stand_in)


def put(folder: Path, *places: str, text: str) -> None:
    for place in places:
        write_whole(folder / place, text)


def helpers_of(exercise: Exercise, source: str) -> str:
    """What a student who gives this answer has in a cell of their own: imports, and the helpers that it shares.

    What the module with the cases defines itself is imported from there, as a lesson does.
    """
    module = sys.modules[exercise.make_cases.__module__]
    shared = exercise.page.shared
    names = (node for node in ast.walk(ast.parse(f"{shared}\n{source}")) if isinstance(node, ast.Name))
    used = {node.id for node in names} - vars(builtins).keys() - {exercise.name}
    imports = []
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = {(each.asname or each.name).partition(".")[0] for each in node.names}
            imports += [ast.unparse(node)] if bound & used else []
            used -= bound
    own = sorted(used & vars(module).keys())
    imports += [f"from {module.__name__} import {', '.join(own)}"] if own else []
    return "\n".join([*imports, shared])


def renamed(code: str) -> str:
    """The code with other names for whatever it binds itself."""
    tree = ast.parse(code)
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound -= KNOWN
    return re.sub(r"(?<![.\w])\w+(?!\w|=[^=])", lambda found: found[0] + "_2" * (found[0] in bound), code)


def handed_out(lesson: Lesson) -> nbformat.NotebookNode:
    return source.learner(source.FOLDER / "source" / f"{lesson.name}.py")


def notebook_with(lesson: Lesson, answers: Mapping[str, str]) -> nbformat.NotebookNode:
    return source.put_answers(handed_out(lesson), answers)


def submitted(answer: Answer, name: str) -> CollectedAnswer:
    """An accepted answer or a mistake with all that it uses, as it comes out of a student's notebook."""
    text = f"{helpers_of(find(name), answer.source)}\n\n{answer.source}\n"
    return answer_in(notebook_with(lesson_of(name), {name: text}), name)


def add_cell(notebook: nbformat.NotebookNode, source: str, at: int = 1) -> None:
    notebook.cells.insert(at, nbformat.v4.new_code_cell(source))


def hand_in(folder: Path, student: str, lesson: Lesson, notebook: nbformat.NotebookNode) -> None:
    """Write the notebook where a student's submission belongs."""
    put(folder, f"{student}/{lesson.name}.ipynb", text=nbformat.writes(notebook))


def give(folder: Path, **answers: str) -> None:
    """Hand in a notebook with this answer to `largest` for each student."""
    for student, text in answers.items():
        hand_in(folder, student, START, notebook_with(START, {"largest": text}))


def read_scores(report: str | Path) -> list[dict]:
    """The rows of `scores.json` in the report's folder."""
    return json.loads(Path(report, "scores.json").read_text(encoding="utf-8"))["scores"]


def raw_notebook(*cells: str | dict) -> bytes:
    """The bytes of a small notebook; a text is a code cell."""
    empty = {"cell_type": "code", "metadata": {}, "outputs": []}
    made = [cell if not isinstance(cell, str) else empty | {"source": cell} for cell in cells]
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": made}).encode()


# The notebooks in `honest.txt`, each with a right answer to `largest`: `## name`, then cells between `--`. Where the
# last cell is no answer, it is what must be true while one runs. BOM stands for the byte order mark, which nobody sees.
HABITS = {}
HONEST = Path(__file__).with_name("honest.txt").read_text(encoding="utf-8").replace("BOM", "\ufeff")
for part in HONEST.split("## ")[1:]:
    *habit, last = part.partition("\n")[2].split("\n--\n")
    asked = f"def largest(tensor):\n    assert {last.strip()}\n    return tensor.max().item()\n"
    HABITS[part.partition("\n")[0]] = raw_notebook(*habit, last if "largest" in part.partition("\n")[2] else asked)

NOISE = """\
%matplotlib inline | !ls | %%time\nx = 1 | %%bash\nls | display(1) | print('hello') | # only a comment | | 1 / 0 |
this is not Python | raise SystemExit | torch.set_default_dtype(torch.float64) | import torch\ntorch.manual_seed(3)
"""


@st.composite
def variations(draw):
    """One of an exercise's right answers, in a notebook in which it is written in a roundabout way."""
    exercise = draw(st.sampled_from(EXERCISES))
    answer = draw(st.sampled_from(exercise.page.answers))
    helpers = helpers_of(exercise, answer)
    above = draw(st.sampled_from(["", "%time", "# look", "display(2)", '"""Text."""']))
    source = f"{above}\n\n# mine\n{answer}\n# done\n"
    place = draw(st.sampled_from(["same cell", "cell before", "end of notebook", "one cell each"]))
    if place == "same cell":
        source = f"{helpers}\n\n{source}"
    own_cell = draw(st.booleans())
    notebook = notebook_with(lesson_of(exercise.name), {} if own_cell else {exercise.name: source})
    if place == "one cell each":
        notebook.cells += [nbformat.v4.new_code_cell(ast.unparse(node)) for node in ast.parse(helpers).body]
    elif place != "same cell":
        add_cell(notebook, helpers, at=2 if place == "cell before" else len(notebook.cells))
    if own_cell:
        add_cell(notebook, source, at=len(notebook.cells))
    shuffle = random.Random(draw(st.integers(0, 1000)))
    for text in draw(st.lists(st.sampled_from(NOISE.strip("\n").split(" | ")), max_size=4)):
        add_cell(notebook, text, at=shuffle.randrange(len(notebook.cells) + 1))
    if draw(st.booleans()):
        for cell in notebook.cells:
            cell.metadata = {}
            cell.pop("id", None)
    return answer_in(notebook, exercise.name)
