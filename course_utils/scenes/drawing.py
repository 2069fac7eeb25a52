"""Curves, brush strokes and a painter: polygons with soft edges, from corners to pixels.

Every picture is the same to the last bit on every machine: curves become polygons whose corners are rounded to 1/64 of
a pixel, and the share of a pixel that a polygon covers is counted in whole numbers. What is left (mixing colours) is
element-by-element `+ - * /` and `sqrt`, which IEEE 754 defines exactly; there is no sum of floats whose order could
differ, no matrix product, and sine and cosine come from a table rounded to 12 bits. Random numbers come from `Dice`.

Shapes are arrays of corners, (n, 2) float64, x to the right and y down. Functions that make one take points as text,
"x,y x,y …", or as pairs of numbers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

Colour = tuple[float, float, float]
Points = str | Sequence[tuple[float, float]]

# No value comes near a rounding tie, so that every C library's sine gives the same table.
_SINES = [round(math.sin(math.radians(degree)) * 4096) / 4096 for degree in range(360)]

_UNIT = 64  # corners are rounded to 1/64 of a pixel
_LINES = 8  # horizontal lines looked at in each row of pixels
_FULL = _UNIT * _LINES


class Dice:
    """Random choices that are the same on every machine and for every version of Python and NumPy.

    Only `random.Random.random()` is used: the one method whose sequence Python promises never to change. NumPy's
    generators and Python's own `choice`, `shuffle` or `gauss` may change their algorithm in any release.
    """

    def __init__(self, seed: int):
        self._random = random.Random(seed).random

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random()

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, options: Sequence):
        return options[int(self._random() * len(options))]

    def pick_two(self, options: Sequence) -> tuple:
        first = self.whole(0, len(options) - 1)
        second = self.whole(0, len(options) - 2)
        return options[first], options[second + (second >= first)]

    def split(self) -> Dice:
        """New dice, thrown independently of how often these are used later."""
        return Dice(int(self._random() * 2**53))


# --- colours ----------------------------------------------------------------------------------------------------------


def rgb(code: str) -> Colour:
    """The colour `"ff8800"` as three floats in [0, 1]."""
    red, green, blue = bytes.fromhex(code)
    return red / 255, green / 255, blue / 255


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """`first`, with `share` of it replaced by `second`."""
    red, green, blue = (a + (b - a) * share for a, b in zip(first, second, strict=True))
    return red, green, blue


def palette(codes: str) -> list[Colour]:
    return [rgb(code) for code in codes.split()]


WHITE, INK, NIGHT_BLUE = palette("ffffff 2b2440 1d1845")


# --- shapes -----------------------------------------------------------------------------------------------------------


def turn(degrees: float) -> tuple[float, float]:
    """Cosine and sine of an angle, rounded to whole degrees and 12 bits."""
    degree = round(degrees) % 360
    return _SINES[(degree + 90) % 360], _SINES[degree]


def ellipse(x: float, y: float, rx: float, ry: float | None = None, angle: float = 0, corners: int = 24) -> np.ndarray:
    """An ellipse (or circle) around (x, y), turned by `angle` degrees."""
    ry = rx if ry is None else ry
    cos, sin = turn(angle)
    across, down = _circle(corners)
    shape = np.empty((corners, 2))
    shape[:, 0] = x + rx * across * cos - ry * down * sin
    shape[:, 1] = y + rx * across * sin + ry * down * cos
    return shape


@lru_cache(maxsize=64)
def _circle(corners: int) -> np.ndarray:
    """Cosines and sines of as many directions, (2, corners)."""
    directions = np.array([turn(step * 360 / corners) for step in range(corners)]).T
    directions.flags.writeable = False
    return directions


@lru_cache(maxsize=512)
def _read(text: str) -> np.ndarray:
    """Points from text; a point that ends in "!" is there twice, which makes it a corner of a smooth curve."""
    words = [word.rstrip("!") for word in text.split() for _ in range(1 + word.endswith("!"))]
    points = np.array([[float(number) for number in word.split(",")] for word in words])
    points.flags.writeable = False  # the cache hands the same array to everyone
    return points


def polygon(points: Points) -> np.ndarray:
    return _read(points) if isinstance(points, str) else np.array(points, dtype=np.float64)


def box(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return polygon([(left, top), (right, top), (right, bottom), (left, bottom)])


def smooth(points: Points) -> np.ndarray:
    """A closed curve through three points or more (Catmull-Rom); one given twice, or "x,y!" in text, is a corner."""
    path = polygon(points)
    return _curve(np.concatenate([path[-1:], path[:-1]]), closed=True)


def move(shape: np.ndarray, x: float = 0.0, y: float = 0.0, size: float = 1.0, flip: int = 1) -> np.ndarray:
    """The shape made `size` times as large, mirrored where `flip` is -1, with its origin at (x, y)."""
    return shape * (size * flip, size) + (x, y)


def line(points: Points, width: float, end_width: float | None = None) -> np.ndarray:
    """A brush stroke along a smooth path, `width` wide at its start and `end_width` at its end."""
    path = polygon(points)
    if len(path) > 2:
        path = _curve(np.concatenate([path[:1], path, path[-1:]]), closed=False)
    ahead = np.concatenate([path[1:], path[-1:]]) - np.concatenate([path[:1], path[:-1]])
    length = np.sqrt(ahead[:, 0] * ahead[:, 0] + ahead[:, 1] * ahead[:, 1])
    side = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1) / np.maximum(length, 1e-9)[:, None]
    share = np.arange(len(path)) / (len(path) - 1)
    half = (width + ((width if end_width is None else end_width) - width) * share)[:, None] / 2
    start, end = path[:1] - ahead[:1] / length[0] * half[0], path[-1:] + ahead[-1:] / length[-1] * half[-1]
    left, right = path + side * half, path - side * half
    return np.concatenate([start, left, end, right[::-1]])


def _curve(path: np.ndarray, closed: bool, steps: int = 5) -> np.ndarray:
    count = len(path)
    if closed:
        path = np.concatenate([path, path[:3]])
    segments = count if closed else count - 3
    before, start, end, after = (path[step : step + segments, None] for step in range(4))
    t = (np.arange(steps) / steps)[None, :, None]
    curve = start + 0.5 * t * (
        (end - before) + t * ((2 * before - 5 * start + 4 * end - after) + t * (3 * (start - end) + after - before))
    )
    curve = curve[(start != end).any(axis=(1, 2))].reshape(-1, 2)  # a doubled point would make a small loop
    return curve if closed else np.concatenate([curve, path[-2:-1]])


# --- painting ---------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """One polygon of one colour; `inside` is the number of the part that it is cut to."""

    points: np.ndarray
    colour: Colour
    alpha: float = 1.0
    inside: int | None = None
    shift: float = 0.0  # moved towards the light (a share of the thing's size) and then turned inside out


class Pencil:
    """Collects the parts of a drawing, from back to front."""

    def __init__(self):
        self.parts: list[Part] = []

    def flat(self, shape: np.ndarray, colour: Colour, alpha: float = 1.0) -> None:
        self.parts.append(Part(shape, colour, alpha))

    def body(self, shape: np.ndarray, colour: Colour, marks: Sequence = (), depth: float = 0.13) -> None:
        """A solid part: its marks, (shape, colour) each, end at its border; the side away from the light is darker."""
        base = len(self.parts)
        self.parts.append(Part(shape, colour))
        self.parts.extend(Part(mark, tone, 1.0, base) for mark, tone in marks)
        self.parts.append(Part(shape, NIGHT_BLUE, 0.3, base, depth))
        self.parts.append(Part(shape, WHITE, 0.22, base, -depth / 2))

    def eye(self, x: float, y: float, radius: float, iris: Colour = WHITE) -> None:
        self.flat(ellipse(x, y, radius, radius * 1.15), iris)
        self.flat(ellipse(x + radius * 0.25, y, radius * 0.62, radius * 0.8), INK)
        self.flat(ellipse(x + radius * 0.45, y - radius * 0.35, radius * 0.25, corners=10), WHITE)


def cover(shapes: Sequence[np.ndarray], boxes: np.ndarray) -> list[np.ndarray]:
    """How much of each pixel each polygon covers.

    `shapes` are (n, 2) int64 corners in 1/64 pixel, `boxes` (S, 4) int64 windows in pixels (left, top, right, bottom).
    Returns one (bottom - top, right - left) int64 array per shape, from 0 to 512. Along each of 8 lines per row of
    pixels, a crossed edge adds its signed share to the pixel of the crossing and the rest to the next one; the running
    sum along the row is then the covered length. A line leaves a polygon as often as it enters it, so that each row's
    sum ends at 0 and one running sum serves all the shapes at once.
    """
    counts = np.array([len(shape) for shape in shapes])
    owner = np.repeat(np.arange(len(shapes)), counts)
    start = np.concatenate(shapes)
    ends = np.cumsum(counts)
    following = np.arange(1, len(start) + 1)
    following[ends - 1] = ends - counts
    left, top, right, bottom = boxes.T
    stride, height = right - left + 2, bottom - top
    offset = np.cumsum(stride * height) - stride * height

    (x0, y0), (x1, y1) = start.T, start[following].T
    lines0, lines1 = ((y + _LINES // 2 - 1) // _LINES for y in (y0, y1))  # the first line at or below each end
    first, last = np.minimum(lines0, lines1), np.maximum(lines0, lines1)
    first = np.maximum(first, top[owner] * _LINES)
    crossings = np.maximum(np.minimum(last, bottom[owner] * _LINES) - first, 0)

    edge = np.repeat(np.arange(len(start)), crossings)
    line_number = np.arange(len(edge)) + (first - np.cumsum(crossings) + crossings)[edge]
    down = line_number * (_UNIT // _LINES) + _UNIT // _LINES // 2 - y0[edge]
    x = x0[edge] + (x1 - x0)[edge] * down // (y1 - y0)[edge]
    part = owner[edge]
    x = np.minimum(np.maximum(x, left[part] * _UNIT), right[part] * _UNIT) - left[part] * _UNIT
    cell = offset[part] + (line_number // _LINES - top[part]) * stride[part] + x // _UNIT
    sign = np.where(y1 > y0, 1, -1)[edge]
    size = int(offset[-1] + stride[-1] * height[-1])
    rest = sign * (x % _UNIT)
    change = np.bincount(cell, sign * _UNIT - rest, size + 1) + np.bincount(cell + 1, rest, size + 1)
    covered = np.minimum(np.abs(np.cumsum(change.astype(np.int64))), _FULL)
    windows = (covered[o : o + h * s].reshape(h, s) for o, h, s in zip(offset, height, stride, strict=True))
    return [window[:, :-2] for window in windows]


class Sprite(NamedTuple):
    """A drawing as pixels: colour (already times alpha) and alpha, and where its corner lies in the picture."""

    colour: np.ndarray  # (3, h, w) float32
    alpha: np.ndarray  # (h, w) float32
    left: int
    top: int

    @property
    def bottom(self) -> int:
        """The first row of the picture below the drawing."""
        return self.top + len(self.alpha)


def paint(
    parts: Sequence[Part],
    scale: float,
    light: tuple[float, float] = (-0.6, -0.8),
    angle: float = 0.0,
    mirror: bool = False,
    stretch: float = 1.0,
    window: tuple[int, int, int, int] | None = None,
) -> Sprite:
    """Paint parts over one another: mirrored, stretched sideways, turned by `angle` degrees, one unit = `scale` pixels.

    `light` points to where the light comes from. `window` (left, top, right, bottom, in pixels) cuts the drawing. The
    sprite is as large as what is painted.
    """
    cos, sin = turn(angle)
    counts = np.array([len(part.points) for part in parts])
    x, y = np.concatenate([part.points for part in parts]).T
    x = x * (-stretch if mirror else stretch)
    shift = np.repeat([part.shift for part in parts], counts)
    across, down = x * cos - y * sin + shift * light[0], x * sin + y * cos + shift * light[1]
    corners = np.rint(np.stack([across, down], axis=1) * (scale * _UNIT)).astype(np.int64)
    ends = np.cumsum(counts)
    shapes = [corners[end - count : end] for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]
    lowest, highest = (least.reduceat(corners, ends - counts) for least in (np.minimum, np.maximum))
    boxes = np.concatenate([lowest // _UNIT, -(-highest // _UNIT)], axis=1)
    for number, part in enumerate(parts):
        if part.inside is not None:
            boxes[number] = boxes[part.inside]
    if window is not None:
        boxes[:, 0::2] = boxes[:, 0::2].clip(window[0], window[2])
        boxes[:, 1::2] = boxes[:, 1::2].clip(window[1], window[3])
    left, top, right, bottom = *boxes[:, :2].min(0).tolist(), *boxes[:, 2:].max(0).tolist()

    canvas = np.zeros((4, bottom - top, right - left), dtype=np.float32)
    colours = np.array([[*part.colour, 1.0] for part in parts], dtype=np.float32)[:, :, None, None]
    covered = [share.astype(np.float32) / np.float32(_FULL) for share in cover(shapes, boxes)]
    for part, colour, share, (x0, y0, x1, y1) in zip(parts, colours, covered, boxes.tolist(), strict=True):
        if part.shift:
            share = 1 - share
        if part.inside is not None:
            share = share * covered[part.inside]
        if part.alpha < 1:
            share = share * np.float32(part.alpha)
        region = canvas[:, y0 - top : y1 - top, x0 - left : x1 - left]
        region += (colour - region) * share
    return Sprite(canvas[:3], canvas[3], left, top)
