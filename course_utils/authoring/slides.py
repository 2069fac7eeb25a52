"""Slides of a lesson: reveal.js in one HTML file, with the teacher's notes in the speaker view, and no network.

How a lesson is cut: each heading of level 1 or 2 begins a column of slides, each of level 3 a slide below. What a cell
holds (paragraphs, code, outputs) is put on a slide until that is full, and goes on under the same heading. A prediction
ends its slide, so that nobody reads the answer with the question. Imports, parameters and checks are left out;
answer cells show the task, and the notes below the slide the answer.
"""

from __future__ import annotations

import ast
import base64
import html
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import page
from course_utils.authoring.editions import (
    BUILD,
    describe_answers,
    describe_mistakes,
    read_built,
    title_of,
    with_notes,
)
from course_utils.authoring.source import called_with, defined_name, tags_of
from course_utils.exercises.engine import find, find_prediction
from course_utils.root import CourseError

FOLDER = BUILD / "slides"

# A slide in pixels, and what the style below makes of text. The sizes are estimates: a slide that turns out too full
# can be scrolled.
WIDTH, HEIGHT = 1280, 720
ROOM = 600  # below the heading
TEXT_LINE, TEXT_LETTERS = 33, 94
CODE_LINE, CODE_LETTERS = 24, 108
PICTURE_HEIGHT = 400
LEFT_OUT = {"parameters", "injected-parameters", "check"}


# -------------------------------------------------------------------------------------------------- pieces of a lesson


@dataclass
class Piece:
    """Something that stays on one slide: a paragraph, a cell's code, an output; with its estimated height in pixels."""

    cell: NotebookNode
    height: int
    heading: int = 0  # its level, if it is one
    ends_slide: bool = False
    leads_on: bool = False  # it announces what comes next, and stays with it
    notes: list[str] = field(default_factory=list)


def cut(notebook: NotebookNode) -> Iterator[Piece]:
    """The pieces of a lesson with notes, in order. Outputs must be flat (`pages.flatten_outputs`)."""
    for cell in notebook.cells:
        tags = set(tags_of(cell))
        if "instructor" in tags:
            yield Piece(_text_cell(""), 0, notes=[cell.source])
        elif cell.cell_type == "markdown":
            yield from _cut_text(cell.source)
        elif "predict" in tags:
            yield _show_question(cell)
        elif "answer" in tags:
            yield _show_task(cell)
        elif not (tags & LEFT_OUT) and not _only_prepares(cell.source, "setup" in tags):
            yield from _cut_code(cell)


def _cut_text(text: str) -> Iterator[Piece]:
    blocks = _split_blocks(text)
    for number, block in enumerate(blocks):
        marks = re.match(r"(#+) ", block)
        leads_on = block.endswith(":") or number + 1 == len(blocks)
        height = 0 if marks else _text_height(block)
        yield Piece(_text_cell(block), height, heading=len(marks.group(1)) if marks else 0, leads_on=leads_on)


def _split_blocks(text: str) -> list[str]:
    """Markdown cut at blank lines outside code fences, each heading by itself, and list items kept together."""
    blocks: list[list[str]] = [[]]
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        if not fenced and (line.startswith("#") or (not line.strip() and blocks[-1])):
            blocks.append([])
        if line.strip() or fenced:
            blocks[-1].append(line)
            if not fenced and line.startswith("#"):
                blocks.append([])
    return ["\n".join(block) for block in blocks if block]


def _text_height(block: str) -> int:
    if block.startswith("```"):
        return (block.count("\n") - 1) * CODE_LINE + 40
    if block.startswith("|"):
        rows = [row for row in block.splitlines() if not re.fullmatch(r"[|\s:-]+", row)]
        columns = max(rows[0].count("|") - 1, 1)
        letters = max(TEXT_LETTERS // columns, 8)
        return sum(max(-(-len(part) // (letters * 2)) for part in row.split("|")) * 29 + 13 for row in rows) + 20
    if block.startswith("$$"):
        return 110
    items = re.split(r"\n(?=[-*] |\d+\. )", block)
    plain = [re.sub(r"\]\([^)]*\)|[*`_]", "", item) for item in items]
    return sum(-(-len(item) // TEXT_LETTERS) for item in plain) * TEXT_LINE + 16


def _cut_code(cell: NotebookNode) -> Iterator[Piece]:
    code = nbformat.v4.new_code_cell(cell.source, id=cell.id)
    yield Piece(code, _code_height(cell.source), leads_on=bool(cell.outputs))
    for number, output in enumerate(cell.outputs):
        shown = nbformat.v4.new_code_cell(cell.source, outputs=[output], id=f"{cell.id}-out-{number}")
        page.hide_code(shown)
        yield Piece(shown, _output_height(output))


def _code_height(source: str) -> int:
    return sum(max(-(-len(line) // CODE_LETTERS), 1) for line in source.splitlines()) * CODE_LINE + 26


def _output_height(output: NotebookNode) -> int:
    data = output.get("data", {})
    page = data.get("text/html", "")
    if picture := re.search(r"data:image/png;base64,([^\"']{48})", page):
        width, height = struct.unpack(">II", base64.b64decode(picture.group(1))[16:24])  # a PNG says so at its start
        return min(int(height * min(1, (WIDTH - 80) / width)), PICTURE_HEIGHT) + _caption_height(page)
    if box := re.search(r'viewBox="[\d.-]+ [\d.-]+ ([\d.]+) ([\d.]+)"', page):
        return min(int(float(box.group(2))), PICTURE_HEIGHT) + _caption_height(page)
    if page:
        lines = re.sub(r"<(?:p|li|tr|div|pre|br|h\d|summary)\b", "\n<", page)
        words = [re.sub(r"<[^>]*>", "", line).strip() for line in lines.splitlines()]
        return sum(-(-len(line) // TEXT_LETTERS) * (TEXT_LINE + 8) for line in words if line) + 20
    return _code_height((output.get("text") or data.get("text/plain", "")).strip())


def _caption_height(page: str) -> int:
    caption = re.search(r"<figcaption>(.*)</figcaption>", page, re.DOTALL)
    return 20 + (-(-len(caption.group(1)) // TEXT_LETTERS) * TEXT_LINE if caption else 0)


def _show_question(cell: NotebookNode) -> Piece:
    prediction = find_prediction(called_with(cell.source, "predict") or "")
    shown = nbformat.v4.new_code_cell(cell.source, id=cell.id)
    shown.outputs = [nbformat.v4.new_output("display_data", data={"text/html": page.show_prediction(prediction)})]
    page.hide_code(shown)
    lines = -(-len(prediction.question) // TEXT_LETTERS) + len(prediction.options)
    notes = ["Everybody commits before the next slide.", describe_answers(prediction)]
    return Piece(shown, lines * 36 + 40, ends_slide=True, notes=notes)


def _show_task(cell: NotebookNode) -> Piece:
    exercise = find(defined_name(cell.source))
    task = nbformat.v4.new_code_cell(cell.source, id=cell.id)
    notes = [f"**The answer**\n\n```python\n{exercise.source.strip()}\n```"]
    if exercise.mistakes:
        notes.append(f"**Mistakes to expect, in the words of the check**\n\n{describe_mistakes(exercise)}")
    return Piece(task, _code_height(cell.source), notes=notes)


def _only_prepares(source: str, setup: bool) -> bool:
    """Whether the code has nothing to look at: it only imports; or it is for set-up, imports, and defines nothing."""
    statements = ast.parse(source).body
    kinds = (ast.Import, ast.ImportFrom)
    imports = any(isinstance(node, kinds) for each in statements for node in ast.walk(each))
    if setup:
        return imports and not any(isinstance(each, ast.FunctionDef | ast.ClassDef) for each in statements)
    return imports and all(isinstance(each, kinds) for each in statements)


def _text_cell(text: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(text)


# -------------------------------------------------------------------------------------------------------------- slides


@dataclass
class Slide:
    """What stands on one slide. level: that of the heading it begins with, 0 if it goes on from the one before."""

    pieces: list[Piece] = field(default_factory=list)
    level: int = 0
    heading: str = ""

    @property
    def height(self) -> int:
        return sum(piece.height for piece in self.pieces)

    @property
    def notes(self) -> list[str]:
        return [note for piece in self.pieces for note in piece.notes]


def lay_out(pieces: Iterator[Piece]) -> list[Slide]:
    """Put pieces on slides: a new one at each heading, after a question, and where the next piece has no room."""
    slides = [Slide()]
    for piece in pieces:
        last = slides[-1]
        if piece.heading:
            slides.append(Slide([piece], piece.heading, piece.cell.source.lstrip("# ").replace("`", "")))
        elif piece.height and _is_full(last, piece):
            moved = [last.pieces.pop()] if _would_dangle(last) else []
            slides.append(Slide([*moved, piece], 0, last.heading))
        else:
            last.pieces.append(piece)
    return [slide for slide in slides if any(piece.height or piece.heading for piece in slide.pieces)]


def _is_full(slide: Slide, piece: Piece) -> bool:
    ended = any(each.ends_slide for each in slide.pieces)
    return ended or (slide.height > 0 and slide.height + piece.height > ROOM)


def _would_dangle(slide: Slide) -> bool:
    """Whether the slide's last piece announces what comes next, and there is more on the slide than that."""
    last = slide.pieces[-1]
    shown = [piece for piece in slide.pieces if piece.height]
    return last.leads_on and last.cell.cell_type == "markdown" and last.height < ROOM / 3 and len(shown) > 1


def to_notebook(slides: list[Slide]) -> NotebookNode:
    """The slides as a notebook for nbconvert's SlidesExporter: each slide's first cell says what it begins."""
    cells = []
    for slide in slides:
        shown = [piece.cell for piece in slide.pieces if piece.height or piece.heading]
        if not slide.level and slide.heading:
            shown.insert(0, _text_cell(f'<p class="goes-on">{html.escape(slide.heading)}</p>'))
        for cell in shown:
            cell.metadata["slideshow"] = {"slide_type": "-"}
        shown[0].metadata["slideshow"] = {"slide_type": "slide" if 1 <= slide.level <= 2 else "subslide"}
        if slide.notes:
            notes = _text_cell("\n\n".join(slide.notes))
            notes.metadata["slideshow"] = {"slide_type": "notes"}
            shown.append(notes)
        cells += shown
    return nbformat.v4.new_notebook(cells=[nbformat.from_dict({**cell, "id": f"s{n}"}) for n, cell in enumerate(cells)])


# ------------------------------------------------------------------------------------------------------------ reveal.js

STYLE = """
html, body { height: 100%; overflow: hidden; } main { max-width: none; margin: 0; padding: 0; height: 100%; }
.reveal { height: 100%; font: 25px/1.32 system-ui, "Segoe UI", Roboto, sans-serif; color: var(--ink); }
.reveal .slides { text-align: left; }
.reveal .slides section section { height: 720px; overflow-y: auto; padding: 24px 40px 30px; box-sizing: border-box; }
.reveal h1 { font-size: 1.9em; margin: 0 0 .4em; } .reveal h2 { font-size: 1.45em; margin: 0 0 .45em; border: 0;
  padding: 0; } .reveal h3 { font-size: 1.2em; margin: 0 0 .45em; }
.reveal p, .reveal ul, .reveal ol { margin: 0 0 .6em; }
.reveal .goes-on { color: var(--quiet); font-size: .75em; margin: 0 0 .6em; border-bottom: 1px solid var(--line); }
.reveal pre { font-size: 18px; line-height: 1.33; width: auto; margin: 0; box-shadow: none; }
.reveal .highlight { margin: .3em 0; padding: .4em .7em; } .reveal .jp-Cell-outputWrapper { margin: .2em 0 .5em; }
.reveal p code, .reveal li code, .reveal td code { font-size: .84em; }
.reveal table { font-size: .84em; margin: .3em 0 .6em; } .reveal th, .reveal td { border: 1px solid var(--line); }
.reveal img, .reveal svg { max-height: 400px; max-width: 100%; width: auto; margin: 0; }
.reveal figcaption { font-size: .8em; } .reveal .predict { font-size: 1.1em; padding: .7em 1em; }
.reveal .jp-Cell-outputWrapper:has(.predict) { border: 0; padding: 0; }
.reveal .slide-number { font-size: 15px; color: #fff; background: #404040; right: auto; left: 8px; }
"""

SCRIPT = """
Reveal.initialize({ width: %d, height: %d, margin: 0.02, center: false, hash: true, slideNumber: "c/t",
  transition: "none", controlsTutorial: false, plugins: [RevealNotes] });
"""


def read_reveal() -> dict[str, str]:
    """The texts of reveal.js: its style, its script and its plugin for notes, as the package pyreveal carries them.

    Raises `CourseError` where that is not installed.
    """
    from importlib import util

    found = util.find_spec("pyreveal")  # found, not imported: only its files are used
    if found is None or not found.submodule_search_locations:
        raise CourseError(page.explain_missing("pyreveal, which carries reveal.js,"))
    folder = Path(found.submodule_search_locations[0]) / "revealjs" / "dist"
    try:
        files = {name: (folder / name).read_text(encoding="utf-8") for name in ("reveal.css", "reveal.js")}
        return {**files, "notes.js": (folder / "plugin" / "notes.js").read_text(encoding="utf-8")}
    except FileNotFoundError as error:
        raise CourseError(f"The installed pyreveal has no {Path(error.filename).name}: install version 1.0.") from None


def make_slides(notebook: NotebookNode, reveal: dict[str, str]) -> str:
    """The page of slides of a lesson with its notes and outputs."""
    slides = to_notebook(lay_out(cut(page.flatten_outputs(notebook))))
    scripts = (reveal["reveal.js"], reveal["notes.js"], SCRIPT % (WIDTH, HEIGHT))
    script = "\n".join("<script>" + text.replace("</script", r"<\/script") + "</script>" for text in scripts)
    return page.export_slides(
        slides,
        f"{title_of(notebook)}: slides",
        style=reveal["reveal.css"] + STYLE,
        before='<div class="reveal"><div class="slides">',
        after="</div></div>",
        scripts=script,
    )


def write_slides(source: Path, folder: Path | None = None) -> Path:
    """Write the slides of the lesson `source` into `folder` (build/slides) and return the file.

    Raises `CourseError` where reveal.js is not installed, or the lesson's notebook is out of date.
    """
    reveal = read_reveal()
    page = make_slides(with_notes(source, read_built(source)), reveal)
    return page.write_page(page, (folder or FOLDER) / f"{source.stem}.slides.html")
