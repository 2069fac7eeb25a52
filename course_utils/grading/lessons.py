"""The lessons as the grader knows them: their exercises, and what their own cells define.

The grader needs of an exercise only what its declaration says (`exercises.declaration`), so the process that grades
need not import torch, which takes longer than grading ten notebooks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from course_utils.authoring.source import FOLDER, answer_cells, learner, put_answers, sources
from course_utils.exercises.declaration import Declaration
from course_utils.grading.answers import code_cells
from course_utils.grading.definitions import Cell, Names


@dataclass(frozen=True)
class Lesson:
    """One lesson: the text source it is built from, and its exercises in order."""

    path: Path
    exercises: tuple[Declaration, ...]

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
        return code_cells([cell for cell in learner(self.path).cells if cell.cell_type == "code"])

    @cached_property
    def answer_ids(self) -> dict[str, str]:
        """The lasting id of each exercise's answer cell."""
        return {name: cell.id for name, cell in answer_cells(learner(self.path), self.name).items()}

    def needed(self, names: set[str], exercise: str) -> list[str]:
        """The lesson's own definitions that give `names` their value where the exercise stands."""
        ids = [cell.id for cell in self.cells]
        wanted = self.answer_ids.get(exercise)
        return self._names.needed(names, ids.index(wanted) if wanted in ids else len(ids), but=exercise)[0]

    def answered_notebook(self) -> str:
        """The lesson with the reference answers in its answer cells, as the text of an `.ipynb` file."""
        import nbformat

        return nbformat.writes(put_answers(learner(self.path), {each.name: each.source for each in self.exercises}))

    @cached_property
    def _names(self) -> Names:
        return Names(self.cells)


def read_lessons(
    folder: Path = FOLDER, read: Callable[[int], Sequence[Declaration]] | None = None
) -> dict[str, Lesson]:
    """The lessons that have a text source in `folder`, by name. Raises `CourseError` if there is no such.

    `read` gives the exercises of a lesson: `read_declarations` or, without one, those that can be run, for which torch
    is imported.
    """
    if read is None:
        from course_utils.exercises.engine import exercises_of as read
    found = [Lesson(path, tuple(read(int(path.stem[:2])))) for path in sources(folder)]
    return {lesson.name: lesson for lesson in found}
