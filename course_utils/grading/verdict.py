"""Step 3: compare evidence with the key, where no student's code ever ran.

The *verdict notebook* has a cell for each student and exercise, which prints the recorded evidence, and below it as
stored output what the key prints. nbval runs it in a process of its own (`python -m course_utils.grading.verdict`),
which is started early, so that its imports and its kernel are there. `exercises.judging` says the same in words.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from course_utils.grading.report import NOT_GRADED, Score
from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.tasks import Closing, environment
from course_utils.root import skip_grammar

NOTEBOOK, RESULTS = "verdicts.ipynb", "verdicts.xml"


def make_verdict_notebook(scores: Sequence[Score]) -> str:
    """A notebook with a cell for each score with evidence, which it prints, and the key's text as its stored output."""
    cells: list[dict[str, Any]] = []
    with_evidence = (score for score in scores if score.expected)
    for (student, lesson), group in itertools.groupby(with_evidence, key=lambda score: (score.student, score.lesson)):
        cells.append({"cell_type": "markdown", "metadata": {}, "source": f"## {student} · {lesson}"})
        for score in group:
            output = {"output_type": "stream", "name": "stdout", "text": score.expected + "\n"}
            metadata = {"student": student, "lesson": lesson, "exercise": score.exercise}
            # Every line of the text is inside quotes, so that nothing in it is code or a mark for nbval.
            lines = "".join(f"    {line!a},\n" for line in score.got.split("\n"))
            source = f"# what the answer to {score.exercise} did\nprint(\n{lines}    sep='\\n',\n)"
            cell = {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [output]}
            cells.append(cell | {"execution_count": len(cells)})
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 4}, indent=1)


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

    def ask(self, scores: Sequence[Score]) -> list[tuple[bool | None, str]]:
        """Whether nbval finds the texts of each score equal; None, and why, where that is unknown. Once only."""
        (self._place / NOTEBOOK).write_text(make_verdict_notebook(scores), encoding="utf-8")
        said = self._process.communicate()[0].decode(errors="replace")  # the end of its input is the word to begin
        results = self._place / RESULTS
        if not results.exists():
            return [(None, (said.strip().splitlines() or ["it said nothing"])[-1])] * len(scores)
        cases = ElementTree.parse(results).iter("testcase")
        found = {case.get("name").split()[-1]: {part.tag for part in case} for case in cases}  # such as "ipynb::Cell 0"
        equal = {number: "failure" not in parts for number, parts in found.items() if not parts & {"error", "skipped"}}
        return [(equal.get(str(number)), "its cell was not compared") for number in range(len(scores))]

    def close(self) -> None:
        with self._folder, self._process:
            self._process.send_signal(signal.SIGINT)  # so that it ends its kernel too
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
            self._process.kill()


def compare(scores: Sequence[Score], comparer: Comparer | None = None) -> list[Score]:
    """The final scores: nbval compares the texts of each, in a `comparer`.

    An answer passes if the words and nbval both find it equal to the key. Where they disagree, a person looks.
    """
    compared = [score for score in scores if score.expected]
    problem, found = "", []
    try:
        if compared:
            with comparer or Comparer() as one:
                found = one.ask(compared)
    # The answers have been run: what they did is worth keeping, whatever happens now.
    except KeyboardInterrupt:
        problem = "the grading was stopped before it had compared them"
    except OSError as error:  # no room, no further process
        problem = f"it could not be started: {error.strerror}"
    answers = iter(found or [(None, problem)] * len(compared))
    return [_with_doubt(score, *next(answers)) if score.expected else score for score in scores]


def _with_doubt(score: Score, equal: bool | None, problem: str) -> Score:
    if equal == score.passed:
        return score
    words = ("equal", "different") if equal else ("different", "equal")
    reason = f"nbval finds evidence and key {words[0]}, the comparison in words finds them {words[1]}"
    reason = f"nbval gave no verdict: {problem}" if equal is None else reason
    if score.passed:
        score = replace(score, stage=NOT_GRADED, points=0)
    return replace(score, look_by_hand=True, reason="; ".join(filter(None, (reason, score.reason))))


def main() -> int:
    """Be ready, wait for the word, compare."""
    skip_grammar()
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
