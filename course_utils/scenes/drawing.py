"""Dice, colours and a painter: polygons with soft edges, from corners to pixels.

Every picture is the same to the last bit on every machine: curves become polygons whose corners are rounded to 1/64 of
a pixel, and the share of a pixel that a polygon covers is counted in whole numbers. What is left is element-by-element
`+ - * /` and `sqrt`, which IEEE 754 defines exactly; sine and cosine come from a table rounded to 12 bits.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from course_utils.scenes.shapes import turn

Colour = tuple[float, float, float]

_UNIT = 64  # corners are rounded to 1/64 of a pixel
_LINES = 8  # horizontal lines looked at in each row of pixels
_FULL = _UNIT * _LINES


class Dice(random.Random):
    """Random choices that are the same on every machine and for every version of Python and NumPy.

    All are made of `random()`: the one method whose sequence Python promises never to change.
    """

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def maybe(self, word: str, probability: float) -> str:
        """The word with this probability, else none: ""."""
        return word if self.chance(probability) else ""

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, options: Sequence):
        return options[int(self.random() * len(options))]

    def pick_two(self, options: Sequence) -> tuple:
        first = self.whole(0, len(options) - 1)
        others = [*options[:first], *options[first + 1 :]]
        return options[first], self.pick(others)

    def split(self) -> Dice:
        """New dice, thrown independently of how often these are used later."""
        return Dice(int(self.random() * 2**53))


def rgb(code: str) -> Colour:
    """The colour `"ff8800"` as three floats in [0, 1]."""
    return tuple(value / 255 for value in bytes.fromhex(code))


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """`first`, with `share` of it replaced by `second`."""
    return tuple(a + (b - a) * share for a, b in zip(first, second, strict=True))


def palette(codes: str) -> list[Colour]:
    return [rgb(code) for code in codes.split()]


WHITE, INK, NIGHT_BLUE = palette("ffffff 2b2440 1d1845")


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


def cover(shapes: Sequence[np.ndarray], boxes: np.ndarray) -> list[np.ndarray]:
    """How much of each pixel each polygon covers.

    `shapes` are (n, 2) int64 corners in 1/64 pixel, `boxes` (S, 4) int64 windows in pixels (left, top, right, bottom).
    Returns one (bottom - top, right - left) int64 array per shape, from 0 to 512. Along each of 8 lines per row of
    pixels, a crossed edge adds its signed share to the pixel of the crossing and the rest to the next one; the running
    sum along the row is then the covered length. A line leaves a polygon as often as it enters it, so that each row's
    sum ends at 0 and one running sum serves all the shapes at once.
    """
    owner = np.repeat(np.arange(len(shapes)), [len(shape) for shape in shapes])
    start = np.concatenate(shapes)
    following = np.concatenate([part for shape in shapes for part in (shape[1:], shape[:1])])
    left, top, right, bottom = boxes.T
    stride, height = right - left + 2, bottom - top
    offset = np.cumsum(stride * height) - stride * height

    (x0, y0), (x1, y1) = start.T, following.T
    lines = (np.stack([y0, y1]) + _LINES // 2 - 1) // _LINES  # the first line at or below each end
    first, last = np.sort(lines.clip(top[owner] * _LINES, bottom[owner] * _LINES), axis=0)
    crossings = last - first

    edge = np.repeat(np.arange(len(start)), crossings)
    line_number = np.arange(len(edge)) + (first - np.cumsum(crossings) + crossings)[edge]
    down = line_number * (_UNIT // _LINES) + _UNIT // _LINES // 2 - y0[edge]
    x = x0[edge] + (x1 - x0)[edge] * down // (y1 - y0)[edge]
    part = owner[edge]
    x = x.clip(left[part] * _UNIT, right[part] * _UNIT) - left[part] * _UNIT
    cell = offset[part] + (line_number // _LINES - top[part]) * stride[part] + x // _UNIT
    sign = np.where(y1 > y0, 1, -1)[edge]
    size = int(offset[-1] + stride[-1] * height[-1])
    rest = sign * (x % _UNIT)
    change = np.bincount(cell, sign * _UNIT - rest, size + 1) + np.bincount(cell + 1, rest, size + 1)
    covered = np.minimum(np.abs(np.cumsum(change.astype(np.int64))), _FULL)
    return [covered[o : o + h * s].reshape(h, s)[:, :-2] for o, h, s in zip(offset, height, stride, strict=True)]


class Sprite(NamedTuple):
    """A drawing as pixels, and where its corner lies in the picture."""

    colour: np.ndarray  # (3, h, w) float32, already times alpha
    alpha: np.ndarray  # (h, w) float32
    left: int
    top: int

    @property
    def bottom(self) -> int:
        return self.top + len(self.alpha)

    @property
    def place(self) -> tuple[slice, slice]:
        """The rows and columns of the picture that it takes."""
        return slice(self.top, self.bottom), slice(self.left, self.left + self.alpha.shape[1])


def paint(
    parts: Sequence[Part],
    scale: float,
    light: tuple[float, float] = (-0.6, -0.8),
    angle: float = 0.0,
    stretch: float = 1.0,
    size: int | None = None,
) -> Sprite:
    """Paint parts over one another: stretched sideways, turned by `angle` degrees, one unit = `scale` pixels.

    A `stretch` below 0 mirrors. `light` points to where the light comes from. What lies outside a picture of `size` x
    `size` pixels is cut off. The sprite is as large as what is painted.
    """
    cos, sin = turn(angle)
    counts = np.array([len(part.points) for part in parts])
    x, y = np.concatenate([part.points for part in parts]).T
    x = x * stretch
    shift = np.repeat([part.shift for part in parts], counts)
    across, down = x * cos - y * sin + shift * light[0], x * sin + y * cos + shift * light[1]
    corners = np.rint(np.stack([across, down], axis=1) * (scale * _UNIT)).astype(np.int64)
    ends = np.cumsum(counts)
    shapes = [corners[end - count : end] for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]
    lowest, highest = (least.reduceat(corners, ends - counts) for least in (np.minimum, np.maximum))
    boxes = np.concatenate([lowest // _UNIT, -(-highest // _UNIT)], axis=1)
    boxes = boxes[[number if part.inside is None else part.inside for number, part in enumerate(parts)]]
    if size is not None:
        boxes = boxes.clip(0, size)
    left, top, right, bottom = *boxes[:, :2].min(0).tolist(), *boxes[:, 2:].max(0).tolist()

    canvas = np.zeros((4, bottom - top, right - left), dtype=np.float32)
    colours = np.array([[*part.colour, 1.0] for part in parts], dtype=np.float32)[..., None, None]
    covered = [share.astype(np.float32) / np.float32(_FULL) for share in cover(shapes, boxes)]
    for part, colour, share, (x0, y0, x1, y1) in zip(parts, colours, covered, boxes.tolist(), strict=True):
        if part.shift:
            share = 1 - share
        if part.inside is not None:
            share = share * covered[part.inside]
        region = canvas[:, y0 - top : y1 - top, x0 - left : x1 - left]
        region += (colour - region) * (share * np.float32(part.alpha))
    return Sprite(canvas[:3], canvas[3], left, top)
