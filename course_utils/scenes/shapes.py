"""Curves and brush strokes as polygons, made of the numbers that are the same on every machine (`drawing` says why).

Shapes are arrays of corners, (n, 2) float64, x to the right and y down; nobody writes to one. Functions that make one
take points as text, "x,y x,y …", or as pairs of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

Points = str | Sequence[tuple[float, float]]

# No value comes near a rounding tie, so that every C library's sine gives the same table.
_SINES = [round(math.sin(math.radians(degree)) * 4096) / 4096 for degree in range(360)]


def turn(degrees: float) -> tuple[float, float]:
    """Cosine and sine of an angle, rounded to whole degrees and 12 bits."""
    degree = round(degrees) % 360
    return _SINES[(degree + 90) % 360], _SINES[degree]


def ellipse(x: float, y: float, rx: float, ry: float | None = None, angle: float = 0, corners: int = 24) -> np.ndarray:
    """An ellipse (or circle) around (x, y), turned by `angle` degrees."""
    ry = rx if ry is None else ry
    cos, sin = turn(angle)
    across, down = _circle(corners)
    return np.stack([x + rx * across * cos - ry * down * sin, y + rx * across * sin + ry * down * cos], axis=1)


@lru_cache(maxsize=64)
def _circle(corners: int) -> np.ndarray:
    return np.array([turn(step * 360 / corners) for step in range(corners)]).T


def polygon(points: Points) -> np.ndarray:
    if isinstance(points, str):
        points = [tuple(map(float, point.split(","))) for point in points.split()]
    return np.array(points, dtype=np.float64)


def box(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return polygon([(left, top), (right, top), (right, bottom), (left, bottom)])


def smooth(points: Points) -> np.ndarray:
    """A closed curve through three points or more (Catmull-Rom); one given twice is a corner."""
    path = polygon(points)
    return _curve(np.concatenate([path[-1:], path, path[:2]]))


def move(shape: np.ndarray, x: float = 0.0, y: float = 0.0, size: float = 1.0, flip: int = 1) -> np.ndarray:
    """The shape made `size` times as large, mirrored where `flip` is -1, with its origin at (x, y)."""
    return shape * (size * flip, size) + (x, y)


def line(points: Points, width: float, end_width: float | None = None) -> np.ndarray:
    """A brush stroke along a smooth path, `width` wide at its start and `end_width` at its end."""
    path = polygon(points)
    if len(path) > 2:
        path = np.concatenate([_curve(np.concatenate([path[:1], path, path[-1:]])), path[-1:]])
    ahead = np.concatenate([path[1:], path[-1:]]) - np.concatenate([path[:1], path[:-1]])
    length = np.sqrt(ahead[:, 0] * ahead[:, 0] + ahead[:, 1] * ahead[:, 1])
    side = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1) / np.maximum(length, 1e-9)[:, None]
    share = np.arange(len(path)) / (len(path) - 1)
    half = (width + ((width if end_width is None else end_width) - width) * share)[:, None] / 2
    start, end = path[:1] - ahead[:1] / length[0] * half[0], path[-1:] + ahead[-1:] / length[-1] * half[-1]
    left, right = path + side * half, path - side * half
    return np.concatenate([start, left, end, right[::-1]])


def _curve(path: np.ndarray, steps: int = 5) -> np.ndarray:
    """From the second point up to the last but one, which is left out."""
    before, start, end, after = (path[step : len(path) - 3 + step, None] for step in range(4))
    t = (np.arange(steps) / steps)[None, :, None]
    curve = start + 0.5 * t * (
        (end - before) + t * ((2 * before - 5 * start + 4 * end - after) + t * (3 * (start - end) + after - before))
    )
    return curve[(start != end).any(axis=(1, 2))].reshape(-1, 2)  # a doubled point would make a small loop
