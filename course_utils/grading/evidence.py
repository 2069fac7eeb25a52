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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import fastjsonschema

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.outcome import Outcome
from course_utils.exercises.plain import Evidence
from course_utils.exercises.recorded import recorded_key, recorded_seeds
from course_utils.grading.answers import BLANK, CollectedAnswer, blame
from course_utils.grading.sandbox.key import Wanted
from course_utils.grading.sandbox.tasks import BLAMED, TOO_LONG, Ran, Task
from course_utils.root import CourseError, has_answers

MAX_CHARACTERS = 32 * 1024 * 1024


def _object(**parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}


def _list(of: Any, **limits: int) -> dict[str, Any]:
    return {"type": "array", "items": of, **limits}


def _by_name(of: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of}


TEXT, FLAG, PLAIN = {"type": "string"}, {"type": "boolean"}, {"$ref": "#/definitions/plain"}
WHOLE = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
LIMITS = {"minimum": -sys.float_info.max, "maximum": sys.float_info.max}
NUMBER = {"type": ["number", "string"], "pattern": "^(nan|-?inf)$", **LIMITS}  # as text only what JSON lacks
VALUES = _list(NUMBER | {"type": ["number", "string", "boolean"]})
KINDS = {  # as `exercises.plain` writes values
    ("tensor",): {"dtype": TEXT, "shape": _list(WHOLE), "values": VALUES},
    ("list", "tuple", "set"): {"items": _list(PLAIN)},
    ("dict",): {"items": _list(_list(PLAIN, minItems=2, maxItems=2))},
    ("bool",): {"value": FLAG},
    ("int",): {"value": WHOLE},
    ("float",): {"value": NUMBER},
    ("complex",): {"value": _list(NUMBER, minItems=2, maxItems=2)},
    ("str", "module", "object"): {"value": TEXT},
}
FORMS = [_object(type={"enum": kinds}, **parts) for kinds, parts in KINDS.items()]
FORMS[0]["properties"]["unreadable"] = TEXT
FORMS.append(_object(type=TEXT | {"not": {"enum": [name for kinds in KINDS for name in kinds]}}))
ONE_OR_MANY = {"anyOf": [PLAIN, _by_name(PLAIN)]}  # a module's value and gradients have names
LINE = WHOLE | {"type": ["integer", "null"]}
RAISED = {"anyOf": [{"type": "null"}, _object(type=TEXT, message=TEXT, during=TEXT, line=LINE, text=TEXT)]}
MODE = {"anyOf": [FLAG, _by_name(FLAG)]}
INPUT = _object(value=ONE_OR_MANY, grad=ONE_OR_MANY, requires_grad=MODE, training=MODE, settings=_by_name(PLAIN))
INPUT["required"] = ["value"]
CHANGED = {"enum": ["value", "requires_grad", "training", "settings", "hooks", "hooks of others"]}
CASE = _object(  # as `exercises.evidence` observes it
    given=TEXT,
    raised=RAISED,
    returned=PLAIN,
    seen=_by_name(PLAIN),
    printed=TEXT,
    inputs=_by_name(INPUT),
    changed=_by_name(_list(CHANGED)),
    world=_list(TEXT),
    alive=FLAG,
    names=_list(TEXT),
)
RECORD = {  # as `driver.observe_answer` gives it
    "$schema": "http://json-schema.org/draft-04/schema#",  # in which 1.0 is no integer
    "definitions": {"plain": {"anyOf": FORMS}},
    **_object(exercise=TEXT, blank=FLAG, raised=RAISED, lost=_list(TEXT), cases=_list(CASE, maxItems=200)),
}
_check_form = functools.cache(functools.partial(fastjsonschema.compile, RECORD))  # once; it takes 0.2 s


def read_record(text: str, exercise: str) -> dict[str, Any]:
    """The driver's record about `exercise`; `CourseError`, which says what is wrong with it, for any other text."""
    try:
        if len(text) > MAX_CHARACTERS:
            raise CourseError(f"it is longer than {MAX_CHARACTERS // 1024**2} MB")
        record = _check_form()(json.loads(text, parse_constant=str))
    except (ValueError, TypeError, RecursionError) as error:  # not JSON, or not of the form
        raise CourseError(str(error)[:200]) from None
    if record["exercise"] != exercise:
        raise CourseError(f"it is about {record['exercise'][:100]!r}, not {exercise}")
    return record


def fits(cases: Sequence[Evidence], key: Sequence[Evidence]) -> bool:
    """Whether evidence is about the same inputs as the key's, so that the two can be compared."""

    def form(case: Evidence) -> set[tuple[str, str, bool]]:
        parts = ((name, part, value) for name, state in case["inputs"].items() for part, value in state.items())
        return {(name, part, part in ("value", "grad") and "type" in value) for name, part, value in parts}

    return all(form(case) == form(reference) for case, reference in zip(cases, key, strict=False))


def seed_for(exercise: str, secret: int) -> int:
    """The seed of one exercise's inputs: whoever finds it out in one exercise knows nothing about another."""
    digest = hmac.digest(secret.to_bytes(32, "big"), exercise.encode(), hashlib.sha256)
    return int.from_bytes(digest[:6], "big")


def _seed_of(exercise: Declaration, secret: int) -> int:
    seed = seed_for(exercise.name, secret)
    seeds = None if has_answers() else recorded_seeds(exercise.lesson)
    return seeds[seed % len(seeds)] if seeds else seed


def make_task(answer: CollectedAnswer, secret: int) -> Task:
    """What an engine needs to run an answer."""
    return Task(answer.exercise.name, "\n".join(answer.support), answer.source, _seed_of(answer.exercise, secret))


def read_ran(answer: CollectedAnswer, ran: Ran) -> tuple[Sequence[Evidence] | None, Outcome | None, str]:
    """What is known of an answer from what its sandbox gave back: its evidence or, without any to judge, the outcome.

    With neither, the text says why there is no score, and a person has to look.
    """
    exercise, ended = answer.exercise, ran.ended
    if answer.outcome:
        return None, answer.outcome, ""
    try:
        record = None if ended else read_record(ran.record, exercise.name)
    except CourseError as error:
        return None, None, f"the record of what the answer did is not in order: {error}"
    raised = record and record["raised"]
    if raised and raised["type"] == "TimeIsUp":
        ended = TOO_LONG
    if ended:
        blamed = blame(exercise, f"{ended[0].upper()}{ended[1:]}.") if ended in BLAMED else None
        return None, blamed, "" if blamed else ended
    lost = "; ".join(f"a definition that the answer may use did not work: {text}" for text in record["lost"])
    if record["blank"]:
        return None, exercise.not_attempted(BLANK), lost
    if raised:
        problem = f"{raised['type']}: {raised['message']}" if raised["message"] else raised["type"]
        line = f"your line {raised['line']}, `{raised['text']}`," if raised["line"] else "your answer cell"
        return None, blame(exercise, f"{line} raised {problem}"), lost
    return record["cases"], None, lost


@dataclass(frozen=True)
class Key:
    """What the reference answer and the declared mistakes of one exercise do with the secret seed.

    `reason` says why there is no key, if the course's own answer did not work here.
    """

    evidence: Sequence[Evidence] = ()
    mistakes: Sequence[tuple[str, Sequence[Evidence]]] = ()
    reason: str = ""


def make_keys(
    exercises: Iterable[Declaration], secret: int, make_key: Callable[[Wanted], dict[str, dict[str, Any]]]
) -> dict[str, Key]:
    """The keys of exercises by name: what `make_key` (of a crew) makes or, in a release, what is recorded.

    The declared mistakes are part of them, so that a wrong answer's likely cause can be found.
    """
    wanted = [(each, _seed_of(each, secret)) for each in exercises]
    if has_answers():
        return {name: Key(**key) for name, key in make_key([(each.name, seed) for each, seed in wanted]).items()}
    found = {each.name: recorded_key(each.lesson, each.name, seed) for each, seed in wanted}
    return {name: Key(evidence, list(mistakes.items())) for name, (evidence, mistakes) in found.items()}
