"""The lessons as an instructor meets them: what was built, the notes, the minutes, and what students will get wrong.

The notes are the cells tagged `instructor` of a lesson's source. What the exercises declare (reference answers, usual
mistakes) and the predictions (each option with its reason) is taken from there, so that it is never out of date.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import build, source
from course_utils.authoring.source import LessonError, read_source, tags_of
from course_utils.exercises.engine import (
    Exercise,
    Prediction,
    exercises_of,
    predictions_of,
)
from course_utils.root import ROOT, CourseError

BUILD = ROOT / "build"


def choose_lessons(names: list[str], folder: Path = source.FOLDER) -> list[Path]:
    """The sources that `names` mean (`07`, `07_cam_and_grad_cam`); all for no names.

    Raises `CourseError` for a name that no lesson has.
    """
    try:
        return source.choose(names, folder)
    except LessonError as error:
        raise CourseError(_sentence(error)) from None


def read_built(source: Path, folder: Path = source.FOLDER) -> NotebookNode:
    """The learner's notebook of the lesson `source`, as it was built. Raises `CourseError` where it is out of date."""
    path = folder / f"{source.stem}.ipynb"
    try:
        differences = build.find_differences(source, path)
    except LessonError as error:
        raise CourseError(_sentence(error)) from None
    if differences:
        raise CourseError(f"{_sentence(differences[0])} Build it first:  make notebooks ARGS={source.stem[:2]}")
    return nbformat.read(path, as_version=4)


def _sentence(text: object) -> str:
    text = str(text)
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def with_notes(source: Path, built: NotebookNode) -> NotebookNode:
    """The cells of `built` with the notes for instructors between them, where the source has them."""
    ran = {cell.id: cell for cell in built.cells}
    whole = read_source(source)
    whole.cells = [cell if "instructor" in tags_of(cell) else ran[cell.id] for cell in whole.cells]
    return whole


def number_of(source: Path) -> int:
    """The lesson's number."""
    return int(source.stem[:2])


def title_of(notebook: NotebookNode) -> str:
    """The lesson's title: the heading on top."""
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


# ------------------------------------------------------------------------------------------- what the course declares


def describe_answers(prediction: Prediction) -> str:
    """Markdown: the right option of a prediction, and for each wrong one what to say to who chose it."""
    lines = [
        f"**{prediction.question}**",
        "",
        f"- Right: **{prediction.answer}**. {_why(prediction, prediction.answer)}",
    ]
    lines += [
        f"- Who says {option}: {_why(prediction, option)}"
        for option in prediction.options
        if option != prediction.answer
    ]
    return "\n".join(lines)


def _why(prediction: Prediction, option: str) -> str:
    return _plain(prediction.options[option])


def describe_mistakes(exercise: Exercise) -> str:
    """Markdown: the usual mistakes of an exercise, in the words that its check answers them with."""
    return "\n".join(f"- {_plain(mistake.message)}" for mistake in exercise.mistakes)


def _plain(text: str) -> str:
    """One line of Markdown in which nothing is taken for a formula."""
    return " ".join(text.split()).replace("$", r"\$")


def write_appendix(number: int) -> str:
    """Markdown: all predictions of lesson `number` with their answers, all exercises with the mistakes to expect."""
    parts = [
        "## For the teacher: what your students will answer",
        "Made from the lesson's predictions and exercises. The words are those with which `why` and `check` answer.",
    ]
    if predictions := predictions_of(number):
        parts += ["### The predictions", *map(describe_answers, predictions)]
    if exercises := exercises_of(number):
        parts.append("### Mistakes your students will make")
        for each in exercises:
            points = f"{each.points} point" + ("s" if each.points > 1 else "")
            parts.append(f"**{each.name}** ({points})\n\n{describe_mistakes(each)}")
    return "\n\n".join(parts)
