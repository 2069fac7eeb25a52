"""The steps of a module's call, each done by torch's own code.

The last exercise of lesson 04 puts five steps in order, and needs them before the learner has written any. So its base
class has them as methods. They are not the course's answers to those exercises: torch's `_call_impl` itself does each
step, on a module that has nothing else to do. An edition of the course without answers can therefore keep them.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

Hooks = Mapping[int, Callable]

KINDS = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")

_CALL_IMPL = nn.Module._call_impl.__code__
_GLOBAL_TABLES = [name for name, value in vars(torch_module).items() if name.startswith("_global_") and value == {}]


class _Failed(Exception):
    """What is raised in a call that is there to fail."""


class _Stage(nn.Module):
    """A module on which torch plays one step: its backward hooks lead off the fast path and do nothing more."""

    def __init__(self, forward: Callable) -> None:
        super().__init__()
        self.forward = forward

    def _get_backward_hooks(self) -> tuple[list, list]:
        return [], []

    def _get_backward_pre_hooks(self) -> list:
        return []


def _play(forward: Callable, args: Iterable[Any] = (), for_all: Mapping[str, Hooks] | None = None, **own: Hooks) -> Any:
    """Let torch call a stage with this `forward` and its `own` hooks, by the kind of table: `forward_hooks={1: f}`.

    torch's code sees tables of global hooks that are empty, but for those given in `for_all`. The real ones stay as
    they are.
    """
    stage = _Stage(forward)
    for kind, hooks in own.items():
        getattr(stage, f"_{kind}").update(hooks)
    tables = {name: OrderedDict() for name in _GLOBAL_TABLES}
    tables |= {f"_global_{kind}": hooks for kind, hooks in (for_all or {}).items()}
    return types.FunctionType(_CALL_IMPL, vars(torch_module) | tables)(stage, *args)


class TorchSteps(nn.Module):
    """The five steps of a call as methods, as the exercises of lesson 04 ask for them."""

    def takes_fast_path(self) -> bool:
        """Whether torch calls forward at once for a module with hooks in the same tables."""
        filled = {kind: {0: lambda *_: None} for kind in KINDS if any(self._tables(kind))}
        # On the fast path `_call_impl` itself calls forward; off it, a function inside of it does.
        return _play(lambda: sys._getframe(1).f_code is _CALL_IMPL, **filled)

    def hooks_in_order(self, kind: str) -> dict[int, Callable]:
        """The hooks of one kind, this module's and the global ones, as torch goes through them."""
        found: dict[int, Callable] = {}

        def noted(table: Hooks) -> Hooks:
            return {key: lambda *_, key=key, hook=hook: found.update({key: hook}) for key, hook in table.items()}

        own, for_all = (noted(table) for table in self._tables(kind))
        _play(lambda: None, for_all={"forward_pre_hooks": for_all}, forward_pre_hooks=own)
        return found

    def run_pre_hooks(self, hooks: Hooks, args: tuple) -> tuple:
        """What the forward pre-hooks make of the arguments."""
        as_mine = {key: lambda _, args, hook=hook: hook(self, args) for key, hook in hooks.items()}
        return _play(lambda *final: final, args, forward_pre_hooks=as_mine)

    def run_forward_hooks(self, hooks: Hooks, args: tuple, output: Any, started: set[int]) -> Any:
        """What the forward hooks make of the output."""

        def noted(key: int, hook: Callable) -> Callable:
            def run(_: nn.Module, __: tuple, latest: Any) -> Any:
                started.add(key)
                return hook(self, args, latest)

            return run

        return _play(lambda: output, forward_hooks={key: noted(key, hook) for key, hook in hooks.items()})

    def run_always_called(self, hooks: Hooks, started: set[int], args: tuple, output: Any) -> None:
        """Run the forward hooks that have not started, as torch does in a call that fails."""

        def fail() -> None:
            raise _Failed

        def unheard(hook: Callable) -> Callable:
            def run(*_: Any) -> None:
                hook(self, args, output)

            return run

        waiting = {key: unheard(hook) for key, hook in hooks.items() if key not in started}
        try:
            _play(fail, forward_hooks=waiting, forward_hooks_always_called=dict.fromkeys(waiting, True))
        except _Failed:
            return

    def _tables(self, kind: str) -> tuple[Hooks, Hooks]:
        return getattr(self, f"_{kind}"), getattr(torch_module, f"_global_{kind}")


def forget(name: str) -> None:
    """Take out of this process what does the work of exercise `name` without being the course's answer to it."""

    def forgotten(*_: object, **__: object) -> None:
        raise NotImplementedError

    if name in vars(TorchSteps):
        setattr(TorchSteps, name, forgotten)
