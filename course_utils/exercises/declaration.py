"""What is known of an exercise or a prediction before anything of it runs. Needs no torch.

A learner reads a task, its points and the first hints, a prediction's question, options and explanation: all that
stands in the lesson's source. `make notebooks` takes from there what is sealed, one file a lesson (`sealed_path`), and
that is what the package reads.
"""

from __future__ import annotations

import dis
import functools
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_utils.exercises.outcome import Outcome, Stage
from course_utils.root import CourseError, nearest, sealed_lessons, sealed_path

DOES_NOTHING = {"RESUME", "NOP", "LOAD_CONST", "POP_TOP", "RETURN_CONST", "RETURN_VALUE"}
MADE_BY_PYTHON = {"__annotations__", *vars(type("Empty", (), {})), "__firstlineno__", "__static_attributes__"}


@dataclass
class Declaration:
    """What a lesson says of an exercise. Its name is that of the function to write, and its key everywhere.

    `task` is the skeleton in the answer cell: signatures and docstrings, with `...` for what is to be written.
    """

    name: str
    lesson: int
    points: int
    hints: tuple[str, ...]
    task: str

    def not_attempted(self, advice: str) -> Outcome:
        """The outcome for an answer that is not there yet."""
        return Outcome(self.name, Stage.NOT_ATTEMPTED, advice[0].upper() + advice[1:], possible=self.points)


@dataclass(frozen=True)
class Prediction:
    """A question to answer before the surprising cell. `options` maps each option to what to say to who chose it.

    `why` is what the cells showed and the reason for it, in Markdown; it stays sealed until the learner has committed.
    `ask` is for teachers: for each wrong option a question to those who chose it. `waits` are the ids of the cells
    between the question and its explanation, which show the answer.
    """

    name: str
    lesson: int
    question: str
    options: Mapping[str, str]
    answer: str
    why: str = ""
    ask: Mapping[str, str] = field(default_factory=dict)
    waits: Sequence[str] = ()


def read_declarations(lesson: int | None = None) -> list[Declaration]:
    """The exercises of a lesson, or of all, in the order in which they are asked."""
    return [
        Declaration(name, number, said["points"], tuple(said["hints"]), said["task"])
        for number in (sealed_lessons() if lesson is None else [lesson])
        for name, said in _read(number)["exercises"].items()
    ]


def name_of(lesson: int) -> tuple[str, str]:
    """The title of a lesson, and the name of its notebook."""
    return _read(lesson)["title"], _read(lesson)["notebook"]


@functools.cache
def _predictions() -> dict[str, Prediction]:
    return {
        name: Prediction(name, number, **said)
        for number in sealed_lessons()
        for name, said in _read(number)["predictions"].items()
    }


def predictions_of(lesson: int | None = None) -> list[Prediction]:
    """The predictions of a lesson, or of all of them, in the order in which they are asked."""
    return [each for each in _predictions().values() if lesson in (None, each.lesson)]


def find_prediction(name: str) -> Prediction:
    """The prediction called `name`; `CourseError` with the nearest names if there is none."""
    return find_by_name(name, _predictions(), "a prediction")


def find_by_name(name: str, known: Mapping[str, Any], kind: str) -> Any:
    """What is called `name` among those `known`; `CourseError` with the nearest names if nothing is."""
    if not isinstance(name, str):
        raise CourseError(f"Give the name in quotes: this is a value of type {type(name).__name__}.")
    if name in known:
        return known[name]
    near = f"; did you mean {' or '.join(names)}?" if (names := nearest(name, known)) else "."
    raise CourseError(f"`{name}` is not the name of {kind}{near}")


def called_with(source: str, function: str) -> str | None:
    """The exercise or prediction that the first call `function(name)` or `function("name")` in `source` is about."""
    call = re.search(rf"""(?<![\w.]){function}\(\s*(["']?)(\w+)\1\s*[,)]""", source)
    return call and call[2]


@functools.cache
def _read(lesson: int) -> dict[str, Any]:
    path = sealed_path(lesson)
    if not path.exists():
        return {"exercises": {}, "predictions": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def is_blank(answer: object) -> bool:
    """Whether a function, or every method of a class, does nothing yet: only a docstring, `...` or `pass`."""
    if not inspect.isclass(answer):
        return _does_nothing(answer)
    own = [getattr(each, "__func__", each) for name, each in vars(answer).items() if name not in MADE_BY_PYTHON]
    # A class with nothing of its own may still do what it inherits.
    return all(map(_does_nothing, own)) if own else (answer.__bases__, type(answer)) == ((object,), type)


def _does_nothing(function: object) -> bool:
    if not inspect.isfunction(function) or {*function.__code__.co_consts} - {None, function.__doc__}:
        return False
    return {step.opname for step in dis.get_instructions(function)} <= DOES_NOTHING
