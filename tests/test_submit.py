"""Handing in: what is said of the learner's folder, the file that is written, and what the grader makes of it."""

import io
import json
import shutil
import sys
import zipfile

import nbformat
import pytest
from lesson_runs import run_python

from course_utils.authoring import build, source
from course_utils.exercises.engine import exercises_of
from course_utils.grading.lessons import read_lessons
from course_utils.grading.submissions import find_submissions
from course_utils.grading.submit import submit
from course_utils.root import ROOT, CourseError

LESSONS = read_lessons()
ONE = "01_tensor_hooks"


@pytest.fixture
def work(tmp_path):
    """Lesson 01 half done, with a slip; 02 damaged; 03 as it came; the others not there; a copy with its own name."""
    folder = tmp_path / "work"
    answers = {each.name: each.source for each in exercises_of(1)[:3]}
    answers["keep_positive"] = "def keep_positive(tensor):\n    return tensor register_hook\n"
    lesson = nbformat.read(ROOT / "notebooks" / f"{ONE}.ipynb", as_version=4)
    build.write(source.put_answers(lesson, answers), folder / f"{ONE}.ipynb")
    shutil.copy(ROOT / "notebooks" / "03_module_hooks.ipynb", folder)
    (folder / "02_retain_grad_or_hook.ipynb").write_text('{"cells": [')
    (folder / "My \n copy.ipynb").write_text("{}")
    return folder


def test_what_is_there_and_what_is_missing_is_said_and_the_grader_reads_the_file(work, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(" Ann  Lee \n"))
    assert submit(work=work, folder=tmp_path) == 0
    said = capsys.readouterr().out
    for line in (
        f"{ONE}: 3 of 8 exercises attempted; not yet {', '.join(each.name for each in exercises_of(1)[3:])}.",
        "    keep_positive: your line 2, `return tensor register_hook`, is not Python: invalid syntax.",
        "02_retain_grad_or_hook: left out, because it is not complete JSON",
        "03_module_hooks: left out, because none of its exercises has been attempted.",
        "04_inside_call: left out, because it is not in the folder `work`.",
        "My \\n copy.ipynb: left out, because no lesson has this name.",
        f"Send this one file to your instructor:  {tmp_path / 'Ann Lee.zip'}",
    ):
        assert line in said
    with zipfile.ZipFile(tmp_path / "Ann Lee.zip") as archive:
        about = json.loads(archive.read("Ann Lee/submission.json"))
        archive.extractall(tmp_path / "class")
    assert (about["name"], about["attempted"], " whole " in about["edition"]) == ("Ann Lee", {ONE: 3}, True)
    assert about["torch"]
    for place in ("Ann Lee.zip", "class"):
        (found,) = find_submissions(tmp_path / place, LESSONS)
        assert (found.student, found.name, found.reason) == ("Ann Lee", ONE, "")


def test_an_own_file_is_replaced_another_persons_stays_and_nothing_is_half_written(work, tmp_path):
    for name in ("Ann/Lee", "Ann/Lee", "Bob"):
        submit(name, work=work, folder=tmp_path)
    (tmp_path / "Cy.zip").write_bytes(b"no zip")
    kept = {path: path.read_bytes() for path in tmp_path.glob("*.zip")}
    for name in ("Ann-Lee", "Cy"):
        with pytest.raises(CourseError, match=rf"{name}\.zip is there already, and not from {name}\."):
            submit(name, work=work, folder=tmp_path)
    with pytest.raises(CourseError, match="There is nothing to hand in"):
        submit("Dee", work=tmp_path / "nowhere", folder=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == kept


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("..hidden", "hidden"),
        ("Zoe\u0301 O'Neill (B)", "Zo\u00e9 O'Neill (B)"),
        ("\u674e\u660e", "\u674e\u660e"),
        ("C:\\x\u202e\n\udc80 y", "C-x y"),
        ("\U0001f41f" * 60, "\U0001f41f" * 30),
        (ONE, ONE),
    ],
)
def test_an_odd_name_is_a_folder_that_the_grader_reads(work, tmp_path, name, folder):
    submit(name, work=work, folder=tmp_path)
    (found,) = find_submissions(tmp_path / f"{folder}.zip", LESSONS)
    assert (found.student, found.name, found.reason) == (folder, ONE, "")


@pytest.mark.parametrize("name", ["", " ", "..", "/", "\u200b", "submitted", "__MACOSX", "submission.json"])
def test_what_is_no_name_is_refused(name, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(CourseError, match=r'make submit NAME="Ann Lee"'):
        submit(name)


@pytest.mark.slow
def test_nothing_is_run_but_on_demand(work, tmp_path):
    code = "import sys; from pathlib import Path; from course_utils.grading.submit import submit\n"
    code += "submit('Ann', len(sys.argv) > 3, Path(sys.argv[1]), Path(sys.argv[2])); print('torch' in sys.modules)"
    said = run_python(ROOT, "-c", code, work, tmp_path)
    assert said.endswith("False\n")
    assert "scale_gradient: passed" in run_python(ROOT, "-c", code, work, tmp_path, "check")
