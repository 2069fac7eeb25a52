"""Small computation graphs: parse one, run torch's own backward through it with hooks, and draw each step.

Nothing here knows a derivative. `run_backward` registers real hooks on real tensors, calls `.backward()`, and writes
down what torch did, in the order in which torch did it.

    graph = parse("a = w + x; b = w + 1; y = a * b", w=1, x=2)
    story = backward_story(graph, hooks={"a": "times 6"}, step=-1)
    story.sentence, story.table, story.picture
"""

import ast
import difflib
import math
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

MAX_NODES = 12
MAX_ELEMENTS = 8
MAX_NAME = 12
MAX_CHARACTERS = 400
MAX_HOOKS_PER_NODE = 4

TIMES = "\N{MULTIPLICATION SIGN}"


class GraphError(ValueError):
    """An expression, a tensor or a hook that cannot be used; the message says why and what to write instead."""


# --------------------------------------------------------------------------------------------------------------------
# Graphs
# --------------------------------------------------------------------------------------------------------------------

Operand = str | float | None  # the name of a tensor, a number, or an argument left out


@dataclass(frozen=True, eq=False)
class Node:
    """One named tensor: how it is made (nothing, for a tensor that was given) and its value."""

    name: str
    value: Tensor
    requires_grad: bool
    is_leaf: bool
    formula: str = ""
    operation: Callable[..., Tensor] | None = None
    operands: tuple[Operand, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that this one is computed from, each once."""
        return tuple(dict.fromkeys(operand for operand in self.operands if isinstance(operand, str)))

    @property
    def kind(self) -> str:
        if self.requires_grad:
            return "leaf" if self.is_leaf else "result"
        return "no gradient"


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in the order of computation, and the name of the one that `.backward()` is called on."""

    text: str  # the lines that `parse` makes the same graph from, the given tensors included
    nodes: dict[str, Node]
    result: str

    @property
    def hookable(self) -> tuple[str, ...]:
        """The tensors that can have a hook: those that require a gradient."""
        return tuple(name for name, node in self.nodes.items() if node.requires_grad)


EXAMPLES: dict[str, tuple[str, dict[str, float | list[float]]]] = {
    "two paths": ("a = w + x; b = w + 1; y = a * b", {"w": 1, "x": 2}),
    "dot product": ("z = x + y; o = w @ z", {"x": [0, 1, 2, 3], "y": [4, 5, 6, 7], "w": [1, 2, 3, 4]}),
    "square": ("y = x - 2; z = (y - x) ** 2", {"x": 3}),
    "mean": ("b = 2 * a; c = mean(b)", {"a": [1, 1, 1, 1, 1]}),
}


def example(name: str) -> Graph:
    """Return one of the graphs of `EXAMPLES`.

    Raises `GraphError` for another name.
    """
    if name not in EXAMPLES:
        raise GraphError(
            f"There is no example called {name!r}; there are {_listed(EXAMPLES)}.{_nearest(name, EXAMPLES)}"
        )
    expression, tensors = EXAMPLES[name]
    return parse(expression, **tensors)


def parse(expression: str, /, **tensors: float | Sequence | Tensor) -> Graph:
    """Turn a few lines such as `a = w + x; y = a * a` into a graph; the last line is what backward starts from.

    Lines are separated by `;` or newlines. Operators: `+ - * / ** @`; functions: those in `FUNCTIONS`. Intermediate
    results without a name are called t1, t2, ... A line with numbers only, `w = 1` or `x = [0, 1]`, is a leaf.

    tensors: numbers, (nested) lists, or tensors of 0 to 2 dimensions with at most 8 elements, used as float32. Numbers
        and lists become leaves that require a gradient; a tensor keeps its own `requires_grad`. Those that the
        expression does not use are left out of the graph.

    Raises `GraphError`, with a sentence for the learner, when the text is not such an expression, shapes do not fit,
    the result is not a single number or depends on nothing that requires a gradient, or there are over 12 nodes.
    Nothing in the text is ever executed as Python: it is read as a syntax tree, of which a few node types are known.
    """
    statements = _read_statements(expression)
    with _autograd_on():
        parser = _Parser(statements)
        for name, given in tensors.items():
            parser.add_leaf(name, given)
        parser.given = tuple(tensors)
        for statement in statements:
            parser.add_statement(statement)
        return parser.finish(expression)


def _read_statements(expression: str) -> list[ast.stmt]:
    text = "\n".join(line.strip() for line in expression.strip().splitlines())
    if len(text) > MAX_CHARACTERS:
        raise GraphError(
            f"The expression has {len(text)} characters; at most {MAX_CHARACTERS} are allowed: shorten it."
        )
    try:
        statements = ast.parse(text).body
    except SyntaxError as error:
        raise GraphError(_point_at(error, text)) from None
    except (RecursionError, MemoryError, ValueError):
        raise GraphError(
            "The expression cannot be read: nest fewer brackets and signs, use plain characters."
        ) from None
    if not statements:
        raise GraphError("The expression is empty: write at least one operation, for example y = w * x.")
    return statements


def _point_at(error: SyntaxError, text: str) -> str:
    """Say what Python's parser said, with a caret under the place."""
    lines = text.splitlines() or [""]
    number = min(max(error.lineno or 1, 1), len(lines))
    line = lines[number - 1]
    column = min(max((error.offset or 1) - 1, 0), len(line))
    message = error.msg.removesuffix(". Perhaps you forgot a comma?")
    hint = "\nWrite * for a product." if line[column : column + 1] in {"·", TIMES, "⋅"} else ""
    return f"Line {number} cannot be read ({message}):\n  {line}\n  {' ' * column}^{hint}"


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return torch.dot(left, right)


def _clamp(tensor: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    return torch.clamp(tensor, min=low, max=high)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "abs": torch.abs,
    "clamp": _clamp,
    "detach": torch.detach,
    "dot": _dot,
    "exp": torch.exp,
    "log": torch.log,
    "mean": torch.mean,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "sqrt": torch.sqrt,
    "sum": torch.sum,
    "tanh": torch.tanh,
}

_OPERATORS: dict[type[ast.operator], tuple[str, Callable]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.Pow: ("**", operator.pow),
    ast.MatMult: ("@", operator.matmul),
}


class _Parser:
    """Builds the nodes of a graph, one statement after the other, computing each value as it goes."""

    def __init__(self, statements: list[ast.stmt]) -> None:
        self.nodes: dict[str, Node] = {}
        self.tensors: dict[str, Tensor] = {}
        self.aliases: dict[str, str] = {}
        self.given: tuple[str, ...] = ()
        self.last: str | None = None
        # Names that a later line assigns are never given to an intermediate result.
        self.reserved = {part.id for line in statements for part in ast.walk(line) if isinstance(part, ast.Name)}

    def finish(self, expression: str) -> Graph:
        used = {name for node in self.nodes.values() for name in node.inputs}
        nodes = {name: node for name, node in self.nodes.items() if node.operation or name in used}
        if self.last is None or self.nodes[self.last].operation is None:
            raise GraphError("The last line is no operation, so there is nothing to go back through: add y = w * x.")
        result = self.nodes[self.last]
        if len(nodes) > MAX_NODES:
            raise GraphError(
                f"The graph has {len(nodes)} nodes (every tensor and every operation is one); at most {MAX_NODES} "
                "can be drawn: leave some operations out."
            )
        if result.value.numel() != 1:
            raise GraphError(
                f"The result {result.name} has shape {_shape(result.value)}; backward starts from a single number: "
                f"end with sum({result.name}) or mean({result.name})."
            )
        if not result.requires_grad:
            raise GraphError(
                f"The result {result.name} depends on no leaf that requires a gradient: give a number, a list, or a "
                "tensor made with requires_grad=True, and use it without detach()."
            )
        given = [f"{name} = {_format_values(nodes[name].value.tolist(), 7)}" for name in self.given if name in nodes]
        operations = [line.strip() for line in expression.replace(";", "\n").splitlines() if line.strip()]
        return Graph("\n".join([*given, *operations]), nodes, result.name)

    def add_leaf(self, name: str, given: float | Sequence | Tensor) -> None:
        self._check_name(name)
        self._store(name, _as_leaf(name, given))

    def add_statement(self, statement: ast.stmt) -> None:
        name = None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if not isinstance(target, ast.Name):
                raise GraphError(f"{_source(target)} cannot be assigned to: put one plain name left of the =.")
            name = target.id
            self._check_name(name)
        elif isinstance(statement, ast.AugAssign):
            raise GraphError(f"{_source(statement)} changes a tensor in place: write a new name, such as b = a + 1.")
        elif not isinstance(statement, ast.Expr):
            raise GraphError(f"{_source(statement)} is not an assignment: write lines such as a = w + x.")
        try:
            self._assign(name, statement.value)
        except RecursionError:
            raise GraphError("The expression is nested too deeply: use fewer brackets and signs.") from None

    def _assign(self, name: str | None, expression: ast.expr) -> None:
        given: float | list | str
        if isinstance(expression, ast.List | ast.Tuple):
            given = _literal(expression)
        else:
            given = self._evaluate(expression, name)
        if not isinstance(given, str):
            if name is None:
                raise GraphError(f"{_source(expression)} has no name: write w = {_source(expression)}.")
            self.add_leaf(name, given)
            given = name
        elif name is not None and given != name:
            self.aliases[name] = given  # `b = a` is a second name of the same tensor, as in Python
        self.last = given

    def _check_name(self, name: str) -> None:
        if not name.isidentifier() or name.startswith("__"):
            raise GraphError(f"{name!r} cannot be the name of a tensor: use letters, digits and _.")
        if len(name) > MAX_NAME:
            raise GraphError(f"The name {name} has {len(name)} characters; at most {MAX_NAME} fit into a node.")
        if name in FUNCTIONS:
            raise GraphError(f"{name} is a function here: choose another name for the tensor.")
        if name in self.nodes or name in self.aliases:
            raise GraphError(f"{name} already names a tensor: choose a new name, so that each node keeps its own.")

    def _free_name(self) -> str:
        number = 1
        while f"t{number}" in self.nodes or f"t{number}" in self.reserved:
            number += 1
        return f"t{number}"

    def _store(
        self,
        name: str,
        value: Tensor,
        formula: str = "",
        operation: Callable[..., Tensor] | None = None,
        operands: tuple[Operand, ...] = (),
    ) -> None:
        self.tensors[name] = value
        copy = value.detach().clone()
        self.nodes[name] = Node(name, copy, value.requires_grad, value.is_leaf, formula, operation, operands)

    def _evaluate(self, expression: ast.expr, name: str | None = None) -> str | float:
        """Return the name of the tensor that holds the value, or a number where no tensor is involved."""
        if isinstance(expression, ast.Constant):
            return _constant(expression)
        if isinstance(expression, ast.Name):
            return self._look_up(expression.id)
        if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.UAdd):
            return self._evaluate(expression.operand, name)
        if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
            operand = self._evaluate(expression.operand)
            return self._apply(operator.neg, [operand], f"-{_word(operand)}", expression, name)
        if isinstance(expression, ast.BinOp) and type(expression.op) in _OPERATORS:
            sign, operation = _OPERATORS[type(expression.op)]
            operands = [self._evaluate(expression.left), self._evaluate(expression.right)]
            formula = f"{_word(operands[0])} {sign} {_word(operands[1])}"
            return self._apply(operation, operands, formula, expression, name)
        if isinstance(expression, ast.Call):
            return self._call(expression, name)
        raise GraphError(_not_allowed(expression))

    def _look_up(self, name: str) -> str:
        known = [*self.nodes, *self.aliases]
        if name in self.nodes:
            return name
        if name in self.aliases:
            return self.aliases[name]
        if name in FUNCTIONS:
            raise GraphError(f"{name} is a function: write {name}(x).")
        there = f"so far there are {_listed(known)}" if known else "there are no tensors yet: begin with w = 1"
        raise GraphError(f"There is no tensor called {name} here; {there}.{_nearest(name, known)}")

    def _call(self, call: ast.Call, name: str | None) -> str:
        if isinstance(call.func, ast.Attribute):
            raise GraphError(_not_allowed(call.func))
        if not isinstance(call.func, ast.Name):
            raise GraphError(_not_allowed(call))
        function = call.func.id
        if function not in FUNCTIONS:
            near = _nearest(function, FUNCTIONS)
            raise GraphError(f"There is no function {function} here; there are {_listed(FUNCTIONS)}.{near}")
        operands = self._arguments(function, call)
        words = ", ".join(_word(operand) for operand in operands)
        return self._apply(FUNCTIONS[function], operands, f"{function}({words})", call, name)

    def _arguments(self, function: str, call: ast.Call) -> list[Operand]:
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            raise GraphError(f"{_source(call)}: list the arguments one by one, without *.")
        operands: list[Operand] = [self._evaluate(argument) for argument in call.args]
        if function == "clamp":
            return _clamp_arguments(call, operands, {key.arg: self._evaluate(key.value) for key in call.keywords})
        expected = 2 if function == "dot" else 1
        if call.keywords or len(operands) != expected:
            form = "dot(a, b)" if function == "dot" else f"{function}(x)"
            raise GraphError(f"{_source(call)}: write {form}, with {_plural(expected, 'tensor')} and nothing else.")
        if not all(isinstance(operand, str) for operand in operands):
            raise GraphError(f"{_source(call)} is computed from a number alone: use a tensor in {function}().")
        return operands

    def _apply(
        self,
        operation: Callable,
        operands: Sequence[Operand],
        formula: str,
        expression: ast.expr,
        name: str | None,
    ) -> str | float:
        """Compute one operation; it becomes a node as soon as a tensor is involved."""
        if not any(isinstance(operand, str) for operand in operands):
            return _finite(lambda: float(operation(*operands)), expression)
        values = [self.tensors[operand] if isinstance(operand, str) else operand for operand in operands]
        try:
            value = operation(*values)
        except (RuntimeError, TypeError):
            raise GraphError(self._misfit(formula, operands)) from None
        name = name or self._free_name()
        if value.numel() > MAX_ELEMENTS:
            raise GraphError(
                f"{name} = {formula} has shape {_shape(value)}, {value.numel()} elements; "
                f"at most {MAX_ELEMENTS} can be shown: use smaller tensors."
            )
        self._store(name, value, formula, operation, tuple(operands))
        return name

    def _misfit(self, formula: str, operands: Sequence[Operand]) -> str:
        shapes = ", ".join(
            f"{operand} has shape {_shape(self.tensors[operand])}" if isinstance(operand, str) else "a number has none"
            for operand in dict.fromkeys(operands)
        )
        if " @ " in formula:
            rule = "@ needs two tensors with dimensions, and the last size on the left equal to the first on the right"
        elif formula.startswith("dot("):
            rule = "dot needs two vectors of the same length"
        else:
            rule = "counted from the last one, sizes must be equal, or one of them 1"
        return f"The shapes in {formula} do not fit: {shapes}; {rule}."


def _clamp_arguments(call: ast.Call, operands: list[Operand], named: dict[str | None, Operand]) -> list[Operand]:
    """Return tensor, lower limit, upper limit; a limit that was not given is None."""
    limits = dict(zip(("tensor", "min", "max"), operands, strict=False))
    too_many = len(operands) > 3 or not set(named) <= {"min", "max"} or set(named) & set(limits)
    limits |= named
    numbers = [limits.get("min"), limits.get("max")]
    if too_many or not isinstance(limits.get("tensor"), str) or numbers == [None, None]:
        raise GraphError(f"{_source(call)}: write clamp(x, 0, 1), or clamp(x, min=0).")
    if any(isinstance(number, str) for number in numbers):
        raise GraphError(f"{_source(call)}: the limits of clamp must be numbers.")
    return [limits["tensor"], *numbers]


def _constant(expression: ast.Constant) -> float:
    if isinstance(expression.value, bool) or not isinstance(expression.value, int | float):
        raise GraphError(f"{_source(expression)} is not a number.")
    return _finite(lambda: float(expression.value), expression)


def _finite(compute: Callable[[], float], expression: ast.expr) -> float:
    """Compute with floats, never with integers: 10 ** 10 ** 10 then overflows at once instead of filling the memory."""
    try:
        number = compute()
    except (ArithmeticError, TypeError):  # TypeError: the root of a negative number is complex; @ between numbers
        number = math.nan
    if not math.isfinite(number):
        raise GraphError(f"{_source(expression)} is not a finite number: use a smaller one, and do not divide it by 0.")
    return number


def _literal(expression: ast.List | ast.Tuple) -> list:
    try:
        return list(ast.literal_eval(expression))
    except (ValueError, TypeError):
        raise GraphError(f"{_source(expression)} may hold numbers only, such as [0, 1, 2.5].") from None


def _as_leaf(name: str, given: float | Sequence | Tensor) -> Tensor:
    if isinstance(given, Tensor):
        if not given.is_floating_point():
            raise GraphError(
                f"{name} holds {given.dtype}: only floating-point tensors have gradients; use {name}.float()."
            )
        requires_grad, value = given.requires_grad, given.detach()
    else:
        requires_grad = True
        try:
            value = torch.as_tensor(given, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise GraphError(
                f"{name} = {_shortened(given)} is no number and no list of numbers with rows of equal length."
            ) from None
    if value.ndim > 2:
        raise GraphError(f"{name} has shape {_shape(value)}: at most 2 dimensions can be shown.")
    if not 1 <= value.numel() <= MAX_ELEMENTS:
        raise GraphError(f"{name} has {_plural(value.numel(), 'element')}: give between 1 and {MAX_ELEMENTS}.")
    value = value.to("cpu", torch.float32).clone()
    if not value.isfinite().all():
        raise GraphError(f"{name} = {format_tensor(value)} must be finite to begin with.")
    return value.requires_grad_(requires_grad)


def _not_allowed(expression: ast.expr) -> str:
    if isinstance(expression, ast.Attribute):
        if expression.attr in FUNCTIONS:
            return f"{_source(expression)} uses a dot: write {expression.attr}(x) instead."
        return f"{_source(expression)} uses a dot: attributes and methods are not available here."
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.BitXor):
        return f"{_source(expression)}: for a power write **."
    operators = " ".join(sign for sign, _ in _OPERATORS.values())
    return f"{_source(expression)} is not possible here: there are tensors, numbers, {operators}, {_listed(FUNCTIONS)}."


def _source(part: ast.AST) -> str:
    return _shortened(ast.unparse(part))


def _shortened(given: object) -> str:
    text = " ".join(str(given).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def _word(operand: Operand) -> str:
    return operand if isinstance(operand, str) else "None" if operand is None else format_number(operand)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _nearest(name: object, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(names), n=1, cutoff=0.5)
    return f" Did you mean {near[0]}?" if near else ""


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


# --------------------------------------------------------------------------------------------------------------------
# Backward, by torch itself
# --------------------------------------------------------------------------------------------------------------------


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
                f"There is no tensor {node!r} to hook; there are {_listed(graph.nodes)}.{_nearest(node, graph.nodes)}"
            )
        if action not in ACTIONS:
            raise GraphError(f"There is no hook {action!r}; there are {_listed(ACTIONS)}.{_nearest(action, ACTIONS)}")
        if not graph.nodes[node].requires_grad:
            raise GraphError(f"{node} requires no gradient, so it cannot have a hook; {_listed(graph.hookable)} can.")
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
    with _autograd_on(), ExitStack() as registered:
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


@contextmanager
def _autograd_on() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


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


# --------------------------------------------------------------------------------------------------------------------
# The story: numbers and words
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of the table of values; every entry is text, as it is shown."""

    name: str
    kind: str
    value: str
    gradient: str
    gradient_without_hooks: str
    grad: str


@dataclass(frozen=True)
class Story:
    """One moment of backward: an SVG picture, a few sentences, and the same numbers as a table."""

    picture: str
    sentence: str
    table: tuple[Row, ...]
    step: int
    last_step: int


NOTHING_YET = "not yet"
NO_GRADIENT = "none"


def backward_story(graph: Graph, hooks: Hooks = (), step: int = -1) -> Story:
    """Tell and draw what has happened after `step` steps of backward.

    hooks: see `read_hooks`.
    step: 0 (forward is done) to the number of gradients that arrive; negative numbers count from the end, -1 the last.

    Raises `GraphError` for a step that does not exist, and for hooks as `read_hooks` does.
    """
    moment = _Moment.at(graph, read_hooks(graph, hooks), step)
    return Story(_draw(moment), _tell(moment), _tabulate(moment), moment.step, len(moment.steps))


@dataclass(frozen=True, eq=False)
class _Moment:
    """A run of backward, stopped after some steps, and the same run without hooks."""

    graph: Graph
    hooks: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    plain: dict[str, Step]
    step: int

    @classmethod
    def at(cls, graph: Graph, hooks: tuple[tuple[str, str], ...], step: int) -> "_Moment":
        steps = run_backward(graph, hooks)
        plain = {past.node: past for past in run_backward(graph)}
        last = len(steps)
        if not -last - 1 <= step <= last:
            raise GraphError(f"There is no step {step}: backward through this graph has the steps 0 to {last}.")
        return cls(graph, hooks, steps, plain, step if step >= 0 else step + last + 1)

    @property
    def past(self) -> dict[str, Step]:
        return {done.node: done for done in self.steps[: self.step]}

    @property
    def current(self) -> Step | None:
        return self.steps[self.step - 1] if self.step else None

    @property
    def is_last(self) -> bool:
        return self.step == len(self.steps)

    def actions(self, name: str) -> list[str]:
        return [action for node, action in self.hooks if node == name]

    def final(self) -> "_Moment":
        return _Moment(self.graph, self.hooks, self.steps, self.plain, len(self.steps))

    def gradient(self, name: str) -> Tensor | None:
        return self.past[name].passed_on if name in self.past else None

    def before(self, name: str) -> Tensor | None:
        """The gradient without hooks, where hooks have changed it."""
        gradient = self.gradient(name)
        plain = self.plain[name].passed_on if name in self.plain else None
        return None if gradient is None or _same(gradient, plain) else plain

    def waits(self, name: str) -> bool:
        return name not in self.past and any(step.node == name for step in self.steps)


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def format_number(number: float, digits: int = 4) -> str:
    """Return a number with some significant digits, whole numbers below a million in full."""
    if number == 0:
        return "0"
    if math.isfinite(number) and number == round(number) and abs(number) < 1e6:
        return str(int(number))
    return f"{number:.{digits}g}"


def format_tensor(tensor: Tensor) -> str:
    """Return the values of a tensor on one line, such as 3 or [1, 2] or [[1, 2], [3, 4]]."""
    return _format_values(tensor.tolist())


def _format_values(values: float | list, digits: int = 4) -> str:
    if isinstance(values, list):
        return f"[{', '.join(_format_values(part, digits) for part in values)}]"
    return format_number(values, digits)


def _tabulate(moment: _Moment) -> tuple[Row, ...]:
    rows = []
    for name, node in moment.graph.nodes.items():
        done = moment.past.get(name)
        waiting = NOTHING_YET if moment.waits(name) else NO_GRADIENT
        rows.append(
            Row(
                name,
                node.kind,
                format_tensor(node.value),
                format_tensor(done.passed_on) if done else waiting,
                format_tensor(moment.plain[name].passed_on) if done else waiting,
                format_tensor(done.grad) if done and done.grad is not None else "None",
            )
        )
    return tuple(rows)


def _tell(moment: _Moment) -> str:
    sentences = [_tell_arrival(moment)]
    if moment.current:
        sentences += _tell_hooks(moment.current)
        sentences.append(_tell_grad(moment, moment.current))
    if moment.is_last:
        sentences.append(_tell_end(moment))
    sentences.append(_tell_not_finite(moment))
    return " ".join(sentence for sentence in sentences if sentence)


def _tell_arrival(moment: _Moment) -> str:
    current, result = moment.current, moment.graph.result
    if current is None:
        value = format_tensor(moment.graph.nodes[result].value)
        return f"Forward is done: {result} = {value}. Backward has not begun, so no tensor has a gradient yet."
    start = f"Step {moment.step} of {len(moment.steps)}:"
    if current.node == result:
        return f"{start} backward begins at {result}, with the gradient {format_tensor(current.arrived)}."
    arrived, parts = format_tensor(current.arrived), current.parts
    if len(parts) == 1:
        return f"{start} the gradient {arrived} flows from {parts[0][0]} back to {current.node}."
    summands = _and([f"{format_tensor(grad)} from {sender}" for sender, grad in parts])
    return f"{start} {summands} add up to {arrived}, the gradient of {current.node}."


def _tell_hooks(step: Step) -> list[str]:
    sentences = []
    for number, call in enumerate(step.calls, start=1):
        who = "Its hook" if len(step.calls) == 1 else f"Hook {number}"
        if call.action == "print":
            sentences.append(
                f"{who} prints {format_tensor(call.saw)} and returns nothing: the gradient stays as it is."
            )
        else:
            sentences.append(f"{who} returns {ACTIONS[call.action].code}, that is {format_tensor(call.returned)}.")
    return sentences


def _tell_grad(moment: _Moment, step: Step) -> str:
    name = step.node
    retained = RETAIN in moment.actions(name)
    if moment.graph.nodes[name].is_leaf:
        extra = " retain_grad changes nothing on a leaf." if retained else ""
        return f"{name} is a leaf: {name}.grad is now {format_tensor(step.grad)}{_without_hooks(moment, name)}.{extra}"
    if retained:
        when = ", the gradient after all hooks" if step.calls else ""
        return f"retain_grad keeps it: {name}.grad is {format_tensor(step.grad)}{when}."
    return f"{name} is not a leaf: {name}.grad stays None."


def _tell_end(moment: _Moment) -> str:
    leaves = [name for name in moment.past if moment.graph.nodes[name].is_leaf]
    grads = [f"{name}.grad = {format_tensor(moment.past[name].grad)}{_without_hooks(moment, name)}" for name in leaves]
    return f"Backward is done: {_and(grads)}."


def _without_hooks(moment: _Moment, name: str) -> str:
    before = moment.before(name)
    return "" if before is None else f" ({format_tensor(before)} without hooks)"


def _tell_not_finite(moment: _Moment) -> str:
    values = [name for name, node in moment.graph.nodes.items() if not node.value.isfinite().all()]
    gradients = [f"the gradient of {name}" for name, done in moment.past.items() if not done.passed_on.isfinite().all()]
    if not values and not gradients:
        return ""
    cause = "a division by 0, the log or root of 0 or less, or an overflow does this"
    return f"Not finite (inf or nan): {_and(values + gradients)}; {cause}."


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# --------------------------------------------------------------------------------------------------------------------
# The picture: layers from left to right
# --------------------------------------------------------------------------------------------------------------------

# A wider graph continues on a second row, as text does. Scaled down to a page of 800, the smallest type is still 12 px.
WIDTH = 864
MIN_WIDTH = 720  # room for the title and the legend
GAP_X, GAP_Y = 44, 20
MARGIN = 16
PADDING = 10
LINE = 19
HEADER = 28
TAG = 21
CHAR = 7.83  # the width of a monospaced character of 13 px, the smallest size in use
LABELS = 64  # the column of words in a card: value, gradient, .grad
MIN_CHARACTERS = len(NOTHING_YET)
VALUE_CHARACTERS = 22  # a longer vector continues on the next line
TRACK = 12  # distance between the lines that lead from one row to the next

MONO = "var(--jp-code-font-family, ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace)"
SANS = "var(--jp-ui-font-family, system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif)"
# Middle tones with a contrast above 3 on white and on #111. They colour lines only: text is always `currentColor`.
GRADIENT = "#d0602a"
HOOK = "#3f82d8"
FAINT = 0.55


@dataclass(eq=False)
class _Box:
    """A card, or the place where a long edge passes through a column (name None)."""

    name: str | None
    layer: int
    width: float = 0
    height: float = 10
    above: float = 0  # room for the hook marks on top of the card
    x: float = 0
    y: float = 0  # the top of the card, hook marks excluded

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


Chain = list[_Box]  # an edge: from a card through the columns between to another card


@dataclass(eq=False)
class _Layout:
    cards: dict[str, _Box]
    edges: dict[tuple[str, str], Chain]
    ports: dict[tuple[str, str], float]  # where an edge enters its target, counted from the middle of the card
    rows: list[int]  # the row of each layer
    bottoms: list[float]  # the lower end of each row
    width: float
    height: float


def _draw(moment: _Moment) -> str:
    """Draw one moment as SVG. The layout is that of the last moment, so nothing moves while the steps go by."""
    final = moment.final()
    room = {name: _card_lines(final, name) for name in moment.graph.nodes}
    layout = _arrange(moment, room)
    top = 46  # the title
    legend = layout.height + top + 26
    width, height = max(layout.width, MIN_WIDTH), legend + 18
    shift = (width - layout.width) / 2
    parts = [_draw_edge(moment, layout, edge) for edge in _by_importance(moment, layout)]
    parts.append(_draw_start(moment, layout))
    parts += [_draw_card(moment, box, room[name]) for name, box in layout.cards.items()]
    title, words = escape(_title(moment)), escape(_tell(moment))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" role="img" aria-label="{title}" '
        f'style="max-width:100%;height:auto;color:var(--jp-ui-font-color1, currentColor)">'
        f"<title>{title}</title><desc>{words}</desc>"
        f"{_text(width / 2, 22, _title(moment), size=16, anchor='middle', weight=600)}"
        f'<g transform="translate({_n(shift)} {top})">{"".join(parts)}</g>'
        f"{_draw_legend(width, legend)}</svg>"
    )


def _title(moment: _Moment) -> str:
    current, result = moment.current, moment.graph.result
    if current is None:
        return f"Forward is done: {result} = {format_tensor(moment.graph.nodes[result].value)}"
    what = f"backward begins at {result}" if current.node == result else f"the gradient reaches {current.node}"
    end = ", backward is done" if moment.is_last else ""
    return f"Step {moment.step} of {len(moment.steps)}: {what}{end}"


def _card_lines(moment: _Moment, name: str) -> dict[str, list[str]]:
    """Return what a card says: its labels, each with the lines of text beside it."""
    node, done = moment.graph.nodes[name], moment.past.get(name)
    if done is None:
        gradient = [NOTHING_YET if moment.waits(name) else NO_GRADIENT]
    else:
        gradient = _with_before(_wrapped(done.passed_on), moment.before(name))
    grad = _wrapped(done.grad) if done and done.grad is not None else ["None"]
    return {"value": _wrapped(node.value), "gradient": gradient, ".grad": grad}


def _with_before(lines: list[str], before: Tensor | None) -> list[str]:
    """Add the gradient without hooks: a short one on the same line, a longer one below."""
    if before is None:
        return lines
    first, *others = _wrapped(before)
    was = [f"(was {first}", *[f"     {line}" for line in others]]
    was[-1] += ")"
    return [f"{lines[0]} {was[0]}"] if len(lines) == len(was) == before.numel() == 1 else lines + was


def _wrapped(tensor: Tensor) -> list[str]:
    """Return the values on as many lines as they need: the rows of a matrix one below the other, long rows broken."""
    lines: list[str] = []
    for word in format_tensor(tensor).replace("], [", "],\n [").split("\n"):
        line = ""
        for piece in word.split(", "):
            longer = f"{line}, {piece}" if line else piece
            if line and len(longer) > VALUE_CHARACTERS:
                lines.append(f"{line},")
                longer = f" {piece}"
            line = longer
        lines.append(line)
    return lines


def _heading(node: Node) -> str:
    return f"{node.name} = {node.formula}" if node.formula else node.name


def _kind_word(node: Node) -> str:
    return "" if node.kind == "result" else node.kind


def _arrange(moment: _Moment, room: dict[str, dict[str, list[str]]]) -> _Layout:
    graph = moment.graph
    layer_of = _find_layers(graph)
    boxes = {name: _measure(moment, name, lines, layer_of[name]) for name, lines in room.items()}
    layers: list[list[_Box]] = [[] for _ in range(max(layer_of.values()) + 1)]
    for box in boxes.values():
        layers[box.layer].append(box)
    edges: dict[tuple[str, str], Chain] = {}
    for target, node in graph.nodes.items():
        for source in node.inputs:
            passing = [_Box(None, layer) for layer in range(layer_of[source] + 1, layer_of[target])]
            for box in passing:
                layers[box.layer].append(box)
            edges[source, target] = [boxes[source], *passing, boxes[target]]
    links = [link for chain in edges.values() for link in pairwise(chain)]
    _untangle(layers, links)
    _set_heights(layers, links)
    rows, bottoms, width = _set_places(layers, links)
    return _Layout(boxes, edges, _find_ports(edges), rows, bottoms, width, bottoms[-1])


def _find_layers(graph: Graph) -> dict[str, int]:
    """Put every operation to the right of its inputs, and every leaf just left of the first operation that needs it."""
    layers: dict[str, int] = {}
    for name, node in graph.nodes.items():
        layers[name] = 1 + max((layers[source] for source in node.inputs), default=-1)
    for name, node in graph.nodes.items():
        if not node.inputs:
            layers[name] = min(layers[other.name] for other in graph.nodes.values() if name in other.inputs) - 1
    first = min(layers.values())
    return {name: layer - first for name, layer in layers.items()}


def _measure(moment: _Moment, name: str, room: dict[str, list[str]], layer: int) -> _Box:
    node = moment.graph.nodes[name]
    lines = [line for section in room.values() for line in section]
    heading = len(_heading(node)) * CHAR * 15 / 13 + len(_kind_word(node)) * 7.4 + 12
    body = LABELS + max(MIN_CHARACTERS, *map(len, lines)) * CHAR
    marks = sum(_mark_width(action) for action in moment.actions(name))
    width = max(heading, body, marks) + 2 * PADDING
    return _Box(name, layer, width, HEADER + len(lines) * LINE + 8, TAG if marks else 0)


def _mark_width(action: str) -> float:
    return len(ACTIONS[action].mark) * CHAR + 30


def _untangle(layers: list[list[_Box]], links: list[tuple[_Box, _Box]]) -> None:
    """Order each column so that few edges cross: every box near the mean place of its neighbours, best order kept."""
    before, after = defaultdict(list), defaultdict(list)
    for left, right in links:
        before[right].append(left)
        after[left].append(right)
    best, fewest = [list(layer) for layer in layers], _count_crossings(layers, links)
    for sweep in range(8):
        neighbours, order = (before, layers) if sweep % 2 == 0 else (after, layers[::-1])
        for layer in order:
            place = {box: number for other in layers for number, box in enumerate(other)}
            mean = {box: _mean([place[n] for n in neighbours[box]], place[box]) for box in layer}
            layer.sort(key=mean.__getitem__)
        crossings = _count_crossings(layers, links)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best


def _mean(numbers: list[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _count_crossings(layers: list[list[_Box]], links: list[tuple[_Box, _Box]]) -> int:
    place = {box: number for layer in layers for number, box in enumerate(layer)}
    spans = [(left.layer, place[left], place[right]) for left, right in links]
    return sum(
        one[0] == two[0] and (one[1] - two[1]) * (one[2] - two[2]) < 0
        for number, one in enumerate(spans)
        for two in spans[:number]
    )


def _set_heights(layers: list[list[_Box]], links: list[tuple[_Box, _Box]]) -> None:
    """Set every y: first stacked, then each column drawn towards its neighbours as far as its boxes allow."""
    around = defaultdict(lambda: ([], []))
    for left, right in links:
        around[left][1].append(right)
        around[right][0].append(left)
    for layer in layers:
        _stack(layer, [0.0] * len(layer))
    for sweep in range(12):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            wished = []
            for box in layer:
                left, right = around[box]
                near = left + right if sweep > 7 else (left if sweep % 2 == 0 else right) or left + right
                wished.append(_mean([other.middle for other in near], box.middle) - box.height / 2)
            _stack(layer, wished)
    for layer in layers:  # a chain is drawn straight
        chained = {box: around[box][0][0] for box in layer if len(around[box][0]) == 1}
        straight = {box: before.middle for box, before in chained.items() if len(around[before][1]) == 1}
        _stack(layer, [straight.get(box, box.middle) - box.height / 2 for box in layer])


def _stack(layer: list[_Box], wished: list[float]) -> None:
    """Place boxes in their order, without overlap, as near to the wished tops as can be (least squares).

    Boxes that would overlap are merged into blocks, and a block sits at the mean of what its boxes wish: the
    pool-adjacent-violators algorithm of isotonic regression.
    """
    offsets, offset = [], 0.0
    for box in layer:
        offset += box.above
        offsets.append(offset)
        offset += box.height + GAP_Y
    blocks: list[list[float]] = []
    for wish, start in zip(wished, offsets, strict=True):
        blocks.append([wish - start, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (low, few), (high, many) = blocks.pop(), blocks.pop()
            blocks.append([(low * few + high * many) / (few + many), few + many])
    places = [place for place, size in blocks for _ in range(int(size))]
    for box, place, start in zip(layer, places, offsets, strict=True):
        box.y = place + start


def _set_places(layers: list[list[_Box]], links: list[tuple[_Box, _Box]]) -> tuple[list[int], list[float], float]:
    """Set every x, breaking the columns into rows no wider than the page; return rows, their ends, and the width."""
    widths = [max(box.width for box in layer) for layer in layers]
    tracks = max(sum(left.layer == layer for left, _ in links) for layer in range(len(layers)))
    side = MARGIN + TRACK * tracks
    if MARGIN + sum(widths) + GAP_X * len(layers) <= WIDTH:
        side = MARGIN  # one row: no lines lead around the margins
    rows, starts, x, row = [], [], float(side), 0
    for width in widths:
        if rows and x + width + max(side, GAP_X) > WIDTH and x > side:
            x, row = float(side), row + 1
        rows.append(row)
        starts.append(x)
        x += width + GAP_X
    top, bottoms = 0.0, []
    for number in range(row + 1):
        boxes = [box for layer, here in zip(layers, rows, strict=True) if here == number for box in layer]
        shift = top - min(box.y - box.above for box in boxes)
        for box in boxes:
            box.y += shift
            box.x, box.width = starts[box.layer], widths[box.layer]
        bottoms.append(max(box.y + box.height for box in boxes))
        leaving = sum(rows[left.layer] == number != rows[right.layer] for left, right in links)
        top = bottoms[-1] + GAP_Y + TRACK * (leaving + 1)
    end = max(start + width for start, width in zip(starts, widths, strict=True))
    return rows, bottoms, end + max(side if row else 0, GAP_X)


def _find_ports(edges: dict[tuple[str, str], Chain]) -> dict[tuple[str, str], float]:
    """Spread the edges that enter one card, in the order in which they come in from above to below."""
    entering = defaultdict(list)
    for (source, target), chain in edges.items():
        entering[target].append((chain[-2].middle, source))
    ports = {}
    for target, sources in entering.items():
        for number, (_, source) in enumerate(sorted(sources)):
            ports[source, target] = (number - (len(sources) - 1) / 2) * 28
    return ports


# The parts of the picture ------------------------------------------------------------------------------------------


def _by_importance(moment: _Moment, layout: _Layout) -> list[tuple[str, str]]:
    """Return the edges, those that carry the newest gradient last, so that they are drawn on top."""
    return sorted(layout.edges, key=lambda edge: _edge_state(moment, edge))


def _edge_state(moment: _Moment, edge: tuple[str, str]) -> int:
    """Return 0 while no gradient has come back along the edge, 1 when it has, 2 when it just does."""
    source, target = edge
    carried = source in moment.past and any(sender == target for sender, _ in moment.past[source].parts)
    return 2 if carried and moment.current.node == source else int(carried)


def _draw_edge(moment: _Moment, layout: _Layout, edge: tuple[str, str]) -> str:
    source, target = edge
    chain, port, state = layout.edges[edge], layout.ports[edge], _edge_state(moment, edge)
    path = _trace(layout, chain, port)
    colour, thickness = (GRADIENT, 3 if state == 2 else 1.6) if state else ("currentColor", 1.4)
    dashes = ' stroke-dasharray="4 4"' if not moment.graph.nodes[source].requires_grad else ""
    opacity = "" if state else f' opacity="{FAINT}"'
    x, y = chain[-1].x, chain[-1].middle + port
    parts = [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{thickness}"{dashes}{opacity}/>']
    if state:
        parts.append(_head(chain[0].x + chain[0].width + 1, chain[0].middle, -1, GRADIENT, 7 if state == 2 else 5))
    else:
        parts.append(_head(x - 1, y, 1, "currentColor", 5, FAINT))
    if state == 2:
        sent = " + ".join(format_tensor(grad) for sender, grad in moment.current.parts if sender == target)
        rising = chain[-2].middle < y  # seen from here: the label goes where the line does not
        if len(sent) <= 4 and layout.rows[chain[-2].layer] == layout.rows[chain[-1].layer]:
            words = _text(x - 7, y + (16 if rising else -7), sent, family=MONO, anchor="end", weight=700)
            parts.append(words)
    return "".join(parts)


def _trace(layout: _Layout, chain: Chain, port: float) -> str:
    """Return the path of an edge: curves between columns, straight through them, around the margin to the next row."""
    x, y = chain[0].x + chain[0].width, chain[0].middle
    path = f"M{_n(x)} {_n(y)}"
    for left, right in pairwise(chain):
        end_x, end_y = right.x, right.middle + (port if right.name else 0)
        if layout.rows[left.layer] == layout.rows[right.layer]:
            half = (x + end_x) / 2
            path += f" C{_n(half)} {_n(y)} {_n(half)} {_n(end_y)} {_n(end_x)} {_n(end_y)}"
        else:
            path += _turn(layout, chain, left, (x, y), (end_x, end_y))
        x, y = end_x + right.width, end_y
        if right.name is None:
            path += f" H{_n(x)}"
    return path


def _turn(layout: _Layout, chain: Chain, left: _Box, start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return the way from the last column of a row to the first of the next; each such edge has a track of its own."""
    crossing = [
        (-box.middle, number, other)
        for number, other in enumerate(layout.edges.values())
        for box in other[:-1]
        if box.layer == left.layer
    ]
    crossing = [other for _, _, other in sorted(crossing, key=lambda entry: entry[:2])]  # the lowest turns first
    track = crossing.index(chain)
    right = start[0] + 14 + TRACK * track
    below = layout.bottoms[layout.rows[left.layer]] + TRACK * (track + 1)
    side = end[0] - 14 - TRACK * (len(crossing) - 1 - track)
    return _rounded([start, (right, start[1]), (right, below), (side, below), (side, end[1]), end])


def _rounded(points: list[tuple[float, float]], radius: float = 6) -> str:
    """Return straight lines through the points, their corners rounded; the pen is at the first point already."""
    path = ""
    for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
        first, second = math.hypot(x1 - x0, y1 - y0) or 1, math.hypot(x2 - x1, y2 - y1) or 1
        r = min(radius, first / 2, second / 2)
        path += f" L{_n(x1 - (x1 - x0) / first * r)} {_n(y1 - (y1 - y0) / first * r)}"
        path += f" Q{_n(x1)} {_n(y1)} {_n(x1 + (x2 - x1) / second * r)} {_n(y1 + (y2 - y1) / second * r)}"
    return f"{path} L{_n(points[-1][0])} {_n(points[-1][1])}"


def _draw_start(moment: _Moment, layout: _Layout) -> str:
    """Draw the gradient 1 that backward begins with, coming in from the right."""
    if not moment.step:
        return ""
    box, now = layout.cards[moment.graph.result], moment.step == 1
    x, y = box.x + box.width, box.middle
    line = f'<path d="M{_n(x + 4)} {_n(y)} H{_n(x + 34)}" stroke="{GRADIENT}" stroke-width="{3 if now else 1.6}"/>'
    word = _text(x + 22, y - 8, "1", family=MONO, anchor="middle", weight=700) if now else ""
    return line + _head(x + 1, y, -1, GRADIENT, 7 if now else 5) + word


def _draw_card(moment: _Moment, box: _Box, room: dict[str, list[str]]) -> str:
    name = box.name
    node = moment.graph.nodes[name]
    now = moment.current is not None and moment.current.node == name
    stroke, thickness = (GRADIENT, 3) if now else ("currentColor", 1.3)
    dashes = "" if node.requires_grad else ' stroke-dasharray="5 4"'
    left, right = box.x + PADDING, box.x + box.width - PADDING
    parts = [
        f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}" '
        f'rx="{14 if node.is_leaf else 3}" fill="currentColor" fill-opacity="0.05" stroke="{stroke}" '
        f'stroke-width="{thickness}"{dashes}/>',
        f'<path d="M{_n(box.x)} {_n(box.y + HEADER)} h{_n(box.width)}" stroke="currentColor" stroke-opacity="0.25"/>',
        _text(left, box.y + 19, _heading(node), size=15, family=MONO, weight=700),
        _text(right, box.y + 19, _kind_word(node), anchor="end", style="italic") if _kind_word(node) else "",
    ]
    top = box.y + HEADER + LINE - 2
    for label, lines in _card_lines(moment, name).items():
        empty = lines[0] in (NOTHING_YET, NO_GRADIENT, "None")
        weight = 700 if now and label != "value" and not empty else 400
        parts.append(_text(left, top, label, opacity=0.75))
        parts += [
            _text(left + LABELS, top + number * LINE, line, family=MONO, weight=weight, opacity=0.65 if empty else 1)
            for number, line in enumerate(lines)
        ]
        top += LINE * len(room[label])
    return "".join([*parts, *_draw_marks(moment, box)])


def _draw_marks(moment: _Moment, box: _Box) -> Iterator[str]:
    """Draw the hooks of a card on its upper edge, in the order in which they run."""
    x = box.x + box.width - sum(_mark_width(action) for action in moment.actions(box.name))
    for action in moment.actions(box.name):
        yield _draw_mark(x, box.y - TAG, action)
        x += _mark_width(action)


def _draw_mark(x: float, y: float, action: str) -> str:
    tag = (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(_mark_width(action) - 6)}" height="{TAG - 2}" rx="9" '
        f'fill="{HOOK}" fill-opacity="0.14" stroke="{HOOK}" stroke-width="1.4"/>'
    )
    return tag + _hook_sign(x + 12, y + 3) + _text(x + 18, y + 14, ACTIONS[action].mark, family=MONO, weight=600)


def _hook_sign(x: float, y: float) -> str:
    """Draw a small fish hook."""
    return (
        f'<path d="M{_n(x)} {_n(y)} v7 a3.2 3.2 0 0 1 -6.4 0 v-1.6" fill="none" stroke="{HOOK}" stroke-width="1.8" '
        f'stroke-linecap="round"/>'
    )


def _draw_legend(width: float, y: float) -> str:
    forward = f'<path d="M0 -4 H16" stroke="currentColor" opacity="{FAINT}"/>'
    backward = f'<path d="M6 -4 H22" stroke="{GRADIENT}" stroke-width="2.4"/>'
    entries = [
        ("leaf", '<rect y="-11" width="22" height="14" rx="6" fill="none" stroke="currentColor"/>'),
        ("result of an operation", '<rect y="-11" width="22" height="14" rx="2" fill="none" stroke="currentColor"/>'),
        ("forward", forward + _head(22, -4, 1, "currentColor", 5, FAINT)),
        ("gradient coming back", backward + _head(0, -4, -1, GRADIENT, 6)),
        ("hook", _hook_sign(16, -11)),
    ]
    widths = [30 + len(words) * 6.7 + 24 for words, _ in entries]
    x, parts = (width - sum(widths) + 24) / 2, []
    for (words, sign), step in zip(entries, widths, strict=True):
        parts.append(f'<g transform="translate({_n(x)} {_n(y)})">{sign}{_text(29, 0, words, opacity=0.8)}</g>')
        x += step
    return "".join(parts)


def _head(x: float, y: float, direction: int, colour: str, size: float, opacity: float = 1) -> str:
    """Draw an arrowhead with its tip at (x, y); direction 1 points to the right, -1 to the left."""
    back = x - direction * size * 1.6
    faint = "" if opacity == 1 else f' opacity="{opacity}"'
    points = f"{_n(x)},{_n(y)} {_n(back)},{_n(y - size)} {_n(back)},{_n(y + size)}"
    return f'<polygon points="{points}" fill="{colour}"{faint}/>'


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 13,
    family: str = SANS,
    anchor: str = "start",
    weight: int = 400,
    style: str = "normal",
    opacity: float = 1,
) -> str:
    extra = "" if anchor == "start" else f' text-anchor="{anchor}"'
    extra += "" if opacity == 1 else f' opacity="{opacity}"'
    look = f"font:{style} {weight} {size}px {family};white-space:pre"
    return f'<text x="{_n(x)}" y="{_n(y)}" fill="currentColor"{extra} style="{escape(look)}">{escape(words)}</text>'


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
