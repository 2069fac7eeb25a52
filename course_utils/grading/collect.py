"""Step 1: from a folder of files to answers. Nothing of a submission runs here.

A file is read as bytes: at most 20 MB, UTF-8, JSON, a notebook. Links are not followed. Whatever is wrong with it
becomes a reason in words. Out of a notebook come the answers and nothing else. The answer to an exercise is the
function (or class) with the exercise's name at the top level of a code cell, looked for

1. in the cell with the lasting id of the lesson's answer cell (ids that occur twice say nothing and are ignored),
2. in the cells tagged `answer`, the last first,
3. in all code cells, the last first, as in a notebook run from top to bottom.

The first that is more than the empty skeleton counts. With it travel the definitions that it uses, one by one and never
whole cells (see `names`): first from the submission, and what the submission has lost, from the lesson itself.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import stat
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from course_utils.exercises.engine import Exercise, is_blank
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.lessons import Lesson, code_cells
from course_utils.grading.names import DEFINES, Cell, Names, first_line, quiet_compiler, text_of, used_names

MAX_BYTES = 20 * 1024 * 1024
SKIPPED_FOLDERS = {".ipynb_checkpoints", "__pycache__"}


@dataclass(frozen=True)
class Submission:
    """One notebook that a student handed in, or why it is none: then `reason` says so."""

    student: str
    name: str
    path: Path | None = None
    lesson: Lesson | None = None
    reason: str = ""


@dataclass(frozen=True)
class Answer:
    """The answer to one exercise: the text to run, or the outcome where there is nothing to run.

    The lines of `source` have the numbers that they have in the student's cell. `support` are the definitions that it
    uses, in the order in which they run.
    """

    exercise: Exercise
    source: str = ""
    support: tuple[str, ...] = ()
    outcome: Outcome | None = None


class Unreadable(ValueError):
    """A submission that is no notebook; the message says why."""


# ------------------------------------------------------------------------------------------------------- the folder


def find_submissions(folder: Path, lessons: Mapping[str, Lesson]) -> list[Submission]:
    """All notebooks in `folder`, which holds a folder for each student (`student/lesson.ipynb`), sorted by name.

    A student's folder without any notebook, and what stands where a notebook should but is none, is in the list too.
    """
    found: list[Submission] = []
    for entry in sorted(folder.iterdir()):
        shown, reason = _judge_name(entry)
        if entry.name in SKIPPED_FOLDERS or entry.name.startswith("."):
            continue
        if reason:
            found.append(Submission(shown, "", reason=reason))
        elif entry.is_dir():
            found += _find_notebooks(entry, shown, lessons)
        elif _looks_like_notebook(entry):
            found.append(Submission("", shown, reason=f"{shown} is not in a student's folder: student/lesson.ipynb"))
    return found


def find_work(folder: Path, lessons: Mapping[str, Lesson], student: str) -> list[Submission]:
    """A learner's own copies of the lessons in `folder`, as the submissions of one student."""
    paths = ((folder / f"{name}.ipynb", lesson) for name, lesson in lessons.items())
    return [Submission(student, lesson.name, path, lesson) for path, lesson in paths if path.exists()]


def _find_notebooks(folder: Path, student: str, lessons: Mapping[str, Lesson]) -> Iterator[Submission]:
    try:
        entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    except OSError as error:
        yield Submission(student, "", reason=f"the folder cannot be read: {error.strerror}")
        return
    notebooks = [entry for entry in entries if _looks_like_notebook(entry)]
    for entry in notebooks:
        shown, reason = _judge_name(entry)
        name = shown[: -len(".ipynb")]
        lesson = lessons.get(name)
        if not reason and lesson is None:
            near = difflib.get_close_matches(name, lessons, n=1, cutoff=0.3)
            reason = f"{shown} is not the name of a lesson" + (f"; the nearest is {near[0]}.ipynb" if near else "")
        yield Submission(student, name, entry, lesson, reason)
    if not notebooks:
        names = ", ".join(_judge_name(entry)[0] for entry in entries[:5])
        yield Submission(student, "", reason=f"there is no notebook in the folder, only {names or 'nothing'}")


def _looks_like_notebook(path: Path) -> bool:
    return path.name.lower().endswith(".ipynb")


def _judge_name(path: Path) -> tuple[str, str]:
    """The file's name as it can be printed anywhere, and why it is not opened; an empty reason if it may be."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in path.name)
    if path.is_symlink():
        return shown, f"{shown} is a link to somewhere else; links are not followed"
    if shown != path.name or ".." in path.name or "\\" in path.name:
        return shown, f"the name {shown} has signs that no name here should have (.., \\ or a line break)"
    return shown, ""


# --------------------------------------------------------------------------------------------------------- the file


def read_submission(path: Path) -> bytes:
    """The bytes of a regular file of at most `MAX_BYTES`; `Unreadable` with a reason for anything else."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise Unreadable("it is a link to somewhere else; links are not followed")
        if stat.S_ISDIR(status.st_mode):
            raise Unreadable("it is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("it is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise Unreadable(f"it is larger than {MAX_BYTES // 1024**2} MB; clear the outputs and hand it in again")
    return data


def read_cells(data: bytes) -> list[Cell]:
    """The code cells of a notebook file of any version; `Unreadable` with a reason if it is no notebook."""
    if not data.strip():
        raise Unreadable("it is empty")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Unreadable("it is not text in UTF-8") from None
    except RecursionError:
        raise Unreadable("it is nested too deeply for a notebook") from None
    except ValueError as error:
        raise Unreadable(f"it is not complete JSON, so it was cut off or is no notebook ({error})") from None
    version = notebook.get("nbformat") if isinstance(notebook, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise Unreadable("it is JSON, but not a notebook: it has no nbformat")
    if version > 4 or version < 1:
        raise Unreadable(f"it is a notebook of version {version}; only versions 1 to 4 are known")
    cells = _upgrade(notebook).get("cells") if version < 4 else notebook.get("cells")
    if not isinstance(cells, list):
        raise Unreadable("it is a notebook without a list of cells")
    return code_cells(cells)


def _upgrade(notebook: dict) -> dict:
    import nbformat

    try:
        return nbformat.convert(nbformat.from_dict(notebook), 4)
    except Exception as error:  # an old notebook may be broken in any way; each is a reason, none may stop the batch
        raise Unreadable(f"it is an old notebook that cannot be converted ({type(error).__name__}: {error})") from None


# ------------------------------------------------------------------------------------------------------ the answers


def collect_answers(cells: list[Cell], lesson: Lesson) -> list[Answer]:
    """The answer to each exercise of the lesson; `Unreadable` if the code is nested too deeply to be looked through."""
    try:
        names = Names(cells)
        return [_collect(exercise, cells, names, lesson) for exercise in lesson.exercises]
    except RecursionError:
        raise Unreadable("its code is nested too deeply") from None


def _collect(exercise: Exercise, cells: list[Cell], names: Names, lesson: Lesson) -> Answer:
    candidates = list(_candidates(exercise.name, cells, lesson))
    attempts = [each for each in candidates if each[1] is None or not _is_blank(each[1])]
    if not attempts:
        advice = "the answer cell is as it came." if candidates else _say_missing(exercise.name, cells)
        return Answer(exercise, outcome=exercise.not_attempted(advice))
    number, node = attempts[0]
    cell = cells[number]
    if node is None:
        return Answer(exercise, outcome=_not_python(exercise, cell))
    source = text_of(node, cell.source)
    try:
        used = used_names(source)
    except SyntaxError as error:  # it parses, but cannot be compiled: `return` outside a function, two equal arguments
        return Answer(exercise, outcome=_not_python(exercise, cell, error, first_line(node) - 1))
    own, missing = names.needed(used, number, but=exercise.name)
    padded = "\n" * (first_line(node) - 1) + source + "\n"
    return Answer(exercise, padded, (*lesson.needed(missing, exercise.name), *own))


def _candidates(name: str, cells: list[Cell], lesson: Lesson) -> Iterator[tuple[int, DEFINES | None]]:
    """Where the answer may be, best first: the cell's number and the definition, or None where the cell does not parse.

    A cell may come more than once.
    """
    ids = Counter(cell.id for cell in cells)
    lasting = lesson.answer_ids.get(name)
    numbers = [
        *(number for number, cell in enumerate(cells) if cell.id == lasting and ids[cell.id] == 1),
        *(number for number in reversed(range(len(cells))) if "answer" in cells[number].tags),
    ]
    everywhere = list(reversed(range(len(cells))))
    for number in [*numbers, *sorted(everywhere, key=lambda number: cells[number].error is not None)]:
        cell = cells[number]
        if cell.error:
            if re.search(rf"^(async\s+def|def|class)\s+{re.escape(name)}\b", cell.source, re.MULTILINE):
                yield number, None
            continue
        found = [node for node in cell.tree.body if isinstance(node, DEFINES) and node.name == name]
        if found:
            yield number, found[-1]


def _is_blank(node: DEFINES) -> bool:
    """Whether a function is the empty skeleton, as far as its text can tell; a class is asked when it runs."""
    try:
        with quiet_compiler():
            module = compile(ast.Module([node], []), "<answer>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return False
    codes = [code for code in module.co_consts if isinstance(code, types.CodeType) and code.co_name == node.name]
    return not isinstance(node, ast.ClassDef) and len(codes) == 1 and is_blank(types.FunctionType(codes[0], {}))


def _say_missing(name: str, cells: list[Cell]) -> str:
    trees = [cell.tree for cell in cells if cell.tree]
    assigned = any(
        isinstance(target, ast.Name) and target.id == name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )
    if assigned:
        return f"`{name}` is assigned in the notebook; write the answer with `def`, so that it has its name."
    return f"there is no function called `{name}` in the notebook."


def _not_python(exercise: Exercise, cell: Cell, error: SyntaxError | None = None, above: int = 0) -> Outcome:
    """The outcome for an answer that is not Python: the line, its text and what Python says about it."""
    error = error or cell.error
    line = (error.lineno or 0) + above
    lines = cell.source.split("\n")
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    where = f"your line {line}, `{text}`, is" if text else "your answer cell is"
    sentence = f"{where} not Python: {error.msg}."
    return Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
