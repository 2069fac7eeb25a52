"""The explorer of Grad-CAM: where the honest network and its misled twin look for one class, or a real one does."""

import functools
from typing import NamedTuple

import ipywidgets as widgets
from torch import Tensor

from course_utils.explorers import own_picture
from course_utils.explorers.own_picture import Chosen, KeptRun, OwnPicture, Photo, PhotoExplorer, load_real
from course_utils.explorers.panel import View, make_choice, make_slider, name_place
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, SIZE, Scene, scene
from course_utils.vision import real
from course_utils.vision.networks import MISLED_CUE, PictureNet, load_picture_net
from course_utils.vision.pictures import draw_heat, grid
from course_utils.vision.saliency import relu, scale_to_unit, upsample
from course_utils.vision.scores import chance, energy_inside, grow, points_at

# What is on the pictures to choose from: things, and the seed of their places, colours and light.
CAM_PICTURES = (
    ("cat", "dog", 6), ("fish", "boat", 2), ("plane", "house", 7), ("bird", "dog", 3), ("fish", "tree", 5),
    ("boat", "balloon", 4), ("car", "tree", 1), ("balloon", "bird", 8), ("house", "cat", 1), ("fish", "car", 8),
)  # fmt: skip
LAYERS = ("features.2", "features.6", "features.10", "features.13", "features.16")  # the ReLUs of the course's network
NETWORKS = ("honest", "misled")
CELL = 8  # pixels: one cell of the last map, which has 14 x 14


@functools.cache
def load_network(name: str) -> PictureNet:
    """Load the "honest" network or the "misled" one, once."""
    return load_picture_net(misled=name == "misled")


@functools.lru_cache(maxsize=32)
def find_scene(things: tuple[str, str, int], cue: str | None = None) -> Scene:
    """Draw two things with a seed, and perhaps a cue, once for the last few."""
    return scene(*things[:2], seed=things[2], cue=cue)


@functools.lru_cache(maxsize=16)  # each keeps two megabytes
def run_network(network: str, picture: Tensor) -> KeptRun:
    """Run a network on a picture (3, H, W), once for the last few."""
    return own_picture.keep_run(load_network(network), picture, LAYERS)


class CamLook(NamedTuple):
    """What one network makes of a picture: its probability for the one class, the heat map, what the map points at."""

    network: str
    probability: float | None
    heat: Tensor
    words: str


def say_where(heat: Tensor, found: Scene | None) -> str:
    if not heat.any():
        return "finds nothing that speaks for it"
    if found is None:
        return f"is hottest {name_place(heat)}"
    for word, reach in (("on", 0), ("beside", CELL)):
        for name, mask in _masks_of(found).items():
            if points_at(heat[None], grow(mask[None], reach)).item():
                return f"is hottest {word} the {name}"
    return "is hottest on the background"


def _masks_of(found: Scene) -> dict[str, Tensor]:
    return dict(zip(found.labels, found.masks, strict=True)) | ({found.cue: found.cue_mask} if found.cue else {})


def draw_cams(
    number: int,
    kind: str,
    layer: str,
    opacity: int = 60,
    buoy: bool = False,
    truth: bool = True,
    own: Photo | None = None,
    other: str = "",
) -> View:
    """Return what the explorer shows for the choices of a `GradCam`.

    opacity: in per cent. truth: whether the thing is outlined where it is seen. own: a photograph, in the place of a
    numbered picture, for the real network; other: a class of its own choice, in the place of `kind`.
    """
    if own is not None:
        return draw_photo_cam(own, other or kind, layer, opacity)
    found = find_scene(CAM_PICTURES[number - 1], MISLED_CUE if buoy else None)
    looks, target = [], KINDS.index(kind)
    for network in NETWORKS:
        run, maps = run_network(network, found.image)
        heat = scale_to_unit(upsample(relu(run.part(layer, maps[layer]).grad_cam(target)), (SIZE, SIZE)))[0]
        looks.append(CamLook(network, run.logits[0, target].sigmoid().item(), heat, say_where(heat, found)))
    mask = _masks_of(found).get(kind)
    where = f"Picture {number}: {found}." + (f" There is no {kind} in it." if mask is None else "")
    sentences = [where, *(_tell(look, kind, mask) for look in looks)]
    if mask is not None:
        sentences.append(f"By chance {chance(mask[None]):.0%} of the heat would be on the {kind}.")
    maps = "; ".join(f"the map of the {look.network} one ({look.probability:.0%}) {look.words}" for look in looks)
    alt = f"{str(found).capitalize()}; beside it, where the two networks look for the {kind}: {maps}."
    outline, heats = mask if truth else None, [None, *(look.heat for look in looks)]
    tiles = [draw_heat(found.image, heat, outline, opacity=opacity / 100) for heat in heats]
    labels = ["the picture", *(f"{look.network}: {kind} {look.probability:.0%}" for look in looks)]
    return View(grid(tiles, columns=len(tiles), labels=labels), " ".join(sentences), alt, facts=looks)


@functools.lru_cache(maxsize=64)
def look_at_photo(photo: Photo, words: str, layer: str) -> CamLook:
    """Ask the real network about a photograph for a class, or for "one rather than another", once for the last few."""
    (run, maps), target = own_picture.run_real(photo), load_real().read_target(words)
    heat = scale_to_unit(upsample(relu(run.part(layer, maps[layer]).grad_cam(target)), photo.image.shape[1:]))[0]
    share = run.logits.softmax(1)[0, target].item() if isinstance(target, int) else None
    return CamLook(real.REAL, share, heat, say_where(heat, None))


def draw_photo_cam(photo: Photo, words: str, layer: str, opacity: int) -> View:
    """Show where the real network looks in a photograph."""
    look = look_at_photo(photo, words, layer)
    asked = words if look.probability is None else f"{words} ({look.probability:.0%})"
    tiles = [draw_heat(photo.image, each, opacity=opacity / 100, scale=1) for each in (None, look.heat)]
    alt = f"{photo.title}; beside it, where the real network looks for {asked}: the map {look.words}."
    sentence = f"{own_picture.tell_likeliest(photo)} Asked for {asked}, at layer {layer}, the map {look.words}."
    return View(grid(tiles, columns=2, labels=["the picture", asked]), sentence, alt[0].upper() + alt[1:], facts=[look])


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

    look = staticmethod(draw_cams)
    place, layers, only_course = "layer", (LAYERS, real.LAYERS), ("number", "buoy", "truth")

    def __init__(
        self, picture: Chosen = 1, kind: str = "cat", *, layer: str = "", opacity: float = 0.6, buoy: bool = False
    ) -> None:
        if not 0 <= opacity <= 1:
            raise CourseError(f"opacity is from 0 (picture only) to 1 (map only), got {opacity!r}")
        box, own = functools.partial(widgets.Checkbox, indent=False), OwnPicture(picture)
        photo, layers = own.value, self.layers[own.value is not None]
        choice, other = own_picture.make_class_controls(photo, kind)
        controls = {
            "number": make_slider("Picture", 1, len(CAM_PICTURES), 1 if photo else picture),
            "buoy": box(description="with a buoy", value=buoy, layout={"width": "120px"}),
            "own": own,
            "kind": choice,
            "other": other,
            "layer": make_choice(widgets.SelectionSlider, "Layer", layers, layer or layers[-1]),
            "opacity": make_slider("Opacity %", 0, 100, round(100 * opacity), step=10, indent=70),
            "truth": box(description="outline of the truth", value=True, layout={"width": "160px"}),
        }
        super().__init__(controls, [("number", "buoy", "own"), ("kind", "other"), ("layer", "opacity", "truth")])
