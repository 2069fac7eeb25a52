"""Scores of heat maps: does a map point at the thing that it explains, follow the class, and follow what was learned?

The pointing game (Zhang et al., 2018) asks whether the hottest pixel is on the thing's mask (tolerant: or at most
`tolerance` pixels away from it), or on *another* thing; a pixel drawn at random is as often there as the mask has area.
The energy inside (Wang et al., 2020) is the share of all heat on the mask; an even map has the mask's area there.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, SceneBatch

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
    _check_pair(heatmaps, masks)
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
    return torch.stack(torch.unravel_index(place, heatmaps.shape[1:]), dim=1)


def points_at(heatmaps: Tensor, masks: Tensor) -> Tensor:
    """Return for each map (N, H, W) whether its hottest pixel is inside its mask (N, H, W): (N,) bool.

    A map without a value above 0 points nowhere. Raises `CourseError` for maps that are not finite, or another shape.
    """
    _check_pair(heatmaps, masks)
    rows, columns = point(heatmaps).unbind(1)
    hot = heatmaps.flatten(1).amax(1) > 0
    return masks[torch.arange(len(masks), device=masks.device), rows, columns] & hot


def energy_inside(heatmaps: Tensor, masks: Tensor) -> Tensor:
    """Return for each map (N, H, W) the share of its sum that lies inside its mask (N, H, W): (N,) float64 in [0, 1].

    A map without heat has 0. Raises `CourseError` for a map with values below 0: a share of them would mean nothing.
    """
    _check_pair(heatmaps, masks)
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


def _check_pair(heatmaps: Tensor, masks: Tensor) -> None:
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


class Followed(NamedTuple):
    """How the channels of a layer follow the kinds of things, each (C, len(KINDS)), with numbers in [0, 1].

    share: of all that the channel responds to pictures with the kind, the part that lies on the thing.
    tells: of all pairs of a picture with the kind and one without, the part in which the channel responds more to the
        picture with it; 0.5 is chance. (The area under the ROC curve.)
    """

    share: Tensor
    tells: Tensor

    def best_channel(self, kind: str) -> int:
        """The channel that follows a kind best, in both respects: the greatest product of the two."""
        return int((self.share * self.tells)[:, KINDS.index(kind)].argmax())


def follow_things(maps: Tensor, batch: SceneBatch) -> Followed:
    """Measure how each channel follows each kind of thing: maps (N, C, h, w) of the pictures of `batch`.

    Raises `CourseError` for another number of maps than pictures, or if a kind is in none or in all of them.
    """
    if len(maps) != len(batch):
        raise CourseError(f"{len(batch)} pictures need as many maps, got {len(maps)}")
    positive, there = maps.clamp(min=0).flatten(2), batch.labels > 0
    kinds = batch.labels.topk(int(there.sum(1).max()), 1).indices  # of each picture; what it does not show has no mask
    covered = F.adaptive_avg_pool2d((batch.owners[:, None] == kinds[..., None, None] + 1).float(), maps.shape[2:])
    on_things = (positive @ covered.flatten(2).mT).movedim(1, 0).flatten(1)
    (on, tells), responses = torch.zeros(2, maps.shape[1], len(KINDS)), positive.sum(2)
    on.index_add_(1, kinds.flatten(), on_things)
    for column, kind in enumerate(KINDS):
        one, other = responses[there[:, column]][:, None], responses[~there[:, column]][None]
        if not (len(one) and other.shape[1]):
            raise CourseError(f"of {len(batch)} pictures, {len(one)} show a {kind}: take more pictures")
        tells[:, column] = ((one > other).float() + (one == other).float() / 2).mean((0, 1))
    return Followed(on / (responses.T @ there.float()).clamp(min=1e-12), tells)


def find_strength(gradients: Tensor) -> Tensor:
    """Return how strongly each pixel counts, whatever the sign: (N, C, H, W) to (N, H, W), summed over the channels."""
    return gradients.detach().abs().sum(1)


def rank_correlation(maps: Tensor, others: Tensor) -> Tensor:
    """Return Spearman's rank correlation of each pair of maps, (N, …) to (N,) in [-1, 1]: only the order counts.

    1: the same order; 0: unrelated. Equal values share the mean of their ranks. nan where a map is constant.
    Raises `CourseError` for maps of different shapes, or with nan or infinite values.
    """
    _check_alike(maps, others)
    ranks = [torch.stack([_rank(row) for row in each.flatten(1)]) for each in (maps, others)]
    return cosine_similarity(*(each - each.mean(1, keepdim=True) for each in ranks))


def _rank(values: Tensor) -> Tensor:
    numbers = values.detach().to("cpu", torch.promote_types(values.dtype, torch.float32)).numpy()
    _, place, count = np.unique(numbers, return_inverse=True, return_counts=True)  # much faster than torch's
    return torch.from_numpy((count.cumsum() - (count + 1) / 2)[place])


def cosine_similarity(maps: Tensor, others: Tensor) -> Tensor:
    """Return the cosine between each pair of maps, in [-1, 1]: signs and sizes count, a common factor does not.

    nan where a map is all 0. Raises as `rank_correlation` does.
    """
    _check_alike(maps, others)
    first, second = (each.detach().to("cpu", torch.float64).flatten(1) for each in (maps, others))
    return (first * second).sum(1) / (first.norm(dim=1) * second.norm(dim=1))


def _check_alike(maps: Tensor, others: Tensor) -> None:
    if maps.shape != others.shape or not (maps.isfinite().all() and others.isfinite().all()):
        shapes = f"{tuple(maps.shape)} and {tuple(others.shape)}"
        raise CourseError(f"maps to compare are finite and of one shape (N, …), got {shapes}, or values that are not")


class ClassSensitivity(NamedTuple):
    """How two maps of the same pictures differ that explain two classes, each of which is there; means over pictures.

    on_own: the strength on the thing asked for, as a share of that on both things. A map that is blind to the class has
        0.5, because each thing is asked for once in each picture.
    cosine, ranks: between the two maps; rank correlation of their strengths.
    """

    pictures: int
    on_own: float
    cosine: float
    ranks: float

    def __str__(self) -> str:
        on_own = f"on its own thing {self.on_own:.2f} (chance 0.50)"
        return f"{on_own}, cosine {self.cosine:.2f}, ranks {self.ranks:.2f}, {self.pictures} pictures"


def measure_class_sensitivity(
    first: Tensor, second: Tensor, first_masks: Tensor, second_masks: Tensor
) -> ClassSensitivity:
    """Compare the gradients for the first thing of each picture with those for the second.

    first, second: (N, C, H, W), gradients of the logits of two classes. masks: (N, H, W) bool, where these things are.
    Raises `CourseError` for other shapes, or a gradient that is 0 on both things of a picture.
    """
    strengths, shares = (find_strength(first), find_strength(second)), []
    for strength, own, other in zip(strengths, (first_masks, second_masks), (second_masks, first_masks), strict=True):
        _check_pair(strength, own)
        _check_pair(strength, other)
        both = (strength * (own | other)).sum((1, 2))
        if not both.all():
            raise CourseError(f"the gradient of picture {both.argmin().item()} is 0 on both things")
        shares.append((strength * own).sum((1, 2)) / both)
    scores = torch.cat(shares), cosine_similarity(first, second), rank_correlation(*strengths)
    return ClassSensitivity(len(first), *(each.mean().item() for each in scores))


def group_layers(model: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    """Return the layers of `model` that have parameters, in its own order, each with the name of its first module.

    A normalisation belongs to the layer before it, whose statistics it keeps. Raises `CourseError` for a module that
    cannot reset its own parameters.
    """
    groups: list[tuple[str, list[nn.Module]]] = []
    for name, module in model.named_modules():
        if not list(module.parameters(recurse=False)):
            continue
        if not hasattr(module, "reset_parameters"):
            raise CourseError(f"{name or 'the model'} ({type(module).__name__}) has parameters and no reset_parameters")
        if isinstance(module, nn.modules.batchnorm._NormBase | nn.GroupNorm | nn.LayerNorm) and groups:
            groups[-1][1].append(module)
        else:
            groups.append((name, [module]))
    return groups


def randomise_cascading(model: nn.Module, seed: int = 0) -> Iterator[tuple[str, nn.Module]]:
    """Yield copies of `model` that know less and less: the last layer random, then the last two, …, then all of them.

    This is the cascading randomisation of Adebayo et al. 2018, section 3.1, in the order of `model.named_modules()`.
    With each copy comes the name of the layer that is new among the random ones. The model and torch's random state
    stay as they are. Raises as `group_layers` does.
    """
    for count, (name, _) in enumerate(reversed(group_layers(model)), 1):
        twin = copy.deepcopy(model)
        with seeded(seed):
            for _, modules in group_layers(twin)[: -count - 1 : -1]:  # so a layer's numbers stay from copy to copy
                for module in modules:
                    module.reset_parameters()
        yield name, twin
