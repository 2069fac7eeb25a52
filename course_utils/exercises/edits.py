"""Small edits of an answer.

Of a right answer they make mutants, each of which the checker has to refuse. One that passes shows an input that no
case has, or is *equivalent*: it is right as well, wherever the task allows it to be called. Those are declared beside
their exercise, by the edit and with the reason. Of a learner's answer they may make a right one, see `repair`.

`edit_node` says for each kind of node in an answer's syntax tree by which operators it is edited; `SPOILS` are what an
answer may do to its arguments before anything else.
"""

import ast
import difflib
import functools
import itertools
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from course_utils.exercises.answers import run_answer
from course_utils.root import ASSETS

Instead = ast.AST | list[ast.stmt]  # what stands in the place of a node; of a statement, several may, or none
Edit = tuple[str, ast.AST, Instead]  # the operator, the node that it edits, and what stands there instead
Edits = Iterator[tuple[str, Instead]]  # of one node, with the name of the operator


class Mutant(NamedTuple):
    """An answer with one edit."""

    operator: str
    lines: tuple[str, ...]  # those that differ from the right answer: `- old` and `+ new`
    source: str
    function: Callable

    @property
    def edit(self) -> str:
        """The operator and the lines, as one text."""
        return f"{self.operator}: {' '.join(self.lines)}"


@functools.cache
def read_table(name: str) -> dict[str, Any]:
    """Of `assets/edits.json`: `repairs`, what is wrong with an answer that an operator makes right (any other operator,
    such as `no clone`, leaves a call out), or `operators` or `names` that learners take for each other.
    """
    return json.loads((ASSETS / "edits.json").read_text(encoding="utf-8"))[name]


# --- from answers to mutants ------------------------------------------------------------------------------------------


def mutants_of(
    answers: Iterable[str], namespace: Mapping[str, object], given: Mapping[str, object]
) -> Iterator[Mutant]:
    """The mutants of each of `answers`, each text once; what Python cannot define is left out.

    answers: the sources of functions or classes. namespace: the names among which they run.
    given: arguments such as they are called with, in their order.
    """
    seen = set()
    for answer in answers:
        *helpers, tree = ast.parse(answer).body
        if ast.get_docstring(tree) is not None:
            del tree.body[0]
        seen.add(before := ast.unparse(ast.Module([*helpers, tree], [])))
        for operator, old, new in itertools.chain(edits_of(tree), _spoils(tree, given)):
            edited = ast.Module([*helpers, replace(tree, old, new)], [])
            source = ast.unparse(ast.fix_missing_locations(edited))
            function = None if source in seen else define(source, tree.name, namespace)
            if function is not None:
                seen.add(source)
                yield Mutant(operator, _differing_lines(before, source), source, function)


def edits_of(tree: ast.FunctionDef | ast.ClassDef) -> Iterator[Edit]:
    """Every edit of an answer."""
    for node in _walk(tree):
        for operator, new in edit_node(node):
            if new or node is not tree:  # there is no answer without its definition
                yield operator, node, new


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree from the outside to the inside: a block's statements, and then what they are made of."""
    yield tree
    for node in ast.walk(tree):
        yield from (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
        if not isinstance(node, ast.stmt):
            yield node


def replace(tree: Any, old: ast.AST, new: Instead) -> Any:
    """A copy of `tree`, a part of a syntax tree, in which `new` stands in the place of the node `old`."""
    if tree is old:
        return new
    if isinstance(tree, ast.AST):
        return changed(tree, **{field: replace(value, old, new) for field, value in _parts(tree).items()})
    if not isinstance(tree, list):
        return tree
    parts = []
    for each in tree:
        part = replace(each, old, new)
        parts += part if isinstance(part, list) else [part]
    if tree and not parts:
        return [ast.Pass()]  # no block is empty
    return parts


def define(source: str, name: str, namespace: Mapping[str, object]) -> Callable | None:
    """The function or class that a text defines among the names of `namespace`; None where it cannot be defined."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # nobody has written it
            return run_answer(source, name, namespace, "<mutant>")
    except Exception:  # for what is no Python, and whatever a decorator, a default or the code of a class raises
        return None


def _differing_lines(before: str, after: str) -> tuple[str, ...]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    differing = [f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "-+"]
    # Python 3.10 writes brackets around the variables of a loop.
    return tuple(re.sub(r"\bfor \(([\w, ]+)\) in ", r"for \1 in ", line) for line in differing)


# --- the parts of the edits -------------------------------------------------------------------------------------------


def changed(node: ast.AST, **fields: object) -> Any:
    """A node like `node`, with other `fields`."""
    return type(node)(**_parts(node) | fields)


def _parts(node: ast.AST) -> dict[str, Any]:
    """A node's fields and its place. IPython's tracebacks give nodes a parent too, also those that all trees share."""
    return {name: getattr(node, name) for name in (*node._fields, *node._attributes) if hasattr(node, name)}


def one_less(node: ast.AST, field: str) -> list[Any]:
    """Nodes like `node`: each lacks another one of the parts in the list `field`."""
    return [changed(node, **{field: _without(part, getattr(node, field))}) for part in getattr(node, field)]


def _without(part: object, parts: Sequence) -> list:
    return [each for each in parts if each is not part]


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _begin_with(statements: str, node: ast.FunctionDef) -> ast.FunctionDef:
    return changed(node, body=[*ast.parse(statements).body, *node.body])


def name_of(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _renamed(node: ast.Name | ast.Attribute, name: str) -> ast.Name | ast.Attribute:
    return changed(node, id=name) if isinstance(node, ast.Name) else changed(node, attr=name)


def _other_operators(operator: ast.operator | ast.cmpop) -> list[ast.AST]:
    names = read_table("operators").get(type(operator).__name__, [])
    return [getattr(ast, name)() for name in names]


# --- what stands instead of each kind of node -------------------------------------------------------------------------


def edit_node(node: ast.AST) -> Edits:
    """What may stand in the place of a node, each with the name of the operator that puts it there."""
    for edit in (_edit_expression, _edit_name, _edit_call, _edit_step, _edit_block, _edit_try, _edit_function):
        yield from edit(node)


def _edit_expression(node: ast.AST) -> Edits:
    match node:
        case ast.Compare(ops=[sign]):
            yield from (("compare otherwise", changed(node, ops=[other])) for other in _other_operators(sign))
        case ast.BinOp(left, sign, right):
            yield from (("compute otherwise", changed(node, op=other)) for other in _other_operators(sign))
            yield from (("one operand", left), ("one operand", right))
        case ast.BoolOp():
            yield "and for or", changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            yield from (("a condition less", fewer) for fewer in one_less(node, "values"))
        case ast.UnaryOp():
            yield "no sign", node.operand
        case ast.IfExp():
            yield from (("no condition", node.body), ("no condition", node.orelse))
        case ast.Constant(bool(value)):
            yield "other constant", ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield from (("other constant", ast.Constant(value + 1)), ("other constant", ast.Constant(value - 1)))
        case ast.Subscript(ctx=ast.Load()):
            yield "no index", node.value
            if not isinstance(node.slice, ast.Constant):
                yield "the first only", changed(node, slice=ast.Constant(0))


def _edit_name(node: ast.AST) -> Edits:
    match node:
        case ast.Name(name, ast.Load()) | ast.Attribute(_, name, ast.Load()):
            for other in read_table("names").get(name, []):
                yield "mixed up", _renamed(node, other)
            if name.endswith("_") and not name.endswith("__"):
                yield "not in place", _renamed(node, name[:-1])


RETURN_NOTHING = {"append", "update", "extend", "add"}


def _edit_call(node: ast.AST) -> Edits:
    match node:
        case ast.Call():
            is_method = isinstance(node.func, ast.Attribute)
            if is_method:
                yield f"no {node.func.attr}", node.func.value
            elif node.args:
                yield "no call", node.args[0]
            may_lack_one = is_method or len(node.args) + len(node.keywords) > 1
            for fewer in one_less(node, "keywords") + (one_less(node, "args") if may_lack_one else []):
                yield "an argument less", fewer
        case ast.Lambda(body=ast.Call(ast.Attribute(attr=name))) if name in RETURN_NOTHING:
            return
        case ast.Lambda():
            yield "no return", changed(node, body=_expression(f"({ast.unparse(node.body)}, None)[1]"))


def _edit_step(node: ast.AST) -> Edits:
    match node:
        case ast.Return(value) if value is not None:
            yield "no return", ast.Expr(value)
        case ast.Break() | ast.Continue():
            yield "no jump", ast.Pass()
        case ast.Expr() | ast.Delete() | ast.Raise() | ast.Assert() | ast.Assign() | ast.AugAssign():
            yield "a statement less", []
    match node:
        case ast.Assign([ast.Name(name) as target], ast.BinOp(ast.Name(left), sign, right)) if name == left:
            yield "in place", ast.AugAssign(target, sign, right)
        case ast.AugAssign(target, sign, value):
            before = _expression(ast.unparse(target))
            yield "not in place", ast.Assign([target], ast.BinOp(before, sign, value))
            yield from (("compute otherwise", changed(node, op=other)) for other in _other_operators(sign))


CUTS = {"the first only": "[:1]", "not the first": "[1:]", "backwards": "[::-1]"}


def _edit_block(node: ast.AST) -> Edits:
    match node:
        case ast.If():
            yield from (("always", node.body), ("never", node.orelse))
            yield "the opposite", changed(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.With():
            named = [ast.Expr(each.context_expr) for each in node.items if each.optional_vars]
            yield "no with", [*named, *node.body]
        case ast.comprehension() | ast.For():
            if getattr(node, "ifs", []):
                yield "no filter", changed(node, ifs=[])
            for operator, cut in CUTS.items():
                yield operator, changed(node, iter=_expression(f"list({ast.unparse(node.iter)}){cut}"))


def _edit_try(node: ast.AST) -> Edits:
    if not isinstance(node, ast.Try):
        return
    yield "no try", [*node.body, *node.orelse, *node.finalbody]
    if node.finalbody:
        yield "no finally", changed(node, finalbody=[]) if node.handlers else node.body
    if node.finalbody or len(node.handlers) > 1:
        for fewer in one_less(node, "handlers"):
            yield "no except", fewer
    for each in node.handlers:
        yield "swallow", changed(node, handlers=[changed(each, body=[ast.Pass()])])
        yield "except less", changed(node, handlers=[changed(each, type=_expression("ZeroDivisionError"))])


ONLY_ONCE = "if getattr({0}, 'has_run', False):\n    return None\n{0}.has_run = True"


def _edit_function(node: ast.AST) -> Edits:
    match node:
        case ast.FunctionDef():
            names = [each.arg for each in node.args.args]
            if names[:1] == ["self"]:
                yield "a method less", []
            used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            for name in [each for each in names if each in used]:
                yield "of an argument the first only", _begin_with(f"{name} = {name}[:1]", node)
            if "self" not in names:
                yield "only once", _begin_with(ONLY_ONCE.format(node.name), node)
            if node.decorator_list:
                yield "no decorator", changed(node, decorator_list=[])
        case ast.arguments():
            for names, defaults in (("args", "defaults"), ("kwonlyargs", "kw_defaults")):
                arguments, values = getattr(node, names), getattr(node, defaults)
                have_default = arguments[len(arguments) - len(values) :]
                for argument, value in zip(have_default, values, strict=True):
                    if isinstance(value, ast.Name) and value.id == argument.arg:
                        fewer = {names: _without(argument, arguments), defaults: _without(value, values)}
                        yield "late binding", changed(node, **fewer)


# --- what an answer may do to its arguments besides its task ----------------------------------------------------------


def _has_parameters(value: nn.Module) -> bool:
    return any(True for _ in value.parameters())


SPOILS: list[tuple[type, Callable[[Any], bool], list[str]]] = [  # what kind of value, which ones, and what is done
    (nn.Module, lambda value: True, ["{0}.eval()", "{0}.train()", "{0}._forward_hooks.clear()"]),
    (nn.Module, _has_parameters, ["{0}.zero_grad()", "{0}.requires_grad_(False)", "{0} = {0}.double()"]),
    (torch.Tensor, lambda value: value.requires_grad, ["{0} = {0}.detach()"]),
    (torch.Tensor, lambda value: value.requires_grad and value.is_leaf, ["{0}.grad.zero_()"]),
    (torch.Tensor, lambda value: True, ["{0}.zero_()", "{0} = {0}.double()"]),
    (list, lambda value: True, ["{0}.reverse()", "{0}.pop()"]),
    (dict, lambda value: True, ["{0}.popitem()"]),
]


def _spoils(tree: ast.FunctionDef | ast.ClassDef, given: Mapping[str, object]) -> Iterator[Edit]:
    arguments = tree.args.args if isinstance(tree, ast.FunctionDef) else ()
    for argument, value in zip(arguments, given.values(), strict=False):
        fitting = [statements for kind, fits, statements in SPOILS if isinstance(value, kind) and fits(value)]
        for statement in itertools.chain(*fitting):
            yield "spoil an argument", tree, _begin_with(statement.format(argument.arg), tree)
