"""The process engine: a fresh Python process for each answer. Slow, for each imports torch, but it works everywhere.

Run as a program, it is that process: it reads the task from its standard input, and writes a line when it begins and
the record when it has ended to its standard output.
"""

import contextlib
import marshal
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from course_utils.exercises.bare import bare_lessons, forget, load_bare_lessons
from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.tasks import (
    KILLED,
    LATE,
    MAX_RECORD,
    START_SECONDS,
    TOO_LONG,
    TOO_MUCH,
    Limits,
    Ran,
    Task,
    environment,
)
from course_utils.grading.sandbox.walls import confine_process, process_words

if sys.platform == "linux":
    from course_utils.grading.sandbox import linux

COMMAND = (sys.executable, "-m", "course_utils.grading.sandbox.process")
BEGUN = b"begun\n"


class ProcessEngine:
    """Runs each answer in a process of its own, one at a time."""

    def __init__(self) -> None:
        self.isolation = process_words()
        self._lessons = bare_lessons()

    def run(self, tasks: Sequence[Task], limits: Limits | None = None) -> list[Ran]:
        """Run the answers of one submission, each by itself."""
        limits = limits or Limits()
        left, found = limits.submission, []
        for task in tasks:
            found.append(self._run_one(task, limits, left) if left > 0 else Ran(ended=LATE))
            left -= found[-1].seconds
        return found

    def _run_one(self, task: Task, limits: Limits, left: float) -> Ran:
        with OwnFolder() as own:
            folder, path = str(own.path), own.path / "record"
            Path(folder, "scratch").mkdir()
            with path.open("wb") as record, tempfile.TemporaryFile() as told:
                marshal.dump((asdict(task), asdict(limits), self._lessons), told)
                told.seek(0)
                process = subprocess.Popen(
                    COMMAND,
                    stdin=told,
                    stdout=record,
                    stderr=subprocess.DEVNULL,
                    cwd=Path(folder, "scratch"),
                    env=environment() | {"HOME": folder, "TMPDIR": folder},
                    start_new_session=True,
                )
            try:
                _wait(process, START_SECONDS, lambda: path.stat().st_size > 0)
                start = time.monotonic()  # to start is no student's time
                ended = "" if _wait(process, min(limits.exercise, left)) else TOO_LONG
            finally:
                _end(process)
            seconds = round(time.monotonic() - start, 4)
            if ended and left < limits.exercise:
                ended = LATE
            with path.open("rb") as record:
                begun, text = record.readline(len(BEGUN)), record.read(MAX_RECORD + 1)
        if begun != BEGUN:
            return Ran(ended="the process for it did not start")
        if not ended and (len(text) > MAX_RECORD or process.returncode):
            ended = KILLED if process.returncode else TOO_MUCH
        return Ran("" if ended else text.decode(errors="replace"), ended, seconds)

    def close(self) -> None:
        """Nothing is open between two runs."""


def _wait(process: subprocess.Popen, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
    end = time.monotonic() + seconds
    while process.poll() is None and not until():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    process.wait()


def main() -> int:
    """Run one answer."""
    if sys.platform == "linux":
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    task, limits, lessons = marshal.load(sys.stdin.buffer)
    told, nowhere = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    load_bare_lessons(lessons)
    from course_utils.grading.sandbox.driver import observe_answer, write_record

    leave = os._exit  # before the answer could change it
    forget(task["exercise"])
    os.write(told, BEGUN)
    confine_process(Limits(**limits))
    record = write_record(observe_answer(*task.values()))
    with open(told, "wb") as file:
        file.write(record.encode())
    leave(0)


if __name__ == "__main__":
    main()
