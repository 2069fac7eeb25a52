"""Build the lessons: seal them, run each with papermill, keep nothing of clock, machine or chance, and compare with the
source.

The README's map of the lessons and its links to hosts are renewed as well.
"""

import copy
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from nbformat import NotebookNode

from course_utils.authoring.seal import seal_lessons, stale
from course_utils.authoring.source import (
    FOLDER,
    METADATA,
    answer_cells,
    choose,
    learner,
    pages,
    place,
    read_source,
    sources,
    tags_of,
)
from course_utils.language import find_missing
from course_utils.root import CourseError, repository, write_whole

CELL_SECONDS = 120  # a cell that runs longer than this stops the build
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET = "widget"  # in an output's metadata: there is a widget in its place when the cell runs
INJECTED = "injected-parameters"  # papermill's tag for the cell that sets the parameters

# What a reader's shell may set and an output could depend on.
_UNSET = {"CLICOLOR", "COLUMNS", "FORCE_COLOR", "LINES", "MATPLOTLIBRC", "MPLBACKEND", "NO_COLOR"}
_UNSET |= {"PYTHONHASHSEED", "PYTHONSTARTUP", "PYTHONWARNINGS"}

# What must never stand in an output, because it is different elsewhere or tomorrow, or says nothing to a blind reader.
_UNFIT = {
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}\b"),
    "an absolute path": re.compile(r"(?<![\w.:/<~)\]-])/(?:[\w.+-]+/)+[\w.+-]+|(?<![\w])[A-Za-z]:\\{1,2}\w"),
    "a date or a time of day": re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b"),
    "a picture without words (alt, aria-label; aria-hidden for decoration)": re.compile(
        r"""<(?:img|svg)\b(?![^>]*\b(?:(?:alt|aria-label|aria-labelledby)=["'][^"']|aria-hidden=["']true))[^>]*>"""
    ),
}

# The map: title and minutes are what each lesson says, what one learns is the phrase of the table in `00_start_here`.
README = FOLDER.parent / "README.md"
START_PHRASE = "a case for the whole course; how a lesson works; your progress, your clues, the glossary"
MAP_HEAD = "| | Lesson | You learn | Exercises | Minutes: core, all |\n|---|---|---|---|---|\n"
MAP = re.compile(re.escape(MAP_HEAD) + r"(?:\|.*\n)*")
HOSTED = re.compile(r"((?:mybinder\.org/v2/gh|colab\.research\.google\.com/github|codespaces\.new)/)[\w.-]+/[\w.-]+")
PHRASE = re.compile(r"^\| (\d\d) \| \[[^\]]*\]\([^)]*\) \| (.+?) \|", re.MULTILINE)
LESSON = re.compile(r"# (.+)\n(?:.*\n)*?\*\*Minutes:\*\* (?:core )?(\d+)(?:, all of it (\d+))?")


def build_notebooks(lessons: Sequence[str] = (), check: bool = False, folder: Path = FOLDER) -> int:
    """Build `lessons` (`03`, `03_module_hooks`), or all notebooks that are out of date, and renew the README's table.

    With `check`, only say what is out of date. Returns 0 if all is current in the end, else 1. Raises as `choose` does,
    and as `seal` does.
    """
    failed, sealed = False, []
    if folder == FOLDER:
        sealed = [lesson.stem for lesson, _ in stale()] if check else seal_lessons()
        for name in sealed:
            print(f"{name}: its sealed cells are {'out of date' if check else 'renewed'}")
        failed = bool(sealed and check)
    for path in [*choose(lessons, folder), *([] if lessons else pages(folder))]:
        built, start = folder / f"{path.stem}.ipynb", time.perf_counter()
        try:
            differences = find_differences(path, built)
            if (differences or lessons or path.stem in sealed) and not check:  # an output may show what was sealed
                require_weights(path)
                write(run(learner(path), path.stem), built)
                differences = [f"{path.stem}: built in {time.perf_counter() - start:.1f} s"]
            print("\n".join(differences) or f"{path.stem}: up to date")
            failed |= bool(differences and check)
        except CourseError as error:
            print(f"{path.stem}: not built. {error}", file=sys.stderr)
            failed = True
    current = renew_map(folder.parent / "README.md", folder, write=not check)
    state = "is up to date" if current else "is out of date" if check else "was renewed"
    print(f"README: its map of the lessons {state}")
    return int(failed or (check and not current))


def require_weights(path: Path) -> None:
    """Raise `CourseError` if cells of a lesson need weights that are not here: their outputs would be nonsense."""
    needs = any("pretrained" in tags_of(cell) for cell in read_source(path).cells)
    if needs and (missing := find_missing()):
        raise CourseError(f"its cells tagged pretrained need {', '.join(missing)}: run `make language-model`")


def run(
    source: NotebookNode, lesson: str, parameters: Mapping[str, Any] | None = None, files: Sequence[Path] = ()
) -> NotebookNode:
    """The notebook `source` of the lesson called `lesson`, run by papermill in a folder with `files` only, and tidied.

    parameters: other values for names that the cell tagged `parameters` sets. What cells print is not examined then.
    Raises `CourseError` if a cell raises, runs too long, or prints what would be different on another machine or day.
    """
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    with tempfile.TemporaryDirectory(prefix="course-build-") as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        for file in files:
            shutil.copyfile(file, folder / "empty" / file.name)
        nbformat.write(source, folder / "in.ipynb")
        options = {"cwd": folder / "empty", "execution_timeout": CELL_SECONDS}
        options |= {"extra_arguments": ["--IPKernelApp.log_level=40"], "progress_bar": {"desc": lesson}}  # 40: errors
        try:  # the kernel inherits this process's environment
            with mock.patch.dict(os.environ, kernel_environment(folder), clear=True):
                executed = papermill.execute_notebook(folder / "in.ipynb", folder / "out.ipynb", parameters, **options)
        except PapermillExecutionError as error:
            where = place(lesson, error.cell_index + 1, error.source)
            traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
            raise CourseError(f"{where} raised {error.ename}: {error.evalue}\n{traceback}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            why = f"ran longer than {CELL_SECONDS} s" if isinstance(error, CellTimeoutError) else "ended the kernel"
            raise CourseError(f"{lesson}: a cell {why}\n{error}") from None
    notebook = tidy(executed, source)
    if not parameters and (problems := find_problems(notebook)):
        raise CourseError("\n".join(f"{lesson}, {problem}" for problem in problems))
    return notebook


def kernel_environment(folder: Path) -> dict[str, str]:
    """The environment in which lessons are built and tested: no progress is kept, IPython's profile is in `folder`."""
    environment = {key: value for key, value in os.environ.items() if key not in _UNSET}
    environment |= {"COURSE_PROGRESS": "off", "IPYTHONDIR": str(folder / "ipython")}
    return environment | {"JUPYTER_PREFER_ENV_PATH": "1"}  # this environment's kernel, not one in the home folder


def tidy(executed: NotebookNode, source: NotebookNode) -> NotebookNode:
    """`executed` without what its run left of clock, machine and chance; cell metadata and ids are those of `source`.

    Of a widget, its still picture and its words are kept: a saved view would show nothing without a kernel.
    """
    cells, known = copy.deepcopy(executed.cells), {cell.id: copy.deepcopy(cell.metadata) for cell in source.cells}
    for cell in cells:
        cell.id = cell.id if cell.id in known else INJECTED
        cell.metadata = known.get(cell.id, NotebookNode(tags=[INJECTED]))
    for count, cell in enumerate((cell for cell in cells if cell.cell_type == "code"), start=1):
        cell.update(execution_count=count, outputs=merge_streams(cell.outputs))
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
            if output.get("data", {}).pop(WIDGET_VIEW, None) is not None:
                output.metadata[WIDGET] = True
    return nbformat.v4.new_notebook(cells=cells, metadata=copy.deepcopy(source.metadata))


def merge_streams(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """The outputs with each run of stream outputs made one for stdout and one for stderr, whose order is chance."""
    merged: list[NotebookNode] = []
    for is_stream, group in groupby(outputs, key=lambda output: output.output_type == "stream"):
        if is_stream:
            parts = list(group)
            texts = {name: "".join(each.text for each in parts if each.name == name) for name in ("stdout", "stderr")}
            group = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in texts.items() if text]
        merged += group
    return merged


def find_problems(notebook: NotebookNode) -> list[str]:
    """What makes an executed `notebook` unfit to be committed: one sentence each."""
    problems = []
    if notebook.metadata != METADATA:
        problems.append(f"the notebook has metadata of a run or a machine: {dict(notebook.metadata)}")
    code = [(number, cell) for number, cell in enumerate(notebook.cells, start=1) if cell.cell_type == "code"]
    for count, (number, cell) in enumerate(code, start=1):
        found = [problem for output in cell.outputs for problem in _output_problems(output)]
        if cell.execution_count != count:
            found.append(f"has execution count {cell.execution_count}; in a clean run it is {count}")
        problems += [f"cell {number} ({cell.id}) {problem}" for problem in found]
    return problems


def _output_problems(output: NotebookNode) -> Iterator[str]:
    if output.output_type == "error":
        yield f"raised {output.ename}: {output.evalue}"
    data, metadata = output.get("data", {}), output.get("metadata", {})
    if metadata.get(WIDGET) and not data.get("text/plain", "").strip():
        yield "displays a widget without a sentence as text/plain for pages that cannot show it"
    for mime in {"image/png", "image/jpeg"} & set(data):  # an SVG carries its words itself
        if not (metadata.get(mime, {}).get("alt") or metadata.get("alt") or "text/html" in data):
            yield "shows a picture without alt text: IPython.display.Image takes alt="
    readable = [value for mime, value in data.items() if mime.startswith("text/") or mime == "image/svg+xml"]
    for what, pattern in _UNFIT.items():
        found = (each[0] for text in [output.get("text", ""), *readable] for each in pattern.finditer(text))
        yield from (f"shows {what}: {part[:80]}" for part in found)


def find_differences(path: Path, built: Path) -> list[str]:
    """How the notebook file `built` differs from what the source `path` says, one sentence each; none if it is current.

    What the cells printed is not looked at: running them tells.
    """
    if not built.exists():
        return [f"{path.stem}: {built.name} was not built yet"]
    try:
        notebook = nbformat.read(built, as_version=4)
    except (ValueError, KeyError) as error:  # nbformat's own errors are ValueErrors
        return [f"{path.stem}: {built.name} is not a notebook: {error}"]
    wanted, found = learner(path).cells, notebook.cells
    for number, (cell, other) in enumerate(zip(wanted, found, strict=False), start=1):
        for what in ("id", "cell_type", "source", "metadata"):
            if cell[what] != other.get(what):
                where = place(path.stem, number, cell.source)
                return [f"{where}: its {what} is {other.get(what)!r}, and in the source {cell[what]!r}"]
    if len(wanted) != len(found):
        return [f"{path.stem}: {built.name} has {len(found)} cells, the source has {len(wanted)}"]
    return [f"{path.stem}: {problem}" for problem in find_problems(notebook)]


def write(notebook: NotebookNode, path: Path) -> None:
    """Write `notebook` as nbformat does (sorted keys, indent 1), in one step: an interrupted build breaks no file."""
    write_whole(path, nbformat.writes(notebook).rstrip("\n") + "\n")


def map_rows(folder: Path = FOLDER) -> list[str]:
    """The map's row for each lesson of `folder`. Raises `CourseError` where a lesson lacks title, minutes or phrase."""
    found, phrases = [], {"00": START_PHRASE}
    for path in sources(folder):
        notebook = learner(path)
        prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        phrases |= dict(PHRASE.findall(prose)) if path.stem.startswith("00") else {}
        said, number = LESSON.match(prose), path.stem[:2]
        if not said:
            raise CourseError(f"{path.stem}: its first cell starts with `# Title` and has a line `**Minutes:**`.")
        if number not in phrases:
            raise CourseError(f"{path.stem}: the table of lessons in 00_start_here has no row for it.")
        link, exercises = f"[{said[1]}](notebooks/{path.stem}.ipynb)", len(answer_cells(notebook, path.stem))
        minutes = ", ".join(filter(None, said.groups()[1:]))
        found.append(f"| {number} | {link} | {phrases[number]} | {exercises} | {minutes} |")
    return found


def renew_map(readme: Path = README, folder: Path = FOLDER, *, write: bool = True) -> bool:
    """Bring the map in the file `readme` up to date, or with `write=False` only look; tell whether it was.

    Raises `CourseError` as `map_rows` does, and for a README without a place for the map.
    """
    before = readme.read_text(encoding="utf-8")
    if not MAP.search(before):
        raise CourseError(f"The README has no place for the map of the lessons: a table that starts with {MAP_HEAD!r}.")
    after = MAP.sub(lambda _: MAP_HEAD + "".join(f"{row}\n" for row in map_rows(folder)), before)
    after = HOSTED.sub(rf"\1{repository().removeprefix('https://github.com/')}", after)
    if write and after != before:
        write_whole(readme, after)
    return after == before
