"""The situations that an exercise is tried in, and the numbers they are made of."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@dataclass
class Case:
    """One situation: the answer is called with the values of `given`, in that order; then `then` plays on.

    Parameters
    ----------
    given
        The arguments by the names the task uses. Each case makes its own: an answer may spoil them.
    then
        Gets what the answer returned, does what the world does next (the rest of a forward, a backward, a second
        call …) and returns what to compare, each value under the words that name it: `{"x.grad": x.grad}`. What the
        answer returned, the gradients of the given tensors and all side effects are compared anyway.
    shown
        Words for the input, where the values of `given` would not tell.
    """

    given: Mapping[str, Any]
    then: Callable[[Any], Mapping[str, Any] | None] | None = None
    shown: str = ""


class Numbers:
    """Small exact numbers from a seed: the same on every machine, and short to read in a message."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # its sequence is the same in every version, torch's need not be

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def choice(self, options: Sequence[T]) -> T:
        """One of `options`."""
        return options[self.integer(0, len(options) - 1)]

    def whole(self, *shape: int, low: int = 1, high: int = 9) -> torch.Tensor:
        """A float32 tensor of whole numbers from `low` to `high`."""
        numbers = [float(self.integer(low, high)) for _ in range(math.prod(shape))]
        return torch.tensor(numbers).reshape(shape)

    def mixed(self, *shape: int, high: int = 9) -> torch.Tensor:
        """A float32 tensor of whole numbers from `-high` to `high` without 0, of which neighbours differ in sign."""
        values = self.whole(*shape, high=high).reshape(-1)
        values[self.integer(0, 1) :: 2] *= -1
        return values.reshape(shape)

    def leaf(self, *shape: int, low: int = 1, high: int = 9) -> torch.Tensor:
        """A leaf that requires its gradient, of whole numbers from `low` to `high`."""
        return self.whole(*shape, low=low, high=high).requires_grad_()
