"""What runs beside an answer: takes its text, tries it in the exercise's cases, and shows what it did as JSON.

It draws no conclusions and knows no right answer's results; whatever goes wrong becomes part of the evidence.
"""

import ast
import codeop
import contextlib
import importlib
import json
import linecache
import os
import pkgutil
import sys
import types
from typing import Any
from unittest.mock import MagicMock

from course_utils import lessons
from course_utils.exercises.declaration import is_blank
from course_utils.exercises.engine import find
from course_utils.exercises.evidence import TimeIsUp, describe_error, time_limit
from course_utils.grading.sandbox.tasks import BEGUN
from course_utils.lessons.torch_steps import forget

write_record = json.JSONEncoder(allow_nan=False).encode  # made before an answer could change the json module
# Stands for what only a notebook has, such as `get_ipython()`: takes every call, and does nothing.
SHELL = MagicMock()


def load_room() -> None:
    """Import all that a lesson has for its notebook, and read its files, for a process that cannot read them later.

    The pages of answers are in a folder of their own, which nothing here opens.
    """
    for module in pkgutil.iter_modules(lessons.__path__, f"{lessons.__name__}."):
        getattr(importlib.import_module(module.name), "prepare", list)()


def record_answer(told: int, exercise: str, support: str, answer: str, seed: int) -> None:
    """Say on the file `told` that the answer begins, and then what it did; for a process that has its walls."""
    forget(exercise)
    with open(told, "wb") as file:
        os.write(told, BEGUN)
        file.write(write_record(observe_answer(exercise, support, answer, seed)).encode())


def observe_answer(name: str, support: str, answer: str, seed: int) -> dict[str, Any]:
    """Define an answer from its text in a module of its own, and observe it in every case of `seed`.

    Returns `exercise`, `blank` (it is the empty skeleton), `raised` (what defining it raised, or None), `lost` (what
    definitions that it uses raised) and `cases` (the evidence of each case). Raises nothing of the answer's.
    """
    found: dict[str, Any] = {"exercise": name, "blank": False, "raised": None, "lost": [], "cases": []}
    exercise = find(name)
    notebook, before = types.ModuleType("__main__"), sys.modules["__main__"]
    names, filename = vars(notebook), f"<answer {name}>"
    names |= {"get_ipython": SHELL, "display": lambda *_, display_id=None, **__: SHELL if display_id else None}
    sys.modules.setdefault("IPython.core.getipython", SHELL)  # where IPython takes `get_ipython` from, when imported
    sys.modules["__main__"] = notebook  # pickle and others look there
    for place, text in (("<support>", support), (filename, answer)):  # for tracebacks, and `inspect`
        linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            compiler = codeop.Compile()  # remembers what is imported from `__future__`, as a notebook does
            with time_limit(exercise.limit):
                found["lost"] = define_support(support, names, compiler)
            with time_limit(exercise.limit):
                exec(compiler(answer, filename, "exec"), names)
        found["blank"] = is_blank(names[name])
        found["cases"] = [] if found["blank"] else exercise.observe(names[name], seed)
    except BaseException as error:  # whatever an answer can throw, KeyboardInterrupt and SystemExit too, is evidence
        found["raised"] = describe_error(error, "call")
    finally:
        sys.modules["__main__"] = before
    return found


def define_support(source: str, namespace: dict[str, Any], compiler: codeop.Compile) -> list[str]:
    """Run the definitions one by one; one that raises is left out, and what it raised is returned in words."""
    lost = []
    for node in ast.parse(source).body:
        try:
            exec(compiler(ast.Module([node], []), "<support>", "exec"), namespace)
        except (Exception, TimeIsUp) as error:
            first = ast.get_source_segment(source, node).splitlines()[0]
            lost.append(f"`{first[:80]}` raised {type(error).__name__}: {str(error)[:200]}")
    return lost
