"""Exercises and predictions as declarations.

An exercise is its reference answer, the cases it is tried in, other answers that are right, and the mistakes people
make, each with the sentence that helps. `check`, hints, solutions, the grader and the engine's own tests follow.
"""

import ast
import contextlib
import functools
import importlib
import inspect
import secrets
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from course_utils.exercises.declaration import PACKAGE, Declaration, is_blank, lesson_files, renamed
from course_utils.exercises.evidence import CaseMaker, Evidence, observe_all
from course_utils.exercises.judging import Cases, Mistakes, judge
from course_utils.exercises.outcome import Outcome
from course_utils.exercises.recorded import VISIBLE_SEED, recorded_key, recorded_seeds, slip_of
from course_utils.root import CourseError, has_answers, nearest


class Mistake(NamedTuple):
    """A wrong answer seen in the wild, and the sentence that says what is wrong with it."""

    message: str
    function: Callable


@dataclass(repr=False)
class Exercise(Declaration):
    """One exercise that can be run. Made by the decorator `exercise`.

    Before the learner's answer cell has run, the exercise itself stands under its name in the notebook and says so. An
    answer has `limit` seconds for each case.
    """

    reference: Callable
    limit: float = 10.0
    make_cases: CaseMaker | None = None
    accepted: list[Callable] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    equivalents: dict[str, str] = field(default_factory=dict)

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
        return lambda function: self.mistakes.append(Mistake(message, function)) or function

    def equivalent(self, reason: str, *edits: str) -> None:
        """Say why answers with these edits, as `make mutants` writes them, are right as well."""
        self.equivalents.update(dict.fromkeys(edits, reason))

    def observe(self, function: Callable, seed: int, limit: float = 0, at: int | None = None) -> list[Evidence]:
        """What `function` does in every case of `seed`, or in number `at` alone; `limit` is in seconds, for each."""
        return observe_all(self.make_cases, function, seed, limit or self.limit, at)

    def key(self, seed: int) -> tuple[list[Evidence], dict[str, list[Evidence]]]:
        """What the reference does in every case of `seed`, and what each mistake does, by its message.

        Raises `NotRecorded` in an edition without answers, if nothing is recorded for `seed`.
        """
        reference, mistakes = self.lazy_key(seed)
        return reference, {message: found() if callable(found) else found for message, found in mistakes}

    def lazy_key(self, seed: int) -> tuple[list[Evidence], Mistakes]:
        """The key, with each mistake's cases run when they are asked for."""
        if not has_answers():
            reference, mistakes = recorded_key(self.lesson, self.name, seed)
            return reference, mistakes.items()
        mistakes = [(message, functools.partial(self.observe, function, seed)) for message, function in self.mistakes]
        return self.observe(self.reference, seed), mistakes

    def fresh_seed(self) -> int:
        """A seed whose inputs the learner has not met yet; in an edition without answers, one of the recorded."""
        return secrets.randbits(31) if has_answers() else secrets.choice(recorded_seeds(self.lesson)[1:])

    def check(self, function: Callable, seed: int) -> Outcome:
        """Try `function` in the cases of `seed` and say what came of it."""
        if is_blank(function):
            with contextlib.suppress(OSError, TypeError):
                if inspect.isfunction(function) and "..." not in inspect.getsource(function):
                    return self.not_attempted("your function does nothing yet: write its body, and run that cell.")
            return self.not_attempted("replace the `...` in the answer cell, run that cell, then run this one again.")
        got = self.observe(function, seed)
        reference, mistakes = self.lazy_key(seed)
        outcome = self.judge(got, reference, mistakes)
        if outcome.passed or outcome.cause or seed != VISIBLE_SEED:
            return outcome
        return replace(outcome, cause=slip_of(self.name, got, outcome.stage))

    def judge(self, got: Cases, reference: Cases, mistakes: Mistakes) -> Outcome:
        """The outcome of the evidence `got`, by what the reference and the mistakes did on the same inputs."""
        return judge(self.name, got, reference, mistakes, self.points, len(self.hints))

    def __call__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(f"Run the answer cell that defines {self.name} first; then run this cell again.")

    def __repr__(self) -> str:
        return f"{self.name}: run the answer cell that defines it, then check({self.name})"


@dataclass(frozen=True)
class Prediction:
    """A question to answer before the surprising cell. `options` maps each option to what to say to who chose it.

    `why` is what the cells showed and the reason for it, in Markdown; it stays sealed until the learner has committed.
    `ask` is for teachers: for each wrong option a question to those who chose it.
    """

    name: str
    lesson: int
    question: str
    options: Mapping[str, str]
    answer: str
    why: str = ""
    ask: Mapping[str, str] = field(default_factory=dict)


T = TypeVar("T", Exercise, Prediction)


class _Declared(dict[str, T]):
    """What the lessons declare, of one kind, by name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def of_lesson(self, lesson: int | None = None) -> list[T]:
        """Those of a lesson, or of all of them, in the order of their declaration."""
        for path in lesson_files():
            importlib.import_module(f"{PACKAGE}.{path.stem}")
        found = sorted(self.values(), key=lambda each: each.lesson)  # stable: keeps the order inside a lesson
        return [each for each in found if lesson in (None, each.lesson)]

    def find(self, name: str) -> T:
        """The one called `name`, now or formerly; `CourseError` with the nearest names if there is none."""
        if not isinstance(name, str):
            raise CourseError(f"Give the name in quotes: this is a value of type {type(name).__name__}.")
        self.of_lesson()
        if found := self.get(name) or self.get(renamed().get(name)):  # names of today do without the lessons' files
            return found
        near = f"; did you mean {' or '.join(names)}?" if (names := nearest(name, self)) else "."
        raise CourseError(f"`{name}` is not the name of {self.kind}{near}")


_exercises = _Declared[Exercise]("an exercise")
_predictions = _Declared[Prediction]("a prediction")
exercises_of, find = _exercises.of_lesson, _exercises.find
predictions_of, find_prediction = _predictions.of_lesson, _predictions.find


def exercise(*, lesson: int, points: int = 1, hints: Sequence[str], formerly: str = "") -> Callable[..., Exercise]:
    """Decorator: declare the function or class below as the reference answer of an exercise.

    `hints` go from a nudge to partial code. A name that another exercise has raises `CourseError`: the name is the key.
    `formerly` are names that it had, with blanks between them: what was answered under these is an answer to it.
    """

    def declare(reference: Callable) -> Exercise:
        name = reference.__name__
        known = _exercises.get(name)
        if known and known.reference.__module__ != reference.__module__:
            raise CourseError(f"two exercises are called {name}: in {known.reference.__module__} and here")
        _exercises[name] = Exercise(name, lesson, points, tuple(hints), reference)
        return _exercises[name]

    return declare


def prediction(name: str, *, options: Mapping[Any, str], answer: Any, formerly: str = "", **said: Any) -> Prediction:
    """Declare a prediction by the parts of `Prediction`. Options and answer may be anything: they are kept as text.

    `why` is dedented. `formerly`: as in `exercise`.
    """
    options, said["ask"] = ({str(one): text for one, text in each.items()} for each in (options, said.get("ask", {})))
    said["why"] = textwrap.dedent(said.get("why", "")).strip()
    asked = Prediction(name, options=options, answer=str(answer), **said)
    known = _predictions.get(name, asked)
    if (known.lesson, known.question) != (asked.lesson, asked.question):
        raise CourseError(f"two predictions are called {name}: in lesson {known.lesson} and in lesson {asked.lesson}")
    if asked.answer not in options:
        raise CourseError(f"the answer {asked.answer!r} of prediction {name} is not one of its options")
    _predictions[name] = asked
    return asked


def source_of(function: Callable) -> str:
    """The source of a function or class without decorators, unindented."""
    text = textwrap.dedent(inspect.getsource(function))
    return "\n".join(text.splitlines()[ast.parse(text).body[0].lineno - 1 :]) + "\n"
