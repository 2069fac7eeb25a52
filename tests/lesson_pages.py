"""The committed notebook of a lesson, as its tests read it: what it shows and what it says."""

import re
from functools import cached_property

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import source


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
        return _fold(self.printed)

    @cached_property
    def prose(self) -> str:
        """The text of all Markdown cells with a single space between two words."""
        return _fold("\n".join(cell.source for cell in self.cells if cell.cell_type == "markdown"))

    def shows(self, *lines: str) -> bool:
        """Whether the lines stand in the outputs, one after the other; how many spaces there are does not count."""
        return _fold(" ".join(lines)) in self.in_one_line


def _fold(text: str) -> str:
    return re.sub(r"\s+", " ", text)
