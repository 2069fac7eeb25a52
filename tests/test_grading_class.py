"""A class in which most students attack the grader: fair scores for all, nothing left behind; both engines agree."""

import os
import re
import sys
import tempfile
import time
from dataclasses import asdict, replace
from multiprocessing import resource_tracker

import nbformat
import psutil
import pytest
from grading_samples import EXERCISES, HABITS, LESSONS, SEED, START, answer_to, judge, put, submitted, variations
from hostile.classroom import (
    AS_WHOLE,
    ATTACKS,
    BESIDE,
    EXERCISE,
    HONEST,
    LESSON,
    WHOLE,
    constants_for_the_visible_seed,
    write_class,
)
from hypothesis import HealthCheck, given, settings

from course_utils.exercises.classroom import VISIBLE_SEED
from course_utils.exercises.engine import find
from course_utils.grading.batch import grade
from course_utils.grading.evidence import make_task
from course_utils.grading.report import Score, write_pages, write_scores
from course_utils.grading.resume import GradingMemory
from course_utils.grading.sandbox.fork import ForkEngine
from course_utils.grading.sandbox.process import ProcessEngine
from course_utils.grading.sandbox.tasks import MEBIBYTE, Limits
from course_utils.grading.sandbox.walls import FIRST_USER, USERS
from course_utils.grading.submissions import find_submissions
from course_utils.grading.verdict import make_verdict_notebook

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the fork engine needs Linux")]
STOPPED = "did not come to an end in time"
GONE_SECONDS = 30  # in which what another grading on this machine runs has ended, and what sleeps for 60 s has not
LIMITS = Limits(exercise=6, submission=60, memory=512 * MEBIBYTE, disk=32 * MEBIBYTE, processes=64)
FULL = [Score("", LESSON.name, one.name, one.points, one.points, "passed", "", "", False) for one in LESSON.exercises]
# What tells one student's row from another's.
OWN = {"student": "", "seconds": 0, "held": 0, "like": "", "got": "", "expected": ""}
PASSED = {row.exercise: asdict(row) | OWN for row in FULL}


def contents(folder):
    """What is in a folder, and when it was changed."""
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


def others():
    """Processes of any sandbox's users, and this process's own children; Python's own tracker stays till it ends."""
    running = psutil.process_iter(["pid", "create_time", "name", "uids", "ppid", "status"])
    found = [each.info for each in running if each.info["uids"] and each.info["status"] != psutil.STATUS_ZOMBIE]
    users = range(FIRST_USER, FIRST_USER + USERS)
    ours = [one for one in found if one["ppid"] == os.getpid() or one["uids"].real in users]
    ours = [one for one in ours if one["pid"] != resource_tracker._resource_tracker._pid]
    return {(one["pid"], one["create_time"], one["name"]) for one in ours}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The class, graded once; what it found, and what it has left."""
    folder, report, temporary = (tmp_path_factory.mktemp(name) for name in ("class", "report", "temporary"))
    honest = write_class(folder)
    before, running = contents(folder), others()
    temporary.chmod(0o755)
    memory, rows = GradingMemory(None), {}
    memory.secret = SEED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        patch.setenv("TMPDIR", str(temporary))
        with ForkEngine(lanes=5) as crew:  # most attacks are waited for
            options = {"crew": crew, "memory": memory, "limits": LIMITS}
            found = grade(find_submissions(folder, LESSONS), **options)
        (report / "verdicts.ipynb").write_text(make_verdict_notebook(found.scores))
    write_scores(found.scores, report, found.isolation)
    write_pages(found.scores, report, found.isolation)
    left, deadline = others() - running, time.monotonic() + GONE_SECONDS
    while left and time.monotonic() < deadline:  # those of other gradings on this machine go away
        time.sleep(0.5)
        left &= others()
    assert (left, list(temporary.iterdir())) == (set(), [])
    assert contents(folder) == before
    for row in found.scores:
        rows.setdefault(row.student, {})[row.exercise] = asdict(row) | OWN
    return {"rows": rows, "honest": honest, "report": report}


def says_so(attack, row):
    """Whether a row has the words for an attack. For one that fails, a busy machine's clock may be first."""
    said = row["sentence"] + row["reason"]
    return attack.words in said or (STOPPED in said and not attack.passes)


NOTEBOOKS = [(each, "") for each in ATTACKS] + [(each, WHOLE) for each in AS_WHOLE]


@pytest.mark.parametrize(("attack", "end"), NOTEBOOKS, ids=[f"{each.name}{end}" for each, end in NOTEBOOKS])
def test_an_attack_gets_its_fair_score_and_the_attackers_other_answers_count(attack, end, graded):
    rows = graded["rows"][f"{attack.name}{end}"]
    row = rows[EXERCISE]
    assert row["points"] == (row["possible"] if attack.passes else 0), row
    assert row["look_by_hand"] == attack.by_hand, row
    if row["stage"] != "not attempted":
        assert says_so(attack, row)
        assert attack.passes or row["sentence"] or row["reason"]
        assert not end or "the whole notebook" in row["sentence"]
    if not end:
        assert row["stage"] != "not attempted"
        assert [rows[name] for name in BESIDE] == [PASSED[name] for name in BESIDE]


def test_honest_students_get_what_is_fair_and_odd_cells_cost_nothing(graded):
    assert len(graded["honest"]) >= 6
    assert [graded["rows"][student] for student in graded["honest"]] == [PASSED] * len(graded["honest"])


def test_known_inputs_and_patches_in_other_cells_gain_nothing(graded):
    namespace = {}
    exec(constants_for_the_visible_seed(), namespace)
    assert find("largest").check(namespace["largest"], VISIBLE_SEED).passed
    row = graded["rows"]["sly"]["largest"]
    assert (row["points"], row["stage"], row["look_by_hand"]) == (0, "wrong value", False)


def test_the_report_takes_hostile_text_as_text_and_the_record_holds_evidence_only(graded):
    pages = list(graded["report"].rglob("*.html"))
    assert len(pages) == len(graded["rows"]) + 1
    for page, text in [(page, page.read_text(encoding="utf-8")) for page in pages]:
        assert not re.search("\x1b|\u202e", text)
        assert text.count("<script") == (page.parent.name != "students"), "the one that sorts"
        assert page.parent.name != "students" or len(text.encode()) < 20_000
    record = nbformat.read(graded["report"] / "verdicts.ipynb", as_version=4)
    nbformat.validate(record)
    judged = {(cell.metadata.student, cell.metadata.exercise) for cell in record.cells if cell.cell_type == "code"}
    assert [(student, EXERCISE) in judged for student in ("honest 0", "not Python")] == [True, False]
    text = (graded["report"] / "verdicts.ipynb").read_text()
    assert not re.search(rf"{SEED}|register_hook", text), "no secret, no code of anyone's"


@pytest.fixture(scope="module")
def fork_engine():
    with ForkEngine() as engine:
        yield engine


def judge_with(engine, *answers, limits=None):
    """The scores of answers that an engine runs, as one submission."""
    return [*map(judge, answers, engine.run([make_task(answer, SEED) for answer in answers], limits))]


IN_BOTH = {  # of each kind of attack, one
    *("endless loop that swallows interrupts", "becomes another program, and sets an alarm", "kills itself", "8 GB"),
    *("ends the process that runs the next answer", "imports the reference answer anew"),
    "forges evidence beside the true one",
}


def test_the_process_engine_gives_the_scores_of_the_fork_engine():
    attacks = [each for each in ATTACKS if each.name in IN_BOTH]
    assert len(attacks) == len(IN_BOTH)
    answers = [answer_to(EXERCISE, each.source) for each in attacks]
    next_one = f"import torch\n{HONEST['keep_positive']}"  # for which an attack waits
    answers.append(answer_to("keep_positive", next_one))
    *scores, right = judge_with(ProcessEngine(), *answers, limits=replace(LIMITS, exercise=4))
    for attack, score in zip(attacks, scores, strict=True):
        assert (score.stage == "passed", score.look_by_hand) == (attack.passes, attack.by_hand), (attack.name, score)
        assert says_so(attack, asdict(score)), score
    assert (right.stage, right.look_by_hand) == ("passed", False)


def test_who_did_not_get_the_full_time_is_not_blamed(fork_engine):
    loop = answer_to("largest", "def largest(tensor):\n    while True: pass\n")
    for seconds in (1, 0):
        (score,) = judge_with(fork_engine, loop, limits=Limits(submission=seconds))
        assert (score.stage, score.look_by_hand, "used up" in score.reason) == ("not graded", True, True)


def test_honest_habits_keep_their_points_in_both_engines(fork_engine, tmp_path):
    """Each habit is a student's; by itself or as a whole notebook, what it says is right."""
    for engine, names in ((fork_engine, HABITS), (ProcessEngine(2), [*HABITS][-1:])):
        folder = tmp_path / type(engine).__name__
        for name in names:
            put(folder, f"{name}/{START.name}.ipynb", text=HABITS[name])
        scores = grade(find_submissions(folder, LESSONS), crew=engine).scores
        assert len(scores) == len(names)
        assert [(row.student, row.sentence, row.reason) for row in scores if not row.points or row.look_by_hand] == []


def test_the_sandbox_says_what_check_says(fork_engine):
    """Of each exercise a right answer and a mistake, on the whole way of a submission."""
    for one in EXERCISES:
        right, wrong = judge_with(fork_engine, *(submitted(each[-1], one.name) for each in (one.answers, one.mistakes)))
        assert (right.stage, right.cause) == ("passed", ""), right
        assert (wrong.points, wrong.cause) == (0, one.mistakes[-1].message), wrong


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(variations())
def test_a_right_answer_is_right_however_it_is_written(fork_engine, answer):
    assert answer.outcome is None, answer.outcome
    (score,) = judge_with(fork_engine, answer)
    assert score.stage == "passed", score
