"""How many minutes a lesson takes, by one stated model, so that no lesson promises what nobody can keep.

For somebody who reads English as a second language and runs each cell: 180 words of prose in a minute, the explanations
of predictions included; 8 seconds to read a line of code and to look at what it shows; half a minute to think about a
prediction; 3 minutes to try an explorer; for an exercise of one point 6 minutes, of two 8, of three or more 10. Code in
folded cells is not counted.

A Markdown cell tagged `more` begins with a heading, and makes its section (up to the next heading of the same or a
higher level) *more*; all the rest is the lesson's *core*. One tagged `local` holds exercises that an instructor has
added: the limits do not count it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nbformat import NotebookNode

REFERENCE = "09"  # the lesson that is looked up and not read: of it only the exercises count
CORE, MORE, LOCAL = "core", "more", "local"
LINE = re.compile(r"^\*\*Minutes:\*\* counted.*$", re.MULTILINE)  # where a lesson will say how long it takes
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
POINTS = re.compile(r"(\d+) points?\b")
WRONG_OPTION = re.compile(r"^- \[ \].*\n(?:  .*\n)*", re.MULTILINE)  # only those who chose it read what it says
ROW = re.compile(r"^\| (\d+) to (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
HOMEWORK = re.compile(r"^\*\*Homework:\*\* (.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
EXERCISES = re.compile(r"\bexercises? (\d+(?:(?:, | and )\d+)*)", re.IGNORECASE)
APART = {"setup", "predict", "why", "explore", "answer", "check"}  # cells whose code nobody reads, or that count apart


class Part(NamedTuple):
    """A piece of a lesson: the id of its cell, which section of level 2 it is in, what it is, and its minutes.

    kind: `core`, `more` or `local`. because: the heading whose tag says so. exercises: the minutes of each one.
    """

    cell: str
    section: str
    kind: str
    because: str
    reading: float
    exercises: tuple[int, ...]

    @property
    def minutes(self) -> float:
        """Reading and exercises together."""
        return self.reading + sum(self.exercises)


class Step(NamedTuple):
    """A row of the plan for 90 minutes: from when to when, the sections, what to do in the room and at home."""

    start: int
    end: int
    sections: str
    in_the_room: str
    at_home: str

    @property
    def exercises(self) -> set[int]:
        """The numbers of the exercises that are done in the room."""
        return {int(number) for named in EXERCISES.findall(self.in_the_room) for number in re.findall(r"\d+", named)}


class Plan(NamedTuple):
    """How 90 minutes with a class go, and what each learner does afterwards, in Markdown."""

    steps: list[Step]
    homework: str


def plan(cells: Iterable["NotebookNode"]) -> Plan:
    """The plan for 90 minutes in the cells tagged `instructor`; empty where there is none."""
    notes = "\n\n".join(cell.source for cell in cells if "instructor" in cell.metadata.get("tags", []))
    steps = [Step(int(start), int(end), *row) for start, end, *row in ROW.findall(notes)]
    homework = HOMEWORK.search(notes)
    return Plan(steps, homework[1] if homework else "")


def parts(cells: Iterable["NotebookNode"], number: str) -> list[Part]:
    """The parts of the lesson `number`, like `03`. cells: those of the whole source, the sealed ones too."""
    found: list[Part] = []
    section, kind, because, ends = "", CORE, "", 0  # ends: the level of heading that ends what is not core
    for cell in cells:
        tags = set(cell.metadata.get("tags", []))
        if "instructor" in tags:
            continue
        is_text = cell.cell_type == "markdown" and "sealed" not in tags
        pieces = split_at_headings(cell.source) if is_text else [(0, "", cell.source)]
        for level, title, text in pieces:
            if level:
                title = title.removeprefix("More: ")
                section = title if level == 2 else section
                if level <= ends:
                    kind, because, ends = CORE, "", 0
                if kind == CORE and {MORE, LOCAL} & tags:
                    kind, because, ends = (MORE if MORE in tags else LOCAL), title, level
            minutes = _reading(text, cell, tags, number), _working(text, tags)
            found.append(Part(cell.get("id", ""), section, kind, because, *minutes))
    return found


def split_at_headings(text: str) -> list[tuple[int, str, str]]:
    """The pieces of a text in Markdown, each from its heading on: the heading's level and title, and the whole piece.

    A piece before the first heading has the level 0. What looks like a heading between fences (```) is none.
    """
    pieces, fenced = [""], False
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if re.match("#+ ", line) and not fenced:
            pieces.append("")
        pieces[-1] += line
    found = [(re.match(r"(#*) ?(.*)", piece), piece) for piece in pieces if piece.strip()]
    return [(len(start[1]), start[2], piece) for start, piece in found]


def _reading(text: str, cell: "NotebookNode", tags: set[str], number: str) -> float:
    if number == REFERENCE or ("sealed" in tags and POINTS.match(text)):
        return 0.0
    if "sealed" in tags:
        return _words(WRONG_OPTION.sub("", text))
    if cell.cell_type == "markdown":
        prose = LINE.sub("", FENCED.sub("", text))  # the line that this makes would count itself
        return _words(prose) + sum(map(_code, FENCED.findall(text)))
    if "predict" in tags:
        return 0.5
    if "explore" in tags:
        return 3.0
    return 0.0 if APART & tags else _code(text)


def _words(text: str) -> float:
    return len(re.findall(r"\w[\w'.-]*", text)) / 180


def _code(text: str) -> float:
    return 8 / 60 * sum(1 for line in text.splitlines() if line.strip())


def _working(text: str, tags: set[str]) -> tuple[int, ...]:
    points = POINTS.match(text) if "sealed" in tags else None
    return (min(4 + 2 * int(points[1]), 10),) if points else ()


def total(found: Iterable[Part], *kinds: str) -> int:
    """The minutes of all parts of these kinds."""
    return round(sum(part.minutes for part in found if part.kind in kinds))


def say_minutes(found: Sequence[Part]) -> str:
    """The line of a lesson that says its minutes, and which sections to leave out first."""
    core, whole = total(found, CORE), total(found, CORE, MORE)
    titles = dict.fromkeys(part.because for part in found if part.kind == MORE)
    if not titles:
        return f"**Minutes:** {core}."
    minutes = {title: total([part for part in found if part.because == title], MORE) for title in titles}
    named = ", ".join(f"*{title}* ({takes})" for title, takes in minutes.items() if takes)
    return f"**Minutes:** core {core}, all of it {whole}. Leave out first: {named}."
