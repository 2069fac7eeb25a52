"""What a grader has in hand: layouts, zips, a roster, a run that was stopped, and the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from html.parser import HTMLParser

import nbformat
import pytest
from grading_samples import hand_in, notebook_with, source_under_name

from course_utils.authoring import source
from course_utils.exercises.engine import exercises_of, find
from course_utils.grading.grade import main
from course_utils.grading.lessons import read_lessons, read_cards
from course_utils.grading.report import file_names, write_pages
from course_utils.grading.report import Score
from course_utils.grading.resume import FOLDER, GradingMemory
from course_utils.grading.submissions import (
    NOT_HANDED_IN,
    NOT_ON_ROSTER,
    find_submissions,
    read_roster,
)
from course_utils.grading.report import marks, read_scores

LESSONS = read_lessons()
LESSON = LESSONS["01_tensor_hooks"]
START = LESSONS["00_start_here"]
RIGHT = "def largest(tensor):\n    return tensor.max().item()\n"
WRONG = "def largest(tensor):\n    return tensor.max()\n"


@pytest.fixture
def blank():
    return nbformat.writes(source.learner(START.path))


def put(folder, *places, text):
    for place in places:
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def seen(place):
    """Student, name, and whether it can be graded, of everything found."""
    return [(one.student, one.name, one.reason == "") for one in find_submissions(place, LESSONS)]


# ------------------------------------------------------------------------------------------------------------- layouts

BOTH = [("ann", START.name, True), ("bo", START.name, True)]


@pytest.mark.parametrize(
    "places",
    [
        [f"ann/{START.name}.ipynb", f"bo/{START.name}.ipynb"],
        [f"{START.name}/ann.ipynb", f"{START.name}/bo.ipynb"],
        [f"submitted/ann/{START.name}/{START.name}.ipynb", f"submitted/bo/{START.name}/{START.name}.ipynb"],
        [f"ann/{START.name}/{START.name}.ipynb", f"bo/{START.name}/{START.name}.ipynb"],
        [f"ann/{START.name}.ipynb", f"{START.name}/bo.ipynb"],
    ],
    ids=["student/lesson", "lesson/student", "nbgrader", "nbgrader's submitted", "mixed"],
)
@pytest.mark.parametrize("packed", ["folder", "zip", "zip of the folder"])
def test_every_layout_is_understood(places, packed, tmp_path, blank):
    folder = tmp_path / "class"
    put(folder, *places, text=blank)
    if packed == "folder":
        assert seen(folder) == BOTH
        return
    above = "class/" if packed == "zip of the folder" else ""
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for place in places:
            archive.write(folder / place, above + place)
        archive.writestr(f"__MACOSX/._{START.name}.ipynb", "")
    assert seen(tmp_path / "class.zip") == BOTH


def test_nbgraders_other_folders_are_not_looked_at(tmp_path, blank):
    put(
        tmp_path,
        f"submitted/ann/{START.name}/{START.name}.ipynb",
        f"source/{START.name}/{START.name}.ipynb",
        text=blank,
    )
    assert seen(tmp_path) == BOTH[:1]


def test_one_file_is_a_submission(tmp_path, blank):
    put(tmp_path, f"{START.name}.ipynb", text=blank)
    assert seen(tmp_path / f"{START.name}.ipynb") == [("student", START.name, True)]


def test_what_fits_no_layout_has_a_reason(tmp_path, blank):
    put(tmp_path, f"ann/homework/{START.name}.ipynb", f"bo/{START.name}.ipynb", f"{START.name}/bo.ipynb", text=blank)
    reasons = {(one.student, one.name): one.reason for one in find_submissions(tmp_path, LESSONS) if one.reason}
    assert "too deep" in reasons["ann", START.name]
    assert "second notebook" in reasons["bo", START.name]


def test_a_hostile_zip_is_only_read(tmp_path, blank):
    path = tmp_path / "class.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"../../{START.name}.ipynb", blank)
        archive.writestr(f"/etc/{START.name}.ipynb", blank)
        archive.writestr(f"ann/{START.name}.ipynb", blank)
        archive.writestr(f"bomb/{START.name}.ipynb", b" " * 100_000_000)
        link = zipfile.ZipInfo(f"link/{START.name}.ipynb")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    found = find_submissions(path, LESSONS)
    assert [one.student for one in found if not one.reason] == ["ann", "bomb"]
    assert len(found) == 5
    assert main([str(path), "--report", str(tmp_path / "report")]) == 1
    rows = json.loads((tmp_path / "report" / "scores.json").read_text())["scores"]
    (bomb,) = [row for row in rows if row["student"] == "bomb"]
    assert "larger than 20 MB" in bomb["reason"]
    assert sorted(os.listdir(tmp_path)) == ["class.zip", "report"]


def test_a_broken_zip_gets_one_sentence(tmp_path, capsys):
    (tmp_path / "class.zip").write_bytes(b"PK\x03\x04 and no more")
    assert main([str(tmp_path / "class.zip")]) == 2
    assert "not a zip that can be read" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- roster


@pytest.mark.parametrize(
    "text",
    ["student,mail\nann,a@b\n\nzoe,\n", "mail,Student\na,ann\n,zoe\n", "ann\nzoe\nann\n", "\ufeffstudent\nann\nzoe\n"],
)
def test_names_of_a_roster(text, tmp_path):
    path = tmp_path / "roster.csv"
    path.write_text(text, encoding="utf-8")
    assert read_roster(path) == ["ann", "zoe"]


@pytest.mark.parametrize("data", [b"", b"student\n", "é".encode("latin-1")])
def test_a_roster_without_names_gets_one_sentence(data, tmp_path, blank, capsys):
    put(tmp_path, f"class/ann/{START.name}.ipynb", text=blank)
    (tmp_path / "roster.csv").write_bytes(data)
    assert main([str(tmp_path / "class"), "--roster", str(tmp_path / "roster.csv")]) == 2
    assert "the roster" in capsys.readouterr().err
    assert main([str(tmp_path / "class"), "--roster", str(tmp_path / "gone.csv")]) == 2


def test_every_name_on_the_roster_has_rows(tmp_path, blank, capsys):
    put(tmp_path, f"class/ann/{START.name}.ipynb", f"class/guest/{START.name}.ipynb", text=blank)
    (tmp_path / "roster.csv").write_text("student\nann\nzoe\n")
    arguments = [
        str(tmp_path / "class"),
        "--report",
        str(tmp_path / "report"),
        "--roster",
        str(tmp_path / "roster.csv"),
    ]
    assert main(arguments) == 1
    rows = {row["student"]: row for row in json.loads((tmp_path / "report" / "scores.json").read_text())["scores"]}
    assert list(rows) == ["ann", "guest", "zoe"]
    assert (rows["zoe"]["reason"], rows["zoe"]["look_by_hand"]) == (NOT_HANDED_IN, False)
    assert (rows["guest"]["reason"], rows["guest"]["look_by_hand"]) == (NOT_ON_ROSTER, True)
    assert not rows["ann"]["look_by_hand"]
    assert "zoe" in capsys.readouterr().out


# -------------------------------------------------------------------------------------------------------------- resume


@pytest.mark.slow
def test_what_was_graded_is_not_run_again_unless_the_file_changed(tmp_path, monkeypatch, capsys):
    from course_utils.grading.sandbox.crew import LocalCrew

    ran = []
    run = LocalCrew.run

    def noting(self, batches, limits):
        ran.append(len(batches))
        return run(self, batches, limits)

    monkeypatch.setattr(LocalCrew, "run", noting)
    folder, report = tmp_path / "class", tmp_path / "report"
    for student in ("ann", "bo"):
        hand_in(folder, student, START, notebook_with(START, {"largest": RIGHT}))
    grade = [str(folder), "--report", str(report)]
    assert main(grade) == 0
    first = read_scores(report)
    assert main(grade) == 0
    assert read_scores(report) == first
    assert ran == [2]
    assert "2 of 2 were graded before" in capsys.readouterr().out
    assert "isolation: a process" in (report / "index.html").read_text()
    hand_in(folder, "bo", START, notebook_with(START, {"largest": WRONG}))
    assert main(grade) == 0
    assert ran == [2, 1]
    assert [row["points"] for row in read_scores(report)] == [1, 0]
    monkeypatch.setattr("course_utils.grading.resume.digest_course", lambda: "another course")
    assert main(grade) == 0
    assert ran == [2, 1, 2]


def test_the_secret_lives_as_long_as_a_grading(tmp_path):
    """A stopped run goes on with its secret; after a complete one, students have seen inputs, and it is another."""
    first = GradingMemory(tmp_path)
    assert GradingMemory(tmp_path).secret == first.secret
    first.finish(["isolation: some"], complete=False)
    assert GradingMemory(tmp_path).secret == first.secret
    first.finish(["isolation: some"], complete=True)
    second = GradingMemory(tmp_path)
    assert second.secret != first.secret
    assert second.isolation == ["isolation: some"]
    assert (tmp_path / FOLDER).stat().st_mode & 0o077 == 0
    (tmp_path / FOLDER / "run.json").write_text("{")
    assert GradingMemory(tmp_path).isolation == []


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a signal like that of Ctrl-C")
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    folder, report = tmp_path / "class", tmp_path / "report"
    slow = "import time\ndef largest(tensor):\n    time.sleep(1)\n    return tensor.max().item()\n"
    for number in range(12):
        hand_in(folder, f"s{number:02}", START, notebook_with(START, {"largest": slow}))
    command = [sys.executable, "-m", "course_utils.grading", str(folder), "--report", str(report), "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(list((report / FOLDER).glob("*.json"))) < 3 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert "the same command goes on from here" in out
    assert "Traceback" not in err
    first = {row["student"]: row["points"] for row in read_scores(report)}
    assert len(first) == 12
    assert 2 <= sum(first.values()) < 12
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "were graded before" in done.stdout
    assert all(row["points"] == 1 for row in read_scores(report))


# --------------------------------------------------------------------------------------------------------------- pages


class Checker(HTMLParser):
    """Notes what a page must have: tags that close, alternative texts, headings in order, no script."""

    def __init__(self):
        super().__init__()
        self.open, self.levels, self.problems, self.pictures = [], [], [], 0

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        if tag[0] == "h" and tag[1:].isdigit():
            self.levels.append(int(tag[1:]))
        if tag == "img":
            self.pictures += 1
            if len(attributes.get("alt", "")) < 20:
                self.problems.append("a picture without words")
        if tag in ("script", "iframe", "link") or any(name.startswith("on") for name in attributes):
            self.problems.append(f"<{tag}> is not needed")
        if tag == "th" and "scope" not in attributes:
            self.problems.append("a heading of a table without scope")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")


def check_page(text):
    checker = Checker()
    checker.feed(text)
    assert checker.problems == []
    assert checker.open == []
    assert checker.levels[0] == 1
    assert all(after - before <= 1 for before, after in zip(checker.levels, checker.levels[1:], strict=False))
    assert "color-scheme:light dark" in text
    assert '<html lang="en">' in text
    return checker


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of a class in which everyone makes another mistake in every exercise of the course."""
    rows = []
    for student in ("ann", "bo & co", "<b>", ""):
        for lesson in LESSONS.values():
            for exercise in lesson.exercises:
                cause = exercise.mistakes[0].message if exercise.mistakes else ""
                sentence = f"for `x` got {'[1., 2.], ' * 500}"
                rows.append(
                    Score(
                        student, lesson.name, exercise.name, 0, exercise.points, "wrong value", sentence, cause, False
                    )
                )
    report = tmp_path_factory.mktemp("report")
    write_pages(rows, report, ["isolation: <none>"])
    return report


def test_pages_are_small_accessible_and_without_script(pages):
    checker = check_page((pages / "index.html").read_text(encoding="utf-8"))
    assert checker.pictures == 2
    students = list((pages / "students").glob("*.html"))
    assert len(students) == 4
    for page in students:
        check_page(page.read_text(encoding="utf-8"))


def test_a_students_page_of_one_lesson_is_below_20_kb(tmp_path):
    for lesson in LESSONS.values():
        rows = [
            Score(
                "ann", lesson.name, one.name, 0, one.points, "wrong value", "x" * 5000, one.mistakes[0].message, False
            )
            for one in lesson.exercises
        ]
        if rows:
            write_pages(rows, tmp_path)
            assert len((tmp_path / "students" / "ann.html").read_bytes()) < 20_000


def test_a_students_page_has_the_hint_and_no_answer(pages):
    text = (pages / "students" / "ann.html").read_text(encoding="utf-8")
    assert "A hook that returns nothing looks" in text
    for exercise in exercises_of():
        body = exercise.source.split('"""')[-1].strip()
        assert body not in text
    assert "bo &amp; co" not in text


def test_names_of_pages_differ_and_are_safe():
    names = file_names(["ann", "Ann", "a/b", "a b", "../..", "ü", "", "x" * 300])
    assert len({name.lower() for name in names.values()}) == 8
    assert all(name.endswith(".html") and "/" not in name and ".." not in name for name in names.values())


# ------------------------------------------------------------------------------------------------------------- weights


def test_the_template_for_marks():
    rows = [
        {"student": "ann", "lesson": "01", "exercise": "a", "points": 2, "possible": 2},
        {"student": "ann", "lesson": "01", "exercise": "b", "points": 0, "possible": 2},
        {"student": "bo", "lesson": "01", "exercise": "", "points": 0, "possible": 0},
    ]
    assert marks(rows) == {"ann": 50.0, "bo": 0.0}
    assert marks(rows, weights={"a": 3})["ann"] == 75.0
    assert marks(rows, days_late={("ann", "01"): 2}, loss_per_day=0.25)["ann"] == 25.0
    assert marks(rows, days_late={("ann", "01"): 20})["ann"] == 0.0


def test_the_words_of_a_wrong_answer_reach_the_page(tmp_path):
    folder, report = tmp_path / "class", tmp_path / "report"
    mistake = find("largest").mistakes[0]
    source = source_under_name(mistake.function, "largest")
    hand_in(folder, "ann", START, notebook_with(START, {"largest": source}))
    assert main([str(folder), "--report", str(report)]) == 0
    text = (report / "students" / "ann.html").read_text(encoding="utf-8")
    check_page(text)
    assert "Likely cause" in text
    assert "Read again" in text
    assert LESSON.name not in text


# --------------------------------------------------------------------------------------------------------------- cards


def test_a_card_says_what_the_exercise_says():
    """The grader reads declarations as text, so that it need not import torch; nothing of them is lost."""
    said = [(card.name, card.lesson, card.points, card.hints, card.source) for card in read_cards()]
    assert said == [(each.name, each.lesson, each.points, each.hints, each.source) for each in exercises_of()]
    advice = "there is nothing."
    card, exercise = read_cards(0)[0], exercises_of(0)[0]
    assert card.not_attempted(advice) == exercise.not_attempted(advice)


def test_the_grader_imports_no_torch():
    """Its import takes longer than the grading of ten notebooks; only the hosts and the key's kernel need it."""
    code = (
        "import sys\nfrom course_utils.grading.lean import import_lean\nimport_lean()\n"
        "import course_utils.grading.grade, course_utils.grading.pages\n"
        "from course_utils.grading.lessons import read_lessons, read_cards\n"
        "lessons = read_lessons(read=read_cards)\nprint('torch' in sys.modules, 'rfc3987_syntax' in sys.modules)\n"
        "print(sum(len(lesson.exercises) for lesson in lessons.values()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", str(len(exercises_of()))]
