"""The README: its map is that of the lessons, its commands take what they are given, and all links lead somewhere.

No address is opened. A lesson's links have to hold in `work/` too, where there is nothing but the lessons.
"""

import re
from functools import cache
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt

from course_utils.__main__ import parse, read_targets
from course_utils.authoring import build, source
from course_utils.explorers import GradientFlow
from course_utils.root import ROOT, CourseError

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
LINES = [line.split("  #")[0] for block in BLOCKS for line in block.splitlines()] + re.findall(r"`([^`]+)`", PROSE)
PYTHON = r"(?:\.venv[/\\](?:bin|Scripts)[/\\])?(?:py|python3?)"
SOURCE = "# %% [markdown]\n# # {}\n#\n# **{}:** counted by the build\n\n{}"
TABLE = "# %% [markdown]\n# | 01 | [Old name](01_first.ipynb) | to look |\n"
ANSWER = '# %% [markdown] tags=["sealed"]\n# 1 point\n\n# %% tags=["answer"]\ndef look():\n    ...\n'


def test_the_picture_is_what_an_explorer_draws_before_its_first_step():
    """To draw it anew, write this to the file."""
    drawn = GradientFlow("w = 2; x = 3; b = 1; a = w * x; s = a + b; y = s ** 2", hooks={"a": "print"}).still_picture
    assert (ROOT / "notebooks" / "images" / "explorer.svg").read_text(encoding="utf-8") == f"{drawn}\n"


def shown(start: str) -> list[str]:
    """The commands in the README that match the pattern `start`, without their comments."""
    return sorted({" ".join(line.split()) for line in LINES if re.match(start, line)})


def test_only_the_map_of_the_readme_changes_and_what_is_lacking_is_named(tmp_path):
    assert build.renew_map(write=False), "run `make notebooks`: it renews the map of the lessons in the README"
    file, folder = tmp_path / "README.md", tmp_path / "source"
    folder.mkdir()
    (folder / "00_start_here.py").write_text(SOURCE.format("Start", "Minutes", TABLE))
    (folder / "01_first.py").write_text(SOURCE.format("First steps", "Minutes", ANSWER))
    file.write_text(f"# Course\n\n{build.MAP_HEAD}| 99 | gone | x | 0 | 0 |\n\nThe end.\n")
    assert [build.renew_map(file, tmp_path, write=write) for write in (False, True, True)] == [False, False, True]
    first = f"| 00 | [Start](notebooks/00_start_here.ipynb) | {build.START_PHRASE} | 0 | 0 |\n"
    second = "| 01 | [First steps](notebooks/01_first.ipynb) | to look | 1 | 6 |\n"
    assert file.read_text() == f"# Course\n\n{build.MAP_HEAD}{first}{second}\nThe end.\n"
    file.write_text("# Course\n")
    with pytest.raises(CourseError, match="no place for the map"):
        build.renew_map(file, tmp_path)
    for name, line, part in (("02_new", "Minutes", "has no row"), ("01_first", "Time", "Minutes:")):
        (folder / f"{name}.py").write_text(SOURCE.format("New", line, ANSWER))
        with pytest.raises(CourseError, match=f"{name}: .*{part}"):
            build.map_rows(tmp_path)


@pytest.mark.parametrize("line", shown("make [a-z]"))
def test_every_make_command_is_a_target_with_its_variables(line):
    _, target, *variables = re.findall(r"(?:[^\s\"\[\]]|\"[^\"]*\")+", line)  # the brackets mark what is optional
    assert all("=" in variable for variable in variables), f"{line}: VARIABLE=value"
    known = {*re.findall(r"[A-Z]+", read_targets()[target]["variables"]), "PYTHON", "TORCH"}
    assert {variable.partition("=")[0] for variable in variables} <= known


def test_every_python_command_and_extra_that_is_named_exists():
    for line in shown(rf"{PYTHON} -m course_utils [a-z]"):
        assert not parse(line.split()[3:])[1].get("arguments"), line
    extras = {name for line in shown(r".*pip install ") for name in re.findall(r"[a-z]+", line.partition("[")[2])}
    known = re.findall(r"^([a-z-]+) = \[$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {"dev", "instructor"} <= extras <= set(known)


LESSONS = source.sources()
PAGES = [*ROOT.glob("*.md"), *ROOT.glob(".github/*.md"), *ROOT.glob("course_utils/*/README.md")]
OUTSIDE = re.compile(r"https://(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}(?:[/?#]\S*)?")


def find_links(markdown):
    """Where the links and pictures of a Markdown text lead; what is set as code has none."""
    soup = BeautifulSoup(MarkdownIt("commonmark").render(markdown), "html.parser")
    return [tag[name] for tag in soup.find_all(True) for name in ("href", "src") if tag.has_attr(name)]


@cache
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


@pytest.mark.parametrize("path", [*PAGES, *LESSONS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    lesson = path in LESSONS
    assert list(find_broken(text_of(path), source.FOLDER if lesson else path.parent, lesson=lesson)) == []


def test_all_lessons_are_reached_from_the_readme_and_from_the_first_lesson():
    names = {f"{lesson.stem}.ipynb" for lesson in LESSONS}
    assert {f"notebooks/{name}" for name in names} <= set(find_links(text_of(ROOT / "README.md")))
    assert names - {"00_start_here.ipynb"} <= set(find_links(text_of(LESSONS[0])))


GOOD = """[a](01_one.ipynb) [b](01_one.ipynb#What-it-does) [c](o.md#why-and-how) <img src='a%20picture.png' alt='words'>
[d](https://pytorch.org/docs/stable/x.html#y) `[a](no.md)` """
BROKEN = "[a](no.md) [b](o.md#why) [c](01_one.ipynb#what-it-does) [d](http://pytorch.org) [e](https://pytorch)"


def test_broken_links_are_found_and_good_ones_are_fine(tmp_path):
    folder = tmp_path / "course"
    folder.mkdir()
    cell = nbformat.v4.new_markdown_cell("# A lesson\n\n## What `it` does")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / "01_one.ipynb")
    (folder / "o.md").write_text("# Title\n\n## Why, and *how*?")
    (folder / "a picture.png").touch()
    (tmp_path / "README.md").touch()
    reasons = "no such file", "no such heading", "no such heading", "https://", "https://"
    found = list(find_broken(GOOD + BROKEN, folder, lesson=False))
    assert [reason in each for reason, each in zip(reasons, found, strict=True)] == [True] * 5, found
    (found,) = find_broken("[a](../README.md)", folder, lesson=True)
    assert "only lessons" in found
