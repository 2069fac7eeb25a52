"""Scores of heat maps: does a map point at the thing that it explains?

The pointing game (Zhang et al., 2018) asks whether the hottest pixel is on the thing's mask (tolerant: or at most
`tolerance` pixels away from it), or on *another* thing; a pixel drawn at random is as often there as the mask has area.
The energy inside (Wang et al., 2020) is the share of all heat on the mask; an even map has the mask's area there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from course_utils.root import CourseError

TOLERANCE = 4  # pixels: half a cell of a 14 x 14 map of a picture of 112 x 112


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's random state starts from `seed` in the block and is as before after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class Rate(NamedTuple):
    """A share in [0, 1], nan where there was nothing to count, beside the one that chance reaches."""

    share: float
    chance: float

    def __str__(self) -> str:
        return f"{self.share:.0%} (chance {self.chance:.0%})"


class Localisation(NamedTuple):
    """How well so many `maps` point at what they explain.

    strict, tolerant: the hottest pixel is on the thing; on it or near it. energy: the mean share of a map's heat on it.
    wrong: the hottest pixel is on another thing; None where no other things were given.
    empty: maps without any heat. They point nowhere: a miss in the games, and no energy inside.
    """

    maps: int
    strict: Rate
    tolerant: Rate
    energy: Rate
    wrong: Rate | None
    empty: int

    def __str__(self) -> str:
        text = f"{self.maps} maps: on the thing {self.strict}, on it or near it {self.tolerant}, "
        text += f"energy inside {self.energy}" + (f", on the wrong thing {self.wrong}" if self.wrong else "")
        return text + (f"; {self.empty} empty" if self.empty else "")


def localise(
    heatmaps: Tensor, masks: Tensor, others: Tensor | None = None, tolerance: float = TOLERANCE
) -> Localisation:
    """Score `heatmaps` against the `masks` of the things that they explain.

    heatmaps: (N, H, W) floats, not below 0, as large as the pictures; only their proportions count.
    masks, others: (N, H, W) bool: where the thing is seen, and where other things are.
    tolerance: in pixels, for the tolerant pointing game.
    Raises `CourseError` for other shapes or types, and for maps that are not finite or have values below 0.
    """
    check_pair(heatmaps, masks)
    strict, tolerant, wrong = (
        None if on is None else Rate(points_at(heatmaps, on).double().mean().item(), chance(on))
        for on in (masks, grow(masks, tolerance), others)
    )
    energy = Rate(energy_inside(heatmaps, masks).mean().item(), chance(masks))
    empty = int((heatmaps.flatten(1).amax(1) <= 0).sum())
    return Localisation(len(heatmaps), strict, tolerant, energy, wrong, empty)


def chance(masks: Tensor) -> float:
    """Return the mean share of the picture that masks (N, H, W) cover: how often a random pixel is inside."""
    return masks.double().mean().item()


def point(heatmaps: Tensor) -> Tensor:
    """Return the row and column (N, 2), int64, of the hottest pixel of each map (N, H, W).

    Of several hottest pixels the first one counts, row by row; values that differ by less than a millionth are equally
    hot, so that no machine's rounding decides where an enlarged map is flat.
    """
    values = heatmaps.flatten(1)
    most = values.amax(1, keepdim=True)
    place = (values >= most - 1e-6 * most.abs()).byte().argmax(1)
    width = heatmaps.shape[2]  # torch.unravel_index imports sympy, which takes a second
    return torch.stack([place // width, place % width], dim=1)


def points_at(heatmaps: Tensor, masks: Tensor) -> Tensor:
    """Return for each map (N, H, W) whether its hottest pixel is inside its mask (N, H, W): (N,) bool.

    A map without a value above 0 points nowhere. Raises `CourseError` for maps that are not finite, or another shape.
    """
    check_pair(heatmaps, masks)
    rows, columns = point(heatmaps).unbind(1)
    return masks[torch.arange(len(masks), device=masks.device), rows, columns] & (heatmaps.flatten(1).amax(1) > 0)


def energy_inside(heatmaps: Tensor, masks: Tensor) -> Tensor:
    """Return for each map (N, H, W) the share of its sum that lies inside its mask (N, H, W): (N,) float64 in [0, 1].

    A map without heat has 0. Raises `CourseError` for a map with values below 0: a share of them would mean nothing.
    """
    check_pair(heatmaps, masks)
    if (heatmaps < 0).any():
        least = heatmaps.min().item()
        raise CourseError(f"the energy of a map needs values from 0 up, got {least:.3g}: apply a ReLU to it first")
    heat = heatmaps.double()
    return (heat * masks).sum((1, 2)) / heat.sum((1, 2)).clamp(min=torch.finfo(torch.float64).tiny)


def grow(masks: Tensor, pixels: float) -> Tensor:
    """Return masks (N, H, W) with all pixels whose centre is at most `pixels` away from one that was inside."""
    reach = int(pixels)
    steps = torch.arange(-reach, reach + 1, device=masks.device)
    disc = (steps[:, None] ** 2 + steps**2 <= pixels**2).float()
    return (F.conv2d(masks[:, None].float(), disc[None, None], padding=reach) > 0.5)[:, 0]


def check_pair(heatmaps: Tensor, masks: Tensor) -> None:
    """Raise `CourseError` unless these are finite maps (N, H, W) and as many masks of their size."""
    if heatmaps.dim() != 3 or not heatmaps.is_floating_point() or not heatmaps.isfinite().all():
        got = f"{heatmaps.dtype} {tuple(heatmaps.shape)} with {int((~heatmaps.isfinite()).sum())} nan or infinite"
        raise CourseError(f"heat maps are finite floats (N, H, W), a single one heatmap[None]; got {got} values")
    if masks.dtype != torch.bool or masks.shape != heatmaps.shape:
        problem = f"maps {tuple(heatmaps.shape)} need such masks, bool, got {masks.dtype} {tuple(masks.shape)}"
        raise CourseError(f"{problem}: enlarge the maps to the pictures' size, and give each map its own mask")


def share_on(maps: Tensor, mask: Tensor) -> Tensor:
    """Return which share of each map's positive response lies on a mask: (..., C, h, w), (..., H, W) to (..., C).

    A place of the map counts by the share of its pixels that the mask covers. A map without response has the share 0.
    """
    positive = maps.clamp(min=0)
    covered = F.adaptive_avg_pool2d(mask[..., None, :, :].float(), maps.shape[-2:])
    return (positive * covered).sum((-2, -1)) / positive.sum((-2, -1)).clamp(min=1e-12)


def find_strength(gradients: Tensor) -> Tensor:
    """Return how strongly each pixel counts, whatever the sign: (N, C, H, W) to (N, H, W), summed over the channels."""
    return gradients.detach().abs().sum(1)
