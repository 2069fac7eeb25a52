"""Bar charts as SVG, in words and numbers too: the same text on every machine, readable on any page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from course_utils.svg import SANS

WIDTH = 680
BAR_WIDTH = 560  # the longest bar; its value stands to the right of it
TOP = 44
ROW = 48
BAR_HEIGHT = 16
# A middle tone with a contrast above 3 on white and on #111. It colours the bars only: text is `currentColor`.
BAR = "#3f82d8"


@dataclass(frozen=True)
class Bars:
    """A horizontal bar chart. Shows itself in a notebook; `svg` is the picture, `str()` the same numbers as text."""

    values: tuple[float, ...]
    labels: tuple[str, ...]
    title: str
    unit: str
    alt: str

    @property
    def svg(self) -> str:
        """The picture: a title, then for each value its label above a bar, and the number at the bar's end."""
        height = TOP + ROW * len(self.values)
        longest = max(self.values)
        rows = "".join(
            _draw_row(TOP + ROW * index, label, BAR_WIDTH * value / longest if longest else 0.0, self._amount(value))
            for index, (label, value) in enumerate(zip(self.labels, self.values, strict=True))
        )
        title = escape(self.title)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-label="{title}" font-family="{SANS}" fill="currentColor" '
            f'style="max-width:100%;height:auto;color:var(--jp-ui-font-color1, currentColor)">'
            f"<title>{title}</title><desc>{escape(self.alt)}</desc>"
            f'<text x="0" y="22" font-size="16" font-weight="600">{title}</text>{rows}</svg>'
        )

    def _amount(self, value: float) -> str:
        return f"{_number(value)} {self.unit}".rstrip()

    def __str__(self) -> str:
        wide = max(map(len, self.labels))
        lines = (
            f"  {label:<{wide}}  {self._amount(value)}" for label, value in zip(self.labels, self.values, strict=True)
        )
        return "\n".join([self.title, *lines])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self.svg}


def bars(values: Sequence[float], labels: Sequence[str], title: str, unit: str = "", alt: str = "") -> Bars:
    """Return a bar chart of `values`, one bar a label, from 0 to the largest.

    `title` states the finding; `unit` follows each number; `alt` describes the picture for who cannot see it (without
    it, the labels and numbers in a row do). Raises `ValueError` unless there is one label a value, at least one of
    them, and every value is finite and not negative.
    """
    values, labels = tuple(map(float, values)), tuple(map(str, labels))
    if len(values) != len(labels):
        raise ValueError(f"{len(values)} values with {len(labels)} labels: give each value one label")
    if not values:
        raise ValueError("there are no values: a chart needs at least one")
    for value, label in zip(values, labels, strict=True):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"the value of {label!r} is {value:g}: a bar's length must be finite and not negative")
    if not title.strip():
        raise ValueError("the title is empty: say in it what the chart shows")
    amounts = (f"{label}: {_number(value)} {unit}".rstrip() for value, label in zip(values, labels, strict=True))
    return Bars(values, labels, title, unit, alt or "; ".join(amounts) + ".")


def _draw_row(y: int, label: str, length: float, amount: str) -> str:
    """Draw one bar under its label. A bar of no length keeps a thin line, so that its row is seen to be there."""
    length = round(max(length, 1.0), 1)
    return (
        f'<text x="0" y="{y + 14}" font-size="14">{escape(label)}</text>'
        f'<rect x="0" y="{y + 20}" width="{length:g}" height="{BAR_HEIGHT}" rx="2" fill="{BAR}"/>'
        f'<text x="{round(length + 8, 1):g}" y="{y + 33}" font-size="14" font-weight="600">{escape(amount)}</text>'
    )


def _number(value: float) -> str:
    """Write a number with 4 significant digits; whole numbers below a million in full."""
    return f"{value:.0f}" if value == round(value) and value < 1e6 else f"{value:.4g}"
