"""Notebooks and answers for the grader's tests, made from the real lessons."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import nbformat

from course_utils import notebooks
from course_utils.exercises.engine import source_of
from course_utils.grading.lessons import Lesson


def source_under_name(function: Callable, name: str) -> str:
    """The source of an accepted answer or a mistake, as a student would have written it: under the exercise's name."""
    return re.sub(r"^(def|class) \w+", rf"\1 {name}", source_of(function), count=1, flags=re.MULTILINE)


def imports_of(function: Callable) -> str:
    """The imports that a student who gives this answer has in a cell: those of the module that declares it."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(function)))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    texts = [ast.unparse(node) for node in imports]
    return "\n".join(text for text in texts if "course_utils.exercises" not in text and "__future__" not in text)


def notebook_with(lesson: Lesson, answers: Mapping[str, str]) -> nbformat.NotebookNode:
    """The learner's notebook of the lesson with these answers in their cells."""
    return notebooks.put_answers(notebooks.learner(lesson.path), answers, lesson.name)


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
