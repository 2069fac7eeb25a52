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
    cells: list[NotebookNode] = []
    heading = shown = ""  # of the last slide: its heading; and "code" or "output", if it has one already
    bare = imported = False  # has it nothing but its heading? Was the last cell one of imports?

    def add(part: NotebookNode | str, kind: str = "-") -> None:
        cells.append(nbformat.v4.new_markdown_cell(part) if isinstance(part, str) else part)
        cells[-1].metadata["slideshow"] = {"slide_type": kind}
        cells[-1].id = f"s{len(cells) - 1}"

    for cell in notebook.cells:
        tags = set(tags_of(cell))
        if "instructor" in tags:
            add(cell.source, "notes")
        elif cell.cell_type == "markdown":
            imported = False
            for level, title, text in _split_at_headings(re.sub(KEYS, "", cell.source).replace(*NEXT)):
                heading = title if level else heading
                if shown and not level:
                    add(GO_ON.format(html.escape(heading)), "subslide")
                add(text, "-" if not level or bare else "slide" if level < 3 else "subslide")
                shown, bare = "", bool(level) and "\n" not in text.strip()
        elif _imports(cell.source, "setup" in tags) or (imported and "setup" in tags and not cell.outputs):
            imported = True  # what stands with the imports is for the notes
            if re.search(r"^(def|class) ", cell.source, re.MULTILINE):
                add(f"**Defined with the imports**\n\n```python\n{cell.source}\n```", "notes")
        elif not tags & LEFT_OUT:
            bare = imported = False
            if shown == "output" or "why" in tags:
                add(GO_ON.format(html.escape(heading)), "subslide")
            cell.outputs = [] if "answer" in tags else cell.outputs
            for output in cell.outputs if "why" in tags else []:
                output.data["text/html"] = output.data["text/html"].replace("<details>", "<details open>", 1)
            add(cell)
            shown = "output" if cell.outputs else "code"
            if "predict" in tags:
                add("Everybody commits before the next slide.", "notes")
                add(teacher_texts().answers(find_prediction(called_with(cell.source, "predict"))), "notes")
            elif "answer" in tags:
                exercise = find(defined_name(cell.source))
                add(f"**The answer**\n\n```python\n{exercise.source.strip()}\n```", "notes")
                mistakes = teacher_texts().mistakes(exercise)
                add(f"**Mistakes to expect, in the words of the check**\n\n{mistakes}", "notes")
    return nbformat.v4.new_notebook(cells=cells)


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
    body = ast.parse(source).body  # a cell of the setup may do more than to import, and "find the course" tries to
    nodes = [node for each in body for node in ast.walk(each)] if setup else body
    return (any if setup else all)(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)
