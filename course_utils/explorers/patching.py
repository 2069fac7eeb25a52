"""The explorer of activation patching: put a piece of one picture's activation into another one's run."""

import functools
from collections.abc import Sequence

import ipywidgets as widgets
import torch
from torch import Tensor

from course_utils.explorers.grad_cam import CELL, LAYERS, NETWORKS, load_network, look_at
from course_utils.explorers.own_picture import read_scene
from course_utils.explorers.panel import Explorer, View, begin, make_choice, make_slider
from course_utils.scenes.scene import KINDS, SIZE, Scene, scene
from course_utils.vision.networks import MISLED_CUE, MISLED_KIND
from course_utils.vision.patching import cells_of, output_of, patch, recovered, swap_pair
from course_utils.vision.pictures import draw_heat, grid, outline

PLACES = 14  # a block is chosen on a grid of 14 x 14, the cells of the last layers


CUED = (("car", "tree", 10), ("house", "dog", 24))  # things and a seed: the source has a cue besides
PAIRS = (*CUED, 0, 6, 3, 2)  # a number is that of one of `SWAPS`


@functools.cache
def draw_pair(number: int) -> tuple[Scene, Scene, str]:
    """Draw pair `number`, from 1: the source, the target, and the class whose answer is watched."""
    pair = PAIRS[number - 1]
    if pair in CUED:
        *things, seed = pair
        return scene(*things, seed=seed, cue=MISLED_CUE), scene(*things, seed=seed), MISLED_KIND
    source, target = swap_pair(pair)
    return source, target, source.labels[0]


@functools.lru_cache(maxsize=len(NETWORKS) * len(PAIRS) * len(LAYERS))
def _run_pair(number: int, network: str, layer: str) -> tuple[list[float], Tensor, str, Sequence]:
    """The logits of both scenes; the tiles: them and Grad-CAM's map; where it is hottest; the layer's size."""
    model, (source, target, kind) = load_network(network), draw_pair(number)
    images = torch.stack([source.image, target.image])
    with torch.no_grad():
        logits = model(images)[:, KINDS.index(kind)].tolist()
    cam = look_at(network, read_scene(source), kind, LAYERS[-1])
    tiles = torch.stack([*map(draw_heat, images), draw_heat(images[0], cam.heat)])
    return logits, tiles, cam.words, tuple(output_of(model, layer, images[:1]).shape[2:])


def draw_patch(pair: int, network: str, layer: str, row: int, column: int, size: int) -> View:
    """Return what `Patching` shows: the source and the target with the block, Grad-CAM's map of the source."""
    source, target, kind = draw_pair(pair)
    ends, tiles, hottest, size_of_layer = _run_pair(pair, network, layer)
    block = find_block(row, column, size)
    cells = cells_of(block[None], size_of_layer)[0]
    patched = patch(load_network(network), layer, source.image[None], target.image[None], cells)[0, KINDS.index(kind)]
    logits = (*ends, patched.item())
    answers = [f"{'yes' if logit > 0 else 'no'} ({torch.tensor(logit).sigmoid():.0%})" for logit in logits]
    differs = source.cue_mask if source.cue else source.masks[0]  # where the source shows what the target has not
    share = recovered(patched, *torch.tensor(ends)).item()
    sentence = (
        f"Pair {pair}: {source} (the source); {target} (the target). The {network} network answers {kind}: "
        f"{answers[0]} for the source and {answers[1]} for the target. With a block of {layer} from the source, "
        f"{(block & differs).sum() / differs.sum():.0%} of the {source.cue or source.labels[0]} in it and "
        f"{block.float().mean():.0%} of the map, it answers {answers[2]} for the target: {round(100 * share):d}% of "
        "the way."
    )
    alt = (
        f"{source} ({kind}: {answers[0]}); {target} ({answers[1]}, patched: {answers[2]}); in both the outlined "
        f"block, from row {row} and column {column}, {size} wide. Grad-CAM's map of the first {hottest}."
    )
    tiles = outline(tiles, block.repeat_interleave(2, 0).repeat_interleave(2, 1).expand(3, -1, -1), "cyan", width=2)
    labels = [f"source: {kind} {answers[0]}", f"target: {answers[1]}, patched: {answers[2]}"]
    labels.append(f"Grad-CAM of the source: {kind}")
    return View(grid(tiles, columns=3, labels=labels), sentence, begin(alt), facts=logits)


def find_block(row: int, column: int, size: int) -> Tensor:
    """Return a block of the grid as a mask of pixels, (SIZE, SIZE) bool. What reaches beyond the picture is cut off."""
    block = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    block[CELL * row : CELL * (row + size), CELL * column : CELL * (column + size)] = True
    return block


class Patching(Explorer):
    """Two pictures that differ in one respect, and a block of a layer that is taken from one into the other.

    pair: the number of one of `PAIRS`, from 1. network: "honest" or "misled". layer: of `LAYERS`; "" the second.
    row, column, size: the block on a grid of 14 x 14 over the picture: its first row and column, from 0, and its side.
    """

    look = staticmethod(draw_patch)

    def __init__(
        self, pair: int = 1, network: str = "misled", *, layer: str = "", row: int = 0, column: int = 0, size: int = 3
    ) -> None:
        controls = {
            "pair": make_slider("Pair", 1, len(PAIRS), pair, width=300),
            "layer": make_choice(widgets.SelectionSlider, "Layer", LAYERS, layer or LAYERS[1]),
            "network": make_choice(widgets.ToggleButtons, "Network", NETWORKS, network, width=90),
            "row": make_slider("Row", 0, PLACES - 1, row, width=300),
            "column": make_slider("Column", 0, PLACES - 1, column, width=300),
            "size": make_slider("Size", 1, PLACES, size, width=300),
        }
        super().__init__(controls, [("pair", "layer"), "network", ("row", "column", "size")])
