"""The lessons in nbgrader: what is written for it, and what nbgrader itself makes of it (extra `nbgrader`)."""

import ast
import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course_utils.authoring import build, source
from course_utils.authoring.nbgrader import BEGIN, END, export, make_assignment, mark_solution
from course_utils.exercises.engine import exercises_of, find
from course_utils.root import ROOT

(LESSON,) = source.choose(["01"])
WITH_EXERCISES = [path for path in source.sources() if exercises_of(source.number_of(path))]
pytestmark = pytest.mark.slow
RIGHT, WRONG = "record_gradient", "scale_gradient"


def cleared(marked):
    """What nbgrader leaves of a marked answer."""
    lines, inside = [], False
    for line in marked.splitlines():
        if line.strip() == BEGIN:
            inside = True
            lines.append(line.replace(BEGIN, "..."))
        if not inside:
            lines.append(line)
        inside = inside and line.strip() != END
    return "\n".join(lines)


def test_marks_enclose_what_the_skeleton_lacks():
    skeleton = 'class Tool:\n    """Task."""\n\n    def use(self, x): ...\n'
    answer = (
        'class Tool:\n    """Task."""\n\n    made = 0\n\n    def use(self, x):\n        y = x\n        return y\n\n'
        "    @staticmethod\n    def help():\n        return 1\n"
    )
    marked = mark_solution(skeleton, answer)
    assert cleared(marked) == 'class Tool:\n    """Task."""\n\n    ...\n\n    def use(self, x):\n        ...\n\n    ...'
    assert marked.replace(BEGIN, "").replace(END, "").split() == answer.split()


@pytest.mark.parametrize("lesson", WITH_EXERCISES, ids=lambda path: path.stem)
def test_every_exercise_has_an_answer_and_a_test_with_its_points(lesson):
    exercises = exercises_of(source.number_of(lesson))
    notebook = make_assignment(lesson, exercises)
    nbformat.validate(notebook)
    marked = {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}
    assert len(marked) == 2 * len(exercises)
    others = [cell for cell in notebook.cells if "nbgrader" not in cell.metadata]
    assert [cell for cell in source.learner(lesson).cells if cell in others] == others
    skeletons = source.answer_cells(source.learner(lesson))
    for exercise in exercises:
        answer, check = marked[exercise.name], marked[f"{exercise.name}-check"]
        flags = [[cell.metadata.nbgrader[each] for each in ("solution", "grade", "locked")] for cell in (answer, check)]
        assert flags == [[True, False, False], [False, True, True]]
        assert check.metadata.nbgrader.points == exercise.points
        assert f"check({exercise.name})" in check.source
        assert ast.dump(ast.parse(answer.source)) == ast.dump(ast.parse(exercise.source)), "marks are comments"
        left, wanted = (ast.parse(code).body[0] for code in (cleared(answer.source), skeletons[exercise.name].source))
        assert ast.get_docstring(left) == ast.get_docstring(wanted)
        signatures = [
            {each.name: ast.dump(each.args) for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
            for tree in (left, wanted)
        ]
        assert signatures[0] == signatures[1]
        assert says_not_attempted(exercise.name, cleared(answer.source))


def says_not_attempted(name, code):
    namespace = dict(vars(sys.modules[find(name).reference.__module__]))
    exec(code, namespace)
    return "not attempted" in str(find(name).check(namespace[name], 0))


def test_an_own_configuration_is_kept(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text("mine\n")
    written = export(tmp_path)
    assert (tmp_path / "nbgrader_config.py").read_text() == "mine\n"
    assert [path.parent.name for path in written[1:]] == [path.stem for path in WITH_EXERCISES]


# ------------------------------------------------------------------------------------------------------ nbgrader itself


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """An nbgrader course with one lesson: released, handed in by two students, and autograded."""
    if importlib.util.find_spec("nbgrader") is None:
        pytest.skip("nbgrader is not installed: pip install 'course-utils[nbgrader]'")
    folder = tmp_path_factory.mktemp("nbgrader")
    name = LESSON.stem
    export(folder)
    run(folder, "nbgrader", "generate_assignment", name)
    released = folder / "release" / name / f"{name}.ipynb"
    answers = {exercise.name: exercise.source for exercise in exercises_of(1)}
    some = {RIGHT: answers[RIGHT], WRONG: f"def {WRONG}(tensor, factor):\n    tensor.data *= factor\n"}
    for student, given in (("ada", answers), ("bob", some)):
        path = folder / "submitted" / student / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(source.put_answers(nbformat.read(released, as_version=4), given, name), path)
    run(folder, "nbgrader", "autograde", name)
    return folder


def run(folder, *command):
    environment = build.kernel_environment(folder) | {"PYTHONPATH": str(ROOT), "HOME": os.fspath(folder)}
    environment["JUPYTER_CONFIG_DIR"] = str(folder / "jupyter")
    # nbgrader starts `alembic` by its name, so that it has to be on the path even if this environment is not.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nbgrader_hands_out_skeletons(course):
    notebook = nbformat.read(course / "release" / LESSON.stem / f"{LESSON.stem}.ipynb", as_version=4)
    texts = "\n".join(cell.source for cell in notebook.cells)
    assert "SOLUTION" not in texts
    assert "HIDDEN" not in texts
    for name, cell in source.answer_cells(notebook).items():
        assert says_not_attempted(name, cell.source)


def test_nbgrader_gives_the_scores_that_our_grader_gives_and_shows_what_check_says(course):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        theirs = {
            (student, score.name.removesuffix("-check")): score.score
            for student in ("ada", "bob")
            for notebook in book.find_submission(LESSON.stem, student).notebooks
            for score in notebook.grades
        }
    run(course, "course_utils.grading", "submitted")
    with open(course / "report" / "scores.csv", newline="") as file:
        assert {(row["student"], row["exercise"]): float(row["points"]) for row in csv.DictReader(file)} == theirs
    assert all(theirs["ada", exercise.name] == exercise.points for exercise in exercises_of(1))
    assert {name for (student, name), points in theirs.items() if student == "bob" and points} == {RIGHT}
    path = course / "autograded" / "bob" / LESSON.stem / f"{LESSON.stem}.ipynb"
    cells = {
        cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in nbformat.read(path, as_version=4).cells
    }
    errors = [each for each in cells[f"{WRONG}-check"].outputs if each.output_type == "error"]
    assert f"{WRONG}: not yet" in "\n".join(errors[0].traceback)
