"""Pictures of lesson 06: what three rules make of a small net, and what its explorer shows, as a sheet and a sentence.

    view = draw_guided(GuidedChoice(picture=2, kind="fish", rule="guided"))
    view.sheet        (3, H, W): the picture, and beside it the map of the choice
    view.sentence     the same in words and numbers

Pure: the same choice gives the same view. What a network said is kept, so that another look at it costs only drawing.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.hooks.record import record
from course_utils.scenes.scene import (
    KINDS,
    SIZE,
    Scene,
    scene,
)
from course_utils.vision.networks import PictureNet, load_picture_net
from course_utils.vision.pictures import (
    grid,
    outline,
    show_fixed,
)
from course_utils.vision.saliency import ReluRule, explain, standardise

# What is on the pictures to choose from: things, and the seed of their places, colours and light.
GUIDED_PICTURES = (
    ("cat", "boat", 3),
    ("dog", "balloon", 2),
    ("fish", "tree", 5),
    ("bird", "dog", 3),
    ("plane", "house", 7),
    ("car", "tree", 1),
    ("house", "cat", 1),
    ("balloon", "bird", 8),
)
GUIDED_KINDS = KINDS
CLASS = "the class"
STARTS = ("features.2", "features.6", "features.10", "features.13", "features.16", CLASS)
RULES: Mapping[str, ReluRule] = {"gradient": "plain", "deconvnet": "deconvnet", "guided": "guided"}
SCALE = 3  # small pictures are shown larger, smoothly


class GuidedError(ValueError):
    """A picture, class, start, rule or normalisation that there is not; the message says which there are."""


# --- the explorer -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GuidedChoice:
    """The state of the explorer.

    picture: the number of one of `GUIDED_PICTURES`, from 1.
    kind: the class that is asked for, one of `KINDS`.
    start: where backward starts: `CLASS`, the logit; or one of the other `STARTS`, a layer: at the unit of it that
        counts most for the class (its output times the logit's gradient is the largest).
    rule: one of `RULES`.
    normalisation: one of `NORMALISATIONS`.
    """

    picture: int = 1
    kind: str = "cat"
    start: str = CLASS
    rule: str = "guided"
    normalisation: str = "mean 0.5, std 0.1"


@dataclass(frozen=True)
class GuidedView:
    """`sheet`: (3, H, W) float32 in [0, 1]; `sentence`: what it shows, with numbers; `alt`: the same, shorter."""

    sheet: Tensor = field(repr=False)
    sentence: str
    alt: str


def draw_guided(choice: GuidedChoice) -> GuidedView:
    """Return what the explorer shows for a choice. Raises `GuidedError` for what there is not."""
    _check(choice)
    shown = _scene(choice.picture)
    gradient, words = _find_gradient(choice.picture, choice.kind, choice.start, choice.rule)
    alt = f"{str(shown).capitalize()}; beside it, the {choice.rule} map for the {choice.kind}, from {choice.start}."
    return GuidedView(_draw_sheet(choice, shown, gradient), _tell(choice, shown, gradient, words), alt)


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


def _check(choice: GuidedChoice) -> None:
    number = choice.picture
    if not isinstance(number, int) or not 1 <= number <= len(GUIDED_PICTURES):
        raise GuidedError(f"picture is a number from 1 to {len(GUIDED_PICTURES)}, got {number!r}")
    for what, value, known in (
        ("class", choice.kind, KINDS),
        ("start", choice.start, STARTS),
        ("rule", choice.rule, RULES),
        ("normalisation", choice.normalisation, NORMALISATIONS),
    ):
        if value not in known:
            near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise GuidedError(f"there is no {what} {value!r} here; {hint}There are: {', '.join(known)}")


@functools.cache
def _network() -> PictureNet:
    return load_picture_net()


@functools.cache
def _scene(picture: int) -> Scene:
    *kinds, seed = GUIDED_PICTURES[picture - 1]
    return scene(*kinds, seed=seed)


class _Until(nn.Module):
    """A network that ends at one of its layers: each unit of that layer is a logit."""

    def __init__(self, model: nn.Module, layer: str) -> None:
        super().__init__()
        self.model, self.layer = model, layer

    def forward(self, images: Tensor) -> Tensor:
        with record(self.model, self.layer, detach=False) as recording:
            self.model(images)
        return recording[self.layer].output.flatten(1)


def find_unit(model: nn.Module, images: Tensor, layer: str, target: int) -> tuple[int, int, int]:
    """Return (channel, row, column) of the unit of `layer` that counts most for a class of the one image (1, C, H, W).

    That is the largest product of the unit's output and the logit's gradient at it.
    """
    with explain(model, images, layer) as run:
        counts = (run.activation * run.gradient(target))[0]
    channel, row, column = (place.item() for place in torch.unravel_index(counts.argmax(), counts.shape))
    return channel, row, column


@functools.lru_cache(maxsize=512)
def _find_gradient(picture: int, kind: str, start: str, rule: str) -> tuple[Tensor, str]:
    """The gradient (3, H, W) at the picture, and where it started, in words."""
    model, images, target = _network(), _scene(picture).image[None], KINDS.index(kind)
    if start == CLASS:
        with explain(model, images, watch_relus=True) as run:
            probability = run.logits[0, target].sigmoid().item()
            gradient = run.gradient(target, relu_rule=RULES[rule])[0]
        return gradient, f"from the class {kind} (probability {probability:.2f})"
    channel, row, column = find_unit(model, images, start, target)
    with explain(_Until(model, start), images, watch_relus=True) as run:
        side = _side(start)
        gradient = run.gradient((channel * side + row) * side + column, relu_rule=RULES[rule])[0]
    return gradient, f"from channel {channel} of {start}, row {row}, column {column}, which counts most for the {kind}"


@functools.cache
def _side(layer: str) -> int:
    """The height, and width, of the layer's map of a picture."""
    with record(_network(), layer) as recording, torch.no_grad():
        _network()(torch.zeros(1, 3, SIZE, SIZE))
    return recording[layer].output.shape[-1]


def _draw_sheet(choice: GuidedChoice, shown: Scene, gradient: Tensor) -> Tensor:
    image, words = _enlarge(shown.image), f"the picture; there is no {choice.kind} in it"
    if choice.start != CLASS:
        image, words = (
            outline(image, _enlarge_mask(_seen_by(gradient)), width=2),
            "the picture; framed: what the unit sees",
        )
    elif choice.kind in shown.labels:
        mask = shown.masks[shown.labels.index(choice.kind)]
        image, words = outline(image, _enlarge_mask(mask), width=2), f"the picture; outlined: the {choice.kind}"
    picture = _enlarge(NORMALISATIONS[choice.normalisation](gradient))
    return grid([image, picture], columns=2, labels=[words, f"{choice.rule}; shown as: {choice.normalisation}"])


def _seen_by(gradient: Tensor) -> Tensor:
    """(H, W) bool: the smallest box around all that is not 0."""
    strong = gradient.abs().sum(0) > 0
    rows, columns = (strong.any(dim).nonzero() for dim in (1, 0))
    box = torch.zeros_like(strong)
    if len(rows):
        box[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] = True
    return box


def _enlarge(image: Tensor) -> Tensor:
    size = [SCALE * side for side in image.shape[-2:]]
    return F.interpolate(image[None], size, mode="bilinear", align_corners=False)[0].clamp(0, 1)


def _enlarge_mask(mask: Tensor) -> Tensor:
    return mask.repeat_interleave(SCALE, 0).repeat_interleave(SCALE, 1)


def _tell(choice: GuidedChoice, shown: Scene, gradient: Tensor, words: str) -> str:
    strength = gradient.abs().sum(0)
    total = strength.sum()
    if not total > 0:
        return f"{choice.rule.capitalize()} {words}: the gradient is 0 everywhere."
    shares = ", ".join(
        f"{(strength[mask].sum() / total).item():.0%} on the {label} ({mask.float().mean().item():.0%} of the area)"
        for label, mask in zip(shown.labels, shown.masks, strict=True)
    )
    return (
        f"{choice.rule.capitalize()} {words}. Of the map's strength, {shares}. The values go from "
        f"{gradient.min().item():.2g} to {gradient.max().item():.2g}."
    )
