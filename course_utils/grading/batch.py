"""All steps in a row: submissions to scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from course_utils.exercises.outcome import Outcome
from course_utils.grading.answers import CollectedAnswer, collect_answers, read_cells
from course_utils.grading.evidence import Key, make_keys, make_task, read_ran
from course_utils.grading.report import NOT_GRADED, NOT_HANDED_IN, UNREADABLE, Score, score
from course_utils.grading.resume import GradingMemory
from course_utils.grading.sandbox.crew import DaskCrew, LocalCrew
from course_utils.grading.sandbox.tasks import Limits, Ran
from course_utils.grading.submissions import Submission, printable, read_submission
from course_utils.grading.verdict import Comparer, Item, Verdict, compare, judge_answer, make_verdict_notebook
from course_utils.root import CourseError, write_whole

STOPPED = "the grading was stopped before this was run"
UNREAD = "the file could not be read"
NO_EXERCISES = "this lesson has no exercises"
NO_KEY = Key(reason="there is no key for it")


@dataclass
class Graded:
    """A row and an outcome (or None) for each exercise, what kept the answers in, and how many were known before."""

    scores: Sequence[Score]
    outcomes: Sequence[Outcome | None]
    isolation: list[str]
    known: int
    stopped: bool
    problem: str


@dataclass
class _Work:
    submission: Submission
    reason: str
    answers: Sequence[CollectedAnswer] = ()
    verdicts: Sequence[Verdict] = ()
    kept_as: str = ""

    @property
    def to_run(self) -> list[CollectedAnswer]:
        return [answer for answer in self.answers if not answer.outcome and not self.verdicts]


def grade(
    submissions: Sequence[Submission],
    *,
    crew: LocalCrew | DaskCrew,
    memory: GradingMemory | None = None,
    record: Path | None = None,
    comparer: Comparer | None = None,
    limits: Limits | None = None,
    progress: Callable[[int], AbstractContextManager[Any]] = lambda total: nullcontext(),
) -> Graded:
    """Grade the submissions with seeds that nobody has seen; rows for each exercise of each of them.

    `crew` runs the answers; `memory` knows the secret and what an earlier run has graded;
    `record` is where the verdict notebook is left; `comparer` the process that will judge it, if it has been started
    already. `progress(total)` is entered while answers are run, as `tqdm`'s bar.
    Ctrl-C ends the running: what ran until then is judged and kept, the rest has rows that say so.
    """
    memory = memory or GradingMemory(None)
    work = [_Work(each, each.reason or STOPPED) for each in submissions]
    known, stopped, problem = 0, False, ""
    try:
        for each in work:
            _collect(each, memory)
        known = sum(bool(each.verdicts) for each in work)
        running = [each for each in work if each.to_run]
        with progress(len(running)) as bar:
            for _ in running and _run(running, crew, memory, limits or Limits()):
                if bar is not None:
                    bar.update()
    except KeyboardInterrupt:
        stopped = True
    for each in work:
        if each.answers and not each.verdicts and not each.to_run:
            _judge(each, memory, (), {})
    items = [Item(each.submission.student, each.submission.name, one) for each in work for one in each.verdicts]
    verdicts = iter(compare(items, comparer))
    rows = [row for each in work for row in _rows(each, verdicts)]
    try:
        if record and any(item.verdict.expected for item in items):
            write_whole(record, nbformat.writes(make_verdict_notebook(items)))
    except OSError as error:
        problem = f"the verdict notebook cannot be written: {error.strerror}"
    memory.finish(crew.isolation, complete=not stopped)
    return Graded(*zip(*rows, strict=True), memory.isolation, known, stopped, problem or memory.problem)


def _collect(work: _Work, memory: GradingMemory) -> None:
    submission = work.submission
    try:
        if not submission.reason:
            data = read_submission(submission)
            work.answers = collect_answers(read_cells(data), submission.lesson)
            work.reason = STOPPED if work.answers else NO_EXERCISES
            work.kept_as, work.verdicts = memory.recall(submission.student, submission.name, data)
    except CourseError as error:
        work.reason = f"{UNREAD}: {error}"
    except Exception as error:  # it must not cost the class
        work.reason = f"it could not be graded: {type(error).__name__}: {error}"


def _run(running: Sequence[_Work], crew: LocalCrew | DaskCrew, memory: GradingMemory, limits: Limits) -> Iterator[None]:
    batches = [[make_task(answer, memory.secret) for answer in each.to_run] for each in running]
    results = crew.run(batches, limits)  # they run while the keys are made
    wanted = {answer.exercise.name: answer.exercise for each in running for answer in each.to_run}
    try:
        keys = make_keys(wanted.values(), memory.secret, crew.make_key)
    except Exception as error:
        keys = dict.fromkeys(wanted, Key(reason=f"there is no key: {type(error).__name__}: {error}"))
    for number, rans in results:
        yield _judge(running[number], memory, rans, keys)


def _judge(work: _Work, memory: GradingMemory, rans: Sequence[Ran], keys: Mapping[str, Key]) -> None:
    found, verdicts = iter(rans), []
    for answer in work.answers:
        key, ran = keys.get(answer.exercise.name, NO_KEY), Ran() if answer.outcome else next(found)
        verdicts.append(judge_answer(answer, key, *read_ran(answer, ran), ran.seconds))
    work.verdicts = verdicts  # all of them or, if the user stops it here, none
    if all(one.outcome for one in verdicts):  # what has no score is run again
        memory.keep(work.kept_as, verdicts)


def _rows(work: _Work, verdicts: Iterator[Verdict]) -> Iterator[tuple[Score, Outcome | None]]:
    submission, lesson = work.submission, work.submission.lesson
    student, name = submission.student, submission.name
    exercises = [(each.name, each.points) for each in lesson.exercises] if lesson else []
    if work.verdicts:
        for (_, possible), verdict in zip(exercises, verdicts, strict=False):  # those of the others follow
            yield score(student, name, possible, verdict, submission.remark), verdict.outcome
        return
    missing, unread = lesson and not submission.path, lesson and (submission.reason or work.reason.startswith(UNREAD))
    stage = NOT_HANDED_IN if missing else UNREADABLE if unread else NOT_GRADED
    look, reason = not missing and work.reason != NO_EXERCISES, printable(work.reason, but="\n")
    for exercise, possible in exercises or [("", 0)]:
        yield Score(student, name, exercise, 0, possible, stage, look_by_hand=look, reason=reason), None
