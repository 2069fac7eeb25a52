"""Merge a learner's copy of a lesson with a new edition, cell by cell, so that nothing of the learner's is lost.

Three notebooks take part: the edition that the copy was made from, the copy, and the new edition. nbdime tells which
cells are the same under other ids, and merges their lines.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nbformat import NotebookNode
from nbformat.corpus.words import generate_corpus_id as new_id
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

CHANGED = "**The update changed the cell above, and so had you.** This is your version of it."
GONE = "**The update removed, or wrote anew, a cell that you had changed.** This is your version of it."
REMOVED = "**The exercise `{}` is not in this lesson any more.** Your answer to it is kept here."
NEW_TASK = "**The update changed this task.** Your answer is kept. The answer cell now comes as:\n\n```python\n{}\n```"
NEW_CELL = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}

Cells = dict[str, NotebookNode]  # by their ids


class Answer(NamedTuple):
    """The exercise's name, the cell with a learner's answer, and the cell with the task as the learner got it."""

    name: str
    cell: NotebookNode
    task: NotebookNode


def merge(mine: NotebookNode, new: NotebookNode, base: NotebookNode) -> tuple[NotebookNode, str]:
    """Merge the learner's notebook `mine`, a copy of the edition `base`, with the edition `new`; say what was kept.

    Every cell of `new` is there, in its order, and each of the learner's own follows the cell that it followed. Where
    one side changed a cell, that version stands; where both did, nbdime merges the lines, or both versions are there.
    An answer stays in its cell, to the letter. All three notebooks are changed.
    """
    course = cells_by_id(new)
    _recognise(base.cells, course, course, also=mine.cells)
    old = cells_by_id(base)
    came = course | old  # each cell of the course as the learner got it
    _recognise(mine.cells, came, old)
    there = {cell.id for cell in mine.cells}
    edited = [cell for cell in mine.cells if cell.id in came and cell.source != came[cell.id].source]
    answers = [cell for cell in edited if _is_answer(cell)]
    gone = [_defined(came[cell.id]) for cell in answers if cell.id not in course]
    cells = _put_in_order(mine.cells, course, came)
    # Where an update was interrupted, its notes are there already.
    told = {cell.source for cell in mine.cells if cell.source.startswith((NEW_TASK[:20], REMOVED[:16]))}
    mine.cells = [cell for cell in cells if cell.id in there or cell.source not in told]
    both = any(cell.source in (CHANGED, GONE) and cell.id not in there for cell in mine.cells)
    return mine, _say_what_was_kept(len(answers), len(there - came.keys()), gone, both)


def find_answers(mine: NotebookNode, base: NotebookNode) -> dict[str, Answer]:
    """The learner's answers in a copy `mine` of the edition `base`, by the ids that their cells have there."""
    old = cells_by_id(base)
    _recognise(mine.cells, old, old)
    answers = [cell for cell in mine.cells if cell.id in old and _is_answer(cell)]
    pairs = [(cell, old[cell.id]) for cell in answers if cell.source != old[cell.id].source]
    return {cell.id: Answer(_defined(task), cell, task) for cell, task in pairs}


def move_in(answers: Mapping[str, Answer], mine: NotebookNode, new: NotebookNode, base: NotebookNode) -> None:
    """Put answers to exercises that were in other lessons into `mine`, and their tasks into `base`, ready to merge.

    An answer that is in `mine` already stays.
    """
    course, here = cells_by_id(new), cells_by_id(mine)
    for name, answer in answers.items():
        if name not in here:
            mine.cells.append(NotebookNode(course[name] | {"source": answer.cell.source}))
        elif here[name].source == course[name].source:
            here[name].source = answer.cell.source
    base.cells = [cell for cell in base.cells if cell.id not in answers]
    base.cells += [answer.task for answer in answers.values()]


def cells_by_id(notebook: NotebookNode) -> Cells:
    """The cells of a notebook by their ids."""
    return {cell.id: cell for cell in notebook.cells}


def _is_answer(cell: NotebookNode) -> bool:
    return cell.id.startswith("answer-")


def _defined(cell: NotebookNode) -> str:
    """The name of the first function or class that a cell defines; "" if it defines none."""
    found = re.search(r"^(?:def|class) (\w+)", cell.source, re.MULTILINE)
    return found[1] if found and cell.cell_type == "code" else ""


# --- which cells are the same -----------------------------------------------------------------------------------------


def _recognise(cells: list[NotebookNode], known: Cells, among: Cells, also: Iterable[NotebookNode] = ()) -> None:
    """Give those of `cells` that are one `among` others under another id its id: by the answer, or as nbdime pairs.

    What has the id of a `known` cell of another kind gets a new one. `also` follow.
    """
    ids = {cell.id: new_id() for cell in cells if cell.id in known and known[cell.id].cell_type != cell.cell_type}
    taken = {cell.id for cell in cells}
    free = {name: cell for name, cell in among.items() if name not in taken}
    lost = []
    for cell in cells:
        if cell.id in known:
            continue
        name = f"answer-{_defined(cell).lower().replace('_', '-')}"[:50]
        if name in free:
            ids[cell.id] = name
            del free[name]
        elif cell.id != name:  # one that was an exercise is no other
            lost.append(cell)
    ids |= _pair(lost, list(free.values()))
    for cell in (*cells, *also):
        cell.id = ids.get(cell.id, cell.id)


def _pair(cells: list[NotebookNode], others: list[NotebookNode]) -> dict[str, str]:
    """The ids of those `cells` that nbdime takes for one of `others`, and the ids of these."""
    from nbdime import diff_notebooks

    first, second = (
        new_notebook(cells=[NEW_CELL[cell.cell_type](cell.source, id=cell.id) for cell in each])
        for each in (cells, others)
    )
    changes = [change for part in diff_notebooks(first, second) for change in part.diff if change.op == "patch"]
    return {cells[change.key].id: each.value for change in changes for each in change.diff if each.key == "id"}


# --- what becomes of them ---------------------------------------------------------------------------------------------


def _put_in_order(mine: list[NotebookNode], course: Cells, came: Cells) -> list[NotebookNode]:
    """All cells in the order of the `course`; what it does not have follows the cell that it followed in `mine`."""
    ranks = {name: rank for rank, name in enumerate(course)}
    there = {cell.id for cell in mine}
    placed = [(ranks[name], cell) for name, cell in course.items() if name not in there]
    rank = -1
    for cell in mine:
        rank = ranks.get(cell.id, rank)
        parts = _settle(cell, came[cell.id], course.get(cell.id)) if cell.id in came else [cell]
        placed += [(rank, part) for part in parts]
    return [cell for _, cell in sorted(placed, key=lambda pair: pair[0])]


def _settle(cell: NotebookNode, came: NotebookNode, now: NotebookNode | None) -> list[NotebookNode]:
    """What stands for a learner's `cell` that `came` so with the old edition, and is `now` so in the new one."""
    yours = NotebookNode(cell | {"id": new_id()})
    if now is None:
        note = REMOVED.format(_defined(came)) if _is_answer(cell) else GONE
        return [new_markdown_cell(note), yours] if cell.source != came.source else []
    cell.metadata = NotebookNode(cell.metadata | now.metadata)
    if cell.get("outputs", 0) == came.get("outputs"):  # it came with them, and was not run
        cell.update(outputs=now.outputs, execution_count=now.execution_count)
    if _is_answer(cell) and cell.source != came.source:
        if now.source in (came.source, cell.source):
            return [cell]
        return [new_markdown_cell(NEW_TASK.format(now.source)), cell]
    text = _merge_lines(came.source, cell.source, now.source)
    if text is None:
        return [now, new_markdown_cell(CHANGED), yours]
    if text == cell.source:
        return [cell]
    now.source = text
    return [now]


def _merge_lines(came: str, mine: str, now: str) -> str | None:
    """A text with the changes of both sides; None where both changed the same lines."""
    from nbdime import apply_decisions, decide_merge

    came, mine, now = (f"{text}\n" for text in (came, mine, now))  # so that a last line is one like the others
    decisions = decide_merge(came, mine, now)
    if any(decision.conflict for decision in decisions):
        return None
    return apply_decisions(came, decisions).removesuffix("\n")


def _say_what_was_kept(answers: int, own: int, gone: list[str], both: bool) -> str:
    words = f"with your {_count(answers, 'answer')} and {_count(own, 'cell')} of your own."
    if gone:
        words += f" Exercises that are gone: {', '.join(gone)}; your answer to each is kept in a cell of its own."
    if both:
        words += " Where both you and the update had changed a cell, both versions are there."
    return words


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
