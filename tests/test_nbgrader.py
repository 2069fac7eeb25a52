"""The lessons in nbgrader: what is written for it, and what nbgrader itself makes of it (extra `nbgrader`)."""

import ast
import importlib.util
import os
import sys
from pathlib import Path

import nbformat
import pytest
from grading_samples import read_scores
from lesson_runs import run_python

from course_utils.authoring import build, source
from course_utils.authoring.editions import BEGIN, END, make_assignment, mark_solution, write_assignments
from course_utils.exercises.engine import exercises_of
from course_utils.root import ROOT

LESSON = "01_tensor_hooks"
WRONG, UNTOUCHED = "scale_gradient", "keep_positive"
pytestmark = pytest.mark.slow


def cleared(marked):
    """What nbgrader leaves of a marked answer."""
    lines, inside = [], False
    for line in marked.splitlines():
        inside |= line.strip() == BEGIN
        lines += [line.replace(BEGIN, "...")] if not inside or line.strip() == BEGIN else []
        inside &= line.strip() != END
    return "\n".join(lines)


def test_marks_enclose_what_the_skeleton_lacks():
    skeleton = 'class Tool:\n    """Task."""\n\n    def use(self, x): ...\n'
    answer = 'class Tool:\n    """Task."""\n\n    made = 0\n\n    def use(self, x):\n        y = x\n        return y\n'
    answer += "\n    @staticmethod\n    def help():\n        return 1\n"
    marked = mark_solution(skeleton, answer)
    assert cleared(marked) == 'class Tool:\n    """Task."""\n\n    ...\n\n    def use(self, x):\n        ...\n\n    ...'
    assert marked.replace(BEGIN, "").replace(END, "").split() == answer.split()


@pytest.mark.parametrize("lesson", source.sources(), ids=lambda path: path.stem)
def test_every_exercise_has_an_answer_and_a_test_with_its_points(lesson):
    exercises, given = exercises_of(source.number_of(lesson)), source.learner(lesson).cells
    notebook = make_assignment(lesson, exercises)
    nbformat.validate(notebook)
    marked = {new.metadata.nbgrader.grade_id: new for old, new in zip(given, notebook.cells, strict=True) if old != new}
    assert marked.keys() == {f"{each.name}{part}" for each in exercises for part in ("", "-check")}
    for exercise in exercises:
        answer, check = marked[exercise.name], marked[f"{exercise.name}-check"]
        flags = [[cell.metadata.nbgrader[each] for each in ("solution", "grade", "locked")] for cell in (answer, check)]
        assert flags == [[True, False, False], [False, True, True]]
        assert check.metadata.nbgrader.points == exercise.points
        assert f"check({exercise.name})" in check.source
        assert ast.dump(ast.parse(answer.source)) == ast.dump(ast.parse(exercise.source)), "marks are comments"
        namespace = dict(exercise.namespace)
        exec(cleared(answer.source), namespace)
        assert "not attempted" in str(exercise.check(namespace[exercise.name], 0))


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """An nbgrader course with one lesson: released, handed in by a student, and autograded."""
    if importlib.util.find_spec("nbgrader") is None:
        pytest.skip("nbgrader is not installed: pip install 'course-utils[nbgrader]'")
    folder = tmp_path_factory.mktemp("nbgrader")
    write_assignments(folder)
    run(folder, "nbgrader", "generate_assignment", LESSON)
    released = nbformat.read(folder / "release" / LESSON / f"{LESSON}.ipynb", as_version=4)
    given = {exercise.name: exercise.source for exercise in exercises_of(1) if exercise.name != UNTOUCHED}
    given[WRONG] = f"def {WRONG}(tensor, factor):\n    tensor.data *= factor\n"
    build.write(source.put_answers(released, given), folder / "submitted" / "ada" / LESSON / f"{LESSON}.ipynb")
    run(folder, "nbgrader", "autograde", LESSON)
    return folder


def run(folder, *command):
    # nbgrader starts `alembic` by its name, so that it has to be on the path even if this environment is not.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run_python(ROOT, "-m", *command, cwd=folder, PATH=path, HOME=folder, JUPYTER_CONFIG_DIR=folder / "jupyter")


def test_nbgrader_hands_out_skeletons_and_an_own_configuration_is_kept(course):
    notebook = nbformat.read(course / "release" / LESSON / f"{LESSON}.ipynb", as_version=4)
    assert not [cell for cell in notebook.cells if "SOLUTION" in cell.source or "HIDDEN" in cell.source]
    assignment = source.answer_cells(make_assignment(source.choose(["01"])[0], exercises_of(1)))
    left = {name: cell.source for name, cell in source.answer_cells(notebook).items()}
    assert left == {name: cleared(cell.source) for name, cell in assignment.items()}
    (course / "nbgrader_config.py").write_text("mine\n")
    assert [path.parent.name for path in write_assignments(course)[1:]] == [path.stem for path in source.sources()]
    assert (course / "nbgrader_config.py").read_text() == "mine\n"


def test_nbgrader_gives_the_scores_that_our_grader_gives_and_shows_what_check_says(course):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        (notebook,) = book.find_submission(LESSON, "ada").notebooks
        theirs = {score.name.removesuffix("-check"): score.score for score in notebook.grades}
    run(course, "course_utils", "grade", "submitted")
    assert {row["exercise"]: row["points"] for row in read_scores(course / "report")} == theirs
    assert theirs == {each.name: each.points * (each.name not in (WRONG, UNTOUCHED)) for each in exercises_of(1)}
    graded = nbformat.read(course / "autograded" / "ada" / LESSON / f"{LESSON}.ipynb", as_version=4)
    (cell,) = [each for each in graded.cells if each.metadata.get("nbgrader", {}).get("grade_id") == f"{WRONG}-check"]
    assert f"{WRONG}: not yet" in "\n".join(line for each in cell.outputs for line in each.get("traceback", []))
