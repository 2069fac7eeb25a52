"""From evidence to an outcome: compare what an answer did with what the reference did, and say it in words.

Works on plain data alone, so that a judge can do it in a process in which no learner's code ever ran. `comparing` says
what counts, and when two values count as equal; `causes` says why an answer may be wrong.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from course_utils.exercises.causes import Mistakes, find_causes
from course_utils.exercises.comparing import RETURNED, Cases, Fact, alike, close, differing_part, facts, side_effects
from course_utils.exercises.outcome import IN_WORDS, Outcome, Stage
from course_utils.exercises.plain import MAX_SHOWN, Evidence, Plain, find_place, name_type, number_text, show

STOPS = (".", "!", "?")
GENERATOR_FOR_CONTEXT = "a generator (put `@contextlib.contextmanager` above the function)"


class Difference(NamedTuple):
    """The first thing in which an answer differs from the reference: at which stage, in words, and in which case."""

    stage: Stage
    sentence: str
    case: int = 0


def judge(name: str, got: Cases, key: Cases, mistakes: Mistakes, possible: int = 0, hints: int = 0) -> Outcome:
    """The outcome of one exercise from the evidence of the answer, of the reference and of the declared mistakes.

    `mistakes` pairs each declared message with the evidence of its function for the same cases, or with a function that
    gives it, `at` one case or of all. They only explain a failure: no more is asked for than it takes.
    """
    difference = first_difference(got, key, name)
    if difference is None:
        return Outcome(name, Stage.PASSED, possible=possible, hints=hints)
    sentence = _close_sentence(difference.sentence, _find_besides(got, key, difference))
    cause = find_causes(got, key, mistakes)
    return Outcome(name, difference.stage, sentence, str(cause), possible=possible, hints=hints)


def _find_besides(got: Cases, key: Cases, difference: Difference) -> str:
    """The first side effect of another kind than the difference, and of which input it is; empty if there is none."""
    for number, (mine, reference) in enumerate(zip(got, key, strict=False)):
        for words in side_effects([mine], [reference]):
            if _without_names(words) not in _without_names(difference.sentence):
                return words if number == difference.case else f"{words} ({_say_where(reference)})"
    return ""


def _without_names(words: str) -> str:
    return re.sub(r"`[^`]*`(?: and `[^`]*`)*", "`…`", words)


def _close_sentence(sentence: str, besides: str) -> str:
    """A sentence with its full stop, and what is to be told besides."""
    if besides:
        stop = "" if sentence.endswith(STOPS) else "."
        return f"{sentence}{stop} Besides, {besides}."
    return sentence if sentence.endswith((*STOPS, "`")) else f"{sentence}."


def find_first_wrong(got: Cases, expected: Cases) -> int | None:
    """The number of the first case in which an answer differs from the reference; None if it passes."""
    for number, (mine, reference) in enumerate(zip(got, expected, strict=False)):
        if not all(fact.agrees for fact in facts(mine, reference)):
            return number
    return len(got) - 1 if len(got) < len(expected) else None


def first_difference(got: Cases, expected: Cases, name: str) -> Difference | None:
    """Compare case by case; the first case that differs decides. None if they are equal within tolerance."""
    for number, (mine, reference) in enumerate(zip(got, expected, strict=False)):
        for fact in facts(mine, reference):
            if not fact.agrees:
                return _tell(fact, mine, reference, name)._replace(case=number)
    if len(got) < len(expected):
        return Difference(Stage.RAISED, "the run stopped before the last case")
    return None


def _say_where(case: Evidence) -> str:
    return f"for {case['given']}" if case["given"] else "in one of the cases"


def _tell(fact: Fact, got: Evidence, expected: Evidence, name: str) -> Difference:
    where = f"{_say_where(expected)},"
    if fact.stage is Stage.RAISED:
        return _tell_error(got, expected, where, name)
    if fact.stage:
        return Difference(fact.stage, f"{where} {fact.words}")
    if fact.words.startswith(IN_WORDS) and fact.mine["type"] == "str":
        return Difference(Stage.WRONG_VALUE, f"{where} {fact.words.removesuffix(' was')}: {fact.mine['value']}")
    return _tell_value(fact.mine, fact.expected, fact.words, where)


def _tell_error(got: Evidence, expected: Evidence, where: str, name: str) -> Difference:
    mine, wanted = got["raised"], expected["raised"]
    if wanted:
        came = f"{mine['type']}: {mine['message']}" if mine else "nothing was raised"
        return Difference(Stage.WRONG_VALUE, f"{where} expected {wanted['type']} to be raised; got: {came}")
    if mine["type"] == "TimeIsUp":
        line = f" (it was in your line {mine['line']}: `{mine['text']}`)" if mine["line"] else ""
        return Difference(Stage.RAISED, f"{where} your answer did not come to an end in time and was stopped{line}")
    problem = f"{mine['type']}: {mine['message']}" if mine["message"] else mine["type"]
    if mine["line"]:
        after = "; it ran after your function had returned, as hooks do" if mine["during"] == "hook" else ""
        return Difference(Stage.RAISED, f"{where} your line {mine['line']}, `{mine['text']}`, raised {problem}{after}")
    if mine["during"] == "call":
        return Difference(Stage.RAISED, _tell_failed_call(mine, problem, where, name))
    return _tell_failed_case(got["returned"], expected["returned"], problem, where)


def _tell_failed_call(error: Mapping[str, Any], problem: str, where: str, name: str) -> str:
    """Of an error in the call of the answer, but in no line of it."""
    if error["type"] == "TypeError" and "argument" in error["message"]:
        return f"{name} was called as its task says, and that failed: {problem}"
    return f"{where} your answer raised {problem}"


def _tell_failed_case(returned: Plain, wanted: Plain, problem: str, where: str) -> Difference:
    """Of an error in what a case did after the call: perhaps what was returned is of another type."""
    if returned["type"] == wanted["type"]:
        said = f"your function returned, but what it returned or left behind could not be used: {problem}"
        return Difference(Stage.RAISED, f"{where} {said}")
    if alike(returned, wanted):
        return Difference(Stage.WRONG_TYPE, f"{where} what your function returned could not be used")
    return _tell_value(returned, wanted, RETURNED, where)


def _tell_value(got: Plain, expected: Plain, subject: str, where: str) -> Difference:
    stage, path, mine, reference = differing_part(got, expected)
    at = f" (at {path})" if path else ""
    if stage in (Stage.WRONG_VALUE, Stage.NOT_FINITE):
        return Difference(stage, f"{where} {subject} {_tell_two_values(mine, reference)}{at}")
    came, wanted = _tell_two_kinds(stage, mine, reference)
    if stage is Stage.RETURNED_NOTHING and (path or not subject.endswith("returned")):
        stage, came = Stage.WRONG_VALUE, "None"  # the function itself returned something
    return Difference(stage, f"{where} {subject} {came}{at}; expected {wanted}")


def _tell_two_kinds(stage: Stage, mine: Plain, expected: Plain) -> tuple[str, str]:
    """What came and what was expected, for two values of different type, shape or dtype."""
    if stage is Stage.RETURNED_NOTHING:
        return name_type(mine), show(expected)
    if stage is Stage.WRONG_SHAPE:
        return name_type(mine), f"shape {tuple(expected['shape'])}"
    if stage is Stage.WRONG_DTYPE:
        return f"a tensor of dtype {mine['dtype']}", expected["dtype"]
    if mine.get("value") == "generator" and expected["type"] == "context manager":
        return GENERATOR_FOR_CONTEXT, name_type(expected)
    return name_type(mine), name_type(expected)


def _tell_two_values(mine: Plain, expected: Plain) -> str:
    """Two values of the same kind; of a large tensor the first number that differs."""
    if mine["type"] != "tensor" or len(mine["values"]) <= MAX_SHOWN:
        return f"{show(mine)}; expected {show(expected)}"
    pairs = list(zip(mine["values"], expected["values"], strict=True))
    number = next(number for number, pair in enumerate(pairs) if not close(*pair))
    came, wanted = map(number_text, pairs[number])
    return f"{came} at {find_place(number, mine['shape'])}; expected {wanted} there"
