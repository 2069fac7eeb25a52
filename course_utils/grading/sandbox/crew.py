"""Who runs the answers: an engine on this machine, or those of Dask's workers on many."""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from course_utils.grading.sandbox.fork import ForkEngine
from course_utils.grading.sandbox.process import ProcessEngine
from course_utils.grading.sandbox.tasks import Closing, Engine, Limits, Ran, Task


def make_engine(name: str, lanes: int = 1) -> Engine:
    """The engine `process`, or with `auto` the fork engine, where this machine can."""
    return ForkEngine(lanes) if name == "auto" and sys.platform == "linux" else ProcessEngine()


class DaskCrew(Closing):
    """Dask's workers, wherever they are: each has an engine of its own. `address` is the scheduler's."""

    key = None

    def __init__(self, address: str, engine: str) -> None:
        from distributed import Client

        self._engine = engine
        self._client = Client(address, set_as_default=False)
        self.isolation: list[str] = []

    def run_all(self, batches: Sequence[Sequence[Task]], limits: Limits) -> Iterator[tuple[int, list[Ran]]]:
        """As `Engine.run_all`. What a lost worker had goes to another one.

        A submission whose workers die again and again has a reason instead of results.
        """
        from distributed import as_completed

        send = functools.partial(self._client.submit, run_on_worker, pure=False)
        numbers = {send(list(batch), limits, self._engine): number for number, batch in enumerate(batches)}
        ended = as_completed(numbers, loop=self._client.loop)
        return ((number := numbers.pop(one), self._read(one, len(batches[number]))) for one in ended)

    def _read(self, future: Any, tasks: int) -> list[Ran]:
        try:
            lines, results = future.result()  # if its worker has been lost since, this waits for another one
        except Exception as error:
            return [Ran(ended=f"no worker could run it: {error}")] * tasks
        self.isolation += {*lines} - {*self.isolation}
        return results

    def close(self) -> None:
        """Leave the cluster; what has not run there will not."""
        with contextlib.suppress(OSError):
            self._client.close()


_engine_here = functools.cache(make_engine)


def run_on_worker(tasks: list[Task], limits: Limits, engine: str) -> tuple[list[str], list[Ran]]:
    """Run one submission on a Dask worker; its engine is kept for the next one, and ends with the worker."""
    results = _engine_here(engine).run(tasks, limits)
    return _engine_here(engine).isolation, results
