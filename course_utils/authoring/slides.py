"""Slides of a lesson: reveal.js in one HTML file, with the teacher's notes in the speaker view, and no network.

How a lesson is cut: each heading of level 1 or 2 begins a column of slides, each of level 3 a slide below, and so do
text after code, and code after an output or a prediction: nobody reads the answer with the question. A long slide
scrolls. Imports, parameters and checks are left out; answer cells show the task, and the notes below the answer.
"""

from __future__ import annotations

import ast
import html
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import page
from course_utils.authoring.editions import (
    BUILD,
    describe_answers,
    describe_mistakes,
    read_built,
    say_written,
    title_of,
)
from course_utils.authoring.source import called_with, choose, defined_name, read_source, tags_of
from course_utils.exercises.engine import find, find_prediction
from course_utils.root import CourseError, write_whole

LEFT_OUT = {"parameters", "injected-parameters", "check"}


def write_slides(lesson: str | None = None, folder: Path = BUILD / "slides") -> int:
    """Write the slides of a lesson (`07`), or of all, into `folder`; returns 0.

    Raises `CourseError` where reveal.js is not installed, or a lesson's notebook is out of date.
    """
    reveal = read_reveal()
    for path in choose([lesson] if lesson else []):
        start = time.perf_counter()
        target = folder / f"{path.stem}.slides.html"
        write_whole(target, make_slides(with_notes(path, read_built(path)), reveal))
        seconds = time.perf_counter() - start
        say_written(target, f"the slides; S opens the speaker view with the notes ({seconds:.0f} s).")
    return 0


def read_reveal() -> tuple[str, ...]:
    """The texts of reveal.js: its style, its script and its plugin for notes, as the package pyreveal carries them.

    Raises `CourseError` where that is not installed.
    """
    found = util.find_spec("pyreveal")  # found, not imported: only its files are used
    if found is None:
        raise CourseError(page.explain_missing("pyreveal, which carries reveal.js,"))
    folder = Path(found.submodule_search_locations[0]) / "revealjs" / "dist"
    names = ("reveal.css", "reveal.js", "plugin/notes.js")
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


def with_notes(path: Path, built: NotebookNode) -> NotebookNode:
    """The cells of `built` with the notes for instructors between them, where the source `path` has them."""
    ran = {cell.id: cell for cell in built.cells}
    whole = read_source(path)
    whole.cells = [cell if "instructor" in tags_of(cell) else ran[cell.id] for cell in whole.cells]
    return whole


def make_slides(notebook: NotebookNode, reveal: tuple[str, ...]) -> str:
    """The page of slides of a lesson with its notes and outputs."""
    slides = to_notebook(cut(page.flatten_outputs(notebook)))
    return page.export(slides, f"{title_of(notebook)}: slides", reveal=reveal)


@dataclass
class Slide:
    """What stands on one slide. level: that of the heading it begins with, 0 if it goes on from the one before."""

    level: int
    heading: str
    cells: list[NotebookNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def cut(notebook: NotebookNode) -> list[Slide]:
    """The slides of a lesson with notes. Outputs must be flat (`page.flatten_outputs`)."""
    slides = [Slide(0, "")]
    for cell in notebook.cells:
        tags, last = set(tags_of(cell)), slides[-1]
        if "instructor" in tags:
            last.notes.append(cell.source)
        elif cell.cell_type == "markdown":
            for level, heading, text in _split_at_headings(cell.source):
                if level or any(each.cell_type == "code" for each in slides[-1].cells):
                    slides.append(Slide(level, heading or slides[-1].heading))
                slides[-1].cells.append(nbformat.v4.new_markdown_cell(text))
        elif not (tags & LEFT_OUT) and not _only_prepares(cell.source, "setup" in tags):
            if any(each.get("outputs") for each in last.cells):
                slides.append(last := Slide(0, last.heading))
            last.cells.append(cell)
            if "predict" in tags:
                answers = describe_answers(find_prediction(called_with(cell.source, "predict")))
                last.notes += ["Everybody commits before the next slide.", answers]
            elif "answer" in tags:
                cell.outputs = []
                last.notes += _answer_notes(defined_name(cell.source))
    return [slide for slide in slides if slide.cells]


def _split_at_headings(text: str) -> Iterator[tuple[int, str, str]]:
    """(level, heading, text) of each part of a Markdown text; what stands before the first heading has level 0."""
    parts, fenced = [""], False
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            parts.append("")
        parts[-1] += line
    for part in filter(str.strip, parts):
        found = re.match(r"(#+) (.*)", part)
        yield (len(found[1]), found[2].replace("`", ""), part) if found else (0, "", part)


def _answer_notes(name: str) -> Iterator[str]:
    exercise = find(name)
    yield f"**The answer**\n\n```python\n{exercise.source.strip()}\n```"
    if exercise.mistakes:
        yield f"**Mistakes to expect, in the words of the check**\n\n{describe_mistakes(exercise)}"


def _only_prepares(source: str, setup: bool) -> bool:
    """Whether the code has nothing to look at: it only imports; or it is for set-up, imports, and defines nothing."""
    tree, kinds = ast.parse(source), (ast.Import, ast.ImportFrom)
    if setup and any(isinstance(node, kinds) for node in ast.walk(tree)):
        return not any(isinstance(each, ast.FunctionDef | ast.ClassDef) for each in tree.body)
    return all(isinstance(each, kinds) for each in tree.body)


def to_notebook(slides: list[Slide]) -> NotebookNode:
    """The slides as a notebook for nbconvert's SlidesExporter: each slide's first cell says what it begins."""
    cells = []
    for slide in slides:
        shown = [nbformat.from_dict(cell) for cell in slide.cells]
        if not slide.level and slide.heading:
            shown.insert(0, nbformat.v4.new_markdown_cell(f'<p class="goes-on">{html.escape(slide.heading)}</p>'))
        if slide.notes:
            shown.append(nbformat.v4.new_markdown_cell("\n\n".join(slide.notes)))
        kinds = ["slide" if 1 <= slide.level <= 2 else "subslide"] + ["-"] * (len(shown) - 1)
        if slide.notes:
            kinds[-1] = "notes"
        for cell, kind in zip(shown, kinds, strict=True):
            cell.metadata["slideshow"] = {"slide_type": kind}
            cell.id = f"s{len(cells)}"
            cells.append(cell)
    return nbformat.v4.new_notebook(cells=cells)
