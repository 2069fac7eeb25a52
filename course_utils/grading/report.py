"""Step 4: the scores, as a table on screen, as CSV and JSON, as a page for each student and one for the class; marks.

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

A student's page tells what the learner's own `check` would: how far each answer came, the first difference, the likely
cause, and a hint to read again. It holds no reference answer, no seed, and nothing about anybody else.
"""

import base64
import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from course_utils.exercises.declaration import read_declarations
from course_utils.exercises.outcome import Stage
from course_utils.grading.submissions import printable
from course_utils.grading.verdict import Verdict
from course_utils.root import ASSETS, write_whole
from course_utils.show import code_spans

NOT_GRADED = "not graded"
VERSION = 2
CLASS_PAGE = "index.html"
LONGEST = 600  # characters of a sentence on a page; what an answer raised may be long
MOST_CAUSES = 15
MOST_LOOKS = 500


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


def score(student: str, lesson: str, possible: int, verdict: Verdict, remark: str = "") -> Score:
    """The row for a verdict; a `remark` about the submission is for a person to look at."""
    found, exercise, seconds = verdict.outcome, verdict.exercise, verdict.seconds
    reason = printable("; ".join(filter(None, (verdict.reason, remark))), but="\n")
    if found is None:
        return Score(student, lesson, exercise, 0, possible, reason=reason, seconds=seconds)
    sentence, cause = (printable(text, but="\n") for text in (found.sentence, found.cause))
    by_hand = verdict.by_hand or bool(remark)
    points = (found.points, found.possible)
    return Score(student, lesson, exercise, *points, str(found.stage), sentence, cause, by_hand, reason, seconds)


def write_scores(scores: Sequence[Score], folder: Path, isolation: Sequence[str] = ()) -> None:
    """Write `scores.csv` and `scores.json` into `folder`; in the latter also what kept the answers in."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in scores:
        writer.writerow(asdict(row) | {"look_by_hand": "yes" if row.look_by_hand else "no"})
    write_whole(folder / "scores.csv", text.getvalue())
    rows = [asdict(row) for row in scores]
    content = {"version": VERSION, "isolation": list(isolation), "columns": COLUMNS, "scores": rows}
    write_whole(folder / "scores.json", json.dumps(content, indent=1) + "\n")


def read_scores(report: str | Path) -> list[dict[str, Any]]:
    """The rows of `scores.json` in the report's folder."""
    return json.loads((Path(report) / "scores.json").read_text(encoding="utf-8"))["scores"]


def by_student(scores: Sequence[Score]) -> dict[str, list[Score]]:
    """The rows of each student, in the order in which the students come."""
    found: dict[str, list[Score]] = {}
    for row in scores:
        found.setdefault(row.student, []).append(row)
    return found


def table(scores: Sequence[Score]) -> str:
    """A line for each student with the points for each lesson and in all, and a line for each thing to look at."""
    lessons = sorted({row.lesson for row in scores if row.exercise})
    rows = [["student", *lessons, "total"]]
    for student, mine in by_student(scores).items():
        marks = [_points([row for row in mine if row.lesson == lesson]) for lesson in lessons]
        rows.append([student or "(nobody)", *marks, _points(mine)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    found: dict[tuple[str, str, str], list[str]] = {}
    sizes = Counter((row.student, row.lesson) for row in scores)
    for row in scores:
        if row.look_by_hand:
            found.setdefault((row.student, row.lesson, row.reason), []).append(row.exercise)
    notes = []
    for (student, lesson, reason), exercises in found.items():
        where = "/".join(part for part in (student, lesson) if part) or "(nobody)"
        which = "" if len(exercises) == sizes[student, lesson] else f", {', '.join(exercises)}"
        notes.append(f"  {where}{which}: {reason}")
    return "\n".join([*lines, *(["", "To look at by hand:", *notes] if notes else [])])


def _points(rows: Sequence[Score]) -> str:
    if not any(row.exercise for row in rows):
        return "-"
    return f"{sum(row.points for row in rows)} of {sum(row.possible for row in rows)}"


def write_pages(scores: Sequence[Score], report: Path, isolation: Sequence[str] = ()) -> None:
    """Write `index.html` and, in `students`, a page for each student into the folder `report`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    # Names, code and messages are hostile: all of them are escaped, `code_spans` escapes what it is given.
    blocks = {"trim_blocks": True, "lstrip_blocks": True}
    templates = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined, **blocks)
    templates.filters["code"] = lambda text: Markup(code_spans(text))
    templates.filters["short"] = lambda text: text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    exercises = {exercise.name: exercise for exercise in read_declarations()}
    students = by_student(scores)
    files = file_names(list(students))
    for old in (report / "students").glob("*.html"):
        old.unlink()
    page = templates.get_template("grading_student.html.j2")
    for student, rows in students.items():
        write_whole(report / "students" / files[student], page.render(student=student, rows=rows, exercises=exercises))
    page = templates.get_template("grading_class.html.j2")
    told = {"scores": scores, "students": students, "files": files, "isolation": isolation, "most_looks": MOST_LOOKS}
    write_whole(report / CLASS_PAGE, page.render(told | _describe_answers(scores)))


def file_names(students: Sequence[str]) -> dict[str, str]:
    """A file name for each student, safe on every system, and two students' names never the same."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for student in students:
        plain = re.sub(r"[^\w-]+", "_", student, flags=re.ASCII).strip("_")[:60] or "nobody"
        names = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        found[student] = f"{name}.html"
    return found


def _describe_answers(scores: Sequence[Score]) -> dict[str, Any]:
    graded = [row for row in scores if row.stage != NOT_GRADED]
    found: dict[str, Any] = {"graded": len(graded), "rates": [], "causes": []}
    if not graded:
        return found
    shares = {}
    for name in dict.fromkeys(row.exercise for row in graded):
        mine = [row for row in graded if row.exercise == name]
        passed = sum(row.stage == Stage.PASSED for row in mine)
        tried = sum(row.stage != Stage.NOT_ATTEMPTED for row in mine)
        shares[name] = 100 * passed / len(mine)
        seconds = sorted(row.seconds for row in mine if row.seconds)
        times = [f"{seconds[place]:.2f}" if seconds else "-" for place in (len(seconds) // 2, -1)]
        found["rates"].append([name, len(mine), tried, passed, f"{shares[name]:.0f} %", *times])
    worst = min(shares, key=shares.get)
    title = f"{worst} was passed least often: by {shares[worst]:.0f} %"
    found["rates_chart"] = _draw_bars(shares, title, "passed, in % of those who handed in", most=100)
    common = Counter((row.exercise, row.cause) for row in graded if row.cause).most_common(MOST_CAUSES)
    if common:
        found["causes"] = [(f"{place}. {name}", why, count) for place, ((name, why), count) in enumerate(common, 1)]
        bars = {name: count for name, _, count in found["causes"]}
        title = f"The most frequent one is in {common[0][0][0]}: {common[0][1]} times"
        found["causes_chart"] = _draw_bars(bars, title, "answers", most=common[0][1])
    return found


def _draw_bars(bars: Mapping[str, float], title: str, label: str, most: float) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.3 * len(bars)), layout="constrained")
    axes = figure.subplots()
    names = list(bars)[::-1]
    drawn = axes.barh(names, [bars[name] for name in names], color="#0072b2")
    axes.bar_label(drawn, fmt="%.0f", padding=3)
    axes.set(title=title, xlabel=label, xlim=(0, 1.1 * max(most, 1)))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=100, metadata={"Software": None})
    return base64.b64encode(data.getvalue()).decode()


def marks(
    scores: Sequence[Mapping[str, Any]],
    weights: Mapping[str, float] | None = None,
    days_late: Mapping[tuple[str, str], int] | None = None,
    loss_per_day: float = 0.1,
) -> dict[str, float]:
    """The mark of each student, from 0 to 100: a template to copy, for what a score is worth is for a course to say.

    `scores` are rows as `read_scores` gives them; `weights` says what a point of an exercise counts (1 for those that
    are not named); `days_late` has days by (student, lesson), each of which takes `loss_per_day` of that lesson's
    points, down to nothing.
    """
    weights, days_late = weights or {}, days_late or {}
    earned: dict[str, float] = {}
    possible: dict[str, float] = {}
    for row in scores:
        student, weight = row["student"], weights.get(row["exercise"], 1.0)
        kept = max(0.0, 1.0 - loss_per_day * days_late.get((student, row["lesson"]), 0))
        earned[student] = earned.get(student, 0.0) + weight * kept * row["points"]
        possible[student] = possible.get(student, 0.0) + weight * row["possible"]
    return {name: 100 * earned[name] / possible[name] if possible[name] else 0.0 for name in earned}
