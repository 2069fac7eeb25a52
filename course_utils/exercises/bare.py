"""Lessons' exercises without their answers: what a process may know in which a student's code runs.

A process that no student's code reaches reads the lessons' modules as text, takes out the answers, the mistakes, the
hints, and every private helper that only these use, and compiles the rest (`bare_lessons`). The other process gets the
compiled modules alone (`load_bare_lessons`), so that it never holds an answer, not even in memory that it has given
back. What does the work of an exercise elsewhere, `forget` (in lesson 04's `torch_steps`) removes.
"""

import ast
import importlib
import marshal
import sys
import types
from collections.abc import Callable

from course_utils.exercises.declaration import PACKAGE, decorators, lesson_files, without_answer
from course_utils.root import CourseError

# What lessons import from their room beside the exercises.
HELPERS = ("blind", "broken_nets", "channels", "figures", "own", "patient", "sanity", "two_heads")


def bare_lessons() -> bytes:
    """The compiled modules of all lessons without their answers and hints, for `load_bare_lessons`. Needs no torch."""
    try:
        texts = {path: path.read_text(encoding="utf-8") for path in lesson_files()}
        return marshal.dumps({path.stem: compile(strip(text), str(path), "exec") for path, text in texts.items()})
    except (OSError, SyntaxError) as error:  # somebody may edit them now
        raise CourseError(f"the lessons cannot be read: {type(error).__name__}: {error}") from None


def load_bare_lessons(modules: bytes) -> None:
    """Put the bare edition of every lesson's exercises where `import` finds it. Once, in a fresh process.

    The lessons' helpers are imported as well, for nothing of their room can be read later.
    """
    for stem, code in marshal.loads(modules).items():
        name = f"{PACKAGE}.{stem}"
        if name in sys.modules:
            raise RuntimeError(f"{name} has been imported with its answers; a bare edition needs a fresh process")
        sys.modules[name] = module = types.ModuleType(name)
        exec(code, vars(module))
        setattr(importlib.import_module(PACKAGE), stem, module)
    for stem in HELPERS:
        getattr(importlib.import_module(f"{PACKAGE}.{stem}"), "prepare", list)()  # reads the files that it needs


def strip(source: str, hints: Callable[[str], int] = lambda name: 0) -> ast.Module:
    """The syntax tree of a lesson's module without the answers in it; `hints(name)` says how many hints to keep."""
    tree, helpers = ast.parse(source), []
    for node in list(tree.body):
        declared = decorators(node)
        # `x.equivalent("…", "…")` says which edits of an answer are right as well.
        is_said = isinstance(node, ast.Expr) and ast.unparse(node).partition("(")[0].endswith(".equivalent")
        if is_said or declared.keys() & {"accept", "mistake"}:
            tree.body.remove(node)
        elif "exercise" in declared:
            without_answer(node)
            for said in (each.value for each in declared["exercise"].keywords if each.arg == "hints"):
                said.elts = said.elts[: hints(node.name)]
        elif "cases" not in declared and getattr(node, "name", "").startswith("_"):
            helpers.append(node)
    unused = helpers
    while unused:
        names = ((node, part) for node in tree.body for part in ast.walk(node) if isinstance(part, ast.Name))
        used = {part.id for node, part in names if part.id != getattr(node, "name", None)}
        unused = [node for node in tree.body if node in helpers and node.name not in used]
        tree.body = [node for node in tree.body if node not in unused]
    return ast.fix_missing_locations(tree)
