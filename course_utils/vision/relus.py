"""The ReLUs in a graph, which Guided Backprop and the deconvnet treat in their own way, whoever made them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course_utils.hooks.record import graph_of

_ACTIVATIONS = (  # that are no ReLU, as they are called in a graph
    "Celu", "Clamp", "ClampMax", "ClampMin", "Elu", "Gelu", "Glu", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyRelu", "LogSigmoid", "Mish", "PreluKernel", "RreluWithNoise", "Sigmoid", "Silu", "Softplus", "Softshrink",
    "Tanh", "Threshold",
)  # fmt: skip


class Relus(NamedTuple):
    """The ReLUs between a layer and the logits, as nodes of the graph.

    others: how many other activations of each kind there are. may_hide: whether some nodes may hide a ReLU in place.
    """

    nodes: list[Any]
    others: Counter[str]
    may_hide: bool


def find_relus(logits: Tensor, leaf: Tensor) -> Relus:
    """Find the ReLUs, ReLU6s among them, between `leaf` and the logits that were computed from it."""
    nodes, others, may_hide = [], Counter(), False
    for node in _find_nodes_between(logits, leaf):
        kind = node.name().partition("Backward")[0]
        if kind == "Relu" or (kind == "Hardtanh" and (node._saved_min_val, node._saved_max_val) == (0, 6)):
            nodes.append(node)
        elif kind in _ACTIVATIONS:
            others[kind] += 1
        may_hide = may_hide or "CopySlices" in node.name()
    return Relus(nodes, others, may_hide)


def _find_nodes_between(logits: Tensor, leaf: Tensor) -> set[Any]:
    users = defaultdict(list)  # of each node: those that hand it gradients
    for node in graph_of([logits]):
        for each, _ in node.next_functions:
            users[each].append(node)
    between = set()
    waiting = [torch.autograd.graph.get_gradient_edge(leaf).node]
    while waiting:
        node = waiting.pop()
        if node not in between:
            between.add(node)
            waiting += users[node]
    return between


def keep_positive(*gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """A hook before a node, or after it: what comes to the node goes on where it is positive."""
    return tuple(each if each is None else each.relu() for each in gradients[-1])


# For functions that are ReLUs in place, always or by an option, those that are not.
_BESIDE = {torch.relu_: torch.relu, Tensor.relu_: torch.relu, F.relu: F.relu, F.relu6: F.relu6, F.hardtanh: F.hardtanh}


class PartViews(TorchFunctionMode):
    """While active, a ReLU in place on a view is one beside it, copied in: else its node hides in the base's node."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        options = dict(kwargs or {})
        in_place = options.pop("inplace", func in (torch.relu_, Tensor.relu_))
        x = args[0] if args else options.get("input")
        if func in _BESIDE and in_place and x._is_view():
            return x.copy_(_BESIDE[func](*args, **options))
        return func(*args, **(kwargs or {}))
