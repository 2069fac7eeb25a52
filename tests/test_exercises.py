"""Every exercise proves itself: right answers pass, each mistake gets its own sentence, a skeleton is not attempted."""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys

import pytest

from course_utils.authoring import source
from course_utils.exercises.engine import exercises_of, predictions_of, source_of
from course_utils.exercises.outcome import Stage

EXERCISES = {each.name: each for each in exercises_of()}
ACCEPTED = [(each.name, index) for each in EXERCISES.values() for index in range(len(each.accepted))]
MISTAKES = [(each.name, index) for each in EXERCISES.values() for index in range(len(each.mistakes))]
SEEDS = (0, 1, 20_261)


@pytest.mark.parametrize("name", EXERCISES)
def test_reference_passes(name):
    exercise = EXERCISES[name]
    for seed in SEEDS:
        outcome = exercise.check(exercise.reference, seed)
        assert outcome.passed, outcome
        assert outcome.points == exercise.points


@pytest.mark.parametrize(("name", "index"), ACCEPTED)
def test_other_right_answers_pass(name, index):
    exercise = EXERCISES[name]
    for seed in SEEDS:
        outcome = exercise.check(exercise.accepted[index], seed)
        assert outcome.passed, outcome


@pytest.mark.parametrize(("name", "index"), MISTAKES)
def test_mistake_fails_with_its_own_message(name, index):
    exercise = EXERCISES[name]
    mistake = exercise.mistakes[index]
    for seed in SEEDS:
        outcome = exercise.check(mistake.function, seed)
        assert not outcome.passed
        assert outcome.cause == mistake.message, outcome


@pytest.mark.parametrize("name", EXERCISES)
def test_declaration_is_complete(name):
    exercise = EXERCISES[name]
    assert len(exercise.mistakes) >= 3
    assert len(exercise.hints) >= 2
    assert exercise.points >= 1
    assert len(exercise.doc) > 40
    assert len(exercise.observe(exercise.reference, 0)) >= 2, "one case is a coincidence"


@pytest.mark.slow
def test_no_exercise_has_torch_import_sympy():
    """Half a second, which each answer would pay anew when it is graded: `backward(gradient)` does that, say."""
    code = (
        "import sys\n"
        "from course_utils.exercises.engine import exercises_of\n"
        "for each in exercises_of():\n"
        "    each.observe(each.reference, 0)\n"
        "    if 'sympy' in sys.modules:\n"
        "        sys.exit(each.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", EXERCISES)
def test_skeleton_is_not_attempted(name):
    exercise = EXERCISES[name]
    source = source_of(exercise.reference)
    if inspect.isclass(exercise.reference):
        namespace: dict = {}
        exec(f"class {name}:\n    '''doc'''\n", namespace)
    else:
        namespace = {}
        exec(f"def {name}{exercise.signature}:\n    '''doc'''\n    ...\n", namespace)
    assert f" {name}" in source
    assert exercise.check(namespace[name], 0).stage is Stage.NOT_ATTEMPTED


@pytest.mark.parametrize("name", EXERCISES)
def test_cases_are_the_same_for_the_same_seed_and_differ_between_seeds(name):
    exercise = EXERCISES[name]
    first, again = exercise.observe(exercise.reference, 7), exercise.observe(exercise.reference, 7)
    assert first == again
    others = [exercise.observe(exercise.reference, seed) for seed in (8, 9, 10)]
    assert any(other != first for other in others), "an answer made of constants would pass"


def names_of(source):
    """The names that a piece of code reads, and those that it binds itself."""
    nodes = list(ast.walk(ast.parse(source)))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler))}
    imports = [alias for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names]
    return read, bound | {(alias.asname or alias.name).split(".")[0] for alias in imports}


@pytest.mark.parametrize("name", EXERCISES)
def test_reference_needs_only_names_that_its_lesson_has(name):
    """`solution()` shows the reference; pasted into the answer cell, it has to run there."""
    lesson = next(path for path in source.sources() if int(path.stem[:2]) == EXERCISES[name].lesson)
    known = set(dir(builtins))
    for cell in source.learner(lesson).cells:
        if cell.cell_type == "code":
            known |= names_of(cell.source)[1]
    read, bound = names_of(EXERCISES[name].source)
    assert read - bound - known == set()


def test_predictions_explain_every_option():
    assert predictions_of()
    for each in predictions_of():
        assert len(each.options) >= 3, each.name
        assert all(len(reply) > 15 for reply in each.options.values()), each.name
