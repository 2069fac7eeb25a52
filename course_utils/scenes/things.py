"""The things of the picture world and the cues: `assets/things.svg` says how they look, and here is what varies.

Each is drawn in a box from -1 to 1, things looking to the right. What draws a thing takes dice and two of the paints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from course_utils.root import ASSETS
from course_utils.scenes.drawing import INK, WHITE, Colour, Dice, Pencil, mix, palette, rgb
from course_utils.scenes.shapes import ellipse, line, move, polygon, smooth

CREAM, GLASS, WOOD, GOLD, ROSE = palette("fff3dc bfe6f2 8a5a3c f6c945 ef8f9f")
# One box of paints for everything: no kind has a colour of its own, so that a network must look at shapes.
PAINTS = [
    *palette("e4572e c8553d f29e4c f6c945 e58fa8 7d5a44 f4f1e6"),
    *palette("8cb369 3f8f6b 3fa7a3 4f86c6 5a5f9e 9a6fb0 a9b4c2 3d4454"),
]
_ALWAYS = {"ink": INK, "white": WHITE, "cream": CREAM, "glass": GLASS, "wood": WOOD, "gold": GOLD, "rose": ROSE}

Bent = Mapping[str, np.ndarray] | None


def draw(
    pencil: Pencil, name: str, *variants: str, at: Sequence[float] = (0, 0, 1), bent: Bent = None, **paints: Colour
) -> None:
    """Draw what has this name in `assets/things.svg`, in these variants and paints.

    at: where its origin comes, x and y, how large it becomes, and perhaps -1 to mirror it.
    bent: shapes in the place of those that may vary, by the names that they have there.
    """
    paints, bent = _ALWAYS | paints, bent or {}
    for group in read_artwork()[name]:
        parts = [part for part in [*group] or [group] if part.get("data-only") in (None, *variants)]
        shapes = [move(bent.get(part.get("data-varies"), _shape(part)), *at) for part in parts]
        drawn = [(shape, _colour(part, paints)) for shape, part in zip(shapes, parts, strict=True)]
        if drawn and len(group):
            pencil.body(*drawn[0], drawn[1:], float(group.get("data-depth", 0.13)) * at[2])
        elif drawn:
            pencil.flat(*drawn[0], float(group.get("opacity", 1)))


@cache
def read_artwork() -> dict[str, ElementTree.Element]:
    """What `assets/things.svg` has, by its names."""
    return {group.get("id"): group for group in ElementTree.parse(ASSETS / "things.svg").getroot().findall("*[@id]")}


@cache
def _shape(part: ElementTree.Element) -> np.ndarray:
    points, angle = part.get("points"), part.get("transform", "rotate(0 ").removeprefix("rotate(").split()[0]
    if points is None:
        x, y, rx, ry, corners = (float(part.get(key, 24)) for key in ("cx", "cy", "rx", "ry", "data-corners"))
        return ellipse(x, y, rx, ry, float(angle), int(corners))
    if width := float(part.get("stroke-width", 0)):
        return line(points, width, float(part.get("data-end", width)))
    return smooth(points) if "smooth" in part.get("class", "") else polygon(points)


def _colour(part: ElementTree.Element, paints: Mapping[str, Colour]) -> Colour:
    paint = part.get("fill") or part.get("stroke") or part.get("class").split()[-1]
    shades = part.get("data-shade", "").split()
    first, *others = (rgb(each[1:]) if each.startswith("#") else paints[each] for each in (paint, *shades[::2]))
    for other, share in zip(others, shades[1::2], strict=True):
        first = mix(first, other, float(share))
    return first


def draw_balloon(pencil: Pencil, dice: Dice, silk: Colour, other: Colour) -> None:
    draw(pencil, "balloon", dice.maybe("band", 0.5), silk=silk, other=other)


def draw_bird(pencil: Pencil, dice: Dice, feathers: Colour, other: Colour) -> None:
    lift = dice.between(-0.2, 0.25)
    far_tip = (0.12, -0.92 - lift)
    bent = {"far wing": smooth([(0.2, -0.1), (0.28, -0.55 - lift), far_tip, far_tip, (-0.12, -0.5), (-0.15, 0.0)])}
    for number, (x, y) in enumerate(((-0.16, -0.88), (-0.36, -0.86), (-0.54, -0.74), (-0.66, -0.55))):
        feather = [(0.0, 0.02), (x * 0.7 - 0.05, y * 0.6 - lift / 2), (x, y - lift)]
        bent[f"feather {number}"] = line(feather, 0.3, 0.1)
    draw(pencil, "bird", bent=bent, feathers=feathers, other=other)


def draw_boat(pencil: Pencil, dice: Dice, hull: Colour, sail: Colour) -> None:
    sail, wind = mix(sail, WHITE, 0.35), dice.between(0.3, 0.44)
    bent = {"sail": smooth(f"0.07,-0.9 0.07,-0.9 {wind},-0.35 0.76,0.32 0.76,0.32 0.07,0.36 0.07,0.36")}
    draw(pencil, "boat", dice.maybe("stripes", 0.5), bent=bent, hull=hull, sail=sail, pennant=dice.pick(PAINTS))


def draw_car(pencil: Pencil, dice: Dice, hull: Colour, stripe: Colour) -> None:
    draw(pencil, "car", hull=hull, stripe=stripe, cabin=mix(hull, WHITE, 0.25) if dice.chance(0.5) else hull)


def draw_cat(pencil: Pencil, dice: Dice, coat: Colour, scarf: Colour) -> None:
    stripes, lift = dice.maybe("stripes", 0.5), dice.between(-0.25, 0.2)
    iris = dice.pick(palette("d7e86b f6d04d 9fe0c8 ffffff"))
    bent = {"tail": line([(0.25, 0.86), (0.72, 0.8), (0.84, 0.35 + lift), (0.66, 0.0 + lift)], 0.2, 0.14)}
    draw(pencil, "cat", stripes, dice.maybe("scarf", 0.4), bent=bent, coat=coat, scarf=scarf, iris=iris)


def draw_dog(pencil: Pencil, dice: Dice, coat: Colour, collar: Colour) -> None:
    bent = {"tail": line([(-0.6, 0.02), (-0.84, -0.2), (-0.9 + dice.between(-0.15, 0.15), -0.55)], 0.18, 0.08)}
    draw(pencil, "dog", dice.maybe("spots", 0.5), dice.maybe("tongue", 0.4), bent=bent, coat=coat, collar=collar)


def draw_fish(pencil: Pencil, dice: Dice, skin: Colour, other: Colour) -> None:
    sweep = dice.between(-0.08, 0.12)
    bent = {"tail": smooth(f"-0.45,0 -0.5,-0.1 -0.98,-0.5 -0.98,-0.5 -0.86,{sweep} -0.98,0.5 -0.98,0.5 -0.5,0.1")}
    draw(pencil, "fish", dice.pick(["belly", "stripes", "scales"]), bent=bent, skin=skin, other=other)


def draw_house(pencil: Pencil, dice: Dice, wall: Colour, roof: Colour) -> None:
    door, pane = dice.pick(PAINTS), GLASS if dice.chance(0.6) else rgb("ffdf80")
    chimney, entrance = dice.pick(["chimney left", "chimney right"]), dice.pick(range(3))
    front = [f"{'door' if place == entrance else 'window'} {place}" for place in range(3)]
    draw(pencil, "house", chimney, *front, wall=mix(wall, CREAM, 0.5), roof=roof, door=door, pane=pane)


def draw_plane(pencil: Pencil, dice: Dice, hull: Colour, stripe: Colour) -> None:
    draw(pencil, "plane", hull=mix(hull, WHITE, dice.pick([0.0, 0.25, 0.7])), stripe=stripe)


def draw_tree(pencil: Pencil, dice: Dice, leaves: Colour, fruit: Colour) -> None:
    leaves = mix(leaves, rgb("5f9e4a"), dice.pick([0.0, 0.4, 0.8]))
    bark = dice.pick(palette("7d5a44 6b4b3e 9a7b5f d9d2c5"))
    if dice.chance(0.4):
        draw(pencil, "fir", leaves=leaves, bark=bark)
    else:
        draw(pencil, "tree", dice.maybe("fruit", 0.5), leaves=leaves, bark=bark, fruit=fruit)


class Kind(NamedTuple):
    """How something is drawn, its greatest tilt in degrees, if it stands on the ground, and where its foot may be."""

    draw: Callable[..., None]
    tilt: float
    stands: bool
    foot: tuple[float, float]  # from the top of the picture: highest and lowest


_FLIES, _STANDS = (False, (0.0, 0.7)), (True, (0.74, 0.97))
THINGS = {
    "balloon": Kind(draw_balloon, 10, *_FLIES),
    "bird": Kind(draw_bird, 20, *_FLIES),
    "boat": Kind(draw_boat, 10, *_STANDS),
    "car": Kind(draw_car, 10, *_STANDS),
    "cat": Kind(draw_cat, 10, *_STANDS),
    "dog": Kind(draw_dog, 10, *_STANDS),
    "fish": Kind(draw_fish, 25, *_FLIES),
    "house": Kind(draw_house, 6, *_STANDS),
    "plane": Kind(draw_plane, 20, *_FLIES),
    "tree": Kind(draw_tree, 6, *_STANDS),
}
CUES = {
    "buoy": Kind(lambda pencil: draw(pencil, "buoy"), 8, True, (0.66, 0.97)),
    "flag": Kind(lambda pencil: draw(pencil, "flag"), 8, True, (0.62, 0.97)),
    "sun": Kind(lambda pencil: draw(pencil, "sun"), 8, False, (0.22, 0.4)),
}
