"""Step 2, read with suspicion: what a sandbox gave back, judged by the key.

The record in a `Ran` was written by a process in which a student's code ran, so it is believed to be data of the form
that `assets/record.schema.json` describes, and nothing more. It becomes what is known of the answer: evidence that can
be judged, an outcome where the answer kept the run from ending, or why a person has to look. All of it is work for the
`desk`.
"""

import hashlib
import hmac
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import fastjsonschema

from course_utils.exercises.comparing import alike, close, facts
from course_utils.exercises.declaration import Declaration
from course_utils.exercises.judging import first_difference, judge
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.plain import Evidence
from course_utils.exercises.recorded import recorded_seeds
from course_utils.grading.answers import BLANK, CollectedAnswer, CollectedNotebook, blame
from course_utils.grading.report import NOT_GRADED, Score
from course_utils.grading.sandbox.key import Key
from course_utils.grading.sandbox.tasks import BLAMED, CUT, KILLED, TOO_LONG, Ran, Task
from course_utils.grading.submissions import printable
from course_utils.root import ASSETS, CourseError, has_answers

LONGEST, MOST_LINES = 400, 5_000  # characters of a line for nbval, of a longer one its beginning and digest; lines
MOST_TEXT = 2_000  # characters of a sentence in the report
# Kinds of values that count as the same.
ONE_KIND = {"tuple": "list", "int": "float", "module": "function", "context manager": "handle"}
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

    pairs = zip(cases, key, strict=False)
    return all(form(case) == form(reference) and _have_same_inputs(case, reference) for case, reference in pairs)


def _have_same_inputs(case: Evidence, reference: Evidence) -> bool:
    """Whether the values of the inputs that neither answer has changed are the same."""
    for name, state in case["inputs"].items():
        is_changed = any("value" in each["changed"].get(name, ()) for each in (case, reference))
        if not is_changed and not _count_as_equal(state["value"], reference["inputs"][name]["value"]):
            return False
    return True


def _count_as_equal(mine: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """Whether two values, or those of two modules by their names, count as equal."""
    if "type" in key:
        return alike(mine, key)
    return mine.keys() == key.keys() and all(alike(value, key[name]) for name, value in mine.items())


def seed_for(exercise: Declaration, secret: int) -> int:
    """The seed of one exercise's inputs: whoever finds it out in one exercise knows nothing about another."""
    digest = hmac.digest(secret.to_bytes(32, "big"), exercise.name.encode(), hashlib.sha256)
    seed = int.from_bytes(digest[:6], "big")
    return seed if has_answers() else (seeds := recorded_seeds(exercise.lesson))[seed % len(seeds)]


def make_task(answer: CollectedAnswer, secret: int) -> Task:
    return Task({answer.exercise.name: seed_for(answer.exercise, secret)}, answer.support, answer.source)


def make_notebook_task(notebook: CollectedNotebook, exercises: Sequence[Declaration], secret: int) -> Task:
    """What an engine needs to run a whole notebook, and to try what then bears the names of the exercises."""
    return Task({each.name: seed_for(each, secret) for each in exercises}, notebook.cells)


def judge_answer(exercise: Declaration, key: Key, ran: Ran) -> Score:
    """The row of the report for an answer, judged in words by what came of running it; nobody's yet.

    If not all worked that it may use, it passes or a person looks.
    """
    try:
        return _judge_run(exercise, key, ran)
    except CourseError as error:
        return to_score(exercise, reason=str(error))
    except Exception as error:  # evidence that nobody thought of costs one verdict, not the class
        return to_score(exercise, reason=f"the evidence could not be judged: {type(error).__name__}: {error}")


def _judge_run(exercise: Declaration, key: Key, ran: Ran) -> Score:
    outcome, cases, lost = _read_ran(exercise, ran)
    if outcome:
        return to_score(exercise, outcome, lost if outcome.stage is not Stage.NOT_ATTEMPTED else "")
    if key.reason:
        raise CourseError(key.reason)
    if not fits(cases, key.evidence):
        raise CourseError("the record of what the answer did is about other inputs")
    outcome = judge(exercise.name, cases, key.evidence, key.mistakes, exercise.points, len(exercise.hints))
    row = to_score(exercise, outcome, "" if outcome.passed else lost)
    together = zip(cases, key.evidence, strict=False)
    held = sum(first_difference([case], [right], exercise.name) is None for case, right in together)
    texts = {"got": canonical(cases, key.evidence), "expected": canonical(key.evidence, key.evidence)}
    return replace(row, held=round(held / (len(key.evidence) or 1), 3), **texts)


def split_ran(ran: Ran, number: int) -> list[Ran]:
    """What a sandbox gave back of a whole notebook, for each of the `number` of exercises that it was asked about."""
    lines = list(filter(None, ran.record.split("\n")))
    missing = Ran(ended=ran.ended or KILLED, seconds=ran.seconds)
    return [replace(ran, record=lines[at]) if at < len(lines) else missing for at in range(number)]


def choose_better(alone: Score, whole: Score) -> Score:
    """The better result of an answer: by itself, or as a part of the whole notebook, which is said then."""
    if whole.passed:
        sentence = "By itself the answer did not pass; with the whole notebook run before it, it did."
        return replace(whole, sentence=sentence)
    reason = alone.reason  # that cells of a notebook raise is nothing special
    if whole.stage == NOT_GRADED or CUT in whole.reason:
        reason = reason or _say(f"the whole notebook could not be run to its end and judged: {whole.reason}")
    tells_more = not alone.attempted or (whole.expected and not alone.expected)
    if alone.stage != NOT_GRADED and whole.attempted and tells_more:
        alone = replace(whole, sentence=f"{whole.sentence} This was seen when the whole notebook was run.".strip())
    return replace(alone, reason=reason, look_by_hand=bool(reason))


def to_score(exercise: Declaration, outcome: Outcome | None = None, reason: str = "") -> Score:
    """The row of the report for an answer, nobody's yet; no text in it has control characters or is long.

    Without an `outcome` there is no score. A `reason` is for a person, who has to look.
    """
    row = Score("", "", exercise.name, possible=exercise.points, reason=_say(reason))
    if outcome is None:
        return row
    words = {"stage": printable(outcome.stage), "sentence": _say(outcome.sentence), "cause": _say(outcome.cause)}
    return replace(row, points=outcome.points, look_by_hand=bool(reason), **words)


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


def _say(text: str) -> str:
    text = printable(text[: MOST_TEXT + 1], but="\n")
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def canonical(cases: Sequence[Evidence], key: Sequence[Evidence]) -> str:
    """The evidence of `cases` as text, a line a fact, which nbval compares with `canonical(key, key)`.

    Numbers within tolerance of the key's are written as the key's. All else stays as it is, so that nbval's is a second
    opinion: whether `judging` finds two values alike is not asked here.
    """
    lines = []
    for number, (case, reference) in enumerate(zip(cases, key, strict=False), start=1):
        lines.append(f"case {number}")
        for fact in facts(case, reference):
            text = f"  {fact.words}: {json.dumps(settle(fact.mine, fact.expected), sort_keys=True)}"
            if len(text) > LONGEST:
                text = f"{text[: LONGEST // 2]}… sha256 {hashlib.sha256(text.encode()).hexdigest()}"
            lines.append(text)
    return "\n".join(lines[:MOST_LINES])


def settle(mine: Any, key: Any, is_mapping: bool = False) -> Any:
    """A plain value, or a part of one, with its numbers as the key's, where they are within tolerance of those there.

    Kinds that count as one have one name; a float may stand for an int, and no int for a float. A mapping's pairs are
    in the order of their keys.
    """
    if isinstance(mine, list) and isinstance(key, list):
        if is_mapping:
            mine, key = (sorted(pairs, key=lambda pair: repr(pair[0])) for pairs in (mine, key))
        return [settle(one, other) for one, other in itertools.zip_longest(mine, key[: len(mine)])]
    if not (isinstance(mine, dict) and isinstance(key, dict) and "type" in mine and "type" in key):
        return key if close(mine, key) else mine
    kind, wanted = (ONE_KIND.get(each["type"], each["type"]) for each in (mine, key))
    if kind != wanted or (mine["type"], key["type"]) == ("int", "float"):
        return mine
    parts = {name: settle(mine.get(name), key[name], kind == "dict") for name in key.keys() - {"type"}}
    return {"type": kind, **parts}
