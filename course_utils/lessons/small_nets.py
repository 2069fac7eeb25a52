"""What the cases of several lessons are made of: small models, and numbers for their parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from course_utils.exercises.cases import Numbers


def fill(model: nn.Module, draw: Callable[..., torch.Tensor]) -> nn.Module:
    """Copy numbers into every parameter of `model`, and return it. `draw` gets a shape, as `rng.quarters` does."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(draw(*parameter.shape))
    return model


def whole_weights(model: nn.Module, rng: Numbers) -> nn.Module:
    """Give every parameter small whole numbers, so that results are exact and short."""
    return fill(model, functools.partial(rng.mixed, high=3))


class Gate(nn.ReLU):
    """A ReLU by another name."""


def count_runs(*layers: nn.Module) -> list[int]:
    """A list that grows by one with each run of one of `layers`."""
    runs: list[int] = []
    for layer in layers:
        layer.register_forward_pre_hook(lambda module, args: runs.append(1))
    return runs
