"""What the explorer of Grad-CAM shows: a picture, and where two networks look for one class, as a sheet and a sentence.

    view = draw_cams(CamChoice(picture=2, kind="fish", buoy=True))
    view.sheet        (3, H, W): the picture, the honest network's map, the misled twin's map
    view.sentence     the same in words and numbers

Pure: the same choice gives the same view. A run of a network is kept, so that another class costs a backward pass from
its logit to the layer, and another opacity nothing but the drawing.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
from dataclasses import dataclass, field

from torch import Tensor

from course_utils.scenes.scene import (
    KINDS,
    SIZE,
    Scene,
    scene,
)
from course_utils.vision.networks import MISLED_CUE, PictureNet, load_picture_net
from course_utils.vision.pictures import (
    draw_heat,
    grid,
)
from course_utils.vision.saliency import (
    Run,
    explain,
    relu,
    scale_to_unit,
    upsample,
)
from course_utils.vision.scores import (
    chance,
    energy_inside,
    grow,
    points_at,
)

# What is on the pictures to choose from: things, and the seed of their places, colours and light.
CAM_PICTURES = (
    ("cat", "dog", 6),
    ("fish", "boat", 2),
    ("plane", "house", 7),
    ("bird", "dog", 3),
    ("fish", "tree", 5),
    ("boat", "balloon", 4),
    ("car", "tree", 1),
    ("balloon", "bird", 8),
    ("house", "cat", 1),
    ("fish", "car", 8),
)
CAM_LAYERS = ("features.2", "features.6", "features.10", "features.13", "features.16")
NETWORKS = {"honest": False, "misled": True}
KEPT_RUNS = 16  # a run keeps what comes after its layer, one or two megabytes
CELL = 8  # pixels: one cell of the last map, which has 14 x 14


class CamError(ValueError):
    """A picture, class, layer or opacity that there is not; the message says which there are."""


@dataclass(frozen=True)
class CamChoice:
    """The state of the explorer.

    picture: the number of one of `CAM_PICTURES`, from 1; or a picture of one's own, (3, SIZE, SIZE) float32 in [0, 1].
    kind: the class to explain, one of `KINDS`.
    layer: one of `CAM_LAYERS`.
    opacity: of the map over the picture, from 0 to 1.
    buoy: whether a buoy is painted into the picture, which changes nothing else (not into one's own).
    truth: whether the thing is outlined where it is seen.
    """

    picture: int | Tensor = 1
    kind: str = "cat"
    layer: str = CAM_LAYERS[-1]
    opacity: float = 0.6
    buoy: bool = False
    truth: bool = True


@dataclass(frozen=True)
class CamLook:
    """What one network makes of a picture: its probability for the class, the heat map, what the map points at."""

    network: str
    probability: float
    heat: Tensor = field(repr=False)
    words: str


@dataclass(frozen=True)
class CamView:
    """`sheet`: (3, H, W) float32 in [0, 1]; `sentence`: what it shows; `alt`: the same, shorter, without numbers."""

    sheet: Tensor = field(repr=False)
    sentence: str
    alt: str
    looks: tuple[CamLook, ...]


def draw_cams(choice: CamChoice) -> CamView:
    """Return what the explorer shows for a choice. Raises `CamError` for what there is not."""
    _check(choice)
    image, scene_ = _image_of(choice)
    looks = tuple(_look(name, choice, image, scene_) for name in NETWORKS)
    title = str(scene_) if scene_ else "your own picture"
    alt = f"{title.capitalize()}; beside it, where the two networks look for the {choice.kind}: " + "; ".join(
        f"the map of the {look.network} one {look.words}" for look in looks
    )
    return CamView(_draw_sheet(choice, image, scene_, looks), _tell(choice, scene_, looks), f"{alt}.", looks)


def _check(choice: CamChoice) -> None:
    if not isinstance(choice.picture, Tensor):
        if not isinstance(choice.picture, int) or not 1 <= choice.picture <= len(CAM_PICTURES):
            raise CamError(f"picture is a number from 1 to {len(CAM_PICTURES)}, got {choice.picture!r}")
    elif choice.picture.shape != (3, SIZE, SIZE):
        wanted = f"(3, {SIZE}, {SIZE})"
        raise CamError(
            f"a picture of your own is {wanted}, got {tuple(choice.picture.shape)}: read_picture(file, size={SIZE}) "
            "makes one"
        )
    for what, value, known in (("class", choice.kind, KINDS), ("layer", choice.layer, CAM_LAYERS)):
        if value not in known:
            near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise CamError(f"there is no {what} {value!r} here; {hint}There are: {', '.join(known)}")
    if not 0 <= choice.opacity <= 1:
        raise CamError(f"opacity is from 0 (picture only) to 1 (map only), got {choice.opacity!r}")


# --- running ----------------------------------------------------------------------------------------------------------


@functools.cache
def _network(name: str) -> PictureNet:
    return load_picture_net(misled=NETWORKS[name])


@functools.lru_cache(maxsize=2 * len(CAM_PICTURES))
def _scene(picture: int, buoy: bool) -> Scene:
    *kinds, seed = CAM_PICTURES[picture - 1]
    return scene(*kinds, seed=seed, cue=MISLED_CUE if buoy else None)


def _image_of(choice: CamChoice) -> tuple[Tensor, Scene | None]:
    if isinstance(choice.picture, Tensor):
        return choice.picture, None
    found = _scene(choice.picture, choice.buoy)
    return found.image, found


class Runs:
    """The latest runs of the networks, by network, picture and layer: another class of one is a short backward pass."""

    def __init__(self, most: int = KEPT_RUNS) -> None:
        self._kept: dict[tuple[str, bytes, str], Run] = {}
        self._most = most
        self.made = 0

    def get(self, network: str, image: Tensor, layer: str) -> Run:
        """Return the run of a network on a picture (3, H, W), kept from before or made now."""
        key = (network, hashlib.sha1(image.contiguous().numpy().tobytes()).digest(), layer)
        run = self._kept.pop(key, None)
        if run is None:
            run = explain(_network(network), image[None], layer)
            self.made += 1
        self._kept[key] = run  # the latest one is last
        while len(self._kept) > self._most:
            self._kept.pop(next(iter(self._kept))).close()
        return run


RUNS = Runs()


def _look(network: str, choice: CamChoice, image: Tensor, scene_: Scene | None) -> CamLook:
    run = RUNS.get(network, image, choice.layer)
    number = KINDS.index(choice.kind)
    heat = scale_to_unit(upsample(relu(run.grad_cam(number)), (SIZE, SIZE)))[0]
    probability = run.logits[0, number].sigmoid().item()
    return CamLook(network, probability, heat, _say_where(heat, choice, scene_))


# --- in words ---------------------------------------------------------------------------------------------------------


def _say_where(heat: Tensor, choice: CamChoice, scene_: Scene | None) -> str:
    """What the map points at: `is hottest on the fish`."""
    if not heat.any():
        return "finds nothing that speaks for it"
    if scene_ is None:
        row, column = divmod(heat.argmax().item(), SIZE)
        return f"is hottest {_name_region(row, column)}"
    for word, reach in (("on", 0), ("beside", CELL)):
        for name, mask in _masks(scene_).items():
            if points_at(heat[None], grow(mask[None], reach)).item():
                return f"is hottest {word} the {name}"
    return "is hottest on the background"


def _masks(scene_: Scene) -> dict[str, Tensor]:
    """What is in a scene, and where."""
    masks = dict(zip(scene_.labels, scene_.masks, strict=True))
    return masks | ({scene_.cue: scene_.cue_mask} if scene_.cue else {})


def _name_region(row: int, column: int) -> str:
    down = ("at the top", "in the middle", "at the bottom")[3 * row // SIZE]
    across = ("left", "", "right")[3 * column // SIZE]
    return f"{down}, {across}" if across else down


def _tell(choice: CamChoice, scene_: Scene | None, looks: tuple[CamLook, ...]) -> str:
    where = f"Picture {choice.picture}: {scene_}." if scene_ else "Your own picture."
    truth = None if scene_ is None else _masks(scene_).get(choice.kind)
    if scene_ is not None and truth is None:
        where += f" There is no {choice.kind} in it."
    sentences = [where, *(_tell_look(look, choice, truth) for look in looks)]
    if truth is not None:
        sentences.append(f"By chance {chance(truth[None]):.0%} of the heat would be on the {choice.kind}.")
    return " ".join(sentences)


def _tell_look(look: CamLook, choice: CamChoice, truth: Tensor | None) -> str:
    answer = "yes" if look.probability > 0.5 else "no"
    text = f"The {look.network} network answers {choice.kind}: {answer} ({look.probability:.0%}); its map {look.words}"
    if truth is not None and look.heat.any():
        text += f", with {energy_inside(look.heat[None], truth[None]).item():.0%} of its heat on the {choice.kind}"
    return f"{text}."


def _draw_sheet(choice: CamChoice, image: Tensor, scene_: Scene | None, looks: tuple[CamLook, ...]) -> Tensor:
    mask = _masks(scene_).get(choice.kind) if scene_ is not None and choice.truth else None
    tiles = [draw_heat(image, None, mask)]
    tiles += [draw_heat(image, look.heat, mask, opacity=choice.opacity) for look in looks]
    labels = ["the picture", *(f"{look.network}: {choice.kind} {look.probability:.0%}" for look in looks)]
    return grid(tiles, columns=len(tiles), labels=labels)
