"""The lessons in nbgrader: what is written for it, and what nbgrader itself makes of it (extra `nbgrader`)."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course_utils.authoring import build, nbgrader, source
from course_utils.authoring.nbgrader import (
    BEGIN,
    END,
    export,
    make_assignment,
    mark_solution,
)
from course_utils.exercises.engine import exercises_of, find, is_blank
from course_utils.grading.batch import grade
from course_utils.grading.lessons import read_lessons
from course_utils.grading.submissions import find_submissions
from course_utils.root import CourseError, has_answers

LESSONS = read_lessons()
LESSON = LESSONS["01_tensor_hooks"]
WITH_EXERCISES = [lesson for lesson in LESSONS.values() if lesson.exercises]


def cleared(source):
    """What nbgrader leaves of a marked answer."""
    lines, inside = [], False
    for line in source.splitlines():
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
    assert cleared(marked) == (
        'class Tool:\n    """Task."""\n\n    ...\n\n    def use(self, x):\n        ...\n\n    ...'
    )
    assert marked.replace(BEGIN, "").replace(END, "").split() == answer.split()


@pytest.mark.parametrize("lesson", WITH_EXERCISES, ids=lambda lesson: lesson.name)
def test_every_exercise_has_an_answer_and_a_test_with_its_points(lesson):
    notebook = make_assignment(lesson.path, lesson.exercises)
    marked = {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}
    assert len(marked) == 2 * len(lesson.exercises)
    skeletons = source.answer_cells(source.learner(lesson.path))
    for exercise in lesson.exercises:
        answer, check = marked[exercise.name], marked[f"{exercise.name}-check"]
        assert answer.metadata.nbgrader.solution
        assert not answer.metadata.nbgrader.grade
        assert check.metadata.nbgrader.points == exercise.points
        assert check.metadata.nbgrader.grade
        assert check.metadata.nbgrader.locked
        assert ast.dump(ast.parse(answer.source)) == ast.dump(ast.parse(exercise.source)), "marks are comments"
        left = ast.parse(cleared(answer.source)).body[0]
        wanted = ast.parse(skeletons[exercise.name].source).body[0]
        assert ast.get_docstring(left) == ast.get_docstring(wanted)
        functions = [
            {each.name: ast.dump(each.args) for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
            for tree in (left, wanted)
        ]
        assert functions[0] == functions[1], "the same signatures"
        namespace = dict(vars(sys.modules[exercise.reference.__module__]))
        exec(cleared(answer.source), namespace)
        assert is_blank(namespace[exercise.name])


def test_the_other_cells_are_the_lessons_own():
    notebook = make_assignment(LESSON.path, LESSON.exercises)
    others = [cell for cell in notebook.cells if "nbgrader" not in cell.metadata]
    assert others == [cell for cell in source.learner(LESSON.path).cells if cell.id in {other.id for other in others}]
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


def test_a_release_has_nothing_to_export(monkeypatch, tmp_path):
    monkeypatch.setattr(nbgrader, "has_answers", lambda: False)
    with pytest.raises(CourseError, match="whole course"):
        export(tmp_path / "new")
    assert has_answers()
    assert not (tmp_path / "new").exists()


def test_an_own_configuration_is_kept(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text("mine\n")
    written = export(tmp_path)
    assert (tmp_path / "nbgrader_config.py").read_text() == "mine\n"
    assert len(written) == 1 + len(WITH_EXERCISES)


# ------------------------------------------------------------------------------------------------------ nbgrader itself


RIGHT, WRONG = "record_gradient", "scale_gradient"


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def course(tmp_path_factory, monkeypatch_module):
    """An nbgrader course with one lesson: released, handed in by two students, and autograded."""
    if importlib.util.find_spec("nbgrader") is None:
        pytest.skip("nbgrader is not installed: pip install 'course-utils[nbgrader]'")
    folder = tmp_path_factory.mktemp("nbgrader")
    # nbgrader starts `alembic` by its name, so that it has to be on the path even if this environment is not.
    monkeypatch_module.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    export(folder)
    run_nbgrader(folder, "generate_assignment", LESSON.name)
    released = folder / "release" / LESSON.name / f"{LESSON.name}.ipynb"
    answers = {exercise.name: exercise.source for exercise in LESSON.exercises}
    some = {RIGHT: answers[RIGHT], WRONG: f"def {WRONG}(tensor, factor):\n    tensor.data *= factor\n"}
    for student, given in (("ada", answers), ("bob", some)):
        notebook = source.put_answers(nbformat.read(released, as_version=4), given, LESSON.name)
        path = folder / "submitted" / student / LESSON.name / f"{LESSON.name}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    run_nbgrader(folder, "autograde", LESSON.name)
    return folder


def run_nbgrader(folder, command, *arguments):
    environment = build.kernel_environment(folder) | {"PYTHONPATH": str(Path(source.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "-m", "nbgrader", command, *arguments],
        cwd=folder,
        env=environment | {"JUPYTER_CONFIG_DIR": str(folder / "jupyter"), "HOME": os.fspath(folder)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_nbgrader_hands_out_skeletons(course):
    notebook = nbformat.read(course / "release" / LESSON.name / f"{LESSON.name}.ipynb", as_version=4)
    texts = "\n".join(cell.source for cell in notebook.cells)
    assert "SOLUTION" not in texts
    assert "HIDDEN" not in texts
    for name, cell in source.answer_cells(notebook).items():
        namespace = {}
        exec(cell.source, namespace)
        assert is_blank(namespace[name]), cell.source
        assert find(name).doc.splitlines()[0] in cell.source


@pytest.mark.slow
def test_nbgrader_gives_the_scores_that_our_grader_gives(course):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        theirs = {
            (student, score.name.removesuffix("-check")): score.score
            for student in ("ada", "bob")
            for notebook in book.find_submission(LESSON.name, student).notebooks
            for score in notebook.grades
        }
    ours = grade(find_submissions(course / "submitted", {LESSON.name: LESSON}))
    assert {(row.student, row.exercise): row.points for row in ours.scores} == theirs
    assert sum(points for (student, _), points in theirs.items() if student == "ada") == sum(
        exercise.points for exercise in exercises_of(LESSON.number)
    )
    assert {name for (student, name), points in theirs.items() if student == "bob" and points} == {RIGHT}


@pytest.mark.slow
def test_what_check_says_is_in_nbgraders_notebook(course):
    path = course / "autograded" / "bob" / LESSON.name / f"{LESSON.name}.ipynb"
    (cell,) = (
        cell
        for cell in nbformat.read(path, as_version=4).cells
        if cell.metadata.get("nbgrader", {}).get("grade_id") == f"{WRONG}-check"
    )
    assert any(
        output.output_type == "error" and f"{WRONG}: not yet" in "\n".join(output.traceback) for output in cell.outputs
    )
