"""A lesson as text: its source file, and the editions of the notebook that are made from it, not run.

A cell's id depends on its text alone, so that a change to one cell leaves the ids of all others. The headings of
exercises have no number there: each gets it here, and where the text says `exercise {its_name}`, it stands too.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils.authoring import pace
from course_utils.exercises.declaration import called_with
from course_utils.root import ROOT, CourseError, nearest

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = ROOT / "notebooks"
SEALED = "sealed"  # the tag of cells for the package alone; see `seal`
PRIVATE = (SEALED, "instructor")  # the tags of cells that no learner gets
# What a source may set, beside a cell's title, which becomes its id.
CELL_METADATA = ("jp-MarkdownHeadingCollapsed", "jupyter", "tags")
PARAMETERS = {"network": "own_network", "image": "own_image", "layer": "own_layer", "chosen": "own_class"}
UNNUMBERED = re.compile(r"^(##+ (?:More: )?Exercise)(?= · )", re.MULTILINE)
_LANGUAGE = {"codemirror_mode": {"name": "ipython", "version": 3}, "file_extension": ".py", "name": "python"}
_LANGUAGE |= {"mimetype": "text/x-python", "nbconvert_exporter": "python", "pygments_lexer": "ipython3"}
_KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
METADATA = {"kernelspec": _KERNEL, "language_info": _LANGUAGE}  # of every notebook


def sources(folder: Path = FOLDER) -> list[Path]:
    """The lessons' source files, in order. Raises `CourseError` if `folder` has no folder `source`."""
    if not (folder / "source").is_dir():
        raise CourseError(f"{folder} has no folder `source`: lessons are built in a clone of the course's repository.")
    return sorted((folder / "source").glob("[0-9][0-9]_*.py"))


def pages(folder: Path = FOLDER) -> list[Path]:
    """The sources of notebooks that are no lesson: the inventory before the course and after it."""
    return sorted((folder / "source").glob("[!0-9]*.py"))


def choose(names: Sequence[str], folder: Path = FOLDER) -> list[Path]:
    """The sources that `names` mean: numbers (`1`, `01`), names, or paths of a source or notebook; all for no names.

    Raises `CourseError` for a name that no lesson has.
    """
    known = {path.stem: path for path in sources(folder)}
    numbers = {stem[:2]: path for stem, path in known.items()}
    for stem in (stems := [Path(name).stem.zfill(2) for name in names]):
        if stem not in known | numbers:
            raise CourseError(f"There is no lesson {stem}; there is {', '.join(nearest(stem, known) or numbers)}.")
    return [(known | numbers)[stem] for stem in stems or known]


def number_of(path: Path) -> int:
    """The number of the lesson whose source is `path`."""
    return int(path.stem[:2])


def read_whole(path: Path) -> NotebookNode:
    """The whole source file `path` as a notebook that was not run: every cell, with its lasting id.

    Raises `CourseError` if a tagged cell has no name of its own to be called by, or two cells would have one id.
    """
    return copy.deepcopy(_read(path.stem, path.read_text(encoding="utf-8")))


def read_source(path: Path) -> NotebookNode:
    """The lesson in the source file `path`, as `read_whole`, but without the cells tagged `sealed`."""
    notebook = read_whole(path)
    notebook.cells = [cell for cell in notebook.cells if SEALED not in tags_of(cell)]
    return notebook


@cache
def _read(stem: str, text: str) -> NotebookNode:
    import jupytext  # it takes a second, which who only chooses a lesson need not wait
    import nbformat
    from nbformat import NotebookNode

    cells: dict[str, NotebookNode] = {}
    for cell in jupytext.reads(text, fmt="py:percent").cells:
        where = place(stem, len(cells) + 1, cell.source)
        cell.id = re.sub("[^a-z0-9]+", "-", _lasting_name(cell, where).lower()).strip("-")[:50]  # nbformat allows 64
        if cell.id in cells:
            same = f"it would have the same id ({cell.id}) as cell {[*cells].index(cell.id) + 1}, because both"
            mend = "Change one, or give one a name of its own: `# %% the name`"
            raise CourseError(f"{where}: {same} have the same text or name. {mend}")
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata})
        if "setup" in tags_of(cell):  # JupyterLab folds it
            cell.metadata.setdefault("jupyter", NotebookNode(source_hidden=True))
        cells[cell.id] = cell
    _number_exercises([*cells.values()], stem)
    minutes = pace.say_minutes(pace.parts(cells.values(), stem[:2]))
    for cell in [*cells.values()][:1]:
        cell.source = pace.LINE.sub(lambda _: minutes, cell.source)
    return nbformat.v4.new_notebook(cells=list(cells.values()), metadata=copy.deepcopy(METADATA))


def _number_exercises(cells: Sequence[NotebookNode], stem: str) -> None:
    """Give the headings `Exercise · …` their numbers, and put them for `{name}`, as in "see exercise {name}"."""
    texts = [cell for cell in cells if cell.cell_type == "markdown"]
    numbers: dict[str, str] = {}
    headings = 0
    for cell in cells:
        if cell.cell_type == "markdown":
            headings += len(UNNUMBERED.findall(cell.source))
        elif "answer" in tags_of(cell) and headings > len(numbers):
            numbers[defined_name(cell.source)] = str(headings)
    if headings > len(numbers):
        raise CourseError(f"{stem}: {headings} headings `Exercise · …`, but {len(numbers)} answer cells below them.")
    count = itertools.count(1)
    for cell in texts:
        cell.source = UNNUMBERED.sub(lambda found: f"{found[1]} {next(count)}", cell.source)
        cell.source = re.sub(r"\{(\w+)\}", lambda found: numbers.get(found[1], found[0]), cell.source)


def learner(path: Path) -> NotebookNode:
    """The learner's edition of the source `path`, not run: everything but the cells tagged `instructor`."""
    notebook = read_source(path)
    notebook.cells = [cell for cell in notebook.cells if "instructor" not in tags_of(cell)]
    return notebook


def parameters_of(path: Path) -> dict[str, str]:
    """What the source `path` sets in its cell tagged `parameters`: texts, by their names."""
    cells = [cell.source for cell in learner(path).cells if "parameters" in tags_of(cell)]
    return dict(re.findall(r'^(\w+) = "(\w*)"', "".join(cells), re.MULTILINE))


def refuse_handout(lesson: str = "", image: str = "", **others: str) -> None:
    """Raise `CourseError` for a handout of no lesson, of no picture, or with what the lesson does not take."""
    if not lesson:
        raise CourseError("Say which lesson:  make handout LESSON=07")
    if image and not Path(image).is_file():
        raise CourseError(f"There is no picture {image}.")
    asked = {PARAMETERS[name] for name, value in {"image": image, **others}.items() if value}
    if asked - parameters_of(choose([lesson])[0]).keys():
        able = ", ".join(path.stem[:2] for path in sources() if asked <= parameters_of(path).keys())
        raise CourseError(f"Lesson {lesson} has no part for that: NETWORK, IMAGE, LAYER or CLASS go with {able}.")


def put_answers(notebook: NotebookNode, answers: Mapping[str, str]) -> NotebookNode:
    """A copy of `notebook` with `answers[name]` in each named answer cell; `KeyError` for a name that none has."""
    cells = answer_cells(notebook := copy.deepcopy(notebook))
    for name, source in answers.items():
        cells[name].update(source=source.rstrip("\n"), outputs=[], execution_count=None)
    return notebook


def answer_cells(notebook: NotebookNode, lesson: str = "the notebook") -> dict[str, NotebookNode]:
    """The cells tagged `answer`, by the name of the exercise: the one top-level function or class that each defines.

    Raises `CourseError` if a cell does not define exactly one, or two cells define the same.
    """
    found: dict[str, NotebookNode] = {}
    for number, cell in enumerate(notebook.cells, start=1):
        if "answer" in tags_of(cell):
            name = defined_name(cell.source, where := place(lesson, number, cell.source))
            if name in found:
                raise CourseError(f"{where}: cell {notebook.cells.index(found[name]) + 1} defines {name} already.")
            found[name] = cell
    return found


def tags_of(cell: NotebookNode) -> list[str]:
    """The cell's tags."""
    return list(cell.metadata.get("tags", []))


def place(lesson: str, number: int, source: str) -> str:
    """Where a cell stands, in words: the lesson, its number, its first line."""
    return f"{lesson}, cell {number} (`{source.partition(chr(10))[0][:60]}`)"


def defined_name(source: str, where: str = "the cell") -> str:
    """The name of the one function or class that `source` defines at top level.

    Raises `CourseError`, about `where`, if it defines none or several.
    """
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise CourseError(f"{where}: line {error.lineno} is not Python: {error.msg}.") from error
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    if len(names) != 1:
        defined = ", ".join(names) or "none"
        raise CourseError(f"{where}: an answer cell defines one function or class; this one defines {defined}.")
    return names[0]


def _lasting_name(cell: NotebookNode, where: str) -> str:
    tags = tags_of(cell)
    if title := cell.metadata.get("title"):
        return title
    if "answer" in tags:
        return f"answer-{defined_name(cell.source, where)}"
    for tag in {"check", "predict", "why"} & set(tags):
        name = called_with(cell.source, tag)
        if name is None:
            raise CourseError(f"{where}: a cell tagged `{tag}` must call {tag}(…) with a name; this one does not.")
        return f"{tag}-{name}"
    if "parameters" in tags:
        return "parameters"  # papermill takes one such cell
    kind = next((tag for tag in ("setup", "explore") if tag in tags), {"markdown": "text"}.get(cell.cell_type, "code"))
    return f"{kind}-{hashlib.sha256(cell.source.encode()).hexdigest()[:8]}"
