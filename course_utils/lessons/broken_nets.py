"""Networks for a pencil that break as training does: nan, ReLUs that die, gradients that explode."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from course_utils.vision.toys import make_linear

SAME = [[1.0, 0.0], [0.0, 1.0]]  # as a weight: what comes out is what came in


class Exponential(nn.Module):
    """exp of each number. In float32 it is infinite from 89 on."""

    def forward(self, scores: Tensor) -> Tensor:
        return scores.exp()


class Shares(nn.Module):
    """Each row divided by its sum."""

    def forward(self, values: Tensor) -> Tensor:
        return values / values.sum(dim=1, keepdim=True)


class Distance(nn.Module):
    """(N, d) to (N,): how far each point is from the origin."""

    def forward(self, points: Tensor) -> Tensor:
        return points.pow(2).sum(dim=1).sqrt()


def make_overflow_net() -> nn.Sequential:
    """A network, (N, 2) to (N, 1), with a softmax in the middle that is computed as the formula says.

    It is finite as long as no input is above 88: `exp` of more overflows, and the division then gives nan.
    """
    softmax = nn.Sequential(OrderedDict(exp=Exponential(), share=Shares()))
    parts = {"stem": make_linear(SAME), "softmax": softmax, "relu": nn.ReLU()}
    return nn.Sequential(OrderedDict(**parts, head=make_linear([[3.0, 4.0]])))


def make_distance_net() -> nn.Sequential:
    """A network from points (N, 2) to their distances (N,): two identities and a square root.

    Its gradient at the origin is nan: the square root has an infinite slope at 0, times 0.
    """
    return nn.Sequential(OrderedDict(embed=make_linear(SAME), turn=make_linear(SAME), distance=Distance()))


def make_one_unit() -> nn.Sequential:
    """One unit and its ReLU: relu(1 · x + 1)."""
    return nn.Sequential(OrderedDict(linear=make_linear([[1.0]], [1.0]), relu=nn.ReLU()))


@torch.no_grad()
def have_an_accident(model: nn.Module) -> None:
    """Do to a `PictureNet` what a step that was too large does: throw some of a layer's biases far below zero."""
    model.features[12].bias[:32] -= 50


def make_chain(depth: int) -> nn.Sequential:
    """`depth` Linear layers without bias, (N, 2) to (N, 2): each keeps the first number and triples the second.

    With the input [1, 0] the forward pass is [1, 0] everywhere; the second number of the gradient grows threefold.
    """
    return nn.Sequential(*(make_linear([[1.0, 0.0], [0.0, 3.0]]) for _ in range(depth)))
