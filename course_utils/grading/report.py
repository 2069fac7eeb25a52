"""Step 4: the scores, as a table on screen, as CSV and as JSON; the pages are in `pages`.

`scores.json` is an object: `version` (of this description), `isolation` (lines of text), `columns`, and `scores`.

A row for each student and exercise, and one for each file that is no lesson. The columns:

student       the name of the student's folder
lesson        the notebook's name without `.ipynb`
exercise      the exercise's name; empty where the file is no lesson
points        points earned
possible      points that the exercise gives
stage         how far the answer came (`outcome.Stage`): "passed", "wrong value", "raised", "not attempted" …;
              "not graded" where there is no score
sentence      what was seen, in the words of the learner's own `check`
cause         the likely cause, if a declared mistake behaves as the answer does
look_by_hand  whether a person has to look: yes or no (in JSON true or false)
reason        why there is no score, or why a person has to look
seconds       how long the answer ran, with its sandbox; 0 if it was not run
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from course_utils.exercises.outcome import Outcome
from course_utils.grading.judge import Verdict

NOT_GRADED = "not graded"
VERSION = 2


@dataclass(frozen=True)
class Score:
    """One row of the report; the module's docstring says what stands in each column."""

    student: str
    lesson: str
    exercise: str
    points: int = 0
    possible: int = 0
    stage: str = NOT_GRADED
    sentence: str = ""
    cause: str = ""
    look_by_hand: bool = True
    reason: str = ""
    seconds: float = 0.0


COLUMNS = tuple(field.name for field in fields(Score))


def score(
    student: str, lesson: str, exercise: str, possible: int, verdict: Verdict, seconds: float = 0.0, remark: str = ""
) -> Score:
    """The row for a verdict; a `remark` about the submission is for a person to look at."""
    found: Outcome | None = verdict.outcome
    reason = printable("; ".join(filter(None, (verdict.reason, remark))))
    if found is None:
        return Score(student, lesson, exercise, 0, possible, reason=reason, seconds=seconds)
    return Score(
        student,
        lesson,
        exercise,
        found.points,
        found.possible,
        str(found.stage),
        printable(found.sentence),
        printable(found.cause),
        verdict.by_hand or bool(remark),
        reason,
        seconds,
    )


def printable(text: str) -> str:
    """`text` with escapes for what no file and no screen should get: control characters and half characters."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)


def write_scores(scores: Sequence[Score], folder: Path, isolation: Sequence[str] = ()) -> None:
    """Write `scores.csv` and `scores.json` into `folder`; in the latter also what kept the answers in."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in scores:
        writer.writerow(asdict(row) | {"look_by_hand": "yes" if row.look_by_hand else "no"})
    (folder / "scores.csv").write_text(text.getvalue(), encoding="utf-8")
    rows = [asdict(row) for row in scores]
    content = {"version": VERSION, "isolation": list(isolation), "columns": COLUMNS, "scores": rows}
    (folder / "scores.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def table(scores: Sequence[Score]) -> str:
    """A line for each student with the points for each lesson and in all, and a line for each thing to look at."""
    lessons = sorted({row.lesson for row in scores if row.exercise})
    rows = [["student", *lessons, "total"]]
    for student, mine in by_student(scores).items():
        marks = [_points([row for row in mine if row.lesson == lesson]) for lesson in lessons]
        rows.append([student or "(nobody)", *marks, _points(mine)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    notes = _notes(scores)
    return "\n".join([*lines, *(["", "To look at by hand:", *notes] if notes else [])])


def by_student(scores: Sequence[Score]) -> dict[str, list[Score]]:
    """The rows of each student, in the order in which the students come."""
    found: dict[str, list[Score]] = {}
    for row in scores:
        found.setdefault(row.student, []).append(row)
    return found


def _points(scores: Sequence[Score]) -> str:
    if not any(row.exercise for row in scores):
        return "-"
    return f"{sum(row.points for row in scores)} of {sum(row.possible for row in scores)}"


def _notes(scores: Sequence[Score]) -> list[str]:
    """What to look at, a line for each reason in a notebook; what is wrong with all of it names no exercises."""
    found: dict[tuple[str, str, str], list[str]] = {}
    rows: Counter[tuple[str, str]] = Counter()
    for row in scores:
        rows[row.student, row.lesson] += 1
        if row.look_by_hand:
            found.setdefault((row.student, row.lesson, row.reason), []).append(row.exercise)
    notes = []
    for (student, lesson, reason), exercises in found.items():
        where = "/".join(part for part in (student, lesson) if part) or "(nobody)"
        which = "" if len(exercises) == rows[student, lesson] else f", {', '.join(exercises)}"
        notes.append(f"  {where}{which}: {reason}")
    return notes
