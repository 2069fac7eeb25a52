"""Questions about a learner's answer as it is: in which order its lines run, and how often its hooks do."""

import itertools
import re
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from course_utils.exercises.divergence import times
from course_utils.exercises.events import Event, record_run
from course_utils.exercises.evidence import codes_of, with_inner
from course_utils.exercises.plain import show
from course_utils.exercises.question import MOST_OPTIONS, SECONDS_FOR_A_CASE, Question, Subject, shuffle
from course_utils.exercises.recorded import VISIBLE_SEED

LONGEST_VALUE = 24  # characters of what a hook receives


# --- in which order do these lines run? -------------------------------------------------------------------------------


def ask_order(subject: Subject) -> Question | None:
    """In which order some lines run for the first time, where it is not that in which they are written."""
    at = next(iter(subject.cases), None)
    lines = _trace_lines(subject, at) if at is not None and len(codes_of(subject.answer)) == 1 else {}
    in_call, later = ([line for line in lines if lines[line] is after] for after in (False, True))
    later = later if subject.source.stand_together(later[:2]) else later[:1]  # which way was taken, nobody can know
    true = [*in_call[-2:], *later[:2]]
    texts = {line: f"line {line}: `{subject.source.text(line)}`" for line in sorted(true)}
    key = f"order of {' '.join(subject.source.text(line) for line in texts)}"
    if not later or len(true) < 3 or true == [*texts] or key in subject.asked or _trace_lines(subject, at) != lines:
        return None
    text = "\n".join(["These are some lines of your code:", *texts.values()])
    text += f"\nIn which order do they run for the first time in this case: {subject.tell_case(at)}?"
    answer = _list_lines(true)
    others = shuffle([_list_lines(each) for each in itertools.permutations(true)], text)
    wrong = [each for each in dict.fromkeys([_list_lines([*texts]), *others]) if each != answer]
    options = shuffle([answer, *wrong[: MOST_OPTIONS - 1]], text)
    reason = _tell_order(in_call[-2:], later[:2])
    return Question(subject.exercise.name, key, text, tuple(options), answer, lambda: reason)


def _trace_lines(subject: Subject, at: int) -> dict[int, bool]:
    """The lines with a step of their own, in the order in which they run first: whether after the call."""
    codes, seen, calls, has_returned = {*with_inner(codes_of(subject.answer)[0])}, {}, 0, False

    def trace(frame: FrameType, event: str, _: Any) -> Callable | None:
        if frame.f_code not in codes:
            return None
        if event == "line":
            seen.setdefault(frame.f_lineno, has_returned)
        return trace

    def traced(*given: Any) -> Any:
        nonlocal has_returned, calls
        calls += 1
        sys.settrace(trace)  # it stays on, for the hooks
        try:
            return subject.answer(*given)
        finally:
            has_returned = True

    before = sys.gettrace()
    try:
        subject.exercise.observe(traced, VISIBLE_SEED, SECONDS_FOR_A_CASE, at)
    finally:
        sys.settrace(before)
    if calls > 1:  # the case goes on with what the one before has left
        return {}
    return {line: after for line, after in seen.items() if line in subject.source.steps}


def _list_lines(lines: Sequence[int]) -> str:
    return f"Line {', then line '.join(map(str, lines))}."


def _tell_order(in_call: Sequence[int], later: Sequence[int]) -> str:
    first = "Lines {} and {} ran".format(*in_call) if len(in_call) > 1 else f"Line {in_call[0]} ran"
    second = "lines {} and {} ran".format(*later) if len(later) > 1 else f"line {later[0]} ran"
    return f"{first} before your function returned; {second} only later."


# --- how often do your hooks run, and with what? ----------------------------------------------------------------------


def ask_count(subject: Subject) -> Question | None:
    """How often the answer's hooks run in a part of a case, and what the first of them receives.

    What torch puts around a hook for several tensors is recorded as the learner's own, so it is not counted; and
    whether what `retain_grad` sets up counts as a hook, nobody can know.
    """
    if any(re.search("register_multi_grad_hook|retain_grad", line) for line in subject.source.lines):
        return None
    for at in subject.cases[:1]:  # a record takes several times as long as a run
        try:
            _, run = record_run(subject.exercise.make_cases, subject.answer, VISIBLE_SEED, SECONDS_FOR_A_CASE, at)
        except IndexError:  # there was not time enough
            return None
        for part, words in enumerate(run["parts"]):
            here = [event for event in run["events"] if event["what"] == "runs" and event["part"] == part]
            if len(here) > 1 and (question := _word_count(subject, here, words, at)):
                return question
    return None


def _word_count(subject: Subject, runs: Sequence[Event], part: str, at: int) -> Question | None:
    number, received = len(runs), [show(event["got"]) for event in runs]
    key = f"how often {part}"
    others = [each for each in received if each != received[0]]
    if key in subject.asked or not others or max(map(len, received)) > LONGEST_VALUE:
        return None
    text = f"How often in all do the hooks that your code registers run {part}, in this case: {subject.tell_case(at)}?"
    if received[0] in subject.tell_case(at):
        pairs = [(number, received[0]), (number, others[-1]), (number - 1, received[0]), (number + 1, others[-1])]
        options = [f"{times(count).capitalize()}, and first they receive {value}." for count, value in pairs]
        text += "\nAnd what does the first of these runs receive?"
    else:
        options = [f"{times(count).capitalize()}." for count in (number, number - 1, number + 1, 2 * number)]
    reason = f"The record says that {part} they received, one after the other: {'; '.join(received).rstrip('.')}."
    return Question(subject.exercise.name, key, text, tuple(shuffle(options, text)), options[0], lambda: reason)
