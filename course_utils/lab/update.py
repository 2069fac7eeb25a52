"""Copy the lessons into a learner's folder, and merge new editions into the copies, with the learner's work kept.

Three notebooks are merged, cell by cell: the edition that a copy was made from (kept in the folder `.base`), the
learner's copy, and the new edition. nbdime tells which cells are the same under other ids, and merges their texts. The
file as it was goes to `backups`; every file is written whole, and where this was interrupted, the next run goes on.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from course_utils.root import write_whole

if TYPE_CHECKING:
    from nbformat import NotebookNode

BASE, BACKUPS = ".base", "backups"
CHANGED = "**The update changed the cell above, and so had you.** This is your version of it."
GONE = "**The update removed, or wrote anew, a cell that you had changed.** This is your version of it."
NEW_TASK = "**The update changed this task.** Your answer is kept. The answer cell now comes as:\n\n```python\n{}\n```"


class Update(NamedTuple):
    """What became of a copy: a sentence ("" if there is nothing to say), the file if it was written, and its backup."""

    sentence: str
    written: Path | None = None
    backup: Path | None = None


def update_lessons(lessons: Iterable[Path], work: Path) -> Iterator[Update]:
    """Copy those of `lessons` that the folder `work` lacks, and bring the other copies up to date, one after another.

    What is no notebook, or has another name than a lesson, is left alone, and named where an edition is new.
    """
    names, news = set(), False
    for lesson in lessons:
        names.add(lesson.name)
        path, base = work / lesson.name, work / BASE / lesson.name
        edition, known = lesson.read_bytes(), base.read_bytes() if base.exists() else None
        if path.exists() and known == edition:
            continue
        if path.exists() and (path.is_dir() or path.read_bytes() != edition):
            news, update = True, _update(path, edition, known, work / BACKUPS)
        else:
            write_whole(path, edition)
            update = Update("", path)
        if update.written:
            write_whole(base, edition)
        yield update
    for path in sorted(work.glob("*.ipynb")) if news else []:
        if path.name not in names:
            yield Update(f"{path.name}: left as it is, because no lesson has this name.")


def _update(path: Path, edition: bytes, known: bytes | None, backups: Path) -> Update:
    import nbformat

    try:
        mine = path.read_bytes()
        if mine == known:
            write_whole(path.resolve(), edition)  # where there is a link, it stays one
            return Update(f"{path.name}: a new edition.", path)
        merged, words = merge(_read(mine), _read(edition), known and _read(known))
    except Exception as error:  # nbformat raises many kinds for what is no notebook
        reason = str(error).partition("\n")[0]
        return Update(f"{path.name}: left as it is ({reason}). For the new edition, rename it and run this again.")
    stem = f"{path.stem}.{time.strftime('%Y-%m-%d_%H%M')}"
    places = [backups / f"{stem}{end}.ipynb" for end in ("", *(f"-{number}" for number in range(2, 1000)))]
    backup = next(place for place in places if not place.exists())
    write_whole(backup, mine)
    write_whole(path.resolve(), nbformat.writes(merged) + "\n")
    return Update(f"{path.name}: a new edition, {words} The file as it was: {BACKUPS}/{backup.name}.", path, backup)


def _read(content: bytes) -> NotebookNode:
    import nbformat

    notebook = nbformat.reads(content.decode(), as_version=4)
    nbformat.validate(notebook)
    notebook.nbformat_minor = max(5, notebook.nbformat_minor)
    for cell in notebook.cells:
        cell.setdefault("id", _note("").id)
    return notebook


def merge(mine: NotebookNode, new: NotebookNode, base: NotebookNode | None) -> tuple[NotebookNode, str]:
    """Merge the learner's notebook `mine`, a copy of the edition `base`, with the edition `new`; say what was kept.

    Every cell of `new` is there, in its order, and each of the learner's own follows the cell that it followed. Where
    one side changed a cell, that version stands; where both did, nbdime merges the lines, or both versions are there.
    An answer stays in its cell, to the letter. Without a base, a cell is as it came only if its id says so.
    """
    course = {cell.id: cell for cell in new.cells}
    old = base.cells if base else [cell.copy() for cell in mine.cells if _is_as_named(cell)]
    _recognise(old, course, course, [*old, *mine.cells])
    came = {cell.id: cell for cell in old}
    _recognise(mine.cells, course | came, came if base else course, mine.cells, bool(base))
    came = course | came
    there, ranks, place = {cell.id for cell in mine.cells}, {name: rank for rank, name in enumerate(course)}, -1
    placed = [(ranks[name], [cell]) for name, cell in course.items() if name not in there]
    for cell in mine.cells:
        place = ranks.get(cell.id, place)
        placed.append((place, _settle(cell, came.get(cell.id), course.get(cell.id))))
    own = sum(name not in came for name in there)
    edited = [cell.id for cell in mine.cells if cell.id in came and cell.source != came[cell.id].source]
    answers = sum(name.startswith("answer-") for name in edited)
    tasks = {cell.source for cell in mine.cells if cell.source.startswith(NEW_TASK[:20])}  # of an interrupted run
    placed.sort(key=lambda pair: pair[0])
    cells = [cell for _, cells in placed for cell in cells]
    mine.cells = [cell for cell in cells if cell.id in there or cell.source not in tasks]
    clash = any(cell.source in (CHANGED, GONE) and cell.id not in there for cell in mine.cells)
    words = f"with your {_count(answers, 'answer')} and {_count(own, 'cell')} of your own."
    return mine, words + " Where both you and the update had changed a cell, both versions are there." * clash


def _settle(cell: NotebookNode, came: NotebookNode | None, now: NotebookNode | None) -> list[NotebookNode]:
    """What becomes of a learner's `cell` that `came` so with the old edition, and is `now` so in the new one."""
    from nbdime.prettyprint import merge_render

    if came is None:
        return [cell]
    yours = cell | {"id": _note("").id}
    if now is None:
        return [_note(GONE), type(cell)(yours)] if cell.source != came.source else []
    cell.metadata = type(cell)(cell.metadata | now.metadata)
    if cell.id.startswith("answer-") and cell.source != came.source:
        changed = now.source not in (came.source, cell.source)
        return [_note(NEW_TASK.format(now.source)), cell] if changed else [cell]
    merged, conflict = merge_render(*(f"{each.source}\n" for each in (came, cell, now)))
    merged = merged.removesuffix("\n")
    if conflict:
        return [now, _note(CHANGED), type(cell)(yours)]
    if merged == cell.source:
        return [cell]
    if merged != now.source:
        now.source = merged
        now |= {"outputs": [], "execution_count": None} if now.cell_type == "code" else {}
    return [now]


def _recognise(
    cells: list[NotebookNode],
    known: Mapping[str, NotebookNode],
    among: Mapping[str, NotebookNode],
    renamed: Iterable[NotebookNode],
    loose: bool = True,
) -> None:
    """Give those of `cells` that are one `among` others under another id its id: by the answer, or as nbdime pairs.

    What has the id of a `known` cell of another kind gets a new one. All of `renamed` follow. If not `loose`, only the
    same text makes the same cell.
    """
    from nbdime.diffing.notebooks import compare_cell_approximate, compare_cell_strict
    from nbdime.diffing.snakes import compute_snakes_multilevel

    ids = {cell.id: _note("").id for cell in cells if cell.id in known and known[cell.id].cell_type != cell.cell_type}
    free = {name: cell for name, cell in among.items() if name not in {cell.id for cell in cells}}
    lost = []
    for cell in cells:
        if cell.id not in known:
            defined = (
                re.search(r"^(?:def|class) (\w+)", cell.source, re.MULTILINE) if cell.cell_type == "code" else None
            )
            name = f"answer-{defined[1].lower().replace('_', '-')}"[:50] if defined else ""
            if free.pop(name, None):
                ids[cell.id] = name
            else:
                lost.append(cell)
    left, alike = list(free.values()), [*[compare_cell_approximate] * loose, compare_cell_strict]
    for first, second, length in compute_snakes_multilevel(left, lost, alike):
        ids |= {lost[second + k].id: left[first + k].id for k in range(length)}
    for cell in renamed:
        cell.id = ids.get(cell.id, cell.id)


def _is_as_named(cell: NotebookNode) -> bool:
    """Whether the id is made from this text, as are those of the course's cells without a name."""
    made = re.fullmatch(r"(?:code|explore|setup|text)-([0-9a-f]{8})", cell.id)
    return bool(made) and hashlib.sha256(cell.source.encode()).hexdigest().startswith(made[1])


def _note(words: str) -> NotebookNode:
    from nbformat.v4 import new_markdown_cell

    return new_markdown_cell(words)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
