"""Torch's own backward pass through a small graph, with hooks, written down step by step.

Nothing here knows a derivative: `run_backward` registers real hooks on real tensors, calls `.backward()`, and notes
what torch did, in the order in which torch did it.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from course_utils.explorers.graph import (
    MAX_HOOKS_PER_NODE,
    TIMES,
    Graph,
    GraphError,
    autograd_on,
    list_words,
    name_nearest,
)


@dataclass(frozen=True)
class Action:
    """What a hook does: its mark in the picture, its expression in code, and the function that torch calls."""

    mark: str
    code: str
    hook: Callable[[Tensor], Tensor | None] | None  # None: no hook, but retain_grad()


RETAIN = "retain_grad"
ACTIONS: dict[str, Action] = {
    "print": Action("print", "print(grad)", lambda grad: None),  # what is seen is recorded, and told in the sentence
    "times 2": Action(f"{TIMES}2", "grad * 2", lambda grad: grad * 2),
    "times 6": Action(f"{TIMES}6", "grad * 6", lambda grad: grad * 6),
    "add 2": Action("+2", "grad + 2", lambda grad: grad + 2),
    "clamp at 0": Action("≥0", "grad.clamp(min=0)", lambda grad: grad.clamp(min=0)),
    "zero": Action(f"{TIMES}0", "grad * 0", lambda grad: grad * 0),
    "flip sign": Action(f"{TIMES}-1", "grad * -1", lambda grad: grad * -1),
    RETAIN: Action(RETAIN, "retain_grad()", None),
}

Hooks = Mapping[str, str | Sequence[str]] | Iterable[tuple[str, str]]


def read_hooks(graph: Graph, hooks: Hooks = ()) -> tuple[tuple[str, str], ...]:
    """Return hooks as (node, action) pairs in the order of registration.

    hooks: such pairs, or a mapping from a node to one action or a list of actions; actions are the keys of `ACTIONS`.

    Raises `GraphError` for an unknown node or action, a tensor without gradient, or over 4 hooks on one tensor.
    """
    pairs = hooks.items() if isinstance(hooks, Mapping) else hooks
    chosen: list[tuple[str, str]] = []
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2:
            raise GraphError(f'{pair!r} is no hook: give pairs such as ("a", "times 6"), or {{"a": "times 6"}}.')
        node, actions = pair
        chosen += [(node, action) for action in ([actions] if isinstance(actions, str) else actions)]
    for node, action in chosen:
        if node not in graph.nodes:
            raise GraphError(
                f"There is no tensor {node!r} to hook; there are {list_words(graph.nodes)}."
                f"{name_nearest(node, graph.nodes)}"
            )
        if action not in ACTIONS:
            raise GraphError(
                f"There is no hook {action!r}; there are {list_words(ACTIONS)}.{name_nearest(action, ACTIONS)}"
            )
        if not graph.nodes[node].requires_grad:
            raise GraphError(
                f"{node} requires no gradient, so it cannot have a hook; {list_words(graph.hookable)} can."
            )
    for node in graph.nodes:
        if sum(hooked == node for hooked, _ in chosen) > MAX_HOOKS_PER_NODE:
            raise GraphError(f"{node} already has {MAX_HOOKS_PER_NODE} hooks: remove one first.")
    return tuple(chosen)


@dataclass(frozen=True, eq=False)
class HookCall:
    """One hook at work: the gradient it saw and what it returned (None: the gradient goes on unchanged)."""

    action: str
    saw: Tensor
    returned: Tensor | None


@dataclass(frozen=True, eq=False)
class Step:
    """The gradient of one tensor arrives: through which operations, what its hooks did, and what `.grad` became."""

    node: str
    parts: tuple[tuple[str, Tensor], ...]
    arrived: Tensor
    calls: tuple[HookCall, ...]
    passed_on: Tensor
    grad: Tensor | None


@dataclass
class _Record:
    """What the hooks wrote down while backward ran."""

    parts: dict[str, list[tuple[str, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    arrived: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, list[HookCall]] = field(default_factory=lambda: defaultdict(list))
    passed_on: dict[str, Tensor] = field(default_factory=dict)
    grad: dict[str, Tensor] = field(default_factory=dict)

    def steps(self) -> tuple[Step, ...]:
        return tuple(
            Step(
                name,
                tuple(self.parts[name]),
                arrived,
                tuple(self.calls[name]),
                self.passed_on[name],
                self.grad.get(name),
            )
            for name, arrived in self.arrived.items()
        )


def run_backward(graph: Graph, hooks: Hooks = ()) -> tuple[Step, ...]:
    """Compute the graph anew, call `.backward()` on its result, and return what happened, in torch's order.

    hooks: see `read_hooks`; they are registered in the order given, as real tensor hooks, and removed afterwards.

    Works under `no_grad` and `inference_mode` too, and touches no tensor but its own.
    """
    chosen = read_hooks(graph, hooks)
    record = _Record()
    with autograd_on(), ExitStack() as registered:
        tensors = _compute(graph)
        for handle in _watch_edges(graph, tensors, record):
            registered.enter_context(handle)
        for name in graph.hookable:
            actions = [action for node, action in chosen if node == name]
            for handle in _watch_tensor(name, tensors[name], actions, record):
                registered.enter_context(handle)
        tensors[graph.result].backward()
        _read_grads(tensors, record)
    return record.steps()


def _compute(graph: Graph) -> dict[str, Tensor]:
    """Run forward on fresh leaves."""
    tensors: dict[str, Tensor] = {}
    for name, node in graph.nodes.items():
        if node.operation is None:
            tensors[name] = node.value.clone().requires_grad_(node.requires_grad)
        else:
            tensors[name] = node.operation(
                *[tensors[part] if isinstance(part, str) else part for part in node.operands]
            )
    return tensors


def _watch_edges(graph: Graph, tensors: dict[str, Tensor], record: _Record) -> Iterator:
    """Note the gradient that each operation hands to each of its inputs, before the sum over all paths is formed.

    One operation may be several functions in torch's graph (2 / x is a reciprocal and a product), so the search from a
    tensor goes on until it meets the function whose input is the gradient of another named tensor.
    """
    homes = {get_gradient_edge(tensors[name]).node: name for name in graph.hookable}
    for name in graph.hookable:
        if graph.nodes[name].is_leaf:
            continue
        waiting = [tensors[name].grad_fn]
        while waiting:
            function = waiting.pop()
            targets = [homes.get(following) for following, _ in function.next_functions]
            waiting += [
                following
                for (following, _), target in zip(function.next_functions, targets, strict=True)
                if following is not None and target is None
            ]
            yield function.register_hook(_note_parts(name, targets, record))


def _note_parts(name: str, targets: list[str | None], record: _Record) -> Callable:
    def note(grad_inputs: tuple[Tensor | None, ...], grad_outputs: tuple[Tensor | None, ...]) -> None:
        for target, grad in zip(targets, grad_inputs, strict=True):
            if target is not None and grad is not None:
                record.parts[target].append((name, grad.detach().clone()))

    return note


def _watch_tensor(name: str, tensor: Tensor, actions: list[str], record: _Record) -> Iterator:
    """Register the chosen hooks between two of our own, which note the gradient before and after them."""

    def note_arrival(grad: Tensor) -> None:
        record.arrived[name] = grad.detach().clone()

    def note_passing_on(grad: Tensor) -> None:
        record.passed_on[name] = grad.detach().clone()

    def note_grad(leaf: Tensor) -> None:
        record.grad[name] = leaf.grad.detach().clone()

    yield tensor.register_hook(note_arrival)
    for action in actions:
        if action == RETAIN:
            tensor.retain_grad()
        else:
            yield tensor.register_hook(_note_call(name, action, record))
    yield tensor.register_hook(note_passing_on)
    if tensor.is_leaf:
        yield tensor.register_post_accumulate_grad_hook(note_grad)


def _note_call(name: str, action: str, record: _Record) -> Callable[[Tensor], Tensor | None]:
    def hook(grad: Tensor) -> Tensor | None:
        saw = grad.detach().clone()
        returned = ACTIONS[action].hook(grad)
        record.calls[name].append(HookCall(action, saw, None if returned is None else returned.detach().clone()))
        return returned

    return hook


def _read_grads(tensors: dict[str, Tensor], record: _Record) -> None:
    """Read the `.grad` that torch kept on results: None, unless retain_grad was called."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # torch warns that the .grad of a non-leaf is None: that is the point
        kept = {name: tensor.grad for name, tensor in tensors.items() if not tensor.is_leaf}
    record.grad.update({name: grad.detach().clone() for name, grad in kept.items() if grad is not None})
