"""A picture world made by code: two things on a natural background, with a mask for each thing.

The same arguments give the same picture, to the last bit, on every machine (`drawing` says how). With another
background, or with a cue, the things stay as they are, so that two pictures can differ in exactly one respect.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from course_utils.root import CourseError, require
from course_utils.scenes import things as drawn
from course_utils.scenes.drawing import INK, WHITE, Dice, Pencil, Sprite, mix, paint
from course_utils.scenes.settings import MOODS, SETTINGS, Mood, draw_cloud
from course_utils.scenes.shapes import ellipse

KINDS, BACKGROUNDS, CUES = tuple(drawn.THINGS), tuple(SETTINGS), tuple(drawn.CUES)
SIZE = 112

Edit = Callable[[dict[str, Sprite]], dict[str, Sprite]] | None
NOTHING, CUE = 0, 255  # values in `SceneBatch.owners` beside 1, 2, … for KINDS[0], KINDS[1], …

_MIN_VISIBLE = 0.65  # of every thing, however much another one hides
_TRIES = 40
_PLACES = {"sky": "in the sky", "water": "on the water", "grass": "on grass", "sand": "on sand", "room": "in a room"}
_TIMES = {"day": "by day", "morning": "in the morning", "evening": "in the evening", "night": "at night"}


@dataclass(frozen=True, repr=False)
class Scene:
    """One picture and the truth about it.

    image: (3, H, W) float32 in [0, 1], RGB.
    labels: the kinds of the things, in the order asked for.
    masks: (len(labels), H, W) bool, where each thing is *seen*: what another thing hides does not count.
    background, mood: one of `BACKGROUNDS`, and the light: day, morning, evening or night.
    cue, cue_mask: one of `CUES` or None; (H, W) bool, all False without a cue.
    """

    image: Tensor
    labels: tuple[str, ...]
    masks: Tensor
    background: str
    mood: str
    cue: str | None
    cue_mask: Tensor
    seed: int

    def __repr__(self) -> str:
        height, width = self.image.shape[1:]
        return f"Scene({self}; {height} x {width} pixels, seed {self.seed})"

    def __str__(self) -> str:
        """What the picture shows, in words: `a cat and a boat on grass, in the evening`."""
        things = " and ".join(f"a {label}" for label in self.labels) or "nothing"
        cue = f", with a {self.cue}" if self.cue else ""
        return f"{things} {_PLACES[self.background]}, {_TIMES[self.mood]}{cue}"


@dataclass(frozen=True, repr=False)
class SceneBatch:
    """Many pictures and the truth about them.

    images: (N, 3, H, W) uint8, RGB.
    labels: (N, len(KINDS)) float32, 1 for each kind that is there: ready for a binary cross-entropy.
    owners: (N, H, W) uint8, what each pixel shows: 0 background, 1 + i a thing of `KINDS[i]`, 255 a cue.
    """

    images: Tensor
    labels: Tensor
    owners: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        count, _, height, width = self.images.shape
        return f"SceneBatch({count} pictures of {height} x {width} pixels)"

    def masks(self, kind: str) -> Tensor:
        """(N, H, W) bool: where things of this kind are seen. Raises `CourseError` for an unknown kind."""
        return self.owners == KINDS.index(require("Kinds of things", kind, KINDS)) + 1

    def cue_masks(self) -> Tensor:
        """(N, H, W) bool: where a cue is seen."""
        return self.owners == CUE


def scene(
    *kinds: str, seed: int = 0, size: int = SIZE, background: str = "", cue: str | None = None, edit: Edit = None
) -> Scene:
    """Draw one picture of no, one or two things, such as `scene("cat", "boat", seed=3)`.

    kinds: names from `KINDS`, at most two, different ones; none gives the bare background.
    seed: a whole number from 0: colours, sizes, places, light. With the same seed, another background or cue leaves the
        things as they are.
    size: height and width in pixels, 64 to 512.
    background: a name from `BACKGROUNDS`; without it, the seed chooses.
    cue: a name from `CUES`, a small object that is not one of the things; without it no picture contains one.
    edit: gets what is painted, by the names of kinds and cues, and returns what is to be painted instead.
    Raises `CourseError` for an unknown name (the nearest one is suggested), the same kind twice, more than two kinds, a
    seed or size that is no whole number in its range.
    """
    kinds = tuple(require("Kinds of things", kind, KINDS) for kind in kinds)
    if len(kinds) > 2 or len(set(kinds)) < len(kinds):
        raise CourseError(f"a scene has at most two things, of different kinds, got {', '.join(kinds)}")
    seed, size = _whole(seed, "seed", 0, 2**31 - 1), _whole(size, "size", 64, 512)
    background = require("Backgrounds", background, BACKGROUNDS) if background else None
    cue = None if cue is None else require("Cues", cue, CUES)

    pixels, owners, world = _compose(kinds, seed, size, background, cue, edit)
    image, owners = torch.from_numpy(pixels).float() / 255, torch.from_numpy(owners)
    masks = owners == torch.tensor([KINDS.index(kind) + 1 for kind in kinds], dtype=torch.uint8)[:, None, None]
    return Scene(image, kinds, masks, world.background, world.mood.name, cue, owners == CUE, seed)


def scenes(
    count: int,
    seed: int = 0,
    *,
    things: int = 2,
    kinds: Iterable[str] = KINDS,
    contains: str | None = None,
    cue: str | Mapping[str, str] | None = None,
    size: int = SIZE,
) -> SceneBatch:
    """Draw `count` pictures with randomly chosen things; the first pictures do not depend on how many follow.

    things: how many per picture, 0, 1 or 2 (always different kinds).
    kinds: the kinds to choose from.
    contains: a kind that every picture contains.
    cue: one for all pictures; or, for a misled network, `{"boat": "flag"}`: a flag wherever there is a boat, and
        nowhere else.
    seed, size: as in `scene`.
    Raises as `scene` does, and `CourseError` when there are fewer kinds to choose from than things.
    """
    count, things = _whole(count, "count", 1, 10**7), _whole(things, "things", 0, 2)
    seed, size = _whole(seed, "seed", 0, 2**31 - 1), _whole(size, "size", 64, 512)
    pool = tuple(dict.fromkeys(require("Kinds of things", kind, KINDS) for kind in kinds))
    available = set(pool)
    if contains is not None:
        available.add(require("Kinds of things", contains, KINDS))
    if len(available) < things:
        raise CourseError(f"{things} different things per picture need as many kinds, got {len(available)}")
    if isinstance(cue, Mapping):
        for kind, name in cue.items():
            require("Kinds of things", kind, KINDS)
            require("Cues", name, CUES)
    elif cue is not None:
        require("Cues", cue, CUES)

    images, owners = np.empty((count, 3, size, size), np.uint8), np.empty((count, size, size), np.uint8)
    labels = torch.zeros(count, len(KINDS))
    for index in range(count):
        picture_seed = ((seed + 1) << 32) + index  # out of reach of `scene` and of the other batches' seeds
        chosen = _choose(pool, contains, things, _throw(picture_seed)[0])
        shown = next((cue[kind] for kind in chosen if kind in cue), None) if isinstance(cue, Mapping) else cue
        images[index], owners[index], _ = _compose(chosen, picture_seed, size, cue=shown)
        labels[index, [KINDS.index(kind) for kind in chosen]] = 1
    return SceneBatch(torch.from_numpy(images), labels, torch.from_numpy(owners))


def _choose(pool: Sequence[str], contains: str | None, things: int, dice: Dice) -> tuple[str, ...]:
    if contains is None:
        return dice.pick_two(pool)[:things] if len(pool) > 1 else tuple(pool)[:things]
    chosen = (contains, dice.pick([kind for kind in pool if kind != contains])) if things == 2 else (contains,)
    return chosen[::-1] if dice.chance(0.5) else chosen


def _whole(value: int, what: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not low <= value <= high:
        raise CourseError(f"{what} must be a whole number from {low} to {high}, got {value!r}")
    return operator.index(value)


def _compose(
    kinds: Sequence[str], seed: int, size: int, background: str | None = None, cue: str | None = None, edit: Edit = None
) -> tuple[np.ndarray, np.ndarray, _World]:
    """Paint one picture: (3, size, size) uint8, its owners (size, size) uint8, and its world."""
    draw = _draw_world if size <= SIZE else _draw_world.__wrapped__  # large ones would take much memory
    world = draw(tuple(kinds), seed, size, background)
    canvas, sprites = world.canvas.copy(), dict(zip(kinds, world.sprites, strict=True))
    if cue is not None:
        dice, pencil, chosen = _throw(seed)[4], Pencil(), drawn.CUES[cue]
        chosen.draw(pencil)
        scale = size * dice.between(0.085, 0.105)
        sprite = paint(pencil.parts, scale, world.light, dice.between(-chosen.tilt, chosen.tilt))
        sprites[cue] = _place_cue(chosen, sprite, world.sprites, dice, size)
    sprites = edit(sprites) if edit else sprites
    for name, sprite in sprites.items():
        stands = (drawn.THINGS | drawn.CUES)[name].stands
        if stands or name in KINDS:
            _ground(canvas, sprite, stands, world.background, world.light)
    owners = np.full((size, size), NOTHING, dtype=np.uint8)
    for name, sprite in sorted(sprites.items(), key=lambda pair: (pair[0] in KINDS, pair[1].bottom)):
        _put(canvas, sprite)
        owners[sprite.place][sprite.alpha >= 0.5] = KINDS.index(name) + 1 if name in KINDS else CUE
    tint = np.array(world.mood.tint, dtype=np.float32)[:, None, None]
    return np.rint(canvas * tint * np.float32(255)).astype(np.uint8), owners, world


def _throw(seed: int) -> list[Dice]:
    dice = Dice(seed)
    return [dice.split() for _ in range(7)]  # the first ones choose the kinds in `scenes`


class _World(NamedTuple):
    canvas: np.ndarray  # (3, size, size) float32: the background
    sprites: tuple[Sprite, ...]
    light: tuple[float, float]
    background: str
    mood: Mood


@lru_cache(maxsize=128)  # a batch is often drawn twice, with a cue and without: nobody writes to the answer
def _draw_world(kinds: tuple[str, ...], seed: int, size: int, background: str | None) -> _World:
    _, setting, lighting, places, _, *thing_dice = _throw(seed)
    mood = lighting.pick([*MOODS[:1], *MOODS])  # day twice as often
    light = lighting.pick([(-0.8, -0.6), (-0.6, -0.8), (0.6, -0.8), (0.8, -0.6)])
    sprites = [_draw_thing(*pair, light, size, alone=len(kinds) == 1) for pair in zip(kinds, thing_dice, strict=False)]
    sprites = _place_things(kinds, sprites, places, size)

    chosen = setting.pick(BACKGROUNDS)
    background, pencil = background or chosen, Pencil()
    SETTINGS[background](pencil, setting, mood)
    high, low, tint = (np.array(colour, np.float32)[:, None, None] for colour in (mood.high, mood.low, mood.tint))
    down = (np.arange(size, dtype=np.float32) / np.float32(size))[None, :, None]
    canvas = np.repeat(high + (low - high) * down, size, axis=2)
    _put(canvas, paint(pencil.parts, scale=size, size=size))
    canvas *= tint  # and again on all, so that things stand out
    return _World(canvas, tuple(sprites), light, background, mood)


def _draw_thing(kind: str, dice: Dice, light: tuple[float, float], size: int, alone: bool) -> Sprite:
    pencil, thing = Pencil(), drawn.THINGS[kind]
    thing.draw(pencil, dice, *dice.pick_two(drawn.PAINTS))
    scale = size * (dice.between(0.25, 0.34) if alone else dice.between(0.2, 0.29))
    angle = dice.between(-thing.tilt, thing.tilt)
    side = -1 if dice.chance(0.5) else 1
    return paint(pencil.parts, scale, light, angle, side * dice.between(0.9, 1.1))


def _place_things(kinds: Sequence[str], sprites: list[Sprite], dice: Dice, size: int) -> list[Sprite]:
    needed = _MIN_VISIBLE if dice.chance(0.4) else 0.97
    best, best_share = sprites, -1.0
    for _ in range(_TRIES):
        moved = []
        for kind, sprite in zip(kinds, sprites, strict=True):
            height, width = sprite.alpha.shape
            highest, lowest = drawn.THINGS[kind].foot
            low = max(highest * size - height, 1)
            left, top = dice.between(1, size - width - 1), dice.between(low, max(lowest * size - height, low))
            moved.append(sprite._replace(left=int(left), top=int(top)))
        share = _visible_share(moved, size)
        if share > best_share:
            best, best_share = moved, share
        if share >= needed:
            break
    return best


def _visible_share(sprites: Sequence[Sprite], size: int) -> float:
    if len(sprites) < 2:
        return 1.0
    # The thing whose foot is lower in the picture is in front.
    behind, front = (_place(sprite.alpha >= 0.5, sprite, size) for sprite in sorted(sprites, key=Sprite.bottom.fget))
    return 1 - np.count_nonzero(behind & front) / max(np.count_nonzero(behind), 1)


def _place(mask: np.ndarray, sprite: Sprite, size: int) -> np.ndarray:
    placed = np.zeros((size, size), dtype=bool)
    placed[sprite.place] = mask
    return placed


def _place_cue(cue: drawn.Kind, sprite: Sprite, things: Sequence[Sprite], dice: Dice, size: int) -> Sprite:
    height, width = sprite.alpha.shape
    taken = [_place(thing.alpha > 0, thing, size) for thing in things]
    best, best_hidden = sprite, np.inf
    for attempt in range(2 * _TRIES):
        highest, lowest = cue.foot if attempt < _TRIES else (0, 1)
        top = int(dice.between(max(highest * size - height, 2), lowest * size - height - 2))
        moved = sprite._replace(left=int(dice.between(2, size - width - 2)), top=top)
        hidden = sum(np.count_nonzero((moved.alpha > 0) & thing[moved.place]) for thing in taken)
        if hidden < best_hidden:
            best, best_hidden = moved, hidden
        if not hidden:
            break
    return best


def _ground(canvas: np.ndarray, sprite: Sprite, stands: bool, background: str, light: tuple[float, float]) -> None:
    if background == "sky" and not stands:
        return
    size, width = canvas.shape[1], sprite.alpha.shape[1]
    x, foot, reach = (sprite.left + width / 2) / size, sprite.bottom / size, width / size / 2
    pencil = Pencil()
    if background == "sky":
        draw_cloud(pencil, x, foot + reach * 0.05, reach * 1.15, WHITE, 1.0)
    else:
        y = foot - 0.015 if stands else min(foot + 0.28, 0.96)
        for grow in (1.0, 0.85, 0.65):
            shade = ellipse(x - light[0] * reach * 0.25, y, reach * grow, reach * grow * 0.22)
            pencil.flat(shade, INK, 0.16 if stands else 0.07)
        if background == "water" and stands:
            for grow in (1.25, 1.0):
                pencil.flat(ellipse(x, y + 0.005, reach * grow, reach * grow * 0.2), mix(WHITE, INK, 0.1), 0.22)
    _put(canvas, paint(pencil.parts, scale=size, size=size))


def _put(canvas: np.ndarray, sprite: Sprite) -> None:
    region = canvas[(..., *sprite.place)]
    region[:] = region * (1 - sprite.alpha) + sprite.colour
