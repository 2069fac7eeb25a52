"""What goes into a sandbox and what comes out of it: plain values, the same for every engine and every machine."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from multiprocessing.pool import ThreadPool
from typing import Any

from course_utils.root import ROOT

MEBIBYTE = 1024 * 1024
MAX_RECORD = 32 * MEBIBYTE
START_SECONDS = 120  # to import torch, on a slow disk
KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "TZ", "SYSTEMROOT")
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "COURSE_PROGRESS": "off",
    "CUDA_VISIBLE_DEVICES": "",
    "USER": "student",
    "MPLBACKEND": "Agg",
    "PIP_NO_INDEX": "1",  # there is no network, which pip would wait for
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": str(ROOT),
}

BEGUN = b"\n"  # before a record, which is JSON: from here on it is the answer that ends the process
KILLED = "the Python process ended while your answer ran, so nothing of what it did is known"
NOT_BEGUN = "the process for it did not start"
TOO_LONG = "your answer did not come to an end in time and was stopped"
TOO_MUCH = "your answer used more memory or disk than an answer may, and was stopped"
LATE = "the time for the whole notebook was used up by the exercises before this one"
CUT = "its time was over"  # said of a cell of a notebook
BLAMED = {KILLED, TOO_LONG, TOO_MUCH}


@dataclass(frozen=True)
class Limits:
    """What an answer may use: seconds for an exercise and for all of a submission, bytes of memory and of disk.

    The seconds for an exercise are those of the clock, and also those of the processor that all its processes take.
    """

    exercise: float = 20.0
    submission: float = 120.0
    memory: int = 2048 * MEBIBYTE
    disk: int = 64 * MEBIBYTE
    processes: int = 32


@dataclass(frozen=True)
class Task:
    """What to run: `cells` one after the other, then the `answer`, then what bears the names of exercises.

    `seeds` has the seed of each exercise's inputs by its name. A cell that raises is left there, and the next one runs;
    what the answer's own text raises is its outcome. Without such a text, the cells are a whole notebook.
    """

    seeds: dict[str, int]
    cells: Sequence[str] = ()
    answer: str = ""


@dataclass(frozen=True)
class Ran:
    """What a sandbox gave back: the driver's records as lines, or in `ended` why there are none, and its seconds.

    `ended` is one of `BLAMED`, for which the answer is to blame, or another sentence, for which nobody is.
    """

    record: str = ""
    ended: str = ""
    seconds: float = 0.0


def why_it_ended(exit_code: int) -> str:
    """In words why a process for an answer ended with this code (below 0: minus a signal); empty if it did its work.

    An answer that becomes another program keeps the timer of the time limit, but nobody who catches its alarm.
    """
    alarm = getattr(signal, "SIGALRM", 0)  # Windows has none
    return "" if exit_code == 0 else TOO_LONG if exit_code == -alarm else KILLED


def cores() -> int:
    """How many processes can work at a time on this machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment(**more: str) -> dict[str, str]:
    """The environment of a process for answers: of this one's, only what Python needs, and `more`."""
    return {name: os.environ[name] for name in KEPT if name in os.environ} | ENVIRONMENT | more


def start(command: Sequence[str], scratch: str, **options: Any) -> subprocess.Popen:
    """Start a process for answers, which writes to `scratch`."""
    options["env"] = environment(HOME=scratch, TMPDIR=scratch)
    options["start_new_session"] = True  # Ctrl-C is for the grader: what runs may come to its end
    return subprocess.Popen(command, **options)


class Closing(AbstractContextManager):
    """Something that a `with` block closes at its end."""

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(Closing):
    """What runs answers: `run_one` gives an answer's record, in words why there is none, and the seconds it took.

    `isolation` are lines that say what keeps the answers in; `key` is a socket to who makes the key, if it has one.
    """

    key = None

    def __init__(self, lanes: int) -> None:
        self._threads = ThreadPool(lanes)

    def run_all(self, batches: Sequence[Sequence[Task]], limits: Limits) -> Iterator[tuple[int, list[Ran]]]:
        """Start at once to run submissions, a `lane` each; gives each one's number and results as it is done."""
        return self._threads.imap_unordered(lambda each: (each[0], self.run(each[1], limits)), enumerate(batches))

    def close(self) -> None:
        self._threads.terminate()

    def run(self, tasks: Sequence[Task], limits: Limits | None = None) -> list[Ran]:
        """Run the answers of one submission, each by itself."""
        limits = limits or Limits()
        left, found = limits.submission, []
        for task in tasks:
            given = replace(limits, exercise=min(limits.exercise, left))
            record, ended, seconds = self.run_one(task, given) if left > 0 else (b"", LATE, 0.0)
            if len(record) >= min(MAX_RECORD, limits.disk):  # files cannot be larger
                ended = TOO_MUCH
            elif ended == TOO_LONG and given != limits:
                ended = LATE
            elif not record and ended in {"", *BLAMED}:
                ended = NOT_BEGUN
            elif record in (b"", BEGUN):
                ended = ended or KILLED
            found.append(Ran("" if ended else record.removeprefix(BEGUN).decode(errors="replace"), ended, seconds))
            left -= seconds
        return found
