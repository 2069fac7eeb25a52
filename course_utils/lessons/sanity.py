"""Is a map about the class, and about what was learned? The measures of lesson 06.

They compare maps of the same pictures: for two classes of things that are both there, and of a network whose layers
become random one by one (Adebayo et al. 2018).
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.root import CourseError
from course_utils.vision.scores import check_pair, find_strength, seeded


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
        check_pair(strength, own)
        check_pair(strength, other)
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
