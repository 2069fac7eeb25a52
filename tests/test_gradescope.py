"""The zip for Gradescope: its parts, its results, and that it never grades behind weaker walls in silence."""

import zipfile

import pytest
from grading_samples import START, put, read_scores

from course_utils.exercises.engine import exercises_of
from course_utils.grading.grade import run
from course_utils.grading.gradescope import TOO_WEAK, grade_submission, to_results, write_bundle

ROWS = [
    {"lesson": "01_a", "exercise": "f", "points": 2, "possible": 2, "stage": "passed", "sentence": "", "cause": ""},
    {
        "lesson": "01_a",
        "exercise": "g",
        "points": 0,
        "possible": 1,
        "stage": "wrong value",
        "sentence": "It was 1.",
        "cause": "A slip.",
    },
]
ROWS = [row | {"look_by_hand": False, "reason": ""} for row in ROWS]


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


def test_the_zip_has_the_course_and_two_scripts_that_may_be_run(tmp_path, capsys):
    write_bundle(tmp_path / "autograder.zip", lesson="03")
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        assert {"setup.sh", "run_autograder", "course/pyproject.toml"} <= {*archive.namelist()}
        assert archive.getinfo("run_autograder").external_attr >> 16 == 0o755
        assert archive.read("run_autograder").decode().endswith("/autograder/submission --lesson 03")
        assert [name for name in archive.namelist() if "__pycache__" in name] == []
    assert "It holds the answers" in capsys.readouterr().out


@pytest.mark.slow
def test_scores_are_those_of_make_grade(tmp_path, capsys):
    """Of the first lesson's exercise: a right answer, and a mistake."""
    (largest,) = [each for each in exercises_of(0) if each.name == "largest"]
    for number, source in enumerate((largest.source, largest.mistakes[0].source)):
        folder = tmp_path / f"{number}" / "one"
        put(tmp_path / f"{number}", f"one/{START.name}.py", text=f"# %%\nimport torch\n\n{source}")
        run(tmp_path / f"{number}", tmp_path / f"report{number}", exit_zero=True)
        wanted = [(row["points"], row["possible"]) for row in read_scores(tmp_path / f"report{number}")]
        results = grade_submission(folder)
        assert [(each["score"], each["max_score"]) for each in results["tests"][:-1]] == wanted
        assert results["score"] == (0 if number else largest.points)


@pytest.mark.slow
def test_a_submission_that_is_nothing_says_so(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("hello")
    results = grade_submission(tmp_path)
    assert results["score"] == 0
    assert "there is no notebook in the folder, only notes.txt" in results["tests"][0]["output"]
