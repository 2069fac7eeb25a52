"""Activation patching: run a network on one picture with a piece of what it computed for another one.

A heat map says what contributed; a patch is an experiment: if the answer moves, what was patched carries it. The method
is that of Vig et al. 2020 (causal mediation) and Meng et al. 2022 (causal tracing): the pictures differ in one thing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.hooks.record import record
from course_utils.root import CourseError
from course_utils.scenes.scene import Scene, scene

# Twins of pictures: two kinds, what is beside both, and the seed. The two pictures of a pair have the same background,
# light and neighbour, in the same place, and differ where the first thing is. (Most seeds do not give such pairs.)
SWAPS = (
    ("cat", "dog", "boat", 12),
    ("cat", "dog", "boat", 13),
    ("dog", "cat", "house", 14),
    ("car", "cat", "tree", 20),
    *(("bird", "plane", "tree", seed) for seed in (0, 4, 10, 27, 48, 50)),
)


def swap_pair(number: int) -> tuple[Scene, Scene]:
    """Return the pictures of `SWAPS[number]`: with the first kind, and with the second one in its place."""
    kind, other, neighbour, seed = SWAPS[number]
    return scene(kind, neighbour, seed=seed), scene(other, neighbour, seed=seed)


def cells_of(masks: Tensor, size: tuple[int, int]) -> Tensor:
    """Turn masks of pixels (N, H, W) into masks of a layer's cells (N, *size): True where a cell has a pixel of it."""
    return F.adaptive_max_pool2d(masks[:, None].float(), size)[:, 0] > 0


@torch.no_grad()
def output_of(model: nn.Module, layer: str, images: Tensor) -> Tensor:
    """Return what the layer with the dotted name `layer` gives for `images`: a copy, so that nothing can spoil it."""
    with record(model, layer, stop=True) as seen:
        model(images)
    return seen[layer].output


@torch.no_grad()
def patch(model: nn.Module, layer: str, source: Tensor, target: Tensor, region: Tensor | None = None) -> Tensor:
    """Return the logits (N, classes) for `target` when `layer` gives in `region` what it gives for `source`.

    source, target: (N, 3, H, W), as many of one as of the other. region: bool, (h, w) for all or (N, h, w), over the
    cells of the layer's output (N, C, h, w); None is everywhere. No hook is left, and no graph is made.
    Raises `CourseError` for a region of another size, or for a layer that there is not.
    """
    there = output_of(model, layer, source)
    inside = torch.ones(there.shape[2:], dtype=torch.bool) if region is None else region
    if inside.shape[-2:] != there.shape[2:]:
        cells = f"{layer} has {there.shape[2]} x {there.shape[3]} cells, the region {tuple(inside.shape[-2:])}"
        raise CourseError(f"{cells}: cells_of(masks, size) makes one that fits")
    # The same cells of all channels.
    with record(model, edit={layer: lambda output: torch.where(inside.unsqueeze(-3), there, output)}):
        return model(target)


def recovered(patched: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """The share of the way from the target's logit to the source's that the patch has gone: 0 nothing, 1 all of it.

    It may be below 0 or above 1, and is not finite where source and target have the same logit.
    """
    return (patched - target) / (source - target)


@torch.no_grad()
def scan(model: nn.Module, layer: str, source: Tensor, target: Tensor, kind: int, reach: int = 0) -> Tensor:
    """Return the map (h, w): by how much the logit of class `kind` moves when a block around that cell is patched.

    source, target: one picture each, (1, 3, H, W). reach: how many cells the block reaches in each direction; 0 patches
    one cell. The network runs once for all places: the hook hands h · w variants on in place of one activation.
    """
    there = output_of(model, layer, source)
    height, width = there.shape[2:]
    cells = torch.eye(height * width).reshape(-1, 1, height, width)
    blocks = F.max_pool2d(cells, 2 * reach + 1, stride=1, padding=reach) > 0
    before = model(target)[0, kind]
    with record(model, edit={layer: lambda output: torch.where(blocks, there, output)}):
        after = model(target)[:, kind]
    return (after - before).reshape(height, width)
