"""Small computation graphs from a few lines of Python, and torch's own backward pass through them, step by step.

    graph = parse("w = 1; x = 2; a = w + x; b = w + 1; y = a * b")
    for step in run_backward(graph, {"a": "times 6"}):
        print(step.node, step.arrived, step.passed_on)

As in micrograd, each `Value` remembers what it was computed from; real hooks on real tensors note what torch does.
"""

import math
import operator
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from course_utils.root import CourseError, nearest, require

MAX_NODES, MAX_ELEMENTS = 12, 8
EXAMPLES = {
    "two paths": "w = 1; x = 2; a = w + x; b = w + 1; y = a * b",
    "dot product": "x = [0, 1, 2, 3]; y = [4, 5, 6, 7]; w = [1, 2, 3, 4]; z = x + y; o = w @ z",
    "square": "x = 3; y = x - 2; z = (y - x) ** 2",
    "mean": "a = [1, 1, 1, 1, 1]; b = 2 * a; c = mean(b)",
}


class Value:
    """One tensor of a graph, its name, and the values and numbers that it was computed from.

    edges: each value that it was computed from, and the view of its tensor that this operation took. So the gradient
    of the view is what the operation hands back, before the sum over all paths is formed.
    """

    def __init__(
        self, tape: list["Value"], tensor: Tensor, template: str = "", operands: Sequence = (), edges: Sequence = ()
    ) -> None:
        self.tape, self.tensor, self.template, self.operands, self.edges = tape, tensor, template, operands, edges
        self.name = ""
        tape.append(self)

    @property
    def formula(self) -> str:
        """How it was computed, such as "a * b"; empty for a tensor that was given."""
        return self.template.format(*(each.name if isinstance(each, Value) else each for each in self.operands))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tensors that it was computed from, each once."""
        return tuple(dict.fromkeys(each.name for each in self.operands if isinstance(each, Value)))

    @property
    def kind(self) -> str:
        """What it is for autograd: "leaf", "result" or "no gradient"."""
        if not self.tensor.requires_grad:
            return "no gradient"
        return "leaf" if self.tensor.is_leaf else "result"


def _compute(function: Callable[..., Tensor], template: str, *operands: object, **options: object) -> Value:
    if "{}" not in template:  # a name
        template += f"({', '.join(['{}'] * len(operands) + [f'{option}={{}}' for option in options])})"
    values = [each for each in operands if isinstance(each, Value)]
    # The last view first: torch goes back through what was made last before the rest, and so keeps the usual order.
    edges = [(each, each.tensor.view_as(each.tensor)) for each in reversed(values)]
    views = [edge for _, edge in edges]
    tensor = function(*(views.pop() if isinstance(each, Value) else each for each in operands), **options)
    words = [each if isinstance(each, Value) else format_number(each) for each in (*operands, *options.values())]
    return Value(values[0].tape, tensor, template, words, edges)


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "matmul": "@"}.items():
    _operate = partial(_compute, getattr(operator, _name), f"{{}} {_sign} {{}}")
    setattr(Value, f"__{_name}__", lambda one, other, operate=_operate: operate(one, other))
    setattr(Value, f"__r{_name}__", lambda one, other, operate=_operate: operate(other, one))
Value.__neg__ = lambda self: _compute(operator.neg, "-{}", self)
Value.__pos__ = lambda self: self

_FUNCTIONS = "abs clamp detach dot exp log mean relu sigmoid sqrt sum tanh"
FUNCTIONS = {_name: partial(_compute, getattr(torch, _name), _name) for _name in _FUNCTIONS.split()}
for _name, _function in FUNCTIONS.items():
    setattr(Value, _name, property(lambda self, function=_function: partial(function, self)))  # x.sum() is sum(x)


class _Names(dict):
    """The names that the lines assign: a number or a list becomes a leaf, and no name is given twice."""

    tape: list[Value]

    def __setitem__(self, name: str, given: object) -> None:
        if name in self:
            raise NameError(f"{name} already names a tensor: choose a new name, so that each node keeps its own")
        if isinstance(given, Value):
            self.tape.append(given)  # `y = a` gives a second name to a value that is on the tape already
        else:
            given = Value(self.tape, torch.tensor(given, dtype=torch.float32).requires_grad_())
        given.name = given.name or name
        super().__setitem__(name, given)


@dataclass(frozen=True, eq=False)
class Graph:
    """Values by name in the order of computation, and the name of the one that `.backward()` is called on."""

    text: str
    nodes: dict[str, Value]
    result: str

    @property
    def hookable(self) -> tuple[str, ...]:
        """The tensors that can have a hook: those that require a gradient."""
        return tuple(name for name, node in self.nodes.items() if node.tensor.requires_grad)

    def name_with_senders(self, name: str) -> str:
        """A tensor, and where its gradient comes from, such as "w (gradient from a + b)"."""
        senders = " + ".join(each for each in self.hookable if name in self.nodes[each].inputs)
        return f"{name} (gradient from {senders})" if senders else f"{name} (backward begins here)"


@torch.inference_mode(False)
@torch.enable_grad()
def parse(text: str) -> Graph:
    """Run lines such as `w = 2; y = w * w` as Python, and return their graph; backward starts from the last line.

    Lines are separated by `;` or newlines. A number or a (nested) list is a leaf that requires a gradient, as float32.
    There are the operators `+ - * / ** @` and `FUNCTIONS`. Results without a name are t1, t2, ...; unused leaves go.

    Raises `CourseError` with Python's or torch's own message when a line fails, and when the result is not a single
    number with a gradient, or the graph has over 12 tensors, or a tensor over 8 elements.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    names = _Names()
    names.tape = tape = []
    try:
        exec(compile("\n".join(lines), "<graph>", "exec"), {"__builtins__": {}, **FUNCTIONS}, names)
    except Exception as error:
        raise CourseError(_explain(error, lines, [*names, *FUNCTIONS])) from None
    used = {operand for value in tape for operand in value.operands}
    values = [value for value in dict.fromkeys(tape) if value.template or value in used]
    free = (f"t{number}" for number in count(1) if f"t{number}" not in names)
    for value in values:
        value.name = value.name or next(free)
    result = tape[-1] if tape else None
    if result is None or result.kind != "result":
        raise CourseError("The last line must compute a tensor with a gradient, from leaves such as w = 1: y = w * w.")
    if len(values) > MAX_NODES:
        raise CourseError(f"The graph has {len(values)} tensors; at most {MAX_NODES} can be drawn: leave some out.")
    for value in values:
        if not 1 <= value.tensor.numel() <= MAX_ELEMENTS:
            raise CourseError(f"{value.name} has {value.tensor.numel()} elements: use between 1 and {MAX_ELEMENTS}.")
    if result.tensor.numel() != 1:
        what = f"The result {result.name} has shape {tuple(result.tensor.shape)}; backward starts from a single number"
        raise CourseError(f"{what}: end with sum({result.name}) or mean({result.name}).")
    return Graph("\n".join(lines), {value.name: value for value in values}, result.name)


def _explain(error: Exception, lines: list[str], names: list[str]) -> str:
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<graph>"]
    number = frames[-1] if frames else getattr(error, "lineno", None) or 1
    said = "".join(traceback.format_exception_only(error)).rstrip()
    shown = said.partition("\n")[2] if isinstance(error, SyntaxError) else f"    {lines[number - 1]}\n{said}"
    near = nearest(getattr(error, "name", "") or "", names, 1)
    return f"Line {number} does not work:\n{shown}" + "".join(f". Did you mean: {each!r}?" for each in near)


def format_number(number: float) -> str:
    """Return a number with 4 significant digits, whole numbers below a million in full."""
    if math.isfinite(number) and number == round(number) and abs(number) < 1e6:
        return str(int(number))
    return f"{number:.4g}"


def format_tensor(tensor: Tensor | None) -> str:
    """Return the values of a tensor on one line, such as 3 or [1, 2] or [[1, 2], [3, 4]]."""
    if tensor is None:
        return "None"
    return f"[{', '.join(map(format_tensor, tensor))}]" if tensor.ndim else format_number(tensor.item())


class Action(NamedTuple):
    """What a hook does: its mark in the picture, its expression in code, and the function that torch calls."""

    mark: str
    code: str
    hook: Callable[[Tensor], Tensor | None] | None  # None: no hook, but retain_grad()


RETAIN = "retain_grad"
ACTIONS: dict[str, Action] = {
    "print": Action("print", "print(grad)", lambda grad: None),  # what is seen is recorded, and told in the sentence
    "times 2": Action("\N{MULTIPLICATION SIGN}2", "grad * 2", lambda grad: grad * 2),
    "times 6": Action("\N{MULTIPLICATION SIGN}6", "grad * 6", lambda grad: grad * 6),
    "add 2": Action("+2", "grad + 2", lambda grad: grad + 2),
    "clamp at 0": Action("≥0", "grad.clamp(min=0)", lambda grad: grad.clamp(min=0)),
    "zero": Action("\N{MULTIPLICATION SIGN}0", "grad * 0", lambda grad: grad * 0),
    "flip sign": Action("\N{MULTIPLICATION SIGN}-1", "grad * -1", lambda grad: grad * -1),
    RETAIN: Action(RETAIN, "retain_grad()", None),
}

TensorHooks = Mapping[str, str | Sequence[str]] | Iterable[tuple[str, str]]


def read_hooks(graph: Graph, hooks: TensorHooks = ()) -> tuple[tuple[str, str], ...]:
    """Return hooks as (tensor, action) pairs in the order of registration.

    hooks: such pairs, or a mapping from a tensor to one action or a list of actions; actions are keys of `ACTIONS`.
    Raises `CourseError` for an unknown action, and for a tensor that does not exist or requires no gradient.
    """
    chosen = []
    for node, actions in hooks.items() if isinstance(hooks, Mapping) else hooks:
        for action in [actions] if isinstance(actions, str) else actions:
            require("Tensors with a gradient", node, graph.hookable)
            require("Hooks", action, ACTIONS)
            chosen.append((node, action))
    return tuple(chosen)


@dataclass(eq=False)
class Step:
    """The gradient of one tensor arrives: its parts by sender, what its hooks did to it, and what `.grad` became.

    calls: for each hook its action, the gradient that it saw, and what it returned (None: that goes on unchanged).
    """

    node: str
    parts: list[tuple[str, Tensor]] = field(default_factory=list)
    arrived: Tensor | None = None
    calls: list[tuple[str, Tensor, Tensor | None]] = field(default_factory=list)
    passed_on: Tensor | None = None
    grad: Tensor | None = None

    def arrive(self, done: list["Step"], grad: Tensor) -> None:
        """Note the gradient that arrives, before any hook that changes it; `done` is what has arrived so far."""
        self.arrived = self.passed_on = grad.clone()
        done.append(self)

    def run_hook(self, action: str, grad: Tensor) -> Tensor | None:
        """Do what a hook does, and note it."""
        returned = ACTIONS[action].hook(grad)
        self.calls.append((action, grad.clone(), returned))
        self.passed_on = self.passed_on if returned is None else returned.clone()
        return returned


@torch.inference_mode(False)
@torch.enable_grad()
def run_backward(graph: Graph, hooks: TensorHooks = ()) -> list[Step]:
    """Compute the graph anew, call `.backward()` on its result, and return what happened, in torch's order.

    hooks: see `read_hooks`; they are registered in the order given, as real tensor hooks. They, and those that write
    the steps, sit on tensors that are made for this run and go with them.
    """
    chosen = read_hooks(graph, hooks)
    steps, done = {name: Step(name) for name in graph.hookable}, []
    nodes = parse(graph.text).nodes
    for name, step in steps.items():
        for value, edge in nodes[name].edges:
            if edge.requires_grad:
                edge.register_hook(lambda grad, to=steps[value.name], name=name: to.parts.append((name, grad.clone())))
        nodes[name].tensor.register_hook(partial(step.arrive, done))
    for name, action in chosen:
        tensor, run_hook = nodes[name].tensor, partial(steps[name].run_hook, action)
        tensor.retain_grad() if action == RETAIN else tensor.register_hook(run_hook)
    nodes[graph.result].tensor.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns that a result's .grad is None: that is the point
        for step in done:
            step.grad = nodes[step.node].tensor.grad
    return done
