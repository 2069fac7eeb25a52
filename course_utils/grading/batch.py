"""All steps in a row: submissions to scores."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from course_utils.exercises.outcome import Outcome
from course_utils.grading.answers import read_cells
from course_utils.grading.collect import CollectedAnswer, collect_answers
from course_utils.grading.evidence import Key, Observed, make_keys, make_task, read_ran
from course_utils.grading.lessons import Lesson
from course_utils.grading.report import Score, score
from course_utils.grading.resume import GradingMemory
from course_utils.grading.sandbox.crew import DaskCrew, LocalCrew
from course_utils.grading.sandbox.tasks import Limits, Ran
from course_utils.grading.submissions import Submission, printable, read_submission
from course_utils.grading.verdict import Comparer, Item, Verdict, compare, judge_answer, make_verdict_notebook
from course_utils.root import CourseError

STOPPED = "the grading was stopped before this was run"


@dataclass
class Graded:
    """A row and an outcome (or None) for each exercise, what kept the answers in, and how many were known before."""

    scores: list[Score]
    outcomes: list[Outcome | None]
    isolation: list[str] = field(default_factory=list)
    known: int = 0
    stopped: bool = False
    problem: str = ""


@dataclass
class _Work:
    submission: Submission
    answers: list[CollectedAnswer] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    reason: str = ""
    path: Path | None = None

    @property
    def to_run(self) -> list[CollectedAnswer]:
        return [answer for answer in self.answers if answer.outcome is None]

    @property
    def is_waiting(self) -> bool:
        return not self.verdicts and not self.reason


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
    grading = _Grading(crew, memory, limits or Limits())
    work: list[_Work] = []
    known, stopped, problem = 0, False, ""
    try:
        for submission in submissions:
            work.append(grading.collect(submission))
        known = sum(bool(each.verdicts) for each in work)
        with progress(sum(each.is_waiting for each in work)) as bar:
            for _ in grading.run([each for each in work if each.is_waiting]):
                if bar is not None:
                    bar.update()
    except KeyboardInterrupt:
        stopped = True
    work += [_Work(each, reason=each.reason or STOPPED) for each in submissions[len(work) :]]
    for each in work:
        if each.is_waiting and each.to_run:
            each.reason = STOPPED
        elif each.is_waiting and each.answers:
            grading.judge(each, [])
    items = [Item(each.submission.student, each.submission.name, one) for each in work for one in each.verdicts]
    verdicts = iter(compare(items, comparer))
    rows = [row for each in work for row in _rows(each, verdicts)]
    try:
        if record and any(item.verdict.expected for item in items):
            nbformat.write(make_verdict_notebook(items), record)
    except OSError as error:
        problem = f"the verdict notebook cannot be written: {error.strerror}"
    memory.finish(crew.isolation, complete=not stopped)
    outcomes = [found for _, found in rows]
    return Graded([row for row, _ in rows], outcomes, memory.isolation, known, stopped, problem or memory.problem)


class _Grading:
    def __init__(self, crew: LocalCrew | DaskCrew, memory: GradingMemory, limits: Limits) -> None:
        self._crew = crew
        self._memory = memory
        self._limits = limits
        self._keys: dict[str, Key] = {}

    def collect(self, submission: Submission) -> _Work:
        if submission.reason:
            return _Work(submission, reason=submission.reason)
        try:
            data = read_submission(submission)
            path = self._memory.path_for(submission.student, submission.name, data)
            answers = collect_answers(read_cells(data), submission.lesson)
        except CourseError as error:
            return _Work(submission, reason=f"the file could not be read: {error}")
        except Exception as error:  # it must not cost the class
            return _Work(submission, reason=f"it could not be graded: {type(error).__name__}: {error}")
        known = self._memory.recall(path)
        if known is not None and [one.exercise for one in known] == [one.exercise.name for one in answers]:
            return _Work(submission, answers, known)
        return _Work(submission, answers, path=path)

    def run(self, work: Sequence[_Work]) -> Iterator[_Work]:
        for each in work:
            if not each.to_run:
                yield self.judge(each, [])
        running = [each for each in work if each.to_run]
        if not running:
            return
        secret = self._memory.secret
        batches = [[make_task(answer, secret) for answer in each.to_run] for each in running]
        results = self._crew.run(batches, self._limits)  # they run while the keys are made
        lessons: dict[str, tuple[Lesson, set[str]]] = {}
        for each in running:
            lesson = each.submission.lesson
            lessons.setdefault(lesson.name, (lesson, set()))[1].update(one.exercise.name for one in each.to_run)
        try:
            self._keys |= make_keys(list(lessons.values()), self._memory.secret, seat=self._crew.seat)
        except Exception as error:
            reason = f"there is no key: {type(error).__name__}: {error}"
            self._keys |= {name: Key(reason=reason) for _, names in lessons.values() for name in names}
        for number, rans in results:
            yield self.judge(running[number], rans)

    def judge(self, work: _Work, rans: Sequence[Ran]) -> _Work:
        found = iter(rans)
        none, verdicts = Key(reason="there is no key for it"), []
        for answer in work.answers:
            observed = Observed(answer, outcome=answer.outcome) if answer.outcome else read_ran(answer, next(found))
            verdicts.append(judge_answer(observed, self._keys.get(answer.exercise.name, none)))
        work.verdicts = verdicts  # all of them or, if the user stops it here, none
        if all(one.outcome for one in work.verdicts):  # what has no score is run again
            self._memory.keep(work.path, work.verdicts)
        return work


def _rows(work: _Work, verdicts: Iterator[Verdict]) -> Iterator[tuple[Score, Outcome | None]]:
    submission, lesson = work.submission, work.submission.lesson
    student, name = submission.student, submission.name
    exercises = [(each.name, each.points) for each in lesson.exercises] if lesson else []
    if not exercises or work.reason:
        reason = printable(work.reason or "this lesson has no exercises", but="\n")
        by_hand = bool(work.reason) and not submission.missing
        for exercise, possible in exercises or [("", 0)]:
            yield Score(student, name, exercise, 0, possible, look_by_hand=by_hand, reason=reason), None
        return
    for _, possible in exercises:
        verdict = next(verdicts)
        yield score(student, name, possible, verdict, submission.remark), verdict.outcome
