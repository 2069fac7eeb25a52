"""All steps in a row: submissions to scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from course_utils.grading.answers import CollectedAnswer, collect_answers
from course_utils.grading.definitions import read_cells
from course_utils.grading.evidence import judge_answer, make_task, seed_for, to_score
from course_utils.grading.report import NOT_GRADED, NOT_HANDED_IN, UNREADABLE, Score
from course_utils.grading.resume import GradingMemory
from course_utils.grading.sandbox.key import Key, ask_for_key
from course_utils.grading.sandbox.tasks import Engine, Limits, Ran
from course_utils.grading.submissions import DAMAGED, Submission, printable, read_submission
from course_utils.grading.verdict import Comparer, compare, make_verdict_notebook
from course_utils.root import CourseError, write_whole

STOPPED = "the grading was stopped before this was run"
UNREAD = "the file could not be read"
NO_EXERCISES = "this lesson has no exercises"


@dataclass
class Graded:
    """A row for each exercise, what kept the answers in, and how many submissions were known before."""

    scores: Sequence[Score]
    isolation: list[str]
    known: int
    stopped: bool
    problem: str


@dataclass
class _Work:
    submission: Submission
    reason: str
    answers: Sequence[CollectedAnswer] = ()
    scores: Sequence[Score] = ()
    kept_as: str = ""

    @property
    def to_run(self) -> list[CollectedAnswer]:
        return [answer for answer in self.answers if not answer.outcome and not self.scores]


def grade(
    submissions: Sequence[Submission],
    *,
    crew: Engine,
    memory: GradingMemory | None = None,
    record: Path | None = None,
    comparer: Comparer | None = None,
    limits: Limits | None = None,
    progress: Callable[[int], AbstractContextManager[Any]] = lambda total: nullcontext(),
) -> Graded:
    """Grade the submissions with seeds that nobody has seen; rows for each exercise of each of them.

    `crew` runs the answers; `memory` knows the secret and what an earlier run has graded; `record` is where the verdict
    notebook is left; `comparer` the process that will judge it, if it has been started. `progress(total)` is entered as
    `tqdm`'s bar. Ctrl-C ends the running: what ran until then is judged and kept, the rest has rows that say so.
    """
    memory = memory or GradingMemory(None)
    work = [_Work(each, each.reason or STOPPED) for each in submissions]
    known, stopped, problem = 0, False, ""
    try:
        for each in work:
            _collect(each, memory)
        known = sum(bool(each.scores) for each in work)
        running = [each for each in work if each.to_run]
        with progress(len(running)) as bar:
            for _ in running and _run(running, crew, memory, limits or Limits()):
                if bar is not None:
                    bar.update()
    except KeyboardInterrupt:
        stopped = True
    for each in work:
        if each.answers and not each.scores and not each.to_run:
            _judge(each, memory, (), {})
    scores = compare([row for each in work for row in _rows(each)], comparer)
    try:
        if record and any(row.expected for row in scores):
            write_whole(record, make_verdict_notebook(scores))
    except OSError as error:
        problem = f"the verdict notebook cannot be written: {error.strerror}"
    memory.finish(crew.isolation, complete=not stopped)
    return Graded(scores, memory.isolation, known, stopped, problem or memory.problem)


def _collect(work: _Work, memory: GradingMemory) -> None:
    submission = work.submission
    try:
        if not submission.reason:
            data = read_submission(submission)
            work.answers = collect_answers(read_cells(data), submission.lesson)
            work.reason = STOPPED if work.answers else NO_EXERCISES
            work.kept_as, work.scores = memory.recall(submission.student, submission.name, data)
    except CourseError as error:
        work.reason = f"{UNREAD}: {error}"
    except Exception as error:  # it must not cost the class
        work.reason = f"it could not be graded: {type(error).__name__}: {error}"


def _run(running: Sequence[_Work], crew: Engine, memory: GradingMemory, limits: Limits) -> Iterator[None]:
    batches = [[make_task(answer, memory.secret) for answer in each.to_run] for each in running]
    results = crew.run_all(batches, limits)  # they run while the keys are made
    wanted = {answer.exercise.name: answer.exercise for each in running for answer in each.to_run}
    try:
        keys = ask_for_key([(name, seed_for(each, memory.secret)) for name, each in wanted.items()], crew.key)
    except Exception as error:
        keys = dict.fromkeys(wanted, Key(reason=f"there is no key: {type(error).__name__}: {error}"))
    for number, rans in results:
        yield _judge(running[number], memory, rans, keys)


def _judge(work: _Work, memory: GradingMemory, rans: Sequence[Ran], keys: Mapping[str, Key]) -> None:
    found, scores = iter(rans), []
    for answer in work.answers:
        key, ran = (Key(), Ran()) if answer.outcome else (keys[answer.exercise.name], next(found))
        judged = judge_answer(answer, key, ran)
        scores.append(to_score(work.submission.student, work.submission.name, answer.exercise, judged, ran.seconds))
    work.scores = scores  # all of them or, if the user stops it here, none
    if all(one.stage != NOT_GRADED for one in scores):  # what has no score is run again
        memory.keep(work.kept_as, scores)


def _rows(work: _Work) -> Iterator[Score]:
    submission, lesson = work.submission, work.submission.lesson
    for row in work.scores:
        reason = "; ".join(filter(None, (row.reason, submission.remark)))
        by_hand = row.look_by_hand or bool(submission.remark)
        yield replace(row, look_by_hand=by_hand, reason=reason, late=submission.late)
    if work.scores:
        return
    missing, unread = lesson and not submission.path, lesson and (submission.reason or work.reason.startswith(UNREAD))
    unread = unread or DAMAGED in submission.reason
    stage = NOT_HANDED_IN if missing else UNREADABLE if unread else NOT_GRADED
    look, reason = not missing and work.reason != NO_EXERCISES, printable(work.reason, but="\n")
    for name, possible in [(each.name, each.points) for each in (lesson.exercises if lesson else ())] or [("", 0)]:
        yield Score(
            student=submission.student,
            lesson=submission.name,
            exercise=name,
            possible=possible,
            stage=stage,
            look_by_hand=look,
            reason=reason,
            late=submission.late,
        )
