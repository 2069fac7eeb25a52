"""Scores of heat maps against the truth: does a map point at the thing that it is said to explain?

    score = localise(heatmaps, masks, others)       a map and a mask per picture, and the masks of what else is there
    print(score)                                    every share beside what chance would reach

Three questions, each with its level of chance:

- The pointing game (Zhang et al., 2018): is the hottest pixel on the thing? Strict: on its mask. Tolerant: on the mask
  or at most `tolerance` pixels away from it. By chance, a pixel drawn at random would hit as often as the (grown) mask
  has area.
- The energy inside (Wang et al., 2020): which share of all heat is on the mask? An even map has the mask's area there.
- The wrong object: is the hottest pixel on *another* thing? By chance, as often as the other things have area.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from course_utils.scenes.scene import KINDS, SceneBatch

TOLERANCE = 4  # pixels: half a cell of a 14 x 14 map of a picture of 112 x 112


@dataclass(frozen=True)
class Share:
    """`hits` of `of`, beside the share that `chance` reaches; an `of` of 0 gives nan."""

    hits: float
    of: int
    chance: float

    @property
    def share(self) -> float:
        """hits / of."""
        return self.hits / self.of if self.of else float("nan")

    def __str__(self) -> str:
        return f"{self.share:.0%} (chance {self.chance:.0%})"


@dataclass(frozen=True)
class Localisation:
    """How well heat maps point at what they explain. Each score is a `Share`.

    maps: how many maps were scored.
    strict, tolerant: the hottest pixel is on the thing; on it or near it.
    energy: the mean share of a map's heat on the thing (`hits` is the sum of these shares).
    wrong: the hottest pixel is on another thing; None where no other things were given.
    empty: maps without any heat. They point nowhere: a miss in the games, and no energy inside.
    """

    maps: int
    strict: Share
    tolerant: Share
    energy: Share
    wrong: Share | None
    empty: int

    def __str__(self) -> str:
        wrong = f", on the wrong thing {self.wrong}" if self.wrong else ""
        empty = f"; {self.empty} empty" if self.empty else ""
        return (
            f"{self.maps} maps: on the thing {self.strict}, on it or near it {self.tolerant}, "
            f"energy inside {self.energy}{wrong}{empty}"
        )


def localise(
    heatmaps: Tensor, masks: Tensor, others: Tensor | None = None, tolerance: float = TOLERANCE
) -> Localisation:
    """Score `heatmaps` against the `masks` of the things that they explain.

    heatmaps: (N, H, W) floats, not below 0, as large as the pictures; only their proportions count.
    masks, others: (N, H, W) bool: where the thing is seen, and where other things are.
    tolerance: in pixels, for the tolerant pointing game.

    Raises ValueError for other shapes or types, maps that are not finite or have values below 0, a negative tolerance.
    """
    _check_pair(heatmaps, masks)
    grown = grow(masks, tolerance)
    return Localisation(
        maps=len(heatmaps),
        strict=_share(points_at(heatmaps, masks), masks),
        tolerant=_share(points_at(heatmaps, grown), grown),
        energy=_share(energy_inside(heatmaps, masks), masks),
        wrong=None if others is None else _share(points_at(heatmaps, others), others),
        empty=int((heatmaps.flatten(1).amax(1) <= 0).sum()),
    )


def _share(found: Tensor, masks: Tensor) -> Share:
    return Share(found.double().sum().item(), len(found), chance(masks))


def chance(masks: Tensor) -> float:
    """Return the mean share of the picture that masks (N, H, W) cover: how often a random pixel is inside."""
    _check_masks(masks)
    return masks.double().mean().item() if masks.numel() else float("nan")


def point(heatmaps: Tensor) -> Tensor:
    """Return the row and column (N, 2), int64, of the hottest pixel of each map (N, H, W).

    Of several hottest pixels the first one counts, row by row; values that differ by less than a millionth are equally
    hot, so that no machine's rounding decides where an enlarged map is flat. Raises ValueError for maps that are not
    finite or have another number of dimensions.
    """
    _check_maps(heatmaps)
    values = heatmaps.flatten(1)
    most = values.amax(1, keepdim=True)
    place = (values >= most - 1e-6 * most.abs()).byte().argmax(1)
    width = heatmaps.shape[2]
    return torch.stack([place // width, place % width], dim=1)


def points_at(heatmaps: Tensor, masks: Tensor) -> Tensor:
    """Return for each map (N, H, W) whether its hottest pixel is inside its mask (N, H, W): (N,) bool.

    A map without a value above 0 points nowhere. Raises ValueError for maps that are not finite, or another shape.
    """
    _check_pair(heatmaps, masks)
    rows, columns = point(heatmaps).unbind(1)
    hot = heatmaps.flatten(1).amax(1) > 0
    return masks[torch.arange(len(masks), device=masks.device), rows, columns] & hot


def energy_inside(heatmaps: Tensor, masks: Tensor) -> Tensor:
    """Return for each map (N, H, W) the share of its sum that lies inside its mask (N, H, W): (N,) float64 in [0, 1].

    A map without heat has 0. Raises ValueError for a map with values below 0: a share of them would mean nothing.
    """
    _check_pair(heatmaps, masks)
    if (heatmaps < 0).any():
        raise ValueError(
            f"the energy of a map needs values from 0 up, got {heatmaps.min().item():.3g}: apply a ReLU to it first"
        )
    heat = heatmaps.double()
    return (heat * masks).sum((1, 2)) / heat.sum((1, 2)).clamp(min=torch.finfo(torch.float64).tiny)


def grow(masks: Tensor, pixels: float) -> Tensor:
    """Return masks (N, H, W) with all pixels whose centre is at most `pixels` away from one that was inside.

    Raises ValueError for a distance that is negative or not finite.
    """
    _check_masks(masks)
    if not 0 <= pixels < float("inf"):
        raise ValueError(f"a mask grows by 0 pixels or more, got {pixels}")
    reach = int(pixels)
    if not reach or not masks.numel():
        return masks.clone()
    steps = torch.arange(-reach, reach + 1, device=masks.device)
    disc = (steps[:, None] ** 2 + steps**2 <= pixels**2).float()
    return (F.conv2d(masks[:, None].float(), disc[None, None], padding=reach) > 0.5)[:, 0]


def _check_maps(heatmaps: Tensor) -> None:
    if heatmaps.dim() != 3 or not heatmaps.is_floating_point():
        raise ValueError(
            f"heat maps are floats of shape (N, H, W), got {heatmaps.dtype} of shape {tuple(heatmaps.shape)}"
            + ("; add the batch dimension with heatmap[None]" if heatmaps.dim() == 2 else "")
        )
    if not heatmaps.isfinite().all():
        raise ValueError("the heat maps have values that are not finite (nan or inf): where do they come from?")


def _check_masks(masks: Tensor) -> None:
    if masks.dim() != 3 or masks.dtype != torch.bool:
        raise ValueError(f"masks are bool of shape (N, H, W), got {masks.dtype} of shape {tuple(masks.shape)}")


def _check_pair(heatmaps: Tensor, masks: Tensor) -> None:
    _check_maps(heatmaps)
    _check_masks(masks)
    if heatmaps.shape != masks.shape:
        raise ValueError(
            f"maps and masks have one shape, got {tuple(heatmaps.shape)} and {tuple(masks.shape)}; enlarge the maps to "
            "the pictures' size, and give each map its own mask"
        )


# --- what channels follow ---------------------------------------------------------------------------------------------


def share_on(maps: Tensor, mask: Tensor) -> Tensor:
    """Return which share of each map's positive response lies on a mask: (..., C, h, w), (..., H, W) to (..., C).

    A place of the map counts by the share of its pixels that the mask covers. A map without response has the share 0.
    """
    positive = maps.clamp(min=0)
    covered = F.adaptive_avg_pool2d(mask[..., None, :, :].float(), maps.shape[-2:])
    return (positive * covered).sum((-2, -1)) / positive.sum((-2, -1)).clamp(min=1e-12)


@dataclass(frozen=True, repr=False)
class Followed:
    """How the channels of a layer follow the kinds of things, each (C, len(KINDS)), with numbers in [0, 1].

    share: of all that the channel responds to pictures with the kind, the part that lies on the thing. A channel that
        does not care has about the part of the picture that the thing covers.
    tells: of all pairs of a picture with the kind and one without, the part in which the channel responds more to the
        picture with it; 0.5 is chance. (The area under the ROC curve.)
    """

    share: Tensor
    tells: Tensor

    def best_channel(self, kind: str) -> int:
        """The channel that follows a kind best, in both respects: the greatest product of the two."""
        column = KINDS.index(kind)
        return int((self.share[:, column] * self.tells[:, column]).argmax())


def follow_things(maps: Tensor, batch: SceneBatch) -> Followed:
    """Measure how each channel follows each kind of thing: maps (N, C, h, w) of the pictures of `batch`.

    Raises ValueError for another number of maps than pictures, or if a kind is in none or in all of them.
    """
    if len(maps) != len(batch):
        raise ValueError(f"{len(batch)} pictures need as many maps, got {len(maps)}")
    maps = maps.clamp(min=0)
    responses = maps.mean((2, 3))
    share, tells = torch.zeros(maps.shape[1], len(KINDS)), torch.zeros(maps.shape[1], len(KINDS))
    for column, kind in enumerate(KINDS):
        there = batch.labels[:, column] > 0
        if there.all() or not there.any():
            raise ValueError(f"of {len(batch)} pictures, {int(there.sum())} show a {kind}: take more pictures")
        covered = F.adaptive_avg_pool2d(batch.masks(kind)[there].float(), maps.shape[2:])[:, None]
        on, all_of_it = (maps[there] * covered).sum((0, 2, 3)), maps[there].sum((0, 2, 3))
        share[:, column] = on / all_of_it.clamp(min=1e-12)
        one, other = responses[there][:, None], responses[~there][None]
        tells[:, column] = ((one > other).float() + (one == other).float() / 2).mean((0, 1))
    return Followed(share, tells)
