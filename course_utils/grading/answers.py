"""Step 1: from a notebook's cells to answers. Nothing of a notebook runs here.

The answer to an exercise is the function (or class) with its name, at the top level of a code cell or in an `if`, `try`
or `with` there. Whatever is wrong with a notebook becomes a reason in words.
"""

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.definitions import DEFINES, Cell, Names, Statement, inner_definitions
from course_utils.grading.submissions import Lesson

DEFINITION = re.compile(r"^[ \t]*((?:async\s+def|def|class)\s+(\w+)\b.*)", re.MULTILINE)
BLANK = "the answer cell is as it came."
MISSING = (
    "there is no function called `{}` in the notebook.",
    "`{}` is assigned in the notebook; write the answer with `def`, so that it has its name.",
)


@dataclass(frozen=True)
class CollectedAnswer:
    """The answer to one exercise: the text to run, or the outcome where there is nothing to run.

    The lines of `source` have the numbers that they have in the student's cell. `support` are the definitions that it
    uses, in the order in which they run; `left` are statements that stay behind though it may depend on them.
    """

    exercise: Declaration
    source: str = ""
    support: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    outcome: Outcome | None = None


def find_answer(name: str, cells: list[Cell], lasting_id: str | None) -> tuple[int, Statement | None] | None:
    """The answer to the exercise `name` among the code `cells`; the lesson's own answer cell has `lasting_id`.

    Returns the number of its cell and the statement that defines it, or None in its place where the cell does not
    parse; None where nothing has the name. It is the empty skeleton only where there is nothing else.
    """
    own = [at for at, cell in enumerate(cells) if cell.id == lasting_id]
    ranks = [(own == [at], "answer" in cell.tags, bool(cell.statements), at) for at, cell in enumerate(cells)]
    blank = None
    for *_, number in sorted(ranks, reverse=True):
        cell = cells[number]
        mine = [each for each in cell.statements if name in each.defines]
        if mine and not is_blank_answer(name, mine[-1]):
            return number, mine[-1]
        if mine:
            blank = blank or (number, mine[-1])
        elif _broken(cell, [name]):
            return number, None
    return blank


def _broken(cell: Cell, names: Collection[str]) -> list[str]:
    # The lines in which a cell that is not Python would define one of the names.
    return [line for line, name in DEFINITION.findall(cell.source) if name in names] if cell.error else []


def is_blank_answer(name: str, statement: Statement) -> bool:
    """Whether all that a statement defines under a name is the empty skeleton, as far as its text can tell."""
    return all(_is_blank(node) for node in inner_definitions(ast.parse(statement.source)) if node.name == name)


def _is_blank(node: DEFINES) -> bool:
    said = [one for one in node.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
    parts = [one for one in node.body if one not in said and not isinstance(one, ast.Pass)]
    return all(isinstance(node, ast.ClassDef) and isinstance(one, DEFINES) and _is_blank(one) for one in parts)


def collect_answers(cells: list[Cell], lesson: Lesson) -> list[CollectedAnswer]:
    """The answer to each exercise of the lesson."""
    names = Names(cells, lesson.cells)
    return [_collect(exercise, cells, names, lesson.answer_ids.get(exercise.name)) for exercise in lesson.exercises]


def _collect(exercise: Declaration, cells: list[Cell], names: Names, lasting_id: str | None) -> CollectedAnswer:
    name = exercise.name
    found = find_answer(name, cells, lasting_id)
    if found is None:
        is_assigned = any(name in each.binds for cell in cells for each in cell.statements)
        return CollectedAnswer(exercise, outcome=exercise.not_attempted(MISSING[is_assigned].format(name)))
    (number, answer), cell = found, cells[found[0]]
    if answer is None:
        lines, line = cell.source.split("\n"), cell.error.lineno or 0
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        where = f"your line {line}, `{text}`, is" if text else "your answer cell is"
        return CollectedAnswer(exercise, outcome=blame(exercise, f"{where} not Python: {cell.error.msg}."))
    if is_blank_answer(name, answer):
        return CollectedAnswer(exercise, outcome=exercise.not_attempted(BLANK))
    source, own, used = "", set(), set()
    for each in cell.statements[cell.statements.index(answer) :]:
        if name in each.binds:  # the answer, and what is made of it
            source += "\n" * (each.line - 1 - source.count("\n")) + each.source + "\n"
            own |= each.binds
            used |= each.uses
    support, left, missing = names.needed(used, number, but=own)
    left += tuple(line for each in cells for line in _broken(each, missing))
    return CollectedAnswer(exercise, source, support, left)


def blame(exercise: Declaration, sentence: str) -> Outcome:
    """The outcome of an answer that could not be run to its end."""
    return Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
