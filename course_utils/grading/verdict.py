"""Step 3: compare evidence with the key, where no student's code ever ran.

Each answer is judged twice. `exercises.judging` says in words which stage it reached, what differs and the likely
cause. And one *verdict notebook* has a cell for each student and exercise, which prints the recorded evidence, and
below it as stored output what the key prints: `pytest --nbval` runs it and compares. nbval runs in a process of its
own, `python -m course_utils.grading.verdict`, which is started early, so that its imports and its kernel are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from course_utils.grading.sandbox.tasks import Closing
from course_utils.root import ROOT

if TYPE_CHECKING:
    import nbformat

    from course_utils.exercises.evidence import Evidence
    from course_utils.exercises.outcome import Outcome
    from course_utils.grading.evidence import Key, Observed

WORTH_A_PROCESS = 100  # cells: to compare so many takes about as long as to start a process for them


@dataclass(frozen=True)
class Verdict:
    """The outcome of one answer, or None with the reason why a person has to look, and two texts for nbval to compare:

    what the answer did and what the key does, both empty where there is nothing to compare.
    """

    exercise: str
    outcome: Outcome | None
    by_hand: bool = False
    reason: str = ""
    got: str = ""
    expected: str = ""
    seconds: float = 0.0


class Item(NamedTuple):
    """One verdict, and whose it is."""

    student: str
    lesson: str
    verdict: Verdict


def judge_answer(observed: Observed, key: Key) -> Verdict:
    """Judge one answer in words, and write its evidence and the key as nbval will compare them."""
    from course_utils.exercises.judging import judge
    from course_utils.grading.evidence import fits

    exercise, evidence = observed.answer.exercise, observed.evidence
    verdict = Verdict(exercise.name, observed.outcome, reason=observed.reason, seconds=observed.seconds)
    if observed.outcome:
        return verdict
    if evidence is None or key.reason:
        return replace(verdict, by_hand=True, reason=observed.reason if evidence is None else key.reason)
    try:
        if not fits(evidence, key.evidence):
            return replace(verdict, by_hand=True, reason="the record of what the answer did is about other inputs")
        points, hints = exercise.points, len(exercise.hints)
        outcome = judge(exercise.name, evidence, key.evidence, key.mistakes, points, hints)
        got, expected = canonical(evidence, key.evidence), canonical(key.evidence, key.evidence)
    except Exception as error:  # evidence that nobody thought of costs one verdict, not the class
        reason = f"the evidence could not be judged: {type(error).__name__}: {error}"
        return replace(verdict, by_hand=True, reason=reason)
    return replace(verdict, outcome=outcome, got=got, expected=expected)


LONGEST = 300  # characters of a value; of a longer one its beginning and its digest


def canonical(cases: Sequence[Evidence], key: Sequence[Evidence]) -> str:
    """The evidence of `cases` as text that equals `canonical(key, key)` exactly where they did what the key did.

    A line a fact. A value that counts as equal to the key's is written as the key's; what does not count (what was
    printed, on which line something was raised) is left out.
    """
    from course_utils.exercises.judging import alike, facts

    lines = []
    for number, (case, reference) in enumerate(zip(cases, key, strict=False), start=1):
        lines.append(f"case {number}")
        for fact in facts(case, reference):
            value = fact.expected if alike(fact.mine, fact.expected) else fact.mine
            text = json.dumps(value, sort_keys=True)
            if len(text) > LONGEST:
                text = f"{text[: LONGEST // 2]}… sha256 {hashlib.sha256(text.encode()).hexdigest()}"
            lines.append(f"  {fact.words}: {text}")
    return "\n".join(lines)


def compare(items: Sequence[Item], comparer: Comparer | None = None) -> list[Verdict]:
    """The final verdict on each item: nbval compares the texts.

    `comparer` is the process that will do it, or the first of them, if it has been started already.
    """
    verdicts = [item.verdict for item in items]
    compared = [number for number, verdict in enumerate(verdicts) if verdict.expected]
    found = _compare_in_parts([items[number] for number in compared], comparer) if compared else []
    for number, (equal, problem) in zip(compared, found, strict=True):
        if equal == verdicts[number].outcome.passed:
            continue
        words = ("equal", "different") if equal else ("different", "equal")
        reason = f"nbval finds evidence and key {words[0]}, the comparison in words finds them {words[1]}"
        if equal is None:
            reason = f"nbval gave no verdict: {problem}"
        verdicts[number] = replace(verdicts[number], by_hand=True, reason=reason)
    return verdicts


def _compare_in_parts(items: Sequence[Item], comparer: Comparer | None) -> list[tuple[bool | None, str]]:
    import nbformat
    from joblib import cpu_count

    count = max(1, min(cpu_count(), len(items) // WORTH_A_PROCESS))
    edges = [len(items) * number // count for number in range(count + 1)]
    parts = [items[first:last] for first, last in itertools.pairwise(edges)]
    with ExitStack() as stack:
        comparers = [stack.enter_context(comparer or Comparer())]
        found: list[tuple[bool | None, str]] = []
        try:
            comparers += [stack.enter_context(Comparer()) for _ in parts[1:]]
            for one, part in zip(comparers, parts, strict=True):
                one.start(nbformat.writes(make_verdict_notebook(part)))
            for one, part in zip(comparers, parts, strict=True):
                agreed, problem = one.finish(len(part))
                found += [(equal, problem) for equal in agreed]
        # The answers have been run: what they did is worth keeping, whatever happens now.
        except KeyboardInterrupt:
            found += [(None, "the grading was stopped before it had compared them")] * (len(items) - len(found))
        except OSError as error:  # no room for a notebook, no further process
            found += [(None, f"it could not be started: {error.strerror}")] * (len(items) - len(found))
    return found


def make_verdict_notebook(items: Sequence[Item]) -> nbformat.NotebookNode:
    """A cell for each item with evidence, which it prints, with the key's text as its stored output."""
    from nbformat import v4

    from course_utils.authoring.source import KERNELSPEC, LANGUAGE_INFO

    cells = []
    heading = ("", "")
    for count, item in enumerate((item for item in items if item.verdict.expected), start=1):
        if heading != (item.student, item.lesson):
            heading = (item.student, item.lesson)
            cells.append(v4.new_markdown_cell(f"## {item.student} · {item.lesson}"))
        judged = item.verdict
        output = v4.new_output("stream", name="stdout", text=judged.expected + "\n")
        metadata = {"student": item.student, "lesson": item.lesson, "exercise": judged.exercise}
        # Every line of the text is inside quotes, so that nothing in it is code or a mark for nbval.
        lines = "".join(f"    {line!a},\n" for line in judged.got.split("\n"))
        source = f"# what the answer to {judged.exercise} did\nprint(\n{lines}    sep='\\n',\n)"
        cells.append(v4.new_code_cell(source, outputs=[output], execution_count=count, metadata=metadata))
    return v4.new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE_INFO)})


NOTEBOOK = "verdicts.ipynb"
RESULTS = "verdicts.xml"
GO = b"go\n"
_NOT_PASSED_ON = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONHASHSEED")


class Comparer(Closing):
    """One comparison to come: a folder for the verdict notebook, and the process that waits for it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="course-verdict-", ignore_cleanup_errors=True)
        self._place = place = Path(self._folder.name)
        (place / "runtime").mkdir(mode=0o700)
        (place / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course_utils.grading.verdict"],
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
        equal: dict[int, bool] = {}
        for case in ElementTree.parse(results).iter("testcase"):
            number, kinds = re.search(r"Cell (\d+)$", case.get("name", "")), {child.tag for child in case}
            if number and not kinds & {"error", "skipped"}:
                equal[int(number.group(1))] = "failure" not in kinds
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


# What a library tries to import for something else, and does without where it is missing: formats that no notebook has
# (one is a grammar, built in 2 s), the server of JupyterLab's extension, another text format.
UNUSED = {"jsonschema": ("rfc3987_syntax", "isoduration"), "jupytext": ("tornado.web", "markdown_it")}


def import_lean() -> None:
    """Import the libraries that notebooks are read with, but not what is `UNUSED` of them."""
    for library, parts in UNUSED.items():
        hidden = [part for part in parts if part not in sys.modules] if library not in sys.modules else []
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
