"""Pictures of lesson 06: what three rules make of a small net, and what its explorer shows, as a sheet and a sentence.

    view = draw_guided(GuidedChoice(picture=2, kind="fish", rule="guided"))
    view.sheet        (3, H, W): the picture, and beside it the map of the choice
    view.sentence     the same in words and numbers

Pure: the same choice gives the same view. What a network said is kept, so that another look at it costs only drawing.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.hooks import record
from course_utils.networks import PictureNet, load_picture_net
from course_utils.pictures import Picture, figure_with_alt, grid, outline
from course_utils.saliency import ReluRule, explain, standardise
from course_utils.scenes import KINDS, SIZE, Scene, scene

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
FIXED_SCALE = 1.5  # a gradient of 1/3 is white, of -1/3 black: only the strongest ones reach that
SCALE = 3  # small pictures are shown larger, smoothly


class GuidedError(ValueError):
    """A picture, class, start, rule or normalisation that there is not; the message says which there are."""


# --- the three rules on three units -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RulesPicture:
    """Three units and what goes back through them by each rule: `svg` is the picture, `str()` the same as text."""

    outputs: tuple[float, ...]
    arriving: tuple[float, ...]
    title: str

    @property
    def passed(self) -> dict[str, tuple[float, ...]]:
        """What each rule lets through each unit."""
        return {
            rule: tuple(r if passes(f, r) else 0.0 for f, r in zip(self.outputs, self.arriving, strict=True))
            for rule, passes in _PASSES.items()
        }

    @property
    def svg(self) -> str:
        """A table of boxes: a row for each unit, a column for each rule, an open or a closed gate in each."""
        height = 92 + 56 * len(self.outputs)
        title = escape(self.title)
        head = "".join(
            f'<text x="{x}" y="56" font-size="14" font-weight="600">{rule}</text>'
            f'<text x="{x}" y="74" font-size="12">{escape(words)}</text>'
            for x, (rule, words) in zip(_COLUMNS, _WORDS.items(), strict=True)
        )
        rows = "".join(
            _draw_unit(92 + 56 * n, n + 1, f, r)
            for n, (f, r) in enumerate(zip(self.outputs, self.arriving, strict=True))
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" width="680" height="{height}" '
            f'role="img" aria-label="{title}" fill="currentColor" stroke-width="2" font-family="{_SANS}" '
            f'style="max-width:100%;height:auto;color:var(--jp-ui-font-color1, currentColor)"><title>{title}</title>'
            f"<desc>{escape(str(self))}</desc>"
            f'<text x="0" y="20" font-size="16" font-weight="600">{title}</text>{head}{rows}</svg>'
        )

    def __str__(self) -> str:
        lines = [self.title, "  unit  puts out f  arriving R  " + "  ".join(f"{rule:>9}" for rule in self.passed)]
        for n, (f, r) in enumerate(zip(self.outputs, self.arriving, strict=True)):
            found = "  ".join(f"{passed[n]:9g}" for passed in self.passed.values())
            lines.append(f"  {n + 1:4}  {f:10g}  {r:10g}  {found}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self.svg}


_PASSES: Mapping[str, Callable[[float, float], bool]] = {
    "backprop": lambda f, r: f > 0,
    "deconvnet": lambda f, r: r > 0,
    "guided": lambda f, r: f > 0 and r > 0,
}
_WORDS = {"backprop": "opens where f > 0", "deconvnet": "opens where R > 0", "guided": "opens where both are"}
_COLUMNS = (230, 384, 538)
_SANS = "var(--jp-ui-font-family, system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif)"
# Middle tones with a contrast above 3 on white and on #111; shape and words say the same as they do.
_OPEN, _CLOSED = "#3f82d8", "#b5651d"


def draw_rules(outputs: tuple[float, ...], arriving: tuple[float, ...], title: str) -> RulesPicture:
    """Return the picture of units that put out `outputs` in forward and get the gradients `arriving` in backward.

    Raises ValueError unless there are as many of the one as of the other, and at least one.
    """
    if len(outputs) != len(arriving) or not outputs:
        raise ValueError(f"each unit has an output and a gradient, got {len(outputs)} and {len(arriving)}")
    return RulesPicture(tuple(outputs), tuple(arriving), title)


def _draw_unit(y: int, number: int, f: float, r: float) -> str:
    """One row: the unit with its two numbers, then a gate for each rule with what comes out of it."""
    text = (
        f'<circle cx="20" cy="{y + 20}" r="17" fill="none" stroke="currentColor"/>'
        f'<text x="20" y="{y + 25}" font-size="14" text-anchor="middle">{number}</text>'
        f'<text x="50" y="{y + 16}" font-size="14">put out f = {f:g}</text>'
        f'<text x="50" y="{y + 35}" font-size="14">arriving R = {r:g}</text>'
    )
    for x, passes in zip(_COLUMNS, _PASSES.values(), strict=True):
        is_open = passes(f, r)
        colour = _OPEN if is_open else _CLOSED
        inside = (
            f'<path d="M{x + 8} {y + 20} h26 m-8 -7 l8 7 l-8 7" fill="none" stroke="{colour}"/>'
            if is_open
            else f'<path d="M{x + 12} {y + 11} l18 18 m0 -18 l-18 18" fill="none" stroke="{colour}"/>'
        )
        text += (
            f'<rect x="{x}" y="{y + 2}" width="42" height="36" rx="6" fill="none" stroke="{colour}"/>{inside}'
            f'<text x="{x + 52}" y="{y + 26}" font-size="18" font-weight="600">{r if is_open else 0:g}</text>'
        )
    return text


# --- the randomisation check ------------------------------------------------------------------------------------------

# Okabe & Ito's colours for readers of all kinds of colour vision; the line's style and its label say the same.
_LINES = (("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-."), ("#222222", "D", ":"))


def draw_cascade(layers: Sequence[str], curves: Mapping[str, Sequence[float]], title: str, alt: str) -> Picture:
    """Draw how the similarity with the original map falls, one labelled line a method, one step a layer.

    layers: the name of the layer that became random at each step. curves: for each method a similarity for each step,
        at most 1. Raises ValueError for a curve of another length, or more than four of them.
    """
    if len(curves) > len(_LINES):
        raise ValueError(f"at most {len(_LINES)} curves can be told apart, got {len(curves)}")
    for method, values in curves.items():
        if len(values) != len(layers):
            raise ValueError(f"{method} has {len(values)} values for {len(layers)} layers")
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(figsize=(8.2, 4.2))
    for (method, values), (colour, marker, style) in zip(curves.items(), _LINES, strict=False):
        axes.plot(values, color=colour, marker=marker, linestyle=style, linewidth=2, label=method)
    axes.axhline(0, color="#888888", linewidth=1)
    axes.set_xticks(range(len(layers)), layers)
    axes.set_xlabel("random, from the last layer down to")
    axes.set_ylabel("rank correlation with the original map")
    axes.set_title(title, loc="left", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3)
    return figure_with_alt(drawing, alt)


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


def show_fixed(gradients: Tensor) -> Tensor:
    """Make gradients (..., C, H, W) pictures on one scale for all: 0.5 is zero, and size and sign can be compared."""
    return (0.5 + FIXED_SCALE * gradients).clamp(0, 1)


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
