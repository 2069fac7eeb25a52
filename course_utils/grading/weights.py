"""A course's own marks, made from the scores: a template to copy.

`scores.csv` keeps what was seen. What it is worth, and what a late notebook loses, is for each course to say; so this
is a function to read, copy and change, and nothing calls it.

    python -m course_utils.grading submissions --report report
    python -c "from course_utils.grading.weights import *; print(marks(read_scores('report')))"
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def read_scores(report: str | Path) -> list[dict[str, Any]]:
    """The rows of `scores.json` in the report's folder."""
    return json.loads((Path(report) / "scores.json").read_text(encoding="utf-8"))["scores"]


def marks(
    scores: Sequence[Mapping[str, Any]],
    weights: Mapping[str, float] | None = None,
    days_late: Mapping[tuple[str, str], int] | None = None,
    loss_per_day: float = 0.1,
) -> dict[str, float]:
    """The mark of each student, from 0 to 100.

    Parameters
    ----------
    scores
        Rows with `student`, `lesson`, `exercise`, `points` and `possible`.
    weights
        What a point of an exercise counts, by the exercise's name; 1 for those that are not named.
    days_late
        Days by (student, lesson). Each takes `loss_per_day` of that lesson's points, down to nothing.
    """
    weights, days_late = weights or {}, days_late or {}
    earned: dict[str, float] = {}
    possible: dict[str, float] = {}
    for row in scores:
        student, weight = row["student"], weights.get(row["exercise"], 1.0)
        kept = max(0.0, 1.0 - loss_per_day * days_late.get((student, row["lesson"]), 0))
        earned[student] = earned.get(student, 0.0) + weight * kept * row["points"]
        possible[student] = possible.get(student, 0.0) + weight * row["possible"]
    return {name: 100 * earned[name] / possible[name] if possible[name] else 0.0 for name in earned}
