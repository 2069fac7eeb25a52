"""Which lessons there are, and which notebooks: a folder of submissions, a zip of one, or one file. Needs no torch.

The guide, `README.md`, describes the layouts; `downloads` knows those of learning platforms. How the folders in a
student's zip are called says nothing. Links are not followed. Everything found has an entry, with a reason in words
where it is no submission.
"""

import contextlib
import functools
import os
import re
import stat
import time
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NamedTuple

from course_utils.exercises.declaration import Declaration, read_declarations
from course_utils.grading.definitions import Cell, read_cells
from course_utils.grading.desk import Desk
from course_utils.grading.downloads import NOTEBOOK, SCRIPT, Owner, name_lesson, read_owner
from course_utils.root import BACKUPS, ROOT, CourseError, nearest

MAX_BYTES = 20 * 1024 * 1024
TOO_LARGE = f"it is larger than {MAX_BYTES // 1024**2} MB; clear the outputs and hand it in again"
MAX_FILES = (200_000, 2_000, 100)  # in the zip of a class, in that of a student, and in a zip in that
MAX_DEPTH = 5
MAX_NAME = 1_000  # characters that are read of a file's name with those of its folders: no system has longer ones
MAX_OTHERS = 20  # files of a student that are no lesson's and have a row each
MAX_SECONDS = 10.0  # to find out which lessons' the notebooks of a student are by their cells
SKIPPED = re.compile(
    rf"submission\.json|__pycache__|__MACOSX|{BACKUPS}|\._.*|\.(base|git|ipynb_checkpoints|virtual_documents)"
)
HIDDEN = re.compile(r"\.[^.]")
ZIP = re.compile(r"\.zip\Z", re.IGNORECASE)
ARCHIVES = (".7z", ".gz", ".rar", ".tar", ".tgz")
NBGRADER = "submitted"
DAMAGED = "that can be read"  # in the reason why a zip, or a folder, is none
NOTHING = "nothing"  # stands for what is in an empty folder
UNKNOWN_NAME = "is not the name of a lesson"  # in the reason why a notebook belongs to none

Members = tuple[zipfile.ZipInfo, ...]


@dataclass(frozen=True)
class Lesson:
    """One lesson: the notebook as it is handed out, and its exercises in order."""

    path: Path
    exercises: tuple[Declaration, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @functools.cached_property
    def cells(self) -> list[Cell]:
        return read_cells(self.path.read_bytes())

    @functools.cached_property
    def answer_ids(self) -> dict[str, str]:
        """The lasting id of each exercise's answer cell."""
        answers = [cell for cell in self.cells if "answer" in cell.tags]
        return {name: cell.id for cell in answers for each in cell.statements for name in each.defines}


@functools.cache
def read_lessons() -> dict[str, Lesson]:
    paths = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    lessons = [Lesson(path, tuple(read_declarations(int(path.stem[:2])))) for path in paths]
    return {lesson.path.stem: lesson for lesson in lessons if lesson.exercises}


@dataclass(frozen=True)
class Submission:
    """One notebook that a student handed in, or in `reason` why it is none. A `lesson` without a path was not.

    `path` is the file or the zip; in a zip, `members` are its entry and, before it, that of the zip that it is in.
    `owner` is who it came from, as far as the file's place says; `file` is the file's name.
    """

    student: str
    name: str
    path: Path | None = None
    lesson: Lesson | None = None
    reason: str = ""
    members: Members = ()
    remark: str = ""
    owner: Owner | None = None
    file: str = ""

    @property
    def late(self) -> bool:
        return bool(self.owner and self.owner.late)


class _Entry(NamedTuple):
    parts: tuple[str, ...]
    path: Path
    members: Members = ()
    reason: str = ""
    owner: Owner | None = None

    @property
    def stem(self) -> str:
        """The name of a notebook without its ending; empty for anything else."""
        ending = NOTEBOOK.search(self.parts[-1])
        return self.parts[-1][: ending.start()] if ending else ""


def find_submissions(place: Path, lessons: Mapping[str, Lesson]) -> list[Submission]:
    """All in a folder or a zip, or the one file, sorted by student and name; `CourseError` if it cannot be read."""
    if place.is_file() and place.suffix.lower() == ".ipynb":
        return [_to_submission(_Entry(("student", place.name), place), lessons)]
    entries = _walk(place.resolve())
    if place.is_file() and any(len(entry.parts) == 1 and entry.stem in lessons for entry in entries):
        entries = [entry._replace(parts=(place.name, *entry.parts)) for entry in entries]  # the zip of one student
    found, scripts, others = [], [], {}
    for entry in _without_wrapping(_with_owners(entries)):
        submission = _to_submission(entry, lessons)
        if entry.stem or entry.reason or (len(entry.parts) == 1 and entry.parts[0].lower().endswith(ARCHIVES)):
            found.append(submission)
        elif submission.lesson:
            scripts.append(submission)
        elif len(entry.parts) > 1 and submission.student not in lessons:
            others.setdefault((submission.student, entry.owner), []).append("/".join(entry.parts[1:]))
    notebooks = {(one.student, one.name) for one in found}
    found += [one for one in scripts if (one.student, one.name) not in notebooks]
    handed_in = {one.student for one in found}
    for student, owner in others:
        if student not in handed_in:
            shown = ", ".join(sorted(others[student, owner])[:5])
            reason = f"there is no notebook in the folder, only {shown}"
            found.append(Submission(student, "", reason=reason, owner=owner or Owner(student)))
    return without_doubles(_tell_namesakes_apart(found))


def _tell_namesakes_apart(found: Iterable[Submission]) -> list[Submission]:
    """The submissions; of two who have one name on a platform, the second gets the platform's number behind it."""
    first: dict[tuple[str, str], str] = {}
    named = []
    for each in sorted(found, key=lambda one: (one.student, one.name, one.owner.number if one.owner else "")):
        number = each.owner.number if each.owner else ""
        if number != first.setdefault((each.student, each.name), number):
            each = replace(each, student=f"{each.student} ({number})")
        named.append(each)
    return named


def _with_owners(entries: list[_Entry]) -> list[_Entry]:
    """The entries; where a learning platform wrote whose they are, the owner's name stands for the student's folder.

    A platform writes an owner into the first name of a path. It may be the second, where all in every folder and zip
    has one there: these are downloads as a whole. A single one is a student's, who may have written another's name.
    """
    nobodys = [entry.parts for entry in entries if len(entry.parts) > 1 and not read_owner(entry.parts[0])]
    are_downloads, found = all(read_owner(parts[1]) for parts in nobodys), []
    for entry in entries:
        place = 1 if are_downloads and len(entry.parts) > 1 and not read_owner(entry.parts[0]) else 0
        if owned := read_owner(entry.parts[place]):
            owner, rest = owned
            parts = (owner.name, *filter(None, [rest]), *entry.parts[place + 1 :])
            entry = entry._replace(parts=parts, owner=owner)
        found.append(entry)
    return found


def _walk(path: Path, above: tuple[str, ...] = (), within: Members = ()) -> list[_Entry]:
    # What is in a folder, in the zip at `path` or, if it is `within` that, in one in it. `above` is where it lies.
    kind, found = "folder" if path.is_dir() else "zip", []
    try:
        listed = _list(path, above, within)
    except Exception as error:  # a zip may be broken in any way
        name = above[-1] if above else path
        reason = f"{name} is not a {kind} {DAMAGED}: {getattr(error, 'strerror', None) or error}"
        if not above:
            raise CourseError(f"{reason}.") from None
        return [_Entry(above, path, reason=reason)]
    for place, members, names, is_link, is_folder in listed:
        if any(map(SKIPPED.fullmatch, names)):
            continue
        shown = [printable(unicodedata.normalize("NFC", name) or "\0") for name in names]
        parts, reason = (*above, *shown), ""
        is_zip = ZIP.search(parts[-1]) and not is_folder
        hidden = next(filter(HIDDEN.match, parts), "")
        if is_link:
            reason = f"{parts[-1]} is a link to somewhere else; links are not followed"
        elif odd := [name for name in shown if "\\" in name or ".." in name]:
            reason = f"the name {odd[0]} has signs that no name here should have (.., \\ or a line break)"
        elif is_zip and len([*filter(ZIP.search, parts)]) == len(MAX_FILES):
            reason = f"{parts[-1]} is a zip in a zip in a zip"
        if not reason and (is_zip or (is_folder and len(parts) < MAX_DEPTH)):
            inside = _walk(place, parts, members) or [_Entry((*parts, NOTHING), place)]
        else:
            reason = reason or (hidden and f"{hidden} is hidden: its name begins with a dot")
            inside = [_Entry(parts, place, members, reason)]
        found += [entry for entry in inside if entry.stem or not hidden]
    return found


def _list(path: Path, above: tuple[str, ...], within: Members) -> list[tuple]:
    if path.is_dir():
        items = sorted(os.scandir(path), key=lambda item: item.name)
        return [(Path(one.path), (), [one.name], one.is_symlink(), one.is_dir(follow_symlinks=False)) for one in items]
    if above and (within[-1].file_size if within else path.lstat().st_size) > MAX_BYTES:
        raise CourseError(TOO_LARGE)
    with _open(path, within) as file, zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
    if len(infos) > (most := MAX_FILES[len([*filter(ZIP.search, above)])]):
        raise CourseError(f"it holds {len(infos):,} files; the most is {most:,}")
    if above and sum(one.file_size for one in infos if ZIP.search(one.filename)) > MAX_BYTES:
        raise CourseError(f"the zips in it hold more than {MAX_BYTES // 1024**2} MB")
    files = [(one, one.filename[:MAX_NAME].replace("\\", "/").split("/")) for one in infos if not one.is_dir()]
    return [(path, (*within, one), names, stat.S_ISLNK(one.external_attr >> 16), False) for one, names in files]


def printable(text: str, but: str = "") -> str:
    """`text` with escapes for what no file and no screen should get: control characters and half characters."""
    return "".join(letter if letter.isprintable() or letter in but else ascii(letter)[1:-1] for letter in text)


def _without_wrapping(entries: list[_Entry]) -> list[_Entry]:
    inner = [(entry.parts[0], entry._replace(parts=entry.parts[1:])) for entry in entries if len(entry.parts) > 1]
    if submitted := [entry for first, entry in inner if first == NBGRADER]:
        return submitted
    notebooks = [entry for entry in entries if entry.stem]
    deep = notebooks and all(len(entry.parts) > 2 and entry.parts[1] != entry.stem for entry in notebooks)
    deep = deep and not any(entry.owner for entry in entries)
    if deep and len({entry.parts[0] for entry in entries}) == 1 and not ZIP.search(entries[0].parts[0]):
        return _without_wrapping([entry for _, entry in inner])
    return entries


def _to_submission(entry: _Entry, lessons: Mapping[str, Lesson]) -> Submission:
    (*folders, last), reason = entry.parts, entry.reason
    script = SCRIPT.sub("", last)
    stem = entry.stem or (script if script != last and name_lesson(script, lessons) else "")
    if not folders:
        whose = (ZIP.sub("", last), "") if reason and not stem else ("", last)
        reason = reason or f"{last} is not in a student's folder: student/lesson.ipynb"
        return Submission(*whose, reason=reason, file=last)
    zips = [*filter(ZIP.search, folders)]
    if entry.owner:  # then only the file's own name says anything more
        folders = folders[:1]
    elif zips:  # a student's zip is their folder, or in it; its folders say nothing
        folders = [ZIP.sub("", zips[0] if folders[0] in lessons else folders[0])]
    student, name = folders[0], stem or last
    if not reason:
        name = name_lesson(stem, lessons) or name
    if len(folders) == 1 and student in lessons and (stem or reason) and name not in lessons:
        student, name = name, student
    lesson = lessons.get(name)
    if not reason and lesson is None:
        near = nearest(name, lessons)
        reason = f"{last} {UNKNOWN_NAME}" + (f"; the nearest is {near[0]}.ipynb" if near else "")
    elif not reason and folders[1:] not in ([], [name], [stem]):
        reason = f"{'/'.join(entry.parts)} is too deep: student/{last} or student/{name}/{last}"
    owner = entry.owner or Owner(student)
    return Submission(student, name, entry.path, lesson, reason, entry.members, owner=owner, file=last)


def name_by_cells(found: Iterable[Submission], lessons: Mapping[str, Lesson], desk: Desk) -> list[Submission]:
    """The submissions; a notebook with a name of its own belongs to the one lesson that its cells answer, if any.

    A student's files that are no lesson's have one row together from the `MAX_OTHERS`th on.
    """
    named, spent, others, more = [], Counter(), Counter(), {}
    for each in found:
        if each.path and UNKNOWN_NAME in each.reason and spent[each.student] < MAX_SECONDS:
            begun = time.monotonic()
            with contextlib.suppress(CourseError):  # what cannot be read has its reason already
                if name := desk.ask(find_lesson, read_submission(each)):
                    each = replace(each, name=name, lesson=lessons[name], reason="")
            spent[each.student] += time.monotonic() - begun
        is_other = each.student and each.reason and not each.lesson
        others[each.student] += bool(is_other)
        if is_other and (left := others[each.student] - MAX_OTHERS) > 0:
            reason = f"it is one of {left:,} more files that belong to no lesson"
            more[each.student] = replace(each, name="", reason=reason)
        else:
            named.append(each)
    return without_doubles([*named, *more.values()])


def find_lesson(data: bytes) -> str:
    """The name of the one lesson of whose exercises a notebook file has an answer, or its cell; empty if there is none.

    It is work for the desk. Raises `CourseError` if it is no notebook.
    """
    cells, lessons = read_cells(data), read_lessons().values()
    ids = {cell.id for cell in cells}
    defined = {name for cell in cells for each in cell.statements for name in each.defines}
    by_id = [lesson for lesson in lessons if not ids.isdisjoint(lesson.answer_ids.values())]
    by_name = [lesson for lesson in lessons if defined.intersection(one.name for one in lesson.exercises)]
    found = by_id or by_name
    return found[0].name if len(found) == 1 else ""


def without_doubles(found: Iterable[Submission]) -> list[Submission]:
    """The submissions, sorted; where a student has two for a lesson, the second is none, and says so.

    The first is the one whose file has the lesson's own name, if there is such.
    """
    first: dict[tuple[str, str], Submission] = {}
    kept = []
    for each in sorted(found, key=lambda one: (one.student, one.name, one.file != f"{one.name}.ipynb", one.file)):
        if each.lesson and not each.reason and first.setdefault((each.student, each.name), each) is not each:
            reason = "it is a second notebook for this lesson; the first counts"
            other = first[each.student, each.name].file
            if each.file != other:
                reason = f"{each.file} is a second notebook for this lesson; {other} counts"
            each = replace(each, lesson=None, reason=reason)
        kept.append(each)
    return kept


@functools.lru_cache(maxsize=1)  # to read what is in the zip of a class takes long
def _open_zip(path: Path, changed: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def _open(path: Path, members: Members) -> IO[bytes]:
    if not stat.S_ISREG((found := path.lstat()).st_mode):
        raise OSError("it is not a regular file; links are not followed")
    file = _open_zip(path, found.st_mtime_ns).open(members[0]) if members else path.open("rb")
    # A member is opened by its entry, for in a zip two files may have one name.
    return functools.reduce(lambda zipped, info: zipfile.ZipFile(zipped).open(info), members[1:], file)


def read_submission(submission: Submission) -> bytes:
    """The bytes of a regular file (or member of a zip) of at most `MAX_BYTES`; `CourseError` for anything else."""
    try:
        with _open(submission.path, submission.members) as file:
            data = file.read(MAX_BYTES + 1)
    except Exception as error:  # a zip may be broken in any way
        raise CourseError(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise CourseError(TOO_LARGE)
    return data
