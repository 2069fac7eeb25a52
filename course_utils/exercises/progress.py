"""What the learner has done so far, in one small file beside the lessons in `work/`.

Losing the file costs the ticks and nothing else. It is written only in a folder that carries the mark of a learner's
copy (see `work.py`), and never where the environment says `COURSE_PROGRESS=off`: tests, builds and grades count
nothing. Elsewhere progress is remembered until the kernel ends.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

MARKER = ".course-work"
FILE = "progress.json"
SECTIONS = ("exercises", "predictions")

_in_memory: dict[str, dict[str, Any]] = {}


def location() -> Path | None:
    """The file that keeps the progress: in the nearest folder upwards that carries the mark; None without one."""
    if os.environ.get("COURSE_PROGRESS", "").lower() == "off":
        return None
    here = Path.cwd()
    return next((folder / FILE for folder in (here, *here.parents) if (folder / MARKER).exists()), None)


def load() -> dict[str, dict[str, Any]]:
    """All progress: `{"exercises": {name: {...}}, "predictions": {name: choice}}`. A damaged file counts as empty."""
    path = location()
    if path is None:
        data: Any = _in_memory
    else:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            data = {}
    sections = data if isinstance(data, dict) else {}
    return {name: dict(part) if isinstance(part := sections.get(name), dict) else {} for name in SECTIONS}


def save(section: str, name: str, value: Any) -> bool:
    """Store `value` under `name`; return whether it is on disk. Other entries are read anew: two kernels may write."""
    data = load()
    data[section][name] = value
    path = location()
    if path is None:
        _in_memory.update(data)
        return False
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".tmp", encoding="utf-8") as file:
            json.dump(data, file, indent=1, sort_keys=True)
        os.replace(file.name, path)
    except OSError:  # a read-only or full disk: the lesson goes on, the tick is remembered until the kernel ends
        _in_memory.update(data)
        return False
    return True


def of_exercise(name: str) -> dict[str, Any]:
    """The record of one exercise: `attempts`, `passed`, `hints`; zeros where nothing (sensible) is stored."""
    stored = load()["exercises"].get(name)
    stored = stored if isinstance(stored, dict) else {}
    return {
        "attempts": stored["attempts"] if isinstance(stored.get("attempts"), int) else 0,
        "passed": stored.get("passed") is True,
        "hints": stored["hints"] if isinstance(stored.get("hints"), int) else 0,
    }


def note_attempt(name: str, passed: bool) -> None:
    """Count an attempt; once passed stays passed."""
    record = of_exercise(name)
    save("exercises", name, record | {"attempts": record["attempts"] + 1, "passed": record["passed"] or passed})


def note_hint(name: str, count: int) -> None:
    """Remember how many hints have been read."""
    save("exercises", name, of_exercise(name) | {"hints": count})


def note_prediction(name: str, choice: str) -> None:
    """Remember a committed prediction."""
    save("predictions", name, choice)


def of_prediction(name: str) -> str | None:
    """The committed choice, if there is one."""
    choice = load()["predictions"].get(name)
    return choice if isinstance(choice, str) else None
