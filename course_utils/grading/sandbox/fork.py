"""The fork engine: a child process for each exercise, in a sandbox, in milliseconds. Linux only; see `host`."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from course_utils.grading.sandbox.kernel import Seat
from course_utils.grading.sandbox.tasks import KILLED, LATE, TOO_LONG, Closing, Limits, Ran, Task
from course_utils.root import ROOT, CourseError

KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "TZ")
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "COURSE_PROGRESS": "off",
    "CUDA_VISIBLE_DEVICES": "",
    "USER": "student",
    "MPLBACKEND": "Agg",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": str(ROOT),
}
START_SECONDS = 120  # to import torch, on a slow disk
SPARE_SECONDS = 30  # for a host to end a child and to answer


class HostProcess:
    """A `host` with a number of lanes, each for one engine; it starts at once and is ready later.

    With `kernel`, it has a process that can become the kernel of the key, in `seat`. `hidden` are files and folders
    that no answer may read.
    """

    command = (sys.executable, "-m", "course_utils.grading.sandbox.host")

    def __init__(self, hidden: Sequence[Path] = (), lanes: int = 1, kernel: bool = False) -> None:
        pairs = [socket.socketpair() for _ in range(lanes + kernel)]
        theirs = [their.fileno() for _, their in pairs]
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={name: os.environ[name] for name in KEPT if name in os.environ} | ENVIRONMENT,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the grader: what runs may come to its end
            pass_fds=theirs,
        )
        self.pid = self._process.pid  # of the process that everything else is below
        for _, their in pairs:
            their.close()
        self.lanes = [own for own, _ in pairs[:lanes]]
        self.seat = Seat(pairs[-1][0]) if kernel else None
        setup = {
            "hidden": [str(Path(path).absolute()) for path in hidden],
            "lanes": theirs[:lanes],
            "kernel": theirs[-1] if kernel else None,
        }
        with contextlib.suppress(BrokenPipeError):  # then the lanes' end says so
            self._process.stdin.write(json.dumps(setup).encode() + b"\n")
            self._process.stdin.flush()

    def last_words(self) -> str:
        """What it said on its standard error, if it has ended."""
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed its lane"
        said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return said[-1] if said else "it ended without a word"

    def close(self) -> None:
        """End it, and with it every process that it has started."""
        self._process.kill()
        with contextlib.suppress(OSError), self._process:
            pass  # its end closes the streams, and waits
        for lane in self.lanes:
            lane.close()
        if self.seat:
            self.seat.close()


class ForkEngine(Closing):
    """Runs answers in children of a host: of lane number `lane` of `host` or, without one, of a host of its own.

    `hidden` are files and folders that no answer may read. Not for use by two threads.
    """

    def __init__(self, hidden: Sequence[Path] = (), host: HostProcess | None = None, lane: int = 0) -> None:
        self._hidden = hidden
        self._closed = False
        self._own = None
        self._start(host, lane)

    def wait_until_ready(self) -> None:
        """Come back when the host can fork; then `isolation` is the line that says what keeps answers in."""
        if not self.isolation:
            self.isolation = self._ask(None, START_SECONDS)["isolation"]

    def run(self, tasks: Sequence[Task], limits: Limits | None = None) -> list[Ran]:
        """Run the answers of one submission, each by itself."""
        limits = limits or Limits()
        self.wait_until_ready()  # to start is no student's time
        deadline = time.monotonic() + limits.submission
        return [self._run_in_time(task, limits, deadline - time.monotonic()) for task in tasks]

    def _run_in_time(self, task: Task, limits: Limits, left: float) -> Ran:
        if left <= 0:
            return Ran(ended=LATE)
        seconds = min(limits.exercise, left)
        ran = self._run_one(task, replace(limits, exercise=seconds))
        if ran.ended == TOO_LONG and seconds < limits.exercise:
            return Ran(ended=LATE, seconds=ran.seconds)
        return ran

    def _run_one(self, task: Task, limits: Limits) -> Ran:
        start = time.monotonic()
        try:
            request = {"task": asdict(task), "limits": asdict(limits)}
            return Ran(**self._ask(request, limits.exercise + SPARE_SECONDS))
        except CourseError:  # where the platform protects no process from another, an answer can do that
            if self._closed:
                raise
            self._stop()
            self._start()
            self.wait_until_ready()
            return Ran(ended=KILLED, seconds=round(time.monotonic() - start, 4))

    def close(self) -> None:
        """End the host, if it is this engine's own, and with it every process that it has started."""
        self._closed = True
        self._stop()

    def _start(self, host: HostProcess | None = None, lane: int = 0) -> None:
        self.isolation = ""
        if host is None:
            self._own = host = HostProcess(self._hidden)
        self.host = host
        self._lane = host.lanes[lane]
        self._answers = self._lane.makefile("rb")

    def _stop(self) -> None:
        with contextlib.suppress(OSError):
            self._lane.shutdown(socket.SHUT_RDWR)  # who reads, reads the end
        self._lane.close()
        if self._own:
            self._own.close()

    def _ask(self, request: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        try:
            self._lane.settimeout(seconds)
            if request:
                self._lane.sendall(json.dumps(request).encode() + b"\n")
            line = self._answers.readline()
            why = "" if line.endswith(b"\n") else "it was closed" if self._closed else self.host.last_words()
        except TimeoutError:
            why = f"it did not answer in {seconds:g} s"
        except (OSError, ValueError) as error:  # closed under our feet
            why = str(error)
        if why:
            raise CourseError(f"no answer can be run here: {why}.")
        return json.loads(line)
