"""Who runs the answers: a host on this machine, with a lane for each core, or Dask's workers on many.

Results come as they are ready; a submission of a lost worker goes to another one.
"""

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from course_utils.grading.sandbox.fork import ForkEngine
from course_utils.grading.sandbox.key import ask_for_key
from course_utils.grading.sandbox.process import ProcessEngine
from course_utils.grading.sandbox.tasks import Closing, Engine, Limits, Ran, Task
from course_utils.root import CourseError

Result = tuple[int, list[Ran]]


def make_engine(name: str, hidden: Sequence[Path] = (), lanes: int = 1, *, key: bool = False) -> Engine:
    """The engine `fork` or `process`; `auto` is what this machine can. With 0 `lanes`, there is one for each core."""
    if name == "process" or (name == "auto" and sys.platform != "linux"):
        return ProcessEngine()
    if sys.platform != "linux":
        raise CourseError("the fork engine needs Linux; take --engine process")
    return ForkEngine(hidden, lanes or len(os.sched_getaffinity(0)), key=key)


class LocalCrew(Closing):
    """An engine on this machine, which runs `jobs` answers at a time (default: one for each core).

    The fork engine's host starts at once: its import of torch is the longest part of a small grading. It will make the
    key too.
    """

    def __init__(self, engine: str = "auto", jobs: int | None = None, hidden: Sequence[Path] = ()) -> None:
        self._engine = make_engine(engine, hidden, jobs or 0, key=True)
        self.close, self.make_key = self._engine.close, functools.partial(ask_for_key, connection=self._engine.key)

    @property
    def isolation(self) -> list[str]:
        """What keeps the answers in: the lines of what has been at work, each once."""
        return self._engine.isolation.splitlines()

    def run(self, batches: Sequence[Sequence[Task]], limits: Limits) -> Iterator[Result]:
        """Start to run the submissions; gives each one's number and results as it is done."""
        from joblib import Parallel, delayed

        warnings.filterwarnings("ignore", module="joblib")  # it says on Ctrl-C what has not run; so does the report

        run_one = delayed(lambda number: (number, self._engine.run(batches[number], limits)))
        parallel = Parallel(n_jobs=self._engine.lanes, backend="threading", return_as="generator_unordered")
        return parallel(map(run_one, range(len(batches))))


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

        submit = self._client.submit
        futures = [submit(run_on_worker, list(batch), limits, self._engine, pure=False) for batch in batches]
        numbers = {future.key: number for number, future in enumerate(futures)}

        def result(future: Any) -> Result:
            number = numbers[future.key]
            try:
                line, results = future.result()  # if its worker has been lost since, this waits for another one
            except Exception as error:
                return number, [Ran(ended=f"no worker could run it: {error}")] * len(batches[number])
            finally:
                future.release()
            self.isolation += [line] * (line not in self.isolation)
            return number, results

        return map(result, as_completed(futures, loop=self._client.loop))

    def close(self) -> None:
        """Leave the cluster; what has not run there will not."""
        with contextlib.suppress(OSError):
            self._client.close()


_engine_here = functools.cache(make_engine)


def run_on_worker(tasks: list[Task], limits: Limits, engine: str) -> tuple[str, list[Ran]]:
    """Run one submission on a Dask worker; its engine is kept for the next one, and ends with the worker."""
    results = _engine_here(engine).run(tasks, limits)
    return _engine_here(engine).isolation, results
