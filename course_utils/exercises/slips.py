"""Slips by what they do: how a right answer with one small edit behaves in the first cases of its exercise.

`make mutants ARGS=--write` writes them to `assets/slips.json`: `{"slips": [words, …], "exercises": {name: {fingerprint
of the evidence: number of the words}}}`.
"""

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from course_utils.exercises.judging import kind_of_error
from course_utils.exercises.outcome import Stage
from course_utils.exercises.plain import Evidence
from course_utils.root import ASSETS

PATH = ASSETS / "slips.json"
SEED = 0  # of the cases in which the slips were tried
COUNTS = ("returned", "seen", "changed", "world", "alive")
NUMBERS_TELL = (Stage.WRONG_VALUE, Stage.NOT_FINITE, Stage.SIDE_EFFECT)


def fingerprint(got: Sequence[Evidence]) -> str:
    """A short text that two answers share if they did the same in every case, to four digits of each number."""
    parts = []
    for case in got:
        did = [*map(case.get, COUNTS), [state.get("grad") for state in case["inputs"].values()]]
        parts.append([kind_of_error(case["raised"])] if case["raised"] else did)
    return hashlib.sha256(json.dumps(_round(parts)).encode()).hexdigest()[:16]


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value + 0.0:.4g}"
    if isinstance(value, dict):
        return {key: _round(item) for key, item in value.items()}
    return [_round(item) for item in value] if isinstance(value, list | tuple) else value


def slip_of(exercise: str, got: Sequence[Evidence], stage: Stage) -> str:
    """What a right answer that behaves so has wrong, as a sentence; empty where none does."""
    number = _read()["exercises"].get(exercise, {}).get(fingerprint(got))
    return sentences()[number] if number is not None and can_be_said(_read()["slips"][number], got, stage) else ""


def sentences() -> list[str]:
    """What is said of each slip, in the order of the file."""
    return [f"Your answer does what a right one would do if {slip}." for slip in _read()["slips"]]


def can_be_said(slip: str, got: Sequence[Evidence], stage: Stage) -> bool:
    """Whether a slip explains an answer that behaves alike. Equal numbers are evidence; one error, type or shape is
    none: then it has to name what can be seen. What it says is missing must not be there; what it says is there must.
    """
    names, said = got[0]["names"], re.findall("`([^`]+)`", slip)
    if said and (said[0] in names if slip.endswith("is missing") else said[-1] in names and said[0] not in names):
        return False
    return stage in NUMBERS_TELL or bool(re.search("`|an index in|returns nothing|the first time", slip))


@functools.cache
def _read() -> dict[str, Any]:
    return json.loads(PATH.read_text(encoding="utf-8"))
