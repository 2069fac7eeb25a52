"""Step 4, for reading: a page for each student, and one for the class.

A student's page tells what the learner's own `check` would: how far each answer came, the first difference, the likely
cause, and a hint to read again. It holds no reference answer, no seed, and nothing about anybody else. The pages need
no script, and take the reader's light or dark colours.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_utils.exercises.declaration import Declaration, read_declarations
from course_utils.exercises.outcome import Stage
from course_utils.grading.report import NOT_GRADED, Score, by_student
from course_utils.show import code_spans

STUDENTS = "students"
CLASS_PAGE = "index.html"
LONGEST = 600  # characters of a sentence on a page; what an answer raised may be long
MOST_CAUSES = 15
MOST_LOOKS = 500

STYLE = """
:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;background:Canvas;
color:CanvasText}
table{border-collapse:collapse;width:100%;margin:1rem 0}
th,td{border-bottom:1px solid GrayText;padding:.3rem .6rem;text-align:left;vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
section{border-left:4px solid GrayText;padding:.2rem 1rem;margin:1rem 0}
h3{margin:.3rem 0}p{margin:.3rem 0}code{font-size:.95em}
figure{margin:1rem 0;background:#fff;color:#000;padding:.5rem}img{max-width:100%}
"""


def write_pages(scores: Sequence[Score], report: Path, isolation: Sequence[str] = ()) -> None:
    """Write `index.html` and a page for each student into the folder `report`."""
    folder = report / STUDENTS
    folder.mkdir(exist_ok=True)
    exercises = {exercise.name: exercise for exercise in read_declarations()}
    students = by_student(scores)
    names = file_names(list(students))
    for old in folder.glob("*.html"):
        old.unlink()
    for student, rows in students.items():
        (folder / names[student]).write_text(student_page(student, rows, exercises), encoding="utf-8")
    (report / CLASS_PAGE).write_text(class_page(scores, names, isolation), encoding="utf-8")


def file_names(students: Sequence[str]) -> dict[str, str]:
    """A file name for each student, safe on every system, and two students' names never the same."""
    found: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for student in students:
        plain = re.sub(r"[^\w-]+", "_", student, flags=re.ASCII).strip("_")[:60] or "nobody"
        taken[plain.lower()] += 1
        while plain.lower() in found.values():
            plain += "_"
        suffix = f"-{taken[plain.lower()]}" if taken[plain.lower()] > 1 else ""
        found[student] = f"{plain}{suffix}.html"
    return found


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


# ------------------------------------------------------------------------------------------------------- one student


def student_page(student: str, rows: Sequence[Score], exercises: Mapping[str, Declaration]) -> str:
    """The page of one student, from that student's rows."""
    earned, possible = sum(row.points for row in rows), sum(row.possible for row in rows)
    parts = [f"<h1>{html.escape(student or 'Nobody')}</h1>", f"<p><strong>{earned} of {possible} points</strong></p>"]
    lesson = None
    for row in rows:
        if row.lesson != lesson:
            lesson = row.lesson
            mine = [each for each in rows if each.lesson == lesson]
            total = f"{sum(each.points for each in mine)} of {sum(each.possible for each in mine)}"
            parts.append(f"<h2>{html.escape(lesson or 'Not a lesson')}: {total}</h2>")
            reasons = {each.reason for each in mine if each.stage == NOT_GRADED}
            if len(reasons) == 1 and all(each.stage == NOT_GRADED for each in mine):
                parts.append(f"<p>Not graded: {code_spans(_short(reasons.pop()))}</p>")
                continue
        elif rows and all(each.stage == NOT_GRADED for each in rows if each.lesson == lesson):
            continue
        parts.append(_section(row, exercises.get(row.exercise)))
    return _page(f"Report for {student or 'nobody'}", "\n".join(parts))


def _section(row: Score, exercise: Declaration | None) -> str:
    sign = "✓" if row.stage == Stage.PASSED else "○" if row.stage in (Stage.NOT_ATTEMPTED, NOT_GRADED) else "✗"
    head = f'<h3><span aria-hidden="true">{sign}</span> {html.escape(row.exercise)}: {html.escape(row.stage)}'
    lines = [f"{head} ({row.points} of {row.possible})</h3>"]
    if row.sentence:
        lines.append(f"<p>{code_spans(_short(row.sentence))}</p>")
    if row.cause:
        lines.append(f"<p><strong>Likely cause:</strong> {code_spans(row.cause)}</p>")
    if row.stage != Stage.PASSED and exercise and exercise.hints:
        lines.append(f"<p><strong>Read again:</strong> {code_spans(exercise.hints[0])}</p>")
    if row.look_by_hand:
        lines.append(f"<p><strong>A person will look at this:</strong> {code_spans(_short(row.reason))}</p>")
    return f"<section>{''.join(lines)}</section>"


# --------------------------------------------------------------------------------------------------------- the class


def class_page(scores: Sequence[Score], names: Mapping[str, str], isolation: Sequence[str] = ()) -> str:
    """The page of the class: pass rates, misconceptions, time used, who needs a look by hand, and all totals."""
    students = by_student(scores)
    graded = [row for row in scores if row.stage != NOT_GRADED]
    parts = [
        "<h1>The class</h1>",
        f"<p>{len(students)} {'student' if len(students) == 1 else 'students'}, {len(graded)} answers graded.</p>",
    ]
    parts += [f"<p>{html.escape(line)}</p>" for line in isolation]
    if graded:
        parts += _rates(graded)
        parts += _causes(graded)
    parts += _looks(scores, names)
    parts += _totals(students, names)
    return _page("Report for the class", "\n".join(parts))


def _rates(graded: Sequence[Score]) -> list[str]:
    rows: dict[str, list[Score]] = {}
    for row in graded:
        rows.setdefault(row.exercise, []).append(row)
    lines, shares = [], {}
    for name, mine in rows.items():
        passed = sum(row.stage == Stage.PASSED for row in mine)
        tried = sum(row.stage != Stage.NOT_ATTEMPTED for row in mine)
        shares[name] = 100 * passed / len(mine)
        seconds = sorted(row.seconds for row in mine if row.seconds)
        middle = f"{seconds[len(seconds) // 2]:.2f}" if seconds else "-"
        longest = f"{seconds[-1]:.2f}" if seconds else "-"
        cells = [len(mine), tried, passed, f"{shares[name]:.0f} %", middle, longest]
        lines.append(_row([html.escape(name)], cells))
    worst = min(shares, key=shares.get)
    numbers = ", ".join(f"{name} {share:.0f} %" for name, share in shares.items())
    alt = f"Share of students who passed each exercise: {numbers}"
    title = f"{worst} was passed least often: by {shares[worst]:.0f} %"
    return [
        "<h2>Pass rates</h2>",
        _figure(shares, title, "passed, in % of those who handed in", alt, most=100),
        _table(["exercise"], ["handed in", "tried", "passed", "share", "seconds (middle)", "longest"], lines),
    ]


def _causes(graded: Sequence[Score]) -> list[str]:
    found = Counter((row.exercise, row.cause) for row in graded if row.cause)
    if not found:
        return ["<h2>Misconceptions</h2><p>No wrong answer behaves like a declared mistake.</p>"]
    common = found.most_common(MOST_CAUSES)
    bars = {f"{number}. {exercise}": count for number, ((exercise, _), count) in enumerate(common, start=1)}
    (first, _), most = common[0]
    alt = "How often each misconception was met: " + ", ".join(f"{name} {count}" for name, count in bars.items())
    lines = [
        _row([f"{number}. {html.escape(exercise)}", code_spans(cause)], [count])
        for number, ((exercise, cause), count) in enumerate(common, start=1)
    ]
    return [
        "<h2>Misconceptions</h2>",
        _figure(bars, f"The most frequent one is in {first}: {most} times", "answers", alt, most=most),
        _table(["exercise", "likely cause"], ["answers"], lines),
    ]


def _looks(scores: Sequence[Score], names: Mapping[str, str]) -> list[str]:
    rows = [row for row in scores if row.look_by_hand]
    if not rows:
        return ["<h2>To look at by hand</h2><p>Nothing.</p>"]
    lines = []
    for row in rows[:MOST_LOOKS]:
        why = code_spans(_short(row.reason))
        lines.append(_row([_link(row.student, names), html.escape(row.lesson), html.escape(row.exercise), why]))
    more = [f"<p>And {len(rows) - MOST_LOOKS} more, in scores.csv.</p>"] if len(rows) > MOST_LOOKS else []
    return ["<h2>To look at by hand</h2>", _table(["student", "lesson", "exercise", "why"], [], lines), *more]


def _totals(students: Mapping[str, Sequence[Score]], names: Mapping[str, str]) -> list[str]:
    lines = []
    for student, rows in students.items():
        numbers = [
            sum(row.points for row in rows),
            sum(row.possible for row in rows),
            f"{sum(row.seconds for row in rows):.1f}",
        ]
        lines.append(_row([_link(student, names)], numbers))
    return ["<h2>Totals</h2>", _table(["student"], ["points", "of", "seconds"], lines)]


def _link(student: str, names: Mapping[str, str]) -> str:
    return f'<a href="{STUDENTS}/{html.escape(names[student])}">{html.escape(student or "(nobody)")}</a>'


def _row(texts: Sequence[str], numbers: Sequence[object] = ()) -> str:
    first, *rest = texts
    cells = [f'<th scope="row">{first}</th>', *(f"<td>{text}</td>" for text in rest)]
    cells += [f'<td class="number">{number}</td>' for number in numbers]
    return f"<tr>{''.join(cells)}</tr>"


def _table(texts: Sequence[str], numbers: Sequence[str], lines: Sequence[str]) -> str:
    heads = [f'<th scope="col">{text}</th>' for text in texts]
    heads += [f'<th scope="col" class="number">{text}</th>' for text in numbers]
    body = "\n".join(lines)
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _figure(bars: Mapping[str, float], title: str, label: str, alt: str, most: float) -> str:
    """A bar chart as a picture in the page."""
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
    text = base64.b64encode(data.getvalue()).decode()
    return f'<figure><img alt="{html.escape(alt)}" src="data:image/png;base64,{text}"></figure>'
