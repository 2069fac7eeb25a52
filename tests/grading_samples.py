"""Notebooks and answers for the grader's tests, made from the real lessons."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import nbformat

from course_utils.authoring import source
from course_utils.grading.definitions import definitions_in, read_cell, used_names
from course_utils.grading.lessons import Lesson


def source_under_name(function: Callable, name: str) -> str:
    """The source of an accepted answer or a mistake, as a student would have written it: under the exercise's name."""
    return undeclared(textwrap.dedent(inspect.getsource(function)), name)


def undeclared(source: str, name: str | None = None) -> str:
    """The source of a definition without the course's decorators, and under another name if one is given."""
    node = ast.parse(source).body[0]
    node.name = name or node.name
    node.decorator_list = [one for one in node.decorator_list if not _declares(one)]
    return ast.unparse(node) + "\n"


def _declares(decorator: ast.expr) -> bool:
    """Whether a decorator is the course's: `@exercise(…)`, `@name.accept`, `@name.mistake("…")`."""
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (isinstance(call, ast.Attribute) and call.attr in ("accept", "mistake")) or ast.unparse(call) == "exercise"


def helpers_of(function: Callable) -> str:
    """What a student who gives this answer has in a cell of their own: imports, and the private helpers it uses.

    What is public in the module that declares the answer is imported from there, as a lesson does.
    """
    module = inspect.getmodule(function)
    definitions = definitions_in([read_cell(inspect.getsource(module))])
    by_name = {name: each for each in definitions for name in each.names}
    waiting, chosen, public = set(used_names(source_under_name(function, "answer"))), {}, set()
    while waiting:
        name = waiting.pop()
        found = by_name.get(name)
        if found is None or found.place in chosen:
            continue
        if not found.source.startswith(("import", "from")) and not name.startswith("_"):
            public.add(name)
            continue
        text = undeclared(found.source) if found.late else found.source
        chosen[found.place] = text
        waiting |= used_names(text)
    imported = [f"from {module.__name__} import {', '.join(sorted(public))}"] if public else []
    return "\n".join([*imported, *(chosen[place] for place in sorted(chosen))])


def notebook_with(lesson: Lesson, answers: Mapping[str, str]) -> nbformat.NotebookNode:
    """The learner's notebook of the lesson with these answers in their cells."""
    return source.put_answers(source.learner(lesson.path), answers, lesson.name)


def add_cell(notebook: nbformat.NotebookNode, source: str, at: int = 1) -> None:
    """Put a code cell of the student's own into the notebook."""
    notebook.cells.insert(at, nbformat.v4.new_code_cell(source))


def hand_in(folder: Path, student: str, lesson: Lesson, notebook: nbformat.NotebookNode) -> Path:
    """Write the notebook where a student's submission belongs."""
    path = folder / student / f"{lesson.name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def as_version_3(notebook: nbformat.NotebookNode) -> bytes:
    """The notebook as Jupyter wrote it in 2014."""
    with_cells = nbformat.convert(notebook, 3)
    return json.dumps(with_cells).encode()


def raw_notebook(*cells: str | dict) -> bytes:
    """The bytes of a small notebook; a text is a code cell."""
    made = [
        cell if isinstance(cell, dict) else {"cell_type": "code", "metadata": {}, "source": cell, "outputs": []}
        for cell in cells
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": made}).encode()
