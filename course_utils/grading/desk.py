"""A process of its own for whatever reads a student's text: it has 10 s and 1 GB for each thing, and needs no torch.

A kilobyte of text can keep a parser busy for a minute, and a record of what an answer did can be as large as a file may
be. So notebooks are read, and records are judged, in a process that may be ended at any time; then another one starts.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from course_utils.grading.sandbox.tasks import Closing
from course_utils.root import CourseError

WORK = ("course_utils.grading.answers", "course_utils.grading.evidence")  # whose functions it will be asked for
SECONDS, MEMORY = 10.0, 1 << 30  # for each thing
TOO_HARD = f"to read it takes more than {SECONDS:.0f} s, or more than {MEMORY >> 30} GB of memory"
Found = TypeVar("Found")


class Desk(Closing):
    """Runs functions of the grader on students' text in the process described above, which starts at once."""

    def __init__(self) -> None:
        self._start()

    def ask(self, work: Callable[..., Found], *arguments: object) -> Found:
        """What `work(*arguments)` returns there; raises what it raises, and `CourseError` if it takes too much."""
        try:
            found, error = self._exchange(work, arguments)
        except (OSError, EOFError):
            self.close()
            self._start()
            raise CourseError(TOO_HARD) from None
        if error:
            raise error
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._is_ready = False

    def _exchange(self, work: Callable, arguments: tuple) -> tuple[Any, Exception | None]:
        # What comes back is from a process of the grader, in which no student's code runs: it may be unpickled.
        if not self._is_ready:
            self._is_ready = self._pipe.recv()  # to start takes no part of the time
        self._pipe.send((work, arguments))
        if not self._pipe.poll(SECONDS):
            raise TimeoutError
        return self._pipe.recv()


def serve(pipe: Connection) -> None:
    """Do what is asked for, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the grader
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (1, 2):
        os.dup2(nowhere, fd)
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no limits, macOS refuses some
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for name in WORK:
        importlib.import_module(name)
    pipe.send(True)
    with contextlib.suppress(EOFError):
        while True:
            work, arguments = pipe.recv()
            pipe.send(_answer(work, arguments))


def _answer(work: Callable, arguments: tuple) -> tuple[Any, Exception | None]:
    try:
        return work(*arguments), None
    except CourseError as error:
        return None, error
    except Exception as error:
        return None, RuntimeError(f"{type(error).__name__}: {error}")
