"""What answers did, recorded before the course was given out, in text files in the assets.

The key of an edition without answers, one file a lesson: `{"torch": version, "seeds": [0, …], "exercises": {name:
{seed: {"reference": [evidence, …], "mistakes": [[message, [evidence, …]], …], "runs": [[run, …], …]}}}}`. The runs
of right answers, for each case, are there for `VISIBLE_SEED`.

Mistakes do much of what a right answer does, so nearly everything in it would stand there many times. `write_once`
writes each object once, a line of JSON each, and `{"@": number}` wherever it stands in a later one.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

from course_utils.exercises.plain import Evidence
from course_utils.root import CourseError, recorded_path

VISIBLE_SEED = 0  # of the cases that `check` tries first
LINE = "@"  # the one key of what stands for the object in a line


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


def write_once(found: Mapping[str, Any]) -> str:
    """Nested objects and lists as lines of JSON, of which the last is the whole."""
    lines: dict[str, int] = {}

    def place(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [place(each) for each in value]
        if not isinstance(value, dict):
            return value
        text = json.dumps({key: place(each) for key, each in value.items()}, separators=(",", ":"))
        return {LINE: lines.setdefault(text, len(lines))}

    place(found)
    return "\n".join(lines) + "\n"


def read_once(text: str) -> dict[str, Any]:
    """What `write_once` wrote, in which what stood there several times is one object now.

    `ValueError` or `LookupError` where the text is damaged.
    """
    objects: list[dict[str, Any]] = []

    def look_up(found: dict[str, Any]) -> dict[str, Any]:
        return objects[found[LINE]] if found.keys() == {LINE} else found

    for line in text.splitlines():
        objects.append(json.loads(line, object_hook=look_up))
    return objects[-1]


@functools.cache
def _read(lesson: int) -> dict[str, Any]:
    try:
        return read_once(recorded_path(lesson).read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError):
        problem = f"The recorded results of lesson {lesson:02d} are missing or damaged. Unpack the course again."
        raise NotRecorded(problem) from None
