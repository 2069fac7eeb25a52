"""Small computation graphs, from an expression that a learner typed.

    graph = parse("a = w + x; b = w + 1; y = a * b", w=1, x=2)

The text is read by Python's own parser and computed by torch; only what a graph needs is understood, and all else gets
a sentence. `gradient_flow` runs backward through a graph, `gradient_stories` tells and draws it.
"""

import ast
import difflib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_NODES = 12
MAX_ELEMENTS = 8
MAX_NAME = 12
MAX_CHARACTERS = 400
MAX_HOOKS_PER_NODE = 4

TIMES = "\N{MULTIPLICATION SIGN}"


class GraphError(ValueError):
    """An expression, a tensor or a hook that cannot be used; the message says why and what to write instead."""


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
            f"There is no example called {name!r}; there are {list_words(EXAMPLES)}.{name_nearest(name, EXAMPLES)}"
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
    with autograd_on():
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
        there = f"so far there are {list_words(known)}" if known else "there are no tensors yet: begin with w = 1"
        raise GraphError(f"There is no tensor called {name} here; {there}.{name_nearest(name, known)}")

    def _call(self, call: ast.Call, name: str | None) -> str:
        if isinstance(call.func, ast.Attribute):
            raise GraphError(_not_allowed(call.func))
        if not isinstance(call.func, ast.Name):
            raise GraphError(_not_allowed(call))
        function = call.func.id
        if function not in FUNCTIONS:
            near = name_nearest(function, FUNCTIONS)
            raise GraphError(f"There is no function {function} here; there are {list_words(FUNCTIONS)}.{near}")
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
    return (
        f"{_source(expression)} is not possible here: there are tensors, numbers, {operators}, {list_words(FUNCTIONS)}."
    )


def _source(part: ast.AST) -> str:
    return _shortened(ast.unparse(part))


def _shortened(given: object) -> str:
    text = " ".join(str(given).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def _word(operand: Operand) -> str:
    return operand if isinstance(operand, str) else "None" if operand is None else format_number(operand)


def list_words(names: Iterable[str]) -> str:
    return ", ".join(names)


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def name_nearest(name: object, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(names), n=1, cutoff=0.5)
    return f" Did you mean {near[0]}?" if near else ""


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


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


@contextmanager
def autograd_on() -> Iterator[None]:
    """Gradients are recorded in the block, whatever mode the caller is in."""
    with torch.inference_mode(False), torch.enable_grad():
        yield
