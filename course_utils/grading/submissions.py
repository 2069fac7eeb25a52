"""Which notebooks there are: a folder of submissions, a zip of one, or one file.

The layouts, by the place of a notebook in the folder (or zip):

    student/lesson.ipynb                    a folder for each student
    student.zip, student/any.zip            a zip for each student; how its folders are called says nothing
    lesson/student.ipynb                    a folder for each lesson, named as the lesson
    student/lesson/lesson.ipynb             nbgrader's, from its folder `submitted` or from the one above

Links are not followed. Everything found has an entry, with a reason in words where it is no submission.
"""

import contextlib
import functools
import os
import re
import stat
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from course_utils.grading.lessons import Lesson
from course_utils.lab.update import BACKUPS
from course_utils.root import CourseError, nearest

MAX_BYTES = 20 * 1024 * 1024
TOO_LARGE = f"it is larger than {MAX_BYTES // 1024**2} MB; clear the outputs and hand it in again"
MAX_FILES = (200_000, 2_000, 100)  # in the zip of a class, in that of a student, and in a zip in that
MAX_DEPTH = 5
SKIPPED = re.compile(r"submission\.json|__pycache__|__MACOSX|\._.*|\.(base|git|ipynb_checkpoints|virtual_documents)")
ARCHIVES = (".7z", ".gz", ".rar", ".tar", ".tgz")
NBGRADER = "submitted"
NO_FILE = {stat.S_IFLNK: "a link to somewhere else; links are not followed", stat.S_IFDIR: "a folder, not a file"}


@dataclass(frozen=True)
class Submission:
    """One notebook that a student handed in, or why it is none: then `reason` says so.

    `path` is the file or the zip; in a zip, `members` are its entry and, before it, that of the zip that it is in.
    `missing` means that there is nothing to look at.
    """

    student: str
    name: str
    path: Path | None = None
    lesson: Lesson | None = None
    reason: str = ""
    members: tuple[zipfile.ZipInfo, ...] = ()
    missing: bool = False
    remark: str = ""


@dataclass(frozen=True)
class _Entry:
    parts: tuple[str, ...]
    path: Path
    members: tuple[zipfile.ZipInfo, ...] = ()
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
    entries = list(_zip_entries(place.resolve()) if place.is_file() else _folder_entries(place))
    if place.is_file() and any(len(entry.parts) == 1 and entry.stem in lessons for entry in entries):
        entries = [replace(entry, parts=(place.name, *entry.parts)) for entry in entries]  # the zip of one student
    entries = _without_wrapping(list(_without_hidden(entries)))
    entries = [_out_of_zip(entry, lessons) for entry in entries if BACKUPS not in entry.parts[1:-1]]
    found, folders = [], {}
    for entry in entries:
        if len(entry.parts) > 1 or entry.is_folder:
            folders.setdefault(entry.parts[0], []).append(entry)
        if entry.is_notebook or entry.reason or (len(entry.parts) == 1 and entry.parts[0].lower().endswith(ARCHIVES)):
            found.append(_to_submission(entry, lessons))
    for student, inside in folders.items():
        if not any(one.reason or (one.is_notebook and len(one.parts) > 1) for one in inside):
            shown = ", ".join(sorted("/".join(one.parts[1:]) for one in inside if len(one.parts) > 1)[:5]) or "nothing"
            found.append(Submission(student, "", reason=f"there is no notebook in the folder, only {shown}"))
    return without_doubles(found)


def find_work(folder: Path, lessons: Mapping[str, Lesson], student: str) -> list[Submission]:
    """A learner's own copies of the lessons in `folder`, as the submissions of one student."""
    paths = ((folder / f"{name}.ipynb", lesson) for name, lesson in lessons.items())
    return [Submission(student, lesson.name, path, lesson) for path, lesson in paths if path.exists()]


def _folder_entries(folder: Path, above: tuple[str, ...] = ()) -> Iterator[_Entry]:
    with os.scandir(folder) as found:
        items = sorted(found, key=lambda item: item.name)
    for item in items:
        if SKIPPED.fullmatch(item.name):
            continue
        parts, path = (*above, _shown(item.name)), Path(item.path)
        is_folder = item.is_dir(follow_symlinks=False)
        whole = _Entry(parts, path, is_folder=is_folder, reason=_refuse(item.name, is_link=item.is_symlink()))
        if whole.reason or len(parts) == MAX_DEPTH or (is_folder and above and whole.is_notebook):
            yield whole
        elif is_folder:
            try:
                yield from list(_folder_entries(path, parts)) or [whole]
            except OSError as error:
                yield replace(whole, reason=f"the folder cannot be read: {error.strerror}")
        else:
            yield from _zip_entries(path, parts) if _is_zip(item.name) else [whole]


def _zip_entries(path: Path, above: tuple[str, ...] = (), within: tuple[zipfile.ZipInfo, ...] = ()) -> Iterator[_Entry]:
    # The entries of the zip at `path` or, if it is `within` that, of one in it. `above` is where it lies.
    try:
        if above and (within[-1].file_size if within else path.lstat().st_size) > MAX_BYTES:
            raise CourseError(TOO_LARGE)
        with _open(path, within) as file, zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
        if len(infos) > (most := MAX_FILES[sum(map(_is_zip, above))]):
            raise CourseError(f"it holds {len(infos):,} files; the most is {most:,}")
    except Exception as error:  # a zip may be broken in any way
        if not above:
            raise zipfile.BadZipFile(str(error)) from None
        yield _Entry(above, path, reason=f"{above[-1]} is not a zip that can be read: {error}")
        return
    found = []
    for info in infos:
        names = info.filename.replace("\\", "/").split("/")
        if info.is_dir() or any(map(SKIPPED.fullmatch, names)):
            continue
        is_link, parts = stat.S_ISLNK(info.external_attr >> 16), (*above, *map(_shown, names))
        reason = next(filter(None, (_refuse(name, is_link) for name in names)), "")
        if not reason and _is_zip(names[-1]):
            if sum(map(_is_zip, parts)) < len(MAX_FILES):
                found += _zip_entries(path, parts, (*within, info))
                continue
            reason = f"{parts[-1]} is a zip in a zip in a zip"
        found.append(_Entry(parts, path, (*within, info), reason=reason))
    yield from found or ([_Entry(above, path, is_folder=True)] if above else [])


def _is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")


def _shown(name: str) -> str:
    return printable(unicodedata.normalize("NFC", name)) or "?"


def _refuse(name: str, is_link: bool) -> str:
    shown = _shown(name)
    if is_link:
        return f"{shown} is a link to somewhere else; links are not followed"
    if shown != unicodedata.normalize("NFC", name) or ".." in name or "\\" in name:
        return f"the name {shown} has signs that no name here should have (.., \\ or a line break)"
    return ""


def printable(text: str, but: str = "") -> str:
    """`text` with escapes for what no file and no screen should get: control characters and half characters."""
    return "".join(letter if letter.isprintable() or letter in but else ascii(letter)[1:-1] for letter in text)


def _without_hidden(entries: list[_Entry]) -> Iterator[_Entry]:
    for entry in entries:
        hidden = next((part for part in entry.parts if part[0] == "." and part[1:2] != "."), "")
        if not hidden:
            yield entry
        elif entry.is_notebook:
            yield replace(entry, reason=f"{hidden} is hidden: its name begins with a dot")


def _without_wrapping(entries: list[_Entry]) -> list[_Entry]:
    submitted = [entry for entry in entries if entry.parts[0] == NBGRADER and len(entry.parts) > 1]
    if submitted:
        return [replace(entry, parts=entry.parts[1:]) for entry in submitted]
    firsts = {entry.parts[0] for entry in entries}
    notebooks = [entry for entry in entries if entry.is_notebook]
    deep = notebooks and all(len(entry.parts) > 2 and entry.parts[1] != entry.stem for entry in notebooks)
    if len(firsts) == 1 and deep and all(len(entry.parts) > 1 for entry in entries) and not any(map(_is_zip, firsts)):
        return _without_wrapping([replace(entry, parts=entry.parts[1:]) for entry in entries])
    return entries


def _out_of_zip(entry: _Entry, lessons: Mapping[str, Lesson]) -> _Entry:
    # A student's zip counts as their folder, or as part of it; so does what is in its folders.
    *folders, last = entry.parts
    zips = [number for number, part in enumerate(folders) if _is_zip(part)]
    if zips:
        folders = folders[zips[0] :] if folders[0] in lessons else folders
        return replace(entry, parts=(re.sub(r"\.zip$", "", folders[0], flags=re.I), last))
    if not folders:
        return replace(entry, parts=(re.sub(r"\.zip$", "", last, flags=re.I),))
    return entry


def _to_submission(entry: _Entry, lessons: Mapping[str, Lesson]) -> Submission:
    first, last = entry.parts[0], entry.parts[-1]
    stem = entry.stem if entry.is_notebook else ""
    if len(entry.parts) == 1:
        reason = entry.reason or f"{last} is not in a student's folder: student/lesson.ipynb"
        return Submission("", last, reason=reason) if stem or not entry.reason else Submission(first, "", reason=reason)
    student, name = first, stem or last
    if len(entry.parts) == 2 and first in lessons and stem not in lessons:
        student, name = stem or last, first
    lesson, reason = lessons.get(name), entry.reason
    if not reason and lesson is None:
        near = nearest(name, lessons)
        reason = f"{last} is not the name of a lesson" + (f"; the nearest is {near[0]}.ipynb" if near else "")
    elif not reason and len(entry.parts) > 2 and entry.parts[1:-1] != (name,):
        reason = f"{'/'.join(entry.parts)} is too deep: student/{last} or student/{name}/{last}"
    return Submission(student, name, entry.path, lesson, reason, entry.members)


def without_doubles(found: Iterable[Submission]) -> list[Submission]:
    """The submissions, sorted; where a student has two for a lesson, the second is none, and says so."""
    found, seen = sorted(found, key=lambda one: (one.student, one.name)), set()
    for number, each in enumerate(found):
        if each.lesson and not each.reason:
            if (each.student, each.name) in seen:
                reason = "it is a second notebook for this lesson; the first counts"
                found[number] = replace(each, lesson=None, reason=reason)
            seen.add((each.student, each.name))
    return found


@functools.lru_cache(maxsize=1)  # to read what is in the zip of a class takes long
def _open_zip(path: Path, changed: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


@contextlib.contextmanager
def _open(path: Path, members: tuple[zipfile.ZipInfo, ...]) -> Iterator[IO[bytes]]:
    if not stat.S_ISREG((found := path.lstat()).st_mode):
        raise CourseError(f"it is {NO_FILE.get(stat.S_IFMT(found.st_mode), 'not a regular file')}")
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_open_zip(path, found.st_mtime_ns).open(members[0]) if members else path.open("rb"))
        for info in members[1:]:  # by its entry: in a zip, two files may have one name
            file = stack.enter_context(stack.enter_context(zipfile.ZipFile(file)).open(info))
        yield file


def read_submission(submission: Submission) -> bytes:
    """The bytes of a regular file (or member of a zip) of at most `MAX_BYTES`; `CourseError` for anything else."""
    try:
        with _open(submission.path, submission.members) as file:
            data = file.read(MAX_BYTES + 1)
    except CourseError:
        raise
    except OSError as error:
        raise CourseError(f"it cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a zip may be broken in any way
        raise CourseError(f"it cannot be unpacked: {error}") from None
    if len(data) > MAX_BYTES:
        raise CourseError(TOO_LARGE)
    return data
