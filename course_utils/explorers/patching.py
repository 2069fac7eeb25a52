"""The explorer of activation patching: put a piece of one picture's activation into another one's run."""

import functools
from collections.abc import Sequence

import ipywidgets as widgets
import torch
from torch import Tensor

from course_utils.explorers.grad_cam import CELL, LAYERS, NETWORKS, load_network
from course_utils.explorers.markup import make_label
from course_utils.explorers.panel import Explorer, View, begin, make_choice, make_slider
from course_utils.explorers.pointing import PointedPicture
from course_utils.scenes.scene import KINDS, SIZE, Scene, scene
from course_utils.vision.networks import MISLED_CUE, MISLED_KIND
from course_utils.vision.patching import cells_of, output_of, patch, recovered, swap_pair
from course_utils.vision.pictures import draw_heat, grid, outline

PLACES = 14  # a block is chosen on a grid of 14 x 14, the cells of the last layers
TILE, GAP, WORDS = 2 * SIZE, 4, 20  # pixels: a picture's side, between pictures, and the words under each
SHEET = 3 * (TILE + GAP) + GAP, TILE + WORDS + 2 * GAP
KEYS = {"ArrowUp": ("row", -1), "ArrowDown": ("row", 1), "ArrowLeft": ("column", -1), "ArrowRight": ("column", 1)}
KEYS |= {"+": ("size", 1), "-": ("size", -1)}
Drag = tuple[tuple[float, float], tuple[float, float]]  # where it began and where it is, see `PointedPicture`

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
def _run_pair(number: int, network: str, layer: str) -> tuple[list[float], Sequence[int]]:
    """The logits of both scenes, and the size of the layer."""
    model, (source, target, kind) = load_network(network), draw_pair(number)
    images = torch.stack([source.image, target.image])
    with torch.no_grad():
        logits = model(images)[:, KINDS.index(kind)].tolist()
    return logits, tuple(output_of(model, layer, images[:1]).shape[2:])


def draw_patch(pair: int, network: str, layer: str, row: int, column: int, size: int) -> View:
    """Return what `Patching` shows: the source with the block, the target, and the target with the patch in it."""
    source, target, kind = draw_pair(pair)
    ends, size_of_layer = _run_pair(pair, network, layer)
    block = find_block(row, column, size)
    cells = cells_of(block[None], size_of_layer)[0]
    patched = patch(load_network(network), layer, source.image[None], target.image[None], cells)[0, KINDS.index(kind)]
    logits = (*ends, patched.item())
    answers = [f"{'yes' if logit > 0 else 'no'} ({torch.tensor(logit).sigmoid():.0%})" for logit in logits]
    differs = source.cue_mask if source.cue else source.masks[0]  # where the source shows what the target has not
    way = f"{round(100 * recovered(patched, *torch.tensor(ends)).item()):d}% of the way"
    sentence = (
        f"Pair {pair}: the source is {source}; the target is {target}. The {network} network answers {kind}: "
        f"{answers[0]} for the source and {answers[1]} for the target. In the frame, with "
        f"{(block & differs).sum() / differs.sum():.0%} of the {source.cue or source.labels[0]} and "
        f"{block.float().mean():.0%} of the picture, the target's run now gets {layer} from the source. It answers "
        f"{answers[2]}, which is {way} from the target's answer to the source's."
    )
    alt = (
        f"{source} ({kind}: {answers[0]}); {target} ({answers[1]}); the target with a piece of the source in a frame, "
        f"from row {row} and column {column}, {size} wide (patched: {answers[2]})."
    )
    mixed = torch.where(block, source.image, target.image)  # the pixels where the patch lies: they stand for it
    tiles = torch.stack([draw_heat(each) for each in (source.image, target.image, mixed)])
    framed = block.repeat_interleave(2, 0).repeat_interleave(2, 1)
    tiles[::2] = outline(tiles[::2], framed.expand(2, -1, -1), "cyan", width=2)
    labels = [f"source: {kind} {answers[0]}", f"target: {answers[1]}", f"patched: {answers[2]}, {way}"]
    return View(grid(tiles, columns=3, padding=GAP, labels=labels), sentence, begin(alt), facts=logits)


def find_block(row: int, column: int, size: int) -> Tensor:
    """Return a block of the grid as a mask of pixels, (SIZE, SIZE) bool. What reaches beyond the picture is cut off."""
    block = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    block[CELL * row : CELL * (row + size), CELL * column : CELL * (column + size)] = True
    return block


def place_block(drag: Drag, size: int) -> tuple[int, int, int]:
    """Return the row, column and size of the block for a drag over the three pictures, see `PointedPicture`.

    A click puts a block of this size around it; a drag spans a new one. Both keep to the picture where they began.
    """
    edge = GAP + (TILE + GAP) * int(3 * drag[0][0])  # of the picture where it began
    cells = []
    for x, y in drag:
        pixels = x * SHEET[0] - edge, y * SHEET[1] - GAP
        cells.append([min(max(int(PLACES * each / TILE), 0), PLACES - 1) for each in pixels])
    (left, top), (right, bottom) = cells
    if (left, top) == (right, bottom):
        return max(top - size // 2, 0), max(left - size // 2, 0), size
    side = 1 + max(abs(right - left), abs(bottom - top))
    row = max(top - side + 1, 0) if bottom < top else top
    column = max(left - side + 1, 0) if right < left else left
    return row, column, side


class Patching(Explorer):
    """Two pictures that differ in one respect, and a block of a layer that is taken from one into the other.

    The block is chosen on a picture: a click puts it there, a drag makes a new one, arrow keys move it, + and - make it
    larger and smaller.

    pair: the number of one of `PAIRS`, from 1. network: "honest" or "misled". layer: of `LAYERS`; "" the second.
    row, column, size: the block on a grid of 14 x 14 over the picture: its first row and column, from 0, and its side.
    """

    def __init__(
        self, pair: int = 1, network: str = "misled", *, layer: str = "", row: int = 0, column: int = 0, size: int = 3
    ) -> None:
        picture = widgets.HTML()
        controls = {
            "pair": make_slider("Pair", 1, len(PAIRS), pair, width=300),
            "layer": make_choice(widgets.SelectionSlider, "Layer", LAYERS, layer or LAYERS[1]),
            "network": make_choice(widgets.ToggleButtons, "Network", NETWORKS, network, width=90),
            "row": make_slider("Row", 0, PLACES - 1, row, width=300),
            "column": make_slider("Column", 0, PLACES - 1, column, width=300),
            "size": make_slider("Size", 1, PLACES, size, width=300),
            "picture": picture,
            "drag": PointedPicture(picture, self._use_key),
        }
        words = make_label("Click or drag on a picture to place the patch. Arrow keys move it, + and - resize it.")
        super().__init__(controls, [("pair", "layer"), "network", words, "drag", "sentence", ["row", "column", "size"]])

    def look(self, drag: Drag | None, **values: object) -> View:
        """Show the block of the sliders; a drag has moved them."""
        return draw_patch(**values)

    def use_drag(self) -> None:
        """Put the block where the picture was clicked or dragged on."""
        block = place_block(self.controls["drag"].value, self.controls["size"].value)
        for name, value in zip(("row", "column", "size"), block, strict=True):
            self.controls[name].value = value

    def _use_key(self, key: str) -> None:
        name, step = KEYS.get(key, ("row", 0))
        self.controls[name].value += step  # a slider keeps to its ends
