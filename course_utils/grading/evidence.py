"""Step 2, read with suspicion: what a sandbox gave back, judged by the key.

The record in a `Ran` was written by a process in which a student's code ran, so it is believed to be data of the form
that `assets/record.schema.json` describes, and nothing more. It becomes what is known of the answer: evidence that can
be judged, an outcome where the answer kept the run from ending, or why a person has to look.
"""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import fastjsonschema

from course_utils.exercises.declaration import Declaration
from course_utils.exercises.judging import alike, facts, judge
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.plain import Evidence
from course_utils.exercises.recorded import recorded_seeds
from course_utils.grading.answers import BLANK, CollectedAnswer, blame
from course_utils.grading.report import Score
from course_utils.grading.sandbox.key import Key
from course_utils.grading.sandbox.tasks import BLAMED, TOO_LONG, Ran, Task
from course_utils.grading.submissions import printable
from course_utils.root import ASSETS, CourseError, has_answers

LONGEST = 300  # characters of a value in a text for nbval; of a longer one its beginning and its digest
check_form = fastjsonschema.compile(json.loads((ASSETS / "record.schema.json").read_text(encoding="utf-8")))


def read_record(text: str, exercise: str) -> dict[str, Any]:
    """The driver's record about `exercise`; `CourseError`, which says what is wrong with it, for any other text."""
    try:
        record = check_form(json.loads(text, parse_constant=str))
    except (ValueError, TypeError, RecursionError) as error:  # not JSON, or not of the form
        raise CourseError(str(error)[:200]) from None
    if record["exercise"] != exercise:
        raise CourseError(f"it is about {record['exercise'][:100]!r}, not {exercise}")
    return record


def fits(cases: Sequence[Evidence], key: Sequence[Evidence]) -> bool:
    """Whether evidence is about the same inputs as the key's, so that the two can be compared."""

    def form(case: Evidence) -> set[tuple[str, str, bool]]:
        parts = ((name, part, value) for name, state in case["inputs"].items() for part, value in state.items())
        return {(name, part, part in ("value", "grad") and "type" in value) for name, part, value in parts}

    return all(form(case) == form(reference) for case, reference in zip(cases, key, strict=False))


def seed_for(exercise: Declaration, secret: int) -> int:
    """The seed of one exercise's inputs: whoever finds it out in one exercise knows nothing about another."""
    digest = hmac.digest(secret.to_bytes(32, "big"), exercise.name.encode(), hashlib.sha256)
    seed = int.from_bytes(digest[:6], "big")
    return seed if has_answers() else (seeds := recorded_seeds(exercise.lesson))[seed % len(seeds)]


def make_task(answer: CollectedAnswer, secret: int) -> Task:
    """What an engine needs to run an answer."""
    return Task(answer.exercise.name, "\n".join(answer.support), answer.source, seed_for(answer.exercise, secret))


@dataclass(frozen=True)
class Judged:
    """What is known of one answer.

    `outcome` is None where there is no score. `reason` says why, or why a person has to look; it is empty where nobody
    has to. `got` and `expected` are what the answer did and what the key does, as nbval compares them.
    """

    outcome: Outcome | None = None
    reason: str = ""
    got: str = ""
    expected: str = ""


def judge_answer(answer: CollectedAnswer, key: Key, ran: Ran) -> Judged:
    """Judge an answer in words, by what came of running it.

    If it may have needed what did not travel with it, or what did not work there, it passes or a person looks.
    """
    if answer.outcome:
        return Judged(answer.outcome)
    try:
        judged, doubt = _judge_run(answer.exercise, key, ran)
    except CourseError as error:
        return Judged(reason=str(error))
    except Exception as error:  # evidence that nobody thought of costs one verdict, not the class
        return Judged(reason=f"the evidence could not be judged: {type(error).__name__}: {error}")
    if judged.outcome.stage in (Stage.PASSED, Stage.NOT_ATTEMPTED):
        return judged
    if answer.left:
        left = ", ".join(f"`{text.splitlines()[0][:80]}`" for text in answer.left[:3])
        told = f"It was run without {left}, which it may need."
        outcome = replace(judged.outcome, sentence=f"{judged.outcome.sentence} {told}")
        return replace(judged, outcome=outcome, reason=doubt or told)
    return replace(judged, reason=doubt)


def _judge_run(exercise: Declaration, key: Key, ran: Ran) -> tuple[Judged, str]:
    """What is known of an answer that ran, and which of the definitions that it may use did not work, in words."""
    outcome, cases, lost = _read_ran(exercise, ran)
    if outcome:
        return Judged(outcome), lost
    if key.reason:
        raise CourseError(key.reason)
    if not fits(cases, key.evidence):
        raise CourseError("the record of what the answer did is about other inputs")
    outcome = judge(exercise.name, cases, key.evidence, key.mistakes, exercise.points, len(exercise.hints))
    return Judged(outcome, "", canonical(cases, key.evidence), canonical(key.evidence, key.evidence)), lost


def to_score(student: str, lesson: str, exercise: Declaration, judged: Judged, seconds: float) -> Score:
    """The row of the report for an answer; nothing in it is a control character."""
    reason = printable(judged.reason, but="\n")
    if judged.outcome is None:
        return Score(student, lesson, exercise.name, possible=exercise.points, reason=reason, seconds=seconds)
    outcome = judged.outcome
    return Score(
        student=student,
        lesson=lesson,
        exercise=exercise.name,
        points=outcome.points,
        possible=exercise.points,
        stage=printable(outcome.stage),
        sentence=printable(outcome.sentence, but="\n"),
        cause=printable(outcome.cause, but="\n"),
        look_by_hand=bool(judged.reason),
        reason=reason,
        seconds=seconds,
        got=judged.got,
        expected=judged.expected,
    )


def _read_ran(exercise: Declaration, ran: Ran) -> tuple[Outcome | None, Sequence[Evidence], str]:
    # The outcome of an answer without evidence that can be judged, or the evidence; and what else a person has to know.
    ended = ran.ended
    try:
        record = None if ended else read_record(ran.record, exercise.name)
    except CourseError as error:
        raise CourseError(f"the record of what the answer did is not in order: {error}") from None
    raised = record and record["raised"]
    if raised and raised["type"] == "TimeIsUp":
        ended = TOO_LONG
    if ended in BLAMED:
        return blame(exercise, f"{ended[0].upper()}{ended[1:]}."), (), ""
    if ended:
        raise CourseError(ended)
    lost = "; ".join(f"a definition that the answer may use did not work: {text}" for text in record["lost"])
    if record["blank"]:
        return exercise.not_attempted(BLANK), (), lost
    if raised:
        problem = f"{raised['type']}: {raised['message']}" if raised["message"] else raised["type"]
        line = f"your line {raised['line']}, `{raised['text']}`," if raised["line"] else "your answer cell"
        return blame(exercise, f"{line} raised {problem}"), (), lost
    return None, record["cases"], lost


def canonical(cases: Sequence[Evidence], key: Sequence[Evidence]) -> str:
    """The evidence of `cases` as text that equals `canonical(key, key)` exactly where they did what the key did.

    A line a fact. A value that counts as equal to the key's is written as the key's; what does not count is left out.
    """
    lines = []
    for number, (case, reference) in enumerate(zip(cases, key, strict=False), start=1):
        lines.append(f"case {number}")
        for fact in facts(case, reference):
            value = fact.expected if alike(fact.mine, fact.expected) else fact.mine
            text = json.dumps(value, sort_keys=True)
            short = f"{text[: LONGEST // 2]}… sha256 {hashlib.sha256(text.encode()).hexdigest()}"
            lines.append(f"  {fact.words}: {short if len(text) > LONGEST else text}")
    return "\n".join(lines)
