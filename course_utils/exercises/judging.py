"""From evidence to an outcome: compare what an answer did with what the reference did.

Works on plain data alone, so that a judge can do it in a process in which no learner's code ever ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.plain import (
    Plain,
    name_type,
    number_text,
    shape_text,
    show,
)

if TYPE_CHECKING:
    from course_utils.exercises.evidence import Evidence

RELATIVE = 1e-5
ABSOLUTE = 1e-6
SEQUENCES = {"list", "tuple"}


@dataclass(frozen=True)
class Difference:
    """The first thing in which an answer differs from the reference: at which stage, and a sentence about it."""

    stage: Stage
    sentence: str


def first_difference(got: Sequence[Evidence], expected: Sequence[Evidence], name: str) -> Difference | None:
    """Compare case by case; the first case that differs decides. None if they are equal within tolerance."""
    for mine, reference in zip(got, expected, strict=False):
        found = _difference_in_case(mine, reference, name)
        if found:
            return found
    if len(got) < len(expected):
        return Difference(Stage.RAISED, "the run stopped before the last case")
    return None


def _difference_in_case(got: Evidence, expected: Evidence, name: str) -> Difference | None:
    where = f"for {expected['given']}" if expected["given"] else "in the first case"
    return (
        _raised(got, expected, where, name)
        or _returned(got, expected, where)
        or _seen(got, expected, where)
        or _gradients(got, expected, where)
        or _side_effects(got, expected, where)
    )


def _raised(got: Evidence, expected: Evidence, where: str, name: str) -> Difference | None:
    mine, reference = got["raised"], expected["raised"]
    if reference:
        if mine and mine["type"] == reference["type"]:
            return None
        came = f"{mine['type']}: {mine['message']}" if mine else "nothing was raised"
        return Difference(Stage.WRONG_VALUE, f"{where} expected {reference['type']} to be raised; got: {came}")
    if not mine:
        return None
    if mine["type"] == "TimeIsUp":
        line = f" (it was in your line {mine['line']}: `{mine['text']}`)" if mine["line"] else ""
        return Difference(Stage.RAISED, f"{where} your answer did not come to an end in time and was stopped{line}")
    problem = f"{mine['type']}: {mine['message']}" if mine["message"] else mine["type"]
    if mine["line"]:
        after = "; it ran after your function had returned, as hooks do" if mine["during"] == "afterwards" else ""
        return Difference(Stage.RAISED, f"{where} your line {mine['line']}, `{mine['text']}`, raised {problem}{after}")
    if mine["during"] == "call" and mine["type"] == "TypeError" and "argument" in mine["message"]:
        return Difference(Stage.RAISED, f"{name} was called as its task says, and that failed: {problem}")
    if mine["during"] == "afterwards":
        nothing = " You returned nothing (None)." if got["returned"]["type"] == "None" else ""
        if expected["returned"]["type"] != got["returned"]["type"]:
            return _after_wrong_return(got, expected, where)
        return Difference(Stage.RAISED, f"{where} what came after your answer raised {problem}.{nothing}")
    return Difference(Stage.RAISED, f"{where} your answer raised {problem}")


def _after_wrong_return(got: Evidence, expected: Evidence, where: str) -> Difference:
    return _compare(got["returned"], expected["returned"], "your function returned", where) or Difference(
        Stage.WRONG_TYPE, f"{where} what your function returned could not be used"
    )


def _returned(got: Evidence, expected: Evidence, where: str) -> Difference | None:
    return _compare(got["returned"], expected["returned"], "your function returned", where)


def _seen(got: Evidence, expected: Evidence, where: str) -> Difference | None:
    for label, reference in expected["seen"].items():
        found = _compare(got["seen"].get(label, {"type": "None"}), reference, f"{label} was", where)
        if found:
            return found
    return None


def _gradients(got: Evidence, expected: Evidence, where: str) -> Difference | None:
    for name, reference in expected["inputs"].items():
        if "grad" not in reference:
            continue
        mine = got["inputs"][name]["grad"]
        pairs = [(f"{name}.grad", mine, reference["grad"])]
        if "type" not in reference["grad"]:  # a module: one gradient a parameter
            pairs = [
                (f"{name}.{key}.grad", mine.get(key, {"type": "None"}), one) for key, one in reference["grad"].items()
            ]
        for label, mine_one, reference_one in pairs:
            found = _compare(mine_one, reference_one, f"{label} was", where)
            if found:
                return found
    return None


ASPECTS = {
    "value": "your function changed its input `{name}` in place",
    "requires_grad": "your function changed `requires_grad` of its input `{name}`",
    "training": "your function left `{name}` in another mode (train/eval) than it found it in",
    "hooks": "your function left a hook on `{name}`: remove every hook that you no longer need",
}


def _side_effects(got: Evidence, expected: Evidence, where: str) -> Difference | None:
    for name, changed in got["changed"].items():
        for aspect in changed:
            if aspect not in expected["changed"].get(name, []):
                return Difference(Stage.SIDE_EFFECT, f"{where} {ASPECTS[aspect].format(name=name)}")
    for name, changed in expected["changed"].items():
        reference, mine = expected["inputs"][name]["value"], got["inputs"][name]["value"]
        if "value" in changed and "type" in reference:
            found = _compare(mine, reference, f"afterwards `{name}` was", where)
            if found:
                return found
        for aspect in ("requires_grad", "training"):
            if aspect in changed and got["inputs"][name].get(aspect) != expected["inputs"][name][aspect]:
                return Difference(Stage.WRONG_VALUE, f"{where} `{name}` did not end in the state ({aspect}) it should")
    for setting in got["world"]:
        if setting not in expected["world"]:
            return Difference(Stage.SIDE_EFFECT, f"{where} your function changed {setting} and did not put it back")
    if got["alive"] and not expected["alive"]:
        return Difference(
            Stage.SIDE_EFFECT,
            f"{where} something you stored keeps an input, and with it the computation graph, alive after the call: "
            "store a detached copy, or only the numbers you need",
        )
    return None


def _compare(got: Plain, expected: Plain, subject: str, where: str) -> Difference | None:
    """Compare two plain values; the sentence names the place inside a structure."""
    found = _walk(got, expected, "")
    if not found:
        return None
    stage, path, mine, reference = found
    at = f" (at {path})" if path else ""
    if stage is Stage.RETURNED_NOTHING:
        nothing = "nothing (None)" if subject.endswith("returned") else "None"
        if not subject.endswith("returned"):
            stage = Stage.WRONG_VALUE
        return Difference(stage, f"{where} {subject} {nothing}{at}; expected {_expected(reference)}")
    if stage is Stage.WRONG_TYPE:
        return Difference(stage, f"{where} {subject} {name_type(mine)}{at}; expected {name_type(reference)}")
    if stage is Stage.WRONG_SHAPE:
        return Difference(
            stage,
            f"{where} {subject} a tensor of shape {shape_text(mine)}{at}; expected shape {shape_text(reference)}",
        )
    if stage is Stage.WRONG_DTYPE:
        return Difference(stage, f"{where} {subject} of dtype {mine['dtype']}{at}; expected {reference['dtype']}")
    return Difference(stage, f"{where} {subject} {_pair_text(mine, reference)}{at}")


def _expected(reference: Plain) -> str:
    return show(reference) if reference["type"] != "handle" else name_type(reference)


def _pair_text(mine: Plain, reference: Plain) -> str:
    """Got and expected; for a large tensor the first element that differs, with its place."""
    if mine["type"] == "tensor" and len(mine["values"]) > 12:
        for index, (a, b) in enumerate(zip(mine["values"], reference["values"], strict=True)):
            if not _close(a, b):
                place = _place(index, mine["shape"])
                return f"{number_text(a)} at {place}; expected {number_text(b)} there"
    return f"{show(mine)}; expected {show(reference)}"


def _place(index: int, shape: list[int]) -> str:
    place = []
    for size in reversed(shape):
        place.append(index % size)
        index //= size
    return str(list(reversed(place)))


def _walk(got: Plain, expected: Plain, path: str) -> tuple[Stage, str, Plain, Plain] | None:
    """The first difference inside two plain values: stage, path, and the two parts that differ there."""
    mine, reference = got["type"], expected["type"]
    if mine == "None" and reference != "None":
        return Stage.RETURNED_NOTHING, path, got, expected
    if mine != reference and not _same_kind(mine, reference):
        return Stage.WRONG_TYPE, path, got, expected
    if reference == "tensor":
        return _walk_tensor(got, expected, path)
    if reference in SEQUENCES | {"set"}:
        if len(got["items"]) != len(expected["items"]):
            return Stage.WRONG_TYPE if not path and not expected["items"] else Stage.WRONG_VALUE, path, got, expected
        for index, (a, b) in enumerate(zip(got["items"], expected["items"], strict=True)):
            found = _walk(a, b, f"{path}[{index}]")
            if found:
                return found
        return None
    if reference == "dict":
        return _walk_dict(got, expected, path)
    if "value" in expected and not _close(got.get("value"), expected["value"]):
        stage = Stage.WRONG_VALUE if _finite(got.get("value")) else Stage.NOT_FINITE
        return stage, path, got, expected
    return None


def alike(got: Plain, expected: Plain) -> bool:
    """Whether two plain values count as equal."""
    return _walk(got, expected, "") is None


def _same_kind(mine: str, reference: str) -> bool:
    """A tuple may stand for a list, and 3 for 3.0; a bool is not a number."""
    return {mine, reference} <= SEQUENCES or {mine, reference} <= {"int", "float"}


def _walk_tensor(got: Plain, expected: Plain, path: str) -> tuple[Stage, str, Plain, Plain] | None:
    if got["shape"] != expected["shape"]:
        return Stage.WRONG_SHAPE, path, got, expected
    if got["dtype"] != expected["dtype"]:
        return Stage.WRONG_DTYPE, path, got, expected
    pairs = list(zip(got["values"], expected["values"], strict=True))
    if all(_close(a, b) for a, b in pairs):
        return None
    finite = all(_finite(a) or not _finite(b) for a, b in pairs)
    return Stage.WRONG_VALUE if finite else Stage.NOT_FINITE, path, got, expected


def _walk_dict(got: Plain, expected: Plain, path: str) -> tuple[Stage, str, Plain, Plain] | None:
    mine = {repr(key): (key, value) for key, value in got["items"]}
    reference = {repr(key): (key, value) for key, value in expected["items"]}
    if mine.keys() != reference.keys():
        return Stage.WRONG_VALUE, path, got, expected
    for text, (key, value) in reference.items():
        found = _walk(mine[text][1], value, f"{path}[{show(key)}]")
        if found:
            return found
    return None


def _finite(value: Any) -> bool:
    return value not in ("nan", "inf", "-inf")


def _close(a: Any, b: Any) -> bool:
    """Equal, or numbers within a relative 1e-5 or an absolute 1e-6."""
    if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
        return type(a) is type(b) and a == b
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def behaves_alike(one: Sequence[Evidence], other: Sequence[Evidence], name: str) -> bool:
    """Whether two answers did the same in every case; what they printed does not count, nor where they raised."""
    if len(one) != len(other):
        return False
    for mine, theirs in zip(one, other, strict=True):
        if bool(mine["raised"]) != bool(theirs["raised"]):
            return False
        if mine["raised"]:
            if _error_key(mine) != _error_key(theirs):
                return False
            continue
        if _difference_in_case(mine, theirs, name) or _difference_in_case(theirs, mine, name):
            return False
    return True


def _error_key(evidence: Evidence) -> tuple[str, str, str]:
    """What makes two errors the same: the type, and the message up to its names and numbers."""
    raised = evidence["raised"]
    words = [word for word in raised["message"].split() if word.isalpha()]
    return raised["type"], raised["during"], " ".join(words[:12])


def judge(
    name: str,
    got: Sequence[Evidence],
    key: Sequence[Evidence],
    mistakes: Mapping[str, Sequence[Evidence]],
    possible: int = 0,
    hints: int = 0,
) -> Outcome:
    """The outcome of one exercise from the evidence of the answer, of the reference and of the declared mistakes.

    `mistakes` maps each declared message to the evidence of its function for the same cases.
    """
    difference = first_difference(got, key, name)
    if difference is None:
        return Outcome(name, Stage.PASSED, possible=possible, hints=hints)
    cause = next((message for message, evidence in mistakes.items() if behaves_alike(got, evidence, name)), "")
    return Outcome(name, difference.stage, _sentence(difference.sentence), cause, possible=possible, hints=hints)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "`")) else text + "."
