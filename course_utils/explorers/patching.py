"""The explorer of activation patching: put a piece of one picture's activation into another one's run."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import ipywidgets as widgets
import torch
from torch import Tensor

from course_utils.explorers.grad_cam import CELL, LAYERS, NETWORKS, load_network, say_where
from course_utils.explorers.panel import Explorer, View, make_choice, make_slider
from course_utils.scenes.scene import KINDS, SIZE, Scene, scene
from course_utils.vision.networks import MISLED_CUE, MISLED_KIND
from course_utils.vision.patching import cells_of, output_of, patch, recovered
from course_utils.vision.pictures import draw_heat, grid, outline
from course_utils.vision.saliency import grad_cam, relu, scale_to_unit, upsample

PLACES = 14  # a block is chosen on a grid of 14 x 14, the cells of the last layers


class Pair(NamedTuple):
    """Two pictures that differ in one respect, and the class whose answer is watched."""

    source: tuple[str, str]
    target: tuple[str, str]
    seed: int
    kind: str
    cue: str | None = None  # in the source only

    def draw(self) -> tuple[Scene, Scene]:
        """The source and the target."""
        return scene(*self.source, seed=self.seed, cue=self.cue), scene(*self.target, seed=self.seed)


PAIRS = (
    Pair(("car", "tree"), ("car", "tree"), 10, MISLED_KIND, MISLED_CUE),
    Pair(("house", "dog"), ("house", "dog"), 24, MISLED_KIND, MISLED_CUE),
    Pair(("cat", "boat"), ("dog", "boat"), 12, "cat"),
    Pair(("bird", "tree"), ("plane", "tree"), 10, "bird"),
    Pair(("car", "tree"), ("cat", "tree"), 20, "car"),
    Pair(("dog", "house"), ("cat", "house"), 14, "dog"),
)


@functools.lru_cache(maxsize=len(NETWORKS) * len(PAIRS) * len(LAYERS))
def _run_pair(number: int, network: str, layer: str) -> tuple[tuple[Scene, Scene], list[float], Tensor, str, Sequence]:
    """Both scenes; their logits; the tiles: them and Grad-CAM's map; where it is hottest; the layer's size."""
    pair, model = PAIRS[number - 1], load_network(network)
    scenes, kind = pair.draw(), KINDS.index(pair.kind)
    images = torch.stack([each.image for each in scenes])
    with torch.no_grad():
        logits = model(images)[:, kind].tolist()
    heat = scale_to_unit(upsample(relu(grad_cam(model, images[:1], LAYERS[-1], kind)), (SIZE, SIZE)))[0]
    tiles = torch.stack([*map(draw_heat, images), draw_heat(images[0], heat)])
    return scenes, logits, tiles, say_where(heat, scenes[0]), tuple(output_of(model, layer, images[:1]).shape[2:])


def draw_patch(pair: int, network: str, layer: str, row: int, column: int, size: int) -> View:
    """Return what `Patching` shows: the source and the target with the block, Grad-CAM's map of the source."""
    chosen, ((source, target), ends, tiles, hottest, size_of_layer) = PAIRS[pair - 1], _run_pair(pair, network, layer)
    block = find_block(row, column, size)
    cells = cells_of(block[None], size_of_layer)[0]
    patched = patch(load_network(network), layer, source.image[None], target.image[None], cells)
    patched = patched[0, KINDS.index(chosen.kind)]
    logits = (*ends, patched.item())
    answers = [f"{'yes' if logit > 0 else 'no'} ({torch.tensor(logit).sigmoid():.0%})" for logit in logits]
    differs = source.cue_mask if source.cue else source.masks[0]  # where the source shows what the target has not
    share = recovered(patched, *torch.tensor(ends)).item()
    sentence = (
        f"Pair {pair}: {source} (the source); {target} (the target). The {network} network answers {chosen.kind}: "
        f"{answers[0]} for the source and {answers[1]} for the target. With a block of {layer} from the source, "
        f"{(block & differs).sum() / differs.sum():.0%} of the {chosen.cue or chosen.source[0]} in it and "
        f"{block.float().mean():.0%} of the map, it answers {answers[2]} for the target: {round(100 * share):d}% of "
        "the way."
    )
    alt = (
        f"{source} ({chosen.kind}: {answers[0]}); {target} ({answers[1]}, patched: {answers[2]}); in both the outlined "
        f"block, from row {row} and column {column}, {size} wide. Grad-CAM's map of the first {hottest}."
    )
    tiles = outline(tiles, block.repeat_interleave(2, 0).repeat_interleave(2, 1).expand(3, -1, -1), "cyan", width=2)
    labels = [f"source: {chosen.kind} {answers[0]}", f"target: {answers[1]}, patched: {answers[2]}"]
    labels.append(f"Grad-CAM of the source: {chosen.kind}")
    return View(grid(tiles, columns=3, labels=labels), sentence, alt[0].upper() + alt[1:], facts=logits)


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
        super().__init__(controls, [("pair", "layer"), "network", ("row", "column", "size")], width=960)
