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
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading import batch
from course_utils.grading.batch import STOPPED, grade
from course_utils.grading.evidence import Key, Observed, make_keys, make_task, read_ran, seed_for
from course_utils.grading.grade import check_work, main, run
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


# --------------------------------------------------------------------------------------------------------------- nbval


def final(*pairs):
    """The final verdicts on pairs of evidence and key."""
    observed = [(Observed(answer_to("largest", ""), tuple(evidence)), key) for evidence, key in pairs]
    return compare([Item("ann", START.name, judge_answer(*one)) for one in observed])


@pytest.mark.slow
def test_nbval_and_words_must_agree(monkeypatch):
    key = key_of("largest", SEED)
    wrong = key.mistakes[0][1]
    passed, failed = final((key.evidence, key), (wrong, key))
    assert (passed.outcome.passed, failed.outcome.passed) == (True, False)
    assert not passed.by_hand
    assert not failed.by_hand
    always = Outcome("largest", Stage.PASSED, possible=1)
    monkeypatch.setattr("course_utils.exercises.judging.judge", lambda *_: always)
    passed, failed = final((key.evidence, key), (wrong, key))
    assert not passed.by_hand
    assert failed.by_hand
    assert "nbval finds evidence and key different" in failed.reason


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
        ([([None], "no pytest"), ([True], "")], None, ["nbval gave no verdict: no pytest", ""]),
        ([([False], ""), ([True], "")], None, ["nbval finds evidence and key different, the comparison in words", ""]),
        ([], KeyboardInterrupt(), ["the grading was stopped"] * 2),
        ([], OSError(errno.ENOSPC, "No space left on device"), ["No space left"] * 2),
    ],
)
def test_what_nbval_cannot_say_keeps_the_verdict_in_words(answers, problem, words, monkeypatch):
    monkeypatch.setattr("course_utils.grading.verdict.WORTH_A_PROCESS", 1)
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    monkeypatch.setattr("course_utils.grading.verdict.Comparer", Unable)
    monkeypatch.setattr(Unable, "answers", iter(answers))
    monkeypatch.setattr(Unable, "problem", problem)
    key = key_of("largest", SEED)
    verdicts = final((key.evidence, key), (key.evidence, key))
    assert all(verdict.outcome.passed for verdict in verdicts)
    assert [verdict.by_hand for verdict in verdicts] == [bool(word) for word in words]
    assert all(word in verdict.reason for word, verdict in zip(words, verdicts, strict=True))


def test_without_a_key_or_a_judge_nothing_passes(monkeypatch):
    key = key_of("largest", SEED)
    (verdict,) = final((key.evidence, Key(reason="there is no key for it")))
    assert (verdict.outcome, verdict.by_hand, verdict.reason) == (None, True, "there is no key for it")
    monkeypatch.setattr("course_utils.exercises.judging.judge", lambda *_: {}["unheard of"])
    (verdict,) = final((key.evidence, key))
    assert (verdict.outcome, verdict.by_hand) == (None, True)
    assert "could not be judged: KeyError: 'unheard of'" in verdict.reason


# ------------------------------------------------------------------------------------------------------------- the key


@pytest.fixture
def executed(monkeypatch):
    """The notebooks that papermill is given for a key: how many exercises each has."""
    found, execute = [], kernel.execute

    def noting(notebook, seeds, *arguments):
        found.append(len(seeds))
        return execute(notebook, seeds, *arguments)

    monkeypatch.setattr(kernel, "execute", noting)
    return found


@pytest.mark.slow
def test_every_exercise_has_a_key(executed):
    """The answered editions, run as submissions are, do what the declared reference answers do in this process."""
    wanted = [(lesson, {exercise.name for exercise in lesson.exercises}) for lesson in LESSONS.values()]
    with LocalCrew(choose_engine(), jobs=1, key=True) as crew:
        found = make_keys(wanted, SEED, seat=crew.seat)
        assert executed == [len(EXERCISES)], "one kernel for all"
        crew.seat.close()
        again = make_keys([(START, {"largest"})], SEED, seat=crew.seat)
    assert executed[1:] == [1, 1], "where the process in the seat is gone, an ordinary kernel makes the key"
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
    assert "show_mistakes" not in text
    assert find("largest").mistakes[0].message not in text
    assert str(task.seed) not in text


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


# ------------------------------------------------------------------------------------------------------- a whole batch


class Crew:
    """Runs answers in this process."""

    isolation, seat = ("isolation: none",), None

    def run(self, batches, limits):
        for number, tasks in enumerate(batches):
            yield number, [Ran(json.dumps(driver.observe_answer(*vars(task).values()))) for task in tasks]


@pytest.fixture
def no_processes(monkeypatch):
    """Keys are made in this process, and nbval is not asked."""

    def make(wanted, secret, **_):
        return {name: key_of(name, secret) for _, names in wanted for name in names}

    monkeypatch.setattr("course_utils.grading.batch.make_keys", make)
    monkeypatch.setattr(
        "course_utils.grading.verdict._compare_in_parts",
        lambda items, _: [(item.verdict.got == item.verdict.expected, "") for item in items],
    )


def test_a_batch_has_a_row_for_each_exercise_and_goes_on_past_what_breaks(tmp_path, monkeypatch, no_processes):
    blank = source.learner(TENSOR_HOOKS.path)
    for student in ("ann", "bo"):
        hand_in(tmp_path, student, TENSOR_HOOKS, blank)
    hand_in(tmp_path, "cy", START, notebook_with(START, {"largest": find("largest").source}))
    hand_in(tmp_path, "di", START, notebook_with(START, {"largest": "def largest(tensor):\n    return None\n"}))
    (tmp_path / "ed").mkdir()
    (tmp_path / "ed" / f"{START.name}.ipynb").write_text("x")
    first = iter([OSError("the disk is full")])

    def fail_first(data):
        for error in first:
            raise error
        return read(data)

    read = batch.read_cells
    monkeypatch.setattr(batch, "read_cells", fail_first)
    result = grade(find_submissions(tmp_path, LESSONS), crew=Crew(), record=tmp_path / "no folder" / "verdicts.ipynb")
    found = {}
    for row in result.scores:
        found.setdefault(row.student, set()).add((row.stage, row.points, row.look_by_hand, row.reason))
    full = "it could not be graded: OSError: the disk is full"
    assert found["ann"] == {("not graded", 0, True, full)}
    assert found["bo"] == {("not attempted", 0, False, "")}
    assert found["cy"] == {("passed", 1, False, "")}
    assert found["di"] == {("wrong type or structure", 0, False, "")}
    ((stage, _, by_hand, reason),) = found["ed"]
    assert (stage, by_hand) == ("not graded", True)
    assert "the file could not be read: it is not complete JSON" in reason
    assert "verdict notebook cannot be written: No such file" in result.problem
    assert result.isolation == ["isolation: none"]


def test_without_keys_a_person_looks(tmp_path, monkeypatch, no_processes):
    hand_in(tmp_path, "ann", START, notebook_with(START, {"largest": find("largest").source}))
    monkeypatch.setattr("course_utils.grading.batch.make_keys", lambda *_, **__: {}["lost"])
    (row,) = grade(find_submissions(tmp_path, LESSONS), crew=Crew()).scores
    assert (row.stage, row.look_by_hand, row.reason) == ("not graded", True, "there is no key: KeyError: 'lost'")


def test_ctrl_c_keeps_what_is_done(tmp_path):
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


def test_a_lesson_without_exercises_has_a_row(tmp_path):
    submission = Submission(
        "ann", "x", hand_in(tmp_path, "ann", START, source.learner(START.path)), Lesson(START.path, ())
    )
    (row,) = grade([submission], crew=Crew()).scores
    assert (row.reason, row.look_by_hand) == ("this lesson has no exercises", False)


# -------------------------------------------------------------------------------------------------------- a second run


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
    ran = []

    class Noting(Crew):
        def run(self, batches, limits):
            ran.append(len(batches))
            return super().run(batches, limits)

    def again():
        memory = GradingMemory(tmp_path / "report")
        return grade(find_submissions(tmp_path / "class", LESSONS), crew=Noting(), memory=memory)

    (tmp_path / "report").mkdir()
    for student in ("ann", "bo"):
        hand_in(tmp_path / "class", student, START, notebook_with(START, {"largest": RIGHT}))
    first, second = again(), again()
    assert (first.known, second.known, ran) == (0, 2, [2])
    assert second.scores == first.scores
    assert second.isolation == ["isolation: none"]
    hand_in(tmp_path / "class", "bo", START, notebook_with(START, {"largest": WRONG}))
    third = again()
    assert ([row.points for row in third.scores], ran) == ([1, 0], [2, 1])
    assert [row.cause for row in again().scores] == ["", find("largest").mistakes[0].message]
    for path in (tmp_path / "report" / FOLDER).glob("[0-9a-f]*.json"):
        path.write_text("[{}]")
    assert (again().known, ran) == (0, [2, 1, 2]), "what cannot be read any more is graded again"
    monkeypatch.setattr("course_utils.grading.resume.digest_course", lambda: "another course")
    assert (again().known, ran) == (0, [2, 1, 2, 2])


def test_what_cannot_be_kept_costs_no_score(tmp_path, monkeypatch, no_processes):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    hand_in(tmp_path, "ann", START, notebook_with(START, {"largest": RIGHT}))
    memory = GradingMemory(tmp_path)
    monkeypatch.setattr("course_utils.grading.resume.write_whole", refuse)
    result = grade(find_submissions(tmp_path, LESSONS), crew=Crew(), memory=memory)
    assert [row.points for row in result.scores] == [1]
    assert result.problem == "what was graded cannot be kept for a second run: No space left on device"


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_the_same_command_goes_on(tmp_path):
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


# ------------------------------------------------------------------------------------------------------------ commands


@pytest.mark.parametrize(
    ("make", "arguments", "sentence"),
    [
        (None, [], "give a folder"),
        (None, ["class", "--check", "work"], "give a folder"),
        (None, ["gone"], "does not exist"),
        ("text", ["here"], "is not a folder"),
        ("folder", ["--check", "here"], "there is no lesson in here"),
        ("folder", ["--check", "here", "--lesson", "77"], "there is no lesson 77; there is 00, 01"),
    ],
)
def test_what_cannot_be_run_gets_one_sentence(make, arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if make:
        (tmp_path / "here").mkdir() if make == "folder" else (tmp_path / "here").write_text("")
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_help_says_what_the_exit_status_means(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "Exit status: 0 all graded, 1 some need a look by hand" in capsys.readouterr().out


@pytest.fixture
def in_process(monkeypatch, no_processes):
    """The commands start no process."""
    monkeypatch.setattr("course_utils.grading.grade._make_crew", lambda *_: contextlib.nullcontext(Crew()))
    monkeypatch.setattr("course_utils.grading.batch.LocalCrew", lambda *_, **__: contextlib.nullcontext(Crew()))
    monkeypatch.setattr("course_utils.grading.verdict.Comparer", contextlib.nullcontext)


def test_a_class_is_graded_and_every_name_on_the_roster_has_rows(tmp_path, monkeypatch, capsys, in_process):
    monkeypatch.chdir(tmp_path)
    hand_in(tmp_path / "class", "ann", START, notebook_with(START, {"largest": WRONG}))
    assert main(["class", "--lesson", "00"]) == 0
    assert "ann      0 of 1" in capsys.readouterr().out
    page = (tmp_path / "report" / "students" / "ann.html").read_text(encoding="utf-8")
    assert "Likely cause" in page
    assert "Read again" in page
    hand_in(tmp_path / "class", "guest", START, notebook_with(START, {"largest": RIGHT}))
    hand_in(tmp_path / "class", "guest", TENSOR_HOOKS, source.learner(TENSOR_HOOKS.path))
    put(tmp_path, "roster.csv", text="student\nann\nzoe\n")
    assert main(["class", "--roster", "roster.csv", "--lesson", "0"]) == 1
    printed = capsys.readouterr()
    assert "1 of 3 were graded before" in printed.out
    assert "isolation: none" in printed.out
    rows = {row["student"]: row for row in read_scores("report")}
    assert list(rows) == ["ann", "guest", "zoe"]
    assert {row["lesson"] for row in rows.values()} == {START.name}
    assert (rows["zoe"]["reason"], rows["zoe"]["look_by_hand"]) == (NOT_HANDED_IN, False)
    assert (rows["guest"]["reason"], rows["guest"]["look_by_hand"]) == (NOT_ON_ROSTER, True)
    assert not rows["ann"]["look_by_hand"]


def test_what_is_found_wrong_before_the_work_gets_one_sentence(tmp_path, monkeypatch, capsys, in_process):
    monkeypatch.chdir(tmp_path)
    hand_in(tmp_path / "class", "ann", START, source.learner(START.path))
    put(tmp_path, "taken", "class.zip", text="PK")
    (tmp_path / "empty").mkdir()
    for arguments, sentence in (
        (["empty"], "nothing to grade in empty"),
        (["class.zip"], "not a zip that can be read"),
        (["class", "--roster", "gone.csv"], "gone.csv cannot be read: No such file"),
        (["class", "--roster", "taken", "--report", "taken"], "cannot be written to taken"),
    ):
        assert main(arguments) == 2
        assert sentence in capsys.readouterr().err
    monkeypatch.setattr("course_utils.grading.report.write_pages", lambda *_: (tmp_path / "taken" / "x").touch())
    assert run(tmp_path / "class") == 2
    assert "report cannot be written" in capsys.readouterr().err

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("course_utils.grading.submissions.find_submissions", interrupted)
    assert run(tmp_path / "class") == 2
    assert "stopped; nothing was written" in capsys.readouterr().err


def test_a_learners_own_score_by_the_same_rule(tmp_path, capsys, in_process):
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
        "lessons = read_lessons(read=read_declarations)\n"
        "print('torch' in sys.modules, 'rfc3987_syntax' in sys.modules)\n"
        "print(sum(len(lesson.exercises) for lesson in lessons.values()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", str(len(EXERCISES))]
