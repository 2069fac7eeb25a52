"""The roster: who is in the class, and who of them has handed in nothing."""

import csv
import io
import itertools
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from course_utils.grading.submissions import DAMAGED, Lesson, Submission, printable, without_doubles
from course_utils.root import CourseError, nearest

NOT_HANDED_IN = "nothing was handed in"
NOT_ON_ROSTER = "this name is not on the roster"
# Headings above the names, the likeliest first, in small letters and digits only; Moodle has the names in two columns.
HEADINGS = [[name] for name in ("student", "name", "fullname", "login", "username", "sisloginid", "studentid")]
HEADINGS += [["firstname", "surname"], ["firstname", "lastname"], ["idnumber"], ["email"], ["emailaddress"]]
NOBODY = {"", "points possible"}  # the latter is in Canvas' second row


def read_roster(path: Path) -> dict[str, dict[str, str]]:
    """Who is in the class: by the name of each student, in order, what the roster has in each of its columns.

    It is a CSV file in UTF-8 or UTF-16, with commas, semicolons or tabs; a column's heading is among the `HEADINGS`.
    Raises `CourseError` if it is none, or cannot be read.
    """
    the_roster = f"the roster {path}"
    try:
        data = path.read_bytes()
        text = data.decode("utf-16" if b"\0" in data else "utf-8-sig").lstrip("\r\n")
        text = re.sub(r"\Asep=.\s+", "", text)  # Excel's word on what stands between two cells
        delimiter = max(",;\t", key=re.sub('"[^"]*"', "", text.partition("\n")[0]).count)
        table = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True))
    except OSError as error:
        raise CourseError(f"{the_roster} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise CourseError(f"{the_roster} is not CSV in UTF-8 or UTF-16 ({error}).") from None
    heading, *body = [[_tidy(cell) for cell in row] for row in table if any(map(str.strip, row))] or [[]]
    plain = {re.sub(r"[\W_]", "", cell.casefold()): cell for cell in reversed(heading)}
    columns = next(([plain[name] for name in names] for names in HEADINGS if plain.keys() >= {*names}), None)
    if columns is None:
        raise CourseError(
            f"{the_roster} begins with {printable(', '.join(heading[:8])) or 'nothing'}; its first row has to be "
            "headings, one of them `student`, `name`, `login` or `Student ID`, or two: `First name` and `Last name`."
        )
    students: dict[str, tuple[str, dict[str, str]]] = {}
    for row in body:
        if any(row[len(heading) :]):
            raise CourseError(f"{the_roster} has more cells than headings beside {row[0]}: put quotes around commas.")
        cells = dict(itertools.zip_longest(heading, row[: len(heading)], fillvalue=""))
        name = printable(_tidy(" ".join(cells[column] for column in columns)))
        if _key(name) in NOBODY or row[: len(heading)] == heading:
            continue
        known = students.setdefault(_key(name), (name, cells))[1]
        if [*map(_key, known.values())] != [*map(_key, cells.values())]:
            raise CourseError(f"{the_roster} has two students called {name}; give them names that differ.")
    if not students:
        raise CourseError(f"{the_roster} holds no names below its headings.")
    return dict(students.values())


def _tidy(text: str, form: str = "NFC") -> str:
    return " ".join(unicodedata.normalize(form, text).split())


def _key(name: str) -> str:
    return re.sub("[\u0300-\u036f]", "", _tidy(name, "NFKD")).casefold()  # without accents


def add_roster(found: Sequence[Submission], names: Collection[str], lessons: Mapping[str, Lesson]) -> list[Submission]:
    """The submissions, and an entry for each name and lesson without one; who is not on the roster is marked.

    Capitals, spaces and accents of a folder's name do not count. A damaged zip may hold every lesson.
    """
    known, marked = {_key(name): name for name in names}, []
    missing = dict.fromkeys(itertools.product(names, lessons))
    for each in found:
        student = known.get(_key(each.student))
        near = "".join(f"; did you mean {known[key]}?" for key in nearest(_key(each.student), known, 1))
        remark = "" if student or not each.student else NOT_ON_ROSTER + near
        marked.append(replace(each, student=student or each.student, remark=remark))
        for name in lessons if DAMAGED in each.reason and not each.lesson else [each.name]:
            missing.pop((student, name), None)
    marked += [Submission(student, name, lesson=lessons[name], reason=NOT_HANDED_IN) for student, name in missing]
    return without_doubles(marked)
