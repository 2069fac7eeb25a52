"""Who runs the answers: a host on this machine, with a lane for each core, or Dask's workers on many.

Results come as they are ready; a submission of a lost worker goes to another one.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from typing import Any

from course_utils.grading.sandbox.fork import ForkEngine
from course_utils.grading.sandbox.key import ask_for_key
from course_utils.grading.sandbox.process import ProcessEngine
from course_utils.grading.sandbox.tasks import Closing, Engine, Limits, Ran, Task, cores

Result = tuple[int, list[Ran]]


def make_engine(name: str, lanes: int = 1, *, key: bool = False) -> Engine:
    """The engine `process`, or with `auto` the fork engine, where this machine can."""
    return ForkEngine(lanes, key=key) if name == "auto" and sys.platform == "linux" else ProcessEngine()


class LocalCrew(Closing):
    """An engine on this machine, which runs `jobs` answers at a time (default: one for each core).

    The fork engine's host starts at once: its import of torch is the longest part of a small grading. It will make the
    key too.
    """

    def __init__(self, engine: str = "auto", jobs: int | None = None) -> None:
        self._engine = make_engine(engine, jobs or cores(), key=True)
        self._threads = ThreadPool(self._engine.lanes)
        self.make_key = functools.partial(ask_for_key, connection=self._engine.key)

    @property
    def isolation(self) -> list[str]:
        """What keeps the answers in: the lines of what has been at work, each once."""
        return self._engine.isolation.splitlines()

    def run(self, batches: Sequence[Sequence[Task]], limits: Limits) -> Iterator[Result]:
        """Start to run the submissions; gives each one's number and results as it is done."""
        run_one = self._engine.run
        return self._threads.imap_unordered(lambda each: (each[0], run_one(each[1], limits)), enumerate(batches))

    def close(self) -> None:
        """End what runs, and start nothing more."""
        self._threads.terminate()
        self._engine.close()


class DaskCrew(Closing):
    """Dask's workers, wherever they are: each has hosts of its own. `address` is the scheduler's."""

    make_key = staticmethod(ask_for_key)

    def __init__(self, address: str, engine: str) -> None:
        from distributed import Client

        self._engine = engine
        self._client = Client(address, set_as_default=False)
        self.isolation: list[str] = []

    def run(self, batches: Sequence[Sequence[Task]], limits: Limits) -> Iterator[Result]:
        """As `LocalCrew.run`. A submission whose workers die again and again has a reason instead of results."""
        from distributed import as_completed

        send = functools.partial(self._client.submit, run_on_worker, pure=False)
        numbers = {send(list(batch), limits, self._engine): number for number, batch in enumerate(batches)}
        ended = as_completed(numbers, loop=self._client.loop)
        return ((number := numbers.pop(one), self._read(one, len(batches[number]))) for one in ended)

    def _read(self, future: Any, tasks: int) -> list[Ran]:
        try:
            line, results = future.result()  # if its worker has been lost since, this waits for another one
        except Exception as error:
            return [Ran(ended=f"no worker could run it: {error}")] * tasks
        self.isolation += [line] * (line not in self.isolation)
        return results

    def close(self) -> None:
        """Leave the cluster; what has not run there will not."""
        with contextlib.suppress(OSError):
            self._client.close()


_engine_here = functools.cache(make_engine)


def run_on_worker(tasks: list[Task], limits: Limits, engine: str) -> tuple[str, list[Ran]]:
    """Run one submission on a Dask worker; its engine is kept for the next one, and ends with the worker."""
    results = _engine_here(engine).run(tasks, limits)
    return _engine_here(engine).isolation, results
