"""The lessons' exercises without their answers: what a process may know in which a student's code runs.

A lesson's module is read as text, and the answers, the mistakes, and every private helper that only these use are taken
out before it is compiled: they are neither in the process's memory nor reachable by an import. What does the work of an
exercise elsewhere (lesson 04 has torch's own steps of a call), `forget` removes.
"""

import ast
import importlib
import sys
import types

from course_utils.exercises.declaration import decorators, lesson_files, without_answer
from course_utils.exercises.engine import PACKAGE


def load_bare_lessons() -> None:
    """Put the bare edition of every lesson's exercises where `import` finds it. Once, in a fresh process."""
    for path in lesson_files():
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
    tree.body = [node for node in tree.body if not (decorators(node).keys() & {"accept", "mistake"} or _is_said(node))]
    for node in tree.body:
        if "exercise" in decorators(node):
            without_answer(node)
    defined = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    helpers = [node for node in defined if not decorators(node).keys() & {"cases", "exercise"} and node.name[0] == "_"]
    unused = None
    while unused != []:
        names = ((node, part) for node in tree.body for part in ast.walk(node) if isinstance(part, ast.Name))
        used = {part.id for node, part in names if part.id != getattr(node, "name", None)}
        unused = [node for node in tree.body if node in helpers and node.name not in used]
        tree.body = [node for node in tree.body if node not in unused]
    return ast.fix_missing_locations(tree)


def _is_said(node: ast.stmt) -> bool:
    """Whether a statement says which edits of an answer are right as well: `x.equivalent("…", "…")`."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="equivalent"))):
            return True
    return False


def forget(name: str) -> None:
    """Take out of this process what does the work of exercise `name` without being the course's answer to it."""

    def forgotten(*_: object, **__: object) -> None:
        raise NotImplementedError

    steps = importlib.import_module(f"{PACKAGE}.torch_steps").TorchSteps
    if name in vars(steps):
        setattr(steps, name, forgotten)
