"""The explorer of Guided Backprop and the rules beside it."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

import ipywidgets as widgets
import torch
import torch.nn.functional as F
from torch import Tensor

from course_utils.explorers import own_picture
from course_utils.explorers.grad_cam import LAYERS, find_run, find_scene
from course_utils.explorers.own_picture import Chosen, PhotoExplorer, Subject
from course_utils.explorers.panel import View, begin, make_choice, name_place
from course_utils.vision import real
from course_utils.vision.pictures import grid, outline, show_fixed
from course_utils.vision.saliency import ReluRule, standardise, upsample

GUIDED_PICTURES = (  # as `CAM_PICTURES`
    ("cat", "boat", 3), ("dog", "balloon", 2), ("fish", "tree", 5), ("bird", "dog", 3),
    ("plane", "house", 7), ("car", "tree", 1), ("house", "cat", 1), ("balloon", "bird", 8),
)  # fmt: skip
CLASS = "the class"
STARTS = (*LAYERS, CLASS), (*real.LAYERS, CLASS)  # of the course's network, of the real one
RULES: Mapping[str, ReluRule] = {"gradient": "plain", "deconvnet": "deconvnet", "guided": "guided"}
SIDE = 336  # pixels: pictures are shown larger, smoothly


def show_sign(gradients: Tensor) -> Tensor:
    """Make gradients (..., C, H, W) pictures with 0.5 for zero, each on its own scale: signs stay, sizes do not.

    The strongest hundredth of the values is cut off, so that a few of them do not make all others grey.
    """
    return (0.5 + gradients / (2 * _nearly_most(gradients.abs()))).clamp(0, 1)


def show_strength(gradients: Tensor) -> Tensor:
    """Make gradients (..., C, H, W) grey pictures of their strength, each on its own scale, black for zero."""
    strength = gradients.abs().sum(-3, keepdim=True)
    return (strength / _nearly_most(strength)).clamp(0, 1).expand(gradients.shape)


def _nearly_most(values: Tensor) -> Tensor:
    """The value (..., 1, 1, 1) that one in a hundred of each (C, H, W) exceeds; where that is 0, the greatest, or 1."""
    flat = values.flatten(-3)
    high = flat.quantile(0.99, dim=-1)
    high = torch.where(high > 0, high, flat.amax(-1))
    return high.where(high > 0, 1)[..., None, None, None]


NORMALISATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean 0.5, std 0.1": standardise,
    "zero is grey": show_sign,
    "fixed scale": show_fixed,
    "strength": show_strength,
}


@functools.lru_cache(maxsize=64)
def find_unit(network: str, picture: Subject, kind: str, layer: str) -> tuple[int, int, int]:
    """Return (channel, row, column) of the unit of `layer` that counts most for a class.

    That is the largest product of the unit's output and the logit's gradient at it. At 6 and above, a ReLU6 of the real
    network lets no gradient pass: such units are left out.
    """
    run, maps, target = find_run(network, picture, kind)
    output = maps[layer]
    counts = (output.detach() * run.part(layer, output).gradient(target))[0]
    if network == real.REAL:
        counts *= output[0] < 6
    channel, place = divmod(counts.argmax().item(), counts[0].numel())
    return channel, *divmod(place, counts.shape[2])


@functools.lru_cache(maxsize=128)
def find_gradient(network: str, picture: Subject, kind: str, start: str, rule: str) -> tuple[Tensor, str]:
    """The gradient (3, H, W) at a picture, and where it started, in words."""
    run, maps, target = find_run(network, picture, kind)
    words = f"from the class {kind}"
    if start != CLASS:
        channel, row, column = find_unit(network, picture, kind, start)
        words = f"from channel {channel} of {start}, row {row}, column {column}, which counts most for the {kind}"
        run, target = run.part(end=maps[start]), lambda maps: maps[:, channel, row, column]
    elif network != real.REAL:
        words += f" (probability {run.logits[0, target].sigmoid().item():.2f})"
    return run.gradient(target, relu_rule=RULES[rule])[0], words


def draw_guided(number: int, kind: str, start: str, rule: str, normalisation: str) -> View:
    """Return what a `GuidedBackprop` shows of picture `number`: the picture, and beside it the gradient."""
    return _draw("honest", find_scene(GUIDED_PICTURES[number - 1]), kind, start, rule, normalisation)


def draw_guided_photo(photo: Subject, words: str, start: str, rule: str, normalisation: str) -> View:
    """Return what a `GuidedBackprop` shows of a photograph: the same, and what the real network says about it."""
    view = _draw(real.REAL, photo, words, start, rule, normalisation)
    return replace(view, sentence=f"{own_picture.tell_likeliest(photo)} {view.sentence}")


def _draw(network: str, picture: Subject, kind: str, start: str, rule: str, normalisation: str) -> View:
    gradient, words = find_gradient(network, picture, kind, start, rule)
    place = f"strongest {name_place(gradient.abs().sum(0))}" if gradient.any() else "0 everywhere"
    alt = f"{begin(picture.title)}; beside it, the {rule} map for the {kind}, from {start}, is {place}."
    framed = picture.masks.get(kind)
    if start != CLASS:
        framed, label = _seen_by(gradient), "the picture; framed: what the unit sees"
        alt += f" The frame holds {framed.float().mean():.0%} of the picture."
    elif framed is not None:
        label = f"the picture; outlined: the {kind}"
    else:
        label = f"the picture; there is no {kind} in it" if picture.masks else "the picture"
    rough = network == real.REAL  # its first layer has stride 2, which leaves a pattern of single pixels
    scaled = NORMALISATIONS[normalisation](F.avg_pool2d(gradient, 2) if rough else gradient)
    image, drawn = (upsample(each, (SIDE, SIDE)) for each in (picture.image, scaled))
    if framed is not None:
        image = outline(image, F.interpolate(framed[None, None].float(), size=(SIDE, SIDE))[0, 0] > 0.5, width=2)
    sheet = grid([image, drawn], columns=2, labels=[label, f"{rule}; shown as: {normalisation}"])
    sentence = f"{rule.capitalize()} {words}{_tell(picture, gradient)}"
    return View(sheet, f"{sentence} The drawing shows means of 2 x 2 pixels." if rough else sentence, alt)


def _tell(picture: Subject, gradient: Tensor) -> str:
    strength = gradient.abs().sum(0)
    total = strength.sum()
    if not total > 0:
        return ": the gradient is 0 everywhere."
    extremes = f"The values go from {gradient.min().item():.2g} to {gradient.max().item():.2g}."
    shares = ", ".join(
        f"{(strength[mask].sum() / total).item():.0%} on the {name} ({mask.float().mean().item():.0%} of the area)"
        for name, mask in picture.masks.items()
    )
    return f". Of the map's strength, {shares}. {extremes}" if shares else f". {extremes}"


def _seen_by(gradient: Tensor) -> Tensor:
    """(H, W) bool: the smallest box around all that is not 0."""
    rows, columns = (gradient.abs().sum(0) > 0).nonzero().T
    box = torch.zeros(gradient.shape[1:], dtype=torch.bool)
    if len(rows):
        box[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] = True
    return box


class GuidedBackprop(PhotoExplorer):
    """Gradient, deconvnet and Guided Backprop from a class or from one unit of a layer.

    picture: the number of one of `GUIDED_PICTURES`, from 1, for the course's network; or, for the real one, the name of
        one of `real.PHOTOGRAPHS` or a picture of one's own, (3, H, W) in [0, 1].
    kind: the class, one of `scene.KINDS`.
    start: where backward starts, one of `STARTS`: `CLASS`, its logit; or a layer, its unit that counts most for it.
    rule, normalisation: of `RULES` and `NORMALISATIONS`. Without them, backward starts from the class, and the picture
        has the mean 0.5.
    """

    draw, draw_photo = staticmethod(draw_guided), staticmethod(draw_guided_photo)
    count, place, layers = len(GUIDED_PICTURES), ("start", "Start at"), STARTS
    rows = ("own", "number"), ("kind", "other"), "rule", "picture", "sentence", ["start", "normalisation"]

    def __init__(
        self, picture: Chosen = 1, kind: str = "cat", *, start: str = "", rule: str = "guided", normalisation: str = ""
    ) -> None:
        scale = normalisation or next(iter(NORMALISATIONS))
        rules = make_choice(widgets.ToggleButtons, "Rule", [*RULES], rule, width=100)
        scales = make_choice(widgets.ToggleButtons, "Shown as", [*NORMALISATIONS], scale, width=150)
        super().__init__(picture, kind, start, rule=rules, normalisation=scales)
