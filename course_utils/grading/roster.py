"""The roster: who is in the class, and who of them has handed in nothing."""

import csv
import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from course_utils.grading.downloads import CANVAS_COLUMN, MOODLE_COLUMN, Owner, People, without_number, words_of
from course_utils.grading.submissions import DAMAGED, Lesson, Submission, printable, without_doubles
from course_utils.root import CourseError, name_key, nearest

NOT_HANDED_IN = "nothing was handed in"
NOT_ON_ROSTER = "this name is not on the roster"
# Headings above the names, the likeliest first, in small letters and digits only; Moodle has the names in two columns.
HEADINGS = [[name] for name in ("student", "name", "fullname", "login", "username", "sisloginid", "studentid")]
HEADINGS += [["firstname", "surname"], ["firstname", "lastname"], ["idnumber"], ["email"], ["emailaddress"]]
POINTS_POSSIBLE = ("points", "possible")  # in Canvas' second row
TEST_STUDENT = {"test", "student"}  # whom Canvas adds to every course
LATE = re.compile(r"\blate\b", re.IGNORECASE)  # in the column `Status` of Moodle's grading worksheet


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
    rows = []
    for row in body:
        if any(row[len(heading) :]):
            raise CourseError(f"{the_roster} has more cells than headings beside {row[0]}: put quotes around commas.")
        cells = dict(itertools.zip_longest(heading, row[: len(heading)], fillvalue=""))
        name = printable(_tidy(" ".join(cells[column] for column in columns)))
        is_nobody = words_of(name) in ((), POINTS_POSSIBLE) or {*words_of(name)} == TEST_STUDENT
        if not is_nobody and row[: len(heading)] != heading:
            rows.append((name, cells))
    if not rows:
        raise CourseError(f"{the_roster} holds no names below its headings.")
    return _by_name(rows, the_roster)


def _by_name(rows: Sequence[tuple[str, dict[str, str]]], the_roster: str) -> dict[str, dict[str, str]]:
    """The rows by name, each once. Two students of one name get their platform's number behind it."""
    different: dict[tuple[str, ...], tuple[str, dict[str, str]]] = {}
    for name, cells in rows:
        different.setdefault((_key(name), *map(_key, cells.values())), (name, cells))
    times = Counter(_key(name) for name, _ in different.values())
    students: dict[str, dict[str, str]] = {}
    for name, cells in different.values():
        label = name
        if times[_key(name)] > 1:
            known = {heading.lower(): text for heading, text in cells.items()}
            number = known.get(MOODLE_COLUMN) or known.get(CANVAS_COLUMN)
            label = f"{name} ({number})"
            if not number or label in students:
                raise CourseError(f"{the_roster} has two students called {name}; give them names that differ.")
        students[label] = cells
    return students


def _tidy(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _key(name: str) -> str:
    return " ".join(name_key(name).split())


def add_roster(
    found: Sequence[Submission], roster: Mapping[str, Mapping[str, str]], lessons: Mapping[str, Lesson]
) -> list[Submission]:
    """The submissions, and an entry for each name and lesson without one; who is not on the roster is marked.

    `roster` is what `read_roster` gives. A damaged zip may hold every lesson.
    """
    people, marked = People(roster), []
    missing = dict.fromkeys(itertools.product(roster, lessons))
    by_words = {" ".join(sorted(words_of(without_number(name)))): name for name in roster}
    for each in found:
        owner = each.owner or Owner(each.student)
        if {*words_of(owner.name)} == TEST_STUDENT or words_of(owner.name) == ("studenttest",):
            continue
        candidates = people.find(owner) if each.student else []
        student, remark = each.student, ""
        if len(candidates) == 1:
            (student,) = candidates
        elif candidates:
            remark = f"several on the roster are called so: {', '.join(candidates)}"
        elif each.student:
            near = nearest(" ".join(sorted(words_of(owner.name))), by_words, 1)
            remark = f"{NOT_ON_ROSTER}; did you mean {by_words[near[0]]}?" if near else NOT_ON_ROSTER
        cells = {heading.lower(): text for heading, text in roster.get(student, {}).items()}
        if LATE.search(cells.get("status", "")):
            owner = replace(owner, late=True)
        marked.append(replace(each, student=student, remark=remark, owner=owner))
        for name in lessons if DAMAGED in each.reason and not each.lesson else [each.name]:
            missing.pop((student, name), None)
    marked += [Submission(student, name, lesson=lessons[name], reason=NOT_HANDED_IN) for student, name in missing]
    return without_doubles(marked)
