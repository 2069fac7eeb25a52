"""The functions of torch: an answer may have put its own in their place, or taken them away."""

import types
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_utils.exercises.world.state import State

TORCH = str(Path(torch.__file__).parent)


def _watch_names(name: str, owner: types.ModuleType | type) -> State:
    """The functions of a module, or all that a class has."""

    def differ(now: dict[str, Any], before: dict[str, Any]) -> bool:
        return bool(_find_patches(owner, now, before))

    def write(before: dict[str, Any]) -> None:
        for name in _find_patches(owner, vars(owner).copy(), before):
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)

    return State(name, vars(owner).copy, write, differ)


def _find_patches(owner: types.ModuleType | type, now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """The names in a module or a class of torch that somebody else than torch gave another value."""
    if len(now) == len(before) and list(now.values()) == list(before.values()):
        return []
    missing = object()
    found = {name: (now.get(name, missing), before.get(name, missing)) for name in now.keys() | before.keys()}
    changed = {name: (new, old) for name, (new, old) in found.items() if new is not old}
    if isinstance(owner, types.ModuleType):
        return [name for name, (new, old) in changed.items() if callable(old) and not _is_torchs_own(new, old)]
    inherited = super(owner, owner)
    return [
        name
        for name, (new, old) in changed.items()
        if not _is_torchs_own(new, old) and (old is not missing or (callable(new) and hasattr(inherited, name)))
    ]


def _is_torchs_own(new: Any, old: Any) -> bool:
    """Whether torch itself put `new` where `old` was: when an optimizer is made or a function compiled, it does so."""
    code = getattr(new, "__code__", None)
    if code is None or not code.co_filename.startswith(TORCH):
        return False
    return "_dynamo" in code.co_filename or new.__qualname__ == getattr(old, "__qualname__", None)


def _watch_method(name: str, method: str, module: types.ModuleType, base: type) -> State:
    """One method of all subclasses of `base` in a module."""
    classes = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, base)]

    def read() -> list[Any]:
        return [getattr(each, method) for each in classes]

    def find(now: list[Any], before: list[Any]) -> list[tuple[type, Any]]:
        if now == before:
            return []
        both = zip(classes, now, before, strict=True)
        return [(each, old) for each, new, old in both if new is not old and not _is_torchs_own(new, old)]

    def write(before: list[Any]) -> None:
        for each, old in find(read(), before):
            if getattr(super(each, each), method, None) is old:  # it had none of its own
                delattr(each, method)
            else:
                setattr(each, method, old)

    return State(name, read, write, lambda now, before: bool(find(now, before)))


FUNCTIONS = (
    _watch_names("functions of `torch`", torch),
    _watch_names("functions of `torch.autograd`", torch.autograd),
    _watch_names("functions of `torch.nn.functional`", nn.functional),
    _watch_names("methods of `torch.Tensor`", torch.Tensor),
    _watch_names("methods of `torch.nn.Module`", nn.Module),
    _watch_names("methods of `torch.optim.Optimizer`", torch.optim.Optimizer),
    _watch_method("methods of torch's layers", "forward", nn, nn.Module),
    _watch_method("methods of torch's optimizers", "step", torch.optim, torch.optim.Optimizer),
)
