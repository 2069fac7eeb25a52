"""What a grader reads: the scores, the gradebook, the table, and the pages of the class and of each student."""

import base64
import csv
import hashlib
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from grading_samples import EXERCISES, LESSONS

from course_utils.grading import report as reports
from course_utils.grading.marks import CANVAS, write_gradebook
from course_utils.grading.report import COLUMNS, Score, file_names, table, write_pages, write_scores

DAMAGED = Score("ed", "", "", stage="unreadable", reason="ed.zip is not a zip that can be read")
BROKEN = "the file could not be read: it is empty"

SCORES = [
    Score("ann", "01_tensor_hooks", "scale_gradient", 2, 2, "passed", look_by_hand=False, seconds=0.5),
    Score("ann", "00_start_here", "largest", 0, 1, "wrong value", 'for x, got "a"', "a `cause`", False, seconds=1),
    Score("bo", "01_tensor_hooks", "scale_gradient", 0, 2, "unreadable", reason=BROKEN),
    Score("bo", "01_tensor_hooks", "keep_positive", 0, 1, "unreadable", reason=BROKEN),
    Score("cy", "tensors", "", reason="tensors.ipynb is not the name of a lesson"),
    Score("di", "00_start_here", "largest", 1, 1, "passed", reason="nbval disagrees"),
    Score("di", "00_start_here", "smallest", 1, 1, "passed", look_by_hand=False),
]


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_scores_are_written_with_stable_columns(tmp_path):
    write_scores(SCORES, tmp_path)
    rows = read(tmp_path / "scores.csv")
    cells = re.findall(r"^\| (`.*?) \|", Path(reports.__file__).with_name("README.md").read_text("utf-8"), re.MULTILINE)
    assert tuple(rows[0]) == tuple(re.findall(r"`([a-z_]+)`", "".join(cells))) == COLUMNS
    assert [row["look_by_hand"] for row in rows] == ["no", "no", "yes", "yes", "yes", "yes", "no"]
    assert rows[1]["sentence"] == 'for x, got "a"'
    data = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert (data["version"], tuple(data["columns"])) == (5, COLUMNS)
    assert data["scores"][2]["look_by_hand"] is True
    assert [tuple(row) for row in data["scores"]] == [COLUMNS] * len(SCORES)


ROSTER = {
    "di": {"E-mail": "di@x.org", "student": "di", "Section": "b"},
    "ann": {"E-mail": "ann@x.org", "student": "ann", "Section": "a"},
    "zoe": {"E-mail": "zoe@x.org", "student": "zoe", "Section": ""},
}
LATE = Score("zoe", "00_start_here", "largest", 0, 1, "not handed in", look_by_hand=False)


def test_the_gradebook_has_a_row_a_student_and_a_column_a_lesson_as_moodle_imports_it(tmp_path):
    """Who is not on the roster is not in it. What has no score has no grade, and what was wrong has 0."""
    write_gradebook([*SCORES, LATE], tmp_path, ROSTER)
    assert (tmp_path / "gradebook.csv").read_text().splitlines() == [
        "E-mail,student,Section,00_start_here,01_tensor_hooks,total",
        "di@x.org,di,b,2,,2",
        "ann@x.org,ann,a,0,2,2",
        "zoe@x.org,zoe,,,,",
    ]
    write_gradebook(SCORES, tmp_path, {})
    rows = {row.pop("student"): [*row.values()] for row in read(tmp_path / "gradebook.csv")}
    assert rows == {"ann": ["0", "2", "2"], "bo": ["", "", ""], "cy": ["", "", ""], "di": ["2", "", "2"]}
    again = {row["student"]: row for row in read(tmp_path / "gradebook.csv")}  # as the next roster
    write_gradebook(SCORES[:2], tmp_path, again)
    lines = (tmp_path / "gradebook.csv").read_text().splitlines()
    assert lines[:3] == ["student,00_start_here,01_tensor_hooks,total", "ann,0,2,2", "bo,,,"]


def test_the_gradebook_for_canvas_has_its_columns_and_its_row_of_points_possible(tmp_path):
    write_gradebook(SCORES, tmp_path, ROSTER, "canvas")
    assert (tmp_path / "gradebook.csv").read_text().splitlines() == [
        "Student,ID,SIS User ID,SIS Login ID,Section,00_start_here,01_tensor_hooks",
        "    Points Possible,,,,,2,3",
        "di,,,di,b,2,",
        "ann,,,ann,a,0,2",
        "zoe,,,zoe,,,",
    ]
    exported = dict(zip([*CANVAS, "old (3)"], ["Doe, Ann", "7", "", "doe", "s", "1"], strict=True))
    write_gradebook(SCORES, tmp_path, {"ann": exported}, "canvas")
    assert (tmp_path / "gradebook.csv").read_text().splitlines()[2:] == ['"Doe, Ann",7,,doe,s,0,2']


def test_a_grade_that_is_none_stays_a_hyphen_and_late_work_is_marked(tmp_path):
    """Moodle writes `-` for no grade; with an apostrophe before it, it would be a text."""
    late = [replace(SCORES[0], late=True), *SCORES[1:]]
    write_gradebook(late, tmp_path, {"ann": {"student": "ann", "Quiz (Real)": "-"}})
    assert (tmp_path / "gradebook.csv").read_text().splitlines()[1] == "ann,-,0,2,2"
    write_scores(late, tmp_path)
    assert [row["late"] for row in read(tmp_path / "scores.csv")] == ["yes"] + ["no"] * 6
    write_pages(late, tmp_path)
    assert "passed: 2, late</span>" in check_page(tmp_path / "index.html")
    assert "<h2>01_tensor_hooks: 2 of 2, handed in late</h2>" in check_page(tmp_path / "students" / "ann.html")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "\uff1d1", '=cmd|" /C calc"!A0,'])
def test_no_text_is_a_formula_in_a_spreadsheet_and_numbers_stay_numbers(text, tmp_path):
    rows = [replace(SCORES[0], student=text, lesson=text, reason=text), Score(text, text, "", reason=text)]
    write_scores(rows, tmp_path)
    first = read(tmp_path / "scores.csv")[0]
    assert [first[name] for name in ("student", "lesson", "reason", "points")] == [*[f"'{text}"] * 3, "2"]
    write_gradebook(rows, tmp_path, {text: {"student": text, text: text}})
    assert read(tmp_path / "gradebook.csv") == [{"student": f"'{text}", f"'{text}": "2", "total": "2"}]
    write_gradebook(rows, tmp_path, {}, "canvas")
    assert read(tmp_path / "gradebook.csv")[1]["Student"] == f"'{text}"
    assert json.loads((tmp_path / "scores.json").read_text())["scores"][0]["student"] == text


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


def check_page(path):
    """Tags close, headings are in order, tables are named, nothing runs but the script that sorts; returns the text."""
    text, opened = path.read_text(encoding="utf-8"), []
    for ends, tag in re.findall(r"<(/?)(?!meta\b|br)(\w+)", re.sub("<script>.*</script>", "", text, flags=re.DOTALL)):
        assert not ends or opened.pop() == tag
        opened += [] if ends else [tag]
    levels = [int(level) for level in re.findall(r"<h(\d)", text)]
    assert (opened, levels[0]) == ([], 1)
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert not re.search(r"<(iframe|link|img|b)\b|<th\b(?![^>]* scope=)|<[^>]*\s(on\w+|style)=", text)
    allowed = re.findall(r"'sha256-(.*?)'", text)
    for part, digest in zip(("style", "script"), allowed, strict=True):  # nothing else is one of them to a browser
        inside = "".join(re.findall(rf"<{part}>(.*?)</{part}>", text, re.DOTALL))
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() == digest
    assert all(part in text for part in ("color-scheme:light dark", '<html lang="en">'))
    return text


def test_pages_are_accessible_and_a_students_has_the_hint_and_nothing_of_others(tmp_path):
    """Of a class in which everyone makes another mistake in every exercise of the course."""
    sentence = f"for `x` <b> got {'[1., 2.], ' * 500}"
    every = [(lesson.name, one) for lesson in LESSONS.values() for one in lesson.exercises]
    rows = [
        Score(student, lesson, one.name, 0, one.points, "wrong value", sentence, one.mistakes[0].message, False)
        for student in ("ann", "bo & co", "<b>", "")
        for lesson, one in every
    ]
    rows += [replace(row, student=f"of {row.lesson}") for row in rows if row.student == "ann"]
    (tmp_path / "students").mkdir()
    (tmp_path / "students" / "old.html").write_text("")
    write_pages(rows, tmp_path, ["isolation: <none>"])
    text = check_page(tmp_path / "index.html")
    lessons = {lesson.name for lesson in LESSONS.values() if lesson.exercises}
    parts = [f"{4 + len(lessons)} students", "isolation: &lt;none&gt;", "Pass rates", "0 %", "Misconceptions"]
    parts += ["<p>Nothing.</p>", 'html">bo &amp; co</a>', 'html">(nobody)</a>']
    assert [part for part in parts if part not in text] == []
    pages = {page.stem.partition("-")[0]: check_page(page) for page in (tmp_path / "students").glob("*.html")}
    assert pages.keys() == {"ann", "bo_co", "b", "nobody", *(f"of_{name}" for name in lessons)}
    assert max(len(text.encode()) for name, text in pages.items() if name.startswith("of_")) < 24_000
    text = pages["ann"]
    parts = [f"<strong>0 of {sum(one.points for one in EXERCISES)} points</strong>", "Likely cause:</strong>", "…"]
    parts += ["A hint:</strong> A hook that returns nothing looks", "<code>x</code>"]
    assert [part for part in parts if part not in text] == []
    absent = ["co.html", *(exercise.source.split('"""')[-1].strip() for exercise in EXERCISES)]
    assert [part for part in absent if part in text] == []


def test_pages_say_who_passed_who_could_not_be_graded_and_whom_to_look_at(tmp_path, monkeypatch):
    write_pages([*SCORES, LATE], tmp_path)
    text = check_page(tmp_path / "index.html")
    assert 'data-words="bo: unreadable, 0 of 2, look by hand" colspan="2">' in text
    assert text.count('tabindex="0" data-words') == 1, "the Tab key comes to the table once; arrow keys go on"
    assert '<meter max="100" value="50" aria-hidden="true"></meter> 50 %' in text
    cells = re.sub(r"(\s*<[^>]+>\s*)+", "|", text)
    for part in (
        "|student|points|of|seconds|largest|of 1|smallest|of 1|scale_gradient|of 2|keep_positive|of 1|ann|",
        "|ann|2|3|1.5|✗|wrong value: 0|\u2013|not handed in: 0|✓|passed: 2|\u2013|not handed in: 0|bo|",
        "|bo|0|3|0.0|\u2013|not handed in: 0|!|⚑|unreadable: 0, look by hand|cy|",
        "|di|2|2|0.0|✓|⚑|passed: 1, look by hand|✓|passed: 1|\u2013|not handed in: 0|zoe|",
        "|Pass rates|Passed least often, by 50 % of those who handed in: largest.|",
        "|5 students. 4 answers have a score: an",
        "|largest|2|1|50 % (9 to 91)|\u2013|2|1.00|1.00|",
        "|None of those that enough students have answered.|3 of 3 items have fewer than 40 answers.",
        "|largest|a|cause|1|",
        "|student|lesson|exercise|why|bo|01_tensor_hooks|the file could not be read: it is empty|cy|tensors|",
        "|di|00_start_here|largest|nbval disagrees|",
    ):
        assert part in cells, part
    assert text.count(BROKEN) == 1, "once for the file"
    text = check_page(tmp_path / "students" / "ann.html")
    assert '<span aria-hidden="true">✓</span> scale_gradient: passed (2 of 2)</h3></section>' in text
    assert '<span aria-hidden="true">✗</span> largest: wrong value (0 of 1)</h3>' in text
    text = check_page(tmp_path / "students" / "bo.html")
    assert "<h2>01_tensor_hooks: 0 of 3</h2>\n<p>! Unreadable: the file could not be read: it is empty</p>" in text
    assert "<section>" not in text
    assert "A person will look at this:</strong> nbval disagrees" in (tmp_path / "students" / "di.html").read_text()
    monkeypatch.setattr(reports, "MOST_LOOKS", 1)
    write_pages(SCORES[2:5], tmp_path)
    text = check_page(tmp_path / "index.html")
    assert ["And 1 more, in scores.csv." in text, "Pass rates" in text] == [True, False]
    write_pages([SCORES[1], replace(SCORES[1], exercise="smallest"), DAMAGED], tmp_path)
    cells = re.sub(r"(\s*<[^>]+>\s*)+", "|", check_page(tmp_path / "index.html"))
    assert "|Passed least often, by 0 % of those who handed in: largest, smallest.|" in cells
    assert "|ed|0|0|0.0|!|⚑|unreadable: 0, look by hand|" in cells
    write_pages(SCORES[:1], tmp_path)
    text = check_page(tmp_path / "index.html")
    assert "No wrong answer behaves like a declared mistake." in text
    assert ("Every answer passed." in text, "least often" in text) == (True, False)


def test_names_of_pages_differ_and_are_safe():
    names = file_names(["ann", "Ann", "a/b", "a b", "a-2", "a_b", "a", "a!", "../..", "ü", "", "x" * 300])
    assert len({name.lower() for name in names.values()}) == 12
    assert all(re.fullmatch(r"[\w-]{1,75}\.html", name, re.ASCII) for name in names.values())
    assert names["ann"] == "ann.html"
