"""Every link in the README and in the lessons leads somewhere: to a file, to a heading, or to an https address.

No address is opened. A lesson's links have to hold in `work/` too, where there is nothing but the lessons.
"""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from markdown_it import MarkdownIt

from course_utils.authoring import source
from course_utils.root import ROOT

LESSONS = source.sources()
HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}")


class Markdown(HTMLParser):
    """Where the links and pictures of a Markdown text lead, and what can be linked to. What is set as code is none."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.names = [], []
        tokens = MarkdownIt("commonmark").parse(text)
        inlines = [after for token, after in pairwise(tokens) if token.type == "heading_open"]
        self.headings = ["".join(part.content for part in inline.children) for inline in inlines]
        for part in [part for token in tokens for part in (token, *(token.children or []))]:
            self.links += [str(part.attrs[name]) for name in ("href", "src") if name in part.attrs]
            if part.type in ("html_inline", "html_block"):
                self.feed(part.content)

    def handle_starttag(self, tag, attrs):
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.names += [value or "" for name, value in attrs if name in ("id", "name")]

    def anchors(self, *, lesson: bool) -> set[str]:
        """What may stand after # in a link to this text: in a lesson by Jupyter's rule, else by GitHub's."""
        kept = [each if lesson else re.sub(r"[^\w\- ]", "", each.lower()) for each in self.headings]
        return {*self.names, *(each.replace(" ", "-") for each in kept)}


def text_of(path: Path) -> str:
    """The Markdown in a file, that of a notebook's cells or of a lesson's source together."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    notebook = source.read_source(path) if path.suffix == ".py" else nbformat.read(path, as_version=4)
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def find_broken(markdown: str, folder: Path, *, lesson: bool) -> list[str]:
    """The links in a text of a file in `folder` that lead nowhere, each with the reason."""
    problems = []
    for link in Markdown(markdown).links:
        split = urlsplit(link)
        target = folder / unquote(split.path)
        inside = not split.scheme and not split.netloc
        if not inside and (split.scheme != "https" or not HOST.fullmatch(split.netloc) or re.search(r"\s", link)):
            problems.append(f"{link}: an address outside begins with https:// and a host's name")
        elif inside and split.path and not target.exists():
            problems.append(f"{link}: there is no such file")
        elif inside and split.path and lesson and (target.parent != folder or target.suffix != ".ipynb"):
            problems.append(f"{link}: beside a learner's copy there are only lessons")
        elif inside and split.fragment:
            there = Markdown(text_of(target) if split.path else markdown)
            if unquote(split.fragment) not in there.anchors(lesson=lesson or target.suffix == ".ipynb"):
                problems.append(f"{link}: there is no such heading")
    return problems


PAGES = [*ROOT.glob("*.md"), *ROOT.glob("course_utils/*/README.md")]
NOTEBOOKS = [path for lesson in LESSONS for path in (lesson, source.FOLDER / f"{lesson.stem}.ipynb")]


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    lesson = path in NOTEBOOKS
    assert find_broken(text_of(path), source.FOLDER if lesson else path.parent, lesson=lesson) == []


def test_all_lessons_are_reached_from_the_readme_and_from_the_first_lesson():
    names = {f"{lesson.stem}.ipynb" for lesson in LESSONS}
    assert {f"notebooks/{name}" for name in names} <= set(Markdown(text_of(ROOT / "README.md")).links)
    assert names - {"00_start_here.ipynb"} <= set(Markdown(text_of(LESSONS[0])).links)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "course").mkdir()
    cell = nbformat.v4.new_markdown_cell("# A lesson\n\n## What `it` does")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "course" / "01_one.ipynb")
    (tmp_path / "course" / "other.md").write_text('# Title\n\n## Why, and *how*?\n\n<a id="here"></a>')
    (tmp_path / "course" / "a picture.png").write_bytes(b"")
    (tmp_path / "README.md").write_text("# Title")
    return tmp_path / "course"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a](01_one.ipynb) [b](01_one.ipynb#What-it-does) [c](other.md#why-and-how) [d](other.md#here)", ""),
        ("![words](a%20picture.png) <img src='a%20picture.png' alt='words'>", ""),
        ("# My own\n[a](#my-own)", ""),
        ("[a](https://pytorch.org/docs/stable/x.html#y) <https://arxiv.org/abs/1>", ""),
        ("`[a](no.md)`\n\n```\n[a](no.md)\n```", ""),
        ("| a |\n|---|\n| [a](other.md) |", ""),
        ("[a](no.md)", "no such file"),
        ("![a](no.png)", "no such file"),
        ("<img src='no.png'>", "no such file"),
        ("| a |\n|---|\n| [a](no.md) |", "no such file"),
        ("[a][b]\n\n[b]: no.md", "no such file"),
        ("[a](other.md#why)", "no such heading"),
        ("[a](01_one.ipynb#what-it-does)", "no such heading"),
        ("# Mine\n[a](#yours)", "no such heading"),
        ("[a](http://pytorch.org)", "https"),
        ("[a](https://pytorch)", "https"),
        ("[a](https:///docs)", "https"),
        ("[a](ftp://pytorch.org)", "https"),
    ],
)
def test_broken_links_are_found_and_good_ones_are_fine(folder, text, reason):
    found = find_broken(text, folder, lesson=False)
    assert len(found) == bool(reason)
    assert reason in "".join(found)


@pytest.mark.parametrize("text", ["[a](../README.md)", "[a](other.md)", "![a](a%20picture.png)"])
def test_what_is_not_beside_a_learners_copy_is_found(folder, text):
    (found,) = find_broken(text, folder, lesson=True)
    assert "only lessons" in found
