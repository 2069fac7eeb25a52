"""Step 4: the scores, as a table on screen, as CSV and JSON, and as pages, one for each student and one for the class.

`scores.json` is an object: `version` (of this form), `isolation` (lines of text), `columns`, and `scores`. The guide,
`README.md`, says what stands in each column.

A student's page holds no reference answer, no seed, and nothing about anybody else.
"""

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_utils.exercises.causes import BESIDES
from course_utils.exercises.declaration import read_declarations
from course_utils.exercises.outcome import Stage
from course_utils.root import write_whole
from course_utils.show import page_templates

if TYPE_CHECKING:
    from course_utils.authoring.item_analysis import InClass

NO_SCORE = UNREADABLE, NOT_GRADED, NOT_HANDED_IN = "unreadable", "not graded", "not handed in"
BEST_FIRST = (*map(str, reversed(Stage)), *NO_SCORE)
SIGNS = {"passed": "✓", "not attempted": "○", UNREADABLE: "!", NOT_GRADED: "?", NOT_HANDED_IN: "\u2013"}  # or ✗
VERSION = 5
CLASS_PAGE = "index.html"
MOST_LOOKS = 500
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # and the wide forms of the first four


@dataclass(frozen=True)
class Score:
    """One row of the report.

    `held` is the share of the cases in which the answer did the right thing, from 0 to 1. `like` is the same text for
    answers that differ in names, order and layout only. `given` says that the points are the teacher's own. `got` and
    `expected` are what the answer did and what the key does, for nbval; or nothing.
    """

    student: str
    lesson: str
    exercise: str
    points: float = 0
    possible: int = 0
    stage: str = NOT_GRADED
    sentence: str = ""
    cause: str = ""
    look_by_hand: bool = True
    reason: str = ""
    late: bool = False
    seconds: float = 0.0
    held: float = 0.0
    like: str = ""
    given: bool = False
    comment: str = ""
    got: str = ""
    expected: str = ""

    @property
    def passed(self) -> bool:
        return self.stage == Stage.PASSED

    @property
    def attempted(self) -> bool:
        return self.stage not in (*NO_SCORE, Stage.NOT_ATTEMPTED)

    @property
    def counts(self) -> bool:
        """Whether it is a score: the grader's, or the teacher's."""
        return self.given or self.stage not in NO_SCORE


def neat(points: float) -> float:
    return int(points) if points == int(points) else round(points, 2)


COLUMNS = tuple(field.name for field in fields(Score))[:-2]
YES_OR_NO = ("look_by_hand", "late", "given")


def write_scores(scores: Sequence[Score], folder: Path, isolation: Sequence[str] = ()) -> None:
    """Write `scores.csv` and `scores.json` into `folder`; in the latter also what kept the answers in."""
    rows = [{name: getattr(row, name) for name in COLUMNS} for row in scores]
    shown = [row | {name: "yes" if row[name] else "no" for name in YES_OR_NO} for row in rows]
    write_csv(folder / "scores.csv", COLUMNS, shown)
    content = {"version": VERSION, "isolation": list(isolation), "columns": COLUMNS, "scores": rows}
    write_whole(folder / "scores.json", json.dumps(content, indent=1) + "\n")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table, in which nothing is what a spreadsheet would take for a formula."""
    text, table = io.StringIO(), [columns, *([row.get(name, "") for name in columns] for row in rows)]
    csv.writer(text).writerows([_no_formula(cell) for cell in row] for row in table)
    write_whole(path, text.getvalue())


def _no_formula(cell: object) -> object:
    """What a spreadsheet would take for a formula with an apostrophe before it (owasp.org: CSV Injection).

    A hyphen alone is none: Moodle writes it for "no grade".
    """
    is_formula = str(cell).startswith(FORMULA) and cell != "-"
    return f"'{cell}" if is_formula else cell


def group_by(scores: Iterable[Score], *columns: str) -> dict[Any, list[Score]]:
    """The rows by what they have in a column, or in several, in the order in which that is first met."""
    found = {}
    for row in scores:
        found.setdefault(attrgetter(*columns)(row), []).append(row)
    return found


def possible_points(scores: Iterable[Score]) -> dict[str, dict[str, int]]:
    """The exercises of each lesson that was graded, with the points that they give."""
    lessons = sorted(group_by((row for row in scores if row.exercise), "lesson").items())
    return {lesson: {row.exercise: row.possible for row in rows} for lesson, rows in lessons}


def looks(scores: Sequence[Score]) -> list[tuple[str, str, str, str]]:
    """What a person has to look at, each thing once: student, lesson, exercises (none for the whole file), and why."""
    sizes = Counter((row.student, row.lesson) for row in scores if row.exercise)
    found = []
    for why, rows in group_by((row for row in scores if row.look_by_hand), "student", "lesson", "reason").items():
        exercises = "" if 1 < len(rows) == sizes[why[:2]] else ", ".join(row.exercise for row in rows)
        found.append((*why[:2], exercises, why[2]))
    return found


def table(scores: Sequence[Score]) -> str:
    """A line for each student with the points for each lesson and in all, and a line for each thing to look at."""
    lessons = list(possible_points(scores))
    rows = [["student", *lessons, "total"]]
    for student, mine in group_by(scores, "student").items():
        points = [_points([row for row in mine if row.lesson == lesson]) for lesson in lessons]
        rows.append([student or "(nobody)", *points, _points(mine)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += ["", "To look at by hand:"] if (by_hand := looks(scores)) else []
    for student, lesson, exercises, reason in by_hand:
        where = "/".join(filter(None, (student, lesson))) or "(nobody)"
        lines.append(f"  {where}{exercises and f', {exercises}'}: {reason}")
    return "\n".join(lines)


def _points(rows: Sequence[Score]) -> str:
    scored = any(row.exercise for row in rows)
    return f"{neat(sum(row.points for row in rows))} of {sum(row.possible for row in rows)}" if scored else "-"


def write_pages(
    scores: Sequence[Score], report: Path, isolation: Sequence[str] = (), in_class: "InClass | None" = None
) -> None:
    """Write `index.html`, with what `read_class` found, and, in `students`, a page for each student into `report`."""
    from course_utils.authoring.item_analysis import Answer, study

    templates = page_templates()
    templates.filters["neat"] = neat
    templates.globals.update(signs=SIGNS, no_score=NO_SCORE, best_first=BEST_FIRST, most_looks=MOST_LOOKS)
    exercises = {exercise.name: exercise for exercise in read_declarations()}
    students, lessons = group_by(scores, "student"), possible_points(scores)
    files = file_names(list(students))
    for old in (report / "students").glob("*.html"):
        old.unlink()
    page = templates.get_template("grading_student.html.j2")
    for student, rows in students.items():
        write_whole(report / "students" / files[student], page.render(student=student, rows=rows, exercises=exercises))
    graded = [row for row in scores if row.counts]
    causes = [row.cause.split(BESIDES) if row.cause else [] for row in graded]
    answers = [Answer(row.student, row.exercise, row.passed, said) for row, said in zip(graded, causes, strict=True)]
    text = templates.get_template("grading_class.html.j2").render(
        files=files,
        isolation=isolation,
        graded=len(graded),
        lessons=lessons,
        students={student: (rows, _cells(rows, lessons)) for student, rows in students.items()},
        study=study(answers),
        effort={name: _effort(mine) for name, mine in group_by(graded, "exercise").items()},
        looks=looks(scores),
        in_class=in_class,
    )
    write_whole(report / CLASS_PAGE, text)


def _cells(rows: Sequence[Score], lessons: Mapping[str, Iterable[str]]) -> list[tuple[int, Score]]:
    # How many columns each cell of a student's row spans, and what it tells: what is true of a whole file once.
    found, cells = {(row.lesson, row.exercise): row for row in rows}, []
    damaged = any(row.stage == UNREADABLE and not row.exercise for row in rows)  # what was to hold the lessons
    missing = Score("", "", "", stage=UNREADABLE if damaged else NOT_HANDED_IN, look_by_hand=damaged)
    for lesson, exercises in lessons.items():
        mine = [found.get((lesson, exercise), missing) for exercise in exercises]
        whole = not mine[0].counts and len({(row.stage, row.reason, row.given) for row in mine}) == 1
        cells += [(len(mine), mine[0])] if whole else [(1, row) for row in mine]
    return cells


def _effort(mine: Sequence[Score]) -> tuple[int, str, str]:
    """How many tried, and the seconds that an answer ran: the middle one and the longest."""
    tried = sum(row.stage != Stage.NOT_ATTEMPTED for row in mine)
    seconds = sorted(row.seconds for row in mine if row.seconds) or [0.0]
    return tried, f"{seconds[len(seconds) // 2]:.2f}", f"{seconds[-1]:.2f}"


def file_names(students: Sequence[str]) -> dict[str, str]:
    """A file name for each student, safe on every system, and two students' names never the same."""
    found = {}
    for student in students:
        name = re.sub(r"\W+", "_", student, flags=re.ASCII).strip("_")[:60] or "nobody"
        digest = "" if student == name.lower() else f"-{hashlib.sha256(student.encode()).hexdigest()[:12]}"
        found[student] = f"{name}{digest}.html"
    return found
