"""The check of lesson 09: where an answer fails, what was wanted and what came are drawn side by side."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields

from course_utils.exercises import check as ordinary_check
from course_utils.exercises.classroom import VISIBLE_SEED
from course_utils.exercises.comparing import alike, facts
from course_utils.exercises.engine import Exercise, find
from course_utils.exercises.outcome import Outcome
from course_utils.exercises.plain import MAX_SHOWN, Plain, number_text, show
from course_utils.root import has_answers

LESS, NONE, MORE = "#9ecae1", "#e8e8e8", "#fdbe85"  # below 0, 0, above 0: pale, for dark numbers on them
CELL = "display:inline-block;min-width:2.2em;margin:1px;padding:.1em .3em;text-align:center;color:#111;background:{}"
HEAD = ("", "wanted", "yours")


@dataclass(frozen=True)
class Pair:
    """One thing that counts in a case: words for it, what was wanted, what came."""

    words: str
    wanted: Plain
    got: Plain

    @property
    def mark(self) -> str:
        """What is said beside the two."""
        return "" if alike(self.got, self.wanted) else "differs"


@dataclass(frozen=True, repr=False)
class SideBySide(Outcome):
    """An outcome with the values of the first case that failed, which is described by `given`."""

    given: str = ""
    pairs: tuple[Pair, ...] = ()

    def __str__(self) -> str:
        rows = [HEAD, *((pair.words, show(pair.wanted), show(pair.got), pair.mark) for pair in self.pairs)]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ("  ".join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=False)) for row in rows)
        return "\n".join(
            [super().__str__(), f"  Side by side, for {self.given}", *(f"    {line}".rstrip() for line in lines)]
        )

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in (*HEAD, ""))
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(pair.words)}</th>'
            f"<td>{draw(pair.wanted)}</td><td>{draw(pair.got)}</td>"
            f"<td>{f'≠ {pair.mark}' if pair.mark else ''}</td></tr>"
            for pair in self.pairs
        )
        caption = f"Side by side, for {html.escape(self.given)}"
        return f"{super()._repr_html_()}<table><caption>{caption}</caption><tr>{head}</tr>{rows}</table>"


def draw(value: Plain) -> str:
    """A value as HTML: the numbers of a short tensor as boxes, coloured by their sign; anything else as text."""
    numbers = value.get("values", [])
    if value["type"] != "tensor" or len(numbers) > MAX_SHOWN or any(isinstance(each, str | bool) for each in numbers):
        return f"<code>{html.escape(show(value))}</code>"
    colours = [MORE if number > 0 else LESS if number < 0 else NONE for number in numbers]
    boxes = zip(colours, numbers, strict=True)
    return "".join(f'<span style="{CELL.format(colour)}">{number_text(number)}</span>' for colour, number in boxes)


def check(*answers: object) -> Outcome:
    """Check your answer to an exercise: `check(make_twelve)`, the function itself, without calling it. Never raises.

    Where it is wrong, the first inputs on which it fails are shown with what was wanted and what came.
    """
    outcome = ordinary_check(*answers)
    pair = _first_failure(find(outcome.exercise), answers[0]) if outcome.symbol == "✗" else None
    values = {field.name: getattr(outcome, field.name) for field in fields(Outcome)}
    return SideBySide(**values, given=pair[0], pairs=pair[1]) if pair else outcome


def _first_failure(exercise: Exercise, answer: object) -> tuple[str, tuple[Pair, ...]] | None:
    """The first visible case in which the answer gave another value, in words, and all its values; None without one."""
    known = exercise.observe(exercise.reference, VISIBLE_SEED) if has_answers() else exercise.key(VISIBLE_SEED)[0]
    for mine, expected in zip(exercise.observe(answer, VISIBLE_SEED), known, strict=False):
        if mine["raised"] or expected["raised"]:
            return None
        pairs: dict[str, Pair] = {}
        for words, got, wanted, stage in facts(mine, expected):
            if stage is None:
                pairs.setdefault(words.removesuffix(" was"), Pair(words.removesuffix(" was"), wanted, got))
        if any(pair.mark for pair in pairs.values()):
            return mine["given"], tuple(pair for pair in pairs.values() if pair.mark or pair.words in expected["seen"])
    return None
