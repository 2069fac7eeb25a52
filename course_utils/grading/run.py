"""Step 2: what a sandbox gave back, read with suspicion; and the key.

An engine (`forking` or `kernel`) runs the text of an answer and returns a `Ran`. Here it becomes what is known of that
answer: evidence that can be judged, an outcome where the answer kept the run from ending, or why a person has to look.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.recorded import recorded_key, recorded_seeds
from course_utils.grading.answers import read_cells
from course_utils.grading.collect import Answer, collect_answers
from course_utils.grading.lessons import Lesson
from course_utils.grading.records import (
    BadRecord,
    check_evidence,
    read_json,
    read_record,
)
from course_utils.grading.sandbox.tasks import (
    BLAMED,
    EVIDENCE,
    MISTAKES,
    TOO_LONG,
    Limits,
    Ran,
    Task,
)
from course_utils.root import has_answers

if TYPE_CHECKING:
    from course_utils.exercises.evidence import Evidence
    from course_utils.grading.sandbox.kernel import Execution
    from course_utils.grading.sandbox.key_kernel import Seat


@dataclass(frozen=True)
class Observed:
    """What is known of one answer after its run: its evidence or, where there is none to judge, the outcome.

    With neither, `reason` says why there is no score, and a person has to look.
    """

    answer: Answer
    evidence: tuple[Evidence, ...] | None = None
    outcome: Outcome | None = None
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Key:
    """What the reference answer and the declared mistakes of one exercise do with the secret seed.

    `reason` says why there is no key, if the course's own answer did not work here.
    """

    evidence: tuple[Evidence, ...] = ()
    mistakes: tuple[tuple[str, tuple[Evidence, ...]], ...] = ()
    reason: str = ""


def seed_for(exercise: str, secret: int) -> int:
    """The seed of one exercise's inputs: whoever finds it out in one exercise knows nothing about another."""
    digest = hmac.digest(secret.to_bytes(32, "big"), exercise.encode(), hashlib.sha256)
    return int.from_bytes(digest[:6], "big")


def make_task(answer: Answer, secret: int) -> Task:
    """What an engine needs to run an answer."""
    return Task(answer.exercise.name, "\n".join(answer.support), answer.source, _seed_of(answer.exercise, secret))


def _seed_of(exercise: Declaration, secret: int) -> int:
    """The seed of this grading's inputs for an exercise; in a release, one of those that have recorded results."""
    seed = seed_for(exercise.name, secret)
    if has_answers():
        return seed
    seeds = recorded_seeds(exercise.lesson)
    return seeds[seed % len(seeds)]


def read_ran(answer: Answer, ran: Ran) -> Observed:
    """What is known of an answer from what its sandbox gave back."""
    exercise = answer.exercise
    if ran.ended:
        return _blame(answer, ran.ended, ran.seconds)
    try:
        record = read_record(ran.record, exercise.name)
    except BadRecord as error:
        reason = f"the record of what the answer did is not in order: {error}"
        return Observed(answer, reason=reason, seconds=ran.seconds)
    lost = "; ".join(f"a definition that the answer may use did not work: {text}" for text in record["lost"])
    if record["blank"]:
        outcome = exercise.not_attempted("the answer cell is as it came.")
        return Observed(answer, outcome=outcome, reason=lost, seconds=ran.seconds)
    if raised := record["raised"]:
        if raised["type"] == "TimeIsUp":
            return _blame(answer, TOO_LONG, ran.seconds)
        problem = f"{raised['type']}: {raised['message']}" if raised["message"] else raised["type"]
        line = f"your line {raised['line']}, `{raised['text']}`," if raised["line"] else "your answer cell"
        outcome = _raised(answer, f"{line} raised {problem}")
        return Observed(answer, outcome=outcome, reason=lost, seconds=ran.seconds)
    return Observed(answer, tuple(record["cases"]), reason=lost, seconds=ran.seconds)


def _blame(answer: Answer, ended: str, seconds: float) -> Observed:
    if ended not in BLAMED:
        return Observed(answer, reason=ended, seconds=seconds)
    return Observed(answer, outcome=_raised(answer, f"{ended[0].upper()}{ended[1:]}."), seconds=seconds)


def _raised(answer: Answer, sentence: str) -> Outcome:
    exercise = answer.exercise
    return Outcome(exercise.name, Stage.RAISED, sentence, possible=exercise.points, hints=len(exercise.hints))


# -------------------------------------------------------------------------------------------------------------- the key


def make_keys(
    wanted: Sequence[tuple[Lesson, Collection[str]]],
    secret: int,
    limits: Limits | None = None,
    seat: Seat | None = None,
) -> dict[str, Key]:
    """The key of exercises by name: the answered edition, collected as any submission, run by papermill.

    `wanted` names for each lesson the exercises. All are run in one kernel (in the `seat`, if there is one); a lesson
    of which a key is lacking afterwards gets a new kernel to itself. The declared mistakes are run beside the answers,
    so that a wrong answer's likely cause can be found. A release has no answers: its keys are recorded.
    """
    if not has_answers():
        chosen = [each for lesson, names in wanted for each in lesson.exercises if each.name in names]
        return {each.name: _recorded_key(each, secret) for each in chosen}
    limits = limits or Limits()
    answers = [[each for each in _answered(lesson) if _name(each) in names] for lesson, names in wanted]
    found = _run_key([each for group in answers for each in group], secret, limits, seat)
    if len(wanted) > 1 or seat:
        for group in answers:
            if any(found[_name(each)].reason for each in group):
                found |= _run_key(group, secret, limits)
    return found


def _recorded_key(exercise: Declaration, secret: int) -> Key:
    evidence, mistakes = recorded_key(exercise.lesson, exercise.name, _seed_of(exercise, secret))
    return Key(tuple(evidence), tuple((message, tuple(cases)) for message, cases in mistakes.items()))


def _answered(lesson: Lesson) -> list[Answer]:
    """The answers of the lesson's answered edition."""
    return collect_answers(read_cells(lesson.answered_notebook().encode()), lesson)


def _name(answer: Answer) -> str:
    return answer.exercise.name


def _run_key(answers: Sequence[Answer], secret: int, limits: Limits, seat: Seat | None = None) -> dict[str, Key]:
    from course_utils.grading.sandbox.kernel import execute, make_notebook

    tasks = [make_task(answer, secret) for answer in answers]
    modules = sorted({f"course_utils.lessons.lesson_{answer.exercise.lesson:02}" for answer in answers})
    notebook = make_notebook(tasks, setup="\n".join(f"import {module}" for module in modules), mistakes=True)
    seeds = {task.exercise: task.seed for task in tasks}
    seconds = limits.submission * len(modules)
    executed = execute(notebook, seeds, limits.submission, time.monotonic() + seconds, seat)
    return {_name(answer): _read_key(answer, executed) for answer in answers}


def _read_key(answer: Answer, executed: Execution) -> Key:
    name = answer.exercise.name
    evidence, mistakes = (executed.displayed.get((kind, name), []) for kind in (EVIDENCE, MISTAKES))
    if answer.outcome:
        observed = Observed(answer, outcome=answer.outcome)
    elif len(evidence) != 1:
        observed = Observed(answer, reason="it showed nothing")
    else:
        observed = read_ran(answer, Ran(str(evidence[0])))
    sentence = observed.outcome.sentence if observed.outcome else observed.reason
    if not observed.evidence or sentence:
        return Key(reason=f"the course's own answer to {name} did not work here: {sentence} {executed.ended}".rstrip())
    found = read_json(mistakes[0])["mistakes"] if mistakes else []
    for _, one in found:
        check_evidence(one)
    return Key(observed.evidence, tuple((message, tuple(one)) for message, one in found))
