"""The cheat sheet of lesson 09: all kinds of hooks, the order of a call and five traps on one page.

Nothing stands in it that is not in the lesson: the table is made from the lists under its headings (`Call`, `Runs`,
`Returns`), the order is what its cell printed, and the traps are those of its summary.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from jinja2 import Template
from markdown_it import MarkdownIt
from nbformat import NotebookNode

from course_utils.authoring.editions import BUILD, read_built, write_and_say
from course_utils.authoring.pace import split_at_headings
from course_utils.authoring.source import choose
from course_utils.root import ASSETS

COLUMNS = ("Call", "Runs", "Returns")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
POINT = re.compile(r"^- \*\*(\w+):\*\* (.+(?:\n +.+)*)", re.MULTILINE)
NUMBERED = re.compile(r"^\d+\. (.+(?:\n +.+)*)", re.MULTILINE)


def write_cheatsheet(folder: Path = BUILD / "cheatsheet") -> int:
    """Write the sheet as HTML, and as PDF where a browser prints it; `CourseError` where the lesson is out of date."""
    (lesson,) = choose(["09"])
    page, pdf = folder / "hooks.html", folder / "hooks.pdf"
    write_and_say(page, make_page(read_built(lesson)), "one page to print")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("There is no Chromium or Chrome here to make a PDF of it: print the page from your browser.")
        return 0
    options = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={pdf}"]
    if os.name == "posix" and os.geteuid() == 0:
        options.append("--no-sandbox")  # for root there is no sandbox
    subprocess.run([browser, *options, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)
    write_and_say(pdf, pdf.read_bytes(), "the same as PDF")
    return 0


def make_page(lesson: NotebookNode, template: str = "cheatsheet.html.j2") -> str:
    """The sheet as one HTML text, from the notebook of lesson 09 as it was built, by a template of the assets."""
    prose = "\n\n".join(cell.source for cell in lesson.cells if cell.cell_type == "markdown")
    traps = NUMBERED.findall(prose.partition("## Summary")[2].partition("\n## ")[0])
    (order,) = [cell.outputs[0].text for cell in lesson.cells if cell.id == "the-order-of-a-call"]
    return Template((ASSETS / template).read_text(encoding="utf-8"), autoescape=True).render(
        columns=COLUMNS,
        table=read_table(prose).items(),
        order=[line.strip().partition(" ")[2] for line in order.splitlines()],
        traps=[_html(each) for each in traps],
    )


def _html(markdown: str) -> str:
    return MarkdownIt("js-default").renderInline(" ".join(markdown.split()))


def read_table(prose: str) -> dict[str, list[list[str]]]:
    """The sections of the lesson's core that describe hooks, each with a row for every kind: its `COLUMNS` as HTML."""
    table, section = {}, ""
    for level, heading, text in split_at_headings(prose):
        section = heading if level == 2 else section
        said = dict(POINT.findall(text))
        if said.keys() >= set(COLUMNS) and not section.startswith("More: "):
            table.setdefault(section, []).append([_html(said[column]) for column in COLUMNS])
    return table
