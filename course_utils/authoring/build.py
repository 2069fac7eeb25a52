"""TODO."""

from __future__ import annotations

import argparse
import copy
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_utils.authoring.source import (
    CELL_METADATA,
    FOLDER,
    KERNELSPEC,
    LANGUAGE_INFO,
    LessonError,
    _place,
    choose,
    learner,
    tags_of,
)

CELL_SECONDS = 120  # a cell that runs longer than this stops the build
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET = "widget"  # in an output's metadata: there is a widget in its place when the cell runs

# What a reader's shell may set and an output could depend on.
_UNSET = (
    "CLICOLOR",
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "MATPLOTLIBRC",
    "MPLBACKEND",
    "NO_COLOR",
    "PYTHONHASHSEED",
    "PYTHONSTARTUP",
    "PYTHONWARNINGS",
)

# What must never stand in an output, because it is different elsewhere or tomorrow.
_UNSTABLE_TEXT = {
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}\b"),
    "an absolute path": re.compile(r"(?<![\w.:/<~)\]-])/(?:[\w.+-]+/)+[\w.+-]+|(?<![\w])[A-Za-z]:\\{1,2}\w"),
    "a date or a time of day": re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b"),
}

_PICTURE_TAG = re.compile(r"<(?:img|svg)\b[^>]*>")
_HAS_WORDS = re.compile(r"""\b(?:alt|aria-label|aria-labelledby)=["'][^"']|aria-hidden=["']true""")


# ------------------------------------------------------------------------------------------------------------ running


def build(path: Path) -> NotebookNode:
    """The learner's edition of the source `path`, run and tidied. Raises `LessonError` as `run` does."""
    return run(learner(path), Path(path).stem)


def run(
    source: NotebookNode, lesson: str, parameters: Mapping[str, Any] | None = None, files: Sequence[Path] = ()
) -> NotebookNode:
    """The notebook `source` of the lesson called `lesson`, run by papermill in a folder with `files` only, and tidied.

    parameters: other values for names that the cell tagged `parameters` sets. A notebook run with them is of one
        occasion: what its cells print is not examined.
    Raises `LessonError` if a cell raises, runs too long, or prints what would be different on another machine or day.
    """
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    if parameters:
        source = _with_parameters(source, parameters)
    with tempfile.TemporaryDirectory(prefix="course-build-") as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        for file in files:
            shutil.copyfile(file, folder / "empty" / Path(file).name)
        nbformat.write(source, folder / "in.ipynb")
        with _environment(kernel_environment(folder)):
            try:
                executed = papermill.execute_notebook(
                    folder / "in.ipynb",
                    folder / "out.ipynb",
                    cwd=folder / "empty",
                    kernel_name=KERNELSPEC["name"],
                    progress_bar=False,
                    execution_timeout=CELL_SECONDS,
                    extra_arguments=["--IPKernelApp.log_level=40"],  # errors only: warnings are not for the reader
                )
            except PapermillExecutionError as error:
                cell = source.cells[error.cell_index]
                traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
                raise LessonError(
                    f"{_place(lesson, error.cell_index + 1, cell)} raised {error.ename}: {error.evalue}\n{traceback}"
                ) from None
            except CellTimeoutError as error:
                raise LessonError(f"{lesson}: a cell ran longer than {CELL_SECONDS} s\n{error}") from None
            except DeadKernelError:
                raise LessonError(
                    f"{lesson}: a cell ended the kernel; run the lesson in JupyterLab to see which"
                ) from None
    notebook = tidy(executed, source)
    if not parameters and (problems := find_problems(notebook)):
        raise LessonError("\n".join(f"{lesson}, {problem}" for problem in problems))
    nbformat.validate(notebook)
    return notebook


def _with_parameters(source: NotebookNode, parameters: Mapping[str, Any]) -> NotebookNode:
    """A copy of `source` with a cell that sets the parameters, behind the one tagged `parameters`."""
    from papermill.parameterize import parameterize_notebook

    source = copy.deepcopy(source)
    source.metadata["papermill"] = NotebookNode()  # papermill notes the parameters there,
    for cell in source.cells:
        cell.metadata.setdefault("tags", [])  # and looks for tags in every cell
    notebook = parameterize_notebook(source, dict(parameters))
    del notebook.metadata["papermill"]
    for cell in notebook.cells:
        if "injected-parameters" in tags_of(cell):
            cell.id = "injected-parameters"
            cell.metadata = NotebookNode(tags=["injected-parameters"])
    return notebook


def kernel_environment(folder: Path) -> dict[str, str]:
    """The environment in which lessons are built and tested: no progress is kept, no setting of the user's counts.

    IPython's profile (start-up files, history) is a new one in `folder`.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _UNSET}
    environment["COURSE_PROGRESS"] = "off"
    environment["IPYTHONDIR"] = str(Path(folder) / "ipython")
    environment["JUPYTER_PREFER_ENV_PATH"] = "1"  # this environment's python3 kernel, not one in the home folder
    return environment


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Kernels inherit this process's environment: make it `values` for a while."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# ------------------------------------------------------------------------------------------------------------- tidying


def tidy(executed: NotebookNode, source: NotebookNode) -> NotebookNode:
    """`executed` without what its run left of clock, machine and chance; cell metadata and ids are those of `source`.

    Of a widget, its still picture and its words are kept.
    """
    notebook = nbformat.v4.new_notebook(metadata=copy.deepcopy(source.metadata))
    count = 0
    for original, ran in zip(source.cells, executed.cells, strict=True):
        cell = copy.deepcopy(original)
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = merge_streams(copy.deepcopy(ran.outputs))
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count
        notebook.cells.append(cell)
    _keep_still_faces(notebook)
    return notebook


def merge_streams(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """The outputs with each run of stream outputs made one for stdout and one for stderr, in this order.

    How the kernel cuts a stream into messages, and which of the two streams comes first, is chance.
    """
    merged: list[NotebookNode] = []
    streams: dict[str, NotebookNode] = {}

    def close_streams() -> None:
        merged.extend(streams[name] for name in sorted(streams, reverse=True))
        streams.clear()

    for output in outputs:
        if output.output_type != "stream":
            close_streams()
            merged.append(output)
        elif output.name in streams:
            streams[output.name].text += output.text
        else:
            streams[output.name] = output
    close_streams()
    return merged


def _keep_still_faces(notebook: NotebookNode) -> None:
    """Leave of each widget what can be seen without a kernel: its picture and its words.

    A saved view shows controls that do nothing, or nothing at all: nbconvert's pages would have to load scripts for it.
    Running the cell shows the widget. `metadata.widget` says that there is one.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("data", {}).pop(WIDGET_VIEW, None) is not None:
                output.metadata[WIDGET] = True


# ------------------------------------------------------------------------------------------------------------ checking


def find_problems(notebook: NotebookNode) -> list[str]:
    """What makes an executed `notebook` unfit to be committed, one sentence each.

    Errors, cells not run in order, metadata of a machine or a run, outputs that would be different elsewhere or
    tomorrow, widgets that a page without a kernel could not show, pictures without words.
    """
    problems = _metadata_problems(notebook)
    count = 0
    for number, cell in enumerate(notebook.cells, start=1):
        where = f"cell {number} ({cell.id})"
        if extra := set(cell.metadata) - set(CELL_METADATA):
            problems.append(f"{where} has metadata that the source does not set: {', '.join(sorted(extra))}")
        if cell.cell_type != "code":
            continue
        count += 1
        if cell.execution_count != count:
            problems.append(f"{where} has execution count {cell.execution_count}; in a clean run it is {count}")
        for output in cell.outputs:
            problems += [f"{where} {problem}" for problem in _output_problems(output, cell)]
    return problems


def _metadata_problems(notebook: NotebookNode) -> list[str]:
    problems = []
    for key, value in notebook.metadata.items():
        if key not in ("kernelspec", "language_info"):
            problems.append(f"the notebook has metadata of a run or a machine: {key}")
        elif value != {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO}.get(key, value):
            problems.append(f"the notebook's {key} is of one machine: {value}")
    return problems


def _output_problems(output: NotebookNode, cell: NotebookNode) -> Iterator[str]:
    if output.output_type == "error":
        yield f"raised {output.ename}: {output.evalue}"
        return
    if output.get("execution_count", cell.execution_count) != cell.execution_count:
        yield f"has a result with count {output.execution_count} instead of {cell.execution_count}"
    data = output.get("data", {})
    if WIDGET_VIEW in data:
        yield "has the saved view of a widget, which shows nothing without a kernel or a network"
    if output.get("metadata", {}).get(WIDGET) and not str(data.get("text/plain", "")).strip():
        yield "displays a widget without a sentence as text/plain for pages that cannot show it"
    for mime in {"image/png", "image/jpeg"} & set(data):  # an SVG carries its words itself
        described = output.metadata.get(mime, {}).get("alt") or output.metadata.get("alt")
        if not described and "text/html" not in data:
            yield "shows a picture without alt text: IPython.display.Image takes alt="
    readable = [value for mime, value in data.items() if mime.startswith("text/") or mime.endswith(("svg+xml", "json"))]
    yield from _text_problems([output.get("text", ""), readable])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _text_problems(value: Any) -> Iterator[str]:
    """What is wrong with the texts in an output or a widget's state."""
    for text in _texts(value):
        for what, pattern in _UNSTABLE_TEXT.items():
            if match := pattern.search(text):
                yield f"shows {what}: {match.group(0)}"
        for tag in _PICTURE_TAG.findall(text):
            if not _HAS_WORDS.search(tag):
                yield f"shows a picture without words (alt, aria-label; aria-hidden for decoration): {tag[:80]}"


def find_differences(path: Path, built: Path) -> list[str]:
    """How the notebook file `built` differs from what the source `path` says, one sentence each; none if it is current.

    Cells are compared by kind, text, tags and id. What the cells printed is not looked at: running them tells.
    """
    path, built = Path(path), Path(built)
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
                where = _place(path.stem, number, cell)
                return [f"{where}: its {what} is {other.get(what)!r}, and in the source {cell[what]!r}"]
    if len(wanted) != len(found):
        return [f"{path.stem}: {built.name} has {len(found)} cells, the source has {len(wanted)}"]
    return [f"{path.stem}: {problem}" for problem in find_problems(notebook)]


def write(notebook: NotebookNode, path: Path) -> None:
    """Write `notebook` as nbformat does (sorted keys, indent 1), in one step: an interrupted build breaks no file."""
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8", newline="\n")
    os.replace(unfinished, path)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m course_utils notebooks [names…] [--check]`: build the lessons.

    Without names, the lessons whose text differs from their notebook are built. `--check` only says what differs.
    Returns 0 if all lessons are current in the end, 1 if not, 2 for a name that no lesson has.
    """
    parser = argparse.ArgumentParser(
        prog="python -m course_utils notebooks", description="Build the lessons' notebooks from notebooks/source."
    )
    parser.add_argument("names", nargs="*", help="lessons to build, current or not, like 01 or 01_tensor_hooks")
    parser.add_argument("--check", action="store_true", help="say which notebooks are out of date; build nothing")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    try:
        chosen = choose(options.names, options.folder)
    except LessonError as error:
        print(f"notebooks: {error}", file=sys.stderr)
        return 2
    handle = _report if options.check else _rebuild
    results = [handle(path, options.folder / f"{path.stem}.ipynb", bool(options.names)) for path in chosen]
    return 0 if all(results) else 1


def _report(path: Path, built: Path, _: bool) -> bool:
    try:
        differences = find_differences(path, built)
    except LessonError as error:
        differences = [str(error)]
    print("\n".join(differences) if differences else f"{path.stem}: up to date")
    return not differences


def _rebuild(path: Path, built: Path, always: bool) -> bool:
    start = time.perf_counter()
    try:
        if not always and not find_differences(path, built):
            print(f"{path.stem}: up to date")
            return True
        write(build(path), built)
    except LessonError as error:
        print(f"{path.stem}: not built. {error}", file=sys.stderr)
        return False
    print(f"{path.stem}: built in {time.perf_counter() - start:.1f} s")
    return True
