"""What the learner has done so far, in one small file beside the lessons in `work/`.

It is written only in a folder that carries the mark of a learner's copy, and never where the environment says
`COURSE_PROGRESS=off`. Elsewhere progress is remembered until the kernel ends.
"""

import contextlib
import copy
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from course_utils.root import write_whole

MARKER = ".course-work"
FILE = "progress.json"
SECTIONS = ("exercises", "predictions", "clues", "questions", "inventory")
# The record of an exercise in its section. `asked` has the keys of the questions that were answered, and `right` says
# how many of them were answered well.
NOTHING = {"exercises": {"attempts": 0, "passed": False, "hints": 0}, "questions": {"asked": [], "right": 0}}

_in_memory: dict[str, dict[str, Any]] = {}


def location(folder: Path | None = None) -> Path | None:
    """The file that keeps the progress of lessons in `folder`, or here: in the nearest folder upwards with the mark.

    None without one.
    """
    if os.environ.get("COURSE_PROGRESS", "").lower() == "off":
        return None
    here = folder or Path.cwd()
    return next((folder / FILE for folder in (here, *here.parents) if (folder / MARKER).exists()), None)


def is_lost() -> bool:
    """Whether progress ends with the kernel though somebody learns here: not so in a build or a test."""
    return not location() and os.environ.get("COURSE_PROGRESS", "").lower() != "off"


def keep_here() -> None:
    """Keep progress in this folder, where a copy of a lesson was opened on a server, and print for how long."""
    with contextlib.suppress(OSError):
        Path(MARKER).touch()
    if "google.colab" in sys.modules:
        importlib.import_module("google.colab.output").enable_custom_widget_manager()  # for the canvas to draw on
        print("Your progress is kept until this Colab session ends. To keep your answers: File, Save a copy in Drive.")
    else:
        lost = "lost when this kernel ends, because nothing can be saved in this folder."
        print(f"Your progress is {f'kept beside this notebook, in {FILE}.' if location() else lost}")


def load(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """All progress: the sections "exercises", {name: {...}}, "predictions", {name: choice}, "clues" of the case,
    "questions" about one's own answers, and "inventory", the answers before the course and after it.

    A damaged file counts as empty.
    """
    found: Any = {} if (path := location(folder)) else _in_memory
    if path:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
    parts = found if isinstance(found, dict) else {}
    return {name: part if isinstance(part := parts.get(name), dict) else {} for name in SECTIONS}


def save(section: str, name: str, value: Any) -> None:
    """Remember the record of an exercise, the choice in a prediction, or a lesson's clue."""
    progress = load()  # read anew each time: two kernels may write
    progress[section][name] = value
    if path := location():
        with contextlib.suppress(OSError):  # a read-only or full disk: the lesson goes on
            return write_whole(path, json.dumps(progress, indent=1, sort_keys=True))
    _in_memory.update(progress)


def of_exercise(name: str, section: str = "exercises") -> dict[str, Any]:
    """The record of one exercise in a section, see `NOTHING`; where nothing (sensible) is stored, what stands there."""
    stored = load()[section].get(name)
    stored = stored if isinstance(stored, dict) else {}
    nothing = copy.deepcopy(NOTHING[section])
    return {key: stored[key] if type(stored.get(key)) is type(empty) else empty for key, empty in nothing.items()}
