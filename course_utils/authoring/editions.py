"""The lessons for who teaches them: with answers and notes, as a handout of what one chooses, or for nbgrader.

The notes are the cells tagged `instructor` of a lesson's source. What the exercises declare (reference answers, usual
mistakes) and the predictions (each option with its reason) is taken from there, so that it is never out of date.
"""

import ast
import functools
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import Template
from nbformat import NotebookNode

from course_utils.authoring import build, page, source
from course_utils.authoring.source import answer_cells, called_with, choose, learner, number_of, read_source, tags_of
from course_utils.exercises.engine import Exercise, exercises_of, predictions_of
from course_utils.root import ASSETS, ROOT, CourseError, write_whole

BUILD = ROOT / "build"
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"  # nbgrader's


def read_built(path: Path, folder: Path = source.FOLDER) -> NotebookNode:
    """The learner's notebook of the lesson `path`, as it was built. Raises `CourseError` where it is out of date."""
    built = folder / f"{path.stem}.ipynb"
    if differences := build.find_differences(path, built):
        raise CourseError(f"{differences[0]}. Build it first:  make notebooks ARGS={path.stem[:2]}")
    return nbformat.read(built, as_version=4)


def write_and_say(path: Path, text: str, what: str) -> None:
    """Write `text` to `path`, and print what was written where, seen from here if it is below."""
    write_whole(path, text)
    print(f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}: {what}", flush=True)


def write_each(lesson: str | None, target: Path, make: Callable[[Path], str], what: str) -> int:
    """Write what `make` makes of a lesson (`07`), or of all, to `target` with its name for `NAME`; returns 0."""
    for path in choose([lesson] if lesson else []):
        print(f"{path.stem} …", flush=True)
        start, text = time.perf_counter(), make(path)
        said = f"{what} ({time.perf_counter() - start:.0f} s)."
        write_and_say(target.with_name(target.name.replace("NAME", path.stem)), text, said)
    return 0


def write_instructor(lesson: str | None = None, folder: Path = BUILD / "instructor") -> int:
    """Run the instructor's edition of a lesson (`07`), or of all, into `folder`; `CourseError` where a cell fails."""
    target, what = folder / "NAME.ipynb", "the lesson with answers and notes for the teacher"
    return write_each(lesson, target, lambda path: nbformat.writes(build.run(compose(path), path.stem)), what)


def compose(path: Path) -> NotebookNode:
    """The lesson `path` with its reference answers, its notes and an appendix; not run."""
    exercises, predictions = exercises_of(number_of(path)), predictions_of(number_of(path))
    notebook = source.put_answers(read_source(path), {each.name: each.source for each in exercises})
    for cell in notebook.cells:
        if "instructor" in tags_of(cell):
            cell.source = f"---\n**For the teacher**\n\n{cell.source}\n\n---"
    text, metadata = teacher_texts().appendix(predictions, exercises), {"tags": ["instructor"]}
    notebook.cells.append(nbformat.v4.new_markdown_cell(text, id="appendix-for-the-teacher", metadata=metadata))
    return notebook


@functools.cache
def teacher_texts() -> Any:
    """What a teacher reads, as Markdown: `answers(prediction)`, `mistakes(exercise)`, the `appendix` with all."""
    text = (ASSETS / "teacher.md.j2").read_text(encoding="utf-8")
    return Template(text, trim_blocks=True, lstrip_blocks=True).module


def write_handout(
    lesson: str, network: str = "", image: str = "", layer: str = "", chosen: str = "", folder: Path = BUILD / "handout"
) -> int:
    """Write a lesson (`07`) as one HTML file into `folder`; returns 0.

    Without network, image (a file), layer and chosen (a class, or one "rather than" another) it is the lesson as it was
    built. With one of them, it begins with its section "Your network, your picture", run again: what that network makes
    of that picture. Raises `CourseError` for an unknown network or class, a picture that cannot be read, damaged
    weights, a layer without maps; nothing is written then.
    """
    (path,) = choose([lesson])
    notebook, about = read_built(path), ""
    said = "the lesson as a page, as it was built."
    choices = network, Path(image).name, layer, chosen  # the picture lies in the folder of the run
    parameters = {name: value for name, value in zip(source.PARAMETERS.values(), choices, strict=True) if value}
    if parameters:
        about = _look_first(network, image, layer, chosen, source.parameters_of(path)["own_network"])
        _put_first(notebook, build.run(_own_section(path), path.stem, parameters, [Path(image)] if image else []))
        said = f"your choice first, and then the lesson as it was built. {about}".strip()
    named = "".join("-" + re.sub(r"[^\w.]+", "_", part) for part in (network, Path(image).stem, layer, chosen) if part)
    write_and_say(folder / f"{path.stem}{named}.html", page.export(page.flatten_outputs(notebook), about=about), said)
    return 0


def _own_section(path: Path) -> NotebookNode:
    """The first code cells of the lesson `path`, and its section about one's own network and picture; not run."""
    notebook = learner(path)
    start, end = _find_section(notebook)
    first = list(takewhile(lambda cell: cell.cell_type == "code", notebook.cells[1:]))  # all imports and parameters
    notebook.cells = first + notebook.cells[start:end]
    return notebook


def _find_section(notebook: NotebookNode) -> tuple[int, int]:
    """From which cell to which the section goes."""
    texts = [cell.source if cell.cell_type == "markdown" else "" for cell in notebook.cells]
    start = next(place for place, text in enumerate(texts) if text.startswith(f"## {page.SECTION}"))
    return start, next(place for place in range(start + 1, len(texts)) if texts[place].startswith("## "))


def _put_first(lesson: NotebookNode, ran: NotebookNode) -> None:
    """Put the section, as it was `ran`, behind the title of the `lesson`, and make its pictures large."""
    start, end = _find_section(lesson)
    fresh = {cell.id: cell for cell in ran.cells}
    section = [fresh[cell.id] for cell in lesson.cells[start:end] if cell.id in fresh]
    for cell in section:
        cell.metadata["tags"] = [*tags_of(cell), "own"]
    title, _, text = section[0].source.partition("\n")
    section[0].source = f"# {title.removeprefix('## More: ')}\n{text}"
    lesson.cells = [*section, *lesson.cells[:start], *lesson.cells[end:]]


def _look_first(network: str, image: str, layer: str, chosen: str, usual: str) -> str:
    """Look once, so that what cannot be made is one sentence; returns what there is to say of it."""
    from course_utils.lessons.own import look_at
    from course_utils.scenes.scene import scene
    from course_utils.vision.networks import WeightsError, load_classifier

    reason, name = "", network or usual
    try:
        try:
            load_classifier(name)
        except WeightsError as error:  # it goes on with random ones
            reason = f" ({error})"
        look = look_at(name, image or scene("cat", seed=1).image, layer, chosen)
    except (ValueError, RuntimeError, LookupError) as error:
        sentence = str(error)
        raise CourseError(sentence if sentence.endswith((".", "?")) else f"{sentence}.") from None
    picture = f" The picture is {Path(image).name}." if image else ""
    return f"{look.network.note}{reason}{picture}" if network or image else ""


def write_assignments(folder: Path) -> list[Path]:
    """Write an nbgrader course into `folder`, and keep a configuration that is there; returns what it consists of."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "nbgrader_config.py"]
    if not written[0].exists():
        shutil.copyfile(ASSETS / "nbgrader_config.txt", written[0])
    for path in choose([]):
        written.append(folder / "source" / path.stem / f"{path.stem}.ipynb")
        build.write(make_assignment(path, exercises_of(number_of(path))), written[-1])
    return written


def make_assignment(path: Path, exercises: Iterable[Exercise]) -> NotebookNode:
    """The lesson `path` as an assignment, in which each exercise has two cells for nbgrader, `NAME` and `NAME-check`.

    The answer cell holds the reference answer between marks, which `nbgrader generate_assignment` replaces by `...`.
    The check cell is an autograded test worth the exercise's points, whose hidden part nbgrader puts back before it
    grades: the course's own `check` on inputs that nobody has seen.
    """
    notebook, test = learner(path), (ASSETS / "nbgrader_test.txt").read_text(encoding="utf-8")
    answers = answer_cells(notebook, path.stem)
    checks = {called_with(cell.source, "check"): cell for cell in notebook.cells if "check" in tags_of(cell)}
    for exercise in exercises:
        answer, check = answers[exercise.name], checks[exercise.name]
        answer.source = mark_solution(answer.source, exercise.source)
        check.source = test.format(name=exercise.name).rstrip()
        for cell, name, tests in ((answer, exercise.name, False), (check, f"{exercise.name}-check", True)):
            flags = {"solution": not tests, "grade": tests, "locked": tests, "task": False, "schema_version": 3}
            cell.metadata["nbgrader"] = {"grade_id": name, **flags}
        check.metadata["nbgrader"]["points"] = exercise.points
    return notebook


def mark_solution(skeleton: str, answer: str) -> str:
    """The source text of `answer` with marks around all that its skeleton lacks.

    With `...` in the place of what is marked, signature and task are left, and of a class the skeleton's methods.
    """
    methods = {node.name for node in ast.parse(skeleton).body[0].body if isinstance(node, ast.FunctionDef)}
    lines = answer.rstrip("\n").splitlines()
    for first, last in reversed(list(_solution_spans(ast.parse(answer).body[0], methods))):
        indent = re.match(" *", lines[first])[0]
        lines[first:last] = [indent + BEGIN, *lines[first:last], indent + END]
    return "\n".join(lines)


def _solution_spans(node: ast.FunctionDef | ast.ClassDef, methods: set[str]) -> Iterator[tuple[int, int]]:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    for part in [body] if isinstance(node, ast.FunctionDef) else [[each] for each in body]:
        if isinstance(node, ast.ClassDef) and getattr(part[0], "name", "") in methods:
            yield from _solution_spans(part[0], methods)
        else:
            start = min(each.lineno for each in (part[0], *getattr(part[0], "decorator_list", [])))
            yield start - 1, part[-1].end_lineno
