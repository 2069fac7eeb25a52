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
from course_utils.grading.sandbox.key import Wanted, ask_for_key
from course_utils.grading.sandbox.process import ProcessEngine
from course_utils.grading.sandbox.tasks import Closing, Limits, Ran, Task
from course_utils.root import CourseError

Result = tuple[int, list[Ran]]


def choose_engine(name: str = "auto") -> str:
    """The engine for this machine: `fork` on Linux, elsewhere `process`; a name chooses for itself."""
    if name == "auto":
        return "fork" if sys.platform == "linux" else "process"
    if name == "fork" and sys.platform != "linux":
        raise CourseError("the fork engine needs Linux; take --engine process.")
    return name


class LocalCrew(Closing):
    """An engine on this machine: `fork` with as many lanes as `jobs` (default: one for each core), or `process`.

    The fork engine's host starts at once: its import of torch is the longest part of a small grading. With `key`, it
    will make the key too.
    """

    def __init__(self, engine: str, jobs: int | None = None, hidden: Sequence[Path] = (), *, key: bool = False) -> None:
        self._jobs = (jobs or len(os.sched_getaffinity(0))) if engine == "fork" else 1
        self._engine = ForkEngine(hidden, self._jobs, key=key) if engine == "fork" else ProcessEngine()
        self.close = self._engine.close

    def make_key(self, wanted: Wanted) -> dict[str, dict[str, Any]]:
        """The key of exercises by name (see `key`), once."""
        return ask_for_key(wanted, self._engine.key)

    @property
    def isolation(self) -> list[str]:
        """What keeps the answers in: the lines of what has been at work, each once."""
        return self._engine.isolation.splitlines()

    def run(self, batches: Sequence[Sequence[Task]], limits: Limits) -> Iterator[Result]:
        """Start to run the submissions; gives each one's number and results as it is done."""
        from joblib import Parallel, delayed

        warnings.filterwarnings("ignore", module="joblib")  # it says on Ctrl-C what has not run; so does the report

        def run_one(number: int) -> Result:
            return number, self._engine.run(batches[number], limits)

        parallel = Parallel(n_jobs=self._jobs, backend="threading", return_as="generator_unordered")
        return parallel(delayed(run_one)(number) for number in range(len(batches)))


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


@functools.cache
def _engine_here(name: str) -> ForkEngine | ProcessEngine:
    return ForkEngine() if name == "fork" else ProcessEngine()


def run_on_worker(tasks: list[Task], limits: Limits, engine: str) -> tuple[str, list[Ran]]:
    """Run one submission on a Dask worker; its engine is kept for the next one, and ends with the worker."""
    results = _engine_here(engine).run(tasks, limits)
    return _engine_here(engine).isolation, results
