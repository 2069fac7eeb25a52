"""A process of its own for whatever reads a student's text: it has 10 s and 1 GB for each thing, and needs no torch.

A kilobyte of text can keep a parser busy for a minute, and a record of what an answer did can be as large as a file may
be. So notebooks are read, and records are judged, in a process that may be ended at any time; then another one starts.
"""

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from course_utils.grading.sandbox.tasks import Closing, environment
from course_utils.root import CourseError

WORK = ("course_utils.grading.answers", "course_utils.grading.evidence")  # whose functions it will be asked for
SECONDS, MEMORY = 10.0, 1 << 30  # for each thing
COMMAND = (sys.executable, "-m", "course_utils.grading.desk")
TOO_HARD = f"to read it takes more than {SECONDS:.0f} s, or more than {MEMORY >> 30} GB of memory"
Found = TypeVar("Found")


class Desk(Closing):
    """Runs functions of the grader on students' text in the process described above, which starts at once."""

    def __init__(self) -> None:
        self._told: list[tuple[Callable, tuple]] = []
        self._start()

    def ask(self, work: Callable[..., Found], *arguments: object) -> Found:
        """What `work(*arguments)` returns there; raises what it raises, and `CourseError` if it takes too much."""
        try:
            found, error = self._exchange(work, arguments)
        except (OSError, EOFError, pickle.UnpicklingError):
            self.close()
            self._start()
            for each in self._told:
                self._exchange(*each)
            raise CourseError(TOO_HARD) from None
        if error:
            raise error
        return found

    def tell(self, work: Callable[..., object], *arguments: object) -> None:
        """Have the process, and each that takes its place, run `work(*arguments)`, so that it knows something."""
        self._told.append((work, arguments))
        self.ask(work, *arguments)

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError), self._process:
            self._process.kill()

    def _start(self) -> None:
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        # Ctrl-C is for the grader.
        self._process = subprocess.Popen(COMMAND, env=environment(), start_new_session=True, **options)
        self._is_ready = False

    def _exchange(self, work: Callable, arguments: tuple) -> tuple[Any, Exception | None]:
        # What comes back is from a process of the grader, in which no student's code runs: it may be unpickled.
        if not self._is_ready:
            self._is_ready = pickle.load(self._process.stdout)  # to start takes no part of the time
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            pickle.dump((work, arguments), self._process.stdin)
            self._process.stdin.flush()
            return pickle.load(self._process.stdout)
        finally:
            timer.cancel()


def main() -> None:
    """Do what is asked for, until nobody asks any more."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no limits, macOS refuses some
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for name in WORK:
        importlib.import_module(name)
    with open(os.dup(1), "wb") as replies:
        os.dup2(2, 1)  # nothing else is written there
        pickle.dump(True, replies)
        replies.flush()
        with contextlib.suppress(EOFError):
            while True:
                work, arguments = pickle.load(sys.stdin.buffer)
                pickle.dump(_answer(work, arguments), replies)
                replies.flush()


def _answer(work: Callable, arguments: tuple) -> tuple[Any, Exception | None]:
    try:
        return work(*arguments), None
    except CourseError as error:
        return None, error
    except Exception as error:
        return None, RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
