"""Step 3: compare evidence with the key, where no student's code ever ran.

One *verdict notebook* for everything that is judged together: a cell for each student and exercise prints the recorded
evidence, and the output stored beside it is what the key prints. `pytest --nbval` runs it and compares. The words
(which stage, what differs, the likely cause) come from `judging.judge`, which reads the same evidence. If the two
disagree on who passed, a person has to look. The notebook is kept beside the scores as a record that anyone can run
again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import nbformat

from course_utils import notebooks
from course_utils.exercises.judging import judge
from course_utils.exercises.outcome import Outcome
from course_utils.grading.canonical import canonical
from course_utils.grading.records import fits
from course_utils.grading.run import Key, Observed

VERDICTS = "verdicts.ipynb"


@dataclass(frozen=True)
class Verdict:
    """The outcome of one answer, or None with the reason why a person has to look."""

    outcome: Outcome | None
    by_hand: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Item:
    """One answer to judge: whose, to which exercise of which lesson, what is known of it, and its key."""

    student: str
    lesson: str
    observed: Observed
    key: Key

    @property
    def exercise(self) -> str:
        """The exercise's name."""
        return self.observed.answer.exercise.name


def judge_items(items: Sequence[Item], record: Path | None = None) -> list[Verdict]:
    """A verdict for each item. The verdict notebook is left at `record`, if there is anything for nbval to compare."""
    verdicts = [judge_in_words(item) for item in items]
    compared = [number for number, item in enumerate(items) if _is_compared(item, verdicts[number])]
    if not compared:
        return verdicts
    with tempfile.TemporaryDirectory(prefix="course-verdict-") as name:
        path = Path(name) / VERDICTS
        nbformat.write(make_verdict_notebook([items[number] for number in compared]), path)
        try:
            agreed, problem = run_nbval(path, len(compared))
        except KeyboardInterrupt:  # the answers have been run: what they did is worth keeping
            agreed, problem = [None] * len(compared), "the grading was stopped before it had compared them"
        if record:
            shutil.copyfile(path, record)
    for number, equal in zip(compared, agreed, strict=True):
        verdicts[number] = _cross_check(verdicts[number], equal, problem)
    return verdicts


def judge_in_words(item: Item) -> Verdict:
    """The verdict on one answer from its evidence and the key, before nbval has compared them."""
    observed, exercise = item.observed, item.observed.answer.exercise
    if observed.outcome:
        return Verdict(observed.outcome, reason=observed.reason)
    if observed.evidence is None:
        return Verdict(None, by_hand=True, reason=observed.reason)
    if item.key.reason:
        return Verdict(None, by_hand=True, reason=item.key.reason)
    if not fits(observed.evidence, item.key.evidence):
        return Verdict(None, by_hand=True, reason="the record of what the answer did is about other inputs")
    try:
        outcome = judge(
            exercise.name,
            observed.evidence,
            item.key.evidence,
            dict(item.key.mistakes),
            exercise.points,
            len(exercise.hints),
        )
    except Exception as error:  # evidence that nobody thought of costs one verdict, not the class
        return Verdict(None, by_hand=True, reason=f"the evidence could not be judged: {type(error).__name__}: {error}")
    return Verdict(outcome, reason=observed.reason)


def _is_compared(item: Item, verdict: Verdict) -> bool:
    return item.observed.evidence is not None and verdict.outcome is not None


def _cross_check(verdict: Verdict, equal: bool | None, problem: str) -> Verdict:
    """Believe the verdict only if nbval saw the same."""
    if equal is None:
        return Verdict(verdict.outcome, by_hand=True, reason=f"nbval gave no verdict: {problem}")
    if equal != verdict.outcome.passed:
        words = ("equal", "different") if equal else ("different", "equal")
        reason = f"nbval finds evidence and key {words[0]}, the comparison in words finds them {words[1]}"
        return Verdict(verdict.outcome, by_hand=True, reason=reason)
    return verdict


def make_verdict_notebook(items: Sequence[Item]) -> nbformat.NotebookNode:
    """A cell for each item that prints its evidence, with the key's text as its stored output."""
    cells = []
    heading = ("", "")
    for count, item in enumerate(items, start=1):
        if heading != (item.student, item.lesson):
            heading = (item.student, item.lesson)
            cells.append(nbformat.v4.new_markdown_cell(f"## {item.student} · {item.lesson}"))
        expected = canonical(item.key.evidence, item.key.evidence)
        output = nbformat.v4.new_output("stream", name="stdout", text=expected + "\n")
        metadata = {"student": item.student, "lesson": item.lesson, "exercise": item.exercise}
        source = _printing(item.exercise, canonical(item.observed.evidence, item.key.evidence))
        cells.append(nbformat.v4.new_code_cell(source, outputs=[output], execution_count=count, metadata=metadata))
    metadata = {"kernelspec": dict(notebooks.KERNELSPEC), "language_info": dict(notebooks.LANGUAGE_INFO)}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def _printing(exercise: str, text: str) -> str:
    """Code that prints `text`. Every line of it is inside quotes, so that nothing in it is code or a mark for nbval."""
    lines = "".join(f"    {line!a},\n" for line in text.split("\n"))
    return f"# what the answer to {exercise} did\nprint(\n{lines}    sep='\\n',\n)"


def run_nbval(path: Path, count: int) -> tuple[list[bool | None], str]:
    """Compare every cell of the notebook at `path` with nbval: for each of its `count` cells whether it is equal.

    None, with a sentence, for a cell that was not compared.
    """
    results = path.with_suffix(".xml")
    (path.parent / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    environment = notebooks.kernel_environment(path.parent) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", path.name]
    options = ["-p", "nbval.plugin", "-p", "no:cacheprovider", "-c", "pytest.ini", "--noconftest", "--color=no"]
    options += ["--tb=no", "--no-header", f"--junitxml={results.name}", "--nbval-cell-timeout=60"]
    ran = subprocess.run(
        [*command, *options], cwd=path.parent, env=environment, capture_output=True, text=True, check=False
    )
    if not results.exists():
        last = (ran.stdout + ran.stderr).strip().splitlines()[-1:] or ["it said nothing"]
        return [None] * count, last[0]
    equal: dict[int, bool] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        if number := re.search(r"Cell (\d+)$", case.get("name", "")):
            kinds = {child.tag for child in case}
            if not kinds & {"error", "skipped"}:
                equal[int(number.group(1))] = "failure" not in kinds
    return [equal.get(number) for number in range(count)], "its cell was not compared"
