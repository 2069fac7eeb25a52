"""Activation patching: run a network on one picture with a piece of what it computed for another one.

    patch(model, "features.6", source, target, region)      the answer to `target` with a piece of `source` inside
    scan(model, "features.16", source, target, 6)           the effect of each place, as a map

A heat map says what contributed; a patch is an experiment: if the answer moves, what was patched carries it. The method
is that of Vig et al. 2020 (causal mediation) and Meng et al. 2022 (causal tracing), here with pictures that differ in
one respect.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.hooks.record import find_layer
from course_utils.scenes.scene import Scene, scene

# Twins of pictures: two kinds, what is beside both, and the seed. The two pictures of a pair have the same background,
# light and neighbour, in the same place, and differ where the first thing is. (Most seeds do not give such pairs: a
# thing of another size finds another place. These were found by trying.)
SWAPS = (
    ("cat", "dog", "boat", 12),
    ("cat", "dog", "boat", 13),
    ("dog", "cat", "house", 14),
    ("car", "cat", "tree", 20),
    ("bird", "plane", "tree", 0),
    ("bird", "plane", "tree", 4),
    ("bird", "plane", "tree", 10),
    ("bird", "plane", "tree", 27),
    ("bird", "plane", "tree", 48),
    ("bird", "plane", "tree", 50),
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
    kept = []
    with find_layer(model, layer)[1].register_forward_hook(lambda module, args, output: kept.append(output.clone())):
        model(images)
    return kept[0]


@torch.no_grad()
def patch(model: nn.Module, layer: str, source: Tensor, target: Tensor, region: Tensor | None = None) -> Tensor:
    """Return the logits (N, classes) for `target` when `layer` gives in `region` what it gives for `source`.

    source, target: (N, 3, H, W), as many of one as of the other. region: bool, (h, w) for all or (N, h, w), over the
    cells of the layer's output (N, C, h, w); None is everywhere. No hook is left, and no graph is made.
    Raises ValueError for a region of another size, `CourseError` for a layer that there is not.
    """
    there = output_of(model, layer, source)
    inside = torch.ones(there.shape[2:], dtype=torch.bool) if region is None else region
    if inside.shape[-2:] != there.shape[2:]:
        raise ValueError(
            f"{layer} has {there.shape[2]} x {there.shape[3]} cells, the region {tuple(inside.shape[-2:])}: "
            "cells_of(masks, size) makes one that fits"
        )
    inside = inside.unsqueeze(-3)  # the same for all channels

    def put_in(module: nn.Module, args: tuple, output: Tensor) -> Tensor:
        return torch.where(inside, there, output)

    with find_layer(model, layer)[1].register_forward_hook(put_in):
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
    blocks = _blocks(height, width, reach)[:, None]

    def put_in(module: nn.Module, args: tuple, output: Tensor) -> Tensor:
        return torch.where(blocks, there, output)

    before = model(target)[0, kind]
    with find_layer(model, layer)[1].register_forward_hook(put_in):
        after = model(target)[:, kind]
    return (after - before).reshape(height, width)


def _blocks(height: int, width: int, reach: int) -> Tensor:
    """(height · width, height, width) bool: for each cell, the block around it."""
    rows, columns = torch.arange(height), torch.arange(width)
    near_rows = (rows[:, None] - rows).abs() <= reach
    near_columns = (columns[:, None] - columns).abs() <= reach
    return (near_rows[:, None, :, None] & near_columns[None, :, None, :]).reshape(-1, height, width)
