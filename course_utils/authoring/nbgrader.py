"""The lessons as source assignments for nbgrader, for an instructor who already has it.

In `source/LESSON/LESSON.ipynb` an exercise's answer cell holds the reference answer between marks, which `nbgrader
generate_assignment` replaces by `...`: the skeleton that the lesson comes with. Its check cell is an autograded test
worth the exercise's points, with a hidden part that nbgrader puts back before it grades: the course's own `check` on
inputs that nobody has seen. nbgrader runs tests and answers in one process; `make grade` reads the same submissions
(`submitted/STUDENT/LESSON/LESSON.ipynb`) and keeps them apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from nbformat import NotebookNode

from course_utils.authoring import build
from course_utils.authoring.source import answer_cells, called_with, learner, number_of, sources, tags_of
from course_utils.exercises.engine import Exercise, exercises_of

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = "pytorch-hooks"
# A skeleton is what the lessons have: a task and `...`. The course's `check` calls it "not attempted yet".
c.ClearSolutions.code_stub = {"python": "..."}
c.ExecutePreprocessor.timeout = 120
"""
TEST = """\
outcome = check({name})
### BEGIN HIDDEN TESTS
assert outcome.passed, outcome
### END HIDDEN TESTS
outcome"""


def export(folder: Path) -> list[Path]:
    """Write an nbgrader course into `folder`; returns what it consists of.

    Notebooks of these names are replaced; a configuration that is there is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "nbgrader_config.py"]
    if not written[0].exists():
        written[0].write_text(CONFIG, encoding="utf-8")
    for source in sources():
        written.append(folder / "source" / source.stem / f"{source.stem}.ipynb")
        build.write(make_assignment(source, exercises_of(number_of(source))), written[-1])
    return written


def make_assignment(source: Path, exercises: Iterable[Exercise]) -> NotebookNode:
    """The lesson at `source` as an assignment: answers between marks, checks as tests, every cell as nbgrader wants it.

    Each exercise gives two cells: `NAME` (its answer) and `NAME-check` (its test, worth the exercise's points).
    """
    notebook = learner(source)
    answers = answer_cells(notebook, source.stem)
    checks = {called_with(cell.source, "check"): cell for cell in notebook.cells if "check" in tags_of(cell)}
    for exercise in exercises:
        answer, check, common = answers[exercise.name], checks[exercise.name], {"schema_version": 3, "task": False}
        answer.source = mark_solution(answer.source, exercise.source)
        answer.metadata["nbgrader"] = common | {
            "grade_id": exercise.name,
            "solution": True,
            "grade": False,
            "locked": False,
        }
        check.source = TEST.format(name=exercise.name)
        check.metadata["nbgrader"] = common | {"grade_id": f"{exercise.name}-check", "points": exercise.points}
        check.metadata["nbgrader"] |= {"solution": False, "grade": True, "locked": True}
    return notebook


def mark_solution(skeleton: str, answer: str) -> str:
    """The source text of `answer` with marks around all that its skeleton lacks.

    Without what is between the marks, and with `...` in its place, signature and task are left, and of a class the
    methods that the skeleton has too.
    """
    methods = {node.name for node in ast.parse(skeleton).body[0].body if isinstance(node, ast.FunctionDef)}
    lines = answer.rstrip("\n").splitlines()
    for first, last in reversed(_solution_spans(ast.parse(answer).body[0], methods)):
        indent = " " * (len(lines[first]) - len(lines[first].lstrip()))
        lines[first:last] = [indent + BEGIN, *lines[first:last], indent + END]
    return "\n".join(lines)


def _solution_spans(node: ast.FunctionDef | ast.ClassDef, methods: set[str]) -> list[tuple[int, int]]:
    """The runs of lines (from 0, the last not included) of a definition that are its solution."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if isinstance(node, ast.FunctionDef):
        return [(_first_line(body[0]), body[-1].end_lineno)]
    spans: list[tuple[int, int]] = []
    for each in body:
        known = isinstance(each, ast.FunctionDef) and each.name in methods
        spans += _solution_spans(each, methods) if known else [(_first_line(each), each.end_lineno)]
    return spans


def _first_line(node: ast.stmt) -> int:
    return min(each.lineno for each in (node, *getattr(node, "decorator_list", []))) - 1
