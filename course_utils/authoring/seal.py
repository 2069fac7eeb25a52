"""Seal a lesson: take what nobody may see above a commit out of its source, into the file that the package reads.

A cell tagged `sealed` stands in the source directly above the cell that it belongs to. Above an answer cell:

    1 point
    1. The first hint, which everybody may see.
    2. The second one.

Above a cell `predict("name")`:

    The question?

    - [ ] a wrong option: what to say to who chose it,
      which may go on below
      > what a teacher asks who chose it
    - [x] the right option: what to say to who chose it

    What the cells showed, and why, in Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_utils.authoring.source import FOLDER, SEALED, called_with, defined_name, place, read_whole, sources, tags_of
from course_utils.root import CourseError, sealed_path, write_whole

if TYPE_CHECKING:
    from nbformat import NotebookNode

HEAD = re.compile(r"(\d+) points?(?:\n(.*))?", re.DOTALL)
HINT = re.compile(r"^\d+\. (.+(?:\n {3}.+)*)$", re.MULTILINE)
BOX = re.compile(r"^- \[", re.MULTILINE)
OPTION = re.compile(r"^- \[([ x])\] ([^:\n]+): (.+\n(?:  .+\n)*)", re.MULTILINE)


def seal(lesson: Path) -> dict[str, Any]:
    """What the source `lesson` says of its exercises and predictions, by their names, in order.

    Raises `CourseError` where an answer or a prediction has no sealed cell, or a sealed cell does not keep the form.
    """
    cells = read_whole(lesson).cells
    title = cells[0].source.partition("\n")[0].lstrip("# ")
    found: dict[str, Any] = {"title": title, "notebook": f"{lesson.stem}.ipynb", "exercises": {}, "predictions": {}}
    for number, (above, cell) in enumerate(pairwise([None, *cells]), start=1):
        sealed = above.source if above is not None and SEALED in tags_of(above) else None
        kind = next((tag for tag in ("answer", "predict") if tag in tags_of(cell)), None)
        if sealed is None and kind is None:
            continue
        where = place(lesson.stem, number, cell.source)
        if sealed is None or kind is None:
            raise CourseError(f"{where}: a cell tagged `{SEALED}` stands directly above each answer or prediction.")
        try:
            if kind == "answer":
                found["exercises"][defined_name(cell.source, where)] = read_exercise(sealed) | {"task": cell.source}
            else:
                name = called_with(cell.source, "predict")
                waits = {"waits": find_waiting(name, cells[number:])}
                found["predictions"][name] = read_prediction(sealed) | waits
        except CourseError as error:
            raise CourseError(f"{where}: in the sealed cell above it, {error}") from None
    return found


def read_exercise(text: str) -> dict[str, Any]:
    """Points and hints."""
    head = HEAD.fullmatch(text.strip())
    if not head:
        raise CourseError("the points come first, as `1 point` or `3 points`, then a numbered list of hints.")
    hints = head[2] or ""
    if rest := HINT.sub("", hints).strip():
        raise CourseError(f"this is no hint, `1. …`, and does not go on in one: {rest}")
    return {"points": int(head[1]), "hints": [_join(hint) for hint in HINT.findall(hints)]}


def read_prediction(text: str) -> dict[str, Any]:
    """Question, options, answer, explanation and the teacher's questions."""
    question, *parts = OPTION.split(text + "\n")
    options, ask, right = {}, {}, []
    for mark, option, lines in zip(parts[0::4], parts[1::4], parts[2::4], strict=True):
        said = [line.strip() for line in lines.splitlines()]
        options[option] = " ".join(line for line in said if not line.startswith(">"))
        if asked := " ".join(line.removeprefix(">").strip() for line in said if line.startswith(">")):
            ask[option] = asked
        if mark == "x":
            right.append(option)
    if len(right) != 1:
        raise CourseError(f"{len(right)} options are marked as right with [x], and one has to be.")
    why = parts[-1].strip()
    if BOX.search(question) or BOX.search(why):
        raise CourseError("an option is not written as `- [ ] the option: what to say to who chose it`.")
    return {"question": _join(question), "options": options, "answer": right[0], "why": why, "ask": ask}


def find_waiting(name: str, cells: Iterable[NotebookNode]) -> list[str]:
    """The ids of the cells that show what the prediction `name` asks: those of `cells` up to its explanation.

    Below that, a cell tagged `after-<name>` waits as well. Exercises and other predictions do not wait; nothing does
    where no cell explains the prediction.
    """
    waiting, is_explained = [], False
    for cell in cells:
        tags = set(tags_of(cell))
        if "why" in tags and called_with(cell.source, "why") == name:
            is_explained = True
        elif is_explained:
            waiting += [cell.id] if f"after-{name}" in tags else []
        elif cell.cell_type == "code" and not tags & {"answer", "check", "predict", "why"}:
            waiting.append(cell.id)
    return waiting if is_explained else []


def _join(text: str) -> str:
    return " ".join(text.split())


def stale(folder: Path = FOLDER) -> Iterator[tuple[Path, str]]:
    """The lessons whose sealed file does not say what their source says, with what it has to say.

    Raises `CourseError` as `seal` does, and where two lessons have an exercise or a prediction of one name.
    """
    lesson_of: dict[str, str] = {}
    for lesson in sources(folder):
        found = seal(lesson)
        for name in (*found["exercises"], *found["predictions"]):
            if lesson_of.setdefault(name, lesson.stem) != lesson.stem:
                raise CourseError(f"{name} stands in {lesson_of[name]} and in {lesson.stem}: a name is a key.")
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        path = sealed_path(int(lesson.stem[:2]))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield lesson, text


def seal_lessons() -> list[str]:
    """Seal every lesson whose sealed file is out of date; returns their names. Runs nothing of a lesson."""
    renewed = []
    for lesson, text in [*stale()]:
        write_whole(sealed_path(int(lesson.stem[:2])), text)
        renewed.append(lesson.stem)
    return renewed
