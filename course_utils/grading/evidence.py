"""Step 2, read with suspicion: what a sandbox gave back, and the key that it will be compared with.

The record in a `Ran` was written by a process in which a student's code ran, so it is believed to be data of the form
that `RECORD` describes, and nothing more. It becomes what is known of the answer: evidence that can be judged, an
outcome where the answer kept the run from ending, or why a person has to look.
"""

import functools
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.plain import Evidence
from course_utils.exercises.recorded import recorded_key, recorded_seeds
from course_utils.grading.answers import read_cells
from course_utils.grading.collect import CollectedAnswer, collect_answers
from course_utils.grading.lessons import Lesson
from course_utils.grading.sandbox import kernel
from course_utils.grading.sandbox.tasks import BLAMED, EVIDENCE, MISTAKES, TOO_LONG, Limits, Ran, Task
from course_utils.root import CourseError, has_answers

MAX_CHARACTERS = 32 * 1024 * 1024
MAX_CASES = 200


def _object(**parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}


def _list(of: Any, **limits: int) -> dict[str, Any]:
    return {"type": "array", "items": of, **limits}


def _by_name(of: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of}


def _kind(*names: str) -> dict[str, Any]:
    return {"enum": list(names)}


TEXT, FLAG, PLAIN = {"type": "string"}, {"type": "boolean"}, {"$ref": "#/definitions/plain"}
WHOLE = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
NUMBER = {  # of the texts only those that stand for numbers which JSON lacks
    "type": ["number", "string"],
    "pattern": "^(nan|-?inf)$",
    "minimum": -sys.float_info.max,
    "maximum": sys.float_info.max,
}
VALUES = _list(NUMBER | {"type": ["number", "string", "boolean"]})
TENSOR = _object(type=_kind("tensor"), dtype=TEXT, shape=_list(WHOLE), values=VALUES)
TENSOR["properties"]["unreadable"] = TEXT
KINDS = [  # as `exercises.plain` writes values
    TENSOR,
    _object(type=_kind("list", "tuple", "set"), items=_list(PLAIN)),
    _object(type=_kind("dict"), items=_list(_list(PLAIN, minItems=2, maxItems=2))),
    _object(type=_kind("bool"), value=FLAG),
    _object(type=_kind("int"), value=WHOLE),
    _object(type=_kind("float"), value=NUMBER),
    _object(type=_kind("complex"), value=_list(NUMBER, minItems=2, maxItems=2)),
    _object(type=_kind("str", "module", "object"), value=TEXT),
]
NAMED = [name for kind in KINDS for name in kind["properties"]["type"]["enum"]]
ONE_OR_MANY = {"anyOf": [PLAIN, _by_name(PLAIN)]}  # a module's value and gradients have names
RAISED = _object(type=TEXT, message=TEXT, during=TEXT, line=WHOLE | {"type": ["integer", "null"]}, text=TEXT)
MODE = {"anyOf": [FLAG, _by_name(FLAG)]}
INPUT = _object(value=ONE_OR_MANY, grad=ONE_OR_MANY, requires_grad=MODE, training=MODE, settings=_by_name(PLAIN))
INPUT["required"] = ["value"]
CASE = _object(  # as `exercises.evidence` observes it
    given=TEXT,
    raised={"anyOf": [{"type": "null"}, RAISED]},
    returned=PLAIN,
    seen=_by_name(PLAIN),
    printed=TEXT,
    inputs=_by_name(INPUT),
    changed=_by_name(_list(_kind("value", "requires_grad", "training", "settings", "hooks", "hooks of others"))),
    world=_list(TEXT),
    alive=FLAG,
    names=_list(TEXT),
)
RECORD = {  # as `driver.observe_answer` gives it
    "$schema": "http://json-schema.org/draft-04/schema#",  # in which 1.0 is no integer
    "definitions": {"plain": {"anyOf": [*KINDS, _object(type={**TEXT, "not": {"enum": NAMED}})]}},
    **_object(
        exercise=TEXT,
        blank=FLAG,
        raised={"anyOf": [{"type": "null"}, RAISED]},
        lost=_list(TEXT),
        cases=_list(CASE, maxItems=MAX_CASES),
    ),
}


@functools.cache
def _check_form() -> Callable[[Any], Any]:
    import fastjsonschema

    return fastjsonschema.compile(RECORD)


def read_record(text: object, exercise: str) -> dict[str, Any]:
    """The driver's record about `exercise`; `CourseError`, which says what is wrong with it, for any other text."""
    if not isinstance(text, str):
        raise CourseError("it is not text")
    if len(text) > MAX_CHARACTERS:
        raise CourseError(f"it is longer than {MAX_CHARACTERS // 1024**2} MB")
    try:
        record = _check_form()(json.loads(text, parse_constant=_refuse))
    except RecursionError:
        raise CourseError("it is nested too deeply") from None
    except ValueError as error:  # not JSON, or not of the form
        raise CourseError(f"{str(error)[:200]}") from None
    if record["exercise"] != exercise:
        raise CourseError(f"it is about {record['exercise'][:100]!r}, not {exercise}")
    return record


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def fits(cases: Sequence[Evidence], key: Sequence[Evidence]) -> bool:
    """Whether evidence is about the same inputs as the key's, so that the two can be compared."""

    def form(case: Evidence) -> dict[str, dict[str, bool]]:
        inputs = case["inputs"].items()
        return {
            name: {part: part in ("value", "grad") and "type" in state[part] for part in state}
            for name, state in inputs
        }

    return all(form(case) == form(reference) for case, reference in zip(cases, key, strict=False))


@dataclass(frozen=True)
class Observed:
    """What is known of one answer after its run: its evidence or, where there is none to judge, the outcome.

    With neither, `reason` says why there is no score, and a person has to look.
    """

    answer: CollectedAnswer
    evidence: Sequence[Evidence] | None = None
    outcome: Outcome | None = None
    reason: str = ""
    seconds: float = 0.0


def seed_for(exercise: str, secret: int) -> int:
    """The seed of one exercise's inputs: whoever finds it out in one exercise knows nothing about another."""
    digest = hmac.digest(secret.to_bytes(32, "big"), exercise.encode(), hashlib.sha256)
    return int.from_bytes(digest[:6], "big")


def make_task(answer: CollectedAnswer, secret: int) -> Task:
    """What an engine needs to run an answer."""
    return Task(answer.exercise.name, "\n".join(answer.support), answer.source, _seed_of(answer.exercise, secret))


def _seed_of(exercise: Declaration, secret: int) -> int:
    seed = seed_for(exercise.name, secret)
    if has_answers():
        return seed
    seeds = recorded_seeds(exercise.lesson)
    return seeds[seed % len(seeds)]


def read_ran(answer: CollectedAnswer, ran: Ran) -> Observed:
    """What is known of an answer from what its sandbox gave back."""
    exercise = answer.exercise
    observed = functools.partial(Observed, answer, seconds=ran.seconds)

    def blame(sentence: str, reason: str = "") -> Observed:
        outcome = Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
        return observed(outcome=outcome, reason=reason)

    if ran.ended:
        blamed = ran.ended in BLAMED
        return blame(f"{ran.ended[0].upper()}{ran.ended[1:]}.") if blamed else observed(reason=ran.ended)
    try:
        record = read_record(ran.record, exercise.name)
    except CourseError as error:
        return observed(reason=f"the record of what the answer did is not in order: {error}")
    lost = "; ".join(f"a definition that the answer may use did not work: {text}" for text in record["lost"])
    if record["blank"]:
        return observed(outcome=exercise.not_attempted("the answer cell is as it came."), reason=lost)
    if raised := record["raised"]:
        if raised["type"] == "TimeIsUp":
            return read_ran(answer, replace(ran, ended=TOO_LONG))
        problem = f"{raised['type']}: {raised['message']}" if raised["message"] else raised["type"]
        line = f"your line {raised['line']}, `{raised['text']}`," if raised["line"] else "your answer cell"
        return blame(f"{line} raised {problem}", lost)
    return observed(evidence=record["cases"], reason=lost)


@dataclass(frozen=True)
class Key:
    """What the reference answer and the declared mistakes of one exercise do with the secret seed.

    `reason` says why there is no key, if the course's own answer did not work here.
    """

    evidence: Sequence[Evidence] = ()
    mistakes: Sequence[tuple[str, Sequence[Evidence]]] = ()
    reason: str = ""


def make_keys(
    wanted: Sequence[tuple[Lesson, Collection[str]]], secret: int, seat: kernel.Seat | None = None
) -> dict[str, Key]:
    """The key of exercises by name: the answered edition, collected as any submission, run by papermill.

    `wanted` names for each lesson the exercises. All are run in one kernel (in the `seat`, if there is one); a lesson
    of which a key is lacking afterwards gets a new kernel to itself. The declared mistakes are run beside the answers,
    so that a wrong answer's likely cause can be found. A release has no answers: its keys are recorded.
    """
    if not has_answers():
        chosen = [each for lesson, names in wanted for each in lesson.exercises if each.name in names]
        found = {each.name: recorded_key(each.lesson, each.name, _seed_of(each, secret)) for each in chosen}
        return {name: Key(evidence, list(mistakes.items())) for name, (evidence, mistakes) in found.items()}
    answers = []
    for lesson, names in wanted:
        collected = collect_answers(read_cells(lesson.answered_notebook().encode()), lesson)
        answers.append([each for each in collected if each.exercise.name in names])
    found = _run_key([each for group in answers for each in group], secret, seat)
    if len(wanted) > 1 or seat:
        for group in answers:
            if any(found[each.exercise.name].reason for each in group):
                found |= _run_key(group, secret)
    return found


def _run_key(answers: Sequence[CollectedAnswer], secret: int, seat: kernel.Seat | None = None) -> dict[str, Key]:
    tasks = [make_task(answer, secret) for answer in answers]
    modules = sorted({f"course_utils.lessons.lesson_{answer.exercise.lesson:02}" for answer in answers})
    notebook = kernel.make_notebook(tasks, setup="\n".join(f"import {module}" for module in modules), mistakes=True)
    seeds = {task.exercise: task.seed for task in tasks}
    seconds = Limits().submission
    executed = kernel.execute(notebook, seeds, seconds, time.monotonic() + seconds * len(modules), seat)
    return {answer.exercise.name: _read_key(answer, executed) for answer in answers}


def _read_key(answer: CollectedAnswer, executed: kernel.Execution) -> Key:
    name = answer.exercise.name
    evidence, mistakes = (executed.displayed.get((kind, name), []) for kind in (EVIDENCE, MISTAKES))
    observed = read_ran(answer, Ran(str(evidence[0])) if evidence else Ran(ended="it showed nothing"))
    sentence = observed.outcome.sentence if observed.outcome else observed.reason
    if not observed.evidence or sentence:
        return Key(reason=f"the course's own answer to {name} did not work here: {sentence} {executed.ended}".rstrip())
    return Key(observed.evidence, json.loads(mistakes[0])["mistakes"] if mistakes else [])
