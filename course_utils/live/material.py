"""What the lesson's own files say to a class: its plan for 90 minutes, and what stands around each prediction."""

import ast
import base64
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from course_utils.authoring import pace
from course_utils.authoring.source import FOLDER, called_with, choose, learner, number_of, read_source, sources, tags_of
from course_utils.exercises.declaration import predictions_of, read_declarations

if TYPE_CHECKING:
    from nbformat import NotebookNode

HEADING = re.compile(r"^#{2,} ", re.MULTILINE)
SVG = "image/svg+xml"
MOST_LINES = 24  # of code beside a question


class Figure(NamedTuple):
    """A picture of the lesson, and what it shows, in words."""

    kind: str
    data: bytes
    alt: str


class Setting(NamedTuple):
    """What a prediction is about: the code that runs next, and the last figure before it in its section.

    A picture stands alone, because the code only measures it; a graph that is drawn as SVG stands beside its code.
    """

    code: str = ""
    figure: Figure | None = None


def lessons() -> list[str]:
    """The numbers of the lessons, like `01`. One whose questions are not sealed yet is left out."""
    numbers = [number_of(path) for path in sources()]
    sealed = {each.lesson for each in predictions_of()} & {each.lesson for each in read_declarations()}
    return [f"{number:02d}" for number in numbers if number in sealed]


def plan_of(lesson: int) -> list[pace.Step]:
    """The plan for 90 minutes in the teacher's notes of a lesson."""
    return pace.plan(read_source(*choose([f"{lesson:02d}"])).cells).steps


@cache
def settings_of(lesson: int) -> dict[str, Setting]:
    """By prediction, its `Setting`: what every learner has in front of them before they vote."""
    source = choose([f"{lesson:02d}"])[0]
    cells, figures = learner(source).cells, _read_figures(source)
    found: dict[str, Setting] = {}
    figure = None
    for place, cell in enumerate(cells):
        if cell.cell_type == "markdown" and HEADING.search(cell.source):
            figure = None
        if "predict" in tags_of(cell) and (name := called_with(cell.source, "predict")):
            pictured = figure is not None and figure.kind != SVG
            found[name] = Setting("" if pictured else _code_after(cells, place), figure)
        figure = figures.get(cell.id, figure)
    return found


def _code_after(cells: Sequence["NotebookNode"], place: int) -> str:
    """The code that runs next, below what the lesson has defined for it, as far as there is space: networks first."""
    following = next((cell.source for cell in cells[place + 1 :] if _is_shown_code(cell)), "")
    used = _names_used(following) or _names_used(following, printed=True)
    left, chosen = MOST_LINES - len(following.splitlines()), set()
    definitions = _definitions(cells[:place])
    for name in sorted(definitions, key=lambda name: not definitions[name].startswith("class ")):
        lines = len(definitions[name].splitlines()) + 1
        if name in used and lines <= left:
            chosen.add(name)
            left -= lines
    return "\n\n".join([*(text for name, text in definitions.items() if name in chosen), following])


def _is_shown_code(cell: "NotebookNode") -> bool:
    return cell.cell_type == "code" and not {"setup", "predict", "why", "explore"} & {*tags_of(cell)}


def _names_used(code: str, printed: bool = False) -> set[str]:
    """The names in `code`; those that are only printed are among them if `printed`."""
    found, waiting = set(), [_parse(code)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        if printed or not (isinstance(node, ast.Expr) and ast.unparse(node).startswith("print(")):
            waiting += ast.iter_child_nodes(node)
    return found


def _definitions(cells: Iterable["NotebookNode"]) -> dict[str, str]:
    """The functions and classes that the cells define, but for the learner's own: each in its last version."""
    known: dict[str, str] = {}
    for cell in cells:
        if cell.cell_type != "code" or "answer" in tags_of(cell):
            continue
        for node in _parse(cell.source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                known.pop(node.name, None)  # the last version stands where it was written
                known[node.name] = ast.get_source_segment(cell.source, node) or ""
    return known


def _parse(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError:  # a line of IPython's own, such as %timeit
        return ast.Module([], [])


def _read_figures(source: Path) -> dict[str, Figure]:
    """By the id of its cell, the last figure that the published notebook has there."""
    import nbformat

    path = FOLDER / f"{source.stem}.ipynb"
    if not path.exists():
        return {}
    cells = nbformat.read(path, as_version=4).cells
    outputs = [(cell.id, output) for cell in cells for output in cell.get("outputs", [])]
    return {cell_id: figure for cell_id, output in outputs if (figure := _figure_in(output))}


def _figure_in(output: "NotebookNode") -> Figure | None:
    data = output.get("data", {})
    kind = next((kind for kind in data if kind.startswith("image/")), "")
    if not kind:
        return None
    picture = data[kind].encode() if kind == SVG else base64.b64decode(data[kind])
    alt = output.metadata.get(kind, {}).get("alt", "") or data.get("text/plain", "")
    return Figure(kind, picture, alt)
