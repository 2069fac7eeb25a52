"""What answers did, recorded before the course was given out, in JSON files in the assets.

The key of an edition without answers, one file a lesson: `{"torch": version, "seeds": [0, …], "exercises": {name:
{seed: {"reference": [evidence, …], "mistakes": [[message, [evidence, …]], …], "runs": [[run, …], …]}}}}`. The runs
of right answers, for each case, are there for `VISIBLE_SEED`.
"""

import functools
import json
from typing import Any

from course_utils.exercises.plain import Evidence
from course_utils.root import CourseError, recorded_path

VISIBLE_SEED = 0  # of the cases that `check` tries first


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
