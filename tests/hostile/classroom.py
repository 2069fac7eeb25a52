"""The class in which most students attack the grader, and how it is graded: for the tests, and to be printed."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grading_samples import as_version_3, hand_in, notebook_with, source_under_name

from course_utils.grading.batch import Graded, grade
from course_utils.grading.lessons import read_lessons
from course_utils.grading.resume import GradingMemory
from course_utils.grading.sandbox.crew import LocalCrew
from course_utils.grading.sandbox.tasks import MEBIBYTE, Limits
from course_utils.grading.submissions import find_submissions
from hostile.answers import ATTACKS, EXERCISE
from hostile.files import write_files

SECRET = 4711
LIMITS = Limits(exercise=6, submission=60, memory=512 * MEBIBYTE, disk=32 * MEBIBYTE, processes=64)
LESSONS = read_lessons()
LESSON = LESSONS["01_tensor_hooks"]
RIGHT = {exercise.name: source_under_name(exercise.accepted[0], exercise.name) for exercise in LESSON.exercises}


def known_secret() -> GradingMemory:
    """A memory that keeps nothing, with a secret that is the same in every run."""
    made = GradingMemory(None)
    made.secret = SECRET
    return made


@contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """In the block, this process and those that it starts have their temporary files in `folder`."""
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    folder.chmod(0o755)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
        del os.environ["TMPDIR"]
        if variable is not None:
            os.environ["TMPDIR"] = variable


def write_class(folder: Path) -> dict[str, str]:
    """Write a notebook for every attack, honest ones between them, and odd files; returns what `write_files` does."""
    honest = notebook_with(LESSON, RIGHT)
    for number, each in enumerate(ATTACKS):
        notebook = notebook_with(LESSON, RIGHT | {EXERCISE: each.source})
        path = folder / each.name / f"{LESSON.name}.ipynb"
        path.parent.mkdir()
        path.write_text(json.dumps(notebook))
        if number % 20 == 0:
            hand_in(folder, f"honest {number}", LESSON, honest)
    return write_files(folder, LESSON.name, copy.deepcopy(honest), as_version_3(copy.deepcopy(honest)))


def grade_class(folder: Path, report: Path) -> Graded:
    """Grade it with two lanes."""
    with LocalCrew("fork", jobs=2, hidden=[folder, report], key=True) as crew:
        return grade(
            find_submissions(folder, LESSONS),
            crew=crew,
            memory=known_secret(),
            limits=LIMITS,
            record=report / "verdicts.ipynb",
        )
