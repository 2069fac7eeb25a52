"""The zip for Gradescope: its parts, its results, and that it never grades behind weaker walls in silence."""

import zipfile
from dataclasses import asdict

import pytest
from grading_samples import START, TENSOR_HOOKS, give, grade_here, hand_in, handed_out, notebook_with, put

from course_utils.exercises.engine import find
from course_utils.grading.gradescope import TOO_WEAK, grade_submission, to_results, write_bundle
from course_utils.grading.report import Score
from course_utils.grading.sandbox.walls import Isolation

SCORES = [
    Score("ann", "01_a", "f", 2, 2, "passed", look_by_hand=False),
    Score("ann", "01_a", "g", 0, 1, "wrong value", "It was 1.", "A slip.", look_by_hand=False),
]
ROWS = [asdict(score) for score in SCORES]


def test_a_test_an_exercise_and_a_hidden_one_for_the_instructor():
    results = to_results(ROWS, ["isolation: Landlock 7; MISSING: namespaces"])
    assert results["score"] == 2
    right, wrong, sandbox = results["tests"]
    assert (right["name"], right["score"], right["max_score"], right["status"]) == ("01_a: f", 2, 2, "passed")
    assert (wrong["status"], wrong["output"]) == ("failed", "wrong value\nIt was 1.\nLikely cause: A slip.")
    assert (sandbox["visibility"], sandbox["status"]) == ("hidden", "passed")
    assert "MISSING: namespaces" in sandbox["output"]


@pytest.mark.parametrize("line", ["isolation: a process for each exercise", "isolation: deadlines; MISSING: Landlock"])
def test_without_a_wall_around_the_answers_nothing_is_graded_unless_the_instructor_says_so(line):
    results = to_results(ROWS, [line])
    assert (results["score"], results["output"], len(results["tests"])) == (0, TOO_WEAK, 1)
    accepted = to_results(ROWS, [line], accept_weaker=True)
    assert (accepted["score"], accepted["tests"][-1]["status"]) == (2, "failed")


@pytest.mark.parametrize("wall", [Isolation(root=True), Isolation(landlock=7)], ids=["namespaces", "Landlock"])
def test_behind_a_wall_that_the_sandbox_itself_names_answers_are_graded(wall):
    assert to_results(ROWS, [wall.words])["score"] == 2


def test_the_zip_has_the_course_and_two_scripts_that_may_be_run(tmp_path, capsys):
    write_bundle(tmp_path / "autograder.zip", lesson="03")
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        assert {"setup.sh", "run_autograder", "course/pyproject.toml"} <= {*archive.namelist()}
        assert archive.getinfo("run_autograder").external_attr >> 16 == 0o755
        assert archive.read("run_autograder").decode().endswith("/autograder/submission --lesson 03")
        assert [name for name in archive.namelist() if "__pycache__" in name] == []
    assert "It holds the answers" in capsys.readouterr().out


def test_scores_are_those_of_the_grader(tmp_path, monkeypatch):
    """Of one student: a mistake in the first lesson, nothing of the next, and what is no lesson."""
    grade_here(monkeypatch)
    (largest,), mistake = START.exercises, find("largest").mistakes[0]
    hand_in(tmp_path, "one", START, notebook_with(START, {largest.name: mistake.source}))
    hand_in(tmp_path, "one", TENSOR_HOOKS, handed_out(TENSOR_HOOKS))
    first, second, *_, sandbox = grade_submission(tmp_path / "one", accept_weaker=True)["tests"]
    assert (first["score"], first["max_score"], mistake.message in first["output"]) == (0, largest.points, True)
    assert (second["output"].partition("\n")[0], sandbox["output"]) == ("not attempted", "isolation: none")
    give(tmp_path, two=largest.source)
    assert grade_submission(tmp_path / "two", "00", accept_weaker=True)["score"] == largest.points
    assert grade_submission(tmp_path / "two", "00")["output"] == TOO_WEAK
    put(tmp_path, "three/notes.txt", text="hello")
    results = grade_submission(tmp_path / "three", accept_weaker=True)
    assert results["score"] == 0
    assert "there is no notebook in the folder, only notes.txt" in results["tests"][0]["output"]
