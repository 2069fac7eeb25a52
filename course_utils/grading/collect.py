"""Step 1: from a notebook's cells to answers. Nothing of a submission runs here.

With an answer travel the definitions that it uses, one by one (see `definitions`), from the submission or the lesson.
"""

from dataclasses import dataclass

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.answers import find_answer, is_blank_answer
from course_utils.grading.definitions import Cell, Names, read_names
from course_utils.grading.lessons import Lesson

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


def collect_answers(cells: list[Cell], lesson: Lesson) -> list[CollectedAnswer]:
    """The answer to each exercise of the lesson."""
    names = Names(cells, lesson.cells)
    return [_collect(exercise, cells, names, lesson) for exercise in lesson.exercises]


def _collect(exercise: Declaration, cells: list[Cell], names: Names, lesson: Lesson) -> CollectedAnswer:
    found = find_answer(exercise.name, cells, lesson.answer_ids.get(exercise.name))
    if found is None:
        is_assigned = any(exercise.name in each.binds for cell in cells for each in cell.statements)
        return CollectedAnswer(exercise, outcome=exercise.not_attempted(MISSING[is_assigned].format(exercise.name)))
    (number, answer), cell = found, cells[found[0]]
    if answer is None:
        return CollectedAnswer(exercise, outcome=_not_python(exercise, cell, cell.error))
    if is_blank_answer(exercise.name, answer):
        return CollectedAnswer(exercise, outcome=exercise.not_attempted("the answer cell is as it came."))
    source, own = "", set()
    for each in cell.statements[cell.statements.index(answer) :]:
        if exercise.name in each.binds:  # the answer, and what is made of it
            source += "\n" * (each.line - 1 - source.count("\n")) + each.source + "\n"
            own |= each.binds
    try:
        _, used, _ = read_names(source)
    except SyntaxError as error:  # it parses, but cannot be compiled: `return` outside a function, two equal arguments
        return CollectedAnswer(exercise, outcome=_not_python(exercise, cell, error))
    support, left, _ = names.needed(used, number, but=own)
    return CollectedAnswer(exercise, source, support, left)


def _not_python(exercise: Declaration, cell: Cell, error: SyntaxError) -> Outcome:
    lines, line = cell.source.split("\n"), error.lineno or 0
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    where = f"your line {line}, `{text}`, is" if text else "your answer cell is"
    sentence = f"{where} not Python: {error.msg}."
    return Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
