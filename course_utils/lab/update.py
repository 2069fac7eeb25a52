"""Bring a learner's copies of the lessons up to date, with their work in them.

What is remembered of an edition is a digest of its file and one of each cell's text, so that what the learner changed
can be told from what the course changed. A file is replaced in one step, after a copy of it was made; whenever this is
interrupted, the next run goes on. While no lesson has a new edition, this reads files and imports nothing.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.root import CourseError

RECORD = ".editions.json"
BACKUPS = "backups"


@dataclass(frozen=True)
class Renewal:
    """What became of one file: a sentence for the learner, the file if it is a new edition now, and the old one."""

    sentence: str
    renewed: Path | None = None
    backup: Path | None = None


def remember(lessons: Mapping[str, Path], work: Path) -> None:
    """Note in the folder `work` that the copies with these names are now of the editions in the files `lessons`."""
    record = _read_record(work)
    record.update({name: _describe(lesson.read_bytes()) for name, lesson in lessons.items()})
    _replace(work / RECORD, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())


def renew_lessons(lessons: list[Path], work: Path) -> list[Renewal]:
    """Bring the copies of `lessons` in `work` up to date; the result has an entry for each file with something to say.

    A copy that the learner has not touched is replaced. Into any other, what is the learner's is carried (see
    `carry.py`), and the file as it was goes to the folder `backups`. What is no notebook, or has another name than a
    lesson, is left alone.
    """
    record = _read_record(work)
    found = []
    for lesson in lessons:
        edition = lesson.read_bytes()
        known = record.get(lesson.name, {})
        if (work / lesson.name).exists() and known.get("file") != _digest(edition):
            found += _renew(lesson, edition, work, known)
    if any(each.renewed for each in found):
        names = {lesson.name for lesson in lessons}
        others = sorted(path.name for path in work.glob("*.ipynb") if path.name not in names)
        found += [Renewal(f"{name}: left as it is, because no lesson has this name.") for name in others]
    return found


def _renew(lesson: Path, edition: bytes, work: Path, known: Mapping[str, Any]) -> Iterator[Renewal]:
    """Renew one copy."""
    path = (work / lesson.name).resolve()  # where there is a link, it stays one
    try:
        mine = path.read_bytes()
    except OSError as error:
        yield Renewal(f"{lesson.name}: left as it is, because it cannot be read ({error.strerror}).")
        return
    if mine != edition:
        if _digest(mine) == known.get("file"):
            _replace(path, edition)
            yield Renewal(f"{lesson.name}: a new edition.", work / lesson.name)
        else:
            renewal = _carry(lesson.name, mine, edition, path, work, known.get("cells"))
            if renewal and not renewal.renewed:
                yield renewal
                return
            yield from [renewal] if renewal else []
    remember({lesson.name: lesson}, work)


def _carry(name: str, mine: bytes, edition: bytes, path: Path, work: Path, old: Any) -> Renewal | None:
    """Put the learner's work into the new edition; None where it is there already."""
    from course_utils.grading.answers import read_notebook
    from course_utils.lab.carry import CannotCarry, carry

    try:
        new = read_notebook(edition)
    except CourseError as error:
        return Renewal(f"{name}: left as it is, because the course's own file is broken: {error}.")
    try:
        notebook = read_notebook(mine)
        carried = carry(notebook, new, old if isinstance(old, dict) else None)
    except (CourseError, CannotCarry) as error:
        advice = "For the new edition, rename it and run this again."
        return Renewal(f"{name}: left as it is, because {error}. {advice}")
    if carried.notebook == notebook:
        return None
    backup = _back_up(path, work / BACKUPS, Path(name).stem, mine)
    text = json.dumps(carried.notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    _replace(path, text.encode("utf-8", "surrogatepass"))
    answers = f"{carried.answers} {'answer' if carried.answers == 1 else 'answers'}"
    cells = f"{carried.cells} {'cell' if carried.cells == 1 else 'cells'} of your own"
    clash = " Where both you and the update had changed a cell, both versions are there." if carried.clashes else ""
    kept = f"The file as it was: {BACKUPS}/{backup.name}."
    return Renewal(f"{name}: a new edition, with your {answers} and {cells}.{clash} {kept}", work / name, backup)


def _back_up(path: Path, folder: Path, stem: str, content: bytes) -> Path:
    """Write `content` to a new file in `folder`, named by the minute; no file that is there is overwritten."""
    folder.mkdir(exist_ok=True)
    minute = time.strftime("%Y-%m-%d_%H%M")
    part = folder / f".{stem}.part"
    number = 1
    while True:
        backup = folder / f"{stem}.{minute}{f'-{number}' if number > 1 else ''}.ipynb"
        if not backup.exists():
            break
        number += 1
    _write(part, content)
    shutil.copystat(path, part)
    os.replace(part, backup)
    return backup


def _replace(path: Path, content: bytes) -> None:
    """Make `content` the file `path` in one step: whenever this ends, the old file or the new one is there, whole."""
    part = path.with_name(f".{path.name}.part")
    try:
        _write(part, content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    """Write a file as far as the disk, not only to where a power cut would lose it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read_record(work: Path) -> dict[str, Any]:
    """What is remembered of the editions in `work`, by the lessons' names. A damaged record counts as none."""
    try:
        record = json.loads((work / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    items = record.items() if isinstance(record, dict) else []
    return {name: known for name, known in items if isinstance(known, dict)}


def _describe(edition: bytes) -> dict[str, Any]:
    from course_utils.grading.answers import read_notebook
    from course_utils.lab.carry import digests

    try:
        return {"file": _digest(edition), "cells": digests(read_notebook(edition))}
    except CourseError:  # a lesson of the course is broken, which opening it will show
        return {"file": _digest(edition)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
