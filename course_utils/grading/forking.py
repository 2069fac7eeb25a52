"""The fork engine: a child process for each exercise, in a sandbox, in milliseconds. Linux only; see `host`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from course_utils.grading.sandbox import PACKAGE
from course_utils.grading.tasks import KILLED, LATE, MEBIBYTE, TOO_LONG, Limits, Ran, Task

KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")
START_SECONDS = 120  # to import torch, on a slow disk
SPARE_SECONDS = 30  # for a host to end a child and to answer


class HostDied(RuntimeError):
    """The process that forks is gone, or does not answer."""


class ForkEngine:
    """Runs answers in children of a `host`, which starts at once and is ready when it is first needed.

    `hidden` are files and folders that no answer may read. Not for use by two threads.
    """

    name = "fork"
    command = (sys.executable, "-m", "course_utils.grading.host")

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        self._hidden = [str(Path(path).absolute()) for path in hidden]
        self._closed = False
        self._start()

    def __enter__(self) -> ForkEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_ready(self) -> None:
        """Come back when the host can fork; then `isolation` is the line that says what keeps answers in."""
        if not self.isolation:
            self.isolation = self._read(START_SECONDS)["isolation"]

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
        ran = self._run_one(task, Limits(**asdict(limits) | {"exercise": seconds}))
        if ran.ended == TOO_LONG and seconds < limits.exercise:
            return Ran(ended=LATE, seconds=ran.seconds)
        return ran

    def _run_one(self, task: Task, limits: Limits) -> Ran:
        start = time.monotonic()
        try:
            self._write({"task": asdict(task), "limits": asdict(limits)})
            return Ran(**self._read(limits.exercise + SPARE_SECONDS))
        except HostDied:  # where the platform protects no process from another, an answer can do that
            if self._closed:
                raise
            self._stop()
            self._start()
            self.wait_until_ready()
            return Ran(ended=KILLED, seconds=round(time.monotonic() - start, 4))

    def close(self) -> None:
        """End the host, and with it every process that it has started."""
        self._closed = True
        self._stop()

    # ---------------------------------------------------------------------------------------------------- the process

    def _start(self) -> None:
        self.isolation = ""
        self._waiting = b""
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the grader: what runs may come to its end
        )
        self._write({"hidden": self._hidden})

    def _stop(self) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()

    def _write(self, content: dict[str, Any]) -> None:
        try:
            self._process.stdin.write(json.dumps(content).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise HostDied(self._last_words()) from None

    def _read(self, seconds: float) -> dict[str, Any]:
        """The next line of the host."""
        deadline = time.monotonic() + seconds
        chunks = [self._waiting]
        output = self._process.stdout.fileno()
        while b"\n" not in chunks[-1]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                raise HostDied(f"it did not answer in {seconds:g} s")
            chunk = os.read(output, MEBIBYTE)
            if not chunk:
                raise HostDied(self._last_words())
            chunks.append(chunk)
        line, _, self._waiting = b"".join(chunks).partition(b"\n")
        return json.loads(line)

    def _last_words(self) -> str:
        self._process.kill()
        said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return said[-1] if said else "it ended without a word"


def _environment() -> dict[str, str]:
    """What the host and its children find in their environment: nothing of the user's."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return (
        kept
        | single
        | {
            "COURSE_PROGRESS": "off",
            "CUDA_VISIBLE_DEVICES": "",
            "USER": "student",
            "MPLBACKEND": "Agg",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(PACKAGE.parent),
        }
    )
