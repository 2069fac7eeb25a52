"""A right answer is right however it is written: renamed, split over cells, with helpers, magics, displays around it.

Hypothesis makes the variations; the sandbox runs them, as it runs any submission.
"""

from __future__ import annotations

import ast
import builtins
import json
import random
import sys

import nbformat
import pytest
from grading_samples import helpers_of, notebook_with, source_under_name
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_utils.exercises.engine import exercises_of, find
from course_utils.grading.answers import read_cells
from course_utils.grading.collect import collect_answers
from course_utils.grading.verdict import judge_in_words
from course_utils.grading.lessons import read_lessons
from course_utils.grading.evidence import (
    Key,
    make_task,
    read_ran,
    seed_for,
)
from course_utils.grading.sandbox.fork import ForkEngine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the fork engine needs Linux"),
]
SECRET = 31
LESSONS = read_lessons()
EXERCISES = [exercise.name for lesson in LESSONS.values() for exercise in lesson.exercises]
NOISE = [
    "%matplotlib inline",
    "!ls",
    "%%time\nx = 1",
    "%%bash\nls",
    "display(1)",
    "print('hello')",
    "# only a comment",
    "",
    "1 / 0",
    "this is not Python",
    "raise SystemExit",
    "torch.set_default_dtype(torch.float64)",
    "import torch\ntorch.manual_seed(3)",
]


@pytest.fixture(scope="module")
def engine():
    with ForkEngine() as made:
        yield made


@pytest.fixture(scope="module")
def keys():
    found = {}
    for name in EXERCISES:
        evidence, mistakes = json.loads(json.dumps(find(name).key(seed_for(name, SECRET))))
        found[name] = Key(tuple(evidence), tuple((text, tuple(each)) for text, each in mistakes.items()))
    return found


class Renamer(ast.NodeTransformer):
    """Gives a function's own variables (not its parameters) other names."""

    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        node.id = self.names.get(node.id, node.id)
        return node


def rename_variables(source, suffix):
    """`source` with another name for every plain local variable that can safely have one."""
    tree = ast.parse(source)
    inner = [node for node in ast.walk(tree) if isinstance(node, ast.Nonlocal | ast.Global | ast.ClassDef)]
    if inner:
        return source
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    fixed = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg | ast.keyword)} | set(dir(builtins))
    fixed |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return ast.unparse(Renamer({name: f"{name}{suffix}" for name in stored - fixed}).visit(tree)) + "\n"


def with_comments(source, text):
    """Comments and blank lines above and below the answer, and magics around it."""
    return f"{text}\n\n# mine\n{source}\n# done\n"


def answers_in(notebook, lesson):
    return {one.exercise.name: one for one in collect_answers(read_cells(json.dumps(notebook).encode()), lesson)}


def run(engine, keys, answer):
    """The verdict on one answer, by the sandbox."""
    (ran,) = engine.run([make_task(answer, SECRET)])
    return judge_in_words(read_ran(answer, ran), keys[answer.exercise.name])


@st.composite
def variations(draw):
    """An exercise, one of its right answers, and a notebook in which it is written in a roundabout way."""
    lesson = draw(st.sampled_from(list(LESSONS.values())))
    exercise = draw(st.sampled_from(lesson.exercises))
    function = draw(st.sampled_from([exercise.reference, *exercise.accepted]))
    source = source_under_name(function, exercise.name)
    if draw(st.booleans()):
        source = rename_variables(source, draw(st.sampled_from(["_", "2", "_of_mine", "é"])))
    helpers = helpers_of(function)
    place = draw(st.sampled_from(["same cell", "cell before", "end of notebook", "one cell each"]))
    source = with_comments(source, draw(st.sampled_from(["", "%time", "# look", "display(2)", '"""Text."""'])))
    if place == "same cell":
        source = f"{helpers}\n\n{source}"
    own_cell = draw(st.booleans())
    notebook = notebook_with(lesson, {} if own_cell else {exercise.name: source})
    if place == "cell before":
        notebook.cells.insert(2, nbformat.v4.new_code_cell(helpers))
    elif place == "end of notebook":
        notebook.cells.append(nbformat.v4.new_code_cell(helpers))
    elif place == "one cell each":
        notebook.cells += [nbformat.v4.new_code_cell(ast.unparse(node)) for node in ast.parse(helpers).body]
    if own_cell:
        notebook.cells.append(nbformat.v4.new_code_cell(source))
    shuffle = random.Random(draw(st.integers(0, 1000)))
    for text in draw(st.lists(st.sampled_from(NOISE), max_size=4)):
        notebook.cells.insert(shuffle.randrange(len(notebook.cells) + 1), nbformat.v4.new_code_cell(text))
    if draw(st.booleans()):
        for cell in notebook.cells:
            cell.metadata = {}
            cell.pop("id", None)
    return lesson, exercise.name, notebook


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(variations())
def test_a_right_answer_is_right_however_it_is_written(engine, keys, variation):
    lesson, name, notebook = variation
    answer = answers_in(notebook, lesson)[name]
    assert answer.outcome is None, answer.outcome
    verdict = run(engine, keys, answer)
    assert verdict.outcome, verdict.reason
    assert verdict.outcome.passed, verdict.outcome


@pytest.mark.parametrize("exercise", exercises_of(), ids=lambda each: each.name)
def test_the_sandbox_says_what_check_says(exercise, engine, keys):
    """Every declared answer, right or wrong, on the whole way of a submission."""
    lesson = next(lesson for lesson in LESSONS.values() if exercise in lesson.exercises)
    for function in [*exercise.accepted, *(mistake.function for mistake in exercise.mistakes)]:
        source = f"{helpers_of(function)}\n\n{source_under_name(function, exercise.name)}"
        verdict = run(engine, keys, answers_in(notebook_with(lesson, {exercise.name: source}), lesson)[exercise.name])
        wanted = exercise.check(function, seed_for(exercise.name, SECRET))
        assert verdict.outcome, verdict.reason
        assert (verdict.outcome.stage, verdict.outcome.cause) == (wanted.stage, wanted.cause)


CONTEXT = """
def scale_gradient(tensor, factor):
    return tensor.register_hook(make_hook(factor))
"""


@pytest.mark.parametrize(
    "cells",
    [
        ["def make_hook(factor):\n    return lambda grad: grad * factor"],
        ["import functools, operator", "def make_hook(factor):\n    return functools.partial(operator.mul, factor)"],
        ["times = lambda a, b: a * b", "def make_hook(factor):\n    return lambda grad: times(grad, factor)"],
        [
            "class Scale(float):\n    def __call__(self, grad): return grad * float(self)",
            "make_hook = Scale",
        ],
        ["if True:\n    def make_hook(factor): return lambda grad: factor * grad"],
        ["%%time\ndef make_hook(factor):\n    return lambda grad: grad * factor", "make_hook(2)  # tried"],
        ["from torch import mul as product", "def make_hook(factor):\n    return lambda grad: product(grad, factor)"],
    ],
)
def test_what_an_answer_uses_from_other_cells_travels(cells, engine, keys):
    lesson = LESSONS["01_tensor_hooks"]
    notebook = notebook_with(lesson, {"scale_gradient": CONTEXT})
    for number, text in enumerate(cells):
        notebook.cells.insert(1 + number, nbformat.v4.new_code_cell(text))
    verdict = run(engine, keys, answers_in(notebook, lesson)["scale_gradient"])
    assert verdict.outcome.passed, verdict
