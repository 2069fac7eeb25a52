"""Show one call of a model as a timeline: forward and backward, module by module, with every hook that runs.

print(trace(model, x))
with tracing(model) as timeline:        # a loss and a backward pass of your own
    loss(model(x)).backward()
timeline.order("forward hook")
"""

import dataclasses
import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from course_utils.hooks.inventory import CALL_KINDS, FoundHook, list_hooks
from course_utils.hooks.record import graph_of, shapes_in, tensors_in, uncompiled, watch_gradient, why_no_gradient


@dataclasses.dataclass
class Event:
    """One line of a timeline.

    `kind` is a kind of hook, or "forward" (it starts), "returns", "raises", "backward" (a gradient reaches the module's
    output). `module` is its dotted name ("" is the model), `type` its class. `sees` holds the shapes of what was handed
    in (for "returns": out), `gives` those of what a hook returned. `scope` and `hook` are empty unless it is a hook.
    """

    kind: str
    module: str
    type: str
    sees: Any = None
    gives: Any = None
    scope: str = ""
    hook: str = ""
    depth: int = 0


class Timeline:
    """The `events` of a trace, in the order in which they happened. `print` shows them as an indented table."""

    def __init__(self, model: nn.Module) -> None:
        self.events: list[Event] = []
        self.note = ""  # why there was no backward pass
        self._names = {id(module): name for name, module in model.named_modules()}
        self._open = True
        self._depth = 0  # how many calls are running
        self._depths: dict[int, int] = {}  # of each module's last call

    def order(self, *kinds: str) -> list[tuple[str, str, str, str]]:
        """Return (kind, module, scope, hook) of each event, of these kinds only if any are named: made to compare."""
        return [(e.kind, e.module, e.scope, e.hook) for e in self.events if not kinds or e.kind in kinds]

    def __repr__(self) -> str:
        rows = [("", "what", "module", "hook", "sees")]
        for number, e in enumerate(self.events, 1):
            seen = " -> ".join(str(shapes) for shapes in (e.sees, e.gives) if shapes is not None)
            rows.append((str(number), "  " * e.depth + e.kind, e.module or e.type, f"{e.scope} {e.hook}".strip(), seen))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for number, *cells in rows:
            line = [number.rjust(widths[0]), *map(str.ljust, cells, widths[1:])]
            lines.append("  ".join(line).rstrip())
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)

    def _write(self, kind: str, module: nn.Module, sees: Any, **more: str) -> None:
        if self._open:
            depth = self._depths.get(id(module), 0) if "backward" in kind else self._depth
            name = self._names.get(id(module), f"({type(module).__name__}, not in the model)")
            self.events.append(Event(kind, name, type(module).__name__, shapes_in(sees), depth=depth, **more))


@contextmanager
def tracing(model: nn.Module) -> Iterator[Timeline]:
    """Record as a timeline all that happens to the modules of `model` while the block runs.

    The hooks that are there when the block starts, yours and the global ones, are wrapped where they stand and each
    instance's `forward` is shadowed; both are put back at the end. So a trace shows what any `__call__` does with the
    hooks, also one that you wrote yourself. Hooks registered inside the block are not shown.
    """
    model = uncompiled(model)
    timeline = Timeline(model)
    with ExitStack() as stack:
        stack.callback(setattr, timeline, "_open", False)
        for module in model.modules():
            _shadow_forward(stack, module, timeline)
        for found in list_hooks(model):
            if found.kind in (*CALL_KINDS, "legacy backward hook"):
                _wrap_hook(stack, found, timeline)
        yield timeline


def _wrap_hook(stack: ExitStack, found: FoundHook, timeline: Timeline) -> None:
    hook = found.table[found.key]

    @functools.wraps(hook, updated=())
    def traced(module: nn.Module, *seen: Any) -> Any:
        place = len(timeline.events)
        timeline._write(found.kind, module, seen, scope=found.scope, hook=found.name)
        given = hook(module, *seen)
        if given is not None and timeline._open:
            timeline.events[place].gives = shapes_in(given)
        return given

    def put_back() -> None:
        if found.table.get(found.key) is traced:  # not when the hook was removed meanwhile
            found.table[found.key] = hook

    stack.callback(put_back)
    found.table[found.key] = traced


def _shadow_forward(stack: ExitStack, module: nn.Module, timeline: Timeline) -> None:
    forward, attributes = module.forward, vars(module)

    @functools.wraps(forward, updated=())
    def traced(*args: Any, **kwargs: Any) -> Any:
        timeline._write("forward", module, (*args, kwargs) if kwargs else args)
        timeline._depths[id(module)] = timeline._depth
        timeline._depth += 1
        try:
            output = forward(*args, **kwargs)
        except BaseException as error:
            timeline._depth -= 1
            timeline._write("raises", module, error)
            raise
        timeline._depth -= 1
        timeline._write("returns", module, output)
        for tensor in tensors_in(output):
            if tensor.requires_grad and timeline._open:
                watch_gradient(stack, tensor, functools.partial(timeline._write, "backward", module))
        return output

    if "forward" in attributes:  # an instance's own one goes back to its place
        stack.callback(attributes.update, forward=forward)
    else:
        stack.callback(attributes.pop, "forward", None)
    attributes["forward"] = traced


def trace(model: nn.Module, *args: Any, backward: bool = True, **kwargs: Any) -> Timeline:
    """Call `model(*args, **kwargs)`, go backward from the sum of its output, and return the timeline of both.

    The call is real: batch-norm counts it, dropout draws numbers. The backward pass leaves no `.grad`. Without a graph
    the timeline ends with a `note` that says why. Of a compiled model, the model inside is called.
    """
    model = uncompiled(model)
    with tracing(model) as timeline:
        output = model(*args, **kwargs)
        if backward and not go_backward(output):
            timeline.note = f"No backward pass through {type(model).__name__}: {why_no_gradient(output)}."
    return timeline


def go_backward(output: Any) -> bool:
    """Run a backward pass from the sum of all tensors in `output`, and leave no `.grad`; False if there is no graph."""
    roots = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if not roots or not torch.is_grad_enabled():
        return False
    # A scalar needs no `grad_outputs`; for them, torch 2.15 would import sympy first (0.5 s).
    sums = [(root.real if root.is_complex() else root).sum() for root in roots]
    leaves = [node.variable for node in graph_of(sums) if hasattr(node, "variable")]
    torch.autograd.grad(sums, leaves, allow_unused=True)
    return True
