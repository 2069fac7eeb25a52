"""Copy the lessons into a learner's folder, and merge new editions into the copies, with the learner's work kept.

Three notebooks are merged, cell by cell: the edition that a copy was made from (kept in the folder `.base`), the
learner's copy, and the new edition. nbdime tells which cells are the same under other ids, and merges their texts. The
file as it was goes to `backups`; every file is written whole, and where this was interrupted, the next run goes on.

A copy has no outputs: a stored result below a prediction would be its answer.
"""

import re
import shutil
import time
from collections.abc import Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode
from nbformat.corpus.words import generate_corpus_id as new_id
from nbformat.v4 import new_markdown_cell

from course_utils.exercises.saved_progress import MARKER
from course_utils.root import ASSETS, BACKUPS, ROOT, repository, write_whole

BASE = ".base"
CHANGED = "**The update changed the cell above, and so had you.** This is your version of it."
GONE = "**The update removed, or wrote anew, a cell that you had changed.** This is your version of it."
REMOVED = "**The exercise `{}` is not in this lesson any more.** Your answer to it is kept here."
NEW_TASK = "**The update changed this task.** Your answer is kept. The answer cell now comes as:\n\n```python\n{}\n```"


class Update(NamedTuple):
    """What became of a copy: a sentence ("" if there is nothing to say), the file if it was written, and its backup."""

    sentence: str
    written: Path | None = None
    backup: Path | None = None


def update_lessons(lessons: Iterable[Path], work: Path) -> Iterator[Update]:
    """Copy those of `lessons` that the folder `work` lacks, and bring the other copies up to date, one after another.

    What is no notebook is left alone and named, and so is, where an edition is new, what has no lesson's name.
    """
    lessons, news = list(lessons), False
    for lesson in lessons:
        path, base = work / lesson.name, work / BASE / lesson.name
        edition, known = _without_outputs(lesson), base.read_bytes() if base.exists() and not _damage(base) else None
        if damage := path.exists() and _damage(path):
            mend = "For a fresh copy, rename it or delete it, and run this again."
            yield Update(f"{path.name}: left as it is, because {damage}. {mend}")
        elif known != edition or not path.exists():
            update = _update(path, edition, known, work / BACKUPS)
            news |= bool(update.sentence)
            write_whole(base, edition)
            yield update
    for path in sorted(work.glob("*.ipynb")):
        if news and path.name not in [lesson.name for lesson in lessons]:
            yield Update(f"{path.name}: left as it is, because no lesson has this name.")


def write_copies(folder: Path = ROOT / "build" / "copies") -> int:
    """Write copies for Colab and a JupyterHub to `folder`, whose first cell installs the course; returns 0."""
    address, get = repository(), (ASSETS / "get_course.txt").read_text(encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    for _, path, _ in update_lessons(sorted((ROOT / "notebooks").glob("*.ipynb")), folder):
        copy = nbformat.read(path, as_version=4)
        first = next(cell for cell in copy.cells if cell.id == "find-the-course")
        first.source = get.replace("ARCHIVE", f"{address}/archive/HEAD.zip").rstrip()
        write_whole(path, f"{nbformat.writes(copy)}\n")
    shutil.rmtree(folder / BASE)
    write_whole(folder / MARKER, "Copies of the lessons: progress is kept beside them.\n")
    links = (ASSETS / "copies.txt").read_text(encoding="utf-8")
    print(links.format(folder, address, address.removeprefix("https://github.com/"), address), end="")
    return 0


def _damage(path: Path) -> str:
    try:
        _read(path.read_bytes())
        return ""
    except Exception as error:  # nbformat raises many kinds for what is no notebook
        cut_off = f"it was cut off, or is no notebook ({str(error).splitlines()[0]})"
        return "it is a folder" if path.is_dir() else cut_off if path.stat().st_size else "it is empty"


def _without_outputs(lesson: Path) -> bytes:
    notebook = nbformat.read(lesson, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    return f"{nbformat.writes(notebook)}\n".encode()


def _update(path: Path, edition: bytes, known: bytes | None, backups: Path) -> Update:
    mine = path.read_bytes() if path.exists() else edition
    if mine in (known, edition):
        write_whole(path.resolve(), edition)  # where there is a link, it stays one
        return Update(f"{path.name}: a new edition." * (mine != edition), path)
    merged, words = merge(_read(mine), _read(edition), _read(known or edition))
    stem, ends = f"{path.stem}.{time.strftime('%Y-%m-%d_%H%M')}", chain([""], (f"-{number}" for number in count(2)))
    backup = next(place for end in ends if not (place := backups / f"{stem}{end}.ipynb").exists())
    write_whole(backup, mine)
    write_whole(path.resolve(), nbformat.writes(merged) + "\n")
    return Update(f"{path.name}: a new edition, {words} The file as it was: {BACKUPS}/{backup.name}.", path, backup)


def _read(content: bytes) -> NotebookNode:
    notebook = nbformat.reads(content.decode(), as_version=4)
    nbformat.validate(notebook)
    notebook.nbformat_minor = max(5, notebook.nbformat_minor)
    for cell in notebook.cells:
        cell.setdefault("id", new_id())
    return notebook


def merge(mine: NotebookNode, new: NotebookNode, base: NotebookNode) -> tuple[NotebookNode, str]:
    """Merge the learner's notebook `mine`, a copy of the edition `base`, with the edition `new`; say what was kept.

    Every cell of `new` is there, in its order, and each of the learner's own follows the cell that it followed. Where
    one side changed a cell, that version stands; where both did, nbdime merges the lines, or both versions are there.
    An answer stays in its cell, to the letter.
    """
    course = {cell.id: cell for cell in new.cells}
    _recognise(base.cells, course, course, also=mine.cells)
    old = {cell.id: cell for cell in base.cells}
    _recognise(mine.cells, came := course | old, old)
    there, ranks, place = {cell.id for cell in mine.cells}, {name: rank for rank, name in enumerate(course)}, -1
    edited = [cell.id for cell in mine.cells if cell.id in came and cell.source != came[cell.id].source]
    gone = [cell for cell in mine.cells if cell.id.startswith("answer-") and cell.id in {*edited} - {*course}]
    told = {cell.source for cell in mine.cells if cell.source.startswith((NEW_TASK[:20], REMOVED[:16]))}  # interrupted
    placed = [(ranks[name], [cell]) for name, cell in course.items() if name not in there]
    for cell in mine.cells:
        place = ranks.get(cell.id, place)
        placed.append((place, _settle(cell, came[cell.id], course.get(cell.id)) if cell.id in came else [cell]))
    cells = [cell for _, cells in sorted(placed, key=lambda pair: pair[0]) for cell in cells]
    mine.cells = [cell for cell in cells if cell.id in there or cell.source not in told]
    clash = any(cell.source in (CHANGED, GONE) and cell.id not in there for cell in mine.cells)
    answers, own = sum(name.startswith("answer-") for name in edited), len(there - came.keys())
    words = f"with your {answers} answer{'s' * (answers != 1)} and {own} cell{'s' * (own != 1)} of your own."
    names = ", ".join(_defined(came[cell.id]) for cell in gone)
    words += f" Exercises that are gone: {names}; your answer to each is kept in a cell of its own." * bool(gone)
    return mine, words + " Where both you and the update had changed a cell, both versions are there." * clash


def _defined(cell: NotebookNode) -> str:
    found = re.search(r"^(?:def|class) (\w+)", cell.source * (cell.cell_type == "code"), re.MULTILINE)
    return found[1] if found else ""


def _settle(cell: NotebookNode, came: NotebookNode, now: NotebookNode | None) -> list[NotebookNode]:
    """What stands for a learner's `cell` that `came` so with the old edition, and is `now` so in the new one."""
    from nbdime.prettyprint import merge_render

    yours = NotebookNode(cell | {"id": new_id()})
    if now is None:
        note = REMOVED.format(_defined(came)) if cell.id.startswith("answer-") else GONE
        return [new_markdown_cell(note), yours] if cell.source != came.source else []
    cell.metadata = NotebookNode(cell.metadata | now.metadata)
    if cell.get("outputs", 0) == came.get("outputs"):  # it came with them, and was not run
        cell.update(outputs=now.outputs, execution_count=now.execution_count)
    if cell.id.startswith("answer-") and cell.source != came.source:
        changed = now.source not in (came.source, cell.source)
        return [*[new_markdown_cell(NEW_TASK.format(now.source))] * changed, cell]
    text, conflict = merge_render(*(f"{each.source}\n" for each in (came, cell, now)))
    if conflict:
        return [now, new_markdown_cell(CHANGED), yours]
    if text == f"{cell.source}\n":
        return [cell]
    now.source = text.removesuffix("\n")
    return [now]


def _recognise(cells: list, known: dict, among: dict, also: Iterable[NotebookNode] = ()) -> None:
    """Give those of `cells` that are one `among` others under another id its id: by the answer, or as nbdime pairs.

    What has the id of a `known` cell of another kind gets a new one. `also` follow.
    """
    from nbdime.diffing.notebooks import compare_cell_approximate, compare_cell_strict
    from nbdime.diffing.snakes import compute_snakes_multilevel

    ids = {cell.id: new_id() for cell in cells if cell.id in known and known[cell.id].cell_type != cell.cell_type}
    free = {name: cell for name, cell in among.items() if name not in {cell.id for cell in cells}}
    lost = []
    for cell in (cell for cell in cells if cell.id not in known):
        name = f"answer-{_defined(cell).lower().replace('_', '-')}"[:50]
        if free.pop(name, None):
            ids[cell.id] = name
        elif cell.id != name:  # one that was an exercise is no other
            lost.append(cell)
    left, alike = list(free.values()), [compare_cell_approximate, compare_cell_strict]
    for first, second, length in compute_snakes_multilevel(left, lost, alike):
        ids |= {lost[second + k].id: left[first + k].id for k in range(length)}
    for cell in (*cells, *also):
        cell.id = ids.get(cell.id, cell.id)
