"""The kernel engine: papermill runs each exercise in an ordinary kernel. Slow, but it works wherever Jupyter does.

The same notebook, with all exercises in it and in a kernel that knows the answers, gives the key. That kernel may be
made of a process that has imported torch before it is asked for (see `host`). To import this module is cheap.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_utils.grading.sandbox.tasks import EVIDENCE, KILLED, LATE, MISTAKES, TOO_LONG, Limits, Ran, Task
from course_utils.grading.sandbox.walls import kernel_words

if TYPE_CHECKING:
    from jupyter_client import AsyncKernelManager
    from nbformat import NotebookNode

MAX_NOTEBOOK_BYTES = 256 * 1024 * 1024
START_SECONDS = 120  # to start a kernel and to import torch, on a slow disk
DRIVER = "course_utils.grading.sandbox.driver"


@dataclass(frozen=True)
class Execution:
    """A notebook after its run: what each exercise's cells displayed, by kind; `ended` says why it ended early."""

    displayed: dict[tuple[str, str], list[Any]]
    ended: str = ""


class KernelEngine:
    """Runs each answer in a kernel of its own. One at a time: kernels inherit this process's environment."""

    def __init__(self) -> None:
        self.isolation = kernel_words()

    def run(self, tasks: Sequence[Task], limits: Limits | None = None) -> list[Ran]:
        """Run the answers of one submission, each by itself."""
        limits = limits or Limits()
        deadline = time.monotonic() + limits.submission
        return [self._run_one(task, limits, deadline) for task in tasks]

    def _run_one(self, task: Task, limits: Limits, deadline: float) -> Ran:
        start = time.monotonic()
        if start >= deadline:
            return Ran(ended=LATE)
        notebook = make_notebook([task], setup=f"from {DRIVER} import prepare\n\nprepare()")
        executed = execute(notebook, {task.exercise: task.seed}, limits.exercise, deadline + START_SECONDS)
        seconds = round(time.monotonic() - start, 4)
        if executed.ended:
            late = executed.ended == TOO_LONG and deadline - start < limits.exercise
            return Ran(ended=LATE if late else executed.ended, seconds=seconds)
        shown = executed.displayed.get((EVIDENCE, task.exercise), [])
        if len(shown) != 1 or not isinstance(shown[0], str):
            problem = f"the run showed {len(shown) or 'no'} records of what the answer did, not one"
            return Ran(ended=problem, seconds=seconds)
        return Ran(shown[0], seconds=seconds)

    def close(self) -> None:
        """Nothing is open between two runs."""


def make_notebook(tasks: Sequence[Task], setup: str, mistakes: bool = False) -> NotebookNode:
    """The notebook that runs `tasks`; with `mistakes`, what the declared mistakes do is shown too (for the key)."""
    from nbformat import v4

    from course_utils.authoring.source import KERNELSPEC, LANGUAGE_INFO

    texts = {"parameters": "seeds = {}", "setup": f"{setup}\n%load_ext {DRIVER}"}
    for task in tasks:
        name = task.exercise
        if task.support:
            texts[f"support:{name}"] = f"%%support {name}\n{task.support}"
        texts[f"answer:{name}"] = f"%%answer {name}\n{task.answer}"
        for call in ["show_evidence", "show_mistakes"] if mistakes else ["show_evidence"]:
            texts[f"{call}:{name}"] = f"from {DRIVER} import {call}\n\n{call}({name!r}, seeds[{name!r}])"
    cells = [v4.new_code_cell(text, metadata={"tags": [purpose]}) for purpose, text in texts.items()]
    return v4.new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE_INFO)})


def execute(
    notebook: NotebookNode, seeds: Mapping[str, int], exercise_seconds: float, deadline: float, seat: Seat | None = None
) -> Execution:
    """Run `notebook` with papermill in a fresh kernel and an empty folder, and return what its cells displayed.

    The cell of an exercise is stopped after `exercise_seconds`, and any cell at `deadline` (of `time.monotonic`). The
    kernel is a new process or, if there is one, in the `seat`.
    """
    from unittest import mock

    import nbformat
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from course_utils.authoring.build import kernel_environment
    from course_utils.authoring.source import KERNELSPEC

    def seconds_left(cell: NotebookNode) -> int:
        left = deadline - time.monotonic()
        if _purpose(cell)[1]:  # to import torch is no exercise
            left = min(left, exercise_seconds)
        return max(1, round(left))

    ended = ""
    with tempfile.TemporaryDirectory(prefix="course-grade-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        (folder / "runtime").mkdir(mode=0o700)
        nbformat.write(notebook, folder / "in.ipynb")
        environment = {**kernel_environment(folder), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
        with mock.patch.dict(os.environ, environment), _quiet():
            try:
                papermill.execute_notebook(
                    folder / "in.ipynb",
                    folder / "out.ipynb",
                    parameters={"seeds": dict(seeds)},
                    cwd=folder / "empty",
                    kernel_name=KERNELSPEC["name"],
                    progress_bar=False,
                    timeout_func=seconds_left,
                    allow_errors=True,
                    iopub_timeout=30,
                    shutdown_kernel="immediate",
                    extra_arguments=["--log-level=50"],  # what a kernel says about itself is not for the screen
                    **({"km": seat.manager()} if seat else {}),
                )
            except PapermillExecutionError:
                pass  # a cell raised; the cells after it ran all the same, and evidence tells what each answer did
            except CellTimeoutError:
                ended = TOO_LONG
            except DeadKernelError:
                ended = KILLED
            except Exception as error:  # no kernel, no memory, messages that are none: no verdict, but a reason
                ended = f"the notebook could not be run: {type(error).__name__}: {error}"
            finally:
                # What nbclient leaves behind imports modules when it is collected. If that happened while Python 3.11
                # parses, the parse would fail ("AST constructor recursion depth mismatch").
                gc.collect()
        return _read_execution(folder / "out.ipynb", ended)


def _read_execution(path: Path, ended: str) -> Execution:
    if not path.exists():
        return Execution({}, ended or "the notebook could not be run")
    if path.stat().st_size > MAX_NOTEBOOK_BYTES:
        return Execution({}, "the notebook's outputs are too large to be read")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    started = [cell for cell in cells if cell["metadata"].get("papermill", {}).get("start_time")]
    displayed: dict[tuple[str, str], list[Any]] = {}
    for cell in started[:-1] if ended else started:  # what a cell showed before it broke down is not believed
        call, exercise = _purpose(cell)
        kind = {"show_evidence": EVIDENCE, "show_mistakes": MISTAKES}.get(call)
        for output in cell.get("outputs", []):
            if kind and kind in output.get("data", {}):
                value = output["data"][kind]
                displayed.setdefault((kind, exercise), []).append("".join(value) if isinstance(value, list) else value)
    return Execution(displayed, ended)


def _purpose(cell: dict) -> tuple[str, str]:
    purpose, _, exercise = cell["metadata"]["tags"][0].partition(":")
    return purpose, exercise


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


class Seat:
    """The grader's side of the process that waits to become a kernel: to papermill, a kernel as any other.

    `close` ends it, whatever it is by then. No student's code runs in it, and it is in no sandbox.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = 0

    def manager(self) -> AsyncKernelManager:
        """A kernel manager that starts the kernel here, once; its connection file is in Jupyter's runtime folder."""
        from jupyter_client import AsyncKernelManager
        from jupyter_client.provisioning import LocalProvisioner
        from jupyter_core.paths import jupyter_runtime_dir

        seat = self

        class SeatProvisioner(LocalProvisioner):
            async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
                arguments = cmd[cmd.index("-m") + 2 :]  # of `python -m ipykernel_launcher -f FILE …`
                seat.pid = seat._launch(arguments, dict(options["env"]), str(options.get("cwd") or os.getcwd()))
                self.process, self.pid, self.pgid = seat, seat.pid, None
                return self.connection_info

        place = os.path.join(jupyter_runtime_dir(), "key.json")
        manager = AsyncKernelManager(kernel_name="python3", connection_file=place)
        manager.provisioner = SeatProvisioner(kernel_id="key", kernel_spec=manager.kernel_spec, parent=manager)
        return manager

    def _launch(self, arguments: list[str], environment: dict[str, str], folder: str) -> int:
        request = {"arguments": arguments, "environment": environment, "folder": folder}
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        answer = self._connection.recv(100)
        if not answer:
            raise RuntimeError("the process that should become the key's kernel is gone")
        return int(answer)

    # What follows is what jupyter_client wants of a process, as `subprocess.Popen` has it.
    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """None while it lives."""
        return 0 if select.select([self._connection], [], [], 0)[0] else None

    def wait(self) -> int:
        """Come back when it has ended."""
        select.select([self._connection], [], [])
        return 0

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self.pid and self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)
        self._connection.close()


def wait_and_become_kernel(fd: int) -> int:
    """In the child: be ready, wait for a request, and be an ordinary IPython kernel from then on."""
    from ipykernel import kernelapp

    with socket.socket(fileno=fd) as connection:
        request = connection.makefile("rb").readline()
        if not request:
            return 0
        wanted = json.loads(request)
        os.environ.clear()
        os.environ.update(wanted["environment"])
        os.chdir(wanted["folder"])
        sys.argv = ["ipykernel_launcher", *wanted["arguments"]]
        connection.sendall(str(os.getpid()).encode())
        kernelapp.launch_new_instance()  # the socket stays open: its end is the end of the kernel
    return 0
