"""A class in which most students attack the grader: fair scores for all, and nothing left behind."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from grading_samples import hand_in, notebook_with
from hostile.answers import ATTACKS, EXERCISE
from hostile.classroom import (
    LESSON,
    LESSONS,
    LIMITS,
    RIGHT,
    SECRET,
    grade_class,
    known_secret,
    temporary_files_in,
    write_class,
)

from course_utils.exercises.engine import find
from course_utils.grading.collect import CollectedAnswer
from course_utils.grading.batch import grade
from course_utils.grading.verdict import judge_in_words
from course_utils.grading.report import write_pages
from course_utils.grading.report import NOT_GRADED, write_scores
from course_utils.grading.evidence import (
    Key,
    make_task,
    read_ran,
    seed_for,
)
from course_utils.grading.sandbox.fork import ForkEngine
from course_utils.grading.sandbox.kernel import KernelEngine
from course_utils.grading.sandbox.tasks import MEBIBYTE
from course_utils.grading.sandbox.walls import FIRST_USER, USERS
from course_utils.grading.submissions import find_submissions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the fork engine and most of these attacks need Linux"),
]
GONE_SECONDS = 30  # in which what another grading on this machine runs has ended, and what sleeps for 60 s has not


def contents(folder):
    """What is in a folder: the digest of every regular file, and where links lead."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[path] = os.readlink(path)
        elif path.is_file() and path.stat().st_size < 100 * MEBIBYTE:
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def others():
    """Processes of any sandbox's users, and this process's own children: number, start, name."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            status, stat = (Path("/proc", name, file).read_text() for file in ("status", "stat"))
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        ours = int(fields["PPid"]) == os.getpid() and "Z" not in fields["State"]
        if ours or FIRST_USER <= int(fields["Uid"].split()[0]) < FIRST_USER + USERS:
            found.add((name, stat.rpartition(")")[2].split()[19], fields["Name"]))
    return found


def left_behind(before):
    """Processes that were not there `before` and do not go away; those of other gradings on this machine do."""
    left, deadline = others() - before, time.monotonic() + GONE_SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(0.5)
        left &= others()
    return left


def rows_of(graded):
    """The rows by student and exercise, without what differs from run to run."""
    found = {}
    for row in graded.scores:
        fields = asdict(row)
        del fields["seconds"]
        found.setdefault(row.student, {})[row.exercise] = fields
    return found


@pytest.fixture(scope="module")
def honest():
    return notebook_with(LESSON, RIGHT)


@pytest.fixture(scope="module")
def alone(honest, tmp_path_factory):
    """What the honest student gets in a class of one."""
    folder = tmp_path_factory.mktemp("alone")
    hand_in(folder, "honest", LESSON, honest)
    return rows_of(grade(find_submissions(folder, LESSONS), memory=known_secret(), limits=LIMITS))["honest"]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The class, graded once by two lanes; what it found, and what it has left."""
    folder, report, temporary = (tmp_path_factory.mktemp(name) for name in ("class", "report", "temporary"))
    reasons = write_class(folder)
    before, running = contents(folder), others()
    with temporary_files_in(temporary):
        found = grade_class(folder, report)
    left = {"files": list(temporary.iterdir()), "processes": left_behind(running)}
    write_scores(found.scores, report, found.isolation)
    write_pages(found.scores, report, found.isolation)
    unchanged = contents(folder) == before
    return {"rows": rows_of(found), "files": reasons, "left": left, "unchanged": unchanged, "report": report}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.name)
def test_an_attack_gets_its_fair_score(attack, graded):
    row = graded["rows"][attack.name][EXERCISE]
    assert row["points"] == (row["possible"] if attack.passes else 0), row
    assert attack.words in row["sentence"] + row["reason"]
    assert attack.passes or row["sentence"] or row["reason"]
    assert row["look_by_hand"] == attack.by_hand, row


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.name)
def test_the_attackers_other_answers_count(attack, graded, alone):
    mine = graded["rows"][attack.name]
    for name, row in alone.items():
        if name != EXERCISE:
            assert mine[name] | {"student": ""} == row | {"student": ""}


def test_honest_students_get_what_they_get_alone(graded, alone):
    neighbours = [rows for student, rows in graded["rows"].items() if student.startswith("honest")]
    assert len(neighbours) >= 3
    for rows in neighbours:
        assert {name: row | {"student": ""} for name, row in rows.items()} == {
            name: row | {"student": ""} for name, row in alone.items()
        }
    assert all(row["points"] == row["possible"] > 0 for row in alone.values())


def test_every_odd_file_has_its_rows(graded):
    for student, reason in graded["files"].items():
        rows = graded["rows"][student].values()
        if reason:
            assert all(row["stage"] == NOT_GRADED and row["look_by_hand"] for row in rows), student
            assert all(reason in row["reason"] for row in rows), (student, [row["reason"] for row in rows])
        else:
            assert len(rows) == len(LESSON.exercises)
            assert all(row["points"] == row["possible"] for row in rows), student


def test_nothing_is_left_and_nothing_was_written(graded):
    assert graded["left"] == {"files": [], "processes": set()}
    assert graded["unchanged"]


def test_the_pages_take_hostile_text_as_text(graded):
    pages = list(graded["report"].rglob("*.html"))
    assert len(pages) == len(graded["rows"]) + 1
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<script" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert page.parent.name != "students" or len(text.encode()) < 20_000


# --------------------------------------------------------------------------------------------------- both engines

KERNEL_TOO = [each for each in ATTACKS if not each.alone]


@pytest.fixture(scope="module")
def fork_engine():
    with ForkEngine() as engine:
        yield engine


def score_by(engine, source):
    """Whether an engine's run of an answer passes, and whether it is for a person to look at."""
    exercise = find(EXERCISE)
    evidence, mistakes = exercise.key(seed_for(EXERCISE, SECRET))
    key = Key(tuple(evidence), tuple((text, tuple(one)) for text, one in mistakes.items()))
    answer = CollectedAnswer(exercise, source)
    (ran,) = engine.run([make_task(answer, SECRET)], LIMITS)
    verdict = judge_in_words(read_ran(answer, ran), key)
    return bool(verdict.outcome and verdict.outcome.passed)


@pytest.mark.parametrize(
    "attack", [each for each in KERNEL_TOO if "not Python" not in each.words], ids=lambda each: each.name
)
def test_both_engines_give_the_same_score(attack, fork_engine):
    assert score_by(KernelEngine(), attack.source) == score_by(fork_engine, attack.source) == attack.passes
