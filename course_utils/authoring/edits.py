"""Mutants of the right answers: small edits, each of which the checker has to refuse, and the slip that each one is.

A mutant that passes shows an input that no case has, or is *equivalent*: it is right as well, wherever the task allows
it to be called. Those are declared beside their exercise, by the edit and with the reason: `Exercise.equivalent`. A
wrong answer that behaves as a mutant does has the mutant's slip for its likely cause.
"""

import ast
import copy
import difflib
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from course_utils.root import ASSETS

Edit = tuple[str, object, object]  # the operator, the part of the syntax tree that it edits, what stands there instead

# What an answer may do to its arguments besides its task.
SPOILED = [
    (nn.Module, lambda each: True, ["eval()", "train()", "_forward_hooks.clear()"]),
    (nn.Module, lambda each: [*each.parameters()], ["zero_grad()", "requires_grad_(False)", "double()"]),
    (torch.Tensor, lambda each: each.requires_grad, ["detach()"]),
    (torch.Tensor, lambda each: each.requires_grad and each.is_leaf, ["grad.zero_()"]),
    (torch.Tensor, lambda each: True, ["zero_()", "double()"]),
    (list, lambda each: True, ["reverse()", "pop()"]),
    (dict, lambda each: True, ["popitem()"]),
]
RETURN_NOTHING = {"append", "update", "extend", "add"}
CUTS = {"the first only": "[:1]", "not the first": "[1:]", "backwards": "[::-1]"}
ONLY_ONCE = "if getattr({0}, 'has_run', False):\n    return None\n{0}.has_run = True"


class Mutant(NamedTuple):
    """An answer with one edit."""

    rank: int  # its place among mutants that behave alike; the slip that says most comes first
    operator: str
    lines: tuple[str, ...]  # those that differ from the right answer: `- old` and `+ new`
    slip: str  # what is wrong with it
    source: str
    function: Callable

    @property
    def edit(self) -> str:
        """The operator and the lines, as one text."""
        return f"{self.operator}: {' '.join(self.lines)}"


@functools.cache
def read_table(name: str) -> dict[str, Any]:
    """Of `assets/edits.json`: `slips`, what is wrong with an answer that an operator made (any other operator, such as
    `no clone`, leaves a call out), or `operators` or `names` that learners take for each other.
    """
    return json.loads((ASSETS / "edits.json").read_text(encoding="utf-8"))[name]


def mutants_of(
    answers: Sequence[str], namespace: Mapping[str, object], given: Mapping[str, object]
) -> Iterator[Mutant]:
    """The mutants of the texts `answers`, which run among the names of `namespace`, and are called with arguments such
    as `given`; each text once.
    """
    seen = set()
    for answer in answers:
        tree = ast.parse(answer).body[-1]
        if ast.get_docstring(tree) is not None:
            del tree.body[0]
        seen.add(ast.unparse(tree))
        for mutant in mutate(tree, namespace, given):
            if mutant.source not in seen:
                seen.add(mutant.source)
                yield mutant


def mutate(
    tree: ast.FunctionDef | ast.ClassDef, namespace: Mapping[str, object], given: Mapping[str, object]
) -> Iterator[Mutant]:
    """An answer, among the names of `namespace`, with each edit in turn; what cannot be compiled is left out."""
    text, slips = ast.unparse(tree), read_table("slips")
    for operator, old, new in _edits(tree, list(given.values())):
        source = ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree, {id(old): new})))
        own = dict(namespace)
        try:
            exec(compile(source, "<mutant>", "exec", dont_inherit=True), own)
        except Exception:  # not an answer at all
            continue
        slip = slips.get(operator, f"a call of `{operator.removeprefix('no ')}` is missing")
        if operator == "mixed up":
            slip = slip.format(*(getattr(each, "id", getattr(each, "attr", "")) for each in (new, old)))
        lines = difflib.ndiff(text.splitlines(), source.splitlines())
        differing = (f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "-+")
        differing = tuple(re.sub(r"\bfor \(([\w, ]+)\) in ", r"for \1 in ", line) for line in differing)  # Python 3.10
        rank = [*slips].index(operator) if operator in slips else -1
        yield Mutant(rank, operator, differing, slip, source, own[tree.name])


def _edits(tree: ast.FunctionDef | ast.ClassDef, given: list[object]) -> Iterator[Edit]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            for number, each in enumerate(block if isinstance(block, list) else []):
                for operator, new in _of_statement(each):
                    yield operator, block, [*block[:number], *new, *block[number + 1 :]] or [ast.Pass()]
        yield from _of_node(node)
    if isinstance(tree, ast.FunctionDef):
        for argument, value in zip(tree.args.args, given, strict=False):
            for kind, fits, methods in SPOILED:
                for method in methods if isinstance(value, kind) and fits(value) else ():
                    call = f"{argument.arg}.{method}"
                    text = f"{argument.arg} = {call}" if method in ("detach()", "double()") else call
                    yield "spoil an argument", tree.body, [*ast.parse(text).body, *tree.body]


def _with(node: ast.AST, **fields: object) -> ast.AST:
    return type(node)(**vars(node) | fields)


def _without(items: list, left_out: object) -> list:
    return [each for each in items if each is not left_out]


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _others(operator: ast.AST) -> list[ast.AST]:
    return [getattr(ast, other)() for other in read_table("operators").get(type(operator).__name__, [])]


def _cuts(loop: ast.For | ast.comprehension) -> Iterator[tuple[str, ast.AST]]:
    for operator, cut in CUTS.items():
        yield operator, _with(loop, iter=_expression(f"list({ast.unparse(loop.iter)}){cut}"))


def _of_node(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare(ops=[op]):
            for other in _others(op):
                yield "compare otherwise", node, _with(node, ops=[other])
        case ast.BinOp(left=left, op=op, right=right):
            for other in _others(op):
                yield "compute otherwise", node, _with(node, op=other)
            yield "one operand", node, left
            yield "one operand", node, right
        case ast.BoolOp(op=op, values=values):
            yield "and for or", node, _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for value in values:
                yield "a condition less", values, _without(values, value)
        case ast.UnaryOp(operand=operand):
            yield "no sign", node, operand
        case ast.IfExp(body=body, orelse=orelse):
            yield "no condition", node, body
            yield "no condition", node, orelse
        case ast.Constant(value=bool(value)):
            yield "other constant", node, ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            for other in (value + 1, value - 1):
                yield "other constant", node, ast.Constant(other)
        case ast.Subscript(value=value, slice=index, ctx=ast.Load()):
            yield "no index", node, value
            if not isinstance(index, ast.Constant):
                yield "the first only", node, _with(node, slice=ast.Constant(0))
        case ast.comprehension(ifs=ifs):
            if ifs:
                yield "no filter", node, _with(node, ifs=[])
            for operator, cut in _cuts(node):
                yield operator, node, cut
        case ast.Name(id=name) | ast.Attribute(attr=name) if isinstance(node.ctx, ast.Load):
            field = "id" if isinstance(node, ast.Name) else "attr"
            for other in read_table("names").get(name, []):
                yield "mixed up", node, _with(node, **{field: other})
            if name.endswith("_") and not name.endswith("__"):
                yield "not in place", node, _with(node, **{field: name[:-1]})
        case ast.Call(func=func, args=args, keywords=keywords):
            if isinstance(func, ast.Attribute):
                yield f"no {func.attr}", node, func.value
            elif args:
                yield "no call", node, args[0]
            for each in keywords:
                yield "an argument less", keywords, _without(keywords, each)
            for each in args if isinstance(func, ast.Attribute) or len(args) + len(keywords) > 1 else ():
                yield "an argument less", args, _without(args, each)
        case ast.Lambda(body=body):
            if not (isinstance(body, ast.Call) and getattr(body.func, "attr", "") in RETURN_NOTHING):
                yield "no return", node, _with(node, body=_expression(f"({ast.unparse(body)}, None)[1]"))
        case ast.FunctionDef(args=ast.arguments(args=args), body=body, name=name):
            used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            for each in (each.arg for each in args if each.arg in used):
                yield "of an argument the first only", body, [*ast.parse(f"{each} = {each}[:1]").body, *body]
            if not any(each.arg == "self" for each in args):
                yield "only once", body, [*ast.parse(ONLY_ONCE.format(name)).body, *body]
            if node.decorator_list:
                yield "no decorator", node, _with(node, decorator_list=[])
        case ast.arguments():
            for name, default in (("args", "defaults"), ("kwonlyargs", "kw_defaults")):
                names, values = getattr(node, name), getattr(node, default)
                for each, value in zip(names[len(names) - len(values) :], values, strict=True):
                    if isinstance(value, ast.Name) and value.id == each.arg:
                        fewer = {name: _without(names, each), default: _without(values, value)}
                        yield "late binding", node, _with(node, **fewer)


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    match node:
        case ast.FunctionDef(args=ast.arguments(args=[ast.arg(arg="self"), *_])):
            yield "a method less", []
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Assert():
            yield "a statement less", []
        case ast.Return(value=value) if value is not None:
            yield "no return", [ast.Expr(value)]
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            yield "no try", [*body, *orelse, *final]
            if final and handlers:
                yield "no finally", [_with(node, finalbody=[])]
            elif final:
                yield "no finally", body
            for each in handlers:
                if final or len(handlers) > 1:
                    yield "no except", [_with(node, handlers=_without(handlers, each))]
                yield "swallow", [_with(node, handlers=[_with(each, body=[ast.Pass()])])]
                yield "except less", [_with(node, handlers=[_with(each, type=_expression("ZeroDivisionError"))])]
        case ast.With(body=body, items=items):
            yield "no with", [*[ast.Expr(each.context_expr) for each in items if each.optional_vars], *body]
        case ast.If(test=test, body=body, orelse=orelse):
            yield "always", body
            yield "never", orelse
            yield "the opposite", [_with(node, test=ast.UnaryOp(ast.Not(), test))]
        case ast.For():
            for operator, cut in _cuts(node):
                yield operator, [cut]
        case ast.Break() | ast.Continue():
            yield "no jump", [ast.Pass()]
    match node:
        case ast.AugAssign(target=target, op=op, value=value):
            yield "not in place", [ast.Assign([target], ast.BinOp(_expression(ast.unparse(target)), op, value))]
            for other in _others(op):
                yield "compute otherwise", [_with(node, op=other)]
        case ast.Assign(targets=[ast.Name() as target], value=ast.BinOp(left=ast.Name(id=name), op=op, right=right)):
            if name == target.id:
                yield "in place", [ast.AugAssign(target, op, right)]
