"""Copy the lessons into a learner's folder, and bring the copies there up to date, with the learner's work kept.

The edition that a copy was made from is kept in the folder `.base`, and `merge` compares with it. The file as it was
goes to `backups`; every file is written whole. The bases are written last, so that where all this was interrupted, the
next run goes on.

A copy has no outputs: a stored result below a prediction would be its answer.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode
from nbformat.corpus.words import generate_corpus_id as new_id

from course_utils.exercises.saved_progress import MARKER
from course_utils.lab.merge import Answer, cells_by_id, find_answers, merge, move_in
from course_utils.root import ASSETS, BACKUPS, PLACEHOLDER, ROOT, CourseError, find_free_path, repository, write_whole

BASE = ".base"


class Update(NamedTuple):
    """What became of a copy: a sentence ("" if there is nothing to say), the file if it was written, and its backup."""

    sentence: str
    written: Path | None = None
    backup: Path | None = None


def update_lessons(lessons: Iterable[Path], work: Path) -> Iterator[Update]:
    """Copy those of `lessons` that the folder `work` lacks, and bring the other copies up to date, one after another.

    An answer to an exercise that is in another lesson now is put into the copy of that lesson. What is no notebook is
    left alone and named, and so is, where an edition is new, what has no lesson's name.
    """
    editions = {lesson.name: _without_outputs(lesson) for lesson in lessons}
    moved = _find_moved(editions, work)
    updates: dict[str, Update] = {}
    for name, edition in editions.items():
        path, known = work / name, _read_base(work / BASE / name)
        if damage := _damage(path):
            mend = "For a fresh copy, rename it or delete it, and run this again."
            yield Update(f"{name}: left as it is, because {damage}. {mend}")
        elif known != edition or not path.exists():
            updates[name] = _update(path, edition, known, moved)
            yield updates[name]
    for name in updates:
        write_whole(work / BASE / name, editions[name])
    if any(update.sentence for update in updates.values()):
        for path in sorted(work.glob("*.ipynb")):
            if path.name not in editions:
                yield Update(f"{path.name}: left as it is, because no lesson has this name.")


def write_copies(folder: Path = ROOT / "build" / "copies") -> int:
    """Write copies for Colab and a JupyterHub to `folder`, whose first cell installs the course; returns 0.

    Raises `CourseError` as long as the course has no address.
    """
    address, get = repository(), (ASSETS / "get_course.txt").read_text(encoding="utf-8")
    if address.endswith(PLACEHOLDER):
        raise CourseError(
            "The copies install the course from its address, and it has none yet. "
            "Write the address as `Repository` in pyproject.toml, run `make notebooks`, and then `make copies` again."
        )
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
    """What is wrong with a file that should be a notebook; "" if nothing is, or there is no such file."""
    if not path.exists():
        return ""
    try:
        _read(path.read_bytes())
    except Exception as error:  # nbformat raises many kinds for what is no notebook
        if path.is_dir():
            return "it is a folder"
        if not path.stat().st_size:
            return "it is empty"
        return f"it was cut off, or is no notebook ({str(error).splitlines()[0]})"
    return ""


def _read_base(path: Path) -> bytes | None:
    """The edition that a copy was made from; None where nobody knows it."""
    return None if not path.exists() or _damage(path) else path.read_bytes()


def _read(content: bytes) -> NotebookNode:
    notebook = nbformat.reads(content.decode(), as_version=4)
    nbformat.validate(notebook)
    notebook.nbformat_minor = max(5, notebook.nbformat_minor)
    for cell in notebook.cells:
        cell.setdefault("id", new_id())
    return notebook


def _without_outputs(lesson: Path) -> bytes:
    notebook = nbformat.read(lesson, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    return f"{nbformat.writes(notebook)}\n".encode()


def _find_moved(editions: Mapping[str, bytes], work: Path) -> dict[str, Answer]:
    """The answers in `work` to exercises that their lesson, as it is in `editions`, does not have any more."""
    moved = {}
    for base in sorted((work / BASE).glob("*.ipynb")):
        copy, known, edition = work / base.name, _read_base(base), editions.get(base.name)
        if known is None or known == edition or not copy.exists() or _damage(copy):
            continue
        course = cells_by_id(_read(edition)) if edition else {}
        answers = find_answers(_read(copy.read_bytes()), _read(known))
        moved |= {name: answer for name, answer in answers.items() if name not in course}
    return moved


def _update(path: Path, edition: bytes, known: bytes | None, moved: Mapping[str, Answer]) -> Update:
    mine = path.read_bytes() if path.exists() else edition
    new, base = _read(edition), _read(known or edition)
    before = cells_by_id(base) if known else {}
    arriving = {cell.id: moved[cell.id] for cell in new.cells if cell.id in moved and cell.id not in before}
    if mine in (known, edition) and not arriving:
        write_whole(path.resolve(), edition)  # where there is a link, it stays one
        return Update("" if mine == edition else f"{path.name}: a new edition.", path)
    copy = _read(mine)
    move_in(arriving, copy, new, base)
    merged, words = merge(copy, new, base)
    if arriving:
        names = ", ".join(answer.name for answer in arriving.values())
        words += f" Exercises that came from another lesson, with your answers: {names}."
    backup = None
    if path.exists():
        backup = find_free_path(path.parent / BACKUPS / f"{path.stem}.{time.strftime('%Y-%m-%d_%H%M')}.ipynb")
        write_whole(backup, mine)
        words += f" The file as it was: {BACKUPS}/{backup.name}."
    write_whole(path.resolve(), nbformat.writes(merged) + "\n")
    return Update(f"{path.name}: a new edition, {words}", path, backup)
