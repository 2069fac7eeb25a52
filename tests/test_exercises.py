"""Every exercise proves itself: right answers pass, each mistake gets its own sentence, a skeleton is not attempted."""

import ast
import builtins
import sys

import pytest
from exercise_keys import EXERCISES, key_of, outcome_of

from course_utils.authoring.source import answer_cells, learner, sources
from course_utils.exercises.declaration import read_declarations
from course_utils.exercises.engine import exercises_of, predictions_of, source_of
from course_utils.exercises.outcome import Stage
from course_utils.grading.definitions import Names, read_names
from course_utils.grading.lessons import read_lessons

SKELETONS = {name: cell for path in sources() for name, cell in answer_cells(learner(path)).items()}
SEEDS = [0, pytest.param(20_261, marks=pytest.mark.slow)]
every_exercise = pytest.mark.parametrize("name", EXERCISES)
with_seeds = pytest.mark.parametrize("seed", SEEDS)


@with_seeds
@every_exercise
def test_right_answers_pass(name, seed):
    exercise = EXERCISES[name]
    for answer in (exercise.reference, *exercise.accepted):
        outcome = outcome_of(name, answer, seed)
        assert outcome.passed, f"{source_of(answer)}\n{outcome}"
        assert outcome.points == exercise.points


@with_seeds
@every_exercise
def test_each_mistake_fails_with_its_own_message(name, seed):
    for mistake in EXERCISES[name].mistakes:
        outcome = outcome_of(name, mistake.function, seed)
        assert not outcome.passed, mistake.message
        assert outcome.cause == mistake.message, outcome


@every_exercise
def test_cases_are_the_same_for_the_same_seed_and_differ_between_seeds(name):
    exercise, (first, _) = EXERCISES[name], key_of(name, 0)
    assert len(first) >= 2, "one case is a coincidence"
    assert exercise.observe(exercise.reference, 0) == first
    others = (exercise.observe(exercise.reference, seed) for seed in (8, 9, 10))
    assert any(other != first for other in others), "an answer made of constants would pass"


@every_exercise
def test_skeleton_is_not_attempted(name):
    exercise = EXERCISES[name]
    namespace = dict(vars(sys.modules[exercise.reference.__module__]))
    exec(SKELETONS[name].source, namespace)
    assert exercise.check(namespace[name], 0).stage is Stage.NOT_ATTEMPTED


@every_exercise
def test_declaration_is_complete(name):
    exercise = EXERCISES[name]
    assert len(exercise.mistakes) >= 3
    assert len(exercise.accepted) >= (2 if exercise.lesson >= 4 else 1)
    assert len(exercise.hints) >= (3 if exercise.lesson == 8 else 2)
    task = ast.get_docstring(ast.parse(exercise.source).body[0])
    assert len(task) > 40
    assert all(len(line) <= 110 for line in task.splitlines()), "it stands in a cell"


def test_a_declaration_read_as_text_says_what_the_exercise_says():
    """The grader reads declarations without torch; nothing of them is lost."""
    said = [(each.name, each.lesson, each.points, each.hints, each.source) for each in read_declarations()]
    made = [(each.name, each.lesson, each.points, each.hints, source_of(each.reference)) for each in exercises_of()]
    assert said == made
    assert [each.name for each in read_declarations(2)] == [each.name for each in exercises_of(2)]
    assert read_declarations(99) == []


def test_every_lesson_has_enough_to_predict():
    assert min(len(predictions_of(lesson)) for lesson in range(1, 9)) >= 4
    for each in predictions_of():
        assert len(each.options) >= 3, each.name
        assert all(len(reply) > 15 for reply in each.options.values()), each.name


ANSWERS = """\
[20, 40, 60, 80]; 1; [2, 4, 6, 8]; 2; 17; 4096; loss_of(net)
1; fc2; the model; an error in forward; 6; second; only last; third
only that of fc1; only that of fc1; the global one; that of net; None; a view of x; it calls forward by its name
1; 31; exactly 0; about 4; fish; the fourth ReLU; the maps of nearly all layers
4; 2; the plain gradient; the same picture; guided; 1.0; 0.9
-8; 196; below 0; at the first layer; on the buoy; fewer than 5; as bright as any other; why A rather than B?; helmet
share; 4; 0; nan; 24; any of them; more than 25; nothing, None
"""


def test_predictions_come_out_as_their_cells_do():
    for lesson, answers in enumerate(ANSWERS.splitlines(), start=2):
        assert "; ".join(each.answer for each in predictions_of(lesson)) == answers


@pytest.mark.parametrize("lesson", read_lessons().values(), ids=lambda lesson: lesson.name)
def test_references_need_only_names_that_their_lesson_has(lesson):
    """`solution()` shows the reference; pasted into the answer cell, it has to run there."""
    for each in lesson.exercises:
        *_, missing = Names(lesson.cells).needed(read_names(each.source)[1], len(lesson.cells), but={each.name})
        assert missing <= set(dir(builtins)), each.name


class RaisesWhenLookedAt:
    """An object that fails on everything one could do with it."""

    __hash__ = None

    def __init__(self, *args):
        pass

    def fail(self, *args):
        raise RuntimeError("do not look")

    __getattr__ = __repr__ = __eq__ = fail


def recurses_for_ever(*args):
    return recurses_for_ever(*args)


async def awaits(*args):
    return 1


WILD = {
    "returns a huge list": lambda *args: list(range(100_000)),
    "raises without a message": lambda *args: (each for each in ()).throw(ValueError()),
    "raises a long message": lambda *args: (each for each in ()).throw(RuntimeError("line\n" * 1000)),
    "recurses for ever": recurses_for_ever,
    "asks for keywords": lambda *, tensor: tensor,
    "awaits": awaits,
    "raises when looked at": RaisesWhenLookedAt,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a coroutine that nobody awaits
@pytest.mark.parametrize("answer", WILD.values(), ids=WILD)
def test_wild_answers_get_a_sentence(answer):
    for name in EXERCISES:
        outcome = outcome_of(name, answer)
        assert outcome.stage not in (Stage.PASSED, Stage.NOT_ATTEMPTED), outcome
        text = str(outcome)
        assert outcome.sentence
        assert len(text) < 2_500, "a sentence, not a page"
        assert "Traceback" not in text
        assert "0x" not in text
        assert outcome._repr_html_()
