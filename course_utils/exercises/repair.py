"""What one small edit would make right: advice that is tried on the learner's own answer before it is given.

The edits are those of `edits`, and a few that add what is missing. An edit counts if with it the answer passes in all
cases of two seeds, or does in all of them just what a declared mistake does: then it has two slips.
"""

import ast
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from course_utils.exercises.causes import BESIDES
from course_utils.exercises.changes import read_source
from course_utils.exercises.edits import Instead, changed, define, edits_of, name_of, read_table, replace
from course_utils.exercises.evidence import can_limit_time

SECONDS = 3.0  # for all edits of an answer; a learner is waiting
# Edits that put no other slip in the place of one.
MENDING = {"a statement less", "add return", "bind now", "own for each call"}
# What nobody forgets to write, and what passes by chance where no case has several things that tell.
NO_SLIPS = {"only once", "of an argument the first only", "the first only", "late binding"}
TYPES = {"list", "tuple", "dict", "set", "int", "float", "str", "bool"}


class Repair(NamedTuple):
    """An answer with one edit: the kind of edit, the sentence that advises it, the function."""

    operator: str
    sentence: str
    function: Callable


def find_repair(function: Callable, find_rest: Callable[[Callable, bool], str | None], two: str) -> str:
    """What the first edit says with which `function` is right; else `two` slips, or an edit that leaves one mistake.

    find_rest: of an edited answer, the message of the mistake that is left; empty if none is, None if it is not known.
        Its second argument says whether one may be left.
    Where there is no text, or an edited answer that never ends could not be stopped, none is tried.
    """
    if not can_limit_time():
        return two
    end = time.monotonic() + SECONDS
    repairs = sorted(repairs_of(function), key=lambda repair: repair.operator == "other constant")  # may pass by chance
    for repair in itertools.takewhile(lambda _: time.monotonic() < end, repairs):
        if find_rest(repair.function, False) == "":
            return f"{repair.sentence} With this one change your answer would pass."
    mending = [repair for repair in repairs if repair.operator in MENDING and not two]
    for repair in itertools.takewhile(lambda _: time.monotonic() < end, mending):
        if rest := find_rest(repair.function, True):
            return f"{repair.sentence}{BESIDES}{rest}"
    return two


def with_return(function: Callable) -> Callable | None:
    """An answer that returns what its last line makes, where it returns nothing; None where there is no such line."""
    return next((repair.function for repair in repairs_of(function) if repair.operator == "add return"), None)


def repairs_of(function: Callable) -> Iterator[Repair]:
    """Every edit of an answer, which is a function or a class whose text can be read."""
    read = read_source(function)
    if read is None:
        return
    tree, lines, first, namespace = read
    in_slices = [part for each in ast.walk(tree) if isinstance(each, ast.Slice) for part in vars(each).values()]
    for operator, old, new in itertools.chain(_additions(tree), edits_of(tree)):
        if operator == "other constant" and any(old is part for part in in_slices):
            continue  # `args[2:]` for `args[1:]` may pass because no case has more arguments
        if operator == "no call" and isinstance(old.func, ast.Name) and old.func.id in TYPES:
            continue  # a view that changes later may pass for a list
        source = ast.unparse(ast.fix_missing_locations(replace(tree, old, new)))
        edited = None if operator in NO_SLIPS else define(source, tree.name, _copy_lists(namespace))
        if edited is not None:
            number = _line_of(old, tree) - 1
            yield Repair(operator, _say(operator, old, new, first + number, lines[number].strip()), edited)


def _copy_lists(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The names of an answer, with other lists, dicts and sets: an edited answer may leave something in them."""
    return {key: value.copy() if type(value) in (list, dict, set) else value for key, value in namespace.items()}


def _line_of(node: ast.AST, tree: ast.AST) -> int:
    """The first line of a node in the text; what stands behind a `for` in a list has none itself, but its parts do."""
    lines = [each.lineno for each in ast.walk(node) if hasattr(each, "lineno")]
    return lines[0] if lines else tree.lineno


def _say(operator: str, old: ast.AST, new: Instead, number: int, text: str) -> str:
    words = read_table("repairs").get(operator)
    if isinstance(old, ast.Call) and operator.startswith("no ") and operator != "no call":
        words = f"leave out the call of `{operator.removeprefix('no ')}`"
    elif operator == "no call" and isinstance(old.func, ast.Name):
        words = f"leave out the call of `{old.func.id}`, and keep what is in its brackets"
    elif operator == "no return" and isinstance(old, ast.Lambda):
        words = "let the `lambda` return nothing"
    elif operator == "no index":
        words = f"leave out `[{ast.unparse(old.slice)}]`"
    elif isinstance(old, ast.Subscript) and isinstance(new, ast.Subscript) and not isinstance(old.slice, ast.Slice):
        words = "put another index into the square brackets"
    elif operator == "never" and old.orelse:
        words = "do what stands below `else` in any case"
    elif operator == "mixed up":
        words = words.format(name_of(old), name_of(new))
    return f"Try this in your line {number}, `{text}`: {words}."


def _additions(tree: ast.AST) -> Iterator[tuple[str, ast.AST, Instead]]:
    """What an answer may lack: a list of its own for each call, a `return`, two results in their order, or the value
    that a variable of a loop has when a hook is made.
    """
    if isinstance(tree, ast.FunctionDef):
        for argument, value in zip(reversed(tree.args.args), reversed(tree.args.defaults), strict=False):
            if isinstance(value, ast.List | ast.Dict | ast.Set):
                own = ast.Assign([ast.Name(argument.arg, ast.Store())], value)
                yield "own for each call", tree, changed(tree, body=[own, *tree.body])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            match node.body[-1]:
                case ast.Expr(value) as last:
                    yield "add return", last, ast.Return(value)
                case ast.Assign([ast.Name(name)]) as last:
                    yield "add return", last, [last, ast.Return(ast.Name(name, ast.Load()))]
        match node:
            case ast.Return(ast.Tuple([one, other])):
                yield "other order", node, changed(node, value=changed(node.value, elts=[other, one]))
        if isinstance(node, ast.For):
            yield from _bindings(node, {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)})


def _bindings(loop: ast.For, variables: set[str]) -> Iterator[tuple[str, ast.AST, Instead]]:
    """The functions that are made in a loop, each with the present values of the loop's variables that it uses."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} & variables
            arguments = changed(
                node.args,
                kwonlyargs=[*node.args.kwonlyargs, *(ast.arg(name) for name in sorted(used))],
                kw_defaults=[*node.args.kw_defaults, *(ast.Name(name, ast.Load()) for name in sorted(used))],
            )
            if used:
                yield "bind now", node, changed(node, args=arguments)
