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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from course_utils.exercises.declaration import PACKAGE, Declaration, is_blank, lesson_files, renamed
from course_utils.exercises.evidence import CaseMaker, Evidence, observe_all
from course_utils.exercises.judging import Cases, Mistakes, judge
from course_utils.exercises.outcome import Outcome
from course_utils.exercises.recorded import recorded_key, recorded_seeds
from course_utils.exercises.slips import SEED as SLIPS_SEED
from course_utils.exercises.slips import slip_of
from course_utils.root import CourseError, has_answers, nearest


class Mistake(NamedTuple):
    """A wrong answer seen in the wild, and the sentence that says what is wrong with it."""

    message: str
    function: Callable


class Lazily:
    """What a function does in the cases of a seed; no more of them are run than are asked for."""

    def __init__(self, exercise: "Exercise", function: Callable, seed: int) -> None:
        self._observe = functools.partial(exercise.observe, function, seed)

    def __getitem__(self, number: int) -> Evidence:
        return self._observe(at=number)[0]

    def __iter__(self) -> Iterator[Evidence]:
        return iter(self._observe())


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
        return reference, {message: list(evidence) for message, evidence in mistakes}

    def lazy_key(self, seed: int) -> tuple[list[Evidence], Iterable[tuple[str, list[Evidence] | Lazily]]]:
        """The key, with each mistake's cases run when they are asked for."""
        if not has_answers():
            reference, mistakes = recorded_key(self.lesson, self.name, seed)
            return reference, mistakes.items()
        mistakes = [(message, Lazily(self, function, seed)) for message, function in self.mistakes]
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
        if outcome.passed or outcome.cause or seed != SLIPS_SEED:
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


_exercises: dict[str, Exercise] = {}
_predictions: dict[str, Prediction] = {}


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


def prediction(
    name: str,
    *,
    lesson: int,
    question: str,
    options: Mapping[Any, str],
    answer: Any,
    why: str = "",
    ask: Mapping[Any, str] | None = None,
    formerly: str = "",
) -> Prediction:
    """Declare a prediction. Options and answer are kept as text; each option has the sentence that answers it.

    `why` is the explanation that opens after the commit: Markdown, dedented. `ask` has for each wrong option what a
    teacher may ask those who chose it. `formerly`: as in `exercise`.
    """
    known = _predictions.get(name)
    if known and (known.lesson, known.question) != (lesson, question):
        raise CourseError(f"two predictions are called {name}: in lesson {known.lesson} and in lesson {lesson}")
    texts, asks = ({str(option): text for option, text in each.items()} for each in (options, ask or {}))
    if str(answer) not in texts:
        raise CourseError(f"the answer {str(answer)!r} of prediction {name} is not one of its options")
    _predictions[name] = Prediction(name, lesson, question, texts, str(answer), textwrap.dedent(why).strip(), asks)
    return _predictions[name]


def exercises_of(lesson: int | None = None) -> list[Exercise]:
    """The exercises of a lesson, or of all of them, in the order of their declaration."""
    return _of_lesson(lesson, _exercises)


def predictions_of(lesson: int | None = None) -> list[Prediction]:
    """The predictions of a lesson, or of all of them."""
    return _of_lesson(lesson, _predictions)


def _of_lesson(lesson: int | None, table: Mapping[str, Any]) -> list[Any]:
    for path in lesson_files():
        importlib.import_module(f"{PACKAGE}.{path.stem}")
    found = sorted(table.values(), key=lambda each: each.lesson)  # stable: keeps the order inside a lesson
    return [each for each in found if lesson in (None, each.lesson)]


def find(name: str) -> Exercise:
    """The exercise called `name`; `CourseError` with the nearest names if there is none."""
    return _lookup(name, _exercises, "an exercise")


def find_prediction(name: str) -> Prediction:
    """The prediction called `name`; `CourseError` with the nearest names if there is none."""
    return _lookup(name, _predictions, "a prediction")


def _lookup(name: str, table: Mapping[str, Any], kind: str) -> Any:
    if not isinstance(name, str):
        raise CourseError(f"Give the name in quotes: this is a value of type {type(name).__name__}.")
    known = {each.name: each for each in _of_lesson(None, table)}
    if found := known.get(name) or known.get(renamed().get(name)):  # names of today do without the lessons' files
        return found
    near = nearest(name, known)
    raise CourseError(f"`{name}` is not the name of {kind}" + (f"; did you mean {' or '.join(near)}?" if near else "."))


def source_of(function: Callable) -> str:
    """The source of a function or class without decorators, unindented."""
    text = textwrap.dedent(inspect.getsource(function))
    return "\n".join(text.splitlines()[ast.parse(text).body[0].lineno - 1 :]) + "\n"
