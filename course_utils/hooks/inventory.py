"""Find the hooks that PyTorch keeps on a model or a tensor: list them, count them, see to it that none stays behind.

with no_hooks_left(model):      # fails if the block forgets a handle
    count_hooks(model)["forward hook"]
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from course_utils.hooks.record import join_names
from course_utils.root import CourseError

_TABLES = {  # kind: where a module keeps such hooks; `_global` in front of the name gives the table of the global ones
    "forward pre-hook": "_forward_pre_hooks",
    "forward hook": "_forward_hooks",
    "full backward pre-hook": "_backward_pre_hooks",
    "full backward hook": "_backward_hooks",
    "state-dict pre-hook": "_state_dict_pre_hooks",
    "state-dict hook": "_state_dict_hooks",
    "load-state-dict pre-hook": "_load_state_dict_pre_hooks",
    "load-state-dict post-hook": "_load_state_dict_post_hooks",
}
CALL_KINDS = tuple(_TABLES)[:4]  # the kinds that a call runs; of a module's kinds only these can be global
_GLOBAL_TABLES = {kind: f"_global{_TABLES[kind]}" for kind in CALL_KINDS} | {
    f"{what} registration hook": f"_global_{what}_registration_hooks" for what in ("buffer", "module", "parameter")
}
_TENSOR_TABLES = {"tensor hook": "_backward_hooks", "post-accumulate-grad hook": "_post_accumulate_grad_hooks"}


@dataclasses.dataclass(frozen=True)
class FoundHook:
    """A registered hook: its `kind` ("forward hook", …), `owner` (dotted name; "" is the model, or the tensor itself),
    `scope` ("global" for all modules, else "local"), `name` (of the function), and the `table[key]` that holds it."""

    kind: str
    owner: str
    scope: str
    name: str
    table: MutableMapping[int, Callable] = dataclasses.field(repr=False)
    key: int = dataclasses.field(repr=False)


class HooksLeftError(CourseError):
    """A block left hooks behind."""


def list_hooks(owner: nn.Module | Tensor) -> list[FoundHook]:
    """Return every hook that PyTorch keeps on a model or a tensor, the global ones first.

    A model's hooks are those of all its modules, parameters and buffers, and the global module hooks. Not among them:
    hooks on an optimizer, on a graph's node, and `retain_grad()`. Raises `TypeError` for anything else.
    """
    if isinstance(owner, Tensor):
        return list(_hooks_in("", "local", owner, _TENSOR_TABLES))
    if not isinstance(owner, nn.Module):
        raise TypeError(f"hooks are listed for an nn.Module or a Tensor, got {type(owner).__name__}")
    places = [("", "global", torch_module, _GLOBAL_TABLES)]
    places += [(name, "local", module, _TABLES) for name, module in owner.named_modules()]
    places += [(name, "local", t, _TENSOR_TABLES) for name, t in (*owner.named_parameters(), *owner.named_buffers())]
    return [hook for place in places for hook in _hooks_in(*place)]


def _hooks_in(owner: str, scope: str, holder: Any, tables: dict[str, str]) -> Iterator[FoundHook]:
    full = getattr(holder, "_global_is_full_backward_hook" if scope == "global" else "_is_full_backward_hook", None)
    for kind, attribute in tables.items():
        kind = "legacy backward hook" if kind == "full backward hook" and full is False else kind
        table = getattr(holder, attribute) or {}
        for key, hook in table.items():
            function = hook.func if isinstance(hook, functools.partial) else hook
            name = getattr(function, "__name__", type(function).__name__)
            yield FoundHook(kind, owner, scope, name, table, key)


def count_hooks(owner: nn.Module | Tensor) -> Counter[str]:
    """Count the hooks of `list_hooks(owner)` by kind; "global " stands before the kind of a global hook.

    A kind without hooks counts 0; `count_hooks(model).total()` is 0 for a clean model.
    """
    return Counter(hook.kind if hook.scope == "local" else f"global {hook.kind}" for hook in list_hooks(owner))


@contextmanager
def no_hooks_left(owner: nn.Module | Tensor, *others: nn.Module | Tensor) -> Iterator[None]:
    """Raise `HooksLeftError` at the end of the block if it left hooks on a model or a tensor, or global ones.

    Hooks from before the block may stay. Those left are named, and not removed. When the block raises, its own
    exception goes on instead.
    """
    before = _hooks_by_place(owner, *others)
    yield
    left = [hook for place, hook in _hooks_by_place(owner, *others).items() if place not in before]
    if left:
        where = [_say_where(hook, owner) for hook in left]
        count = "1 hook" if len(left) == 1 else f"{len(left)} hooks"
        fix = "Call .remove() on the handle that registering returned, or use the handle as a context manager."
        raise HooksLeftError(f"the block left {count} behind: {join_names(where)}. {fix}")


def _hooks_by_place(*owners: nn.Module | Tensor) -> dict[tuple[int, int], FoundHook]:
    return {(id(hook.table), hook.key): hook for owner in owners for hook in list_hooks(owner)}


def _say_where(hook: FoundHook, owner: nn.Module | Tensor) -> str:
    if hook.scope == "global":
        return f"global {hook.kind} {hook.name} for all modules"
    return f"{hook.kind} {hook.name} on {hook.owner or type(owner).__name__}"
