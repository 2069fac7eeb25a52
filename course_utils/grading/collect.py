"""Step 1: from a notebook's cells to answers. Nothing of a submission runs here.

With an answer travel the definitions that it uses, one by one (see `definitions`), from the submission or the lesson.
"""

from dataclasses import dataclass

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.answers import find_answer, is_blank_answer
from course_utils.grading.definitions import Cell, Names
from course_utils.grading.lessons import Lesson

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
    return CollectedAnswer(exercise, source, *names.needed(used, number, but=own)[:2])


def blame(exercise: Declaration, sentence: str) -> Outcome:
    """The outcome of an answer that could not be run to its end."""
    return Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))
