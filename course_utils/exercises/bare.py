"""The lessons' exercises without their answers: what a process may know in which a student's code runs.

A lesson's module is read as text, and before anything of it is compiled, the bodies of the reference answers, the other
right answers, the mistakes, and every private helper that only these use are taken out. So they are neither in the
process's memory nor reachable by an import. What does the work of the current exercise elsewhere (lesson 04 has torch's
own steps of a call), `forget` removes.
"""

from __future__ import annotations

import ast
import importlib
import sys
import types
from collections.abc import Iterable
from pathlib import Path

from course_utils.exercises import engine
from course_utils.lessons.torch_steps import TorchSteps

PACKAGE = "course_utils.lessons"
LESSONS = Path(engine.__file__).parents[1] / "lessons"


def load_bare_lessons() -> None:
    """Put the bare edition of every lesson's exercises where `import` finds it. Once, in a fresh process."""
    for path in sorted(LESSONS.glob("lesson_[0-9][0-9].py")):
        name = f"{PACKAGE}.{path.stem}"
        if name in sys.modules:
            raise RuntimeError(f"{name} has been imported with its answers; a bare edition needs a fresh process")
        module = types.ModuleType(name)
        module.__package__ = PACKAGE
        module.__file__ = str(path)
        sys.modules[name] = module
        exec(compile(strip(path.read_text(encoding="utf-8")), str(path), "exec", dont_inherit=True), vars(module))
        setattr(importlib.import_module(PACKAGE), path.stem, module)


def strip(source: str) -> ast.Module:
    """The syntax tree of a lesson's module without the answers in it."""
    tree = ast.parse(source)
    kept = [node for node in tree.body if not _is_answer(node)]
    for node in kept:
        if _decorators(node) & {"exercise"}:
            _empty(node)
    tree.body = _without_unused(kept)
    return ast.fix_missing_locations(tree)


def forget(name: str) -> None:
    """Take out of this process what does the work of exercise `name` without being the course's answer to it."""
    if name in vars(TorchSteps):
        setattr(TorchSteps, name, _forgotten)


def _forgotten(*_: object, **__: object) -> None:
    raise NotImplementedError


def _decorators(node: ast.AST) -> set[str]:
    """The last names of a definition's decorators: `@x.mistake("…")` is `mistake`."""
    found = set()
    for decorator in getattr(node, "decorator_list", []):
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        found.add(call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", ""))
    return found


def _is_answer(node: ast.AST) -> bool:
    return bool(_decorators(node) & {"accept", "mistake"})


def _empty(node: ast.FunctionDef | ast.ClassDef) -> None:
    """Leave of a reference answer its signature and its docstring."""
    doc = [node.body[0]] if ast.get_docstring(node) is not None else []
    node.body = [*doc, ast.Expr(ast.Constant(...))]


def _without_unused(nodes: list[ast.stmt]) -> list[ast.stmt]:
    """Without the private functions and classes that nothing else uses: the helpers of what was taken out."""
    while True:
        used = {name for node in nodes for name in _names_in(node, but=getattr(node, "name", None))}
        kept = [node for node in nodes if not _is_private_helper(node) or node.name in used]
        if len(kept) == len(nodes):
            return nodes
        nodes = kept


def _is_private_helper(node: ast.stmt) -> bool:
    definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
    return definition and node.name.startswith("_") and not _decorators(node) & {"cases", "exercise"}


def _names_in(node: ast.AST, but: str | None) -> Iterable[str]:
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id != but)
