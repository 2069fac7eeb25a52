"""The lessons as the grader knows them: their exercises, and what their own cells define.

The grader itself needs of an exercise only what its declaration says: its name, points, hints and the text of the
reference answer. `read_cards` reads that from the text of the exercises' modules, so that the process that grades need
not import torch, which takes longer than grading ten notebooks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils.authoring.source import FOLDER, answer_cells, answered, learner, sources
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.answers import code_cells
from course_utils.grading.definitions import Cell, Names

if TYPE_CHECKING:
    from course_utils.exercises.engine import Exercise

EXERCISES = Path(__file__).resolve().parents[1] / "lessons"


@dataclass(frozen=True)
class Card:
    """What the declaration of an exercise says; an `engine.Exercise` says the same, and can be run."""

    name: str
    lesson: int
    points: int
    hints: tuple[str, ...]
    source: str

    def not_attempted(self, advice: str) -> Outcome:
        """The outcome for an answer that is not there yet."""
        return Outcome(self.name, Stage.NOT_ATTEMPTED, advice[0].upper() + advice[1:], possible=self.points)


def read_cards(lesson: int | None = None) -> list[Card]:
    """The cards of the exercises of a lesson, or of all, in the order of their declaration. Nothing is imported.

    Raises `ValueError` where a declaration is more than names and literal values.
    """
    number = "[0-9][0-9]" if lesson is None else f"{lesson:02}"
    return [card for path in sorted(EXERCISES.glob(f"lesson_{number}.py")) for card in _cards_in(path)]


@cache
def _cards_in(path: Path) -> list[Card]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = []
    for node in ast.parse(text).body:
        for declared in getattr(node, "decorator_list", []):
            if isinstance(declared, ast.Call) and getattr(declared.func, "id", "") == "exercise":
                values = {each.arg: each.value for each in declared.keywords}
                said = {
                    name: ast.literal_eval(values[name]) for name in ("lesson", "points", "hints") if name in values
                }
                source = "\n".join(lines[node.lineno - 1 : node.end_lineno]) + "\n"
                found.append(Card(node.name, said["lesson"], said.get("points", 1), tuple(said["hints"]), source))
    return found


@dataclass(frozen=True)
class Lesson:
    """One lesson: the text source it is built from, and its exercises in order."""

    path: Path
    exercises: tuple[Card | Exercise, ...]

    @property
    def name(self) -> str:
        """The notebook's name without its ending: `01_tensor_hooks`."""
        return self.path.stem

    @property
    def number(self) -> int:
        """The lesson's number."""
        return int(self.name[:2])

    @cached_property
    def cells(self) -> list[Cell]:
        """The code cells of the learner's edition."""
        return code_cells(learner(self.path).cells)

    @cached_property
    def answer_ids(self) -> dict[str, str]:
        """The lasting id of each exercise's answer cell."""
        cells = answer_cells(learner(self.path), self.name)
        return {name: cell.id for name, cell in cells.items()}

    def needed(self, names: set[str], exercise: str) -> list[str]:
        """The lesson's own definitions that give `names` their value where the exercise stands."""
        return self._names.needed(names, self._cell_number(exercise), but=exercise)[0]

    def answered_notebook(self) -> str:
        """The lesson with the reference answers in its answer cells, as the text of an `.ipynb` file."""
        import nbformat

        return nbformat.writes(answered(self.path, {each.name: each.source for each in self.exercises}))

    @cached_property
    def _names(self) -> Names:
        return Names(self.cells)

    def _cell_number(self, exercise: str) -> int:
        ids = [cell.id for cell in self.cells]
        wanted = self.answer_ids.get(exercise)
        return ids.index(wanted) if wanted in ids else len(ids)


def read_lessons(
    folder: Path = FOLDER, read: Callable[[int], Sequence[Card | Exercise]] | None = None
) -> dict[str, Lesson]:
    """The lessons that have a text source in `folder`, by name. Raises `notebooks.LessonError` if there is no such.

    `read` gives the exercises of a lesson: `read_cards` or, without one, those that can be run, for which torch is
    imported.
    """
    if read is None:
        from course_utils.exercises.engine import exercises_of as read
    found = [Lesson(path, tuple(read(int(path.stem[:2])))) for path in sources(folder)]
    return {lesson.name: lesson for lesson in found}
