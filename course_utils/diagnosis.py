"""Small networks that are broken, each in one of the ways that training breaks, with numbers for a pencil.

`make_overflow_net`: a forward pass that gives nan. `make_distance_net`: a backward pass that does, behind a forward
pass that looks well. `make_one_unit`: a ReLU that dies of one large step; `have_an_accident` does the same to a
trained network. `make_chain`: gradients that explode.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from course_utils.networks import PictureNet


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


def _linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    """A Linear layer with these numbers."""
    layer = nn.Linear(len(weight[0]), len(weight), bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))
    return layer


def make_overflow_net() -> nn.Sequential:
    """A network from two numbers to one, with a softmax in the middle that is computed as the formula says.

    (N, 2) to (N, 1). Finite as long as no input is above 88: `exp` of more than that overflows, and the division then
    gives nan, which every layer behind it hands on.
    """
    softmax = nn.Sequential(OrderedDict(exp=Exponential(), share=Shares()))
    parts = {"stem": _linear([[1.0, 0.0], [0.0, 1.0]]), "softmax": softmax, "relu": nn.ReLU()}
    return nn.Sequential(OrderedDict(**parts, head=_linear([[3.0, 4.0]])))


def make_distance_net() -> nn.Sequential:
    """A network from points (N, 2) to their distances (N,): an identity, a scale of 1, and a square root.

    Its forward pass is finite for every point. Its gradient at the origin is not: the square root has an infinite slope
    at 0, and infinity times 0 is nan.
    """
    identity = [[1.0, 0.0], [0.0, 1.0]]
    return nn.Sequential(OrderedDict(embed=_linear(identity), turn=_linear(identity), distance=Distance()))


def make_one_unit() -> nn.Sequential:
    """One unit and its ReLU: relu(1 · x + 1)."""
    return nn.Sequential(OrderedDict(linear=_linear([[1.0]], [1.0]), relu=nn.ReLU()))


@torch.no_grad()
def have_an_accident(model: PictureNet) -> None:
    """Do to a network what a step that was too large does: throw a part of one layer's biases far below zero."""
    model.features[12].bias[:32] -= 50


def make_chain(depth: int, factor: float = 3.0) -> nn.Sequential:
    """`depth` Linear layers without bias, (N, 2) to (N, 2): each keeps the first number and multiplies the second.

    With the input [1, 0] the forward pass is [1, 0] everywhere. Backward, the second number of the gradient grows by
    `factor` in each layer.
    """
    return nn.Sequential(*(_linear([[1.0, 0.0], [0.0, factor]]) for _ in range(depth)))
