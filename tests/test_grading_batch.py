"""Whole batches: the key, nbval beside the words, what goes wrong on the way, a second run, and the commands."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from grading_samples import (
    EXERCISES,
    LESSONS,
    SEED,
    START,
    TENSOR_HOOKS,
    answer_to,
    hand_in,
    key_of,
    notebook_with,
    put,
    through_json,
)

from course_utils.authoring import source
from course_utils.exercises.engine import find
from course_utils.exercises.judging import first_difference
from course_utils.grading import batch
from course_utils.grading.batch import STOPPED, grade
from course_utils.grading.evidence import Observed, make_keys, make_task, read_ran, seed_for
from course_utils.grading.grade import check_work, main
from course_utils.grading.lessons import Lesson
from course_utils.grading.report import read_scores
from course_utils.grading.resume import FOLDER, GradingMemory
from course_utils.grading.sandbox import driver, kernel
from course_utils.grading.sandbox.crew import LocalCrew, choose_engine
from course_utils.grading.sandbox.kernel import KernelEngine, make_notebook
from course_utils.grading.sandbox.tasks import Limits, Ran
from course_utils.grading.submissions import NOT_HANDED_IN, NOT_ON_ROSTER, Submission, find_submissions
from course_utils.grading.verdict import Comparer, Item, compare, judge_answer

RIGHT = "def largest(tensor):\n    return tensor.max().item()\n"
WRONG = "def largest(tensor):\n    return tensor.max()\n"


def final(*pairs):
    """The final verdicts on pairs of evidence and key."""
    observed = [(Observed(answer_to("largest", ""), tuple(evidence)), key) for evidence, key in pairs]
    return compare([Item("ann", START.name, judge_answer(*one)) for one in observed])


@pytest.mark.slow
def test_many_items_are_compared_in_parts_and_stay_in_order(monkeypatch):
    started, start = [], Comparer.start

    def noting(self, notebook):
        started.append(len(nbformat.reads(notebook, as_version=4).cells) - 1)  # without the heading
        start(self, notebook)

    monkeypatch.setattr("course_utils.grading.verdict.WORTH_A_PROCESS", 2)
    monkeypatch.setattr("joblib.cpu_count", lambda: 3)
    monkeypatch.setattr(Comparer, "start", noting)
    key = key_of("largest", SEED)
    verdicts = final(*[(key.evidence if right else key.mistakes[0][1], key) for right in (1, 0, 0, 1, 1, 0, 1)])
    assert [verdict.outcome.passed for verdict in verdicts] == [True, False, False, True, True, False, True]
    assert not any(verdict.by_hand for verdict in verdicts)
    assert started == [2, 2, 3]


class Unable:
    """Stands for a process that compares: what it answers is given, and it may be unable to start."""

    answers, problem = iter(()), None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def start(self, notebook):
        if self.problem:
            raise self.problem

    def finish(self, count):
        return next(self.answers)


@pytest.mark.parametrize(
    ("answers", "problem", "words"),
    [
        ([([None], "no pytest"), ([False], "")], None, ["nbval gave no verdict: no pytest", ""]),
        (
            [([False], ""), ([True], "")],
            None,
            [
                "nbval finds evidence and key different, the comparison in words finds them equal",
                "nbval finds evidence and key equal, the comparison in words finds them different",
            ],
        ),
        ([], KeyboardInterrupt(), ["the grading was stopped"] * 2),
        ([], OSError(errno.ENOSPC, "No space left on device"), ["No space left"] * 2),
    ],
)
def test_nbval_and_the_words_must_agree_or_a_person_looks(answers, problem, words, monkeypatch):
    monkeypatch.setattr("course_utils.grading.verdict.WORTH_A_PROCESS", 1)
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    monkeypatch.setattr("course_utils.grading.verdict.Comparer", Unable)
    monkeypatch.setattr(Unable, "answers", iter(answers))
    monkeypatch.setattr(Unable, "problem", problem)
    key = key_of("largest", SEED)
    verdicts = final((key.evidence, key), (key.mistakes[0][1], key))
    assert [verdict.outcome.passed for verdict in verdicts] == [True, False]
    assert [verdict.by_hand for verdict in verdicts] == [bool(word) for word in words]
    assert all(word in verdict.reason for word, verdict in zip(words, verdicts, strict=True))


def test_without_a_judge_nothing_passes(monkeypatch):
    key = key_of("largest", SEED)
    monkeypatch.setattr("course_utils.exercises.judging.judge", lambda *_: {}["unheard of"])
    (verdict,) = final((key.evidence, key))
    assert (verdict.outcome, verdict.by_hand) == (None, True)
    assert "could not be judged: KeyError: 'unheard of'" in verdict.reason


@pytest.mark.slow
def test_every_exercise_has_a_key(monkeypatch):
    """The answered editions, run as submissions are, do what the declared reference answers do in this process."""
    executed, execute = [], kernel.execute

    def noting(notebook, seeds, *arguments):
        executed.append(len(seeds))
        return execute(notebook, seeds, *arguments)

    monkeypatch.setattr(kernel, "execute", noting)
    wanted = [(lesson, {exercise.name for exercise in lesson.exercises}) for lesson in LESSONS.values()]
    with LocalCrew(choose_engine(), jobs=1, key=True) as crew:
        found = make_keys(wanted, SEED, seat=crew.seat)
    with LocalCrew(choose_engine(), jobs=1, key=True) as crew:
        crew.seat.close()
        again = make_keys([(START, {"largest"})], SEED, seat=crew.seat)
    assert executed == [len(EXERCISES), 1, 1], (
        "one kernel for all; where the seat is gone, an ordinary one makes the key"
    )
    assert again["largest"] == found["largest"]
    assert len(found) == len(EXERCISES)
    for exercise in EXERCISES:
        key, evidence = found[exercise.name], exercise.key(seed_for(exercise.name, SEED))[0]
        assert not key.reason, exercise.name
        assert first_difference(key.evidence, through_json(evidence), exercise.name) is None
        assert [message for message, _ in key.mistakes] == [mistake.message for mistake in exercise.mistakes]


def test_the_run_notebook_of_an_answer_holds_no_key():
    task = make_task(answer_to("largest", "def largest(t): return 1"), SEED)
    text = nbformat.writes(make_notebook([task], setup=""))
    assert not [
        secret for secret in ("show_mistakes", find("largest").mistakes[0].message, str(task.seed)) if secret in text
    ]


def test_a_kernel_that_does_not_start_is_nobodys_fault(monkeypatch):
    monkeypatch.setitem(source.KERNELSPEC, "name", "no-such-kernel")
    answer = answer_to("largest", "def largest(t): return 1")
    (ran,) = KernelEngine().run([make_task(answer, SEED)])
    assert read_ran(answer, ran).outcome is None
    assert "NoSuchKernel" in ran.ended
    keys = make_keys([(START, {"largest"})], SEED)
    assert "the course's own answer to largest did not work here: it showed nothing" in keys["largest"].reason
    (late,) = KernelEngine().run([make_task(answer, SEED)], Limits(submission=0))
    assert "used up" in late.ended


class Crew:
    """Runs answers in this process, and notes how many submissions it was given."""

    isolation, seat, given = ("isolation: none",), None, []

    def run(self, batches, limits):
        self.given.append(len(batches))
        for number, tasks in enumerate(batches):
            yield number, [Ran(json.dumps(driver.observe_answer(*vars(task).values()))) for task in tasks]


@pytest.fixture
def no_processes(monkeypatch):
    """Keys are made in this process, nbval is not asked, and the commands run answers here."""

    def make(wanted, secret, **_):
        return {name: key_of(name, secret) for _, names in wanted for name in names}

    def agree(items, _):
        return [(item.verdict.got == item.verdict.expected, "") for item in items]

    monkeypatch.setattr(Crew, "given", [])
    monkeypatch.setattr("course_utils.grading.batch.make_keys", make)
    monkeypatch.setattr("course_utils.grading.verdict._compare_in_parts", agree)
    monkeypatch.setattr("course_utils.grading.grade._make_crew", lambda *_: contextlib.nullcontext(Crew()))
    monkeypatch.setattr("course_utils.grading.batch.LocalCrew", lambda *_, **__: contextlib.nullcontext(Crew()))
    monkeypatch.setattr("course_utils.grading.verdict.Comparer", contextlib.nullcontext)


def give(folder, **answers):
    """Hand in a notebook with this answer to `largest` for each student."""
    for student, text in answers.items():
        hand_in(folder, student, START, notebook_with(START, {"largest": text}))


def grade_folder(folder, **options):
    return grade(find_submissions(folder, LESSONS), crew=Crew(), **options)


def test_a_batch_has_a_row_for_each_exercise_and_goes_on_past_what_breaks(tmp_path, monkeypatch, no_processes):
    for student in ("ann", "bo"):
        hand_in(tmp_path, student, TENSOR_HOOKS, source.learner(TENSOR_HOOKS.path))
    give(tmp_path, cy=RIGHT, di="def largest(tensor):\n    return None\n")
    put(tmp_path, f"ed/{START.name}.ipynb", text="x")
    first, read = iter([OSError("the disk is full")]), batch.read_cells

    def fail_first(data):
        for error in first:
            raise error
        return read(data)

    monkeypatch.setattr(batch, "read_cells", fail_first)
    result = grade_folder(tmp_path, record=tmp_path / "no folder" / "verdicts.ipynb")
    assert len(result.scores) == 2 * len(TENSOR_HOOKS.exercises) + 3
    found = {}
    for row in result.scores:
        found.setdefault(row.student, set()).add((row.stage, row.points, row.look_by_hand, row.reason))
    ((*unread, reason),) = found.pop("ed")
    assert unread == ["not graded", 0, True]
    assert "the file could not be read: it is not complete JSON" in reason
    assert found == {
        "ann": {("not graded", 0, True, "it could not be graded: OSError: the disk is full")},
        "bo": {("not attempted", 0, False, "")},
        "cy": {("passed", 1, False, "")},
        "di": {("wrong type or structure", 0, False, "")},
    }
    assert "verdict notebook cannot be written: No such file" in result.problem
    assert result.isolation == ["isolation: none"]


def test_without_keys_a_person_looks_and_a_lesson_without_exercises_has_a_row(tmp_path, monkeypatch, no_processes):
    give(tmp_path, ann=RIGHT)
    monkeypatch.setattr("course_utils.grading.batch.make_keys", lambda *_, **__: {}["lost"])
    (row,) = grade_folder(tmp_path).scores
    assert (row.stage, row.look_by_hand, row.reason) == ("not graded", True, "there is no key: KeyError: 'lost'")
    path = tmp_path / "ann" / f"{START.name}.ipynb"
    (row,) = grade([Submission("ann", "x", path, Lesson(START.path, ()))], crew=Crew()).scores
    assert (row.reason, row.look_by_hand) == ("this lesson has no exercises", False)


def test_ctrl_c_keeps_what_is_done(tmp_path, no_processes):
    for student in ("ann", "bo", "cy"):
        hand_in(tmp_path, student, TENSOR_HOOKS, source.learner(TENSOR_HOOKS.path))
    found = find_submissions(tmp_path, LESSONS)

    class Interrupted(list):
        def __iter__(self):
            yield found[0]
            raise KeyboardInterrupt

    result = grade(Interrupted(found), crew=Crew())
    assert result.stopped
    assert {row.student: row.reason for row in result.scores} == {"ann": "", "bo": STOPPED, "cy": STOPPED}
    assert len(result.scores) == 3 * len(TENSOR_HOOKS.exercises)
    assert {row.stage for row in result.scores if row.student == "ann"} == {"not attempted"}


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


def test_what_was_graded_is_not_run_again_unless_the_file_or_the_course_changed(tmp_path, monkeypatch, no_processes):
    def again():
        return grade_folder(tmp_path / "class", memory=GradingMemory(tmp_path / "report"))

    (tmp_path / "report").mkdir()
    give(tmp_path / "class", ann=RIGHT, bo=RIGHT)
    first, second = again(), again()
    assert (first.known, second.known, Crew.given) == (0, 2, [2])
    assert second.scores == first.scores
    assert second.isolation == ["isolation: none"]
    give(tmp_path / "class", bo=WRONG)
    assert ([row.points for row in again().scores], Crew.given) == ([1, 0], [2, 1])
    assert [row.cause for row in again().scores] == ["", find("largest").mistakes[0].message]
    for path in (tmp_path / "report" / FOLDER).glob("[0-9a-f]*.json"):
        path.write_text("[{}]")
    assert (again().known, Crew.given) == (0, [2, 1, 2]), "what cannot be read any more is graded again"
    monkeypatch.setattr("course_utils.grading.resume.digest_course", lambda: "another course")
    assert (again().known, Crew.given) == (0, [2, 1, 2, 2])


def test_what_cannot_be_kept_costs_no_score(tmp_path, monkeypatch, no_processes):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    give(tmp_path, ann=RIGHT)
    memory = GradingMemory(tmp_path)
    monkeypatch.setattr("course_utils.grading.resume.write_whole", refuse)
    result = grade_folder(tmp_path, memory=memory)
    assert [row.points for row in result.scores] == [1]
    assert result.problem == "what was graded cannot be kept for a second run: No space left on device"


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_the_same_command_goes_on(tmp_path):
    folder, report = tmp_path / "class", tmp_path / "report"
    slow = "import time\ndef largest(tensor):\n    time.sleep(1)\n    return tensor.max().item()\n"
    give(folder, **{f"s{number:02}": slow for number in range(12)})
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
    points = [row["points"] for row in read_scores(report)]
    assert len(points) == 12
    assert 2 <= sum(points) < 12
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "were graded before" in done.stdout
    assert all(row["points"] == 1 for row in read_scores(report))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give a folder"),
        (["class", "--check", "work"], "give a folder"),
        (["gone"], "gone does not exist"),
        (["taken"], "taken is not a folder, a .zip"),
        (["--check", "empty"], "there is no lesson in empty"),
        (["--check", "empty", "--lesson", "77"], "there is no lesson 77; there is 00, 01"),
        (["empty"], "nothing to grade in empty"),
        (["class.zip"], "not a zip that can be read"),
        (["class", "--roster", "gone.csv"], "gone.csv cannot be read: No such file"),
        (["class", "--roster", "taken", "--report", "taken"], "cannot be written to taken"),
        (["class", "--report", "full"], "report cannot be written to full: File exists"),
        (["class", "--report", "stopped"], "stopped; nothing was written"),
    ],
)
def test_what_cannot_be_run_gets_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys, no_processes):
    monkeypatch.chdir(tmp_path)
    hand_in(tmp_path / "class", "ann", START, source.learner(START.path))
    put(tmp_path, "taken", "class.zip", "full/students", text="PK")
    (tmp_path / "empty").mkdir()
    if "stopped" in arguments:

        def interrupted(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("course_utils.grading.submissions.find_submissions", interrupted)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err.splitlines()[-1]
    assert printed.err.count("\ngrading: ") <= 1
    assert not printed.out


def test_a_class_is_graded_and_every_name_on_the_roster_has_rows(tmp_path, monkeypatch, capsys, no_processes):
    monkeypatch.chdir(tmp_path)
    give(tmp_path / "class", ann=WRONG)
    assert main(["class", "--lesson", "00"]) == 0
    assert "ann      0 of 1" in capsys.readouterr().out
    page = (tmp_path / "report" / "students" / "ann.html").read_text(encoding="utf-8")
    assert "Likely cause" in page
    assert "Read again" in page
    give(tmp_path / "class", guest=RIGHT)
    hand_in(tmp_path / "class", "guest", TENSOR_HOOKS, source.learner(TENSOR_HOOKS.path))
    put(tmp_path, "roster.csv", text="student\nann\nzoe\n")
    assert main(["class", "--roster", "roster.csv", "--lesson", "0"]) == 1
    printed = capsys.readouterr()
    assert "1 of 3 were graded before" in printed.out
    assert "isolation: none" in printed.out
    rows = [(row["student"], row["lesson"], row["reason"], row["look_by_hand"]) for row in read_scores("report")]
    assert rows == [
        ("ann", START.name, "", False),
        ("guest", START.name, NOT_ON_ROSTER, True),
        ("zoe", START.name, NOT_HANDED_IN, False),
    ]


def test_a_learners_own_score_by_the_same_rule(tmp_path, capsys, no_processes):
    nbformat.write(notebook_with(START, {"largest": WRONG}), tmp_path / f"{START.name}.ipynb")
    before = sorted(tmp_path.rglob("*"))
    assert check_work(tmp_path) == 0
    printed = capsys.readouterr().out
    assert "largest: not yet (wrong type or structure)" in printed
    assert find("largest").mistakes[0].message in printed
    assert "total: 0 of 1" in printed
    assert "seed" not in printed
    put(tmp_path, f"{TENSOR_HOOKS.name}.ipynb", text="x")
    assert check_work(tmp_path, "01") == 1
    assert "scale_gradient: no score\n    the file could not be read" in capsys.readouterr().out
    assert [*before, tmp_path / f"{TENSOR_HOOKS.name}.ipynb"] == sorted(tmp_path.rglob("*")), "nothing else is written"


@pytest.mark.slow
def test_the_grader_imports_no_torch():
    """Its import takes longer than the grading of ten notebooks; only the hosts and the key's kernel need it."""
    code = (
        "import sys\nfrom course_utils.grading.verdict import import_lean\nimport_lean()\n"
        "import course_utils.grading.batch\nfrom course_utils.exercises.declaration import read_declarations\n"
        "from course_utils.grading.lessons import read_lessons\n"
        "found = read_lessons(read=read_declarations).values()\n"
        "print('torch' in sys.modules, 'rfc3987_syntax' in sys.modules, sum(len(each.exercises) for each in found))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", str(len(EXERCISES))]
