"""The instructor's edition: each lesson answered and run, with the notes for the teacher in their places."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import build
from course_utils.authoring.editions import BUILD, number_of, write_appendix
from course_utils.authoring.source import LessonError, tags_of
from course_utils.exercises.engine import exercises_of
from course_utils.root import CourseError

FOLDER = BUILD / "instructor"


def compose(source: Path) -> NotebookNode:
    """The lesson `source` with its reference answers, its notes and an appendix; not run."""
    cells = source.answer_cells(source.learner(source), source.stem)
    answers = {each.name: each.source for each in exercises_of(number_of(source)) if each.name in cells}
    notebook = source.answered(source, answers, instructor=True)
    for cell in notebook.cells:
        if "instructor" in tags_of(cell):
            cell.source = f"---\n**For the teacher**\n\n{cell.source}\n\n---"
    appendix = nbformat.v4.new_markdown_cell(write_appendix(number_of(source)), id="appendix-for-the-teacher")
    appendix.metadata["tags"] = ["instructor"]
    notebook.cells.append(appendix)
    return notebook


def write_edition(source: Path, folder: Path | None = None) -> Path:
    """Run the instructor's edition of `source` and write it into `folder` (build/instructor); returns the file.

    Raises `CourseError` where a cell fails.
    """
    try:
        notebook = build.run(compose(source), source.stem)
    except LessonError as error:
        raise CourseError(f"{source.stem} was not written. {error}") from None
    folder = folder or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source.stem}.ipynb"
    build.write(notebook, path)
    return path
