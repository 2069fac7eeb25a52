"""TODO."""

import dataclasses
import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.hooks.inventory import _CALL_KINDS, FoundHook, list_hooks
from course_utils.hooks.record import _inside, _why_no_gradient, shapes_in, tensors_in, watch_gradient

# -- Tracing ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
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

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.note = ""  # why there was no backward pass

    def order(self, *kinds: str) -> list[tuple[str, str, str, str]]:
        """Return (kind, module, scope, hook) of each event, of these kinds only if any are named: made to compare."""
        return [(e.kind, e.module, e.scope, e.hook) for e in self.events if not kinds or e.kind in kinds]

    def __repr__(self) -> str:
        rows = [("", "what", "module", "hook", "sees")]
        for number, event in enumerate(self.events, 1):
            gives = "" if event.gives is None else f" -> {event.gives}"
            rows.append(
                (
                    str(number),
                    "  " * event.depth + event.kind,
                    event.module or event.type,
                    f"{event.scope} {event.hook}".strip(),
                    f"{'' if event.sees is None else event.sees}{gives}",
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join((row[0].rjust(widths[0]), *(row[i].ljust(widths[i]) for i in (1, 2, 3)), row[4])).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.note] if self.note else lines)


@contextmanager
def tracing(model: nn.Module) -> Iterator[Timeline]:
    """Record as a timeline all that happens to the modules of `model` while the block runs.

    The hooks that are registered when the block starts, yours and the global ones, are wrapped where they stand (same
    place, same order, same options) and each instance's `forward` is shadowed; both are put back at the end. So a trace
    shows what any `__call__` does with the hooks, also one that you wrote yourself, and a model without hooks keeps
    PyTorch's fast path. Gradients are seen by Tensor hooks. Hooks registered inside the block are not shown.
    """
    model = _inside(model)
    timeline = Timeline()
    scribe = _Scribe(timeline, {id(module): name for name, module in model.named_modules()})
    with ExitStack() as stack:
        stack.callback(scribe.stop)
        for module in model.modules():
            _shadow_forward(stack, module, scribe)
        for found in list_hooks(model):
            if found.kind in (*_CALL_KINDS, "legacy backward hook"):
                _wrap_hook(stack, found, scribe)
        yield timeline


class _Scribe:
    """Writes events while a trace is open, and knows the names and the depth of the modules."""

    def __init__(self, timeline: Timeline, names: dict[int, str]) -> None:
        self.timeline, self.names = timeline, names
        self.depth, self.depths, self.open = 0, {}, True

    def stop(self) -> None:
        self.open = False

    def write(self, kind: str, module: nn.Module, sees: Any, **more: str) -> int:
        """Append an event if the trace is open; return its index, for what it gives."""
        if self.open:
            depth = self.depths.get(id(module), 0) if "backward" in kind else self.depth
            name = self.names.get(id(module), f"({type(module).__name__}, not in the model)")
            event = Event(kind, name, type(module).__name__, shapes_in(sees), depth=depth, **more)
            self.timeline.events.append(event)
        return len(self.timeline.events) - 1


def _wrap_hook(stack: ExitStack, found: FoundHook, scribe: _Scribe) -> None:
    hook = found.table[found.key]

    @functools.wraps(hook, updated=())
    def traced(module: nn.Module, *seen: Any) -> Any:
        index = scribe.write(found.kind, module, seen, scope=found.scope, hook=found.name)
        given = hook(module, *seen)
        if given is not None and scribe.open:
            events = scribe.timeline.events
            events[index] = dataclasses.replace(events[index], gives=shapes_in(given))
        return given

    def put_back() -> None:
        if found.table.get(found.key) is traced:  # not when the hook was removed meanwhile
            found.table[found.key] = hook

    stack.callback(put_back)
    found.table[found.key] = traced


def _shadow_forward(stack: ExitStack, module: nn.Module, scribe: _Scribe) -> None:
    own, forward = vars(module).get("forward"), module.forward

    @functools.wraps(forward, updated=())
    def traced(*args: Any, **kwargs: Any) -> Any:
        scribe.write("forward", module, (*args, kwargs) if kwargs else args)
        scribe.depths[id(module)] = scribe.depth
        scribe.depth += 1
        try:
            output = forward(*args, **kwargs)
        except BaseException as error:
            scribe.depth -= 1
            scribe.write("raises", module, error)
            raise
        scribe.depth -= 1
        scribe.write("returns", module, output)
        for tensor in tensors_in(output):
            if tensor.requires_grad and scribe.open:
                watch_gradient(stack, tensor, functools.partial(scribe.write, "backward", module))
        return output

    def put_back() -> None:
        if own is None:
            vars(module).pop("forward", None)
        else:
            vars(module)["forward"] = own

    stack.callback(put_back)
    vars(module)["forward"] = traced


def trace(model: nn.Module, *args: Any, backward: bool = True, **kwargs: Any) -> Timeline:
    """Call `model(*args, **kwargs)`, go backward from the sum of its output, and return the timeline of both.

    The call is real: batch-norm counts it, dropout draws numbers. The backward pass leaves no `.grad` and runs no
    post-accumulate-grad hook. Without a graph the timeline ends with a `note` that says why. What the call raises
    goes on to you; `tracing` keeps the timeline then, and takes a loss of your own. Of a compiled model, the model
    inside is called.
    """
    model = _inside(model)
    with tracing(model) as timeline:
        output = model(*args, **kwargs)
        if backward and not go_backward(output):
            timeline.note = f"No backward pass through {type(model).__name__}: {_why_no_gradient(output)}."
    return timeline


def go_backward(output: Any) -> bool:
    """Run a backward pass from the sum of all tensors in `output`, and leave no `.grad`; False if there is no graph."""
    roots = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if not roots or not torch.is_grad_enabled():
        return False
    # A scalar needs no `grad_outputs`; for them, torch 2.15 would import sympy first (0.5 s).
    sums = [(root.real if root.is_complex() else root).sum() for root in roots]
    torch.autograd.grad(sums, _leaves(roots), allow_unused=True)
    return True


def _leaves(roots: list[Tensor]) -> list[Tensor]:
    """Return the leaf tensors of a graph: the ends of a backward pass."""
    leaves = {id(root): root for root in roots if root.grad_fn is None}
    nodes, met = [root.grad_fn for root in roots if root.grad_fn is not None], set()
    while nodes:
        node = nodes.pop()
        if node not in met:
            met.add(node)
            nodes += [parent for parent, _ in node.next_functions if parent is not None]
            if hasattr(node, "variable"):
                leaves[id(node.variable)] = node.variable
    return list(leaves.values())
