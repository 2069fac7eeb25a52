"""All steps in a row: a folder of submissions to scores."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.exercises.outcome import Outcome
from course_utils.grading.collect import Submission, Unreadable, collect_answers, read_cells, read_submission
from course_utils.grading.judge import Item, Verdict, judge_items
from course_utils.grading.lessons import Lesson
from course_utils.grading.report import Score, printable, score
from course_utils.grading.run import Key, Limits, Observed, make_key, run_answers

STOPPED = "the grading was stopped before this was run"


@dataclass
class Graded:
    """What came of it: a row and an outcome (None where there is none) for each exercise, in the submissions' order,

    and whether the user stopped it.
    """

    scores: list[Score]
    outcomes: list[Outcome | None]
    stopped: bool = False


@dataclass
class _Work:
    """One submission on its way: what is known of its answers, or why there is nothing to know."""

    submission: Submission
    observed: list[Observed] = field(default_factory=list)
    reason: str = ""


def grade(
    submissions: Sequence[Submission],
    *,
    seed: int | None = None,
    record: Path | None = None,
    limits: Limits | None = None,
    progress: Callable[[Sequence[Submission]], Iterable[Submission]] = iter,
) -> Graded:
    """Grade the submissions with a seed that nobody has seen; one row for each exercise of each of them.

    `record` is where the verdict notebook is left. `progress` wraps the submissions while they are run, as `tqdm` does.
    Ctrl-C ends the running: what ran until then is judged, the rest has rows that say so.
    """
    seed = secrets.randbits(48) if seed is None else seed
    keys: dict[str, dict[str, Key]] = {}
    work: list[_Work] = []
    stopped = False
    try:
        for submission in progress(submissions):
            work.append(_try_to_run(submission, seed, keys, limits))
    except KeyboardInterrupt:
        stopped = True
    work += [_Work(each, reason=each.reason or STOPPED) for each in submissions[len(work) :]]
    rows = _judge(work, keys, record)
    return Graded([row for row, _ in rows], [outcome for _, outcome in rows], stopped)


def _try_to_run(submission: Submission, seed: int, keys: dict[str, dict[str, Key]], limits: Limits | None) -> _Work:
    """As `_run`; whatever goes wrong with one submission must not cost the class."""
    try:
        return _run(submission, seed, keys, limits)
    except Exception as error:
        return _Work(submission, reason=f"it could not be graded: {type(error).__name__}: {error}")


def _run(submission: Submission, seed: int, keys: dict[str, dict[str, Key]], limits: Limits | None) -> _Work:
    """Collect and run one submission; the key of its lesson is made when it is first needed."""
    if submission.reason:
        return _Work(submission, reason=submission.reason)
    lesson = submission.lesson
    try:
        answers = collect_answers(read_cells(read_submission(submission.path)), lesson)
    except Unreadable as error:
        return _Work(submission, reason=f"the file could not be read: {error}")
    if lesson.name not in keys and any(answer.outcome is None for answer in answers):
        keys[lesson.name] = make_key(lesson, seed)
    return _Work(submission, run_answers(answers, seed, limits))


def _judge(
    work: Sequence[_Work], keys: dict[str, dict[str, Key]], record: Path | None
) -> list[tuple[Score, Outcome | None]]:
    items = [
        Item(each.submission.student, each.submission.name, observed, _key_for(observed, each.submission, keys))
        for each in work
        for observed in each.observed
    ]
    verdicts = iter(judge_items(items, record))
    return [row for each in work for row in _rows(each, verdicts)]


def _rows(work: _Work, verdicts: Iterator[Verdict]) -> Iterator[tuple[Score, Outcome | None]]:
    submission, lesson = work.submission, work.submission.lesson
    exercises = _exercises(lesson)
    if lesson and not exercises:
        reason = work.reason or "this lesson has no exercises"
        yield Score(submission.student, submission.name, "", look_by_hand=bool(work.reason), reason=reason), None
        return
    if work.reason:
        for name, possible in exercises or [("", 0)]:
            reason = printable(work.reason)
            yield Score(submission.student, submission.name, name, 0, possible, reason=reason), None
        return
    for name, possible in exercises:
        verdict = next(verdicts)
        yield score(submission.student, submission.name, name, possible, verdict), verdict.outcome


def _exercises(lesson: Lesson | None) -> list[tuple[str, int]]:
    return [(each.name, each.points) for each in lesson.exercises] if lesson else []


def _key_for(observed: Observed, submission: Submission, keys: dict[str, dict[str, Key]]) -> Key:
    """The key of an answer; without one nothing can be compared."""
    return keys.get(submission.name, {}).get(observed.answer.exercise.name, Key(reason="there is no key for it"))
