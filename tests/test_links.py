"""Every link in the README and in the lessons leads somewhere: to a file, to a heading, or to an https address.

No address is opened. A lesson's links have to hold in `work/` too, where there is nothing but the lessons.
"""

import re
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt

from course_utils.authoring import source
from course_utils.root import ROOT

LESSONS = source.sources()
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("course_utils/*/README.md")]
NOTEBOOKS = [path for lesson in LESSONS for path in (lesson, source.FOLDER / f"{lesson.stem}.ipynb")]
OUTSIDE = re.compile(r"https://(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}(?:[/?#]\S*)?")


def find_links(markdown):
    """Where the links and pictures of a Markdown text lead; what is set as code has none."""
    soup = BeautifulSoup(MarkdownIt("commonmark").render(markdown), "html.parser")
    return [tag[name] for tag in soup.find_all(True) for name in ("href", "src") if tag.has_attr(name)]


def find_anchors(markdown, *, lesson):
    """What may stand after # in a link to this text: in a lesson by Jupyter's rule, else by GitHub's."""
    soup = BeautifulSoup(MarkdownIt("commonmark").render(markdown), "html.parser")
    headings = [heading.get_text() for heading in soup.find_all(re.compile(r"h\d"))]
    kept = [each if lesson else re.sub(r"[^\w\- ]", "", each.lower()) for each in headings]
    return {each.replace(" ", "-") for each in kept} | {tag["id"] for tag in soup.find_all(id=True)}


def text_of(path):
    """The Markdown in a file, that of a notebook's cells or of a lesson's source together."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    notebook = source.read_source(path) if path.suffix == ".py" else nbformat.read(path, as_version=4)
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def find_broken(markdown, folder, *, lesson):
    """The links in a text of a file in `folder` that lead nowhere, each with the reason."""
    for link in find_links(markdown):
        split = urlsplit(link)
        target = folder / unquote(split.path)
        if split.scheme or split.netloc:
            if not OUTSIDE.fullmatch(link):
                yield f"{link}: an address outside begins with https:// and a host's name"
        elif split.path and not target.exists():
            yield f"{link}: there is no such file"
        elif split.path and lesson and (target.parent != folder or target.suffix != ".ipynb"):
            yield f"{link}: beside a learner's copy there are only lessons"
        elif split.fragment:
            there = text_of(target) if split.path else markdown
            if unquote(split.fragment) not in find_anchors(there, lesson=lesson or target.suffix == ".ipynb"):
                yield f"{link}: there is no such heading"


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    lesson = path in NOTEBOOKS
    assert list(find_broken(text_of(path), source.FOLDER if lesson else path.parent, lesson=lesson)) == []


def test_all_lessons_are_reached_from_the_readme_and_from_the_first_lesson():
    names = {f"{lesson.stem}.ipynb" for lesson in LESSONS}
    assert {f"notebooks/{name}" for name in names} <= set(find_links(text_of(ROOT / "README.md")))
    assert names - {"00_start_here.ipynb"} <= set(find_links(text_of(LESSONS[0])))


@pytest.mark.parametrize(
    ("text", "lesson", "reason"),
    [
        ("[a](01_one.ipynb) [b](01_one.ipynb#What-it-does) [c](o.md#why-and-how) [d](o.md#here)", False, ""),
        ("![words](a%20picture.png) <img src='a%20picture.png' alt='words'>", False, ""),
        ("[a](https://pytorch.org/docs/stable/x.html#y) <https://arxiv.org/abs/1>", False, ""),
        ("`[a](no.md)`\n\n```\n[a](no.md)\n```", False, ""),
        ("[a](no.md)", False, "no such file"),
        ("| a |\n|---|\n| [a][b] |\n\n[b]: no.md", False, "no such file"),
        ("[a](o.md#why)", False, "no such heading"),
        ("[a](01_one.ipynb#what-it-does)", False, "no such heading"),
        ("# Mine\n[a](#mine)", True, "no such heading"),
        ("[a](http://pytorch.org)", False, "https"),
        ("[a](https://pytorch)", False, "https"),
        ("[a](../README.md)", True, "only lessons"),
    ],
)
def test_broken_links_are_found_and_good_ones_are_fine(tmp_path, text, lesson, reason):
    folder = tmp_path / "course"
    folder.mkdir()
    cell = nbformat.v4.new_markdown_cell("# A lesson\n\n## What `it` does")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / "01_one.ipynb")
    (folder / "o.md").write_text('# Title\n\n## Why, and *how*?\n\n<a id="here"></a>')
    (folder / "a picture.png").touch()
    (tmp_path / "README.md").touch()
    found = list(find_broken(text, folder, lesson=lesson))
    assert (len(found), reason in "".join(found)) == (bool(reason), True), found
