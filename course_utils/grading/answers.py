"""Step 1: from a notebook's cells to answers. Nothing of a notebook runs here.

The answer to an exercise is the function (or class) with its name, at the top level of a code cell or in an `if`, `try`
or `with` there. Whatever is wrong with a notebook becomes a reason in words. Where such an answer fails, the notebook
as a whole may still do what was asked for; what is run then is chosen here too.
"""

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.definitions import DEFINES, Cell, Names, Place, Statement, inner_definitions, read_cells
from course_utils.grading.similar import name_alike
from course_utils.grading.submissions import Lesson, read_lessons

DEFINITION = re.compile(r"^[ \t]*(?:async\s+def|def|class)\s+(\w+)\b", re.MULTILINE)
BLANK = "the answer cell is as it came."
MISSING = "there is no function called `{}` in the notebook."


@dataclass(frozen=True)
class CollectedAnswer:
    """The answer to one exercise: the text to run, or the outcome where there is nothing to run.

    The lines of `source` have the numbers that they have in the student's cell. `support` are the definitions that it
    uses, in the order in which they run. If it fails, the `whole` notebook may do better: there is more code of the
    student's own than the answer itself. `like` is the same for answers that differ in names, order and layout only.
    """

    exercise: Declaration
    source: str = ""
    support: tuple[str, ...] = ()
    outcome: Outcome | None = None
    whole: bool = False
    like: str = ""

    @property
    def text(self) -> str:
        return "\n\n".join([*self.support, self.source.strip()])


@dataclass(frozen=True)
class CollectedNotebook:
    """The answers in a notebook, and the cells to run as a whole where one fails by itself."""

    answers: Sequence[CollectedAnswer] = ()
    cells: Sequence[str] = ()


def read_notebook(data: bytes, lesson: str) -> CollectedNotebook:
    """What is graded of a notebook file for the lesson of that name; `CourseError` if it is no notebook."""
    cells, found = read_cells(data), read_lessons()[lesson]
    answers = collect_answers(cells, found)
    return CollectedNotebook(answers, choose_cells(cells, found) if any(each.whole for each in answers) else ())


def read_texts(data: bytes, lesson: str) -> dict[str, str]:
    """What a student wrote for each exercise that has an answer; `CourseError` as `read_notebook`."""
    return {each.exercise.name: each.text for each in read_notebook(data, lesson).answers if each.source}


def find_answer(
    name: str, cells: Sequence[Cell], lasting_id: str | None, own: Collection[Place]
) -> tuple[int, int | None, bool] | None:
    """The answer to the exercise `name` among the code `cells`; the lesson's own answer cell has `lasting_id`.

    Returns the number of its cell, the position of the statement that defines it, or None where the cell does not
    parse, and whether it is no answer: the empty skeleton, or what the lesson shows under this name, which is not among
    the student's `own` statements. That is so only where there is nothing else. None where nothing has the name.
    """
    its_cell = [at for at, cell in enumerate(cells) if cell.id == lasting_id]
    ranks = [(its_cell == [at], "answer" in cell.tags, bool(cell.statements), at) for at, cell in enumerate(cells)]
    blank = None
    for *_, number in sorted(ranks, reverse=True):
        cell = cells[number]
        mine = [at for at, each in enumerate(cell.statements) if name in each.defines]
        if mine and (number, mine[-1]) in own and not is_blank_answer(name, cell.statements[mine[-1]]):
            return number, mine[-1], False
        if mine:
            blank = blank or (number, mine[-1], True)
        elif cell.error and name in DEFINITION.findall(cell.source):
            return number, None, False
    return blank


def is_blank_answer(name: str, statement: Statement) -> bool:
    """Whether all that a statement defines under a name is the empty skeleton, as far as its text can tell."""
    return all(_is_blank(node) for node in inner_definitions(ast.parse(statement.source)) if node.name == name)


def _is_blank(node: DEFINES) -> bool:
    said = [one for one in node.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
    parts = [one for one in node.body if one not in said and not isinstance(one, ast.Pass)]
    if node.decorator_list or (not parts and isinstance(node, ast.ClassDef) and (node.bases or node.keywords)):
        return False  # what it does may stand elsewhere
    return all(isinstance(node, ast.ClassDef) and isinstance(one, DEFINES) and _is_blank(one) for one in parts)


def collect_answers(cells: list[Cell], lesson: Lesson) -> list[CollectedAnswer]:
    """The answer to each exercise of the lesson."""
    names, own = Names(cells, lesson.cells), find_own(cells, lesson)
    found = [find_answer(each.name, cells, lesson.answer_ids.get(each.name), own) for each in lesson.exercises]
    # What answers one exercise is no reason to try another anew.
    rest = own.keys() - {place[:2] for place in found if place}
    return [
        _collect(exercise, cells, names, rest, place) for exercise, place in zip(lesson.exercises, found, strict=True)
    ]


def find_own(cells: Sequence[Cell], lesson: Lesson) -> dict[Place, Statement]:
    """The statements of a notebook that are the student's own: the lesson has none with this text."""
    known = {each.source for cell in lesson.cells for each in cell.statements}
    places = ((number, at, each) for number, cell in enumerate(cells) for at, each in enumerate(cell.statements))
    return {(number, at): each for number, at, each in places if each.source not in known}


def _collect(
    exercise: Declaration, cells: list[Cell], names: Names, own: set[Place], found: tuple[int, int | None, bool] | None
) -> CollectedAnswer:
    name = exercise.name
    # Without an answer, only cells in which the name occurs can make one.
    has_name = any(re.search(rf"\b{name}\b", cells[number].source) for number in {number for number, _ in own})
    if found is None:
        return CollectedAnswer(exercise, outcome=exercise.not_attempted(MISSING.format(name)), whole=has_name)
    (number, first, is_blank), cell = found, cells[found[0]]
    if first is None:
        return CollectedAnswer(exercise, outcome=_say_no_python(exercise, cell), whole=has_name)
    if is_blank:
        return CollectedAnswer(exercise, outcome=exercise.not_attempted(BLANK), whole=has_name)
    source, binds, uses, travelled = "", set(), set(), set()
    for at, each in enumerate(cell.statements[first:], first):
        if name in each.binds:  # the answer, and what is made of it
            source += "\n" * (each.line - 1 - source.count("\n")) + each.source + "\n"
            binds |= each.binds
            uses |= each.uses
            travelled.add((number, at))
    needed = names.find_needed(uses, number, but=binds)
    support = tuple(each.source for each in needed.values())
    found_answer = CollectedAnswer(exercise, source, support, whole=bool(own - travelled))
    return replace(found_answer, like=name_alike(found_answer.text))


def _say_no_python(exercise: Declaration, cell: Cell) -> Outcome:
    lines, line = cell.source.split("\n"), cell.error.lineno or 0
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    where = f"your line {line}, `{text}`, is" if text else "your answer cell is"
    return blame(exercise, f"{where} not Python: {cell.error.msg}.")


def choose_cells(cells: Sequence[Cell], lesson: Lesson) -> list[str]:
    """The texts to run as a whole notebook: the cells with code of the student's own, and what they use of the others.

    A cell that is the lesson's is no news: of these only the definitions are there that the student's code uses.
    """
    own = {at for at, _ in find_own(cells, lesson)} | {at for at, cell in enumerate(cells) if cell.error}
    last_use = {name: at for at in sorted(own) for each in cells[at].statements for name in each.uses}
    found = Names(cells, lesson.cells).find_needed(last_use, len(cells))
    # What the lesson makes of a name below its last use is nothing that the student's code has seen.
    needed = {
        (at, place): each
        for (at, place), each in found.items()
        if at in own or at <= max((last_use[name] for name in each.binds & last_use.keys()), default=at)
    }
    texts = [each.source for (number, _), each in needed.items() if number < 0]
    for number, cell in enumerate(cells):
        chosen = "\n".join(each.source for (of, _), each in needed.items() if of == number)
        texts.append(cell.source if number in own else chosen)
    return [text for text in texts if text]


def blame(exercise: Declaration, sentence: str) -> Outcome:
    """The outcome of an answer that could not be run to its end."""
    return Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
