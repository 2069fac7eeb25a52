"""The lessons as the grader knows them: their exercises, and what their own cells define. Needs no torch."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from course_utils.authoring.source import answer_cells, learner, number_of, sources
from course_utils.exercises.declaration import Declaration, read_declarations
from course_utils.grading.definitions import Cell, code_cells


@dataclass(frozen=True)
class Lesson:
    """One lesson: the text source it is built from, and its exercises in order."""

    path: Path
    exercises: tuple[Declaration, ...]

    @property
    def name(self) -> str:
        """The notebook's name without its ending: `01_tensor_hooks`."""
        return self.path.stem

    @cached_property
    def cells(self) -> list[Cell]:
        """The code cells of the learner's edition."""
        return code_cells([cell for cell in learner(self.path).cells if cell.cell_type == "code"])

    @cached_property
    def answer_ids(self) -> dict[str, str]:
        """The lasting id of each exercise's answer cell."""
        return {name: cell.id for name, cell in answer_cells(learner(self.path), self.name).items()}


def read_lessons() -> dict[str, Lesson]:
    """The lessons that have a text source, by name. Raises `CourseError` if there is none."""
    return {path.stem: Lesson(path, tuple(read_declarations(number_of(path)))) for path in sources()}
