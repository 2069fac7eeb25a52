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
from markdown_it.token import Token

from course_utils.authoring import source
from course_utils.root import ROOT

LESSONS = source.sources()
HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}")


class Tags(HTMLParser):
    """The addresses and names in a piece of HTML."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [given[name] or "" for name in ("href", "src") if name in given]
        self.names += [given[name] or "" for name in ("id", "name") if name in given]


def parts_of(markdown: str) -> list[Token]:
    """All tokens of a Markdown text, those inside of lines too."""
    tokens = MarkdownIt("commonmark").parse(markdown)
    return [part for token in tokens for part in (token, *(token.children or []))]


def links_in(markdown: str) -> list[str]:
    """Where the links and pictures in a Markdown text lead to. What is set as code is no link."""
    found = []
    for part in parts_of(markdown):
        found += [str(part.attrs[name]) for name in ("href", "src") if name in part.attrs]
        if part.type in ("html_inline", "html_block"):
            found += Tags(part.content).links
    return found


def headings_in(markdown: str) -> list[str]:
    """The text of each heading, without the marks of code and emphasis."""
    tokens = MarkdownIt("commonmark").parse(markdown)
    inlines = [after for token, after in pairwise(tokens) if token.type == "heading_open"]
    return ["".join(part.content for part in inline.children or []) for inline in inlines]


def anchors_in(markdown: str, *, lesson: bool) -> set[str]:
    """What may stand after # in a link to this text: in a lesson by Jupyter's rule, else by GitHub's."""
    names = {name for part in parts_of(markdown) if "html" in part.type for name in Tags(part.content).names}
    for heading in headings_in(markdown):
        kept = heading if lesson else re.sub(r"[^\w\- ]", "", heading.lower())
        names.add(kept.replace(" ", "-"))
    return names


def text_of(path: Path) -> str:
    """The Markdown in a file, that of a notebook's cells or of a lesson's source together."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    notebook = source.read_source(path) if path.suffix == ".py" else nbformat.read(path, as_version=4)
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def find_broken(markdown: str, folder: Path, *, lesson: bool) -> list[str]:
    """The links in a text of a file in `folder` that lead nowhere, each with the reason."""
    problems = []
    for link in links_in(markdown):
        split = urlsplit(link)
        if split.scheme or split.netloc:
            if split.scheme != "https" or not HOST.fullmatch(split.netloc) or re.search(r"\s", link):
                problems.append(f"{link}: an address outside begins with https:// and a host's name")
            continue
        target = folder / unquote(split.path)
        if split.path and not target.exists():
            problems.append(f"{link}: there is no such file")
        elif split.path and lesson and (target.parent != folder or target.suffix != ".ipynb"):
            problems.append(f"{link}: beside a learner's copy there are only lessons")
        elif split.fragment:
            known = anchors_in(
                text_of(target) if split.path else markdown, lesson=lesson or split.path[-6:] == ".ipynb"
            )
            problems += [] if unquote(split.fragment) in known else [f"{link}: there is no such heading"]
    return problems


PAGES = [pytest.param(path, id=path.name) for path in sorted(ROOT.glob("*.md"))]
NOTEBOOKS = [
    pytest.param(path, id=path.name) for lesson in LESSONS for path in (lesson, source.FOLDER / f"{lesson.stem}.ipynb")
]


@pytest.mark.parametrize("path", PAGES)
def test_links_of_a_page_lead_somewhere(path):
    assert find_broken(text_of(path), path.parent, lesson=False) == []


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_links_of_a_lesson_lead_somewhere(path):
    assert find_broken(text_of(path), source.FOLDER, lesson=True) == []


def test_all_lessons_are_reached_from_the_readme_and_from_the_first_lesson():
    names = {f"{lesson.stem}.ipynb" for lesson in LESSONS}
    assert {f"notebooks/{name}" for name in names} <= set(links_in(text_of(ROOT / "README.md")))
    assert names - {"00_start_here.ipynb"} <= set(links_in(text_of(LESSONS[0])))


@pytest.fixture
def folder(tmp_path):
    cell = nbformat.v4.new_markdown_cell("# A lesson\n\n## What `it` does")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "01_one.ipynb")
    (tmp_path / "other.md").write_text('# Title\n\n## Why, and *how*?\n\n<a id="here"></a>')
    (tmp_path / "a picture.png").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "[a](01_one.ipynb) [b](01_one.ipynb#What-it-does) [c](other.md#why-and-how) [d](other.md#here)",
        "![words](a%20picture.png) <img src='a%20picture.png' alt='words'>",
        "# My own\n[a](#my-own)",
        "[a](https://pytorch.org/docs/stable/x.html#y) <https://arxiv.org/abs/1>",
        "`[a](no.md)`\n\n```\n[a](no.md)\n```",
        "| a |\n|---|\n| [a](other.md) |",
    ],
)
def test_good_links_are_fine(folder, text):
    assert find_broken(text, folder, lesson=False) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
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
def test_a_broken_link_is_found(folder, text, reason):
    (found,) = find_broken(text, folder, lesson=False)
    assert reason in found


@pytest.mark.parametrize("text", ["[a](../README.md)", "[a](other.md)", "![a](a%20picture.png)"])
def test_what_is_not_beside_a_learners_copy_is_found(folder, text):
    (folder.parent / "README.md").write_text("# Title")
    (found,) = find_broken(text, folder, lesson=True)
    assert "only lessons" in found
