"""Whole batches: the key, nbval beside the words, what goes wrong on the way, a second run, and the commands."""

import copy
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from unittest.mock import DEFAULT, MagicMock

import nbformat
import psutil
import pytest
from grading_samples import (
    EXERCISES,
    LESSONS,
    SEED,
    START,
    TENSOR_HOOKS,
    Crew,
    answer_to,
    give,
    grade_here,
    hand_in,
    handed_out,
    judge,
    key_of,
    notebook_with,
    put,
    raw_notebook,
    read_scores,
)

from course_utils.__main__ import main
from course_utils.exercises.engine import find
from course_utils.exercises.judging import first_difference
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading import batch
from course_utils.grading.batch import STOPPED, grade
from course_utils.grading.evidence import make_task, seed_for
from course_utils.grading.grade import check_work
from course_utils.grading.resume import FOLDER, GradingMemory
from course_utils.grading.roster import NOT_HANDED_IN, NOT_ON_ROSTER
from course_utils.grading.sandbox import driver, process
from course_utils.grading.sandbox.fork import ForkEngine
from course_utils.grading.sandbox.key import ask_for_key, make_key
from course_utils.grading.sandbox.process import ProcessEngine
from course_utils.grading.sandbox.tasks import CUT, Ran
from course_utils.grading.submissions import find_submissions
from course_utils.grading.verdict import compare
from course_utils.root import ROOT, CourseError

RIGHT = "def largest(tensor):\n    return tensor.max().item()\n"
WRONG = "def largest(tensor):\n    return tensor.max()\n"
DIFFER = "nbval finds evidence and key {}, the comparison in words finds them {}".format


def judged(*evidence):
    """The scores of answers to `largest`, before nbval is asked."""
    record = {"exercise": "largest", "blank": False, "raised": None, "lost": []}
    return [judge(answer_to("largest", ""), Ran(json.dumps(record | {"cases": cases}))) for cases in evidence]


DISAGREE = [DIFFER("different", "equal"), DIFFER("equal", "different")]


@pytest.mark.parametrize(
    ("answers", "problem", "points", "words"),
    [
        ([(True, ""), (False, "")], None, [1, 0], ["", ""]),
        ([(True, ""), (None, "no pytest"), (True, "")], None, [1, 0, 1], ["", "nbval gave no verdict: no pytest", ""]),
        ([(False, ""), (True, "")] * 2, None, [0, 0] * 2, DISAGREE * 2),
        ([], KeyboardInterrupt(), [0] * 3, ["the grading was stopped"] * 3),
        ([], OSError(errno.ENOSPC, "No space left on device"), [0] * 3, ["No space left"] * 3),
    ],
)
def test_nbval_and_the_words_must_agree_or_nothing_passes_and_a_person_looks(
    answers, problem, points, words, monkeypatch
):
    """Right and wrong items in turn, compared by a process that answers what is given, or cannot start."""
    process = MagicMock()
    process.__enter__.return_value = process
    process.ask.side_effect, process.ask.return_value = problem, answers
    monkeypatch.setattr("course_utils.grading.verdict.Comparer", lambda: process)
    key = key_of("largest")
    scores = compare(judged(*[key.evidence, key.mistakes[0][1], key.evidence, key.mistakes[0][1]][: len(words)]))
    assert [score.points for score in scores] == points
    assert [score.look_by_hand for score in scores] == [bool(word) for word in words]
    assert all(word in score.reason for word, score in zip(words, scores, strict=True))
    unsure = [score.stage for score, word in zip(scores[::2], words[::2], strict=True) if word]
    assert unsure == ["not graded"] * len(unsure)


@pytest.mark.slow
def test_where_the_judge_errs_nbval_differs_and_a_person_looks(monkeypatch):
    """Differences that are planted in the evidence, and a judge that sees none: nbval itself sees all of them."""
    right = key_of("largest").evidence
    planted = [right, *(copy.deepcopy(right) for _ in range(6))]
    value = right[0]["returned"]["value"]
    planted[1][0]["returned"]["value"] = value + 1e-9
    planted[2][0]["returned"]["value"] = value + 1e-3
    planted[3][-1]["returned"] = {"type": "list", "items": [right[-1]["returned"]]}
    planted[4][0]["world"] = ["default dtype"]
    planted[5][0]["inputs"]["tensor"]["value"]["values"][0] += 1
    planted[5][0]["changed"] = {"tensor": ["value"]}
    planted[6].pop()
    seen = [score.stage for score in judged(*planted)]
    assert [stage == "passed" for stage in seen] == [True, True, False, False, False, False, False]
    monkeypatch.setattr("course_utils.grading.evidence.judge", lambda name, *_: Outcome(name, Stage.PASSED, possible=1))
    blind = compare(judged(*planted))
    assert [(score.points, score.look_by_hand) for score in blind] == [(1, False)] * 2 + [(0, True)] * 5
    assert {score.stage for score in blind[2:]} == {"not graded"}


def test_without_a_judge_nothing_passes(monkeypatch):
    monkeypatch.setattr("course_utils.grading.evidence.judge", lambda *_: {}["unheard of"])
    (score,) = judged(key_of("largest").evidence)
    assert (score.stage, score.look_by_hand, score.expected) == ("not graded", True, "")
    assert "could not be judged: KeyError: 'unheard of'" in score.reason


@pytest.mark.slow
def test_a_key_is_what_the_answers_do(monkeypatch):
    """In this process as in one that is forked from the host, or in a new one."""
    some = EXERCISES[:: len(EXERCISES) // 3]
    wanted = {each.name: (each.name, seed_for(each, SEED)) for each in some}
    with ForkEngine() as engine:
        found = ask_for_key([*wanted.values()], engine.key)
        again = ask_for_key([wanted["largest"]], engine.key)
    assert again == {"largest": found["largest"]}, "a host makes it once, then another process"
    monkeypatch.setattr("course_utils.grading.sandbox.key.COMMAND", (sys.executable, "-c", "exit(1)"))
    with pytest.raises(subprocess.CalledProcessError):
        ask_for_key([wanted["largest"]])
    for exercise in some:
        key, evidence = found[exercise.name], exercise.observe(exercise.reference, seed_for(exercise, SEED), limit=300)
        assert not key.reason, exercise.name
        assert first_difference(key.evidence, json.loads(json.dumps(evidence)), exercise.name) is None
        assert [message for message, _ in key.mistakes] == [mistake.message for mistake in exercise.mistakes]


def test_an_answer_of_the_course_that_does_not_work_here_is_said(monkeypatch):
    monkeypatch.setattr(type(find("largest")), "observe", lambda *_: 1 / 0)
    (key,) = json.loads(make_key(json.dumps([("largest", 1)]).encode())).values()
    assert key == {"reason": "the course's own answer did not work here: ZeroDivisionError: division by zero"}


def test_a_process_that_does_not_start_is_nobodys_fault(monkeypatch):
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", "import sys; sys.exit('no torch')"))
    answer = answer_to("largest", "def largest(t): return 1")
    (ran,) = ProcessEngine().run([make_task(answer, SEED)])
    assert (judge(answer, ran).stage, "did not start" in ran.ended) == ("not graded", True)


@pytest.fixture
def no_processes(monkeypatch):
    grade_here(monkeypatch)


def grade_folder(folder, **options):
    return grade(find_submissions(folder, LESSONS), crew=Crew(), **options)


def test_a_batch_has_a_row_for_each_exercise_and_goes_on_past_what_breaks(tmp_path, monkeypatch, no_processes):
    for student in ("ann", "bo"):
        hand_in(tmp_path, student, TENSOR_HOOKS, handed_out(TENSOR_HOOKS))
    give(tmp_path, cy=RIGHT, di="def largest(tensor):\n    return []\n")
    put(tmp_path, f"ed/{START.name}.ipynb", text="x")
    failing = MagicMock(wraps=batch.read_notebook, side_effect=[OSError("the disk is full"), *[DEFAULT] * 4])
    monkeypatch.setattr(batch, "read_notebook", failing)
    result = grade_folder(tmp_path)
    assert len(result.scores) == 2 * len(TENSOR_HOOKS.exercises) + 3
    found = {}
    for row in result.scores:
        found.setdefault(row.student, set()).add((row.stage, row.points, row.look_by_hand, row.reason))
    ((*unread, reason),) = found.pop("ed")
    assert unread == ["unreadable", 0, True]
    assert reason.startswith("the file could not be read: it is not complete JSON")
    assert found == {
        "ann": {("not graded", 0, True, "it could not be graded: OSError: the disk is full")},
        "bo": {("not attempted", 0, False, "")},
        "cy": {("passed", 1, False, "")},
        "di": {("wrong type or structure", 0, False, "")},
    }
    assert result.isolation == ["isolation: none"]


FEW = TENSOR_HOOKS.exercises[:2]
FIRST_TRY = nbformat.v4.new_code_cell("def largest(tensor):\n    return 0", metadata={"tags": ["answer"]})
AS_A_WHOLE = {
    "assigned": ["def mine(tensor): return tensor.max().item()", "largest = mine"],
    "a better try": [FIRST_TRY, RIGHT],
    "a table": ["table = {}", "table['max'] = 'max'", "def largest(t): return getattr(t, table['max'])().item()"],
    "wrong": ["print(1)", "largest = min"],
    "nothing": ["print('largest')"],
    "slow": ["import time\nwhile True: time.sleep(0.01)", "how = []\nhow.append('max')", WRONG],
    "forged": ["import json", "class Text(str): pass", WRONG, "raise SystemExit"],
}


def test_the_better_of_two_results_counts_and_it_is_said(tmp_path, monkeypatch, no_processes):
    """What an answer does by itself, and what bears its name when the whole notebook has been run."""
    monkeypatch.setattr(driver, "CELL_SECONDS", 0.3)
    for student, cells in AS_A_WHOLE.items():
        put(tmp_path, f"{student}/{START.name}.ipynb", text=raw_notebook(*cells))
    rows = {row.student: row for row in grade_folder(tmp_path).scores}
    better = {name: (row.look_by_hand, row.sentence) for name, row in rows.items() if row.points}
    said = "By itself the answer did not pass; with the whole notebook run before it, it did."
    assert better == dict.fromkeys(("assigned", "a better try", "a table"), (False, said))
    assert rows["wrong"].stage != "not attempted"
    assert rows["wrong"].sentence.endswith("This was seen when the whole notebook was run.")
    assert [rows[name].stage for name in ("nothing", "forged")] == ["not attempted", "wrong type or structure"]
    assert rows["slow"].look_by_hand
    assert re.search(f"`import time` raised .*{CUT}", rows["slow"].reason)
    assert Crew.given == [4, 7], "by themselves, and as a whole"


def test_who_keeps_the_judge_busy_has_no_more_of_it(tmp_path, monkeypatch, no_processes):
    """So that the evidence of one notebook with many exercises does not keep a class waiting, each up to its limit."""
    hand_in(tmp_path, "ann", TENSOR_HOOKS, notebook_with(TENSOR_HOOKS, {each.name: each.source for each in FEW}))
    monkeypatch.setattr(batch, "JUDGE_SECONDS", 0.0)
    rows = [row for row in grade_folder(tmp_path).scores if row.exercise in [each.name for each in FEW]]
    assert [row.stage for row in rows] == ["passed", "not graded"]
    assert rows[1].reason.endswith("to judge the answers before this one took too long")


def test_a_desk_that_was_given_is_open_afterwards_for_who_compares_texts(no_processes):
    desk = MagicMock()
    grade([], crew=Crew(), desk=desk)
    assert not desk.__exit__.called


def test_who_stops_the_grading_before_whole_notebooks_ran_is_told(tmp_path, monkeypatch, no_processes):
    put(tmp_path, f"class/ann/{START.name}.ipynb", text=raw_notebook(*AS_A_WHOLE["a better try"]))
    interrupted = MagicMock(wraps=batch.make_notebook_task, side_effect=KeyboardInterrupt)
    monkeypatch.setattr(batch, "make_notebook_task", interrupted)
    graded = grade_folder(tmp_path / "class", memory=GradingMemory(tmp_path / "report"))
    (row,) = graded.scores
    assert (graded.stopped, row.points, row.look_by_hand, row.reason) == (True, 0, True, STOPPED)


def test_who_stops_the_grading_while_files_are_read_is_told(tmp_path, monkeypatch, no_processes):
    give(tmp_path, ann=RIGHT, bo=RIGHT, cy=RIGHT)
    interrupted = MagicMock(wraps=batch.read_submission, side_effect=[DEFAULT, KeyboardInterrupt])
    monkeypatch.setattr(batch, "read_submission", interrupted)
    graded = grade_folder(tmp_path)
    assert (graded.stopped, [row.reason for row in graded.scores]) == (True, [STOPPED] * 3)


def test_without_keys_a_person_looks(tmp_path, monkeypatch, no_processes):
    give(tmp_path, ann=RIGHT)
    monkeypatch.setattr(batch, "ask_for_key", lambda *_: {}["lost"])
    (row,) = grade_folder(tmp_path).scores
    assert (row.stage, row.look_by_hand, row.reason) == ("not graded", True, "there is no key: KeyError: 'lost'")


def test_the_secret_lives_as_long_as_a_grading(tmp_path):
    """A stopped run goes on with its secret; after a complete one, students have seen inputs, and it is another."""
    secrets = []
    for complete in (False, True, False):
        with GradingMemory(tmp_path) as memory:
            secrets.append((memory.secret, memory.isolation))
            memory.finish(["isolation: some"], complete=complete)
    (first, none), (second, some), (third, same) = secrets
    assert (first == second, second == third, none, some, same) == (True, False, [], *[["isolation: some"]] * 2)
    assert (tmp_path / FOLDER).stat().st_mode & 0o077 == 0


def test_one_grader_at_a_time_writes_a_report_and_none_leaves_halves_of_files(tmp_path):
    halves = (".scores.csv.7.part", "students/.ann.html.7.part", f"{FOLDER}/old/.run.json.7.part")
    put(tmp_path, *halves, "verdicts.ipynb", text="{")
    put(tmp_path, "scores.csv", text="kept")
    with GradingMemory(tmp_path), pytest.raises(CourseError, match="another grading writes to"):
        GradingMemory(tmp_path)
    with GradingMemory(tmp_path), GradingMemory(tmp_path / "other"):
        found = [path for path in tmp_path.rglob("*") if path.is_file() and FOLDER not in path.parts]
    assert found == [tmp_path / "scores.csv"]
    assert not (tmp_path / FOLDER / "old").exists()


def test_what_was_graded_is_not_run_again_unless_the_file_or_the_course_changed(tmp_path, monkeypatch, no_processes):
    def again():
        return grade_folder(tmp_path / "class", memory=GradingMemory(tmp_path / "report"))

    (tmp_path / "report").mkdir()
    give(tmp_path / "class", ann=RIGHT, bo=RIGHT)
    first, second = again(), again()
    assert (first.known, second.known, Crew.given) == (0, 2, [2])
    assert (second.scores, second.isolation) == (first.scores, ["isolation: none"])
    give(tmp_path / "class", bo=WRONG)
    assert ([row.points for row in again().scores], Crew.given) == ([1, 0], [2, 1])
    assert [row.cause for row in again().scores] == ["", find("largest").mistakes[0].message]
    for path in (tmp_path / "report" / FOLDER).glob("*/[0-9a-f]*.json"):
        path.write_text("[{}]")
    assert (again().known, Crew.given) == (0, [2, 1, 2]), "what cannot be read any more is graded again"
    monkeypatch.setattr("course_utils.grading.resume.ROOT", tmp_path / "course")
    monkeypatch.setattr("course_utils.grading.resume.ANSWERS", tmp_path / "course" / "answers")
    all_scores = "course_utils/vision/a.py", "course_utils/assets/b.svg"
    this_lesson = f"notebooks/{START.name}.ipynb", "course_utils/lessons/lesson_00.py", "answers/largest.md"
    for number, part in enumerate((*all_scores, *this_lesson), 4):
        put(tmp_path / "course", part, text="")
        assert (again().known, again().known, len(Crew.given)) == (0, 2, number), part
    for part in ("notebooks/03_other.ipynb", "course_utils/lessons/lesson_03.py", "answers/hooked.md"):
        put(tmp_path / "course", part, text="")
        assert again().known == 2, f"{part} is of another lesson"
    anew = GradingMemory(tmp_path / "report", "bo")
    assert grade_folder(tmp_path / "class", memory=anew).known == 1


def test_what_cannot_be_kept_costs_no_score(tmp_path, monkeypatch, no_processes):
    give(tmp_path, ann=RIGHT)
    memory, full = GradingMemory(tmp_path), OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("course_utils.grading.resume.write_whole", MagicMock(side_effect=full))
    result, kept = grade_folder(tmp_path, memory=memory), "what was graded cannot be kept for a second run"
    assert ([row.points for row in result.scores], result.problem) == ([1], f"{kept}: No space left on device")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "end", "students"),
    [("auto", signal.SIGINT, 6), ("auto", signal.SIGKILL, 4), ("process", signal.SIGKILL, 2)],  # which imports torch
)
def test_whatever_ends_the_command_the_same_command_goes_on_and_nothing_is_left(
    engine, end, students, tmp_path, monkeypatch
):
    folder, report, temporary = (tmp_path / name for name in ("class", "report", "temporary"))
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    slow = "import time\ndef largest(tensor):\n    time.sleep(0.5)\n    return tensor.max().item()\n"
    give(folder, **{f"s{number:02}": slow for number in range(students)})
    command = [sys.executable, "-m", "course_utils", "grade", "--exit-zero", str(folder), "--report", str(report)]
    command += ["--jobs", "1", "--engine", engine]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while len(list(report.glob(f"{FOLDER}/*/*.json"))) <= students // 2 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    started = psutil.Process(process.pid).children(recursive=True)
    with pytest.raises(CourseError, match="another grading"):
        GradingMemory(report)
    process.send_signal(end)
    out, err = process.communicate(timeout=120)
    assert not re.search("Traceback|Warning", err), err
    if end != signal.SIGKILL:
        assert (process.returncode, "the same command goes on from here" in out) == (1, True), err
        assert 2 <= sum(row["points"] for row in read_scores(report)) < 6
        assert list(temporary.iterdir()) == []
    assert psutil.wait_procs(started, timeout=10)[1] == []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "were graded before" in done.stdout
    assert [row["points"] for row in read_scores(report)] == [1] * students
    assert [*temporary.iterdir(), *report.rglob("*.part")] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gone"], "gone does not exist"),
        (["taken"], "taken is not a zip that can be read: File is not a zip file"),
        (["class", "--lesson", "77"], "There is no lesson 77; there is 00, 01"),
        (["empty"], "nothing to grade in empty"),
        (["class.zip"], "not a zip that can be read"),
        (["class", "--roster", "gone.csv"], "gone.csv cannot be read: No such file"),
        (["class", "--roster", "taken"], "the roster taken begins with PK"),
        (["class", "--report", "taken"], "cannot be written to taken"),
        (["class", "--report", "full"], "report cannot be written to full: File exists"),
        (["class", "--report", f"{ROOT}/course_utils/x"], "course_utils/x is in a library's folder"),
        *((["class", "--report", end], "Stopped. The same command") for end in ("SIGINT", "SIGTERM", "SIGHUP")),
    ],
)
def test_what_cannot_be_run_gets_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys, no_processes):
    monkeypatch.chdir(tmp_path)
    hand_in(tmp_path / "class", "ann", START, handed_out(START))
    put(tmp_path, "taken", "class.zip", "full/students", text="PK")
    (tmp_path / "empty").mkdir()

    def find(*given):
        if arguments[-1].startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, arguments[-1]))
        return find_submissions(*given)

    monkeypatch.setattr("course_utils.grading.submissions.find_submissions", find)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` ignores it
    assert main(["grade", *arguments]) == (130 if arguments[-1].startswith("SIG") else 2)
    signal.signal(signal.SIGHUP, before)
    printed = capsys.readouterr()
    assert (sentence in printed.err.splitlines()[-1], printed.out) == (True, "")


def test_a_class_is_graded_and_every_name_on_the_roster_has_rows(tmp_path, monkeypatch, capsys, no_processes):
    monkeypatch.chdir(tmp_path)
    give(tmp_path / "class", ann=WRONG)
    assert main(["grade", "class", "--lesson", "00"]) == 0
    assert "ann      0 of 1" in capsys.readouterr().out
    page = (tmp_path / "report" / "students" / "ann.html").read_text(encoding="utf-8")
    assert re.search(r"Likely cause[\s\S]*A hint:", page)
    give(tmp_path / "class", guest=RIGHT)
    hand_in(tmp_path / "class", "guest", TENSOR_HOOKS, handed_out(TENSOR_HOOKS))
    put(tmp_path, "roster.csv", text="E-mail;student\n=a@x;ann\nz@x;zoe\n")
    command = ["grade", "class", "--roster", "roster.csv", "--lesson", "0"]
    assert [main(command), main([*command, "--exit-zero"])] == [1, 0]
    words = r"isolation: none\n[\s\S]*1 of 3 were graded before[\s\S]*\nTo look at by hand: 1, which are listed .*\n$"
    assert re.search(words, capsys.readouterr().out)
    gradebook = (tmp_path / "report" / "gradebook.csv").read_text().splitlines()
    assert gradebook == ["E-mail,student,00_start_here,total", "'=a@x,ann,0,0", "z@x,zoe,,"]
    assert [(row["student"], row["lesson"], row["reason"], row["look_by_hand"]) for row in read_scores("report")] == [
        ("ann", START.name, "", False),
        ("guest", START.name, NOT_ON_ROSTER, True),
        ("zoe", START.name, NOT_HANDED_IN, False),
    ]


def test_a_learners_own_score_by_the_same_rule(tmp_path, capsys, no_processes):
    give(tmp_path, mine=WRONG)
    before = sorted(tmp_path.rglob("*"))
    assert check_work(tmp_path / "mine") == 0
    printed = capsys.readouterr().out
    wanted = ("largest: not yet (wrong type or structure)", find("largest").mistakes[0].message, "total: 0 of 1")
    assert [each in printed for each in (*wanted, "seed")] == [True, True, True, False]
    with pytest.raises(CourseError, match="there is no lesson in"):
        check_work(tmp_path / "nobody")
    put(tmp_path, lost := f"mine/{TENSOR_HOOKS.name}.ipynb", text="x")
    assert check_work(tmp_path / "mine", "01") == 1
    assert "scale_gradient: no score\n    the file could not be read" in capsys.readouterr().out
    assert [*before, tmp_path / lost] == sorted(tmp_path.rglob("*")), "nothing else is written"


@pytest.mark.slow
def test_the_grader_and_who_hands_in_import_no_torch_and_the_report_no_matplotlib(tmp_path):
    """Its import takes longer than the grading of ten notebooks; only the hosts and the key's kernel need it."""
    code = """
import pathlib, sys
import course_utils.grading.batch, course_utils.grading.submit
from course_utils.grading.submissions import read_lessons
from course_utils.grading.report import Score, write_pages
found = read_lessons().values()
write_pages([Score('ann', '00_start_here', 'largest', 0, 1, 'raised', cause='x')], pathlib.Path(sys.argv[1]))
course_utils.grading.submit.submit('Ann', False, pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[1]))
heavy = {'torch', 'matplotlib', 'nbformat', 'jupytext'} & sys.modules.keys()
print('loaded:', *heavy, sum(len(each.exercises) for each in found))
"""
    put(tmp_path, f"work/{START.name}.ipynb", text=raw_notebook(RIGHT))
    command = [sys.executable, "-c", code, tmp_path, tmp_path / "work"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == f"loaded: {len(EXERCISES)}"
    assert (tmp_path / "Ann.zip").is_file()
