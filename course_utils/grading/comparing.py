"""The process in which nbval compares: started early, so that its imports and its kernel are there when needed.

`Comparer` is the grader's side of it. The other side, `python -m course_utils.grading.comparing`, imports pytest and
nbval, starts a kernel, and waits; when the verdict notebook is written it runs `pytest --nbval` on it, and ends. No
student's code ever runs in either.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from xml.etree import ElementTree

from course_utils.grading.lean import import_lean
from course_utils.root import ROOT

NOTEBOOK = "verdicts.ipynb"
RESULTS = "verdicts.xml"
GO = b"go\n"
PACKAGE_PLACE = ROOT
_NOT_PASSED_ON = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONHASHSEED")


class Comparer:
    """One comparison to come: a folder for the verdict notebook, and the process that waits for it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="course-verdict-", ignore_cleanup_errors=True)
        self._place = place = Path(self._folder.name)
        (place / "runtime").mkdir(mode=0o700)
        (place / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        paths = [str(PACKAGE_PLACE), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course_utils.grading.comparing"],
            cwd=place,
            env=environment
            | {
                "COURSE_PROGRESS": "off",
                "IPYTHONDIR": str(place / "ipython"),
                "JUPYTER_PREFER_ENV_PATH": "1",
                "JUPYTER_RUNTIME_DIR": str(place / "runtime"),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": os.pathsep.join(paths),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the grader
        )

    def __enter__(self) -> Comparer:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self, notebook: str) -> None:
        """Have nbval run the verdict notebook, given as its file's text; once only."""
        (self._place / NOTEBOOK).write_text(notebook, encoding="utf-8")
        with contextlib.suppress(BrokenPipeError), self._process.stdin as word:  # if it has ended, `finish` says so
            word.write(GO)
        self._process.stdin = None

    def finish(self, count: int) -> tuple[list[bool | None], str]:
        """Wait, and return for each of the notebook's `count` code cells whether text and output are equal.

        None, with a sentence, for a cell that was not compared.
        """
        said = self._process.communicate()[0].decode(errors="replace")
        results = self._place / RESULTS
        if not results.exists():
            last = said.strip().splitlines()[-1:] or ["it said nothing"]
            return [None] * count, last[0]
        equal = _read_results(results)
        return [equal.get(number) for number in range(count)], "its cell was not compared"

    def close(self) -> None:
        """End the process, its kernel and its folder."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # so that it ends its kernel too
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in filter(None, (self._process.stdin, self._process.stdout)):
            stream.close()
        self._folder.cleanup()


def _read_results(path: Path) -> dict[int, bool]:
    """By the cell's number, whether nbval found it equal, as far as it looked."""
    equal: dict[int, bool] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        if number := re.search(r"Cell (\d+)$", case.get("name", "")):
            kinds = {child.tag for child in case}
            if not kinds & {"error", "skipped"}:
                equal[int(number.group(1))] = "failure" not in kinds
    return equal


def main() -> int:
    """Be ready, wait for the word, compare."""
    import_lean()
    import pytest
    from nbval import plugin
    from nbval.kernel import CURRENT_ENV_KERNEL_NAME, RunningKernel

    kernel = RunningKernel(CURRENT_ENV_KERNEL_NAME, cwd=os.getcwd())
    plugin.RunningKernel = lambda *_, **__: kernel  # for the one notebook there will be
    try:
        if sys.stdin.buffer.readline() != GO:
            return 0
        options = ["-q", "--nbval", "--nbval-current-env", NOTEBOOK, "-p", "nbval.plugin", "-p", "no:cacheprovider"]
        options += ["-c", "pytest.ini", "--noconftest", "--color=no", "--tb=no", "-rN", "--no-header"]
        return int(pytest.main([*options, f"--junitxml={RESULTS}", "--nbval-cell-timeout=60"]))
    finally:
        if kernel.is_alive():
            kernel.stop()


if __name__ == "__main__":
    sys.exit(main())
