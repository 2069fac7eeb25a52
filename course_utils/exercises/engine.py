"""Exercises and predictions as declarations.

An exercise is its reference answer, the cases it is tried in, other answers that are right, and the mistakes people
make, each with the sentence that helps. `check`, hints, solutions, the grader and the engine's own tests follow.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import pkgutil
import re
import secrets
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_utils.exercises.evidence import CaseMaker, Evidence, observe_all
from course_utils.exercises.judging import judge
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.recorded import recorded_key, recorded_seeds
from course_utils.grading.answers import is_blank
from course_utils.root import has_answers


@dataclass(frozen=True)
class Mistake:
    """A wrong answer seen in the wild, and the sentence that says what is wrong with it."""

    message: str
    function: Callable


@dataclass
class Exercise:
    """One exercise. Made by the decorator `exercise`; its name is the reference answer's name and its key everywhere.

    Before the learner's answer cell has run, the exercise itself stands under that name in the notebook, so that
    `check(name)` can say so; calling it says the same.
    """

    reference: Callable
    lesson: int
    points: int
    hints: tuple[str, ...]
    limit: float
    make_cases: CaseMaker | None = None
    accepted: list[Callable] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The key: the function's (or class's) name."""
        return self.reference.__name__

    @property
    def doc(self) -> str:
        """The task, as the docstring gives it."""
        return inspect.cleandoc(self.reference.__doc__ or "")

    @property
    def signature(self) -> inspect.Signature:
        """The signature that the answer must have."""
        return inspect.signature(self.reference)

    @property
    def source(self) -> str:
        """The reference answer's source text, without its decorator, as it would stand in a notebook."""
        return source_of(self.reference)

    def cases(self, make: CaseMaker) -> CaseMaker:
        """Decorator: a generator function that gets `Numbers` and yields each `Case` as it is needed."""
        self.make_cases = make
        return make

    def accept(self, function: Callable) -> Callable:
        """Decorator: another right answer."""
        self.accepted.append(function)
        return function

    def mistake(self, message: str) -> Callable[[Callable], Callable]:
        """Decorator: a wrong answer, with the sentence for whoever gives an answer that behaves like it."""

        def add(function: Callable) -> Callable:
            self.mistakes.append(Mistake(message, function))
            return function

        return add

    def observe(self, function: Callable, seed: int) -> list[Evidence]:
        """What `function` does in every case of `seed`."""
        if self.make_cases is None:
            raise ValueError(f"the exercise {self.name} has no cases: add a generator with @{self.name}.cases")
        return observe_all(self.make_cases, function, seed, self.limit)

    def expected(self, seed: int) -> list[Evidence]:
        """What the reference does in every case of `seed`; in an edition without answers, what it did."""
        if not has_answers():
            return recorded_key(self.lesson, self.name, seed)[0]
        return self.observe(self.reference, seed)

    def key(self, seed: int) -> tuple[list[Evidence], dict[str, list[Evidence]]]:
        """What the reference does in every case of `seed`, and what each mistake does, by its message.

        Raises `NotRecorded` in an edition without answers, if nothing is recorded for `seed`.
        """
        if not has_answers():
            return recorded_key(self.lesson, self.name, seed)
        return self.expected(seed), {mistake.message: self.observe(mistake.function, seed) for mistake in self.mistakes}

    def fresh_seed(self) -> int:
        """A seed whose inputs the learner has not met yet; in an edition without answers, one of the recorded."""
        if has_answers():
            return secrets.randbits(31)
        return secrets.choice(recorded_seeds(self.lesson)[1:])

    def check(self, function: Callable, seed: int) -> Outcome:
        """Try `function` in the cases of `seed` and say what came of it."""
        if is_blank(function):
            return self.not_attempted("replace the `...` in the answer cell, run that cell, then run this one again.")
        got = self.observe(function, seed)
        reference = self.expected(seed)
        outcome = judge(self.name, got, reference, {}, self.points, len(self.hints))
        if not outcome.passed:  # the mistakes are only needed to explain a failure
            mistakes = self.key(seed)[1]
            outcome = judge(self.name, got, reference, mistakes, self.points, len(self.hints))
        return outcome

    def not_attempted(self, advice: str) -> Outcome:
        """The outcome for an answer that is not there yet."""
        return Outcome(self.name, Stage.NOT_ATTEMPTED, advice[0].upper() + advice[1:], possible=self.points)

    def __call__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(f"Run the answer cell that defines {self.name} first; then run this cell again.")

    def __repr__(self) -> str:
        return f"{self.name}: run the answer cell that defines it, then check({self.name})"


@dataclass(frozen=True)
class Prediction:
    """A question to answer before the surprising cell. `options` maps each option to what to say to who chose it."""

    name: str
    lesson: int
    question: str
    options: Mapping[str, str]
    answer: str

    def __post_init__(self) -> None:
        if self.answer not in self.options:
            raise ValueError(f"the answer {self.answer!r} of prediction {self.name} is not one of its options")


_exercises: dict[str, Exercise] = {}
_predictions: dict[str, Prediction] = {}


def exercise(
    *, lesson: int, points: int = 1, hints: Sequence[str], limit: float = 10.0
) -> Callable[[Callable], Exercise]:
    """Decorator: declare the function or class below as the reference answer of an exercise.

    `hints` go from a nudge to partial code; `limit` is the time an answer has per case, in seconds. A name that another
    exercise has raises `ValueError`: the name is the key.
    """

    def declare(reference: Callable) -> Exercise:
        name = reference.__name__
        known = _exercises.get(name)
        if known and known.reference.__module__ != reference.__module__:
            raise ValueError(f"two exercises are called {name}: in {known.reference.__module__} and here")
        _exercises[name] = Exercise(reference, lesson, points, tuple(hints), limit)
        return _exercises[name]

    return declare


def prediction(name: str, *, lesson: int, question: str, options: Mapping[Any, str], answer: Any) -> Prediction:
    """Declare a prediction. Options and answer are kept as text; each option has the sentence that answers it."""
    known = _predictions.get(name)
    if known and (known.lesson, known.question) != (lesson, question):
        raise ValueError(f"two predictions are called {name}: in lesson {known.lesson} and in lesson {lesson}")
    texts = {str(option): reply for option, reply in options.items()}
    _predictions[name] = Prediction(name, lesson, question, texts, str(answer))
    return _predictions[name]


def load_lessons() -> None:
    """Import every module of exercises, so that all names are known."""
    package = importlib.import_module("course_utils.lessons")
    for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        if re.fullmatch(r"lesson_\d\d", module):
            importlib.import_module(f"course_utils.lessons.{module}")


def exercises_of(lesson: int | None = None) -> list[Exercise]:
    """The exercises of a lesson, or of all of them, in the order of their declaration."""
    load_lessons()
    found = sorted(_exercises.values(), key=lambda each: each.lesson)  # stable: keeps the order inside a lesson
    return [each for each in found if lesson is None or each.lesson == lesson]


def predictions_of(lesson: int | None = None) -> list[Prediction]:
    """The predictions of a lesson, or of all of them."""
    load_lessons()
    found = sorted(_predictions.values(), key=lambda each: each.lesson)
    return [each for each in found if lesson is None or each.lesson == lesson]


def find(name: str) -> Exercise:
    """The exercise called `name`; `KeyError` with the nearest names if there is none."""
    load_lessons()
    return _lookup(name, _exercises, "an exercise")


def find_prediction(name: str) -> Prediction:
    """The prediction called `name`; `KeyError` with the nearest names if there is none."""
    load_lessons()
    return _lookup(name, _predictions, "a prediction")


def _lookup(name: str, table: Mapping[str, Any], kind: str) -> Any:
    if not isinstance(name, str):
        raise KeyError(f"Give the name in quotes: this is a value of type {type(name).__name__}.")
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=3, cutoff=0.5)
    raise KeyError(f"`{name}` is not the name of {kind}" + (f"; did you mean {' or '.join(near)}?" if near else "."))


def source_of(function: Callable) -> str:
    """The source of a function or class without decorators, unindented."""
    text = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(text).body[0]
    return "\n".join(text.splitlines()[node.lineno - 1 :]) + "\n"
