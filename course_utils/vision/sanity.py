"""Checks of an explanation: does its map change when the class changes, or when the network forgets what it learned?

    sensitivity = measure_class_sensitivity(for_cat, for_boat, on_cat, on_boat)
    for name, twin in randomise_cascading(model):           from the last layer downwards
        print(name, rank_correlation(find_strength(explain(twin)), find_strength(explain(model))))

Maps are compared picture by picture: (N, ...) and (N, ...) to (N,), in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- how alike two maps are -------------------------------------------------------------------------------------------


def find_strength(gradients: Tensor) -> Tensor:
    """Return how strongly each pixel counts, whatever the sign: (N, C, H, W) to (N, H, W), summed over the channels.

    Raises ValueError for another number of dimensions.
    """
    if gradients.dim() != 4:
        raise ValueError(f"gradients are (N, C, H, W), got {tuple(gradients.shape)}: gradient[None] adds a batch")
    return gradients.detach().abs().sum(1)


def rank_correlation(maps: Tensor, others: Tensor) -> Tensor:
    """Return Spearman's rank correlation of each pair of maps, in [-1, 1]: only the order of the values counts.

    1: the same order; 0: unrelated. Equal values share the mean of their ranks. nan where a map is constant.
    Raises ValueError for maps of different shapes, or with nan or infinite values.
    """
    first, second = _flatten_pair(maps, others)
    return _correlate(_rank(first), _rank(second))


def cosine_similarity(maps: Tensor, others: Tensor) -> Tensor:
    """Return the cosine between each pair of maps, in [-1, 1]: signs and sizes count, a common factor does not.

    nan where a map is all 0. Raises as `rank_correlation` does.
    """
    first, second = _flatten_pair(maps, others)
    return (first * second).sum(1) / (first.norm(dim=1) * second.norm(dim=1))


def structural_similarity(maps: Tensor, others: Tensor) -> Tensor:
    """Return the mean structural similarity (SSIM) of each pair of maps (N, H, W), which are stretched to [0, 1] first.

    Wang et al. 2004, eq. 13, with their Gaussian window of 11 x 11 pixels (standard deviation 1.5) and constants for a
    range of 1; windows that do not fit into the map are left out. A constant map counts as all 0.
    Raises ValueError for maps smaller than the window, and as `rank_correlation` does.
    """
    if maps.dim() != 3 or min(maps.shape[1:]) < 11:
        raise ValueError(f"structural similarity takes maps (N, H, W) from 11 x 11, got {tuple(maps.shape)}")
    first, second = (_stretch(flat).reshape(maps.shape)[:, None] for flat in _flatten_pair(maps, others))
    distance = torch.arange(11, dtype=torch.float64) - 5
    bell = torch.exp(-(distance**2) / (2 * 1.5**2))
    window = torch.outer(bell, bell)[None, None] / bell.sum() ** 2

    def average(values: Tensor) -> Tensor:
        return F.conv2d(values, window)

    mean, other_mean = average(first), average(second)
    variance, other_variance = average(first**2) - mean**2, average(second**2) - other_mean**2
    covariance = average(first * second) - mean * other_mean
    small, smaller = 0.01**2, 0.03**2
    alike = (2 * mean * other_mean + small) * (2 * covariance + smaller)
    alike /= (mean**2 + other_mean**2 + small) * (variance + other_variance + smaller)
    return alike.mean((1, 2, 3))


def _flatten_pair(maps: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Both as (N, values) float64 on the CPU."""
    if maps.shape != others.shape or maps.dim() < 2:
        raise ValueError(
            f"maps to compare are of one shape (N, ...), got {tuple(maps.shape)} and {tuple(others.shape)}"
        )
    pair = [each.detach().to("cpu", torch.float64).flatten(1) for each in (maps, others)]
    for name, flat in zip(("the first maps", "the second maps"), pair, strict=True):
        if not flat.isfinite().all():
            raise ValueError(f"{name} have values that are nan or infinite: look where they come from")
    return pair[0], pair[1]


def _rank(values: Tensor) -> Tensor:
    """Rank each row of (N, values) from 0; equal values share the mean of their ranks."""
    ranks = torch.empty_like(values)
    for row, found in zip(values, ranks, strict=True):
        _, place, count = row.unique(return_inverse=True, return_counts=True)
        last = count.cumsum(0) - 1
        found.copy_((last - (count - 1) / 2)[place])
    return ranks


def _correlate(first: Tensor, second: Tensor) -> Tensor:
    first, second = (values - values.mean(1, keepdim=True) for values in (first, second))
    return (first * second).sum(1) / (first.norm(dim=1) * second.norm(dim=1))


def _stretch(values: Tensor) -> Tensor:
    low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
    return (values - low) / (high - low).where(high > low, 1)


# --- does a map follow the class? -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassSensitivity:
    """How two maps of the same pictures differ that explain two classes, each of which is there; means over pictures.

    pictures: how many pairs of maps.
    on_own: the strength on the thing asked for, as a share of that on both things. 1: all of it; blind to the class:
        `chance`, because each thing is asked for once in each picture.
    cosine: between the two maps themselves. -1: one is the negative of the other; 1: they are the same.
    ranks: rank correlation of the two strengths. 1: the same pixels are bright, in the same order.
    """

    pictures: int
    on_own: float
    cosine: float
    ranks: float
    chance: float = 0.5

    def __str__(self) -> str:
        return (
            f"on its own thing {self.on_own:.2f} (chance {self.chance:.2f}), cosine {self.cosine:.2f}, "
            f"ranks {self.ranks:.2f}, {self.pictures} pictures"
        )


def measure_class_sensitivity(
    first: Tensor, second: Tensor, first_masks: Tensor, second_masks: Tensor
) -> ClassSensitivity:
    """Compare the gradients for the first thing of each picture with those for the second.

    first, second: (N, C, H, W), gradients of the logits of two classes. masks: (N, H, W) bool, where these things are.
    Raises ValueError for other shapes or dtypes, a thing without a pixel, or a gradient that is 0 on both things.
    """
    strengths = find_strength(first), find_strength(second)
    for masks in (first_masks, second_masks):
        if masks.dtype != torch.bool or masks.shape != strengths[0].shape:
            raise ValueError(f"masks are bool and {tuple(strengths[0].shape)}, got {masks.dtype} {tuple(masks.shape)}")
        if not masks.flatten(1).any(1).all():
            raise ValueError(f"picture {masks.flatten(1).any(1).int().argmin().item()} has a mask without a pixel")
    shares = []
    for strength, own, other in (
        (strengths[0], first_masks, second_masks),
        (strengths[1], second_masks, first_masks),
    ):
        both = (strength * (own | other)).sum((1, 2))
        if not (both > 0).all():
            raise ValueError(f"the gradient of picture {(both > 0).int().argmin().item()} is 0 on both things")
        shares.append((strength * own).sum((1, 2)) / both)
    return ClassSensitivity(
        pictures=len(first),
        on_own=torch.cat(shares).mean().item(),
        cosine=cosine_similarity(first, second).mean().item(),
        ranks=rank_correlation(*strengths).mean().item(),
    )


# --- does a map follow what was learned? ------------------------------------------------------------------------------


def group_layers(model: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    """Return the layers of `model` that have parameters, in its own order, each with the name of its first module.

    A normalisation belongs to the layer before it: it keeps statistics of that layer's trained output, which make no
    sense once the layer is random. Raises ValueError for a model in which nothing can be randomised, and for modules
    with parameters of their own that have no `reset_parameters`.
    """
    groups: list[tuple[str, list[nn.Module]]] = []
    for name, module in model.named_modules():
        if not any(True for _ in module.parameters(recurse=False)):
            continue
        if not callable(getattr(module, "reset_parameters", None)):
            raise ValueError(f"{name or 'the model'} ({type(module).__name__}) has parameters and no reset_parameters")
        if isinstance(module, nn.modules.batchnorm._NormBase | nn.GroupNorm | nn.LayerNorm) and groups:
            groups[-1][1].append(module)
        else:
            groups.append((name, [module]))
    if not groups:
        raise ValueError(f"{type(model).__name__} has no layers with parameters, so there is nothing to randomise")
    return groups


def randomise_cascading(model: nn.Module, seed: int = 0) -> Iterator[tuple[str, nn.Module]]:
    """Yield copies of `model` that know less and less: the last layer random, then the last two, …, then all of them.

    This is the cascading randomisation of Adebayo et al. 2018, section 3.1. Each layer gets what its own
    `reset_parameters` gives an untrained one; statistics of batch-norm are those of an untrained one too. With each
    copy comes the name of the layer that is new among the random ones. The model and torch's random state stay as they
    are; the same seed gives the same copies, each as a module of its own.

    "Last" means last in the order of `model.named_modules()`. Raises as `group_layers` does.
    """
    names = [name for name, _ in group_layers(model)]
    for count in range(1, len(names) + 1):
        twin = copy.deepcopy(model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for _, modules in group_layers(twin)[::-1][
                :count
            ]:  # in this order, a layer's numbers stay from copy to copy
                for module in modules:
                    module.reset_parameters()
        yield names[-count], twin
