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
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.tasks import Closing
from course_utils.root import ROOT

if TYPE_CHECKING:
    import nbformat

    from course_utils.exercises.evidence import Evidence
    from course_utils.exercises.outcome import Outcome
    from course_utils.grading.answers import CollectedAnswer
    from course_utils.grading.evidence import Key

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


def judge_answer(
    answer: CollectedAnswer,
    key: Key,
    evidence: Sequence[Evidence] | None,
    outcome: Outcome | None = None,
    reason: str = "",
    seconds: float = 0.0,
) -> Verdict:
    """Judge one answer in words, and write its evidence and the key as nbval will compare them.

    `evidence`, `outcome` and `reason` are as `evidence.read_ran` gives them. An answer that may have needed what did
    not travel with it, or did not work there, passes or a person looks.
    """
    from course_utils.exercises.judging import judge
    from course_utils.grading.evidence import fits

    exercise, left, texts = answer.exercise, answer.left, ("", "")
    if evidence is not None and (key.reason or not fits(evidence, key.evidence)):
        reason = key.reason or "the record of what the answer did is about other inputs"
    elif evidence is not None:
        points, hints = exercise.points, len(exercise.hints)
        try:
            texts = canonical(evidence, key.evidence), canonical(key.evidence, key.evidence)
            outcome = judge(exercise.name, evidence, key.evidence, key.mistakes, points, hints)
        except Exception as error:  # evidence that nobody thought of costs one verdict, not the class
            reason, texts = f"the evidence could not be judged: {type(error).__name__}: {error}", ("", "")
    by_hand = outcome is None
    if outcome and outcome.stage not in ("passed", "not attempted") and (reason or left):
        told = ", ".join(f"`{text.splitlines()[0][:80]}`" for text in left[:3])
        told = told and f"It was run without {told}, which it may need."
        told = told or "Not all that it uses worked."
        outcome = replace(outcome, sentence=f"{outcome.sentence} {told}")
        by_hand, reason = True, reason or told
    return Verdict(exercise.name, outcome, by_hand, reason, *texts, seconds)


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
            short = f"{text[: LONGEST // 2]}… sha256 {hashlib.sha256(text.encode()).hexdigest()}"
            lines.append(f"  {fact.words}: {short if len(text) > LONGEST else text}")
    return "\n".join(lines)


def compare(items: Sequence[Item], comparer: Comparer | None = None) -> list[Verdict]:
    """The final verdict on each item: nbval compares the texts.

    `comparer` is the process that will do it, or the first of them, if it has been started already.
    """
    verdicts = [item.verdict for item in items]
    compared = [number for number, verdict in enumerate(verdicts) if verdict.expected]
    found = _compare_in_parts([items[number] for number in compared], comparer) if compared else []
    for number, (equal, problem) in zip(compared, found, strict=True):
        if equal != verdicts[number].outcome.passed:
            words = ("equal", "different") if equal else ("different", "equal")
            reason = f"nbval finds evidence and key {words[0]}, the comparison in words finds them {words[1]}"
            reason = f"nbval gave no verdict: {problem}" if equal is None else reason
            verdicts[number] = replace(verdicts[number], by_hand=True, reason=reason)
    return verdicts


def _compare_in_parts(items: Sequence[Item], comparer: Comparer | None) -> list[tuple[bool | None, str]]:
    import nbformat
    from joblib import cpu_count

    count = max(1, min(cpu_count(), len(items) // WORTH_A_PROCESS))
    edges = [len(items) * number // count for number in range(count + 1)]
    parts = [items[first:last] for first, last in itertools.pairwise(edges)]
    found: list[tuple[bool | None, str]] = []
    with contextlib.ExitStack() as stack:
        try:
            ready = [stack.enter_context(each or Comparer()) for each in [comparer, *[None] * (count - 1)]]
            for one, part in zip(ready, parts, strict=True):
                one.start(nbformat.writes(make_verdict_notebook(part)))
            for one, part in zip(ready, parts, strict=True):
                agreed, problem = one.finish(len(part))
                found += [(equal, problem) for equal in agreed]
        # The answers have been run: what they did is worth keeping, whatever happens now.
        except (KeyboardInterrupt, OSError) as error:
            problem = f"it could not be started: {getattr(error, 'strerror', '')}"  # no room, no further process
            problem = problem if isinstance(error, OSError) else "the grading was stopped before it had compared them"
            found += [(None, problem)] * (len(items) - len(found))
    return found


def make_verdict_notebook(items: Sequence[Item]) -> nbformat.NotebookNode:
    """A cell for each item with evidence, which it prints, with the key's text as its stored output."""
    from nbformat import v4

    from course_utils.authoring.source import KERNELSPEC, LANGUAGE_INFO

    cells = []
    with_evidence = (item for item in items if item.verdict.expected)
    for (student, lesson), group in itertools.groupby(with_evidence, key=lambda item: item[:2]):
        cells.append(v4.new_markdown_cell(f"## {student} · {lesson}"))
        for *_, verdict in group:
            output = v4.new_output("stream", name="stdout", text=verdict.expected + "\n")
            metadata = {"student": student, "lesson": lesson, "exercise": verdict.exercise}
            # Every line of the text is inside quotes, so that nothing in it is code or a mark for nbval.
            lines = "".join(f"    {line!a},\n" for line in verdict.got.split("\n"))
            source = f"# what the answer to {verdict.exercise} did\nprint(\n{lines}    sep='\\n',\n)"
            cells.append(v4.new_code_cell(source, outputs=[output], execution_count=len(cells), metadata=metadata))
    return v4.new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE_INFO)})


NOTEBOOK = "verdicts.ipynb"
RESULTS = "verdicts.xml"


class Comparer(Closing):
    """One comparison to come: a folder for the verdict notebook, and the process that waits for it."""

    def __init__(self) -> None:
        self._folder = OwnFolder()
        self._place = self._folder.path
        unset = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONHASHSEED")
        own = {
            **dict.fromkeys(unset, ""),
            "COURSE_PROGRESS": "off",
            "IPYTHONDIR": str(self._place / "ipython"),
            "JUPYTER_PREFER_ENV_PATH": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self._place),  # for the kernel's connection file
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course_utils.grading.verdict"],
            cwd=self._place,
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the grader
        )

    def start(self, notebook: str) -> None:
        """Have nbval run the verdict notebook, given as its file's text; once only."""
        (self._place / NOTEBOOK).write_text(notebook, encoding="utf-8")
        self._process.stdin.close()  # the word that it waits for

    def finish(self, count: int) -> tuple[list[bool | None], str]:
        """Wait, and return for each of the notebook's `count` code cells whether text and output are equal.

        None, with a sentence, for a cell that was not compared.
        """
        said = self._process.stdout.read().decode(errors="replace")
        results = self._place / RESULTS
        if not results.exists():
            return [None] * count, (said.strip().splitlines() or ["it said nothing"])[-1]
        cases = ElementTree.parse(results).iter("testcase")
        found = {case.get("name").split()[-1]: {part.tag for part in case} for case in cases}  # such as "ipynb::Cell 0"
        equal = {number: "failure" not in parts for number, parts in found.items() if not parts & {"error", "skipped"}}
        return [equal.get(str(number)) for number in range(count)], "its cell was not compared"

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
