"""Slides of a lesson: reveal.js in one HTML file, with the teacher's notes in the speaker view, and no network.

They follow the lesson's plan for 90 minutes. Each heading begins a slide. After that a slide is one step: what leads to
a cell, the cell with its output, and the first paragraph about what was found. A prediction ends its slide: nobody
reads the answer with the question. Folded code is for the notes, and so are the answers. Long tables to look things up
(the tag `reference`) are left out. What a slide cannot hold goes on upon the next, and what is shown one after the
other is cut in pieces: `assets/slides.js` does both in the browser.
"""

import ast
import html
import re
from collections.abc import Iterable
from importlib import util
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import pace, page
from course_utils.authoring.editions import BUILD, read_built, teacher_texts, write_each
from course_utils.authoring.source import called_with, defined_name, read_source, read_whole, tags_of
from course_utils.exercises.engine import find, find_prediction
from course_utils.root import ASSETS, CourseError

FOLDER = BUILD / "slides"
LEFT_OUT = {"parameters", "injected-parameters", "check", "reference"}
FOLDED = {"setup", "explore"}  # of these, a class sees the output alone
NOT_FOR_A_CLASS = re.compile(  # what is said of keys, folded cells and parts to leave out, and the minutes of a reader
    r"^\*\*Minutes:\*\*.*\n?|\s*\([^()]*\bfolded\b[^()]*\)|"
    r"[^.\s](?:(?!\n\n)[^.])*(?:Shift\+Enter|\bfolded\b|can wait:\s+the\s+lesson)[^.]*\.\s*",
    re.MULTILINE,
)
NEXT = "before you run the next cell", "before the next slide"
GO_ON = '<p class="goes-on">{}</p>'
VOTE = '<p class="vote"><a href="/class#ask={}" target="class">Vote on the page of the class</a></p>'
EXERCISE = re.compile(r"Exercise (\d+)")
NOTHING = "nothing"  # so says a plan where a section leaves nothing for home


def write_slides(lesson: str | None = None, everything: bool = False, folder: Path = FOLDER) -> int:
    """Write the slides of a lesson (`07`), or of all; `CourseError` where reveal.js is missing or a notebook is old.

    They have what the lesson's plan for 90 minutes has, or `everything`.
    """
    found = util.find_spec("pyreveal")  # found, not imported: only its files are used
    if found is None:
        raise CourseError(page.explain_missing("pyreveal, which carries reveal.js,"))
    dist = Path(found.submodule_search_locations[0]) / "revealjs" / "dist"
    files = (*(dist / name for name in ("reveal.css", "reveal.js", "plugin/notes.js")), ASSETS / "slides.js")
    reveal = tuple(file.read_text(encoding="utf-8") for file in files)

    def make(path: Path) -> str:
        shown = with_notes(path, read_built(path))
        if not everything:
            shown = follow_plan(path, shown)
        return page.export(cut(page.flatten_outputs(shown)), reveal=reveal)

    return write_each(lesson, folder / "NAME.slides.html", make, "the slides; S opens the speaker view with the notes")


def with_notes(path: Path, built: NotebookNode) -> NotebookNode:
    """The cells of `built` with the notes for instructors between them, where the source `path` has them."""
    ran, whole = {cell.id: cell for cell in built.cells}, read_source(path)
    whole.cells = [cell if "instructor" in tags_of(cell) else ran[cell.id] for cell in whole.cells]
    return whole


def follow_plan(path: Path, notebook: NotebookNode) -> NotebookNode:
    """What the plan for 90 minutes has of a lesson with notes: no *More*, and of the exercises for home only a list."""
    whole = read_whole(path).cells
    plan, parts = pace.plan(whole), pace.parts(whole, path.stem[:2])
    core = {part.cell for part in parts if part.kind == pace.CORE}
    in_the_room = {number for step in plan.steps for number in step.exercises}
    kept, is_core, at_home = [], True, False
    for cell in notebook.cells:
        tags = tags_of(cell)
        if "instructor" not in tags:  # a note goes with what it stands behind
            is_core = cell.id in core
        if cell.cell_type == "markdown" and "instructor" not in tags:
            pieces = pace.split_at_headings(cell.source)
            home = [_stays_for_home(title, in_the_room) for _, title, _ in pieces]
            cell.source = "".join(part for (_, _, part), away in zip(pieces, home, strict=True) if not away)
            at_home = home[-1]
        if is_core and cell.source and not (at_home and {"answer", "check"} & set(tags)):
            kept.append(cell)
    notebook.cells = [*kept, nbformat.v4.new_markdown_cell(_say_homework(plan))]
    return notebook


def _stays_for_home(title: str, in_the_room: set[int]) -> bool:
    exercise = EXERCISE.search(title)
    return exercise is not None and int(exercise[1]) not in in_the_room


def _say_homework(plan: pace.Plan) -> str:
    sections = [f"- *{step.sections}:* {step.at_home}" for step in plan.steps if step.at_home != NOTHING]
    return "\n".join(["## At home", "", plan.homework, "", *sections])


def cut(notebook: NotebookNode) -> NotebookNode:
    """A lesson with notes and flat outputs as slides, which nbconvert reads from each cell's metadata `slideshow`."""
    slides = _Slides()
    for place, cell in enumerate(notebook.cells):
        tags = set(tags_of(cell))
        if "instructor" in tags:
            slides.add(cell.source, "notes")
        elif cell.cell_type == "markdown" and "reference" in tags:
            continue
        elif cell.cell_type == "markdown":
            slides.add_text(cell.source, _is_code_next(notebook.cells[place + 1 :]))
        elif _is_left_out(cell):
            slides.note_definitions(cell.source)
        else:
            slides.add_code(cell, tags)
            slides.note_answers(cell.source, tags)
    return nbformat.v4.new_notebook(cells=slides.cells)


def _is_left_out(cell: NotebookNode) -> bool:
    tags = set(tags_of(cell))
    imports = all(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.parse(cell.source).body)
    return bool(tags & LEFT_OUT) or imports or ("setup" in tags and not cell.outputs)


def _is_code_next(cells: Iterable[NotebookNode]) -> bool:
    for cell in cells:
        if cell.cell_type == "code" and not _is_left_out(cell):
            return True
        if cell.cell_type == "markdown" and "instructor" not in tags_of(cell):
            return False
    return False


class _Slides:
    """The cells of the slides, and what the next one has to know of the last slide."""

    def __init__(self) -> None:
        self.cells: list[NotebookNode] = []
        self.heading = ""
        self.shown = ""  # "code", "output" or "question", if the slide has one already
        self.bare = False  # has it nothing but its heading?

    def add(self, part: NotebookNode | str, kind: str = "-") -> None:
        """Add a cell, or a text as a cell; `kind` is what it begins: "slide", "subslide", "notes" or "-", nothing."""
        cell = nbformat.v4.new_markdown_cell(part) if isinstance(part, str) else part
        cell.metadata["slideshow"] = {"slide_type": kind}
        cell.id = f"s{len(self.cells)}"
        self.cells.append(cell)

    def go_on(self) -> None:
        """Begin a slide below the last one, with the same heading."""
        self.add(GO_ON.format(html.escape(self.heading)), "subslide")
        self.shown = ""

    def add_text(self, text: str, leads: bool) -> None:
        """Add a text, cut at its headings. `leads`: is there code next, which its end is about?"""
        pieces = pace.split_at_headings(NOT_FOR_A_CLASS.sub("", text).replace(*NEXT))
        for level, title, part in pieces:
            if level:
                self.heading, self.shown = title.replace("`", ""), ""
            elif self.shown:
                part = self._add_finding(part, leads and len(pieces) == 1)
                if not part:
                    continue
                self.go_on()
            self.add(part, self._kind_of_text(level))
            self.bare = level > 0 and "\n" not in part.strip()

    def _add_finding(self, text: str, leads: bool) -> str:
        """Add what a text says of the output above it, and return the rest, which leads to the next code."""
        if self.shown == "question":
            return text
        found, rest = _split_first_paragraph(text) if leads else (text, "")
        if leads and not rest:  # one paragraph before code is about that code
            return text
        self.add(nbformat.v4.new_markdown_cell(found, metadata={"tags": ["found"]}))
        return rest

    def _kind_of_text(self, level: int) -> str:
        if level == 0 or self.bare:
            return "-"
        return "slide" if level < 3 else "subslide"

    def note_definitions(self, source: str) -> None:
        """Leave folded code out; what it defines is for the notes."""
        if re.search(r"^(def|class) ", source, re.MULTILINE):
            self.add(f"**Defined in a folded cell**\n\n```python\n{source}\n```", "notes")

    def add_code(self, cell: NotebookNode, tags: set[str]) -> None:
        """Add a code cell; behind a question or an output it begins a slide, unless it shows more of the same."""
        self.bare = False
        if self.shown == "question" or (self.shown == "output" and not tags & {"setup", "why"}):
            self.go_on()
        if tags & FOLDED:
            cell.metadata["transient"] = {"remove_source": True}
        if "answer" in tags:
            cell.outputs = []
        for output in cell.outputs:
            if "why" in tags:
                output.data["text/html"] = output.data["text/html"].replace("<details>", "<details open>", 1)
            elif "predict" in tags:
                output.data["text/html"] += VOTE.format(called_with(cell.source, "predict"))
        self.add(cell)
        self.shown = "question" if "predict" in tags else "output" if cell.outputs else "code"

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


def _split_first_paragraph(text: str) -> tuple[str, str]:
    """The first paragraph, with the list or the code that it announces, and the rest."""
    parts = re.split(r"\n\n(?=\S)", text.strip())
    end = 1
    while end < len(parts) and (parts[end - 1].endswith(":") or "\n\n".join(parts[:end]).count("```") % 2):
        end += 1
    return "\n\n".join(parts[:end]), "\n\n".join(parts[end:])
