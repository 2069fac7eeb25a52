"""What the learner has done so far, in one small file beside the lessons in `work/`.

It is written only in a folder that carries the mark of a learner's copy, and never where the environment says
`COURSE_PROGRESS=off`. Elsewhere progress is remembered until the kernel ends.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from course_utils.root import write_whole

MARKER = ".course-work"
FILE = "progress.json"
PARTS = ("exercises", "predictions")
NOTHING = {"attempts": 0, "passed": False, "hints": 0}

_in_memory: dict[str, dict[str, Any]] = {}


def location() -> Path | None:
    """The file that keeps the progress: in the nearest folder upwards that carries the mark; None without one."""
    if os.environ.get("COURSE_PROGRESS", "").lower() == "off":
        return None
    here = Path.cwd()
    return next((folder / FILE for folder in (here, *here.parents) if (folder / MARKER).exists()), None)


def load() -> dict[str, dict[str, Any]]:
    """All progress: `{"exercises": {name: {...}}, "predictions": {name: choice}}`. A damaged file counts as empty."""
    path, found = location(), _in_memory
    if path:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
    parts = found if isinstance(found, dict) else {}
    return {name: dict(part) if isinstance(part := parts.get(name), dict) else {} for name in PARTS}


def _save(section: str, name: str, value: Any) -> None:
    progress, path = load(), location()  # read anew each time: two kernels may write
    progress[section][name] = value
    try:
        if path:
            write_whole(path, json.dumps(progress, indent=1, sort_keys=True))
            return
    except OSError:  # a read-only or full disk: the lesson goes on, the tick is remembered until the kernel ends
        pass
    _in_memory.update(progress)


def of_exercise(name: str) -> dict[str, Any]:
    """The record of one exercise: `attempts`, `passed`, `hints`; zeros where nothing (sensible) is stored."""
    stored = load()["exercises"].get(name)
    stored = stored if isinstance(stored, dict) else {}
    return {key: stored[key] if type(stored.get(key)) is type(zero) else zero for key, zero in NOTHING.items()}


def note_attempt(name: str, passed: bool) -> None:
    """Count an attempt; once passed stays passed."""
    before = of_exercise(name)
    _save("exercises", name, before | {"attempts": before["attempts"] + 1, "passed": before["passed"] or passed})


def note_hint(name: str, count: int) -> None:
    """Remember how many hints have been read."""
    _save("exercises", name, of_exercise(name) | {"hints": count})


def note_prediction(name: str, choice: str) -> None:
    """Remember a committed prediction."""
    _save("predictions", name, choice)
