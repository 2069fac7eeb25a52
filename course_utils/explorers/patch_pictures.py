"""What the explorer of activation patching shows: two pictures, a block of a layer, and what becomes of the answer.

    view = draw_patch(PatchChoice(pair=1, network="misled", layer="features.6", row=9, column=3, size=3))
    view.sheet        (3, H, W): the source, the target with the block marked, and Grad-CAM's map of the source
    view.sentence     the same in words and numbers

Pure: the same choice gives the same view.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass, field

import torch
from torch import Tensor

from course_utils.explorers.cam_pictures import NETWORKS
from course_utils.scenes.scene import (
    KINDS,
    SIZE,
    Scene,
    scene,
)
from course_utils.vision.networks import (
    MISLED_CUE,
    MISLED_KIND,
    PictureNet,
    load_picture_net,
)
from course_utils.vision.patching import (
    cells_of,
    output_of,
    patch,
    recovered,
)
from course_utils.vision.pictures import draw_heat, grid, outline
from course_utils.vision.saliency import (
    grad_cam,
    relu,
    scale_to_unit,
    upsample,
)

PLACES = 14  # a block is chosen on a grid of 14 x 14, the cells of the last layers
CELL = SIZE // PLACES  # pixels
PATCH_LAYERS = ("features.2", "features.6", "features.10", "features.13", "features.16")


@dataclass(frozen=True)
class Pair:
    """Two pictures that differ in one respect, and the class whose answer is watched."""

    source: tuple[str, str]
    target: tuple[str, str]
    seed: int
    kind: str
    cue: str | None = None  # in the source only

    @property
    def difference(self) -> str:
        """What the source has and the target has not."""
        return self.cue or self.source[0]

    def draw(self) -> tuple[Scene, Scene]:
        """The source and the target."""
        return scene(*self.source, seed=self.seed, cue=self.cue), scene(*self.target, seed=self.seed)


PATCH_PAIRS = (
    Pair(("car", "tree"), ("car", "tree"), 10, MISLED_KIND, MISLED_CUE),
    Pair(("house", "dog"), ("house", "dog"), 24, MISLED_KIND, MISLED_CUE),
    Pair(("cat", "boat"), ("dog", "boat"), 12, "cat"),
    Pair(("bird", "tree"), ("plane", "tree"), 10, "bird"),
    Pair(("car", "tree"), ("cat", "tree"), 20, "car"),
    Pair(("dog", "house"), ("cat", "house"), 14, "dog"),
)


class PatchError(ValueError):
    """A pair, network, layer or block that there is not; the message says which there are."""


@dataclass(frozen=True)
class PatchChoice:
    """The state of the explorer.

    pair: the number of one of `PATCH_PAIRS`, from 1. network: "honest" or "misled". layer: one of `PATCH_LAYERS`.
    row, column, size: the block, in cells of a grid of 14 x 14 over the picture: the number of its first row and
        column, from 0, and its side, from 1 to 14. What reaches beyond the picture is cut off.
    """

    pair: int = 1
    network: str = "misled"
    layer: str = PATCH_LAYERS[1]
    row: int = 0
    column: int = 0
    size: int = 3


@dataclass(frozen=True)
class PatchView:
    """`sheet`: (3, H, W) float32 in [0, 1]; `sentence`: what it shows; `alt`: the same, shorter, without numbers.

    `logits`: of the watched class for the source, the target, and the target with the patch.
    """

    sheet: Tensor = field(repr=False)
    sentence: str
    alt: str
    logits: tuple[float, float, float]


def draw_patch(choice: PatchChoice) -> PatchView:
    """Return what the explorer shows for a choice. Raises `PatchError` for what there is not."""
    _check(choice)
    pair = PATCH_PAIRS[choice.pair - 1]
    found = _compute(choice.pair, choice.network, choice.layer)
    region = block_of(choice)
    cells = cells_of(region[None], found.cells)[0]
    model, images = _network(choice.network), [each.image[None] for each in found.scenes]
    kind = KINDS.index(pair.kind)
    patched = patch(model, choice.layer, *images, cells)[0, kind]
    logits = (*found.logits, patched.item())
    answers = [_say(logit) for logit in logits]
    differs = _where_they_differ(found.scenes)
    share = recovered(patched, *torch.tensor(found.logits)).item()
    sentence = (
        f"Pair {choice.pair}: {found.scenes[0]} (the source); {found.scenes[1]} (the target). "
        f"The {choice.network} network answers {pair.kind}: {answers[0]} for the source and {answers[1]} for the "
        f"target. With a block of {choice.layer} from the source, {(region & differs).sum() / differs.sum():.0%} of "
        f"the {pair.difference} in it and {region.float().mean():.0%} of the map, it answers {answers[2]} for the "
        f"target: {round(100 * share):d}% of the way."
    )
    alt = f"{found.scenes[0]}; {found.scenes[1]}, the block outlined in both; Grad-CAM's map of the first."
    return PatchView(_draw_sheet(pair, found, region, logits), sentence, alt[0].upper() + alt[1:], logits)


def block_of(choice: PatchChoice) -> Tensor:
    """The chosen block as a mask of pixels, (SIZE, SIZE) bool."""
    region = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    rows, columns = (slice(CELL * first, CELL * (first + choice.size)) for first in (choice.row, choice.column))
    region[rows, columns] = True
    return region


def _check(choice: PatchChoice) -> None:
    if not isinstance(choice.pair, int) or not 1 <= choice.pair <= len(PATCH_PAIRS):
        raise PatchError(f"pair is a number from 1 to {len(PATCH_PAIRS)}, got {choice.pair!r}")
    for what, value, known in (("network", choice.network, NETWORKS), ("layer", choice.layer, PATCH_LAYERS)):
        if value not in known:
            near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise PatchError(f"there is no {what} {value!r} here; {hint}There are: {', '.join(known)}")
    for what, value, low, high in (
        ("row", choice.row, 0, PLACES - 1),
        ("column", choice.column, 0, PLACES - 1),
        ("size", choice.size, 1, PLACES),
    ):
        if not isinstance(value, int) or not low <= value <= high:
            raise PatchError(f"{what} is a whole number from {low} to {high}, got {value!r}")


@functools.cache
def _network(name: str) -> PictureNet:
    return load_picture_net(misled=NETWORKS[name])


@dataclass(frozen=True)
class _Found:
    """What does not depend on the block.

    scenes, logits: of the source and of the target. tiles: (3, 3, H, W), both pictures and Grad-CAM's map of the
    source. cells: the layer's height and width.
    """

    scenes: tuple[Scene, Scene]
    logits: tuple[float, float]
    tiles: Tensor
    cells: tuple[int, int]


@functools.lru_cache(maxsize=2 * len(PATCH_PAIRS) * len(PATCH_LAYERS))
def _compute(number: int, network: str, layer: str) -> _Found:
    pair, model = PATCH_PAIRS[number - 1], _network(network)
    pictures = pair.draw()
    kind = KINDS.index(pair.kind)
    images = torch.stack([each.image for each in pictures])
    with torch.no_grad():
        logits = model(images)[:, kind].tolist()
    heat = scale_to_unit(upsample(relu(grad_cam(model, images[:1], PATCH_LAYERS[-1], kind)), (SIZE, SIZE)))[0]
    tiles = torch.stack([*map(draw_heat, images), draw_heat(images[0], heat)])
    return _Found(pictures, tuple(logits), tiles, tuple(output_of(model, layer, images[:1]).shape[2:]))


def _where_they_differ(pictures: tuple[Scene, Scene]) -> Tensor:
    """Where the source shows what the target has not: the cue, or the first thing."""
    source = pictures[0]
    return source.cue_mask if source.cue else source.masks[0]


def _say(logit: float) -> str:
    return f"{'yes' if logit > 0 else 'no'} ({torch.tensor(logit).sigmoid():.0%})"


def _draw_sheet(pair: Pair, found: _Found, region: Tensor, logits: tuple[float, float, float]) -> Tensor:
    large = region.repeat_interleave(2, 0).repeat_interleave(2, 1)
    tiles = outline(found.tiles, large.expand(3, -1, -1), "cyan", width=2)
    labels = [
        f"source: {pair.kind} {_say(logits[0])}",
        f"target: {_say(logits[1])}, patched: {_say(logits[2])}",
        f"Grad-CAM of the source: {pair.kind}",
    ]
    return grid(tiles, columns=3, labels=labels)
