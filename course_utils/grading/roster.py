"""The roster: who is in the class, and who of them has handed in nothing."""

import csv
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from course_utils.grading.lessons import Lesson
from course_utils.grading.submissions import Submission, printable, without_doubles
from course_utils.root import CourseError

NOT_HANDED_IN = "nothing was handed in"
NOT_ON_ROSTER = "this name is not on the roster"
# Headings above the names, the likeliest first, in small letters and digits only; Moodle has the names in two columns.
HEADINGS = [[name] for name in ("student", "name", "fullname", "login", "username", "sisloginid", "studentid")]
HEADINGS += [["firstname", "surname"], ["firstname", "lastname"], ["idnumber"], ["email"], ["emailaddress"]]
NOBODY = {"", "points possible"}  # the latter is in Canvas' second row


@dataclass(frozen=True)
class Roster:
    """The headings of a roster's columns, and by the name of each student, in order, the cells of the row."""

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> list[str]:
        """Each student once."""
        return list(self.rows)


def read_roster(path: Path) -> Roster:
    """The roster in a CSV file in UTF-8 or UTF-16, with commas, semicolons or tabs, and one of the `HEADINGS`.

    Raises `CourseError` if it is none, and `OSError` if the file cannot be read.
    """
    data = path.read_bytes()
    try:
        text = data.decode("utf-16" if b"\0" in data else "utf-8-sig").lstrip("\r\n")
        text = re.sub(r"\Asep=.\s+", "", text)  # Excel's word on what stands between two cells
        delimiter = max(",;\t", key=re.sub('"[^"]*"', "", text.partition("\n")[0]).count)
        table = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise CourseError(f"the roster {path} is not CSV in UTF-8 or UTF-16 ({error}).") from None
    heading, *body = [tuple(_tidy(cell) for cell in row) for row in table if any(map(str.strip, row))] or [()]
    plain = [re.sub(r"[\W_]", "", cell.casefold()) for cell in heading]
    columns = next((each for each in HEADINGS if set(each) <= set(plain)), None)
    if columns is None:
        raise CourseError(
            f"the roster {path} begins with {', '.join(heading[:8]) or 'nothing'}; its first row has to be headings, "
            "one of them `student`, `name`, `login` or `Student ID`, or two of them `First name` and `Last name`."
        )
    rows: dict[str, tuple[str, ...]] = {}
    known: dict[str, list[str]] = {}
    for cells in body:
        row = cells + ("",) * (len(heading) - len(cells))
        name = printable(_tidy(" ".join(row[plain.index(each)] for each in columns)))
        if any(row[len(heading) :]):
            raise CourseError(
                f"the roster {path} has more cells for {name} than headings: put a name with , in quotes."
            )
        key, same = _key(name), [_key(cell) for cell in row]
        if key in NOBODY or row[: len(heading)] == heading:
            continue
        if key not in known:
            known[key], rows[name] = same, row[: len(heading)]
        if known[key] != same:
            raise CourseError(
                f"the roster {path} has two students called {name}: call a column `student` that differs."
            )
    if not rows:
        raise CourseError(f"the roster {path} holds no names below its headings.")
    return Roster(heading, rows)


def _tidy(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _key(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def add_roster(found: Sequence[Submission], names: Sequence[str], lessons: Mapping[str, Lesson]) -> list[Submission]:
    """The submissions, and an entry for each name and lesson without one; who is not on the roster is marked.

    A folder that is called as a student but for capitals, spaces and the way in which letters are coded is theirs.
    """
    known = {_key(name): name for name in names}
    marked = []
    for each in found:
        student = known.get(_key(each.student))
        remark = "" if student or not each.student else NOT_ON_ROSTER
        marked.append(replace(each, student=student or each.student, remark=remark))
    handed_in = {(each.student, each.name) for each in marked}
    missing = [
        Submission(student, name, lesson=lesson, reason=NOT_HANDED_IN, missing=True)
        for student in names
        for name, lesson in lessons.items()
        if (student, name) not in handed_in
    ]
    return without_doubles([*marked, *missing])
