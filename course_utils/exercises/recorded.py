"""What the reference answers and the declared mistakes did, recorded: the key of an edition without answers.

One JSON file a lesson, in the assets: `{"torch": version, "seeds": [0, …], "exercises": {name: {seed: {"reference":
[evidence, …], "mistakes": [[message, [evidence, …]], …]}}}}`.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from course_utils.exercises.judging import judge
from course_utils.exercises.plain import Evidence
from course_utils.root import CourseError, recorded_path

PATIENCE = 300.0  # seconds a case, so that a busy machine records no answer as one that does not end


class NotRecorded(CourseError):
    """There is no recorded result to compare with; `check` says the message to the learner."""


def record(exercises: Sequence[Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The keys of `exercises` for every seed, ready for JSON. What answers print is not compared, and not kept.

    Raises `NotRecorded` for a key by which a mistake would not be told: something did not work here as it should.
    """
    import torch

    found: dict[str, Any] = {}
    for exercise in (replace(each, limit=PATIENCE) for each in exercises):
        for seed in seeds:
            reference, mistakes = exercise.key(seed)
            _examine(exercise.name, reference, mistakes)
            for case in (*reference, *itertools.chain(*mistakes.values())):
                case["printed"] = ""
            kept = {"reference": reference, "mistakes": [list(each) for each in mistakes.items()]}
            found.setdefault(exercise.name, {})[str(seed)] = kept
    return {"torch": torch.__version__.split("+")[0], "seeds": list(seeds), "exercises": found}


def _examine(name: str, reference: list[Evidence], mistakes: dict[str, list[Evidence]]) -> None:
    if any(case["raised"] and case["raised"]["type"] == "TimeIsUp" for case in reference):
        raise NotRecorded(f"The reference answer to {name} did not come to an end here, so nothing was recorded.")
    for message, cases in mistakes.items():
        if judge(name, cases, reference, mistakes.items()).cause != message:
            raise NotRecorded(f"A mistake in {name} was not recognised here, so nothing was recorded: {message}")


def recorded_seeds(lesson: int) -> list[int]:
    """The seeds for which a lesson's results are recorded. Raises `NotRecorded`."""
    return list(_read(lesson)["seeds"])


def recorded_key(lesson: int, name: str, seed: int) -> tuple[list[Evidence], dict[str, list[Evidence]]]:
    """What the reference did in every case of `seed`, and each mistake by its message. Raises `NotRecorded`."""
    found = _read(lesson)["exercises"].get(name, {}).get(str(seed))
    if not found:
        raise NotRecorded(f"No result of {name} is recorded for seed {seed}.")
    return found["reference"], dict(found["mistakes"])


@functools.cache
def _read(lesson: int) -> dict[str, Any]:
    try:
        return json.loads(recorded_path(lesson).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        problem = f"The recorded results of lesson {lesson:02d} are missing or damaged. Unpack the course again."
        raise NotRecorded(problem) from None
