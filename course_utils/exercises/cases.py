"""The situations that an exercise is tried in, and the numbers they are made of."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

FOREIGN = -1  # the key of a hook of somebody else; torch counts its own from 0
T = TypeVar("T")


class Stopped(BaseException):
    """What a case raises as Ctrl-C would: it is no `Exception`, and comes out of an answer like any other error."""


def stop(*_: object) -> None:
    """A hook that raises `Stopped`."""
    raise Stopped


@dataclass
class Case:
    """One situation: the answer is called with the values of `given`, in that order; then `then` plays on.

    given: the arguments by the names the task uses. Each case makes its own: an answer may spoil them.
    then: gets what the answer returned, does what the world does next (the rest of a forward, a backward, a second call
        …) and returns what to compare, each value under the words that name it: `{"x.grad": x.grad}`. What the answer
        returned, the gradients of the given tensors and all side effects are compared anyway.
    shown: words for the input, where the values of `given` would not tell.
    fresh: True where the task promises tensors and modules that nobody has used before: then the case is not tried
        again with the traces of earlier work, see `put_in_use`.
    follows: True where it looks at what the answer did in an earlier case. Where it is tried alone, those run first,
        but after it was made: they share no variable that changes in between.
    """

    given: Mapping[str, Any]
    then: Callable[[Any], Mapping[str, Any] | None] | None = None
    shown: str = ""
    fresh: bool = False
    follows: bool = False
    in_use: bool = field(default=False, init=False)

    def watched(self) -> dict[str, torch.Tensor | nn.Module]:
        """The tensors and modules among the arguments, those in lists, tuples and dicts too, by name: `modules[0]`."""
        return {name: value for given in self.given.items() for name, value in _look_into(*given)}

    def put_in_use(self) -> bool:
        """Leave traces of earlier work: gradients, hooks of others, a frozen parameter, modes. False without any."""
        watched = list(self.watched().values())
        modules = [each for each in watched if isinstance(each, nn.Module)]
        tensors = [each for each in watched if isinstance(each, torch.Tensor)]
        tensors += [each for module in modules for each in module.parameters()]
        trained = {each for each in tensors if each.requires_grad}
        for tensor in trained:
            tensor.grad = torch.ones_like(tensor) if tensor.is_leaf else None
            tensor.register_hook(_look)
        for part in {part for module in modules for part in module.modules()}:
            part._forward_pre_hooks[FOREIGN] = part._forward_hooks[FOREIGN] = _look
        for part in {part for module in modules for part in (module, list(module.modules())[-1])}:
            part.training = not part.training
        for module in modules:
            *others, frozen = [each for each in module.parameters() if each.requires_grad] or [None]
            if others:
                frozen.requires_grad_(False)
        self.in_use = bool(modules or trained)
        return self.in_use


def _look(*_: object) -> None:
    """A hook of somebody else's, which changes nothing."""


def _look_into(name: str, value: object) -> Iterator[tuple[str, torch.Tensor | nn.Module]]:
    if isinstance(value, torch.Tensor | nn.Module):
        yield name, value
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _look_into(f"{name}[{key!r}]", item)


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
        return torch.tensor([float(self.integer(low, high)) for _ in range(math.prod(shape))]).reshape(shape)

    def mixed(self, *shape: int, high: int = 9) -> torch.Tensor:
        """A float32 tensor of whole numbers from `-high` to `high` without 0, of which neighbours differ in sign."""
        values = self.whole(*shape, high=high).reshape(-1)
        values[self.integer(0, 1) :: 2] *= -1
        return values.reshape(shape)

    def quarters(self, *shape: int, high: int = 3) -> torch.Tensor:
        """A float32 tensor of multiples of 0.25 from `-high` to `high` without 0: also numbers between 0 and 1."""
        values = [self.integer(1, 4 * high) / 4 * self.choice((-1, 1)) for _ in range(math.prod(shape))]
        return torch.tensor(values).reshape(shape)

    def leaf(self, *shape: int) -> torch.Tensor:
        """A leaf that requires its gradient, of whole numbers from 1 to 9."""
        return self.whole(*shape).requires_grad_()
