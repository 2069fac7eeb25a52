"""Networks for a pencil: their weights are whole numbers, so that every value in them can be worked out by hand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


def make_linear(weight: Sequence[Sequence[float]], bias: Sequence[float] | None = None) -> nn.Linear:
    """Return a Linear layer with these numbers, (outputs, inputs) and (outputs,)."""
    layer = nn.Linear(len(weight[0]), len(weight), bias=bias is not None)
    given = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    layer.load_state_dict({name: torch.tensor(values) for name, values in given.items()})
    return layer


class SmallNet(nn.Sequential):
    """fc1 (3 to 4), relu, fc2 (4 to 1): ones(1, 3) gives 89."""

    def __init__(self, relu: Callable[[], nn.Module] = nn.ReLU) -> None:
        fc1 = make_linear([[1, 2, 3], [-4, -5, -6], [7, 8, 9], [-10, -11, -12]], [1, 2, 3, 4])
        super().__init__(OrderedDict(fc1=fc1, relu=relu(), fc2=make_linear([[1, 2, 3, 4]], [1])))


class _Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("this relu always raises")


RELUS = {"plain": nn.ReLU, "in place": lambda: nn.ReLU(inplace=True), "raises an error": _Raises}


class ResidualBlock(nn.Module):
    """relu(x + fc2(relu(fc1(x)))): one in-place ReLU that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = make_linear([[1, 2], [-3, 1]], [0, -1])
        self.relu = nn.ReLU(inplace=True)
        self.fc2 = make_linear([[2, 1], [-1, 1]], [1, 0])

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + self.fc2(self.relu(self.fc1(x))))


def _nested() -> nn.Module:
    inner = nn.Sequential(nn.ReLU(), make_linear([[1, 3], [2, -1]], [0, 1]))
    return nn.Sequential(make_linear([[2, 1], [1, -4]], [0, 1]), inner, make_linear([[1, 2]], [5]))


class Example(NamedTuple):
    """A model to look into: how to make it, and the values of its input, a batch of one."""

    make: Callable[[], nn.Module]
    x: tuple[float, ...]


MODELS = {
    "small net": Example(SmallNet, (1, 1, 1)),
    "residual block": Example(ResidualBlock, (1, 2)),
    "Sequential in a Sequential": Example(_nested, (1, 1)),
}

EDGES = "edge_net"


def make_edge_net() -> nn.Sequential:
    """Return a 7 x 7 convolution and a ReLU, with four kernels made by hand: (N, 3, H, W) to (N, 4, H, W).

    Each kernel answers where the picture gets brighter in one direction: to the right, to the left, down, up. Where it
    does not change, the answer is 0; the greatest answer possible is almost 1.
    """
    ramp = torch.tensor([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]).expand(7, 7)
    kernels = torch.stack([ramp, -ramp, ramp.T, -ramp.T]) / 128  # a power of 2, so that even white gives exactly 0
    net = nn.Sequential(nn.Conv2d(3, 4, 7, padding=3, padding_mode="replicate", bias=False), nn.ReLU())
    net[0].load_state_dict({"weight": kernels[:, None].expand(-1, 3, -1, -1)})
    return net.eval()
