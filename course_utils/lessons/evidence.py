"""What lesson 07 looks at: pictures with their truth, two networks to compare, and maps drawn on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.scenes.scene import KINDS, SceneBatch, scenes
from course_utils.vision.networks import Classifier, load_picture_net
from course_utils.vision.pictures import Picture, centre, colourise, draw_heat, grid, show

NO_FISH = [kind for kind in KINDS if kind != "fish"]
# The Grad-CAM map of `scene("cat", "dog", seed=6)` at features.16 for the cat, after the ReLU: the means of blocks of
# 2 x 2 cells, times 1000. All three libraries give the same.
LIBRARIES = ("captum 0.9.0", "torch-cam 0.5.0", "pytorch-grad-cam 1.5.7")
LIBRARY_MAP = (
    (1, 0, 0, 0, 0, 0, 1), (0, 0, 0, 0, 0, 0, 0), (79, 111, 64, 0, 23, 19, 0), (296, 414, 313, 10, 8, 0, 0),
    (423, 616, 451, 15, 0, 0, 0), (386, 488, 281, 0, 0, 0, 0), (78, 64, 25, 0, 0, 0, 0),
)  # fmt: skip


# What they give for `two_channels` and [[1, 2], [-4, 3]] at its convolution, by whether the ReLU works in place.
# torch-cam ends with Grad-CAM's ReLU.
MAPS_BEFORE_A_RELU = {
    False: dict(zip(LIBRARIES, ([[0.1875, 0.375], [-0.75, 0.5625]], [[0.1875, 0.375], [0.0, 0.5625]],
                                [[0.1875, 0.375], [-0.75, 0.5625]]), strict=True)),
    True: dict(zip(LIBRARIES, ([[0.1875, 0.375], [-0.75, 0.5625]], [[0.5, 1.0], [3.0, 1.5]],
                               [[0.375, 0.75], [0.75, 1.125]]), strict=True)),
}  # fmt: skip


class Things(NamedTuple):
    """Pictures with two things each, first all first things, then all second ones: 2N of them."""

    images: Tensor  # (N, 3, H, W) float32 in [0, 1]
    one: Tensor  # (N,) the numbers of the kinds
    two: Tensor
    masks: Tensor  # (2N, H, W) bool: where the thing is seen
    others: Tensor  # (2N, H, W) bool: where the other thing of the picture is seen


def draw_things(count: int, seed: int) -> Things:
    """Draw `count` pictures with two things each, and say where each thing and its neighbour are seen."""
    batch = scenes(count, seed=seed)
    one, two = batch.labels.nonzero()[:, 1].reshape(-1, 2).T
    owners = batch.owners.repeat(2, 1, 1)
    masks = owners == torch.cat([one, two])[:, None, None] + 1
    return Things(batch.images / 255, one, two, masks, (owners > 0) & ~masks)


def show_tiles(
    tiles: Sequence[Tensor], labels: Sequence[str] | None, title: str, alt: str, columns: int = 4
) -> Picture:
    """Show equally large tiles (3, H, W) side by side as one JPEG."""
    return show(grid(tiles, columns=columns, labels=labels), title=title, alt=alt, jpeg=True)


def draw_signed(image: Tensor, values: Tensor) -> Tensor:
    """Return a grey picture with a map that has a sign: red above 0, blue below. Half the peak has the full colour."""
    strong = (2 * centre(values) - 0.5).clamp(0, 1)
    return draw_heat(image.mean(0).expand(3, -1, -1), strong, opacity=0.75, colours="RdBu_r")


def draw_cells(cells: Tensor) -> Tensor:
    """Return a map (h, w) with values in [0, 1] as a picture (3, 224, 224) of its cells, without any smoothing."""
    return F.interpolate(colourise(cells, "inferno")[None], (224, 224))[0]


def load_both() -> dict[str, nn.Module]:
    """The two networks of the detective story, by the names that it gives them."""
    return {"first": load_picture_net(), "second": load_picture_net(misled=True)}


def draw_test(count: int = 40) -> SceneBatch:
    """The pictures on which both networks of the detective story were tested."""
    return scenes(count, seed=902, cue={"fish": "buoy"})


def draw_fish(count: int = 40) -> tuple[Tensor, dict[str, Tensor]]:
    """Pictures (N, 3, H, W) with a fish, and where their things are seen: (N, H, W) bool for each."""
    batch = scenes(count, seed=900, kinds=NO_FISH, contains="fish", cue="buoy")
    fish, cue = batch.masks("fish"), batch.cue_masks()
    return batch.images / 255, {"fish": fish, "other thing": (batch.owners > 0) & ~fish & ~cue, "buoy": cue}


# --- photographs ------------------------------------------------------------------------------------------------------

COLLAGE = {"chelsea": "Egyptian cat", "coffee": "espresso", "camera": "tripod", "grace_hopper": "military uniform"}
ASTRONAUT = {  # top, bottom, left, right, in pixels
    "face": (0, 60, 60, 140), "collar": (55, 135, 40, 140), "helmet": (150, 224, 120, 224),
    "shuttle": (0, 125, 160, 224), "flag": (0, 120, 0, 40),
}  # fmt: skip


def cover(photo: Tensor, box: Sequence[int]) -> Tensor:
    """Return the photograph (3, H, W) with a grey box in it: top, bottom, left, right."""
    covered = photo.clone()
    top, bottom, left, right = box
    covered[:, top:bottom, left:right] = 0.5
    return covered


def squares(side: int, step: int, size: int = 224) -> list[tuple[int, int, int, int]]:
    """The boxes of squares all over a picture, row by row."""
    starts = range(0, size - side + 1, step)
    return [(top, top + side, left, left + side) for top in starts for left in starts]


@torch.no_grad()
def ask(network: Classifier, photos: Sequence[Tensor], name: str) -> Tensor:
    """The probabilities (N,) of one class for photographs of one size."""
    shares = network.model(torch.stack([network.transform(photo) for photo in photos])).softmax(1)
    return shares[:, network.number_of(name)]


def two_channels(inplace: bool) -> nn.Sequential:
    """Return a network for pictures of one channel: a convolution with two, a ReLU, GAP and a linear layer."""
    model = nn.Sequential(
        nn.Conv2d(1, 2, 1, bias=False),
        nn.ReLU(inplace=inplace),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 1, bias=False),
    )
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([2.0, -1.0]).view(2, 1, 1, 1))
        model[4].weight.copy_(torch.tensor([[1.0, 3.0]]))
    return model.eval()


def shrink(heat: Tensor) -> Tensor:
    """Return a map (14, 14) in the form of `LIBRARY_MAP`, (7, 7): means of blocks, in thousandths."""
    return F.avg_pool2d(heat.detach()[None, None], 2)[0, 0] * 1000
