"""The kernel engine: papermill runs each exercise in an ordinary kernel. Slow, but it works wherever Jupyter does.

To import this module is cheap.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from course_utils.exercises.bare import bare_lessons
from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.tasks import EVIDENCE, KILLED, LATE, TOO_LONG, Limits, Ran, Task
from course_utils.grading.sandbox.walls import kernel_words

if TYPE_CHECKING:
    from nbformat import NotebookNode

MAX_NOTEBOOK_BYTES = 256 * 1024 * 1024
START_SECONDS = 120  # to start a kernel and to import torch, on a slow disk
DRIVER = "course_utils.grading.sandbox.driver"
LAST = "evidence"  # the tag of the cell in which the answer is run


class KernelEngine:
    """Runs each answer in a kernel of its own. One at a time: kernels inherit this process's environment."""

    def __init__(self) -> None:
        self.isolation = kernel_words()
        self._lessons = bare_lessons()

    def run(self, tasks: Sequence[Task], limits: Limits | None = None) -> list[Ran]:
        """Run the answers of one submission, each by itself."""
        limits = limits or Limits()
        deadline = time.monotonic() + limits.submission
        return [self._run_one(task, limits, deadline) for task in tasks]

    def _run_one(self, task: Task, limits: Limits, deadline: float) -> Ran:
        start = time.monotonic()
        if start >= deadline:
            return Ran(ended=LATE)
        with OwnFolder() as folder:
            (folder.path / "lessons").write_bytes(self._lessons)
            ended = _execute(task, folder.path, limits.exercise, deadline + START_SECONDS)
            record, unclear = ("", "") if ended else _read_evidence(folder.path / "out.ipynb")
        if ended == TOO_LONG and deadline - start < limits.exercise:
            ended = LATE
        return Ran(record, ended or unclear, round(time.monotonic() - start, 4))

    def close(self) -> None:
        """Nothing is open between two runs."""


def _make_notebook(task: Task, lessons: Path) -> NotebookNode:
    from nbformat import v4

    from course_utils.authoring.source import KERNELSPEC, LANGUAGE_INFO

    texts = {
        "parameters": "seed = 0",
        "setup": f"from {DRIVER} import prepare, show_evidence\n\nprepare({str(lessons)!r})\n%load_ext {DRIVER}",
        "support": f"%%support {task.exercise}\n{task.support}",
        "answer": f"%%answer {task.exercise}\n{task.answer}",
        LAST: f"show_evidence({task.exercise!r}, seed)",
    }
    cells = [v4.new_code_cell(text, metadata={"tags": [purpose]}) for purpose, text in texts.items()]
    return v4.new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE_INFO)})


def _execute(task: Task, folder: Path, exercise_seconds: float, deadline: float) -> str:
    # Runs the notebook of a task in a fresh kernel and an empty folder; returns why it ended early, if it did. The last
    # cell is stopped after `exercise_seconds`, and any cell at `deadline` (of `time.monotonic`).
    import nbformat
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from course_utils.authoring.build import kernel_environment
    from course_utils.authoring.source import KERNELSPEC

    def seconds_left(cell: NotebookNode) -> int:
        left = deadline - time.monotonic()
        if LAST in cell.metadata.tags:  # to import torch is no exercise
            left = min(left, exercise_seconds)
        return max(1, round(left))

    (folder / "empty").mkdir()
    nbformat.write(_make_notebook(task, folder / "lessons"), folder / "in.ipynb")
    temporary = mock.patch.object(tempfile, "tempdir", str(folder))  # there the connection file will be
    with mock.patch.dict(os.environ, kernel_environment(folder)), temporary, _quiet():
        try:
            papermill.execute_notebook(
                folder / "in.ipynb",
                folder / "out.ipynb",
                parameters={"seed": task.seed},
                cwd=folder / "empty",
                kernel_name=KERNELSPEC["name"],
                progress_bar=False,
                timeout_func=seconds_left,
                allow_errors=True,
                iopub_timeout=30,
                shutdown_kernel="immediate",
                extra_arguments=["--log-level=50"],  # what a kernel says about itself is not for the screen
            )
        except PapermillExecutionError:
            pass  # a cell raised; whether there is evidence, the notebook tells
        except CellTimeoutError:
            return TOO_LONG
        except DeadKernelError:
            return KILLED
        except Exception as error:  # no kernel, no memory, messages that are none: no verdict, but a reason
            return f"the notebook could not be run: {type(error).__name__}: {error}"
        finally:
            # What nbclient leaves behind imports modules when it is collected. If that happened while Python 3.11
            # parses, the parse would fail ("AST constructor recursion depth mismatch").
            gc.collect()
    return ""


def _read_evidence(path: Path) -> tuple[str, str]:
    if path.stat().st_size > MAX_NOTEBOOK_BYTES:
        return "", "the notebook's outputs are too large to be read"
    outputs = json.loads(path.read_text(encoding="utf-8"))["cells"][-1]["outputs"]
    shown = [output["data"][EVIDENCE] for output in outputs if EVIDENCE in output.get("data", {})]
    if len(shown) != 1 or not isinstance(shown[0], str):
        return "", f"the run showed {len(shown) or 'no'} records of what the answer did, not one"
    return shown[0], ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
