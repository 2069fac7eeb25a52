"""The committed notebook of a lesson, as its tests read it: what it shows and what it says."""

from functools import cached_property

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import source
from course_utils.exercises.engine import find_prediction, predictions_of


class LessonPage:
    """The lesson of one name, such as "01_tensor_hooks"; read once."""

    def __init__(self, name: str) -> None:
        self.path = source.FOLDER / f"{name}.ipynb"

    @cached_property
    def cells(self) -> list[NotebookNode]:
        return nbformat.read(self.path, as_version=4).cells

    @cached_property
    def printed(self) -> str:
        """All that the cells printed, and the plain face of all results, in order."""
        outputs = [output for cell in self.cells for output in cell.get("outputs", [])]
        return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)

    @cached_property
    def in_one_line(self) -> str:
        """`printed` with a single space between two words."""
        return " ".join(self.printed.split())

    @cached_property
    def prose(self) -> str:
        """The text of all Markdown cells with a single space between two words."""
        return " ".join(" ".join(cell.source for cell in self.cells if cell.cell_type == "markdown").split())

    @cached_property
    def said(self) -> str:
        """`prose` and what is said of the predictions once somebody has committed, each a text in one line."""
        predictions = predictions_of(source.number_of(self.path))
        texts = [text for each in predictions for text in (each.why, *each.options.values())]
        return "\n".join([self.prose, *(" ".join(text.split()) for text in texts)])

    def printed_by(self, part: str) -> str:
        """What the one code cell whose source contains `part` printed."""
        (cell,) = [cell for cell in self.code if part in cell.source]
        return "".join(output.get("text", "") for output in cell.outputs)

    @property
    def code(self) -> list[NotebookNode]:
        """The code cells."""
        return [cell for cell in self.cells if cell.cell_type == "code"]

    def shows(self, *lines: str) -> bool:
        """Whether the lines stand in the outputs, one after the other; how many spaces there are does not count."""
        return " ".join(" ".join(lines).split()) in self.in_one_line


def why(name: str) -> str:
    """The explanation of a prediction, with a single space between two words."""
    return " ".join(find_prediction(name).why.split())
