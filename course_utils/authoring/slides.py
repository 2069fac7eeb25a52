"""Slides of a lesson: reveal.js in one HTML file, with the teacher's notes in the speaker view, and no network.

Each heading of level 1 or 2 begins a column of slides, each of level 3 a slide below, and so do text after code, code
after an output or a prediction, and an explanation: nobody reads the answer with the question. A heading without words
stays with the next one. Imports, parameters and checks are left out; answer cells show the task, and the notes the
answer. What a slide cannot hold goes on upon the next: `assets/slides.js` measures that in the browser.
"""

import ast
import html
import re
from importlib import util
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import page
from course_utils.authoring.editions import BUILD, read_built, teacher_texts, write_each
from course_utils.authoring.source import called_with, defined_name, read_source, tags_of
from course_utils.exercises.engine import find, find_prediction
from course_utils.root import ASSETS, CourseError

LEFT_OUT = {"parameters", "injected-parameters", "check"}
KEYS = r"[^.\s](?:(?!\n\n)[^.])*Shift\+Enter[^.]*\.\s*"  # a sentence about keys, of no use to a class
NEXT = "before you run the next cell", "before the next slide"
GO_ON = '<p class="goes-on">{}</p>'


def write_slides(lesson: str | None = None, folder: Path = BUILD / "slides") -> int:
    """Write the slides of a lesson (`07`), or of all; `CourseError` where reveal.js is missing or a notebook is old."""
    found = util.find_spec("pyreveal")  # found, not imported: only its files are used
    if found is None:
        raise CourseError(page.explain_missing("pyreveal, which carries reveal.js,"))
    dist = Path(found.submodule_search_locations[0]) / "revealjs" / "dist"
    files = (*(dist / name for name in ("reveal.css", "reveal.js", "plugin/notes.js")), ASSETS / "slides.js")
    reveal = tuple(file.read_text(encoding="utf-8") for file in files)

    def make(path: Path) -> str:
        return page.export(cut(page.flatten_outputs(with_notes(path, read_built(path)))), reveal=reveal)

    return write_each(lesson, folder / "NAME.slides.html", make, "the slides; S opens the speaker view with the notes")


def with_notes(path: Path, built: NotebookNode) -> NotebookNode:
    """The cells of `built` with the notes for instructors between them, where the source `path` has them."""
    ran, whole = {cell.id: cell for cell in built.cells}, read_source(path)
    whole.cells = [cell if "instructor" in tags_of(cell) else ran[cell.id] for cell in whole.cells]
    return whole


def cut(notebook: NotebookNode) -> NotebookNode:
    """A lesson with notes and flat outputs as slides, which nbconvert reads from each cell's metadata `slideshow`."""
    slides = _Slides()
    for cell in notebook.cells:
        tags = set(tags_of(cell))
        if "instructor" in tags:
            slides.add(cell.source, "notes")
        elif cell.cell_type == "markdown":
            slides.add_text(cell.source)
        elif slides.is_of_imports(cell, tags):
            slides.note_definitions(cell.source)
        elif not tags & LEFT_OUT:
            slides.add_code(cell, tags)
            slides.note_answers(cell.source, tags)
    return nbformat.v4.new_notebook(cells=slides.cells)


class _Slides:
    """The cells of the slides, and what the next one has to know of the last slide."""

    def __init__(self) -> None:
        self.cells: list[NotebookNode] = []
        self.heading = ""
        self.shown = ""  # "code" or "output", if the slide has one already
        self.bare = False  # has it nothing but its heading?
        self.imported = False  # was the last cell one of imports?

    def add(self, part: NotebookNode | str, kind: str = "-") -> None:
        """Add a cell, or a text as a cell; `kind` is what it begins: "slide", "subslide", "notes" or "-", nothing."""
        cell = nbformat.v4.new_markdown_cell(part) if isinstance(part, str) else part
        cell.metadata["slideshow"] = {"slide_type": kind}
        cell.id = f"s{len(self.cells)}"
        self.cells.append(cell)

    def go_on(self) -> None:
        """Begin a slide below the last one, with the same heading."""
        self.add(GO_ON.format(html.escape(self.heading)), "subslide")

    def add_text(self, text: str) -> None:
        """Add a text, which is cut at its headings and loses the sentences that are of no use to a class."""
        self.imported = False
        for level, title, part in _split_at_headings(re.sub(KEYS, "", text).replace(*NEXT)):
            if level:
                self.heading = title
            elif self.shown:
                self.go_on()
            self.add(part, self._kind_of_text(level))
            self.shown = ""
            self.bare = level > 0 and "\n" not in part.strip()

    def _kind_of_text(self, level: int) -> str:
        if level == 0 or self.bare:
            return "-"
        return "slide" if level < 3 else "subslide"

    def is_of_imports(self, cell: NotebookNode, tags: set[str]) -> bool:
        """Whether a cell imports, or is one of the setup without an output behind one that does."""
        setup = "setup" in tags
        return _imports(cell.source, setup) or (setup and self.imported and not cell.outputs)

    def note_definitions(self, source: str) -> None:
        """Leave imports out; what is defined with them is for the notes."""
        self.imported = True
        if re.search(r"^(def|class) ", source, re.MULTILINE):
            self.add(f"**Defined with the imports**\n\n```python\n{source}\n```", "notes")

    def add_code(self, cell: NotebookNode, tags: set[str]) -> None:
        """Add a code cell; behind an output, or with an explanation, it begins a slide of its own."""
        self.bare = self.imported = False
        if self.shown == "output" or "why" in tags:
            self.go_on()
        if "answer" in tags:
            cell.outputs = []
        if "why" in tags:
            for output in cell.outputs:
                output.data["text/html"] = output.data["text/html"].replace("<details>", "<details open>", 1)
        self.add(cell)
        self.shown = "output" if cell.outputs else "code"

    def note_answers(self, source: str, tags: set[str]) -> None:
        """Put what answers a prediction or an exercise into the notes."""
        if "predict" in tags:
            self.add("Everybody commits before the next slide.", "notes")
            self.add(teacher_texts().answers(find_prediction(called_with(source, "predict"))), "notes")
        elif "answer" in tags:
            exercise = find(defined_name(source))
            self.add(f"**The answer**\n\n```python\n{exercise.source.strip()}\n```", "notes")
            mistakes = teacher_texts().mistakes(exercise)
            self.add(f"**Mistakes to expect, in the words of the check**\n\n{mistakes}", "notes")


def _split_at_headings(text: str) -> list[tuple[int, str, str]]:
    parts, fenced = [""], False
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            parts.append("")
        parts[-1] += line
    found = [(re.match(r"(#*) ?(.*)", part), part) for part in parts if part.strip()]
    return [(len(start[1]), start[2].replace("`", ""), part) for start, part in found]


def _imports(source: str, setup: bool) -> bool:
    body = ast.parse(source).body
    if setup:  # such a cell may do more than to import, and "find the course" tries to
        return any(_is_import(node) for each in body for node in ast.walk(each))
    return all(map(_is_import, body))


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)
