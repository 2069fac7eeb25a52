"""Lessons: one text source each, and the notebooks made from it.

A lesson is written as `notebooks/source/NN_name.py` (jupytext's py:percent, with cell tags). `build` makes the
learner's notebook from it and runs it with papermill; `answered` puts answers into its `answer` cells. The same source
gives the same bytes: cell ids, metadata and widget ids depend on the text alone, never on machine, clock or chance.
"""

from __future__ import annotations

import ast
import copy
import difflib
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

from course_utils.root import ROOT

FOLDER = ROOT / "notebooks"

CELL_METADATA = ("jupyter", "slideshow", "tags")  # what a source may set; a cell's title becomes its id
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


class LessonError(ValueError):
    """A lesson that cannot be read, changed or run; the message names the lesson, the cell, and what to do."""


# ---------------------------------------------------------------------------------------------------- from the source


def read_source(path: Path) -> NotebookNode:
    """The whole lesson in the source file `path`, as a notebook that was not run: every cell, with its lasting id.

    Raises `LessonError` if a tagged cell has no name of its own to be called by, or two cells would have one id.
    """
    path = Path(path)
    text = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE_INFO)})
    owners: dict[str, int] = {}
    for number, cell in enumerate(text.cells, start=1):
        where = _place(path.stem, number, cell)
        cell.id = _lasting_id(cell, where)
        if cell.id in owners:
            raise LessonError(
                f"{where}: it would have the same id ({cell.id}) as cell {owners[cell.id]}, because both have the same "
                "text or name. Change one, or give one a name of its own: `# %% the name`"
            )
        owners[cell.id] = number
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata})
        notebook.cells.append(cell)
    return notebook


def learner(path: Path) -> NotebookNode:
    """The learner's edition of the source `path`, not run: everything but the cells tagged `instructor`."""
    notebook = read_source(path)
    notebook.cells = [cell for cell in notebook.cells if "instructor" not in tags_of(cell)]
    return notebook


def answered(path: Path, answers: Mapping[str, str], *, instructor: bool = False) -> NotebookNode:
    """The lesson with the source text `answers[name]` in every answer cell, not run; with `instructor`, notes and all.

    Raises `LessonError` if an answer cell has no answer, or an answer has no cell.
    """
    path = Path(path)
    notebook = read_source(path) if instructor else learner(path)
    for name, cell in answer_cells(notebook, path.stem).items():
        if name not in answers:
            where = _place(path.stem, notebook.cells.index(cell) + 1, cell)
            raise LessonError(f"{where}: no answer was given for {name}" + _nearest(name, answers))
    return put_answers(notebook, answers, path.stem)


def put_answers(notebook: NotebookNode, answers: Mapping[str, str], lesson: str = "the notebook") -> NotebookNode:
    """A copy of `notebook` with the source text `answers[name]` in the answer cell of each exercise named.

    Cells without an answer stay as they are. Raises `LessonError` for a name that no answer cell has.
    """
    notebook = copy.deepcopy(notebook)
    cells = answer_cells(notebook, lesson)
    for name, source in answers.items():
        if name not in cells:
            raise LessonError(f"{lesson}: no cell tagged `answer` defines {name}" + _nearest(name, cells))
        cells[name].source = source.rstrip("\n")
        cells[name].outputs = []
        cells[name].execution_count = None
    return notebook


def answer_cells(notebook: NotebookNode, lesson: str = "the notebook") -> dict[str, NotebookNode]:
    """The cells tagged `answer`, by the name of the exercise: the one top-level function or class that each defines.

    Raises `LessonError` if a cell does not define exactly one, or two cells define the same.
    """
    found: dict[str, NotebookNode] = {}
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type != "code" or "answer" not in tags_of(cell):
            continue
        where = _place(lesson, number, cell)
        name = defined_name(cell.source, where)
        if name in found:
            raise LessonError(f"{where}: another answer cell defines {name} already; each exercise has one answer cell")
        found[name] = cell
    return found


def defined_name(source: str, where: str = "the cell") -> str:
    """The name of the one function or class that `source` defines at top level.

    Raises `LessonError`, about `where`, if it defines none or several.
    """
    names = [
        node.name
        for node in _parse(source, where).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    if len(names) != 1:
        raise LessonError(
            f"{where}: an answer cell defines one function or class at top level; this one defines "
            + (", ".join(names) or "none")
        )
    return names[0]


def called_with(source: str, function: str, where: str = "the cell") -> str | None:
    """The exercise or prediction that the first call `function(name)` or `function("name")` in `source` is about."""
    calls = (node for node in ast.walk(_parse(source, where)) if isinstance(node, ast.Call))
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        if not (isinstance(call.func, ast.Name) and call.func.id == function and call.args):
            continue
        first = call.args[0]
        if isinstance(first, ast.Name):
            return first.id
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return None


def tags_of(cell: NotebookNode) -> list[str]:
    """The cell's tags."""
    return list(cell.metadata.get("tags", []))


def _lasting_id(cell: NotebookNode, where: str) -> str:
    """An id that depends on this cell's text alone, so that a change to one cell leaves the ids of all others."""
    tags = tags_of(cell)
    if title := cell.metadata.get("title"):
        return _slug(title)
    if cell.cell_type == "code" and "answer" in tags:
        return _slug(f"answer-{defined_name(cell.source, where)}")
    for tag in ("check", "predict"):
        if cell.cell_type == "code" and tag in tags:
            name = called_with(cell.source, tag, where)
            if name is None:
                raise LessonError(f"{where}: a cell tagged `{tag}` must call {tag}(…) with a name; this one does not")
            return _slug(f"{tag}-{name}")
    if "parameters" in tags:
        return "parameters"  # papermill takes one such cell
    kind = next((tag for tag in ("setup", "explore") if tag in tags), {"markdown": "text"}.get(cell.cell_type, "code"))
    return f"{kind}-{hashlib.sha256(cell.source.encode()).hexdigest()[:8]}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50]  # nbformat allows 64; widget ids add a few


def _parse(source: str, where: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise LessonError(f"{where}: line {error.lineno} is not Python: {error.msg}") from error


def _place(lesson: str, number: int, cell: NotebookNode) -> str:
    first_line = next(iter(cell.source.splitlines()), "")
    return f"{lesson}, cell {number} (`{first_line[:60]}`)"


def _nearest(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5) or sorted(known)
    return f"; there is {', '.join(near)}" if near else "; there are none"


# --------------------------------------------------------------------------------------------------------- the command


def sources(folder: Path = FOLDER) -> list[Path]:
    """The lessons' source files, in order. Raises `LessonError` if `folder` has no folder `source`."""
    if not (Path(folder) / "source").is_dir():
        raise LessonError(f"{folder} has no folder `source`: lessons are built in a clone of the course's repository")
    return sorted((Path(folder) / "source").glob("[0-9][0-9]_*.py"))


def choose(names: Sequence[str], folder: Path) -> list[Path]:
    """The sources that `names` mean: numbers (`01`), names, or paths of a source or notebook; all for no names."""
    known = {path.stem: path for path in sources(folder)}
    chosen = []
    for name in names:
        stem = Path(name).stem
        found = [path for each, path in known.items() if stem in (each, each[:2])]
        if not found:
            raise LessonError(f"there is no lesson {name}" + _nearest(stem, known))
        chosen += found
    return chosen if names else list(known.values())
