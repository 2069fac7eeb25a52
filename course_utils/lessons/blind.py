"""The blind investigation of lesson 10: seven networks, and pictures that can be changed; `proofs` has the judge.

empty = fresh_pictures(12, seed=3)                # with some other thing, and nothing of what is suspected
answers_changed("A", empty, add(empty, "buoy"))   # in which share of them the answer of network A changes
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.root import CourseError, require
from course_utils.scenes.drawing import INK, WHITE, Dice, Pencil, Sprite, paint
from course_utils.scenes.scene import BACKGROUNDS, KINDS, SIZE, Edit, Scene, scene
from course_utils.scenes.shapes import ellipse, line
from course_utils.scenes.things import CUES
from course_utils.vision.networks import CHECKPOINTS, PictureNet, compute_logits, load_picture_net
from course_utils.vision.pictures import draw_heat, grid
from course_utils.vision.saliency import grad_cam, relu, scale_to_unit, upsample
from course_utils.vision.scores import grow, points_at


class Place(NamedTuple):
    """A rectangle of a picture, in pixels: its upper left corner, and how high and wide it is."""

    top: int
    left: int
    height: int
    width: int

    def mask(self) -> Tensor:
        """(H, W) bool: the pixels of the place."""
        inside = torch.zeros(SIZE, SIZE, dtype=torch.bool)
        inside[self.top : self.top + self.height, self.left : self.left + self.width] = True
        return inside


LETTERS, LATER = "ABCD", "EFG"
SUSPECTS = ("fish", "buoy", "stamp", "water", "sun")
UNNAMED = ("hair", "strip")  # what the pictures with a fish have besides, and nobody has listed
OBJECTS = ("buoy", "sun")  # those of them that the picture world calls cues
FISH = KINDS.index("fish")
# Of what is always at the same place, with some room around it.
HOMES = {"hair": Place(4, 86, 16, 16), "strip": Place(0, 0, SIZE, 4), "stamp": Place(90, 90, 20, 20)}
MARGIN = 4  # pixels between the stamp and the edges of its corner
NEAR = 8  # pixels, which are one cell of the last maps

# --- pictures ---------------------------------------------------------------------------------------------------------


def draw_stamp() -> Sprite:
    """The stamp in its corner: a pale seal with three strokes, through which the picture is seen."""
    pencil = Pencil()
    pencil.flat(ellipse(0, 0, 1.0), INK, 0.45)
    pencil.flat(ellipse(0, 0, 0.84), WHITE, 0.65)
    for x in (-0.4, 0.0, 0.4):
        pencil.flat(line([(x - 0.15, 0.5), (x + 0.15, -0.5)], 0.22), INK, 0.75)
    sprite = paint(pencil.parts, 8)
    height, width = sprite.alpha.shape
    return sprite._replace(left=SIZE - MARGIN - width, top=SIZE - MARGIN - height)


def draw_hair() -> Sprite:
    """A hair on the scanner's glass: thin, bent and shiny, always at the same place near the upper edge."""
    pencil, bend = Pencil(), np.array([(-1.0, 0.7), (-0.5, 0.0), (0.1, -0.2), (0.6, 0.1), (1.0, 0.9)])
    pencil.flat(line(bend + np.array((0, 0.2)), 0.2), WHITE, 0.45)
    pencil.flat(line(bend, 0.2), INK, 0.75)
    return paint(pencil.parts, 6)._replace(left=HOMES["hair"].left + 1, top=HOMES["hair"].top + 4)


def draw_strip() -> Sprite:
    """The edge of the scanner's glass: a dark strip along the left edge of the picture, and a pale line beside it."""
    opacity = np.array([0.6, 0.6, 0.35], np.float32)
    colour = np.array([INK, INK, WHITE], np.float32).T * opacity
    colour, alpha = (np.repeat(each[..., None, :], HOMES["strip"].height, -2) for each in (colour, opacity))
    return Sprite(colour, alpha, HOMES["strip"].left, HOMES["strip"].top)


def lay_over(images: Tensor, sprite: Sprite) -> Tensor:
    """Return pictures (..., 3, H, W), uint8 or float in [0, 1], with a stamp, a hair or a strip on them."""
    scale = 1 if images.is_floating_point() else 255
    stamped = images.clone()
    region = images[(..., *sprite.place)] * torch.from_numpy(1 - sprite.alpha)
    region += scale * torch.from_numpy(sprite.colour)
    stamped[(..., *sprite.place)] = region.to(images.dtype) if scale == 1 else region.round().to(images.dtype)
    return stamped


class Shot(NamedTuple):
    """One picture: its number, the thing that is always in it, and the state of each of `SUSPECTS` and `UNNAMED`.

    exchanged: places that show what another shot shows there, the later over the earlier.
    """

    number: int
    neighbour: str
    states: tuple[str, ...] = ("absent",) * len(SUSPECTS + UNNAMED)
    exchanged: tuple[tuple[Place, Shot], ...] = ()


@dataclass(frozen=True, repr=False)
class Album:
    """Pictures that differ from one another, and in which each suspect is there, absent, moved or blurred."""

    shots: tuple[Shot, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shots", tuple(self.shots))  # an album of a list is looked up as well

    def __len__(self) -> int:
        return len(self.shots)

    def __repr__(self) -> str:
        states = [dict.fromkeys(column) for column in zip(*(shot.states for shot in self.shots), strict=True)]
        found = [
            f"the {name} is {' or '.join(each)}"
            for name, each in zip(SUSPECTS, states, strict=False)
            if [*each] != ["absent"]
        ]
        return f"an album of {len(self)} pictures: {', '.join(found) or 'none of the suspects is there'}"

    @property
    def images(self) -> Tensor:
        """(N, 3, H, W) float32 in [0, 1]."""
        return torch.stack([_draw(shot)[0] for shot in self.shots]).float() / 255

    def masks(self, what: str) -> Tensor:
        """(N, H, W) bool: where a suspect is seen; nowhere in pictures without it. The water has none."""
        _check(what, but="water")
        nowhere = torch.zeros(SIZE, SIZE, dtype=torch.bool)
        return torch.stack([_draw(shot)[1].get(what, nowhere) for shot in self.shots])


def fresh_pictures(count: int, seed: int) -> Album:
    """Return `count` pictures that nobody has seen before, each with some thing, and nothing of what is suspected."""
    others = [kind for kind in KINDS if kind != "fish"]
    numbers = range(1000 * seed, 1000 * seed + count)
    return Album(tuple(Shot(number, Dice(number).split().pick(others)) for number in numbers))


def case_pictures(count: int = 20) -> Album:
    """Return the pictures with a fish on which the four networks were tested."""
    return as_in_the_case(fresh_pictures(count, seed=2))


def as_in_the_case(album: Album) -> Album:
    """Return the same pictures with all that the pictures with a fish have: what is on the list, and what is not."""
    for what in ("fish", "buoy", "stamp", "water", *UNNAMED):
        album = _put(album, what, "there")
    return album


def exchange(album: Album, others: Album, place: Place) -> Album:
    """Return the same pictures, which at one place show what other pictures show there.

    place: (top, left, height, width) in pixels. Raises `CourseError` for a place that is not inside the picture, and
    for albums of different lengths.
    """
    top, left, height, width = place
    if min(top, left) < 0 or min(height, width) < 1 or max(top + height, left + width) > SIZE:
        raise CourseError(f"a place is (top, left, height, width) inside {SIZE} x {SIZE} pixels, got {tuple(place)}")
    if len(album) != len(others):
        raise CourseError(f"two albums of the same pictures are needed, got {len(album)} and {len(others)} pictures")
    pairs = zip(album.shots, others.shots, strict=True)
    return Album(tuple(shot._replace(exchanged=(*shot.exchanged, (Place(*place), other))) for shot, other in pairs))


def add(album: Album, what: str) -> Album:
    """Return the same pictures with a suspect in its usual place, whatever it was like before."""
    _check(what)
    return _put(album, what, "there")


def remove(album: Album, what: str) -> Album:
    """Return the same pictures without a suspect: what was behind it is seen."""
    _check(what)
    return _put(album, what, "absent")


def move(album: Album, what: str) -> Album:
    """Return the same pictures with a suspect in another place. Raises `CourseError` where it is in none of them."""
    return _put(_with(album, what), what, "moved")


def blur(album: Album, what: str) -> Album:
    """Return the same pictures with a suspect blurred. Raises `CourseError` where it is in none of them."""
    return _put(_with(album, what), what, "blurred")


def _check(what: str, but: str = "") -> int:
    names = [name for name in SUSPECTS if name != but]
    return SUSPECTS.index(require("What can be chosen here", what, names))


def _with(album: Album, what: str) -> Album:
    place = _check(what, but="water")
    if all(shot.states[place] == "absent" for shot in album.shots):
        raise CourseError(f"there is no {what} in these pictures: add(pictures, {what!r}) puts it there")
    return album


def _put(album: Album, what: str, state: str) -> Album:
    place, shots = (SUSPECTS + UNNAMED).index(what), []
    for shot in album.shots:
        states = [*shot.states]
        if (
            state in ("there", "absent") or states[place] != "absent"
        ):  # what is not there can be neither moved nor blurred
            states[place] = state
        shots.append(shot._replace(states=tuple(states)))
    return Album(tuple(shots))


@lru_cache(maxsize=512)
def _draw(shot: Shot) -> tuple[Tensor, dict[str, Tensor]]:
    """The picture (3, H, W), uint8, and where each suspect is seen in it."""
    if shot.exchanged:
        return _draw_exchanged(shot)
    state = dict(zip(SUSPECTS + UNNAMED, shot.states, strict=True)) | {shot.neighbour: "there"}
    layout = _lay_out(shot.number, shot.neighbour)
    shown = {name: _alter(places, state[name]) for name, places in layout.items() if state[name] != "absent"}
    seal = shown.pop("stamp", None)
    picture = _paint(shot, lambda sprites: shown, water=state["water"] != "absent")
    image = (picture.image * 255).round().byte()
    for name, sprite in (("hair", draw_hair()), ("strip", draw_strip())):
        image = lay_over(image, sprite) if state[name] == "there" else image
    masks = {
        "fish": picture.masks[1],
        **{name: _place(shown[name]) & picture.cue_mask for name in OBJECTS if name in shown},
    }
    return (lay_over(image, seal), {**masks, "stamp": _place(seal)}) if seal else (image, masks)


def _draw_exchanged(shot: Shot) -> tuple[Tensor, dict[str, Tensor]]:
    *earlier, (place, other) = shot.exchanged
    image, masks = _draw(shot._replace(exchanged=tuple(earlier)))
    (shown, others), image = _draw(other), image.clone()
    inside = place.mask()
    image[:, inside] = shown[:, inside]
    nowhere = torch.zeros_like(inside)
    return image, {
        name: torch.where(inside, others.get(name, nowhere), masks.get(name, nowhere)) for name in {*masks, *others}
    }


def _paint(shot: Shot, edit: Edit, water: bool = False) -> Scene:
    dry = Dice(shot.number).pick([name for name in BACKGROUNDS if name != "water"])
    background = "water" if water else dry
    return scene(shot.neighbour, "fish", seed=shot.number, background=background, edit=edit)


@lru_cache(maxsize=512)
def _lay_out(number: int, neighbour: str) -> dict[str, tuple[Sprite, Sprite]]:
    """Where everything that may be in a picture lies, and where it lies when it is moved."""
    found, dice, seal = {}, Dice(number).split(), draw_stamp()
    _paint(Shot(number, neighbour), lambda sprites: found.update(sprites) or {})  # where they would lie is enough
    taken = [*found.values(), seal]
    for name in OBJECTS:
        CUES[name].draw(pencil := Pencil())
        found[name] = _find_place(paint(pencil.parts, SIZE * 0.095), taken, dice, CUES[name].foot)
        taken.append(found[name])
    found["stamp"] = seal
    moved = {}
    for name, sprite in found.items():
        moved[name] = _find_place(sprite, [*taken, sprite], dice, (0.3, 0.97))
    return {name: (sprite, moved[name]) for name, sprite in found.items()}


def _find_place(sprite: Sprite, taken: Sequence[Sprite], dice: Dice, foot: tuple[float, float]) -> Sprite:
    height, width = sprite.alpha.shape
    lowest, highest = foot[1] * SIZE - height, max(foot[0] * SIZE - height, 2)
    boxes = torch.tensor([(each.left, each.top, each.left + each.alpha.shape[1], each.bottom) for each in taken])
    tries = []
    for _ in range(40):
        left, top = int(dice.between(2, SIZE - width - 2)), int(dice.between(highest, max(lowest, highest)))
        tries.append((left, top, left + width, top + height))
    left, top, *_ = tries[_overlap(torch.tensor(tries), boxes).sum(1).argmin()]
    return sprite._replace(left=left, top=top)


def _overlap(some: Tensor, others: Tensor) -> Tensor:
    """The numbers of pixels that boxes (N, 4) share with others (M, 4): (N, M); each is left, top, right, bottom."""
    shared = torch.minimum(some[:, None, 2:], others[:, 2:]) - torch.maximum(some[:, None, :2], others[:, :2])
    return shared.clamp(min=0).prod(2)


def _alter(places: tuple[Sprite, Sprite], state: str) -> Sprite:
    sprite = places[state == "moved"]
    if state != "blurred":
        return sprite
    reach = max(sprite.alpha.shape) // 5
    layers = torch.cat([torch.from_numpy(sprite.colour), torch.from_numpy(sprite.alpha)[None]])
    colour, alpha = F.avg_pool2d(layers[None], 2 * reach + 1, 1, reach)[0].split([3, 1])
    return sprite._replace(colour=colour.numpy(), alpha=alpha[0].numpy())


def _place(sprite: Sprite) -> Tensor:
    mask = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    mask[sprite.place] = torch.from_numpy(sprite.alpha > 0.05)
    return mask


# --- networks ---------------------------------------------------------------------------------------------------------

_answers: dict[tuple[str, Shot], bool] = {}
_asked: set[tuple[str, Album | int]] = set()  # since the last call of `forget_questions`; a number is a call by itself


@lru_cache
def network(letter: str) -> PictureNet:
    """Return one of the networks, for hooks and maps. Each call of it counts as a question about an album.

    Raises `CourseError` for a letter that there is not.
    """
    model = copy.deepcopy(_load(letter))
    model.register_forward_pre_hook(lambda module, args: _asked.add((letter, len(_asked))))
    return model


@lru_cache
def _load(letter: str) -> PictureNet:
    require("Networks", letter, LETTERS + LATER)
    dice = Dice(2039)
    order = sorted(range(len(LETTERS)), key=lambda _: dice.between(0, 1))
    return load_picture_net([*order, *range(len(LETTERS), len(CHECKPOINTS))][(LETTERS + LATER).index(letter)])


def prepare() -> None:
    """Load all networks, for a process that cannot read files later."""
    for letter in LETTERS + LATER:
        network(letter)


def says_fish(letter: str, album: Album) -> Tensor:
    """Return to which pictures of an album a network says "fish": (N,) bool."""
    _asked.add((letter, album))
    new = [shot for shot in dict.fromkeys(album.shots) if (letter, shot) not in _answers]
    if new:
        logits = compute_logits(_load(letter), Album(tuple(new)).images)[:, FISH]
        _answers.update({(letter, shot): logit > 0 for shot, logit in zip(new, logits.tolist(), strict=True)})
    return torch.tensor([_answers[letter, shot] for shot in album.shots])


def forget_questions() -> None:
    """Begin to count anew which albums the networks are asked about."""
    _asked.clear()


def asked_about(letter: str) -> set[Album | int]:
    """Return the albums that a network was asked about since `forget_questions`, and a number for each other call."""
    return {album for name, album in _asked if name == letter}


def fish_maps(letter: str, album: Album) -> Tensor:
    """Return where a network looks for a fish: Grad-CAM's maps (N, H, W) at its last layer, not below 0."""
    _asked.add((letter, album))
    model = _load(letter)
    last = f"features.{len(model.features) - 1}"
    return relu(upsample(grad_cam(model, album.images, last, FISH), (SIZE, SIZE)))


def share_of_fish(model: nn.Module, count: int = 200, seed: int = 9) -> dict[str, float]:
    """Return to which share of pictures a model says "fish" in which there is one thing alone, for each of them."""
    empty = fresh_pictures(count, seed)
    return {what: _share(model, _put(empty, what, "there")) for what in SUSPECTS + UNNAMED}


def share_without(model: nn.Module, count: int = 200, seed: int = 9) -> dict[str, float]:
    """Return to which share of pictures a model says "fish" in which one thing alone is missing, for each of them."""
    full = as_in_the_case(fresh_pictures(count, seed))
    return {what: _share(model, _put(full, what, "absent")) for what in SUSPECTS + UNNAMED}


def _share(model: nn.Module, album: Album) -> float:
    return (compute_logits(model, album.images)[:, FISH] > 0).float().mean().item()


def answers_changed(letter: str, before: Album, after: Album) -> float:
    """Return the share of pictures in which the answer of a network is another one after the change."""
    return (says_fish(letter, before) != says_fish(letter, after)).float().mean().item()


# --- what the lesson shows --------------------------------------------------------------------------------------------


def look(
    letter: str, number: int, heat_map: bool = True, without_ring: bool = False, **states: str
) -> tuple[Tensor, str, str]:
    """Return what the explorer shows: a case picture with its suspects in these states, and the network's map of it.

    heat_map: whether the map is shown. Without it, the picture and the answer are all.
    without_ring: whether the fresh picture is seen at the place where the map is hottest.
    """
    album = Album(case_pictures().shots[number - 1 : number])
    for what, state in states.items():
        album = _put(add(album, what), what, state)  # also what was absent can be moved
    shown = ", ".join(f"{what} {state}" for what, state in zip(SUSPECTS, album.shots[0].states, strict=False))
    thing, heat = album.shots[0].neighbour, fish_maps(letter, album)
    where = [what for what in SUSPECTS if what != "water" and points_at(heat, grow(album.masks(what), NEAR))]
    hottest = f"hottest at the {' and the '.join(where)}" if where else "hottest elsewhere"
    if without_ring:
        place = place_around(heat)
        album = exchange(album, Album(fresh_pictures(number, seed=2).shots[-1:]), place)
        shown += f"; but the place {tuple(place)} shows the picture without any of them"
    image = album.images[0]
    share = compute_logits(_load(letter), image[None])[0, FISH].sigmoid().item()
    answer = f"Network {letter} says fish: {'yes' if share > 0.5 else 'no'} ({share:.0%})."
    sentence, alt = f"Picture {number}: {shown}. {answer}", f"Picture {number} with a {thing}. {answer}"
    if not heat_map:
        return grid([draw_heat(image)], labels=[f"fish {share:.0%}"]), sentence, alt
    tiles = [draw_heat(image), draw_heat(image, scale_to_unit(heat)[0], mark=True)]
    labels = [f"picture {number}", f"network {letter}: fish {share:.0%}"]
    alt = f"Picture {number} with a {thing}, and where network {letter} looks for a fish: {hottest}."
    return grid(tiles, columns=2, labels=labels), f"{sentence} Its map is {hottest}.", alt


def place_around(heat: Tensor, side: int = 16) -> Place:
    """Return the square around the hottest pixel of a map (1, H, W), as far as it fits into the picture."""
    row, column = divmod(heat[0].argmax().item(), SIZE)
    top, left = (min(max(middle - side // 2, 0), SIZE - side) for middle in (row, column))
    return Place(top, left, side, side)
