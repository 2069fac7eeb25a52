"""Step 1: from the bytes of a file to answers. Nothing of a submission runs here.

A notebook is UTF-8 and JSON, of any version, with at most 500,000 characters of code. Whatever is wrong with it becomes
a reason in words. Out of a notebook come the answers and nothing else. The answer to an exercise is the
function (or class) with the exercise's name at the top level of a code cell, looked for

1. in the cell with the lasting id of the lesson's answer cell (ids that occur twice say nothing and are ignored),
2. in the cells tagged `answer`, the last first,
3. in all code cells, the last first, as in a notebook run from top to bottom.

The first that is more than the empty skeleton counts. With it travel the definitions that it uses, one by one and never
whole cells (see `names`): first from the submission, and what the submission has lost, from the lesson itself.
"""

from __future__ import annotations

import ast
import json
import re
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from course_utils.exercises.engine import Exercise, is_blank
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.lessons import Lesson, code_cells
from course_utils.grading.names import DEFINES, Cell, Names, first_line, quiet_compiler, text_of, used_names

MAX_CODE = 500_000  # characters: Python needs a kilobyte and more to parse some of them


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
    """A file that is no notebook; the message says why."""


# --------------------------------------------------------------------------------------------------------- the file


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
    code = [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    size = sum(len(str(cell.get("source", ""))) for cell in code)
    if size > MAX_CODE:
        raise Unreadable(f"its code cells hold {size:,} characters; the most that is read is {MAX_CODE:,}")
    return code_cells(code)


def _upgrade(notebook: dict) -> dict:
    import nbformat

    try:
        return nbformat.convert(nbformat.from_dict(notebook), 4)
    except Exception as error:  # an old notebook may be broken in any way; each is a reason, none may stop the batch
        raise Unreadable(f"it is an old notebook that cannot be converted ({type(error).__name__}: {error})") from None


# ------------------------------------------------------------------------------------------------------ the answers


def collect_answers(cells: list[Cell], lesson: Lesson) -> list[Answer]:
    """The answer to each exercise of the lesson."""
    names = Names(cells)
    return [_collect(exercise, cells, names, lesson) for exercise in lesson.exercises]


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
    """Whether a function or a class is the empty skeleton, as far as its text can tell."""
    if isinstance(node, ast.ClassDef):
        parts = [one for one in node.body if not isinstance(one, ast.Pass) and not _is_text(one)]
        return all(isinstance(one, DEFINES) and _is_blank(one) for one in parts)
    try:
        with quiet_compiler():
            module = compile(ast.Module([node], []), "<answer>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return False
    codes = [code for code in module.co_consts if isinstance(code, types.CodeType) and code.co_name == node.name]
    return len(codes) == 1 and is_blank(types.FunctionType(codes[0], {}))


def _is_text(node: ast.stmt) -> bool:
    """A docstring or `...`."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


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
