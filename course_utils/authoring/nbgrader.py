"""The lessons as source assignments for nbgrader, for an instructor who already has it.

    python -m course_utils release --nbgrader FOLDER

writes an nbgrader course into FOLDER: `source/LESSON/LESSON.ipynb` for each lesson with exercises, and a configuration.
In each, an exercise's answer cell holds the reference answer between `### BEGIN SOLUTION` and `### END SOLUTION`, which
`nbgrader generate_assignment` replaces by `...`: the skeleton that the lesson comes with. Its check cell is an
autograded test worth the exercise's points, between `### BEGIN HIDDEN TESTS` and `### END HIDDEN TESTS`: nbgrader puts
it back before it grades. It runs the course's own `check` on inputs that nobody has seen.

The course has to be installed where the notebooks run: the whole of it where nbgrader grades, the release (or the
whole) where students work. nbgrader runs tests and answers in one process; whoever wants them apart uses `make grade`,
which reads the same submissions (`submitted/STUDENT/LESSON/LESSON.ipynb`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import build
from course_utils.authoring.source import answer_cells, learner, sources
from course_utils.exercises.engine import Exercise, exercises_of
from course_utils.root import CourseError, has_answers

SCHEMA = 3  # of nbgrader's cell metadata
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
BEGIN_TEST, END_TEST = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = "pytorch-hooks"
# A skeleton is what the lessons have: a task and `...`. The course's `check` calls it "not attempted yet".
c.ClearSolutions.code_stub = {"python": "..."}
c.ExecutePreprocessor.timeout = 120
"""


def export(folder: Path) -> list[Path]:
    """Write an nbgrader course into `folder`; returns what was written. Files of these names are replaced.

    Raises `CourseError` in an edition without answers.
    """
    if not has_answers():
        raise CourseError(
            "This is a students' release, without answers: nbgrader's sources are made of the whole course."
        )
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "nbgrader_config.py"]
    if not written[0].exists():
        written[0].write_text(CONFIG, encoding="utf-8")
    for source in sources():
        exercises = exercises_of(int(source.stem[:2]))
        if exercises:
            target = folder / "source" / source.stem / f"{source.stem}.ipynb"
            target.parent.mkdir(parents=True, exist_ok=True)
            build.write(make_assignment(source, exercises), target)
            written.append(target)
    return written


def make_assignment(source: Path, exercises: Iterable[Exercise]) -> NotebookNode:
    """The lesson at `source` as an assignment: answers between marks, checks as tests, every cell as nbgrader wants it.

    Each exercise gives two cells: `NAME` (its answer) and `NAME-check` (its test, worth the exercise's points).
    """
    notebook = learner(source)
    answers = answer_cells(notebook, source.stem)
    checks = {
        name: cell
        for cell in notebook.cells
        if "check" in source.tags_of(cell) and (name := source.called_with(cell.source, "check"))
    }
    for exercise in exercises:
        answers[exercise.name].source = mark_solution(answers[exercise.name].source, exercise.source)
        checks[exercise.name].source = test_code(exercise)
        answers[exercise.name].metadata["nbgrader"] = cell_metadata(exercise.name, solution=True)
        checks[exercise.name].metadata["nbgrader"] = cell_metadata(f"{exercise.name}-check", points=exercise.points)
    nbformat.validate(notebook)
    return notebook


def cell_metadata(grade_id: str, *, solution: bool = False, points: int | None = None) -> dict[str, object]:
    """nbgrader's metadata of a cell: of an answer, or of a test with its points."""
    found: dict[str, object] = {
        "schema_version": SCHEMA,
        "grade_id": grade_id,
        "solution": solution,
        "grade": points is not None,
        "locked": not solution,
        "task": False,
    }
    return found if points is None else found | {"points": points}


def test_code(exercise: Exercise) -> str:
    """A test that passes if `check` does; where it fails, what `check` says is the error's message."""
    return "\n".join(
        [
            f"outcome = check({exercise.name})",
            BEGIN_TEST,
            "assert outcome.passed, outcome",
            END_TEST,
            "outcome",
        ]
    )


def mark_solution(skeleton: str, answer: str) -> str:
    """The source text of `answer` with marks around all that its skeleton lacks.

    Without what is between the marks, and with `...` in its place, signature and task are left, and of a class the
    methods that the skeleton has too.
    """
    node, lines = ast.parse(answer).body[0], answer.rstrip("\n").splitlines()
    spans = _solution_spans(node, _method_names(skeleton))
    for first, last in reversed(spans):
        indent = " " * (len(lines[first]) - len(lines[first].lstrip()))
        lines[first : last + 1] = [indent + BEGIN, *lines[first : last + 1], indent + END]
    return "\n".join(lines)


def _method_names(skeleton: str) -> set[str]:
    return {each.name for each in ast.parse(skeleton).body[0].body if isinstance(each, ast.FunctionDef)}


def _solution_spans(node: ast.FunctionDef | ast.ClassDef, methods: set[str]) -> list[tuple[int, int]]:
    """The runs of lines (from 0, both ends included) of a definition that are its solution."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if isinstance(node, ast.FunctionDef):
        return [(_first_line(body[0]), body[-1].end_lineno - 1)]
    spans: list[tuple[int, int]] = []
    for each in body:
        if isinstance(each, ast.FunctionDef) and each.name in methods:
            spans += _solution_spans(each, methods)
        else:
            spans.append((_first_line(each), each.end_lineno - 1))
    return spans


def _first_line(node: ast.stmt) -> int:
    return min(each.lineno for each in (node, *getattr(node, "decorator_list", []))) - 1
