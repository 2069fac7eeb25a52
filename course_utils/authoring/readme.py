"""The map of the lessons in the README, made from the lessons' sources.

Title and minutes are what each lesson says of itself, exercises are its answer cells, and what one learns is the phrase
of the table in `00_start_here`. `make notebooks` renews the map.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.authoring.source import (
    FOLDER,
    LessonError,
    answer_cells,
    learner,
    sources,
)

README = FOLDER.parent / "README.md"
START = "whether this computer is ready, how a lesson works; your progress, the glossary"
HEAD = "| | Lesson | You learn | Exercises | Minutes |\n|---|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
PHRASE = re.compile(r"^\| (\d\d) \| \[[^\]]*\]\([^)]*\) \| (.+?) \|", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """A lesson in the map: its file (`01_tensor_hooks.ipynb`), and what a reader wants to know before opening it."""

    file: str
    title: str
    phrase: str
    exercises: int
    minutes: int

    def __str__(self) -> str:
        link = f"[{self.title}](notebooks/{self.file})"
        return f"| {self.file[:2]} | {link} | {self.phrase} | {self.exercises} | {self.minutes} |"


def rows(folder: Path = FOLDER) -> list[Row]:
    """A row for each lesson of `folder`. Raises `LessonError` where a lesson lacks its title, minutes or phrase."""
    paths = sources(folder)
    return [_row(path, _phrases(paths[0])) for path in paths]


def _row(path: Path, phrases: dict[str, str]) -> Row:
    notebook = learner(path)
    text = _prose(path)
    title = re.match(r"# (.+)\n", text)
    minutes = re.search(r"^\*\*Time:\*\* about (\d+) minutes", text, re.MULTILINE)
    phrase = phrases.get(path.stem[:2])
    if not title:
        raise LessonError(f"{path.stem}: the first cell does not start with a title: `# Tensor hooks`")
    if not minutes:
        raise LessonError(f"{path.stem}: no line says how long it takes: `**Time:** about 60 minutes`")
    if not phrase:
        raise LessonError(f"{path.stem}: the table of lessons in 00_start_here has no row for it")
    count = len(answer_cells(notebook, path.stem))
    return Row(f"{path.stem}.ipynb", title.group(1), phrase, count, int(minutes.group(1)))


def _phrases(start: Path) -> dict[str, str]:
    """What one learns in each lesson, by its number, from the table in the start lesson."""
    return {"00": START, **dict(PHRASE.findall(_prose(start)))}


def _prose(path: Path) -> str:
    return "\n".join(cell.source for cell in learner(path).cells if cell.cell_type == "markdown")


def draw(lessons: Sequence[Row]) -> str:
    """The Markdown table of `lessons`."""
    return HEAD + "".join(f"{row}\n" for row in lessons)


def put(readme: str, table: str) -> str:
    """The text `readme` with its map replaced by `table`. Raises `LessonError` where it has no map, or several."""
    if len(TABLE.findall(readme)) != 1:
        raise LessonError(f"the README has no place for the map of the lessons: one table that starts with {HEAD!r}")
    return TABLE.sub(lambda _: table, readme)


def renew(readme: Path = README, folder: Path = FOLDER, *, write: bool = True) -> bool:
    """Bring the map in the file `readme` up to date, or with `write=False` only look; tell whether it was.

    Raises `LessonError` as `rows` and `put` do.
    """
    before = readme.read_text(encoding="utf-8")
    after = put(before, draw(rows(folder)))
    if write and after != before:
        unfinished = readme.with_name(f".{readme.name}.unfinished")
        unfinished.write_text(after, encoding="utf-8", newline="\n")
        os.replace(unfinished, readme)
    return after == before


def main(arguments: Sequence[str]) -> int:
    """Renew the README's map at the end of `make notebooks`, or with `--check` only look.

    Returns 0 where the map is current in the end, and 1 where it is not.
    """
    only_look = "--check" in arguments
    try:
        current = renew(write=not only_look)
    except LessonError as error:
        print(f"README: {error}", file=sys.stderr)
        return 1
    if current:
        print("README: its map of the lessons is up to date")
    else:
        print("README: its map of the lessons " + ("is out of date" if only_look else "was renewed"))
    return 1 if only_look and not current else 0
