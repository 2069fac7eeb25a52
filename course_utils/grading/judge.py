"""Step 3: compare evidence with the key, where no student's code ever ran.

One *verdict notebook* for everything that is judged together: a cell for each student and exercise prints the recorded
evidence, and the output stored beside it is what the key prints. `pytest --nbval` runs it and compares; of a large
class, each core does its share of the cells, in a notebook and a kernel of its own. The words (which stage, what
differs, the likely cause) come from `judging.judge`, which reads the same evidence. If the two disagree on who passed,
a person has to look. The notebook is kept beside the scores as a record that anyone can run again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import nbformat
from joblib import cpu_count

from course_utils.authoring.source import KERNELSPEC, LANGUAGE_INFO
from course_utils.exercises.judging import judge
from course_utils.exercises.outcome import Outcome
from course_utils.grading.canonical import canonical
from course_utils.grading.comparing import Comparer
from course_utils.grading.records import fits
from course_utils.grading.run import Key, Observed

WORTH_A_PROCESS = 100  # cells: to compare so many takes about as long as to start a process for them


@dataclass(frozen=True)
class Verdict:
    """The outcome of one answer, or None with the reason why a person has to look."""

    outcome: Outcome | None
    by_hand: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Judged:
    """One answer after it was judged in words: the verdict, and the two texts for nbval to compare.

    Both are empty where there is nothing to compare. This is all that is kept of an answer's evidence.
    """

    exercise: str
    verdict: Verdict
    got: str = ""
    expected: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Item:
    """One judged answer, and whose it is."""

    student: str
    lesson: str
    judged: Judged


def judge_answer(observed: Observed, key: Key) -> Judged:
    """Judge one answer in words, and write its evidence and the key as nbval will compare them."""
    name = observed.answer.exercise.name
    verdict = judge_in_words(observed, key)
    if observed.evidence is None or verdict.outcome is None:
        return Judged(name, verdict, seconds=observed.seconds)
    got, expected = (canonical(one, key.evidence) for one in (observed.evidence, key.evidence))
    return Judged(name, verdict, got, expected, observed.seconds)


def judge_in_words(observed: Observed, key: Key) -> Verdict:
    """The verdict on one answer from its evidence and the key, before nbval has compared them."""
    exercise = observed.answer.exercise
    if observed.outcome:
        return Verdict(observed.outcome, reason=observed.reason)
    if observed.evidence is None:
        return Verdict(None, by_hand=True, reason=observed.reason)
    if key.reason:
        return Verdict(None, by_hand=True, reason=key.reason)
    if not fits(observed.evidence, key.evidence):
        return Verdict(None, by_hand=True, reason="the record of what the answer did is about other inputs")
    try:
        outcome = judge(
            exercise.name, observed.evidence, key.evidence, dict(key.mistakes), exercise.points, len(exercise.hints)
        )
    except Exception as error:  # evidence that nobody thought of costs one verdict, not the class
        return Verdict(None, by_hand=True, reason=f"the evidence could not be judged: {type(error).__name__}: {error}")
    return Verdict(outcome, reason=observed.reason)


def compare(items: Sequence[Item], comparer: Comparer | None = None) -> list[Verdict]:
    """The final verdict on each item: nbval compares the texts.

    `comparer` is the process that will do it, or the first of them, if it has been started already.
    """
    verdicts = [item.judged.verdict for item in items]
    compared = [number for number, item in enumerate(items) if item.judged.expected]
    if not compared:
        return verdicts
    found = _compare_in_parts([items[number] for number in compared], comparer)
    for number, (equal, problem) in zip(compared, found, strict=True):
        verdicts[number] = _cross_check(verdicts[number], equal, problem)
    return verdicts


def _compare_in_parts(items: Sequence[Item], comparer: Comparer | None) -> list[tuple[bool | None, str]]:
    """Whether nbval finds each item equal, or None with a sentence. Many items are shared among the cores."""
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
    """A cell for each item with evidence, which it prints, with the key's text as its stored output."""
    cells = []
    heading = ("", "")
    for count, item in enumerate((item for item in items if item.judged.expected), start=1):
        if heading != (item.student, item.lesson):
            heading = (item.student, item.lesson)
            cells.append(nbformat.v4.new_markdown_cell(f"## {item.student} · {item.lesson}"))
        judged = item.judged
        output = nbformat.v4.new_output("stream", name="stdout", text=judged.expected + "\n")
        metadata = {"student": item.student, "lesson": item.lesson, "exercise": judged.exercise}
        source = _printing(judged.exercise, judged.got)
        cells.append(nbformat.v4.new_code_cell(source, outputs=[output], execution_count=count, metadata=metadata))
    metadata = {"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE_INFO)}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def _printing(exercise: str, text: str) -> str:
    """Code that prints `text`. Every line of it is inside quotes, so that nothing in it is code or a mark for nbval."""
    lines = "".join(f"    {line!a},\n" for line in text.split("\n"))
    return f"# what the answer to {exercise} did\nprint(\n{lines}    sep='\\n',\n)"
