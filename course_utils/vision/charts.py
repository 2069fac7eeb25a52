"""Charts with a finding as their title, as pictures with alt text; in plain text they are the same numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from course_utils.root import CourseError
from course_utils.vision.pictures import Picture, figure_with_alt

# Okabe & Ito's colours for readers of all kinds of colour vision; shape, line and words say the same as they do.
BLUE, ORANGE, GREEN, INK, GREY = "#0072B2", "#D55E00", "#009E73", "#1f1f1f", "#6f6f6f"


def bars(values: Sequence[float], labels: Sequence[str], title: str, unit: str = "", alt: str = "") -> Picture:
    """Draw a horizontal bar chart of `values`, one bar a label, from 0 to the largest.

    title: the finding. unit: follows each number. alt: what is to be seen, in a sentence; without it, the labels and
    numbers in a row. Raises `CourseError` unless each value has a label and is finite and not negative.
    """
    if not 0 < len(values) == len(labels):
        raise CourseError(f"a chart takes one label for each value, got {len(values)} values and {len(labels)} labels")
    if bad := [label for value, label in zip(values, labels, strict=True) if not 0 <= value < math.inf]:
        raise CourseError(f"the value of {bad[0]!r} is no length: a bar needs a finite number from 0 up")
    wide, lines = max(map(len, labels)), [title]
    shown = (f"{value:.0f}" if value == round(value) and value < 1e6 else f"{value:.4g}" for value in values)
    amounts = [f"{number} {unit}".rstrip() for number in shown]
    axes = canvas(6.8, 0.48 * len(values), title)
    axes.barh(range(len(values)), values, height=0.36, color=BLUE)
    for row, (value, label, amount) in enumerate(zip(values, labels, amounts, strict=True)):
        axes.text(0, row - 0.27, label, va="bottom", fontsize=10)
        axes.annotate(amount, (value, row), (6, 0), textcoords="offset points", va="center", weight="bold")
        lines.append(f"  {label:<{wide}}  {amount}")
    axes.set(xlim=(0, 1.22 * max(values) or 1), ylim=(len(values) - 0.78, -0.78))
    in_a_row = "; ".join(map(": ".join, zip(labels, amounts, strict=True)))
    return figure_with_alt(axes.figure, alt or f"{in_a_row}.", text="\n".join(lines))


def canvas(width: float, height: float, title: str) -> Any:
    """Return empty axes of a size in inches, without a frame, below their title."""
    from matplotlib.figure import Figure

    axes = Figure((width, height)).add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.set_title(title, loc="left", fontsize=12, weight="bold", color=INK, pad=12)
    return axes
