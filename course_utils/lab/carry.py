"""Carry a learner's work into a new edition of a lesson.

A learner's notebook, the edition that it was copied from, and the new edition go in; the new edition with everything
that is the learner's comes out: answers, cells of their own, edited cells, and the outputs of what they ran. What is
an answer is found by the code that the grader uses. Nothing runs here, and no file is touched (see `work.py`).
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_utils.grading.answers import code_cells, find_answer, is_blank_definition
from course_utils.grading.definitions import (
    DEFINES,
    definitions_in,
    text_of,
    used_names,
)

Notebook = dict[str, Any]
NotebookCell = dict[str, Any]

DIGITS = 16
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
MODEL_REFERENCE = "IPY_MODEL_"
# As `notebooks.py` calls a cell without a name: by its kind and its text.
_NAMED_BY_TEXT = re.compile(r"(?:code|explore|setup|text)-([0-9a-f]{8})")

CHANGED = "**The update changed the cell above, and so had you.** This is your version of it."
GONE = "**The update removed, or wrote anew, a cell that you had changed.** This is your version of it."
NEW_TASK = "**The update changed the task of `{}`.** Your answer is kept. The answer cell now comes as:"


class CannotCarry(ValueError):
    """A notebook whose answers could not be carried over; the message says why."""


@dataclass(frozen=True)
class Carried:
    """The new edition with the learner's work in it, and how much there was of it."""

    notebook: Notebook
    answers: int = 0  # exercises that have an answer
    cells: int = 0  # cells of the learner's own
    clashes: int = 0  # cells that both the learner and the course had changed


@dataclass
class _Extra:
    """Cells to put after a place of the new edition: after its cell number `after`, and `skip` new cells further on."""

    after: int
    skip: int
    cells: list[NotebookCell] = field(default_factory=list)


def carry(mine: Notebook, new: Notebook, old: Mapping[str, str] | None) -> Carried:
    """Carry what is the learner's in the notebook `mine` into the edition `new`.

    Both are notebooks of version 4, as JSON; neither is changed. `old` are the `digests` of the edition that `mine` was
    copied from. With None, a cell counts as edited if its text is not the one that its id was made from, and cells that
    have a name count as unchanged by the update.

    Of a cell that only the learner changed, their version stands; of one that only the course changed, the new one; of
    one that both changed, the new one with the learner's below it. An answer always stands in its cell. Raises
    `CannotCarry` rather than give a notebook in which an answer would be found to be another one than before.
    """
    return _Merge(mine, new, old).run()


def digests(notebook: Notebook) -> dict[str, str]:
    """A digest of each cell's text, by the cell's id: what has to be remembered of an edition."""
    return {cell["id"]: digest(text(cell)) for cell in notebook["cells"]}


def digest(source: str) -> str:
    """The first digits of the SHA-256 of a cell's text."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def text(cell: NotebookCell) -> str:
    """A cell's text. In a file it may be a string or a list of lines; what is neither counts as empty."""
    source = cell.get("source", "")
    if isinstance(source, list):
        return "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""


def find_answers(notebook: Notebook, lasting_ids: Mapping[str, str]) -> dict[str, str]:
    """The text of the answer to each exercise that has one, as the grader finds it; of a broken cell, all of it."""
    cells = code_cells(notebook["cells"])
    found = {}
    for name, lasting_id in lasting_ids.items():
        answer = find_answer(name, cells, lasting_id)
        if answer is not None and not answer.blank:
            source = cells[answer.cell].source
            found[name] = text_of(answer.node, source) if answer.node else source
    return found


def answer_ids(edition: Notebook) -> dict[str, str]:
    """The id of the answer cell of each exercise in an edition of a lesson."""
    found = {}
    for cell in code_cells(edition["cells"]):
        if "answer" in cell.tags and cell.tree:
            found.update({node.name: cell.id for node in cell.tree.body if isinstance(node, DEFINES)})
    return found


class _Merge:
    """One carrying-over. Cells are known by their numbers: `mine` in the learner's notebook, `new` in the edition."""

    def __init__(self, mine: Notebook, new: Notebook, old: Mapping[str, str] | None) -> None:
        self.notebook, self.edition = mine, new
        self.mine = [cell for cell in mine["cells"] if isinstance(cell, dict)]
        self.new: list[NotebookCell] = new["cells"]
        self.ids = answer_ids(new)
        counts = Counter(cell.get("id") for cell in self.mine)
        self.unique = [isinstance(cell.get("id"), str) and counts[cell["id"]] == 1 for cell in self.mine]
        self.is_guess = old is None
        self.old = self._guess_old() if old is None else old
        self.taken = {cell["id"] for cell in self.new}
        self.clashes = 0

    def run(self) -> Carried:
        pairs = self._pair()
        places = {mine: new for new, mine in pairs.items()}
        body = [self._settle(number, pairs.get(number)) for number in range(len(self.new))]
        extras = self._collect_extras(places)
        cells, own = self._weave(body, extras, set(pairs))
        notebook = {**copy.deepcopy(self.notebook), "cells": cells}
        notebook["nbformat"], notebook["nbformat_minor"] = 4, max(5, _minor(self.notebook), _minor(self.edition))
        _keep_widgets(notebook, self.notebook, self.edition)
        before = find_answers(self.notebook, self.ids)
        if find_answers(notebook, self.ids) != before:
            raise CannotCarry("its answers could not be told apart")
        return Carried(notebook, len(before), own, self.clashes)

    # Which cell is which

    def _pair(self) -> dict[int, int]:
        """The learner's cell for each cell of the edition that they have: by its id, by its text, or by its answer."""
        by_id = {cell["id"]: number for number, cell in enumerate(self.mine) if self.unique[number]}
        pairs = {}
        for number, cell in enumerate(self.new):
            known = by_id.get(cell["id"])
            if known is not None and self.mine[known].get("cell_type") == cell["cell_type"]:
                pairs[number] = known
        left = [number for number in range(len(self.mine)) if number not in pairs.values() and not self._has_id(number)]
        for number, cell in enumerate(self.new):
            same = (one for one in left if self._is_same(one, cell))
            if number not in pairs and (one := next(same, None)) is not None:
                pairs[number] = one
                left.remove(one)
        return pairs | self._pair_answers(pairs, left)

    def _pair_answers(self, pairs: Mapping[int, int], left: Sequence[int]) -> dict[int, int]:
        """The cells that hold the answers where the lesson's answer cells have lost their ids."""
        code = [number for number, cell in enumerate(self.mine) if cell.get("cell_type") == "code"]
        parsed = code_cells(self.mine)
        numbers = {cell["id"]: number for number, cell in enumerate(self.new)}
        found: dict[int, int] = {}
        for name, lasting_id in self.ids.items():
            place = numbers[lasting_id]
            answer = find_answer(name, parsed, lasting_id)
            if place in pairs or answer is None:
                continue
            one = code[answer.cell]
            if one in left and one not in found.values():
                found[place] = one
        return found

    def _has_id(self, number: int) -> bool:
        """Whether a cell of the learner's has an id that tells what it is."""
        return self.unique[number] and (self.mine[number]["id"] in self.old or self.mine[number]["id"] in self.taken)

    def _is_same(self, number: int, cell: NotebookCell) -> bool:
        mine = self.mine[number]
        return mine.get("cell_type") == cell["cell_type"] and text(mine) == text(cell)

    def _guess_old(self) -> dict[str, str]:
        """Digests of the old edition where nothing was remembered: an id made from a text tells what the text was."""
        known = {cell["id"]: digest(text(cell)) for cell in self.new}
        for number, cell in enumerate(self.mine):
            if self.unique[number] and (made := _NAMED_BY_TEXT.fullmatch(cell["id"])):
                known.setdefault(cell["id"], made.group(1))
        return known

    def _is_edited(self, number: int) -> bool:
        """Whether a cell that came with the old edition is no longer as it came."""
        before = self.old.get(self.mine[number]["id"]) if self.unique[number] else None
        if before is None:
            return digest(text(self.mine[number])) not in self.old.values()
        return not digest(text(self.mine[number])).startswith(before)

    # What becomes of each cell

    def _settle(self, number: int, mine: int | None) -> list[NotebookCell]:
        """The cell of the edition, or the learner's version of it, or both."""
        new = copy.deepcopy(self.new[number])
        if mine is None:
            return [new]
        own = copy.deepcopy(self.mine[mine])
        own["id"] = new["id"]
        own["metadata"] = {**_metadata(own), **new["metadata"]}
        if text(own) == text(new):
            return [own]
        if not self._is_edited(mine) or (self.is_guess and _is_skeleton(own)):
            return [new]
        changed = self.old.get(new["id"], digest(text(new))) != digest(text(new))
        if new["id"] in self.ids.values():
            return [*self._show_task(new), own] if changed else [own]
        return [new, *self._below(self.mine[mine], CHANGED)] if changed else [own]

    def _show_task(self, new: NotebookCell) -> list[NotebookCell]:
        """A note with the new skeleton, above an answer to the old one."""
        name = next(name for name, lasting_id in self.ids.items() if lasting_id == new["id"])
        note = self._make_note(f"{NEW_TASK.format(name)}\n\n```python\n{text(new)}\n```")
        return [note] if self._is_news(note) else []

    def _below(self, cell: NotebookCell, words: str) -> list[NotebookCell]:
        """The learner's version of a cell, below a note that says what it is."""
        self.clashes += 1
        return [self._make_note(words), self._keep(cell)]

    def _keep(self, cell: NotebookCell) -> NotebookCell:
        """A copy of a cell of the learner's, with an id that no other cell has."""
        kept = copy.deepcopy(cell)
        kept.setdefault("metadata", {})
        if not isinstance(kept.get("id"), str) or kept["id"] in self.taken or kept["id"] in self.old:
            kept["id"] = self._free_id(text(kept))
        self.taken.add(kept["id"])
        return kept

    def _make_note(self, words: str) -> NotebookCell:
        note = {"cell_type": "markdown", "id": self._free_id(words), "metadata": {}, "source": words}
        self.taken.add(note["id"])
        return note

    def _is_news(self, note: NotebookCell) -> bool:
        """Whether the learner's notebook does not have this note yet, from an update that was interrupted."""
        return all(text(cell) != note["source"] for cell in self.mine)

    def _free_id(self, source: str) -> str:
        name, number = f"kept-{digest(source)[:8]}", 1
        present = self.taken | {cell.get("id") for cell in self.mine}
        while (found := name if number == 1 else f"{name}-{number}") in present:
            number += 1
        return found

    # Where the learner's own cells go

    def _collect_extras(self, places: Mapping[int, int]) -> list[_Extra]:
        """The learner's cells that the edition does not have, each group with the place where it belongs."""
        needed = self._needed_again(places)
        extras = [_Extra(-1, 0)]
        for number, cell in enumerate(self.mine):
            if number in places:
                extras.append(_Extra(places[number], 0))
                continue
            came = self._came_with_old(number)
            if came:
                extras.append(_Extra(extras[-1].after, extras[-1].skip + 1))
            if not came or number in needed:
                extras[-1].cells.append(self._keep(cell))
            elif self._is_edited(number):
                extras[-1].cells += self._below(cell, GONE)
        return [extra for extra in extras if extra.cells]

    def _came_with_old(self, number: int) -> bool:
        """Whether a cell came with the old edition, edited or not."""
        if self.unique[number]:
            return self.mine[number]["id"] in self.old
        return digest(text(self.mine[number])) in self.old.values()

    def _needed_again(self, places: Mapping[int, int]) -> set[int]:
        """The old edition's cells that are gone from the new one, and define what the learner's own code uses."""
        own, gone = [], []
        for number, cell in enumerate(self.mine):
            if cell.get("cell_type") == "code":
                leaves = number not in places and self._came_with_old(number) and not self._is_edited(number)
                (gone if leaves else own).append(number)
        code = {number: code_cells([self.mine[number]])[0] for number in (*own, *gone)}
        there = code_cells(self.new) + [code[number] for number in own]
        defined = {name for definition in definitions_in(there) for name in definition.names}
        wanted = {name for number in own if self._is_learners(number, places) for name in _used(code[number])} - defined
        found: set[int] = set()
        for number in reversed(gone):
            names = {name for definition in definitions_in([code[number]]) for name in definition.names}
            if names & wanted:
                found.add(number)
                wanted = (wanted | _used(code[number])) - names - defined
        return found

    def _is_learners(self, number: int, places: Mapping[int, int]) -> bool:
        return number not in places or self._is_edited(number)

    def _weave(
        self, body: list[list[NotebookCell]], extras: list[_Extra], paired: set[int]
    ) -> tuple[list[NotebookCell], int]:
        """All cells in their order, and how many of them are the learner's own.

        What followed a cell of the old edition that has gone follows the new cell that came in its place, if one did.
        """
        after: dict[int, list[NotebookCell]] = {}
        for extra in extras:
            place, left = extra.after, extra.skip
            while left and place + 1 < len(body) and place + 1 not in paired:
                place, left = place + 1, left - 1
            after.setdefault(place, []).extend(extra.cells)
        cells = list(after.get(-1, []))
        for number, settled in enumerate(body):
            cells += [*settled, *after.get(number, [])]
        return cells, sum(len(extra.cells) for extra in extras)


def _is_skeleton(cell: NotebookCell) -> bool:
    """Whether a cell holds one empty function or class and nothing else, not even a comment."""
    tree = code_cells([cell])[0].tree if cell["cell_type"] == "code" and "#" not in text(cell) else None
    nodes = tree.body if tree else []
    return len(nodes) == 1 and isinstance(nodes[0], DEFINES) and is_blank_definition(nodes[0])


def _used(cell: Any) -> set[str]:
    """The names that a code cell takes from outside; none for one that is not Python."""
    try:
        return used_names(cell.source) if cell.tree else set()
    except SyntaxError:
        return set()


def _metadata(cell: NotebookCell) -> dict[str, Any]:
    metadata = cell.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _minor(notebook: Notebook) -> int:
    minor = notebook.get("nbformat_minor")
    return minor if isinstance(minor, int) else 0


def _keep_widgets(notebook: Notebook, mine: Notebook, new: Notebook) -> None:
    """Save with `notebook` those widgets, of the edition's and of the learner's, that its outputs show."""
    models = {**_models(mine), **_models(new)}
    shown = [
        output["data"][WIDGET_VIEW].get("model_id")
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
        if isinstance(output.get("data"), dict) and isinstance(output["data"].get(WIDGET_VIEW), dict)
    ]
    kept: dict[str, Any] = {}
    while shown:
        model_id = shown.pop()
        if model_id in models and model_id not in kept:
            kept[model_id] = models[model_id]
            shown += [word.removeprefix(MODEL_REFERENCE) for word in _strings(models[model_id])]
    metadata = notebook["metadata"] = _metadata(notebook)
    metadata.pop("widgets", None)
    if kept:
        state = {name: kept[name] for name in models if name in kept}
        metadata["widgets"] = {WIDGET_STATE: {"state": state, "version_major": 2, "version_minor": 0}}


def _models(notebook: Notebook) -> dict[str, Any]:
    widgets = _metadata(notebook).get("widgets")
    state = widgets.get(WIDGET_STATE) if isinstance(widgets, dict) else None
    models = state.get("state") if isinstance(state, dict) else None
    return models if isinstance(models, dict) else {}


def _strings(value: Any) -> Iterable[str]:
    """The strings in a widget's state: some of them refer to other widgets."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
