"""The explorer of Grad-CAM: where the honest network and its misled twin look for one class, or a real one does."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import ipywidgets as widgets
from torch import Tensor

from course_utils.explorers import own_picture
from course_utils.explorers.own_picture import Chosen, KeptRun, PhotoExplorer, Subject, load_real
from course_utils.explorers.panel import View, begin, make_slider, name_place
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, scene
from course_utils.vision import real
from course_utils.vision.networks import MISLED_CUE, PictureNet, load_picture_net
from course_utils.vision.pictures import draw_heat, grid
from course_utils.vision.saliency import Run, Target, relu, scale_to_unit, upsample
from course_utils.vision.scores import chance, energy_inside, grow, points_at

# What is on the pictures to choose from: things, and the seed of their places, colours and light.
CAM_PICTURES = (
    ("cat", "dog", 6), ("fish", "boat", 2), ("plane", "house", 7), ("bird", "dog", 3), ("fish", "tree", 5),
    ("boat", "balloon", 4), ("car", "tree", 1), ("balloon", "bird", 8), ("house", "cat", 3), ("fish", "car", 8),
)  # fmt: skip
LAYERS = ("features.2", "features.6", "features.10", "features.13", "features.16")  # the ReLUs of the course's network
NETWORKS = ("honest", "misled")
CELL = 8  # pixels: one cell of the last map, which has 14 x 14


@functools.cache
def load_network(name: str) -> PictureNet:
    """Load the "honest" network or the "misled" one, once."""
    return load_picture_net(misled=name == "misled")


@functools.lru_cache(maxsize=32)
def find_scene(things: tuple[str, str, int], cue: str | None = None) -> Subject:
    """Draw two things with a seed, and perhaps a cue, once for the last few."""
    *kinds, seed = things
    return own_picture.read_scene(scene(*kinds, seed=seed, cue=cue))


@functools.lru_cache(maxsize=16)  # each keeps two megabytes
def run_network(network: str, picture: Subject) -> KeptRun:
    """Run a network of the course on a picture, once for the last few."""
    return own_picture.keep_run(load_network(network), picture.image, LAYERS)


def find_run(network: str, picture: Subject, words: str) -> tuple[Run, dict[str, Tensor], Target]:
    """A run of one of `NETWORKS` or of the real one, what its layers gave, and what it has for a class."""
    if network == real.REAL:
        return *own_picture.run_real(picture), load_real().read_target(words)
    return *run_network(network, picture), KINDS.index(words)


class CamLook(NamedTuple):
    """What one network makes of a picture: its probability for the one class, the heat map, what the map points at.

    There is no probability of one class rather than another.
    """

    network: str
    probability: float | None
    heat: Tensor
    words: str


def say_where(heat: Tensor, masks: Mapping[str, Tensor]) -> str:
    """Say on which of the things a map (H, W) is hottest; without any masks, in which part of the picture."""
    if not heat.any():
        return "finds nothing that speaks for it"
    for word, reach in (("on", 0), ("beside", CELL)):
        for name, mask in masks.items():
            if points_at(heat[None], grow(mask[None], reach)).item():
                return f"is hottest {word} the {name}"
    return "is hottest on the background" if masks else f"is hottest {name_place(heat)}"


@functools.lru_cache(maxsize=64)
def look_at(network: str, picture: Subject, words: str, layer: str) -> CamLook:
    """Ask a network for a class, or the real one for "one rather than another", once for the last few."""
    run, maps, target = find_run(network, picture, words)
    raw = run.part(layer, maps[layer]).grad_cam(target)
    heat = scale_to_unit(upsample(relu(raw), picture.image.shape[1:]))[0]
    shares = run.logits.softmax(1) if network == real.REAL else run.logits.sigmoid()
    probability = shares[0, target].item() if isinstance(target, int) else None
    return CamLook(network, probability, heat, say_where(heat, picture.masks))


def draw_cams(number: int, kind: str, layer: str, opacity: int = 60, buoy: bool = False, truth: bool = True) -> View:
    """Return what a `GradCam` shows of picture `number`: where the two networks of the course look.

    opacity: in per cent. buoy: whether one is added. truth: whether the thing is outlined where it is seen.
    """
    picture = find_scene(CAM_PICTURES[number - 1], MISLED_CUE if buoy else None)
    looks = [look_at(network, picture, kind, layer) for network in NETWORKS]
    mask = picture.masks.get(kind)
    sentences = [f"Picture {number}: {picture.title}."]
    if mask is None:
        sentences.append(f"There is no {kind} in it.")
    sentences += [_tell(look, kind, mask) for look in looks]
    if mask is not None:
        sentences.append(f"By chance {chance(mask[None]):.0%} of the heat would be on the {kind}.")
    maps = "; ".join(f"the map of the {look.network} one ({look.probability:.0%}) {look.words}" for look in looks)
    alt = f"{begin(picture.title)}; beside it, where the two networks look for the {kind}: {maps}."
    outlined = mask if truth else None
    heats = [None, *(look.heat for look in looks)]
    tiles = [draw_heat(picture.image, heat, outlined, opacity=opacity / 100) for heat in heats]
    labels = ["the picture", *(f"{look.network}: {kind} {look.probability:.0%}" for look in looks)]
    return View(grid(tiles, columns=len(tiles), labels=labels), " ".join(sentences), alt, facts=looks)


def draw_photo_cam(photo: Subject, words: str, layer: str, opacity: int = 60) -> View:
    """Return what a `GradCam` shows of a photograph: where the real network looks for a class."""
    look = look_at(real.REAL, photo, words, layer)
    asked = words if look.probability is None else f"{words} ({look.probability:.0%})"
    tiles = [draw_heat(photo.image, each, opacity=opacity / 100, scale=1) for each in (None, look.heat)]
    alt = f"{begin(photo.title)}; beside it, where the real network looks for {asked}: the map {look.words}."
    sentence = f"{own_picture.tell_likeliest(photo)} Asked for {asked}, at layer {layer}, the map {look.words}."
    return View(grid(tiles, columns=2, labels=["the picture", asked]), sentence, alt, facts=[look])


def _tell(look: CamLook, kind: str, mask: Tensor | None) -> str:
    answer = "yes" if look.probability > 0.5 else "no"
    text = f"The {look.network} network answers {kind}: {answer} ({look.probability:.0%}); its map {look.words}"
    if mask is not None and look.heat.any():
        text += f", with {energy_inside(look.heat[None], mask[None]).item():.0%} of its heat on the {kind}"
    return f"{text}."


class GradCam(PhotoExplorer):
    """Where the honest network and its misled twin look for a class, or the real network in a photograph.

    picture: the number of one of `CAM_PICTURES`, from 1, the name of one of `real.PHOTOGRAPHS`, or a picture of one's
        own, (3, H, W) in [0, 1], as `read_picture(file, size=224)` makes it.
    kind: the class, one of `scene.KINDS`. layer: the layer whose maps are weighted, one of `LAYERS`.
    opacity: of the map over the picture, from 0 to 1. buoy: whether a buoy is painted into the picture.

    A network runs once for each picture; another class or layer costs one backward pass, another opacity none.
    """

    draw, draw_photo = staticmethod(draw_cams), staticmethod(draw_photo_cam)
    count, place, layers = len(CAM_PICTURES), ("layer", "Layer"), (LAYERS, real.LAYERS)
    rows = ("own", "number", "buoy"), ("kind", "other"), ("layer", "opacity", "truth")
    only_course = ("number", "buoy", "truth")

    def __init__(
        self, picture: Chosen = 1, kind: str = "cat", *, layer: str = "", opacity: float = 0.6, buoy: bool = False
    ) -> None:
        if not 0 <= opacity <= 1:
            raise CourseError(f"opacity is from 0 (picture only) to 1 (map only), got {opacity!r}")
        box = functools.partial(widgets.Checkbox, indent=False)
        controls = {
            "buoy": box(description="with a buoy", value=buoy, layout={"width": "120px"}),
            "opacity": make_slider("Opacity %", 0, 100, round(100 * opacity), width=300, indent=90),
            "truth": box(description="outline of the truth", value=True, layout={"width": "160px"}),
        }
        controls["opacity"].step = 10
        super().__init__(picture, kind, layer, **controls)
