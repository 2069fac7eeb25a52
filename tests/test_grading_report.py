"""What a grader reads: the scores, the table, the pages of the class and of each student, and marks made from them."""

import csv
import itertools
import json
import re
from dataclasses import replace

from grading_samples import EXERCISES, LESSONS

from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading import report as reports
from course_utils.grading.report import COLUMNS, Score, file_names, marks, score, table, write_pages, write_scores
from course_utils.grading.verdict import Verdict

SCORES = [
    Score("ann", "01_tensor_hooks", "scale_gradient", 2, 2, "passed", look_by_hand=False, seconds=0.5),
    Score("ann", "00_start_here", "largest", 0, 1, "wrong value", 'for x, got "a"', "a `cause`", False, seconds=1),
    Score("bo", "01_tensor_hooks", "scale_gradient", 0, 2, reason="the file could not be read: it is empty"),
    Score("bo", "01_tensor_hooks", "keep_positive", 0, 1, reason="the file could not be read: it is empty"),
    Score("cy", "tensors", "", reason="tensors.ipynb is not the name of a lesson"),
    Score("di", "00_start_here", "largest", 1, 1, "passed", reason="nbval disagrees"),
    Score("di", "00_start_here", "smallest", 1, 1, "passed", look_by_hand=False),
]


def test_scores_are_written_with_stable_columns(tmp_path):
    write_scores(SCORES, tmp_path)
    with (tmp_path / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == tuple(re.findall(r"^([a-z_]+)  ", reports.__doc__, re.MULTILINE)) == COLUMNS
    assert [row["look_by_hand"] for row in rows] == ["no", "no", "yes", "yes", "yes", "yes", "no"]
    assert rows[1]["sentence"] == 'for x, got "a"'
    data = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert (data["version"], tuple(data["columns"])) == (2, COLUMNS)
    assert data["scores"][2]["look_by_hand"] is True
    assert [tuple(row) for row in data["scores"]] == [COLUMNS] * len(SCORES)


def test_the_table_has_a_line_for_each_student_and_each_thing_to_see():
    assert table(SCORES).splitlines() == [
        "student  00_start_here  01_tensor_hooks  total",
        "ann      0 of 1         2 of 2           2 of 3",
        "bo       -              0 of 3           0 of 3",
        "cy       -              -                -",
        "di       2 of 2         -                2 of 2",
        "",
        "To look at by hand:",
        "  bo/01_tensor_hooks: the file could not be read: it is empty",
        "  cy/tensors: tensors.ipynb is not the name of a lesson",
        "  di/00_start_here, largest: nbval disagrees",
    ]
    assert "look at" not in table(SCORES[:2])


def test_what_no_screen_should_get_is_escaped_and_a_remark_is_for_a_person():
    verdict = Verdict("e", Outcome("e", Stage.RAISED, "a\x1b[31mb\ud800\n"), reason="\x00", seconds=2.5)
    row = score("ann", "l", 1, verdict, remark="!")
    assert (row.sentence, row.reason) == ("a\\x1b[31mb\\ud800\n", "\\x00; !")
    assert (row.exercise, row.look_by_hand, row.seconds) == ("e", True, 2.5)


def check_page(path):
    """Tags close, headings are in order, tables and pictures are named, nothing runs; returns text and pictures."""
    text, opened = path.read_text(encoding="utf-8"), []
    for ends, tag in re.findall(r"<(/?)(?!meta|img|br)(\w+)", text):
        assert not ends or opened.pop() == tag
        opened += [] if ends else [tag]
    levels = [int(level) for level in re.findall(r"<h(\d)", text)]
    assert (opened, levels[0]) == ([], 1)
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert not re.search(r"<(script|iframe|link|b)\b|<th\b(?![^>]* scope=)|<[^>]*\son\w+=", text)
    assert all(part in text for part in ("color-scheme:light dark", '<html lang="en">'))
    assert len(re.findall(r'<img [^>]*alt="[^"]{20,}"', text)) == text.count("<img")
    return text, text.count("<img")


def test_pages_are_accessible_and_a_students_has_the_hint_and_nothing_of_others(tmp_path):
    """Of a class in which everyone makes another mistake in every exercise of the course."""
    sentence = f"for `x` <b> got {'[1., 2.], ' * 500}"
    rows = [
        Score(student, lesson.name, one.name, 0, one.points, "wrong value", sentence, one.mistakes[0].message, False)
        for student in ("ann", "bo & co", "<b>", "")
        for lesson in LESSONS.values()
        for one in lesson.exercises
    ]
    rows += [replace(row, student=f"of {row.lesson}") for row in rows if row.student == "ann"]
    (tmp_path / "students").mkdir()
    (tmp_path / "students" / "old.html").write_text("")
    write_pages(rows, tmp_path, ["isolation: <none>"])
    text, pictures = check_page(tmp_path / "index.html")
    assert pictures == 2
    lessons = {lesson.name for lesson in LESSONS.values() if lesson.exercises}
    parts = [f"{4 + len(lessons)} students", "isolation: &lt;none&gt;", "Pass rates", "0 %", "Misconceptions"]
    parts += ["<p>Nothing.</p>", '<a href="students/bo_co.html">bo &amp; co</a>', 'students/nobody.html">(nobody)</a>']
    assert [part for part in parts if part not in text] == []
    pages = {page.stem: check_page(page)[0] for page in (tmp_path / "students").glob("*.html")}
    assert pages.keys() == {"ann", "bo_co", "b", "nobody", *(f"of_{name}" for name in lessons)}
    assert max(len(text.encode()) for name, text in pages.items() if name.startswith("of_")) < 20_000
    text = pages["ann"]
    parts = [f"<strong>0 of {sum(one.points for one in EXERCISES)} points</strong>", "Likely cause:</strong>", "…"]
    parts += ["Read again:</strong> A hook that returns nothing looks", "<code>x</code>"]
    assert [part for part in parts if part not in text] == []
    absent = ["co.html", *(exercise.source.split('"""')[-1].strip() for exercise in EXERCISES)]
    assert [part for part in absent if part in text] == []


def test_pages_say_who_passed_who_could_not_be_graded_and_whom_to_look_at(tmp_path, monkeypatch):
    write_pages(SCORES, tmp_path)
    text = check_page(tmp_path / "index.html")[0].replace('<td class="number">', "<n>")
    for part in (
        '<th scope="row">largest</th><n>2</td><n>2</td><n>1</td><n>50 %</td><n>1.00</td><n>1.00</td>',
        "<td>largest</td><td>nbval disagrees</td>",
        '<th scope="row">1. largest</th><td>a <code>cause</code></td><n>1</td>',
        ">ann</a></th><n>2</td><n>3</td><n>1.5</td>",
    ):
        assert part in text
    text, _ = check_page(tmp_path / "students" / "ann.html")
    assert '<span aria-hidden="true">✓</span> scale_gradient: passed (2 of 2)</h3></section>' in text
    assert '<span aria-hidden="true">✗</span> largest: wrong value (0 of 1)</h3>' in text
    text, _ = check_page(tmp_path / "students" / "bo.html")
    assert "<h2>01_tensor_hooks: 0 of 3</h2>\n<p>Not graded: the file could not be read: it is empty</p>" in text
    assert "<section>" not in text
    assert "A person will look at this:</strong> nbval disagrees" in (tmp_path / "students" / "di.html").read_text()
    monkeypatch.setattr(reports, "MOST_LOOKS", 1)
    write_pages(SCORES[2:5], tmp_path)
    text, _ = check_page(tmp_path / "index.html")
    assert ["And 2 more, in scores.csv." in text, "Pass rates" in text] == [True, False]
    write_pages(SCORES[:1], tmp_path)
    assert "No wrong answer behaves like a declared mistake." in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_names_of_pages_differ_and_are_safe():
    names = file_names(["ann", "Ann", "a/b", "a b", "a-2", "a", "a!", "../..", "ü", "", "x" * 300])
    assert len({name.lower() for name in names.values()}) == 11
    assert all(re.fullmatch(r"[\w-]{1,65}\.html", name, re.ASCII) for name in names.values())


def test_the_template_for_marks():
    done = (("ann", "01", "a", 2, 2), ("ann", "01", "b", 0, 2), ("bo", "01", "", 0, 0))
    names = ("student", "lesson", "exercise", "points", "possible")
    rows = [dict(zip(names, each, strict=True)) for each in done]
    assert marks(rows) == {"ann": 50.0, "bo": 0.0}
    assert marks(rows, weights={"a": 3})["ann"] == 75.0
    assert marks(rows, days_late={("ann", "01"): 2}, loss_per_day=0.25)["ann"] == 25.0
    assert marks(rows, days_late={("ann", "01"): 20})["ann"] == 0.0
