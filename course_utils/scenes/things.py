"""The things of the picture world and the cues, drawn with the shapes of `drawing`.

Each is drawn in a box from -1 to 1, things looking to the right. What draws a thing takes dice for what varies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from course_utils.scenes.drawing import INK, WHITE, Dice, Pencil, mix, palette, rgb
from course_utils.scenes.shapes import box, ellipse, line, move, polygon, smooth

CREAM, GLASS, WOOD, GOLD, ROSE = palette("fff3dc bfe6f2 8a5a3c f6c945 ef8f9f")
# One box of paints for everything: no kind has a colour of its own, so that a network must look at shapes.
PAINTS = [
    *palette("e4572e c8553d f29e4c f6c945 e58fa8 7d5a44 f4f1e6"),
    *palette("8cb369 3f8f6b 3fa7a3 4f86c6 5a5f9e 9a6fb0 a9b4c2 3d4454"),
]


def draw_balloon(pencil: Pencil, dice: Dice) -> None:
    silk, other = dice.pick_two(PAINTS)
    for side in (-1, 1):
        pencil.flat(move(line("0.21,0.36 0.13,0.76", 0.035), flip=side), INK)
    marks = [(smooth("0,-1 0.17,-0.6 0.17,-0.1 0.06,0.5 -0.06,0.5 -0.17,-0.1 -0.17,-0.6"), other)]
    sickle = smooth("0,-1 0.36,-0.7 0.42,-0.2 0.13,0.5 0.3,0.4 0.62,-0.1 0.62,-0.55")
    marks += [(move(sickle, flip=side), other) for side in (-1, 1)]
    if dice.chance(0.5):
        marks.append((line("-0.8,-0.14 0,-0.02 0.8,-0.14", 0.14), mix(silk, WHITE, 0.7)))
    right = "0,-0.98 0.4,-0.88 0.68,-0.55 0.68,-0.18 0.42,0.24 0.18,0.48"
    pencil.body(smooth(f"{right} -0.18,0.48 -0.42,0.24 -0.68,-0.18 -0.68,-0.55 -0.4,-0.88"), silk, marks, depth=0.2)
    basket = smooth("-0.2,0.74! 0.2,0.74! 0.15,0.98 -0.15,0.98")
    pencil.body(basket, rgb("b9824f"), [(box(-1, 0.7, 1, 0.8), WOOD)])


def draw_bird(pencil: Pencil, dice: Dice) -> None:
    feathers, other = dice.pick_two(PAINTS)
    dark, pale = mix(other, INK, 0.25), mix(feathers, CREAM, 0.7)
    lift = dice.between(-0.2, 0.25)
    far_tip = (0.12, -0.92 - lift)
    far_wing = smooth([(0.2, -0.1), (0.28, -0.55 - lift), far_tip, far_tip, (-0.12, -0.5), (-0.15, 0.0)])
    pencil.body(far_wing, mix(dark, INK, 0.2))
    for end in (-0.05, 0.12, 0.28):
        pencil.body(line([(-0.4, 0.12), (-1.0, end)], 0.16, 0.1), dark)
    back = "0.86,-0.1 0.72,-0.34 0.46,-0.38 0.2,-0.2 -0.2,-0.1 -0.62,0.08"
    body = smooth(f"{back} -0.5,0.28 0,0.44 0.45,0.36 0.78,0.12")
    pencil.body(body, feathers, [(ellipse(0.3, 0.36, 0.5, 0.24, -12), pale)])
    pencil.body(polygon("0.8,-0.2 1.08,-0.06 0.8,0.04"), rgb("f29e4c"))
    pencil.flat(line("0.82,-0.07 1.04,-0.06", 0.03), INK)
    for x, y in ((-0.16, -0.88), (-0.36, -0.86), (-0.54, -0.74), (-0.66, -0.55)):
        feather = line([(0.0, 0.02), (x * 0.7 - 0.05, y * 0.6 - lift / 2), (x, y - lift)], 0.3, 0.1)
        pencil.body(feather, dark, depth=0.06)
    pencil.body(smooth("0.3,-0.08 0.05,-0.34 -0.28,-0.34 -0.3,0 0,0.16"), other)
    pencil.eye(0.62, -0.16, 0.09)


def draw_boat(pencil: Pencil, dice: Dice) -> None:
    hull, sail = dice.pick_two(PAINTS)
    sail, wind = mix(sail, WHITE, 0.35), dice.between(0.3, 0.44)
    pencil.body(line("0,-0.98 0,0.5", 0.07), WOOD)
    stripes = [(box(-1, y, 1, y + 0.16), mix(sail, WHITE, 0.65)) for y in (-0.45, -0.1, 0.25)]
    pencil.body(smooth(f"0.07,-0.9! {wind},-0.35 0.76,0.32! 0.07,0.36!"), sail, stripes if dice.chance(0.5) else [])
    pencil.body(smooth("-0.07,-0.72! -0.07,0.36! -0.68,0.34! -0.26,-0.2"), mix(sail, CREAM, 0.5))
    pencil.flat(polygon("0,-1.08 0.3,-1 0,-0.9"), dice.pick(PAINTS))
    shell = smooth("-0.96,0.44! 0,0.52 0.98,0.4! 0.72,0.82 0.4,0.92 -0.5,0.92 -0.8,0.78")
    bands = [(box(-1, 0.36, 1, 0.56), mix(hull, WHITE, 0.7)), (box(-1, 0.8, 1, 1), mix(hull, INK, 0.4))]
    pencil.body(shell, hull, bands)
    for x in (-0.4, 0.0, 0.4):
        pencil.flat(ellipse(x, 0.68, 0.085, corners=14), WHITE)
        pencil.flat(ellipse(x, 0.68, 0.055, corners=14), INK)


def draw_car(pencil: Pencil, dice: Dice) -> None:
    hull, stripe = dice.pick_two(PAINTS)
    cabin = smooth("-0.66,0.05! -0.52,-0.36 -0.36,-0.48 0.1,-0.48 0.28,-0.36 0.5,0.06!")
    pencil.body(cabin, mix(hull, WHITE, 0.25) if dice.chance(0.5) else hull)
    pencil.flat(polygon("-0.52,0.02 -0.42,-0.32 -0.14,-0.37 -0.14,0.02"), GLASS)
    pencil.flat(polygon("-0.06,0.02 -0.06,-0.37 0.13,-0.36 0.36,0.02"), GLASS)
    pencil.flat(polygon("-0.44,0.02 -0.36,-0.2 -0.28,-0.2 -0.36,0.02"), WHITE, 0.6)
    body = smooth("-1,0.4 -0.98,0.1 -0.8,-0.02 -0.2,-0.02 0.5,0 0.88,0.08 1.02,0.26 1.02,0.46 0.9,0.52 -0.9,0.52")
    sill = (box(-1.1, 0.44, 1.1, 0.6), mix(hull, INK, 0.55))
    pencil.body(body, hull, [(box(-1, 0.22, 1.1, 0.3), mix(stripe, WHITE, 0.3)), sill])
    pencil.flat(line("-0.1,0.04 -0.1,0.44", 0.03), mix(hull, INK, 0.4))
    pencil.flat(line("-0.02,0.14 0.1,0.14", 0.05), INK)
    pencil.flat(ellipse(0.93, 0.22, 0.08, 0.09), rgb("fff2a8"))
    pencil.flat(ellipse(-0.96, 0.2, 0.05, 0.08), rgb("e4572e"))
    for x in (-0.56, 0.58):
        pencil.body(ellipse(x, 0.5, 0.25), INK)
        pencil.body(ellipse(x, 0.5, 0.13), rgb("d7dbe0"), depth=0.06)
        pencil.flat(ellipse(x, 0.5, 0.045, corners=10), INK)


def draw_cat(pencil: Pencil, dice: Dice) -> None:
    coat, other = dice.pick_two(PAINTS)
    pale, dark = mix(coat, CREAM, 0.65), mix(coat, INK, 0.35)
    striped, lift = dice.chance(0.5), dice.between(-0.25, 0.2)
    pencil.body(line([(0.25, 0.86), (0.72, 0.8), (0.84, 0.35 + lift), (0.66, 0.0 + lift)], 0.2, 0.14), dark)
    rib = line("0.6,0.05 0.2,0.1", 0.1, 0.02)
    ribs = [(move(rib, 0, y, flip=side), dark) for y in (0.2, 0.45) for side in (-1, 1)]
    body = smooth("-0.45,0.98 -0.5,0.6 -0.3,0.1 0,-0.1 0.3,0.1 0.5,0.6 0.45,0.98 0,1")
    pencil.body(body, coat, [(ellipse(0, 0.5, 0.2, 0.34), pale), *(ribs if striped else [])])
    pencil.flat(line("0,0.62 0,0.95", 0.04), dark)
    for side in (-1, 1):
        pencil.body(ellipse(side * 0.2, 0.93, 0.19, 0.1), pale)
        inner = move(polygon("0.46,-0.5 0.44,-0.84 0.2,-0.66"), flip=side)
        pencil.body(move(polygon("0.56,-0.42 0.5,-1 0.08,-0.72"), flip=side), coat, [(inner, ROSE)])
    head = smooth("0,-0.8 0.36,-0.72 0.58,-0.4 0.5,-0.12 0,0.04 -0.5,-0.12 -0.58,-0.4 -0.36,-0.72")
    brow = [(line([(x, -0.85), (x * 0.8, -0.6)], 0.09, 0.03), dark) for x in (-0.17, 0, 0.17)]
    pencil.body(head, coat, [(ellipse(0, -0.12, 0.26, 0.17), pale), *(brow if striped else [])])
    iris = dice.pick(palette("d7e86b f6d04d 9fe0c8 ffffff"))
    for side in (-1, 1):
        pencil.eye(side * 0.25, -0.4, 0.12, iris)
        for whisker in ("0.24,-0.14 0.74,-0.26", "0.24,-0.1 0.74,-0.06"):
            pencil.flat(move(line(whisker, 0.03, 0.015), flip=side), mix(INK, WHITE, 0.4))
    pencil.flat(polygon("-0.08,-0.25 0.08,-0.25 0,-0.16"), rgb("d96a7b"))
    pencil.flat(line("-0.15,-0.13 0,-0.05 0.15,-0.13", 0.035), INK)
    if dice.chance(0.4):
        pencil.flat(line("-0.3,0.03 0,0.1 0.3,0.03", 0.09), other)


def draw_dog(pencil: Pencil, dice: Dice) -> None:
    coat, collar = dice.pick_two(PAINTS)
    dark, pale = mix(coat, INK, 0.4), mix(coat, CREAM, 0.65)
    pencil.body(line([(-0.6, 0.02), (-0.84, -0.2), (-0.9 + dice.between(-0.15, 0.15), -0.55)], 0.18, 0.08), coat)
    for x in (-0.42, 0.3):
        pencil.body(move(line("0,0.2 0.02,0.9", 0.2, 0.17), x), dark)
    for x in (-0.6, 0.42):
        pencil.body(move(line("0,0.15 0,0.88", 0.24, 0.18), x), coat)
        pencil.body(ellipse(x + 0.05, 0.92, 0.16, 0.08), pale)
    spots = [(ellipse(-0.25, -0.1, 0.26, 0.2, 20), dark), (ellipse(-0.68, 0.2, 0.16), dark)]
    back = "-0.74,0 -0.4,-0.14 0.1,-0.14 0.4,-0.4 0.66,-0.3"
    body = smooth(f"{back} 0.6,0.2 0.3,0.42 -0.2,0.3 -0.6,0.45 -0.78,0.3")
    pencil.body(body, coat, [*(spots if dice.chance(0.5) else []), (ellipse(0.55, 0.22, 0.2, 0.26), pale)])
    pencil.flat(line("0.28,-0.22 0.48,-0.12 0.7,-0.2", 0.1), collar)
    pencil.flat(ellipse(0.52, -0.05, 0.07, corners=12), GOLD)
    if dice.chance(0.4):
        pencil.body(smooth("0.82,-0.4 0.93,-0.4 0.93,-0.14 0.85,-0.1 0.79,-0.18"), ROSE)
    skull = "0.26,-0.5 0.36,-0.8 0.6,-0.86 0.74,-0.68"
    head = smooth(f"{skull} 0.98,-0.6 1.04,-0.42 0.92,-0.3 0.62,-0.22 0.38,-0.26")
    pencil.body(head, coat, [(ellipse(0.93, -0.36, 0.22, 0.17), pale)])
    pencil.flat(line("1,-0.36 0.88,-0.33 0.78,-0.38", 0.035), INK)
    pencil.flat(ellipse(1.0, -0.54, 0.1, 0.08), INK)
    pencil.eye(0.66, -0.62, 0.08)
    pencil.body(smooth("0.46,-0.84 0.5,-0.6 0.42,-0.2 0.26,-0.12 0.14,-0.34 0.26,-0.72"), dark)


def draw_fish(pencil: Pencil, dice: Dice) -> None:
    skin, other = dice.pick_two(PAINTS)
    sweep = dice.between(-0.08, 0.12)
    pencil.body(smooth(f"-0.45,0 -0.5,-0.1 -0.98,-0.5! -0.86,{sweep} -0.98,0.5! -0.5,0.1"), other)
    pencil.body(smooth("0.4,-0.3 0.1,-0.66 -0.35,-0.62 -0.3,-0.25"), other)
    pencil.body(smooth("0.15,0.3 -0.1,0.62 -0.32,0.55 -0.25,0.25"), other)
    belly = smooth("0.9,0.14 0.5,0.12 -0.2,0.2 -0.6,0.1 -0.2,0.6 0.5,0.55")
    stripe = line("0,-0.5 0.1,0 0,0.5", 0.15, 0.1)
    scale = line("0.06,-0.1 -0.05,0 0.06,0.1", 0.05)
    pale = [(belly, mix(skin, CREAM, 0.6))]
    striped = [(move(stripe, x), mix(other, INK, 0.15)) for x in (0.28, -0.05, -0.36)]
    scaly = [(move(scale, x, y), mix(skin, INK, 0.3)) for x in (0.2, -0.06, -0.32) for y in (-0.24, 0.0, 0.24)]
    marks = dice.pick([pale, striped, scaly])
    back = "0.94,0.02 0.72,-0.3 0.25,-0.45 -0.2,-0.32 -0.6,-0.06"
    pencil.body(smooth(f"{back} -0.6,0.06 -0.2,0.32 0.25,0.45 0.72,0.34"), skin, marks)
    pencil.flat(line("0.5,-0.3 0.42,0 0.5,0.3", 0.04), mix(skin, INK, 0.35))
    pencil.body(smooth("0.32,0.04 0.02,-0.02 -0.08,0.2 0.1,0.26"), other)
    pencil.eye(0.66, -0.1, 0.13)
    pencil.flat(line("0.92,0.1 0.82,0.16 0.74,0.13", 0.04), INK)


def draw_house(pencil: Pencil, dice: Dice) -> None:
    wall, roof = dice.pick_two(PAINTS)
    wall = mix(wall, CREAM, 0.5)
    trim, door = mix(wall, WHITE, 0.7), dice.pick(PAINTS)
    pane = GLASS if dice.chance(0.6) else rgb("ffdf80")
    chimney = [(box(-1, -0.9, 1, -0.76), mix(roof, INK, 0.6))]
    pencil.body(move(box(0.34, -0.86, 0.58, -0.2), flip=dice.pick([-1, 1])), mix(roof, INK, 0.35), chimney)
    plinth, eaves = (box(-1, 0.84, 1, 1), mix(wall, INK, 0.35)), (box(-1, -0.2, 1, -0.02), mix(wall, INK, 0.25))
    pencil.body(box(-0.72, -0.2, 0.72, 0.96), wall, [plinth, eaves])
    tiles = [(line([(-1, y), (1, y)], 0.045), mix(roof, INK, 0.25)) for y in (-0.3, -0.52, -0.74)]
    pencil.body(polygon("-0.98,-0.08 -0.12,-0.98 0.12,-0.98 0.98,-0.08"), roof, tiles)
    pencil.flat(ellipse(0, -0.46, 0.17), trim)
    pencil.flat(ellipse(0, -0.46, 0.12), pane)
    door_x = dice.pick([-0.41, 0.0, 0.41])
    for x in (-0.41, 0.0, 0.41):
        if x == door_x:
            pencil.flat(box(x - 0.2, 0.18, x + 0.2, 0.96), trim)
            pencil.body(box(x - 0.15, 0.24, x + 0.15, 0.96), door, depth=0.06)
            pencil.flat(ellipse(x + 0.08, 0.62, 0.04, corners=10), GOLD)
        else:
            pencil.flat(box(x - 0.17, 0.12, x + 0.17, 0.56), trim)
            pencil.flat(box(x - 0.12, 0.17, x + 0.12, 0.51), pane)
            pencil.flat(box(x - 0.02, 0.17, x + 0.02, 0.51), trim)
            pencil.flat(box(x - 0.12, 0.32, x + 0.12, 0.36), trim)


def draw_plane(pencil: Pencil, dice: Dice) -> None:
    hull, stripe = dice.pick_two(PAINTS)
    hull, dark = mix(hull, WHITE, dice.pick([0.0, 0.25, 0.7])), mix(stripe, INK, 0.2)
    pencil.body(polygon("0.28,-0.1 -0.06,-0.62 -0.26,-0.62 -0.12,-0.1"), mix(dark, INK, 0.2))
    pencil.body(polygon("-0.62,-0.08 -0.86,-0.32 -0.98,-0.32 -0.88,-0.04"), dark)
    pencil.body(smooth("-0.5,-0.14! -0.72,-0.36 -0.86,-0.68! -1.04,-0.68! -0.94,-0.1"), stripe)
    roof = "1.04,0.06 0.86,-0.14 0.5,-0.23 -0.4,-0.2 -1,-0.16"
    fuselage = smooth(f"{roof} -1,-0.06 -0.5,0.16 0.4,0.23 0.88,0.18")
    pencil.body(fuselage, hull, [(polygon("1.1,0.08 -1.1,0 -1.1,0.1 1.1,0.2"), stripe)])
    for step in range(6):
        pencil.flat(ellipse(0.48 - 0.19 * step, -0.07, 0.055, 0.065, corners=12), mix(INK, GLASS, 0.25))
    pencil.flat(polygon("0.7,-0.16 0.84,-0.12 0.92,-0.04 0.7,-0.04"), GLASS)
    pencil.body(ellipse(0.06, 0.36, 0.2, 0.09), mix(hull, INK, 0.25))
    pencil.body(polygon("0.34,0.08 -0.3,0.68 -0.54,0.68 -0.2,0.08"), stripe)
    pencil.body(polygon("-0.68,0.02 -0.94,0.24 -1.06,0.24 -0.94,0.02"), stripe)


def draw_tree(pencil: Pencil, dice: Dice) -> None:
    leaves, fruit = dice.pick_two(PAINTS)
    leaves = mix(leaves, rgb("5f9e4a"), dice.pick([0.0, 0.4, 0.8]))
    pale, bark = mix(leaves, rgb("fff0a0"), 0.3), dice.pick(palette("7d5a44 6b4b3e 9a7b5f d9d2c5"))
    if dice.chance(0.4):  # a fir, else a tree with a round crown
        pencil.body(box(-0.11, 0.5, 0.11, 0.98), bark)
        skirt = smooth("0,-0.82! 0.72,0! 0.24,0.06 -0.24,0.06 -0.72,0!")
        snow = line("-0.45,-0.12 0,-0.06 0.45,-0.12", 0.07)
        for y, size in ((0.74, 1.0), (0.3, 0.82), (-0.16, 0.64)):
            pencil.body(move(skirt, 0, y, size), leaves, [(move(snow, 0, y, size), pale)])
        return
    pencil.body(smooth("-0.12,0.2 -0.1,0.7 -0.26,0.98! 0.26,0.98! 0.1,0.7 0.12,0.2"), bark)
    right = "0,-0.98 0.32,-0.94 0.46,-0.72 0.74,-0.6 0.78,-0.28 0.9,-0.02 0.66,0.26 0.36,0.24 0.1,0.38"
    left = "-0.2,0.26 -0.52,0.34 -0.78,0.14 -0.84,-0.14 -0.72,-0.38 -0.7,-0.62 -0.4,-0.74 -0.3,-0.92"
    places = ((-0.36, -0.5), (0.1, -0.66), (0.42, -0.36), (-0.1, -0.2), (0.38, 0.04), (-0.48, -0.02))
    tufts = [(move(line("-0.13,0.02 0,-0.09 0.13,0.02", 0.06), x, y), pale) for x, y in places]
    pencil.body(smooth(f"{right} {left}"), leaves, tufts, depth=0.2)
    if dice.chance(0.5):
        for x, y in ((-0.5, -0.3), (0.2, -0.42), (0.6, -0.12), (-0.18, 0.02), (0.14, 0.14), (-0.12, -0.76)):
            pencil.body(ellipse(x, y, 0.085, corners=14), fruit, depth=0.05)


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


def draw_buoy(pencil: Pencil) -> None:
    pencil.body(line("0,-1 0,-0.4", 0.14), INK)
    pencil.flat(ellipse(0, -0.86, 0.2), GOLD)
    band = [(box(-1, 0.02, 1, 0.36), WHITE)]
    pencil.body(smooth("-0.24,-0.5! 0.24,-0.5! 0.6,0.6 0.5,0.86 -0.5,0.86 -0.6,0.6"), rgb("d83a34"), band, depth=0.25)


def draw_flag(pencil: Pencil) -> None:
    pencil.body(line("-0.5,-1 -0.5,1", 0.15), rgb("f1ead8"))
    cloth = smooth("-0.42,-0.95! 0,-1.02 0.4,-0.88 0.95,-0.95! 0.95,-0.05! 0.4,0.05 0,-0.1 -0.42,-0.05!")
    places = ((-0.42, -1.0), (0.28, -1.0), (-0.07, -0.67), (0.63, -0.67), (-0.42, -0.34), (0.28, -0.34))
    pencil.body(cloth, WHITE, [(box(x, y, x + 0.35, y + 0.33), INK) for x, y in places])


def draw_sun(pencil: Pencil) -> None:
    for angle in range(0, 360, 30):
        pencil.flat(ellipse(0, 0, 0.98, 0.09, angle, 8), GOLD)
    pencil.flat(ellipse(0, 0, 0.66), rgb("ffd84f"))
    pencil.flat(ellipse(0, 0, 0.54), rgb("ffe98a"))


CUES = {
    "buoy": Kind(draw_buoy, 8, True, (0.66, 0.97)),
    "flag": Kind(draw_flag, 8, True, (0.62, 0.97)),
    "sun": Kind(draw_sun, 8, False, (0.22, 0.4)),
}
