"""Bar charts as SVG, in words and numbers too: the same text on every machine, readable on any page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from course_utils.explorers.svg import SANS
from course_utils.vision.pictures import Picture, figure_with_alt

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


# --- the three rules on three units -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RulesPicture:
    """Three units and what goes back through them by each rule: `svg` is the picture, `str()` the same as text."""

    outputs: tuple[float, ...]
    arriving: tuple[float, ...]
    title: str

    @property
    def passed(self) -> dict[str, tuple[float, ...]]:
        """What each rule lets through each unit."""
        return {
            rule: tuple(r if passes(f, r) else 0.0 for f, r in zip(self.outputs, self.arriving, strict=True))
            for rule, passes in _PASSES.items()
        }

    @property
    def svg(self) -> str:
        """A table of boxes: a row for each unit, a column for each rule, an open or a closed gate in each."""
        height = 92 + 56 * len(self.outputs)
        title = escape(self.title)
        head = "".join(
            f'<text x="{x}" y="56" font-size="14" font-weight="600">{rule}</text>'
            f'<text x="{x}" y="74" font-size="12">{escape(words)}</text>'
            for x, (rule, words) in zip(_COLUMNS, _WORDS.items(), strict=True)
        )
        rows = "".join(
            _draw_unit(92 + 56 * n, n + 1, f, r)
            for n, (f, r) in enumerate(zip(self.outputs, self.arriving, strict=True))
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" width="680" height="{height}" '
            f'role="img" aria-label="{title}" fill="currentColor" stroke-width="2" font-family="{_SANS}" '
            f'style="max-width:100%;height:auto;color:var(--jp-ui-font-color1, currentColor)"><title>{title}</title>'
            f"<desc>{escape(str(self))}</desc>"
            f'<text x="0" y="20" font-size="16" font-weight="600">{title}</text>{head}{rows}</svg>'
        )

    def __str__(self) -> str:
        lines = [self.title, "  unit  puts out f  arriving R  " + "  ".join(f"{rule:>9}" for rule in self.passed)]
        for n, (f, r) in enumerate(zip(self.outputs, self.arriving, strict=True)):
            found = "  ".join(f"{passed[n]:9g}" for passed in self.passed.values())
            lines.append(f"  {n + 1:4}  {f:10g}  {r:10g}  {found}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self.svg}


_PASSES: Mapping[str, Callable[[float, float], bool]] = {
    "backprop": lambda f, r: f > 0,
    "deconvnet": lambda f, r: r > 0,
    "guided": lambda f, r: f > 0 and r > 0,
}
_WORDS = {"backprop": "opens where f > 0", "deconvnet": "opens where R > 0", "guided": "opens where both are"}
_COLUMNS = (230, 384, 538)
_SANS = "var(--jp-ui-font-family, system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif)"
# Middle tones with a contrast above 3 on white and on #111; shape and words say the same as they do.
_OPEN, _CLOSED = "#3f82d8", "#b5651d"


def draw_rules(outputs: tuple[float, ...], arriving: tuple[float, ...], title: str) -> RulesPicture:
    """Return the picture of units that put out `outputs` in forward and get the gradients `arriving` in backward.

    Raises ValueError unless there are as many of the one as of the other, and at least one.
    """
    if len(outputs) != len(arriving) or not outputs:
        raise ValueError(f"each unit has an output and a gradient, got {len(outputs)} and {len(arriving)}")
    return RulesPicture(tuple(outputs), tuple(arriving), title)


def _draw_unit(y: int, number: int, f: float, r: float) -> str:
    """One row: the unit with its two numbers, then a gate for each rule with what comes out of it."""
    text = (
        f'<circle cx="20" cy="{y + 20}" r="17" fill="none" stroke="currentColor"/>'
        f'<text x="20" y="{y + 25}" font-size="14" text-anchor="middle">{number}</text>'
        f'<text x="50" y="{y + 16}" font-size="14">put out f = {f:g}</text>'
        f'<text x="50" y="{y + 35}" font-size="14">arriving R = {r:g}</text>'
    )
    for x, passes in zip(_COLUMNS, _PASSES.values(), strict=True):
        is_open = passes(f, r)
        colour = _OPEN if is_open else _CLOSED
        inside = (
            f'<path d="M{x + 8} {y + 20} h26 m-8 -7 l8 7 l-8 7" fill="none" stroke="{colour}"/>'
            if is_open
            else f'<path d="M{x + 12} {y + 11} l18 18 m0 -18 l-18 18" fill="none" stroke="{colour}"/>'
        )
        text += (
            f'<rect x="{x}" y="{y + 2}" width="42" height="36" rx="6" fill="none" stroke="{colour}"/>{inside}'
            f'<text x="{x + 52}" y="{y + 26}" font-size="18" font-weight="600">{r if is_open else 0:g}</text>'
        )
    return text


# --- the randomisation check ------------------------------------------------------------------------------------------

# Okabe & Ito's colours for readers of all kinds of colour vision; the line's style and its label say the same.
_LINES = (("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-."), ("#222222", "D", ":"))


def draw_cascade(layers: Sequence[str], curves: Mapping[str, Sequence[float]], title: str, alt: str) -> Picture:
    """Draw how the similarity with the original map falls, one labelled line a method, one step a layer.

    layers: the name of the layer that became random at each step. curves: for each method a similarity for each step,
        at most 1. Raises ValueError for a curve of another length, or more than four of them.
    """
    if len(curves) > len(_LINES):
        raise ValueError(f"at most {len(_LINES)} curves can be told apart, got {len(curves)}")
    for method, values in curves.items():
        if len(values) != len(layers):
            raise ValueError(f"{method} has {len(values)} values for {len(layers)} layers")
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(figsize=(8.2, 4.2))
    for (method, values), (colour, marker, style) in zip(curves.items(), _LINES, strict=False):
        axes.plot(values, color=colour, marker=marker, linestyle=style, linewidth=2, label=method)
    axes.axhline(0, color="#888888", linewidth=1)
    axes.set_xticks(range(len(layers)), layers)
    axes.set_xlabel("random, from the last layer down to")
    axes.set_ylabel("rank correlation with the original map")
    axes.set_title(title, loc="left", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3)
    return figure_with_alt(drawing, alt)
