"""Step 3: compare evidence with the key, where no student's code ever ran.

Each answer is judged twice. `exercises.judging` says in words which stage it reached, what differs and the likely
cause. And one *verdict notebook* has a cell for each student and exercise, which prints the recorded evidence, and
below it as stored output what the key prints: `pytest --nbval` runs it and compares. nbval runs in a process of its
own, `python -m course_utils.grading.verdict`, which is started early, so that its imports and its kernel are there.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.tasks import Closing, cores, environment

if TYPE_CHECKING:
    import nbformat

    from course_utils.grading.report import Score

WORTH_A_PROCESS = 100  # cells: to compare so many takes about as long as to start a process for them
NOTEBOOK, RESULTS = "verdicts.ipynb", "verdicts.xml"


def compare(scores: Sequence[Score], comparer: Comparer | None = None) -> list[Score]:
    """The final scores: nbval compares the texts of each, and where it disagrees, a person has to look.

    `comparer` is the process that will do it, or the first of them, if it has been started already.
    """
    final = list(scores)
    compared = [number for number, score in enumerate(scores) if score.expected]
    found = ask_nbval([scores[number] for number in compared], comparer) if compared else []
    for number, (equal, problem) in zip(compared, found, strict=True):
        if equal != (final[number].stage == "passed"):
            words = ("equal", "different") if equal else ("different", "equal")
            reason = f"nbval finds evidence and key {words[0]}, the comparison in words finds them {words[1]}"
            reason = f"nbval gave no verdict: {problem}" if equal is None else reason
            reason = "; ".join(filter(None, (reason, final[number].reason)))
            final[number] = replace(final[number], look_by_hand=True, reason=reason)
    return final


def ask_nbval(scores: Sequence[Score], comparer: Comparer | None) -> list[tuple[bool | None, str]]:
    """Whether the texts of each score are equal, by nbval in as many processes as pay; None, and why, if unknown."""
    size = -(-len(scores) // max(1, min(cores(), len(scores) // WORTH_A_PROCESS)))
    parts = [scores[first : first + size] for first in range(0, len(scores), size)]
    try:
        with contextlib.ExitStack() as stack:
            ready = [stack.enter_context(each or Comparer()) for each in [comparer, *[None] * (len(parts) - 1)]]
            for one, part in zip(ready, parts, strict=True):
                one.start(part)
            return [each for one in ready for each in one.finish()]
    # The answers have been run: what they did is worth keeping, whatever happens now.
    except KeyboardInterrupt:
        problem = "the grading was stopped before it had compared them"
    except OSError as error:  # no room, no further process
        problem = f"it could not be started: {error.strerror}"
    return [(None, problem)] * len(scores)


def make_verdict_notebook(scores: Sequence[Score]) -> nbformat.NotebookNode:
    """A cell for each score with evidence, which it prints, with the key's text as its stored output."""
    from nbformat import v4

    from course_utils.authoring.source import KERNELSPEC, LANGUAGE_INFO

    cells = []
    with_evidence = (score for score in scores if score.expected)
    for (student, lesson), group in itertools.groupby(with_evidence, key=lambda score: (score.student, score.lesson)):
        cells.append(v4.new_markdown_cell(f"## {student} · {lesson}"))
        for score in group:
            output = v4.new_output("stream", name="stdout", text=score.expected + "\n")
            metadata = {"student": student, "lesson": lesson, "exercise": score.exercise}
            # Every line of the text is inside quotes, so that nothing in it is code or a mark for nbval.
            lines = "".join(f"    {line!a},\n" for line in score.got.split("\n"))
            source = f"# what the answer to {score.exercise} did\nprint(\n{lines}    sep='\\n',\n)"
            cells.append(v4.new_code_cell(source, outputs=[output], execution_count=len(cells), metadata=metadata))
    return v4.new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE_INFO)})


class Comparer(Closing):
    """One comparison to come: a folder for the verdict notebook, and the process that waits for it."""

    def __init__(self) -> None:
        self._folder = OwnFolder()
        self._place = self._folder.path
        own = dict.fromkeys(("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONSTARTUP", "PYTHONWARNINGS"), "")
        own |= dict.fromkeys(("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "JUPYTER_PREFER_ENV_PATH"), "1")
        own |= dict.fromkeys(("IPYTHONDIR", "TMPDIR"), str(self._place))  # the latter for the kernel's connection file
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course_utils.grading.verdict"],
            cwd=self._place,
            env=os.environ | environment() | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the grader
        )

    def start(self, scores: Sequence[Score]) -> None:
        """Have nbval run the verdict notebook of the scores; once only."""
        import nbformat

        self._count = len(scores)
        nbformat.write(make_verdict_notebook(scores), self._place / NOTEBOOK)
        self._process.stdin.close()  # the word that it waits for

    def finish(self) -> list[tuple[bool | None, str]]:
        """Wait, and return what nbval found of each of the scores, as `ask_nbval` does."""
        said = self._process.stdout.read().decode(errors="replace")
        results = self._place / RESULTS
        if not results.exists():
            return [(None, (said.strip().splitlines() or ["it said nothing"])[-1])] * self._count
        cases = ElementTree.parse(results).iter("testcase")
        found = {case.get("name").split()[-1]: {part.tag for part in case} for case in cases}  # such as "ipynb::Cell 0"
        equal = {number: "failure" not in parts for number, parts in found.items() if not parts & {"error", "skipped"}}
        return [(equal.get(str(number)), "its cell was not compared") for number in range(self._count)]

    def close(self) -> None:
        """End the process, its kernel and its folder."""
        with self._folder, self._process:
            self._process.send_signal(signal.SIGINT)  # so that it ends its kernel too
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
            self._process.kill()


# What a library tries to import for something else, and does without where it is missing: formats that no notebook has
# (one is a grammar, built in 2 s), the server of JupyterLab's extension, another text format.
UNUSED = {"jsonschema": ("rfc3987_syntax", "isoduration"), "jupytext": ("tornado.web", "markdown_it")}


def import_lean() -> None:
    """Import the libraries that notebooks are read with, but not what is `UNUSED` of them."""
    for library, parts in UNUSED.items():
        hidden = {*parts} - sys.modules.keys()
        sys.modules.update(dict.fromkeys(hidden))  # None: to import it raises ImportError, as if it were missing
        importlib.import_module(library)
        for part in hidden:
            del sys.modules[part]


def main() -> int:
    """Be ready, wait for the word, compare."""
    import_lean()
    import pytest
    from nbval import plugin
    from nbval.kernel import CURRENT_ENV_KERNEL_NAME, RunningKernel

    kernel = RunningKernel(CURRENT_ENV_KERNEL_NAME, cwd=os.getcwd())
    plugin.RunningKernel = lambda *_, **__: kernel  # for the one notebook there will be
    try:
        sys.stdin.read()
        options = ["-q", "--nbval", "--nbval-current-env", NOTEBOOK, "-p", "nbval.plugin", "-p", "no:cacheprovider"]
        options += ["-c", os.devnull, "--noconftest", "--color=no", "--tb=no", "-rN", "--no-header"]
        return int(pytest.main([*options, f"--junitxml={RESULTS}", "--nbval-cell-timeout=60"]))
    finally:
        if kernel.is_alive():
            kernel.stop()


if __name__ == "__main__":
    sys.exit(main())
