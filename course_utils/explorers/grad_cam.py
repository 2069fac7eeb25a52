"""The explorer of Grad-CAM: where the honest network and its misled twin look for one class."""

import functools
from dataclasses import dataclass, field

import ipywidgets as widgets
from torch import Tensor

from course_utils.explorers.own_picture import OwnPicture
from course_utils.explorers.panel import Explorer, View, make_choice, make_slider
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, SIZE, Scene, scene
from course_utils.vision.networks import MISLED_CUE, PictureNet, load_picture_net
from course_utils.vision.pictures import draw_heat, grid
from course_utils.vision.saliency import Run, explain, relu, scale_to_unit, upsample
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


@functools.lru_cache(maxsize=16)  # each keeps what comes after its layer, one or two megabytes
def run_network(network: str, image: Tensor, layer: str) -> Run:
    """Run a network on a picture (3, H, W), once for the same tensor: a class then costs one short backward pass."""
    return explain(load_network(network), image[None], layer)


@dataclass(frozen=True)
class CamLook:
    """What one network makes of a picture: its probability for the class, the heat map, what the map points at."""

    network: str
    probability: float
    heat: Tensor = field(repr=False)
    words: str


def _say_where(heat: Tensor, found: Scene | None) -> str:
    if not heat.any():
        return "finds nothing that speaks for it"
    if found is None:
        row, column = (3 * place // SIZE for place in divmod(heat.argmax().item(), SIZE))
        down, across = ("at the top", "in the middle", "at the bottom")[row], (", left", "", ", right")[column]
        return f"is hottest {down}{across}"
    for word, reach in (("on", 0), ("beside", CELL)):
        for name, mask in _masks_of(found).items():
            if points_at(heat[None], grow(mask[None], reach)).item():
                return f"is hottest {word} the {name}"
    return "is hottest on the background"


def _masks_of(found: Scene) -> dict[str, Tensor]:
    masks = dict(zip(found.labels, found.masks, strict=True))
    return masks | ({found.cue: found.cue_mask} if found.cue else {})


def draw_cams(
    number: int,
    kind: str,
    layer: str,
    opacity: int = 60,
    buoy: bool = False,
    truth: bool = True,
    own: Tensor | None = None,
) -> View:
    """Return what the explorer shows for the choices of a `GradCam`.

    opacity: in per cent. truth: whether the thing is outlined where it is seen. own: a picture in the place of a
    numbered one, (3, SIZE, SIZE) float32 in [0, 1]: no buoy is painted into it, and its truth is not known.
    """
    found = find_scene(CAM_PICTURES[number - 1], MISLED_CUE if buoy else None) if own is None else None
    image = found.image if found else own
    looks, target = [], KINDS.index(kind)
    for network in NETWORKS:
        run = run_network(network, image, layer)
        heat = scale_to_unit(upsample(relu(run.grad_cam(target)), (SIZE, SIZE)))[0]
        looks.append(CamLook(network, run.logits[0, target].sigmoid().item(), heat, _say_where(heat, found)))
    where = f"Picture {number}: {found}." if found else "Your own picture."
    mask = _masks_of(found).get(kind) if found else None
    if found and mask is None:
        where += f" There is no {kind} in it."
    sentences = [where, *(_tell(look, kind, mask) for look in looks)]
    if mask is not None:
        sentences.append(f"By chance {chance(mask[None]):.0%} of the heat would be on the {kind}.")
    title = str(found).capitalize() if found else "Your own picture"
    maps = "; ".join(f"the map of the {look.network} one {look.words}" for look in looks)
    alt = f"{title}; beside it, where the two networks look for the {kind}: {maps}."
    outline = mask if truth else None
    tiles = [draw_heat(image, None, outline)]
    tiles += [draw_heat(image, look.heat, outline, opacity=opacity / 100) for look in looks]
    labels = ["the picture", *(f"{look.network}: {kind} {look.probability:.0%}" for look in looks)]
    return View(grid(tiles, columns=len(tiles), labels=labels), " ".join(sentences), alt, facts=looks)


def _tell(look: CamLook, kind: str, mask: Tensor | None) -> str:
    answer = "yes" if look.probability > 0.5 else "no"
    text = f"The {look.network} network answers {kind}: {answer} ({look.probability:.0%}); its map {look.words}"
    if mask is not None and look.heat.any():
        text += f", with {energy_inside(look.heat[None], mask[None]).item():.0%} of its heat on the {kind}"
    return f"{text}."


class GradCam(Explorer):
    """Where the honest network and its misled twin look for a class, on a picture of the course or one's own.

    picture: the number of one of `CAM_PICTURES`, from 1, or a picture of one's own, (3, 112, 112) in [0, 1], as
        `read_picture(file, size=112)` makes it.
    kind: the class, one of `scene.KINDS`. layer: the layer whose maps are weighted, one of `LAYERS`.
    opacity: of the map over the picture, from 0 to 1. buoy: whether a buoy is painted into the picture.

    A network runs once for each picture and layer; another class costs one short backward pass, another opacity none.
    Raises `CourseError` for what there is not.
    """

    look = staticmethod(draw_cams)

    def __init__(
        self,
        picture: int | Tensor = 1,
        kind: str = "cat",
        *,
        layer: str = LAYERS[-1],
        opacity: float = 0.6,
        buoy: bool = False,
    ) -> None:
        own = picture if isinstance(picture, Tensor) else None
        if own is not None and own.shape != (3, SIZE, SIZE):
            way = f"got {tuple(own.shape)}: read_picture(file, size={SIZE}) makes one"
            raise CourseError(f"a picture of your own is (3, {SIZE}, {SIZE}), {way}")
        if not 0 <= opacity <= 1:
            raise CourseError(f"opacity is from 0 (picture only) to 1 (map only), got {opacity!r}")
        box = functools.partial(widgets.Checkbox, indent=False)
        controls = {
            "number": make_slider("Picture", 1, len(CAM_PICTURES), 1 if own is not None else picture),
            "buoy": box(description="with a buoy", value=buoy, layout={"width": "120px"}),
            "own": OwnPicture(SIZE, own),
            "kind": make_choice(widgets.ToggleButtons, "Class", KINDS, kind, width=76),
            "layer": make_choice(widgets.SelectionSlider, "Layer", LAYERS, layer),
            "opacity": make_slider("Opacity %", 0, 100, round(100 * opacity), step=10, indent=70),
            "truth": box(description="outline of the truth", value=True, layout={"width": "160px"}),
        }
        super().__init__(controls, [("number", "buoy", "own"), "kind", ("layer", "opacity", "truth")])

    def fit(self, name: str) -> None:
        """A picture of one's own has no number, no buoy and no known truth."""
        for each in ("number", "buoy", "truth"):
            self.controls[each].disabled = self.controls["own"].value is not None
