"""The blind investigation of lesson 10: four networks, pictures that can be changed, and a judge of proofs.

empty = fresh_pictures(12, seed=3)                # with some other thing, and nothing of what is suspected
answers_changed("A", empty, add(empty, "buoy"))   # in which share of them the answer of network A changes
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

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

LETTERS = "ABCD"
SUSPECTS = ("fish", "buoy", "stamp", "water", "sun")
OBJECTS = ("buoy", "sun")  # those of them that the picture world calls cues
FISH = KINDS.index("fish")
MARGIN = 4  # pixels between the stamp and the edges of its corner
NEAR = 8  # pixels, which are one cell of the last maps
EFFECT = 0.5  # the share of changed answers from which a change counts as one that matters

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


def stamp(images: Tensor, sprite: Sprite | None = None) -> Tensor:
    """Return pictures (..., 3, H, W), uint8 or float in [0, 1], with the stamp on them."""
    sprite, scale = sprite or draw_stamp(), 1 if images.is_floating_point() else 255
    stamped = images.clone()
    region = images[(..., *sprite.place)] * torch.from_numpy(1 - sprite.alpha)
    region += scale * torch.from_numpy(sprite.colour)
    stamped[(..., *sprite.place)] = region.to(images.dtype) if scale == 1 else region.round().to(images.dtype)
    return stamped


class Shot(NamedTuple):
    """One picture: its number, the thing that is always in it, and the state of each of `SUSPECTS`."""

    number: int
    neighbour: str
    states: tuple[str, ...] = ("absent",) * len(SUSPECTS)


@dataclass(frozen=True, repr=False)
class Album:
    """Pictures that differ from one another, and in which each suspect is there, absent, moved or blurred."""

    shots: tuple[Shot, ...]

    def __len__(self) -> int:
        return len(self.shots)

    def __repr__(self) -> str:
        states = [dict.fromkeys(column) for column in zip(*(shot.states for shot in self.shots), strict=True)]
        found = [
            f"the {name} is {' or '.join(each)}"
            for name, each in zip(SUSPECTS, states, strict=True)
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
    album = fresh_pictures(count, seed=2)
    for what in ("fish", "buoy", "stamp", "water"):
        album = add(album, what)
    return album


def add(album: Album, what: str) -> Album:
    """Return the same pictures with a suspect in its usual place, whatever it was like before."""
    return _put(album, what, "there")


def remove(album: Album, what: str) -> Album:
    """Return the same pictures without a suspect: what was behind it is seen."""
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
    place, shots = _check(what), []
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
    state = dict(zip(SUSPECTS, shot.states, strict=True)) | {shot.neighbour: "there"}
    layout = _lay_out(shot.number, shot.neighbour)
    shown = {name: _alter(places, state[name]) for name, places in layout.items() if state[name] != "absent"}
    seal = shown.pop("stamp", None)
    picture = _paint(shot, lambda sprites: shown, water=state["water"] != "absent")
    image = (picture.image * 255).round().byte()
    masks = {
        "fish": picture.masks[1],
        **{name: _place(shown[name]) & picture.cue_mask for name in OBJECTS if name in shown},
    }
    return (stamp(image, seal), {**masks, "stamp": _place(seal)}) if seal else (image, masks)


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


@lru_cache
def network(letter: str) -> PictureNet:
    """Return one of the four networks, for hooks and maps. Raises `CourseError` for a letter that there is not."""
    require("Networks", letter, LETTERS)
    dice = Dice(2039)
    return load_picture_net(sorted(range(len(CHECKPOINTS)), key=lambda _: dice.between(0, 1))[LETTERS.index(letter)])


def prepare() -> None:
    """Load all networks, for a process that cannot read files later."""
    for letter in LETTERS:
        network(letter)


def says_fish(letter: str, album: Album) -> Tensor:
    """Return to which pictures of an album a network says "fish": (N,) bool."""
    model = network(letter)
    new = [shot for shot in dict.fromkeys(album.shots) if (letter, shot) not in _answers]
    if new:
        logits = compute_logits(model, Album(tuple(new)).images)[:, FISH]
        _answers.update({(letter, shot): logit > 0 for shot, logit in zip(new, logits.tolist(), strict=True)})
    return torch.tensor([_answers[letter, shot] for shot in album.shots])


def fish_maps(letter: str, album: Album) -> Tensor:
    """Return where a network looks for a fish: Grad-CAM's maps (N, H, W) at its last layer, not below 0."""
    return relu(upsample(grad_cam(network(letter), album.images, "features.16", FISH), (SIZE, SIZE)))


def share_of_fish(model: nn.Module, count: int = 200, seed: int = 9) -> dict[str, float]:
    """Return to which share of pictures a model says "fish" in which there is one suspect alone, for each of them."""
    empty = fresh_pictures(count, seed)
    logits = {what: compute_logits(model, add(empty, what).images)[:, FISH] for what in SUSPECTS}
    return {what: (each > 0).float().mean().item() for what, each in logits.items()}


def answers_changed(letter: str, before: Album, after: Album) -> float:
    """Return the share of pictures in which the answer of a network is another one after the change."""
    return (says_fish(letter, before) != says_fish(letter, after)).float().mean().item()


# --- proofs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Proof:
    """A verdict and the experiment that is to prove it.

    causes: what the network takes for a fish: one of `SUSPECTS`, or several.
    pairs: albums (before, after) of the same pictures; the networks are asked about both.
    """

    causes: str | Sequence[str]
    pairs: Sequence[tuple[Album, Album]]


ACCEPTED = "accepted"


def weigh(letter: str, pictures: Album, proof: Proof) -> str:
    """Make the experiment of a proof about a network, and return "accepted", or "refused" with the reason.

    A proof is accepted if each cause, changed alone, changes most answers; if nothing else that is changed alone does;
    if there is something else, for control; and if no other network gives the same answers to all pairs.
    """
    try:
        causes, pairs = _read_causes(proof), _read_pairs(proof)
        for before, after in pairs:
            _refuse_other_pictures(pictures, before, after)
        changed = [(_changed(*pair), answers_changed(letter, *pair)) for pair in pairs]
        _refuse_causes_without_effect(causes, changed)
        _refuse_other_effects(causes, changed)
        for other in LETTERS:
            if other != letter and all(_alike(letter, other, *pair) for pair in pairs):
                raise _Refused("another network gives the same answers to all your pairs")
    except _Refused as reason:
        return f"refused: {reason}"
    return ACCEPTED


class _Refused(Exception):
    """Why a proof is not accepted."""


def _read_causes(proof: Proof) -> set[str]:
    causes = {proof.causes} if isinstance(proof.causes, str) else set(proof.causes)
    if not causes <= set(SUSPECTS):
        raise _Refused(f"each cause is one of {', '.join(SUSPECTS)}")
    if not causes:
        raise _Refused("it names no cause")
    return causes


def _read_pairs(proof: Proof) -> list[tuple[Album, Album]]:
    pairs = [tuple(pair) for pair in proof.pairs]
    if not pairs or not all(len(pair) == 2 and all(isinstance(each, Album) for each in pair) for pair in pairs):
        raise _Refused("an experiment is a list of pairs of albums, (before, after)")
    return pairs


def _refuse_other_pictures(pictures: Album, before: Album, after: Album) -> None:
    given, numbers = {shot.number for shot in pictures.shots}, [shot.number for shot in before.shots]
    if numbers != [shot.number for shot in after.shots]:
        raise _Refused("before and after are not the same pictures, so that all of the picture differs")
    if not given.issuperset(numbers):
        raise _Refused("the experiment was not made on the fresh pictures that it was given")
    if 2 * len(set(numbers)) < len(given):
        raise _Refused("what happens in so few pictures may be an accident of these pictures")


Changed = Sequence[tuple[set[str], float]]  # of each pair: what differs, and the share of answers that change


def _refuse_causes_without_effect(causes: set[str], changed: Changed) -> None:
    for cause in [each for each in SUSPECTS if each in causes]:
        alone = [share for what, share in changed if what == {cause}]
        if not alone:
            together = any(cause in what for what, _ in changed)
            how = "is changed only together with something else" if together else "is never changed"
            raise _Refused(f"a cause that you name {how}")
        if max(alone) < EFFECT:
            raise _Refused("a cause that you name is changed alone, and most answers stay as they are")


def _refuse_other_effects(causes: set[str], changed: Changed) -> None:
    others = [share for what, share in changed if len(what) == 1 and not what <= causes]
    if not others:
        raise _Refused("nothing but the cause is ever changed alone, so perhaps any change does the same")
    if max(others) >= EFFECT:
        raise _Refused("something that you do not name, changed alone, changes most answers as well")


def seal(letter: str, pictures: Album, proof: Proof, verdict: str) -> int:
    """Return a number that belongs to an accepted verdict and its causes, so that nobody can write it without them."""
    causes = sorted([proof.causes] if isinstance(proof.causes, str) else set(proof.causes))
    return zlib.crc32(f"{letter} {pictures.shots} {causes}".encode()) if verdict == ACCEPTED else 0


def hear(prove: Callable, letter: str) -> tuple[list[str], str]:
    """Return the causes that a learner's function proves for a network, none if it does not, and a sentence about it.

    Which network it is stays unsaid as long as there is no proof.
    """
    pictures = fresh_pictures(12, seed=40)
    try:
        proof = prove(letter, pictures)
    except Exception as error:  # whatever the learner's function raises
        return [], f"The case is still open: `prove` raised {type(error).__name__}."
    if not isinstance(proof, Proof):
        return [], "The case is still open: `prove` returns no Proof yet."
    verdict = weigh(letter, pictures, proof)
    if verdict != ACCEPTED:
        return [], f"The case is still open: the proof was {verdict}."
    causes = sorted(_read_causes(proof))
    shares = [answers_changed(letter, pictures, add(pictures, each)) for each in causes]
    found = " and ".join(f"the {each} ({share:.0%} of the answers)" for each, share in zip(causes, shares, strict=True))
    return causes, (
        f"Network {letter} is the network of the case, and your proof is accepted. On {len(pictures)} fresh pictures, "
        f"adding one thing alone changed its answers: {found}."
    )


def _changed(before: Album, after: Album) -> set[str]:
    pairs = [
        zip(SUSPECTS, one.states, other.states, strict=True)
        for one, other in zip(before.shots, after.shots, strict=True)
    ]
    return {what for pair in pairs for what, one, other in pair if one != other}


def _alike(letter: str, other: str, before: Album, after: Album) -> bool:
    return abs(answers_changed(letter, before, after) - answers_changed(other, before, after)) < EFFECT


# --- what the lesson shows --------------------------------------------------------------------------------------------


def look(letter: str, number: int, heat_map: bool = True, **states: str) -> tuple[Tensor, str, str]:
    """Return what the explorer shows: a case picture with its suspects in these states, and the network's map of it.

    heat_map: whether the map is shown. Without it, the picture and the answer are all.
    """
    album = Album(case_pictures().shots[number - 1 : number])
    for what, state in states.items():
        album = _put(add(album, what), what, state)  # also what was absent can be moved
    image, model = album.images, network(letter)
    share = compute_logits(model, image)[0, FISH].sigmoid().item()
    shown = ", ".join(f"{what} {state}" for what, state in zip(SUSPECTS, album.shots[0].states, strict=True))
    answer = f"Network {letter} says fish: {'yes' if share > 0.5 else 'no'} ({share:.0%})."
    if not heat_map:
        alt = f"Picture {number} with a {album.shots[0].neighbour}. {answer}"
        return grid([draw_heat(image[0])], labels=[f"fish {share:.0%}"]), f"Picture {number}: {shown}. {answer}", alt
    heat = fish_maps(letter, album)
    where = [what for what in SUSPECTS if what != "water" and points_at(heat, grow(album.masks(what), NEAR))]
    hottest = f"hottest at the {' and the '.join(where)}" if where else "hottest elsewhere"
    sentence = f"{answer} Its map is {hottest}."
    tiles = [draw_heat(image[0]), draw_heat(image[0], scale_to_unit(heat)[0], mark=True)]
    alt = f"Picture {number} with a {album.shots[0].neighbour}, and where network {letter} looks for a fish: {hottest}."
    labels = [f"picture {number}", f"network {letter}: fish {share:.0%}"]
    return grid(tiles, columns=2, labels=labels), f"Picture {number}: {shown}. {sentence}", alt
