"""The backgrounds of the picture world, in a box from 0 to 1, with the small objects that lie and grow in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from course_utils.scenes.drawing import INK, WHITE, Colour, Dice, Pencil, mix, palette, rgb
from course_utils.scenes.shapes import box, line, move, smooth
from course_utils.scenes.things import CREAM, GOLD, PAINTS, WOOD, draw


class Mood(NamedTuple):
    """The light of a picture: the sky's colours, and what the light does to all colours."""

    name: str
    high: Colour
    low: Colour
    tint: Colour


MOODS = [
    Mood("day", rgb("5aa9e0"), rgb("d4eff7"), (1.0, 1.0, 1.0)),
    Mood("morning", rgb("93c8f0"), rgb("ffe6d6"), (1.0, 0.98, 0.96)),
    Mood("evening", rgb("6f6bb0"), rgb("fdb98a"), (1.0, 0.9, 0.84)),
    Mood("night", rgb("1d2756"), rgb("5a6aa8"), (0.86, 0.89, 1.0)),
]


def draw_sky(pencil: Pencil, dice: Dice, mood: Mood, horizon: float, clouds: int) -> None:
    """Clouds, and at night stars and the moon, above the horizon."""
    if mood.name == "night":
        for _ in range(9):
            at = dice.between(0.02, 0.98), dice.between(0.02, horizon), dice.between(0.006, 0.016)
            draw(pencil, "star", at=at, star=CREAM)
        draw(pencil, "moon", at=(dice.between(0.08, 0.92), dice.between(0.08, 0.2), 1))
    white = mix(WHITE, mood.low, 0.55 if mood.name == "night" else 0.15)
    for _ in range(clouds):
        x, y, size = dice.between(0, 1), dice.between(0.06, horizon * 0.85), dice.between(0.08, 0.18)
        draw_cloud(pencil, x, y, size, white, 0.85)


def draw_high_sky(pencil: Pencil, dice: Dice, mood: Mood) -> None:
    draw_sky(pencil, dice, mood, 0.95, dice.whole(4, 6))
    if dice.chance(0.6):
        for depth, colour in ((0.86, "8fb3b8"), (0.93, "6f9f86")):
            peaks = [(step / 5, depth + dice.between(-0.04, 0.05)) for step in range(6)]
            hills = [(-0.1, 1.2), (-0.1, 1.2), (-0.1, depth), *peaks, (1.1, depth), (1.1, 1.2), (1.1, 1.2)]
            pencil.flat(smooth(hills), mix(rgb(colour), mood.low, 0.35))


def draw_water(pencil: Pencil, dice: Dice, mood: Mood) -> None:
    horizon = dice.between(0.3, 0.45)
    sea, deep = dice.pick([palette("6cc3cf 2f86ad"), palette("7fb4e0 3a68b0"), palette("8ed0b8 3c8f93")])
    draw_sky(pencil, dice, mood, horizon, dice.whole(1, 3))
    if dice.chance(0.6):
        draw(pencil, "island", at=(dice.between(0.1, 0.9), horizon, dice.between(0.12, 0.25)), low=mood.low)
    for step in range(6):
        top = horizon + (1 - horizon) * step / 6 * (0.7 + 0.3 * step / 6)
        height = 0.006 + 0.012 * step / 6 if step else 0  # of the waves; the horizon is a straight line
        crest = [(x / 4, top + height if x % 2 else top - height) for x in range(-1, 6)]
        band = [*crest, (1.3, 1.1), (1.3, 1.1), (-0.3, 1.1), (-0.3, 1.1)]
        pencil.flat(smooth(band), mix(sea, deep, step / 5))
    for _ in range(9):
        y = dice.between(horizon + 0.05, 0.98)
        draw(pencil, "ripple", at=(dice.between(0, 1), y, 0.03 + 0.08 * (y - horizon)), ripple=WHITE)
    for _ in range(dice.whole(0, 2)):
        at = dice.between(0.05, 0.95), dice.between(horizon + 0.1, 0.97), dice.between(0.03, 0.06)
        draw_stone(pencil, dice, at)


def draw_grass(pencil: Pencil, dice: Dice, mood: Mood) -> None:
    horizon = dice.between(0.38, 0.56)
    far, near = dice.pick([palette("a8d08a 6fae5a"), palette("c9d489 93b452"), palette("8fcb9b 4f9e6f")])
    draw_sky(pencil, dice, mood, horizon, dice.whole(1, 3))
    draw_hills(pencil, dice, horizon, 0.12, mix(mix(far, rgb("7fa6b8"), 0.5), mood.low, 0.3))
    draw_hills(pencil, dice, horizon + 0.03, 0.06, mix(far, rgb("5f9e8f"), 0.25))
    draw_hills(pencil, dice, horizon + 0.1, 0.03, far)
    draw_hills(pencil, dice, horizon + 0.28, 0.04, mix(far, near, 0.6))
    for _ in range(16):
        y = dice.between(horizon + 0.15, 1.0)
        green = mix(near, rgb("2f6b45"), dice.between(0.05, 0.4))
        draw(pencil, "tuft", at=(dice.between(0, 1), y, 0.01 + 0.04 * (y - horizon)), tuft=green)
    for _ in range(dice.whole(1, 6)):
        at = dice.between(0.02, 0.98), dice.between(horizon + 0.18, 0.95), dice.between(0.016, 0.03)
        petals = dice.pick(PAINTS)
        draw(pencil, "flower", at=at, petals=petals, heart=mix(GOLD, petals, 0.2) if petals != GOLD else WHITE)
    draw_litter(pencil, dice, horizon, [draw_stone, draw_ball])


def draw_sand(pencil: Pencil, dice: Dice, mood: Mood) -> None:
    horizon = dice.between(0.35, 0.5)
    far, near = dice.pick([palette("f5e3b5 e3c384"), palette("f2d5a7 d9a86c"), palette("f6ead0 dcc9a0")])
    draw_sky(pencil, dice, mood, horizon, dice.whole(1, 3))
    if dice.chance(0.5):  # a beach, else dunes
        pencil.flat(box(-0.1, horizon, 1.1, 1.1), dice.pick(palette("5fb5c9 6f9fd0 76c2b0")))
        pencil.flat(box(-0.1, horizon + 0.025, 1.1, horizon + 0.032), WHITE, 0.5)
        draw_hills(pencil, dice, horizon + 0.085, 0.02, WHITE)
    else:
        draw_hills(pencil, dice, horizon, 0.12, mix(near, mood.low, 0.35))
    draw_hills(pencil, dice, horizon + 0.11, 0.025, far)
    draw_hills(pencil, dice, horizon + 0.32, 0.05, mix(far, near, 0.45))
    for _ in range(8):
        y = dice.between(horizon + 0.18, 1.0)
        draw(pencil, "ripple", at=(dice.between(0, 1), y, dice.between(0.03, 0.07)), ripple=mix(near, WOOD, 0.35))
    draw_litter(pencil, dice, horizon, [draw_shell, draw_shell, draw_stone, draw_ball])
    if dice.chance(0.4):
        at = dice.between(0.1, 0.9), dice.between(horizon + 0.25, 0.92), 0.04
        draw(pencil, "star", at=at, star=rgb("e8825a"))


def draw_room(pencil: Pencil, dice: Dice, mood: Mood) -> None:
    horizon = dice.between(0.58, 0.68)
    wall = mix(dice.pick(PAINTS), CREAM, 0.7)
    floor = dice.pick(palette("c99a6b a9744f dcb98a 8f6b5a b8a89a"))
    pencil.flat(box(-0.1, -0.1, 1.1, horizon), wall)
    if dice.chance(0.5):
        for x in range(8):
            pencil.flat(box(x / 8, -0.1, x / 8 + 0.05, horizon), mix(wall, WHITE, 0.35))
    x, curtain = dice.between(0.2, 0.8), dice.pick(PAINTS)
    draw(pencil, "window", at=(x, 0.3, 1), high=mood.high, low=mood.low)
    draw_cloud(pencil, x + 0.04, 0.25, 0.07, mix(WHITE, mood.low, 0.4))
    draw(pencil, "curtains", at=(x, 0.3, 1), curtain=curtain)
    if dice.chance(0.5):
        x, (paper, blot) = dice.pick([0.1, 0.9]), dice.pick_two(PAINTS)
        draw(pencil, "painting", at=(x, 0, 1), paper=paper, blot=blot)
    pencil.flat(box(-0.1, horizon, 1.1, 1.1), floor)
    for step in range(4):
        y = horizon + (1 - horizon) * (step + 1) / 4 * (0.6 + 0.1 * (step + 1))
        pencil.flat(box(-0.1, y, 1.1, y + 0.008), mix(floor, INK, 0.3))
    for step in range(-3, 4):
        x = step / 4 - 0.08
        pencil.flat(line([(0.5 + x * 0.9, horizon), (0.5 + x * 1.7, 1.05)], 0.006), mix(floor, INK, 0.25))
    pencil.flat(box(-0.1, horizon - 0.035, 1.1, horizon + 0.01), mix(wall, WHITE, 0.6))
    if dice.chance(0.6):
        rug, rim = dice.pick_two(PAINTS)
        draw(pencil, "rug", at=(dice.between(0.35, 0.65), horizon + 0.2, 1), rug=rug, rim=rim)
    draw_litter(pencil, dice, horizon - 0.1, [draw_ball])


def draw_hills(pencil: Pencil, dice: Dice, y: float, height: float, colour: Colour) -> None:
    ridge = [(step / 4, y + dice.between(-height, height * 0.2)) for step in range(5)]
    pencil.flat(smooth([(-0.3, 1.2), (-0.3, 1.2), (-0.2, y), *ridge, (1.2, y), (1.3, 1.2), (1.3, 1.2)]), colour)


def draw_litter(pencil: Pencil, dice: Dice, horizon: float, objects: list[Callable]) -> None:
    for _ in range(dice.whole(0, 3)):
        y = dice.between(horizon + 0.2, 0.96)
        dice.pick(objects)(pencil, dice, (dice.between(0.04, 0.96), y, 0.02 + 0.05 * (y - horizon)))


def draw_cloud(pencil: Pencil, x: float, y: float, size: float, colour: Colour = WHITE, alpha: float = 0.9) -> None:
    top = "-1,0.1 -0.8,-0.16 -0.5,-0.16 -0.3,-0.46 0.1,-0.52 0.34,-0.26 0.66,-0.3 0.8,-0.06"
    cloud = smooth(f"{top} 1,0.12 0.6,0.24 -0.7,0.24")
    pencil.flat(move(cloud, x, y + 0.07 * size, size), mix(colour, rgb("8f9cc9"), 0.35), alpha * 0.7)
    pencil.flat(move(cloud, x - 0.03 * size, y - 0.05 * size, size * 0.9), colour, alpha)


def draw_stone(pencil: Pencil, dice: Dice, at: Sequence[float]) -> None:
    grey = dice.pick(palette("9a93a0 b0a596 7f8793"))
    draw(pencil, "stone", at=(*at, dice.pick([-1, 1])), grey=grey)


def draw_ball(pencil: Pencil, dice: Dice, at: Sequence[float]) -> None:
    rubber, stripe = dice.pick_two(PAINTS)
    draw(pencil, "ball", at=at, rubber=rubber, stripe=stripe)


def draw_shell(pencil: Pencil, dice: Dice, at: Sequence[float]) -> None:
    draw(pencil, "shell", at=at, shell=mix(dice.pick(PAINTS), CREAM, 0.5))


SETTINGS = {"sky": draw_high_sky, "water": draw_water, "grass": draw_grass, "sand": draw_sand, "room": draw_room}
