"""What answers did, recorded before the course was given out. All of it are JSON files in the assets.

The key of an edition without answers, one file a lesson: `{"torch": version, "seeds": [0, …], "exercises": {name:
{seed: {"reference": [evidence, …], "mistakes": [[message, [evidence, …]], …], "runs": [[run, …], …]}}}}`. The runs
of right answers, for each case, are there for `VISIBLE_SEED`.

Slips, by how a right answer with one small edit behaves in the first cases of its exercise. `make mutants ARGS=--write`
writes them: `{"slips": [words, …], "exercises": {name: {fingerprint of the evidence: number of the words}}}`.
"""

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from course_utils.exercises.comparing import kind_of_error
from course_utils.exercises.outcome import Stage
from course_utils.exercises.plain import Evidence
from course_utils.root import ASSETS, CourseError, recorded_path

SLIPS = ASSETS / "slips.json"
VISIBLE_SEED = 0  # of the cases that `check` tries first, and in which the slips were tried
COUNTS = ("returned", "seen", "changed", "world", "alive")
NUMBERS_TELL = (Stage.WRONG_VALUE, Stage.NOT_FINITE, Stage.SIDE_EFFECT)


class NotRecorded(CourseError):
    """There is no recorded result to compare with; `check` says the message to the learner."""


def recorded_seeds(lesson: int) -> list[int]:
    """The seeds for which a lesson's results are recorded. Raises `NotRecorded`."""
    return _read(lesson)["seeds"]


def recorded_key(lesson: int, name: str, seed: int) -> tuple[list[Evidence], dict[str, list[Evidence]]]:
    """What the reference did in every case of `seed`, and each mistake by its message. Raises `NotRecorded`."""
    found = _read(lesson)["exercises"].get(name, {}).get(str(seed))
    if not found:
        raise NotRecorded(f"No result of {name} is recorded for seed {seed}.")
    return found["reference"], dict(found["mistakes"])


def recorded_runs(lesson: int, name: str, seed: int, at: int) -> list[dict[str, Any]]:
    """What happened in the case number `at` with each right answer, see `events`; nothing where it is not recorded."""
    found = _read(lesson)["exercises"].get(name, {}).get(str(seed), {}).get("runs", [])
    return found[at] if at < len(found) else []


def other_torch(lesson: int) -> str:
    """A sentence where a lesson's results were recorded with another torch than this; "" where with the same."""
    import torch

    theirs, mine = _read(lesson)["torch"], torch.__version__.split("+")[0]
    beside = "Numbers are compared with a tolerance; if a right answer fails, tell your instructor."
    return "" if mine == theirs else f"This is torch {mine}, and the results were recorded with {theirs}. {beside}"


@functools.cache
def _read(lesson: int) -> dict[str, Any]:
    try:
        return json.loads(recorded_path(lesson).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        problem = f"The recorded results of lesson {lesson:02d} are missing or damaged. Unpack the course again."
        raise NotRecorded(problem) from None


def fingerprint(got: Sequence[Evidence]) -> str:
    """A short text that two answers share if they did the same in every case, to four digits of each number."""
    parts = []
    for case in got:
        did = [*map(case.get, COUNTS), [state.get("grad") for state in case["inputs"].values()]]
        parts.append([kind_of_error(case["raised"])] if case["raised"] else did)
    rounded = json.loads(json.dumps(parts), parse_float=lambda text: f"{float(text) + 0.0:.4g}")
    return hashlib.sha256(json.dumps(rounded).encode()).hexdigest()[:16]


def slip_of(exercise: str, got: Sequence[Evidence], stage: Stage) -> str:
    """What a right answer that behaves so has wrong, as a sentence; empty where none does."""
    number = _slips()["exercises"].get(exercise, {}).get(fingerprint(got))
    return slip_sentences()[number] if number is not None and can_be_said(_slips()["slips"][number], got, stage) else ""


def slip_sentences() -> list[str]:
    """What is said of each slip, in the order of the file."""
    return [f"Your answer does what a right one would do if {slip}." for slip in _slips()["slips"]]


def can_be_said(slip: str, got: Sequence[Evidence], stage: Stage) -> bool:
    """Whether a slip explains an answer that behaves alike. Equal numbers are evidence; one error, type or shape is
    none: then it has to name what can be seen. What it says is missing must not be there; what it says is there must.
    """
    names, said = got[0]["names"], re.findall("`([^`]+)`", slip)
    if said and (said[0] in names if slip.endswith("is missing") else said[-1] in names and said[0] not in names):
        return False
    return stage in NUMBERS_TELL or bool(re.search("`|an index in|returns nothing|the first time", slip))


@functools.cache
def _slips() -> dict[str, Any]:
    return json.loads(SLIPS.read_text(encoding="utf-8"))
