"""The teacher's last word: points and comments that a person gives, and what the points are worth in the gradebook.

`decisions.csv` in the report's folder is the teacher's own. The grader makes it, with its headings only, reads it in
every run, and never changes it. In a row, `student`, `lesson`, `exercise` and `like` say what it is about, and an empty
cell means all of them; `like` is what stands in the column `like` of `scores.csv`, so that one row reaches everybody
who wrote the same answer in other words. `points` and `comment` are what is given; either may be empty.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from course_utils.grading.report import NO_SCORE, NOT_HANDED_IN, Score, group_by, neat, possible_points, write_csv
from course_utils.root import CourseError, write_whole

FILE = "decisions.csv"
ABOUT = ("student", "lesson", "exercise", "like")
COLUMNS = (*ABOUT, "points", "comment")
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


@dataclass(frozen=True)
class Decision:
    """One row: which scores it is about, by their columns, and the points and the comment that they get."""

    line: int
    about: Mapping[str, str]
    points: float | None
    comment: str

    def is_about(self, score: Score) -> bool:
        """Whether it speaks of this score. What was not handed in gets points only where its student is named."""
        if score.stage == NOT_HANDED_IN and "student" not in self.about:
            return False
        return all(getattr(score, column) == text for column, text in self.about.items())


def read_decisions(folder: Path) -> list[Decision]:
    """The rows of the teacher's file in `folder`, which is made there where there is none.

    Raises `CourseError` with the line where it cannot be understood.
    """
    path = folder / FILE
    if not path.exists():
        write_whole(path, ",".join(COLUMNS) + "\n")
    try:
        text = path.read_text(encoding="utf-8-sig")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        unknown = {*(rows.fieldnames or ())} - {*COLUMNS}
        if unknown:
            raise CourseError(f"{path} has a column {sorted(unknown)[0]!r}; it may have {', '.join(COLUMNS)}.")
        return [_read_row(row, rows.line_num, path) for row in rows if any(row.values())]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CourseError(f"{path} cannot be read as CSV in UTF-8: {error}.") from None


def _read_row(row: Mapping[str, str | None], line: int, path: Path) -> Decision:
    cells = {column: (row.get(column) or "").strip() for column in COLUMNS}
    try:
        points = float(cells["points"].replace(",", ".")) if cells["points"] else None
        if None in row or (points is not None and not 0 <= points < 1_000):
            raise ValueError
    except ValueError:
        problem = "`points` is a number from 0 on, and a text with a comma stands in quotes"
        raise CourseError(f"{path}, line {line}: {problem}.") from None
    about = {column: cells[column] for column in ABOUT if cells[column]}
    if points is not None and not {"exercise", "like"} & {*about}:
        raise CourseError(f"{path}, line {line}: points are for one exercise: write its name under `exercise`.")
    return Decision(line, about, points, cells["comment"])


def decide(scores: Sequence[Score], decisions: Sequence[Decision]) -> tuple[list[Score], list[int]]:
    """The scores with what the teacher decided, and the lines of decisions that are about none of them.

    Of several points the last row's count; comments stand one after the other.
    """
    decided, used = [], set()
    for score in scores:
        mine = [each for each in decisions if each.is_about(score)]
        used |= {each.line for each in mine}
        points = [each.points for each in mine if each.points is not None]
        if mine:
            score = replace(score, comment=" ".join(each.comment for each in mine if each.comment))
        if points and score.exercise:
            score = replace(score, points=neat(points[-1]), given=True, look_by_hand=False)
        decided.append(score)
    return decided, [each.line for each in decisions if each.line not in used]


@dataclass(frozen=True)
class Rules:
    """What the points are worth in the gradebook.

    `late` is the share of a lesson's points, from 0 to 1, that being late costs. `weights` says what a point of an
    exercise or of a lesson counts, 1 for those that it does not name. The `drop` lowest lessons of each student, by
    their share of the points, do not count in the total. With `partial`, an answer earns the share of its exercise's
    cases in which it did the right thing.
    """

    late: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    drop: int = 0
    partial: bool = False

    def with_parts(self, scores: Iterable[Score]) -> list[Score]:
        """The scores, where parts count with the points for the cases that hold."""
        return [
            replace(each, points=neat(each.held * each.possible))
            if self.partial and each.stage not in NO_SCORE and not each.points
            else each
            for each in scores
        ]

    def lesson_points(self, rows: Sequence[Score]) -> tuple[float, float]:
        """What a student has earned in one lesson, and what could be earned there."""
        weights = [self.weights.get(row.exercise, 1) * self.weights.get(row.lesson, 1) for row in rows]
        kept = 1 - self.late if any(row.late for row in rows) else 1.0
        earned = sum(weight * row.points for weight, row in zip(weights, rows, strict=True))
        possible = sum(weight * row.possible for weight, row in zip(weights, rows, strict=True))
        return neat(kept * earned), neat(possible)

    def total(self, lessons: Iterable[tuple[float, float]]) -> tuple[float, float]:
        """What counts of the lessons' points, earned and possible, without the lowest ones."""
        by_share = sorted(lessons, key=lambda each: each[0] / (each[1] or 1))
        counted = by_share[min(self.drop, max(0, len(by_share) - 1)) :]
        return neat(sum(each[0] for each in counted)), neat(sum(each[1] for each in counted))


def read_weights(texts: Sequence[str], known: Iterable[str]) -> dict[str, float]:
    """What `NAME=NUMBER` says of each exercise or lesson; `CourseError` for another form or an unknown name."""
    weights, names = {}, {*known}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            raise CourseError(f"--weight {text}: write it as NAME=NUMBER, such as scale_gradient=3.") from None
        if name not in names or not 0 <= weights[name] < 1_000:
            raise CourseError(f"--weight {text}: there is no exercise or lesson {name}, or the number is none.")
    return weights


def write_gradebook(
    scores: Sequence[Score],
    folder: Path,
    roster: Mapping[str, Mapping[str, str]],
    system: str = "moodle",
    rules: Rules = Rules(),
) -> None:
    """Write `gradebook.csv` into `folder`: a row for each student, with the points for each lesson.

    `roster` gives each student's columns in the roster; it is empty if there is none. Nobody else has a row, for Moodle
    would give the points of somebody without, say, an address to the student above. An empty cell is no grade: nothing
    of the lesson has a score. `rules` say what the points are worth. `system` is "moodle" (the roster's columns, the
    lessons, a total; docs.moodle.org: Grade import) or "canvas" (its own columns, the lessons, and a row of the points
    possible; its guide "How do I import grades in the Gradebook?", and its `lib/gradebook_importer.rb`).
    """
    lessons = list(possible_points(scores))
    worth = {each: rules.lesson_points(rows) for each, rows in group_by(scores, "student", "lesson").items()}
    scored = {(row.student, row.lesson) for row in scores if row.counts}
    people = roster or {student: {"student": student} for student in group_by(scores, "student") if student}
    totals = ["total", "percent"] if rules.drop else ["total"]
    columns, rows = [*dict.fromkeys([*next(iter(people.values()), ()), *lessons, *totals])], []
    if system == "canvas":
        columns = [*CANVAS, *lessons]
        most = dict.fromkeys(lessons, 0)
        for (_, name), (_, possible) in worth.items():
            most[name] = max(possible, most.get(name, 0))
        rows.append({"Student": "    Points Possible"} | most)
    for student, known in people.items():
        found = {"student": student, "sis login id": student} | {name.lower(): text for name, text in known.items()}
        row = {name: found.get(name.lower(), "") for name in CANVAS}  # it looks for an ID, for a login, then for a name
        mine = {name: worth[student, name][0] if (student, name) in scored else "" for name in lessons}
        earned, possible = rules.total(worth[student, name] for name in lessons if (student, name) in worth)
        has_any = any(each != "" for each in mine.values())
        row |= {**known, **mine, "total": earned if has_any else ""}
        rows.append(row | {"percent": neat(100 * earned / (possible or 1)) if has_any else ""})
    write_csv(folder / "gradebook.csv", columns, rows)
