"""All steps in a row: submissions to scores."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from course_utils.exercises.declaration import Declaration
from course_utils.grading.answers import CollectedAnswer, CollectedNotebook, read_notebook
from course_utils.grading.desk import Desk
from course_utils.grading.evidence import (
    choose_better,
    judge_answer,
    make_notebook_task,
    make_task,
    seed_for,
    split_ran,
    to_score,
)
from course_utils.grading.report import NOT_GRADED, NOT_HANDED_IN, UNREADABLE, Score
from course_utils.grading.resume import GradingMemory
from course_utils.grading.sandbox.key import Key, ask_for_key
from course_utils.grading.sandbox.tasks import Engine, Limits, Ran
from course_utils.grading.submissions import DAMAGED, Submission, printable, read_submission
from course_utils.grading.verdict import Comparer, compare
from course_utils.root import CourseError

STOPPED = "the grading was stopped before this was run"
UNREAD = "the file could not be read"
JUDGE_SECONDS = 10.0  # after which no more of a notebook's answers are judged


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
    """One submission on its way: it is read, its answers run, and where one fails, it runs as a whole."""

    submission: Submission
    reason: str
    notebook: CollectedNotebook = field(default_factory=CollectedNotebook)
    judged: dict[str, Score] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    judge_seconds: float = 0.0
    scores: Sequence[Score] = ()
    kept_as: str = ""

    @property
    def to_run(self) -> list[CollectedAnswer]:
        return [each for each in self.notebook.answers if not each.outcome]

    @property
    def asked(self) -> list[Declaration]:
        """The exercises of which a key may be needed."""
        return [each.exercise for each in self.notebook.answers if not each.outcome or each.whole]

    @property
    def to_run_as_a_whole(self) -> list[Declaration]:
        """The exercises for which the whole notebook may do better."""
        answers = [each.exercise for each in self.notebook.answers if each.whole]
        return [exercise for exercise in answers if not self.judged[exercise.name].passed]


def grade(
    submissions: Sequence[Submission],
    *,
    crew: Engine,
    desk: Desk | None = None,
    memory: GradingMemory | None = None,
    comparer: Comparer | None = None,
    limits: Limits | None = None,
    progress: Callable[..., Iterable] = lambda runs, total: runs,
) -> Graded:
    """Grade the submissions with seeds that nobody has seen; rows for each exercise of each of them.

    `crew` runs the answers; `desk` reads what students wrote; `memory` knows the secret and what an earlier run has
    graded; `comparer` is the process that will compare, if it has been started. `progress(runs, total=…)` yields the
    runs, and shows how many are done, as `tqdm` does. Ctrl-C ends the running: what ran until then is judged and kept,
    the rest has rows that say so.
    """
    memory = memory or GradingMemory(None)
    stopped = False
    with nullcontext(desk) if desk else Desk() as reader:  # whoever opened it closes it
        work = [_Work(each, each.reason or STOPPED) for each in submissions]
        grading = _Grading(work, crew, reader, memory, limits or Limits(), progress)
        try:
            grading.run()
        except KeyboardInterrupt:
            stopped = True
    scores = compare([row for each in work for row in _rows(each)], comparer)
    memory.finish(crew.isolation, complete=not stopped)
    return Graded(scores, memory.isolation, grading.known, stopped, memory.problem)


@dataclass
class _Grading:
    work: Sequence[_Work]
    crew: Engine
    desk: Desk
    memory: GradingMemory
    limits: Limits
    progress: Callable[..., Iterable]
    known: int = 0
    keys: Mapping[str, Key] = field(default_factory=dict)

    def run(self) -> None:
        """Read all, run all answers, and then the notebooks in which one failed."""
        for each in self.work:
            self._read(each)
        self.known = sum(bool(each.scores) for each in self.work)
        unknown = [each for each in self.work if not each.scores]
        self._run_answers([each for each in unknown if each.to_run])
        for each in unknown:
            if not each.scores and not each.to_run_as_a_whole:
                self._finish(each)
        self._run_notebooks([each for each in unknown if each.to_run_as_a_whole])

    def _read(self, work: _Work) -> None:
        submission = work.submission
        try:
            if not submission.reason:
                data = read_submission(submission)
                work.kept_as, work.scores = self.memory.recall(submission.student, submission.name, data)
                if not work.scores:
                    work.notebook = self.desk.ask(read_notebook, data, submission.lesson.name)
        except CourseError as error:
            work.reason = f"{UNREAD}: {error}"
        except Exception as error:  # it must not cost the class
            work.reason = f"it could not be graded: {type(error).__name__}: {error}"
        work.judged = {
            each.exercise.name: to_score(each.exercise, each.outcome) for each in work.notebook.answers if each.outcome
        }

    def _run_answers(self, running: Sequence[_Work]) -> None:
        """Run the answers by themselves, and judge them. They run while the keys are made."""
        batches = [[make_task(answer, self.memory.secret) for answer in each.to_run] for each in running]
        runs = self.progress(self.crew.run_all(batches, self.limits) if batches else (), total=len(batches))
        self._make_keys(exercise for each in self.work for exercise in each.asked)
        for number, rans in runs:
            work = running[number]
            for answer, ran in zip(work.to_run, rans, strict=True):
                work.judged[answer.exercise.name] = self._judge(work, answer.exercise, ran)
                work.seconds[answer.exercise.name] = ran.seconds
            if not work.to_run_as_a_whole:
                self._finish(work)

    def _run_notebooks(self, running: Sequence[_Work]) -> None:
        """Run notebooks as a whole, once each, and keep what is better."""
        asked = [each.to_run_as_a_whole for each in running]
        tasks = [
            make_notebook_task(each.notebook, exercises, self.memory.secret)
            for each, exercises in zip(running, asked, strict=True)
        ]
        for number, (ran,) in self.crew.run_all([[task] for task in tasks], self.limits) if tasks else ():
            work = running[number]
            for exercise, part in zip(asked[number], split_ran(ran, len(asked[number])), strict=True):
                alone, whole = work.judged[exercise.name], self._judge(work, exercise, part)
                work.judged[exercise.name] = choose_better(alone, whole)
                work.seconds.setdefault(exercise.name, part.seconds)
            self._finish(work)

    def _make_keys(self, exercises: Iterable[Declaration]) -> None:
        wanted = {each.name: seed_for(each, self.memory.secret) for each in exercises}
        try:
            self.keys = ask_for_key([*wanted.items()], self.crew.key) if wanted else {}
        except Exception as error:
            self.keys = dict.fromkeys(wanted, Key(reason=f"there is no key: {type(error).__name__}: {error}"))

    def _judge(self, work: _Work, exercise: Declaration, ran: Ran) -> Score:
        begun = time.monotonic()
        try:
            if work.judge_seconds > JUDGE_SECONDS:
                raise CourseError("to judge the answers before this one took too long")
            return self.desk.ask(judge_answer, exercise, self.keys[exercise.name], ran)
        except CourseError as error:
            return to_score(exercise, reason=f"what the answer did could not be judged: {error}")
        finally:
            work.judge_seconds += time.monotonic() - begun

    def _finish(self, work: _Work) -> None:
        scores, whose = [], {"student": work.submission.student, "lesson": work.submission.name}
        for answer in work.notebook.answers:
            seconds = work.seconds.get(answer.exercise.name, 0.0)
            scores.append(replace(work.judged[answer.exercise.name], seconds=seconds, like=answer.like, **whose))
        work.scores = scores  # all of them or, if the user stops it here, none
        if work.scores and all(one.stage != NOT_GRADED for one in work.scores):  # what has no score is run again
            self.memory.keep(work.kept_as, work.scores)


def _rows(work: _Work) -> Iterator[Score]:
    submission, lesson = work.submission, work.submission.lesson
    for row in work.scores:
        reason = "; ".join(filter(None, (row.reason, submission.remark)))
        by_hand = row.look_by_hand or bool(submission.remark)
        yield replace(row, look_by_hand=by_hand, reason=reason, late=submission.late)
    if work.scores:
        return
    is_missing = bool(lesson and not submission.path)
    is_unread = DAMAGED in submission.reason or (lesson and (submission.reason or work.reason.startswith(UNREAD)))
    stage = NOT_HANDED_IN if is_missing else UNREADABLE if is_unread else NOT_GRADED
    reason = printable(work.reason, but="\n")
    about = {"stage": stage, "look_by_hand": not is_missing, "reason": reason, "late": submission.late}
    for name, possible in [(each.name, each.points) for each in (lesson.exercises if lesson else ())] or [("", 0)]:
        yield Score(submission.student, submission.name, name, possible=possible, **about)
