"""The lessons as source assignments for nbgrader, for an instructor who already has it.

An exercise's answer cell holds the reference answer between marks, which `nbgrader generate_assignment` replaces by
`...`. Its check cell is an autograded test worth the exercise's points, whose hidden part nbgrader puts back before it
grades: the course's own `check` on inputs that nobody has seen.
"""

import ast
import re
from collections.abc import Iterable, Iterator
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
    """Write an nbgrader course into `folder`, and keep a configuration that is there; returns what it consists of."""
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
        answer, check = answers[exercise.name], checks[exercise.name]
        answer.source = mark_solution(answer.source, exercise.source)
        check.source = TEST.format(name=exercise.name)
        for cell, test in ((answer, False), (check, True)):
            flags = {"solution": not test, "grade": test, "locked": test, "task": False, "schema_version": 3}
            cell.metadata["nbgrader"] = {"grade_id": exercise.name + "-check" * test, **flags}
        check.metadata["nbgrader"]["points"] = exercise.points
    return notebook


def mark_solution(skeleton: str, answer: str) -> str:
    """The source text of `answer` with marks around all that its skeleton lacks.

    With `...` in the place of what is marked, signature and task are left, and of a class the skeleton's methods.
    """
    methods = {node.name for node in ast.parse(skeleton).body[0].body if isinstance(node, ast.FunctionDef)}
    lines = answer.rstrip("\n").splitlines()
    for first, last in reversed(list(_solution_spans(ast.parse(answer).body[0], methods))):
        indent = re.match(" *", lines[first])[0]
        lines[first:last] = [indent + BEGIN, *lines[first:last], indent + END]
    return "\n".join(lines)


def _solution_spans(node: ast.FunctionDef | ast.ClassDef, methods: set[str]) -> Iterator[tuple[int, int]]:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    for part in [body] if isinstance(node, ast.FunctionDef) else [[each] for each in body]:
        if isinstance(node, ast.ClassDef) and getattr(part[0], "name", "") in methods:
            yield from _solution_spans(part[0], methods)
        else:
            start = min(each.lineno for each in (part[0], *getattr(part[0], "decorator_list", [])))
            yield start - 1, part[-1].end_lineno
