"""Which notebooks there are: a folder of submissions, a zip of one, or one file; and the roster.

The layouts, by the place of a notebook in the folder (or zip):

    student/lesson.ipynb                    a folder for each student
    lesson/student.ipynb                    a folder for each lesson, named as the lesson
    student/lesson/lesson.ipynb             nbgrader's, from its folder `submitted` or from the one above

Links are not followed. Everything found has an entry, with a reason in words where it is no submission.
"""

import contextlib
import csv
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from course_utils.grading.lessons import Lesson
from course_utils.lab.update import BACKUPS
from course_utils.root import CourseError, nearest

MAX_BYTES = 20 * 1024 * 1024
MAX_FILES = 200_000
MAX_DEPTH = 5
SKIPPED = {"__pycache__", "__MACOSX", "Thumbs.db", "desktop.ini"}
NBGRADER = "submitted"
NOT_HANDED_IN = "nothing was handed in"
NOT_ON_ROSTER = "this name is not on the roster"
NO_FILE = {stat.S_IFLNK: "a link to somewhere else; links are not followed", stat.S_IFDIR: "a folder, not a file"}


@dataclass(frozen=True)
class Submission:
    """One notebook that a student handed in, or why it is none: then `reason` says so.

    `path` is the file or, for a `member` of a zip, the zip. `missing` means that there is nothing to look at.
    """

    student: str
    name: str
    path: Path | None = None
    lesson: Lesson | None = None
    reason: str = ""
    member: str = ""
    missing: bool = False
    remark: str = ""


@dataclass(frozen=True)
class _Entry:
    parts: tuple[str, ...]
    path: Path
    member: str = ""
    is_folder: bool = False
    reason: str = ""

    @property
    def is_notebook(self) -> bool:
        return self.parts[-1].lower().endswith(".ipynb")

    @property
    def stem(self) -> str:
        return self.parts[-1][: -len(".ipynb")]


def find_submissions(place: Path, lessons: Mapping[str, Lesson]) -> list[Submission]:
    """All submissions in a folder or a zip, or the one file, sorted by student and name.

    Raises `OSError` if `place` cannot be read, and `zipfile.BadZipFile` if it is a broken zip.
    """
    if place.is_file() and place.suffix.lower() == ".ipynb":
        return [_to_submission(_Entry(("student", place.name), place), lessons)]
    entries = list(_zip_entries(place) if place.is_file() else _folder_entries(place))
    entries = [entry for entry in _without_wrapping(entries) if BACKUPS not in entry.parts[1:-1]]
    found = [_to_submission(entry, lessons) for entry in entries if entry.is_notebook or entry.reason]
    folders: dict[str, list[_Entry]] = {}
    for entry in entries:
        if len(entry.parts) > 1 or entry.is_folder:
            folders.setdefault(entry.parts[0], []).append(entry)
    for student, inside in folders.items():
        if not any(one.reason or (one.is_notebook and len(one.parts) > 1) for one in inside):
            shown = ", ".join(sorted("/".join(one.parts[1:]) for one in inside if len(one.parts) > 1)[:5]) or "nothing"
            found.append(Submission(printable(student), "", reason=f"there is no notebook in the folder, only {shown}"))
    return _without_doubles(sorted(found, key=lambda one: (one.student, one.name)))


def find_work(folder: Path, lessons: Mapping[str, Lesson], student: str) -> list[Submission]:
    """A learner's own copies of the lessons in `folder`, as the submissions of one student."""
    paths = ((folder / f"{name}.ipynb", lesson) for name, lesson in lessons.items())
    return [Submission(student, lesson.name, path, lesson) for path, lesson in paths if path.exists()]


def _folder_entries(folder: Path, above: tuple[str, ...] = ()) -> Iterator[_Entry]:
    with os.scandir(folder) as found:
        items = sorted(found, key=lambda item: item.name)
    for item in items:
        if _is_skipped(item.name):
            continue
        parts, path = (*above, printable(item.name)), Path(item.path)
        is_folder = item.is_dir(follow_symlinks=False)
        if reason := _refuse_name(item.name, is_link=item.is_symlink()):
            yield _Entry(parts, path, is_folder=is_folder, reason=reason)
        elif is_folder and not (above and item.name.lower().endswith(".ipynb")) and len(parts) < MAX_DEPTH:
            try:
                yield from list(_folder_entries(path, parts)) or [_Entry(parts, path, is_folder=True)]
            except OSError as error:
                yield _Entry(parts, path, is_folder=True, reason=f"the folder cannot be read: {error.strerror}")
        else:
            yield _Entry(parts, path, is_folder=is_folder)


def _zip_entries(path: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(path) as archive:
        names = archive.infolist()
    if len(names) > MAX_FILES:
        raise zipfile.BadZipFile(f"it holds {len(names):,} files; the most is {MAX_FILES:,}")
    for info in names:
        raw = info.filename.split("/")
        if info.is_dir() or any(map(_is_skipped, filter(None, raw))):
            continue
        link = stat.S_ISLNK(info.external_attr >> 16)
        reason = next(filter(None, (_refuse_name(part, is_link=link) for part in raw)), "")
        parts = tuple(printable(part) or "?" for part in raw)
        yield _Entry(parts, path, info.filename, reason=reason)


def _is_skipped(name: str) -> bool:
    return name in SKIPPED or (name.startswith(".") and name.strip(".") != "")


def _refuse_name(name: str, is_link: bool) -> str:
    shown = printable(name)
    if is_link:
        return f"{shown} is a link to somewhere else; links are not followed"
    if shown != name or ".." in name or "\\" in name or not name:
        return f"the name {shown} has signs that no name here should have (.., \\ or a line break)"
    return ""


def printable(text: str, but: str = "") -> str:
    """`text` with escapes for what no file and no screen should get: control characters and half characters."""
    return "".join(letter if letter.isprintable() or letter in but else ascii(letter)[1:-1] for letter in text)


def _without_wrapping(entries: list[_Entry]) -> list[_Entry]:
    submitted = [entry for entry in entries if entry.parts[0] == NBGRADER and len(entry.parts) > 1]
    if submitted:
        return [replace(entry, parts=entry.parts[1:]) for entry in submitted]
    firsts = {entry.parts[0] for entry in entries}
    notebooks = [entry for entry in entries if entry.is_notebook]
    deep = notebooks and all(len(entry.parts) > 2 and entry.parts[1] != entry.stem for entry in notebooks)
    if len(firsts) == 1 and deep and all(len(entry.parts) > 1 for entry in entries):
        return _without_wrapping([replace(entry, parts=entry.parts[1:]) for entry in entries])
    return entries


def _to_submission(entry: _Entry, lessons: Mapping[str, Lesson]) -> Submission:
    first, last = entry.parts[0], entry.parts[-1]
    stem = entry.stem if entry.is_notebook else ""
    if len(entry.parts) == 1:
        reason = entry.reason or f"{last} is not in a student's folder: student/lesson.ipynb"
        return Submission(first, "", reason=reason) if entry.reason else Submission("", last, reason=reason)
    student, name = first, stem or last
    if len(entry.parts) == 2 and first in lessons and stem not in lessons:
        student, name = stem, first
    lesson, reason = lessons.get(name), entry.reason
    if not reason and lesson is None:
        near = nearest(name, lessons)
        reason = f"{last} is not the name of a lesson" + (f"; the nearest is {near[0]}.ipynb" if near else "")
    elif not reason and len(entry.parts) > 2 and entry.parts[1:-1] != (name,):
        reason = f"{'/'.join(entry.parts)} is too deep: student/{last} or student/{name}/{last}"
    return Submission(student, name, entry.path, lesson, reason, entry.member)


def _without_doubles(found: list[Submission]) -> list[Submission]:
    seen: set[tuple[str, str]] = set()
    for number, each in enumerate(found):
        if each.lesson and not each.reason:
            if (each.student, each.name) in seen:
                reason = "it is a second notebook for this lesson; the first counts"
                found[number] = replace(each, lesson=None, reason=reason)
            seen.add((each.student, each.name))
    return found


def read_roster(path: Path) -> list[str]:
    """The names in a CSV file: its column `student` or, without such a heading, its first column.

    Raises `CourseError` if there are none, and `OSError` if the file cannot be read.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
        except (UnicodeDecodeError, csv.Error) as error:
            raise CourseError(f"the roster {path} is not CSV in UTF-8 ({error}).") from None
    heading = [cell.strip().lower() for cell in rows[0]] if rows else []
    column = heading.index("student") if "student" in heading else 0
    body = rows[1:] if "student" in heading else rows
    names = [row[column].strip() for row in body if len(row) > column and row[column].strip()]
    if not names:
        raise CourseError(f"the roster {path} holds no names: give a column `student`.")
    return list(dict.fromkeys(names))


def add_roster(found: Sequence[Submission], names: Sequence[str], lessons: Mapping[str, Lesson]) -> list[Submission]:
    """The submissions, and an entry for each name and lesson without one; who is not on the roster is marked."""
    known = set(names)
    marked = [
        each if each.student in known or not each.student else replace(each, remark=NOT_ON_ROSTER) for each in found
    ]
    handed_in = {(each.student, each.name) for each in found}
    missing = [
        Submission(student, name, lesson=lesson, reason=NOT_HANDED_IN, missing=True)
        for student in names
        for name, lesson in lessons.items()
        if (student, name) not in handed_in
    ]
    return sorted([*marked, *missing], key=lambda one: (one.student, one.name))


def read_submission(submission: Submission) -> bytes:
    """The bytes of a regular file (or member of a zip) of at most `MAX_BYTES`; `CourseError` for anything else."""
    try:
        with contextlib.ExitStack() as stack:
            if submission.member:
                archive = stack.enter_context(zipfile.ZipFile(submission.path))
                file = stack.enter_context(archive.open(submission.member))
            elif (kind := stat.S_IFMT(submission.path.lstat().st_mode)) != stat.S_IFREG:
                raise CourseError(f"it is {NO_FILE.get(kind, 'not a regular file')}")
            else:
                file = stack.enter_context(submission.path.open("rb"))
            data = file.read(MAX_BYTES + 1)
    except CourseError:
        raise
    except OSError as error:
        raise CourseError(f"it cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise CourseError(f"it cannot be unpacked: {error}") from None
    if len(data) > MAX_BYTES:
        raise CourseError(f"it is larger than {MAX_BYTES // 1024**2} MB; clear the outputs and hand it in again")
    return data
