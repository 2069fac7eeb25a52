"""Step 1: from a notebook's cells to answers. Nothing of a submission runs here.

With an answer travel the definitions that it uses, one by one and never whole cells (see `definitions`): first from the
submission, and what the submission has lost, from the lesson itself. What a notebook of an earlier edition imports is
imported from where it is now (see `old_imports`).
"""

from dataclasses import dataclass

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.answers import find_answer, is_blank_definition
from course_utils.grading.definitions import Cell, Names, first_line, text_of, used_names
from course_utils.grading.lessons import Lesson
from course_utils.grading.old_imports import renew_imports


@dataclass(frozen=True)
class CollectedAnswer:
    """The answer to one exercise: the text to run, or the outcome where there is nothing to run.

    The lines of `source` have the numbers that they have in the student's cell. `support` are the definitions that it
    uses, in the order in which they run.
    """

    exercise: Declaration
    source: str = ""
    support: tuple[str, ...] = ()
    outcome: Outcome | None = None


def collect_answers(cells: list[Cell], lesson: Lesson) -> list[CollectedAnswer]:
    """The answer to each exercise of the lesson."""
    cells = [renew_imports(cell) for cell in cells]
    names = Names(cells)
    return [_collect(exercise, cells, names, lesson) for exercise in lesson.exercises]


def _collect(exercise: Declaration, cells: list[Cell], names: Names, lesson: Lesson) -> CollectedAnswer:
    found = find_answer(exercise.name, cells, lesson.answer_ids.get(exercise.name))
    if found is None:
        return CollectedAnswer(exercise, outcome=exercise.not_attempted(_say_missing(exercise.name, names)))
    (number, node), cell = found, cells[found[0]]
    if node is None:
        return CollectedAnswer(exercise, outcome=_not_python(exercise, cell, cell.error))
    if is_blank_definition(node):
        return CollectedAnswer(exercise, outcome=exercise.not_attempted("the answer cell is as it came."))
    source = text_of(node, cell.source)
    try:
        used = used_names(source)
    except SyntaxError as error:  # it parses, but cannot be compiled: `return` outside a function, two equal arguments
        return CollectedAnswer(exercise, outcome=_not_python(exercise, cell, error, first_line(node) - 1))
    own, missing = names.needed(used, number, but=exercise.name)
    padded = "\n" * (first_line(node) - 1) + source + "\n"
    return CollectedAnswer(exercise, padded, (*lesson.needed(missing, exercise.name), *own))


def _say_missing(name: str, names: Names) -> str:
    found = names.find(name, (0, 0))
    if found and f"def {name}" not in found.source:
        return f"`{name}` is assigned in the notebook; write the answer with `def`, so that it has its name."
    return f"there is no function called `{name}` in the notebook."


def _not_python(exercise: Declaration, cell: Cell, error: SyntaxError, above: int = 0) -> Outcome:
    line = (error.lineno or 0) + above
    lines = cell.source.split("\n")
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    where = f"your line {line}, `{text}`, is" if text else "your answer cell is"
    sentence = f"{where} not Python: {error.msg}."
    return Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
