"""Networks for a pencil: their weights are whole numbers, so that every value in them can be worked out by hand.

Those from `make_overflow_net` on break as training does: nan, ReLUs that die, gradients that explode.
"""

from __future__ import annotations

import math
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


EXAMPLE_CALLS = {"plain": nn.ReLU, "in place": lambda: nn.ReLU(inplace=True), "raises an error": _Raises}


def make_example(relu: str = "plain") -> tuple[nn.Sequential, Tensor]:
    """Return the layers of `SmallNet` in a row, with a relu by its key in `EXAMPLE_CALLS`, and ones (1, 3), a leaf."""
    layers = SmallNet(EXAMPLE_CALLS[relu]).named_children()
    return nn.Sequential(OrderedDict(layers)), torch.ones(1, 3, requires_grad=True)


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


SAME = [[1.0, 0.0], [0.0, 1.0]]  # as a weight: what comes out is what came in
HEADS = ("the word before", "the same word")
ODDS = 96  # a place that is looked for gets this many times the attention of another one


def encode(words: Sequence[str]) -> Tensor:
    """Return the words as vectors, (1, L, 2L): which word it is, and which place it has, each as a one among zeros.

    A word that comes twice has the same first half.
    """
    places, names = torch.eye(len(words)), list(dict.fromkeys(words))
    return torch.cat([places[[names.index(word) for word in words]], places], dim=1)[None]


@torch.no_grad()
def make_two_head_block(words: Sequence[str]) -> nn.TransformerEncoderLayer:
    """Return a block for sentences of `len(words)` words, in eval mode, with two heads set by hand (see `HEADS`).

    A head scores ln(96) for a place that fits and 0 for another one, so that its softmax gives 96 to 1. The value of a
    place is its vector; the output projection drops what the first head brings. The feed-forward part adds nothing.
    """
    length = len(words)
    block = nn.TransformerEncoderLayer(2 * length, 2, dim_feedforward=2, dropout=0.0, batch_first=True)
    for parameter in block.parameters():
        parameter.zero_()
    block.norm1.weight.fill_(1)
    block.norm2.weight.fill_(1)
    query, key, value = block.self_attn.in_proj_weight.chunk(3)
    fits = math.log(ODDS) * math.sqrt(length)  # attention divides scores by the square root of the head's size
    query[:length, length:] = fits * torch.ones(length - 1).diag(1)  # head 1: my place asks for the place before
    key[:length, length:] = torch.eye(length)
    query[length:, :length] = fits * torch.eye(length)  # head 2: my word asks for the same word
    key[length:, :length] = torch.eye(length)
    value.copy_(torch.eye(2 * length))
    block.self_attn.out_proj.weight[length:, length:] = torch.eye(length)
    return block.eval()


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
