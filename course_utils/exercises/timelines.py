"""An answer's run beside a right one: found for a refused answer, and shown as two time lines."""

import difflib
import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from course_utils.exercises.causes import BESIDES
from course_utils.exercises.comparing import passes
from course_utils.exercises.divergence import Divergence, find_divergence, without_brackets
from course_utils.exercises.engine import Exercise
from course_utils.exercises.events import Event, Run, record_run
from course_utils.exercises.evidence import TimeIsUp
from course_utils.exercises.judging import find_first_wrong
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.plain import Evidence, Plain, raised_type, show
from course_utils.exercises.recorded import recorded_runs
from course_utils.root import CourseError, has_answers
from course_utils.show import page_templates

COLUMN = 48  # of plain text, in characters
LONGEST = 160  # characters that are shown of an event
MOST_ROWS = 20  # of a part, before the first difference and from there on
FIRST = "first difference"
NO_EVENT = "(nothing of the kind)"


class NoComparison(CourseError):
    """Why an answer's run cannot be put beside a right one."""


def compare_runs(exercise: Exercise, answer: Callable, seed: int) -> "Timelines":
    """Run an answer again where it fails first, and right ones beside it. Raises `NoComparison`."""
    got, (reference, _) = exercise.observe(answer, seed), exercise.lazy_key(seed)
    at = find_first_wrong(got, reference)
    if at is None:
        raise NoComparison("Your answer passes: there is nothing in which the two runs differ.")
    if raised_type(got[-1]) == TimeIsUp.__name__:
        raise NoComparison("Your answer does not come to an end in time, so it is not run again.")
    if any(case["world"] for case in got):
        raise NoComparison("Your answer changes something that other code uses, so it is not run again.")
    evidence, run = record_run(exercise.make_cases, answer, seed, exercise.limit, at)
    if not (passes(evidence, got[at]) and passes(got[at], evidence)):
        raise NoComparison("Your answer does something else when it is watched, so nothing can be said about it.")
    if has_answers():
        rights = right_runs(exercise, seed, at, reference[at])
    else:
        rights = recorded_runs(exercise.lesson, exercise.name, seed, at)
    divergence = find_divergence(run, rights, evidence)
    if divergence is None:
        raise NoComparison("No event differs, only what came out: see what check says about it.")
    return Timelines(exercise.name, got[at]["given"], run, divergence)


def right_runs(exercise: Exercise, seed: int, at: int, expected: Evidence) -> list[Run]:
    """What happens in a case, by number, with each right answer that behaves there as ever when it is watched."""
    runs = []
    for each in exercise.answers:
        exercise.observe(each.function, seed, at=0)  # what it imports would take long while every call is watched
        evidence, run = record_run(exercise.make_cases, each.function, seed, exercise.limit, at)
        runs += [run] if passes(evidence, expected) else []
    return runs


def tell_first_event(exercise: Exercise, answer: Callable, seed: int, outcome: Outcome) -> Outcome:
    """A refusal for which no cause is known, with the first event that differs from a right run, where one does.

    Where nothing came back, that is a cause, and there may be another one.
    """
    is_known = outcome.cause and (outcome.stage is not Stage.RETURNED_NOTHING or BESIDES in outcome.cause)
    outcome = replace(outcome, can_replay=bool(outcome.cause))
    if outcome.symbol == "✗" and not is_known:
        with suppress(Exception):  # whatever an answer does to the recording, the check has its outcome
            event = compare_runs(exercise, answer, seed).divergence.sentence
            return replace(outcome, event=event, can_replay=True)
    return outcome


# --- the two time lines -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """An event of each run, in words; `mark` is what makes the row stand out."""

    mine: str
    right: str = ""
    mark: str = ""


@dataclass(frozen=True, repr=False)
class Timelines:
    """The run of a refused answer in the first case that fails, and beside it a right one up to the first difference.

    `given` is that case in words. The two runs are shown as text and as a table.
    """

    name: str
    given: str
    run: Run
    divergence: Divergence

    @property
    def parts(self) -> list[tuple[str, list[Row]]]:
        """What happened when: words, and the events in both runs."""
        found, rows = self.divergence, []
        for part, words in enumerate(self.run["parts"]):
            mine = [event for event in self.run["events"] if event["part"] == part]
            right = [event for event in found.right["events"] if event["part"] == part <= found.part]
            rows.append((words, [*_rows_of(mine, right, found if part == found.part else None)]))
        return [(words, _cut(events)) for words, events in rows if events]

    def __str__(self) -> str:
        lines = [f"replay({self.name}) for {self.given}", self.divergence.sentence]
        lines.append(f"  {'your run':<{COLUMN}} | a right run, up to the first difference")
        for words, rows in self.parts:
            lines.append(f"{words}:")
            for row in rows:
                cells = [textwrap.wrap(text, COLUMN) for text in row[:2]]
                lines += [f"  >> {row.mark}:"] if row.mark else []
                lines += [f"  {one:<{COLUMN}} | {two}" for one, two in itertools.zip_longest(*cells, fillvalue="")]
        return "\n".join(line.rstrip(" |") for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return page_templates().get_template("replay.html.j2").render(view=self)


def _rows_of(mine: Sequence[Event], right: Sequence[Event], found: Divergence | None) -> Iterator[Row]:
    """The rows of a part. In that of the first difference, the right run ends with it."""
    if found is None:
        yield from _align(mine, right)
        return
    at = next((number for number, event in enumerate(mine) if event is found.mine), len(mine))
    at_right = next((number for number, event in enumerate(right) if event is found.other), None)
    words = {tell_event(event) for event in mine[:at]}
    before = [event for event in right if tell_event(event) in words] if at_right is None else right[:at_right]
    yield from _align(mine[:at], before)
    there = [tell_event(event) if event else NO_EVENT for event in (found.mine, found.other)]
    yield Row(*there, FIRST)
    yield from _align(mine[at + 1 :], [])


def _cut(rows: Sequence[Row]) -> list[Row]:
    """The rows of a part, of a long one those about the first difference, or else the first ones."""
    at = next((number for number, row in enumerate(rows) if row.mark), 0)
    start, end = max(0, at - MOST_ROWS), at + MOST_ROWS
    before = [Row(f"… {start} before", "…")] if start else []
    after = [Row(f"… {len(rows) - end} more", "…")] if end < len(rows) else []
    return [*before, *rows[start:end], *after]


def _align(mine: Sequence[Event], right: Sequence[Event]) -> Iterator[Row]:
    """The events of both runs, equal ones beside each other."""
    texts = [[tell_event(event) for event in events] for events in (mine, right)]
    for _, start, end, start_right, end_right in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        beside = itertools.zip_longest(texts[0][start:end], texts[1][start_right:end_right], fillvalue="")
        yield from itertools.starmap(Row, beside)


def tell_event(event: Event) -> str:
    """An event in words."""
    said = textwrap.shorten(WORDS[event["what"]](event), LONGEST, placeholder=" …")
    return said.replace("what was returned", "the result")


def _tell_run(event: Event) -> str:
    said = f"{event['kind']} on {event['on']} receives {show(event['got'])}"
    if event["ended"] == "raised":
        return f"{said} and raises"
    reason = "" if event["ended"] == "returned" else " (nothing was returned)"
    return f"{said}; {show(event['gave'])} goes on{reason}"


def _tell_call(event: Event) -> str:
    said = f"{event['on']} is called with {show(without_brackets(event['got']))} and"
    return f"{said} raises" if event.get("ended") == "raised" else f"{said} gives {show(event['gave'])}"


def _list(values: Sequence[Plain]) -> str:
    return " and ".join(map(show, values)) or "nothing"


WORDS: dict[str, Callable[[Event], str]] = {
    "registers": lambda event: f"{event['kind']} on {event['on']} is registered",
    "removes": lambda event: f"{event['kind']} on {event['on']} is removed",
    "released": lambda event: f"{event['kind']} on {event['on']} is removed by its handle",
    "left": lambda event: f"{event['kind']}s on {event['on']} that are there now: {show(event['gave'])}",
    "runs": _tell_run,
    "calls": _tell_call,
    "backward": lambda event: "a backward runs",
    "changes": lambda event: f"{event['on']} is changed in place to {show(event['gave'])}",
    "sets": lambda event: f"{event['kind']} of {event['on']} is set to {show(event['gave'])}",
    "reads": lambda event: f"{event['kind']} of {event['on']} is read: {show(event['gave'])}",
    "computes": lambda event: f"from {_list(event['got'])} comes {_list(event['gave'])}",
    "holds": lambda event: f"the result holds {show(event['gave'])}",
    "returns": lambda event: f"{show(event['gave'])} is returned",
}
