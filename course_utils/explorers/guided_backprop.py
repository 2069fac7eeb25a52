"""The explorer of Guided Backprop and the rules beside it."""

import functools
from collections.abc import Callable, Mapping

import ipywidgets as widgets
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.explorers.grad_cam import LAYERS, find_scene, load_network
from course_utils.explorers.panel import Explorer, View, make_choice, make_slider
from course_utils.hooks.record import record
from course_utils.scenes.scene import KINDS, Scene
from course_utils.vision.pictures import grid, outline, show_fixed
from course_utils.vision.saliency import ReluRule, explain, standardise

# What is on the pictures to choose from: things, and the seed of their places, colours and light.
GUIDED_PICTURES = (
    ("cat", "boat", 3), ("dog", "balloon", 2), ("fish", "tree", 5), ("bird", "dog", 3),
    ("plane", "house", 7), ("car", "tree", 1), ("house", "cat", 1), ("balloon", "bird", 8),
)  # fmt: skip
CLASS = "the class"
STARTS = (*LAYERS, CLASS)
RULES: Mapping[str, ReluRule] = {"gradient": "plain", "deconvnet": "deconvnet", "guided": "guided"}
SCALE = 3  # small pictures are shown larger, smoothly


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


class _UpTo(nn.Module):
    """A network that ends at one unit of one of its layers: that is its only logit."""

    def __init__(self, model: nn.Module, layer: str, unit: tuple[int, int, int]) -> None:
        super().__init__()
        self.model, self.layer, self.unit = model, layer, unit

    def forward(self, images: Tensor) -> Tensor:
        with record(self.model, self.layer, detach=False) as recording:
            self.model(images)
        return recording[self.layer].output[(slice(None), *self.unit)][:, None]


def find_unit(model: nn.Module, images: Tensor, layer: str, target: int) -> tuple[int, int, int]:
    """Return (channel, row, column) of the unit of `layer` that counts most for a class of the one image (1, C, H, W).

    That is the largest product of the unit's output and the logit's gradient at it.
    """
    with explain(model, images, layer) as run:
        counts = (run.activation * run.gradient(target))[0]
    return tuple(place.item() for place in torch.unravel_index(counts.argmax(), counts.shape))


@functools.lru_cache(maxsize=512)
def find_gradient(number: int, kind: str, start: str, rule: str) -> tuple[Tensor, str]:
    """The gradient (3, H, W) at the picture, and where it started, in words."""
    model, target = load_network("honest"), KINDS.index(kind)
    images = find_scene(GUIDED_PICTURES[number - 1]).image[None]
    if start != CLASS:
        channel, row, column = unit = find_unit(model, images, start, target)
        words = f"from channel {channel} of {start}, row {row}, column {column}, which counts most for the {kind}"
        model, target = _UpTo(model, start, unit), 0
    with explain(model, images, watch_relus=True) as run:
        if start == CLASS:
            words = f"from the class {kind} (probability {run.logits[0, target].sigmoid().item():.2f})"
        return run.gradient(target, relu_rule=RULES[rule])[0], words


def draw_guided(number: int, kind: str, start: str, rule: str, normalisation: str) -> View:
    """Return what the explorer shows for the choices of a `GuidedBackprop`: the picture, and beside it the gradient."""
    shown = find_scene(GUIDED_PICTURES[number - 1])
    gradient, words = find_gradient(number, kind, start, rule)
    alt = f"{str(shown).capitalize()}; beside it, the {rule} map for the {kind}, from {start}."
    framed, label = None, f"the picture; there is no {kind} in it"
    if start != CLASS:
        framed, label = _seen_by(gradient), "the picture; framed: what the unit sees"
    elif kind in shown.labels:
        framed, label = shown.masks[shown.labels.index(kind)], f"the picture; outlined: the {kind}"
    tiles = torch.stack([shown.image, NORMALISATIONS[normalisation](gradient)])
    image, drawn = F.interpolate(tiles, scale_factor=SCALE, mode="bilinear", align_corners=False).clamp(0, 1)
    if framed is not None:
        image = outline(image, framed.repeat_interleave(SCALE, 0).repeat_interleave(SCALE, 1), width=2)
    sheet = grid([image, drawn], columns=2, labels=[label, f"{rule}; shown as: {normalisation}"])
    return View(sheet, f"{rule.capitalize()} {words}{_tell(shown, gradient)}", alt)


def _tell(shown: Scene, gradient: Tensor) -> str:
    strength = gradient.abs().sum(0)
    total = strength.sum()
    if not total > 0:
        return ": the gradient is 0 everywhere."
    shares = ", ".join(
        f"{(strength[mask].sum() / total).item():.0%} on the {label} ({mask.float().mean().item():.0%} of the area)"
        for label, mask in zip(shown.labels, shown.masks, strict=True)
    )
    extremes = f"{gradient.min().item():.2g} to {gradient.max().item():.2g}"
    return f". Of the map's strength, {shares}. The values go from {extremes}."


def _seen_by(gradient: Tensor) -> Tensor:
    """(H, W) bool: the smallest box around all that is not 0."""
    strong = gradient.abs().sum(0) > 0
    spans = [(line.cumsum(0) > 0) & (line.flip(0).cumsum(0).flip(0) > 0) for line in (strong.any(1), strong.any(0))]
    return spans[0][:, None] & spans[1]


class GuidedBackprop(Explorer):
    """Gradient, deconvnet and Guided Backprop on the course's network, from a class or from one unit of a layer.

    picture: the number of one of `GUIDED_PICTURES`, from 1. kind: the class, one of `scene.KINDS`.
    start: where backward starts, one of `STARTS`: `CLASS`, its logit; or a layer, its unit that counts most for it.
    rule, normalisation: of `RULES` and `NORMALISATIONS`.

    Raises `CourseError` for what there is not.
    """

    look = staticmethod(draw_guided)

    def __init__(
        self,
        picture: int = 1,
        kind: str = "cat",
        *,
        start: str = CLASS,
        rule: str = "guided",
        normalisation: str = "mean 0.5, std 0.1",
    ) -> None:
        buttons = widgets.ToggleButtons
        controls = {
            "number": make_slider("Picture", 1, len(GUIDED_PICTURES), picture),
            "start": make_choice(widgets.SelectionSlider, "Start at", STARTS, start),
            "kind": make_choice(buttons, "Class", KINDS, kind, width=74),
            "rule": make_choice(buttons, "Rule", [*RULES], rule, width=100),
            "normalisation": make_choice(buttons, "Shown as", [*NORMALISATIONS], normalisation, width=150),
        }
        super().__init__(controls, [("number", "start"), "kind", "rule", "normalisation"])
