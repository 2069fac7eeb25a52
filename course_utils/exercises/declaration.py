"""What is known of an exercise before anything of it runs: its name, task, points and hints. Needs no torch.

A lesson declares an exercise with `@exercise(lesson=…, points=…, hints=[…])` above its reference answer. Here that is
read as text; `engine.Exercise` says the same, and can be run.
"""

import ast
import dis
import functools
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.exercises.outcome import Outcome, Stage

PACKAGE = "course_utils.lessons"
LESSONS = Path(__file__).resolve().parents[1] / "lessons"
DOES_NOTHING = {"RESUME", "NOP", "LOAD_CONST", "POP_TOP", "RETURN_CONST", "RETURN_VALUE"}


@dataclass
class Declaration:
    """What the declaration of an exercise says. Its name is the reference answer's name, and its key everywhere."""

    name: str
    lesson: int
    points: int
    hints: tuple[str, ...]

    @property
    def source(self) -> str:
        """The reference answer's text without its decorator, as it would stand in a notebook."""
        return _read(self.lesson)[self.name][0]

    def not_attempted(self, advice: str) -> Outcome:
        """The outcome for an answer that is not there yet."""
        return Outcome(self.name, Stage.NOT_ATTEMPTED, advice[0].upper() + advice[1:], possible=self.points)


def read_declarations(lesson: int | None = None) -> list[Declaration]:
    """The exercises of a lesson, or of all, in the order of their declaration. Nothing is imported.

    Raises `ValueError` where a declaration is more than names and literal values.
    """
    numbers = [int(path.stem[-2:]) for path in lesson_files()] if lesson is None else [lesson]
    return [
        Declaration(name, said["lesson"], said.get("points", 1), tuple(said["hints"]))
        for number in numbers
        for name, (_, said) in _read(number).items()
    ]


def lesson_files() -> list[Path]:
    """The modules that declare exercises, in order."""
    return sorted(LESSONS.glob("lesson_[0-9][0-9].py"))


@functools.cache
def _read(lesson: int) -> dict[str, tuple[str, dict[str, Any]]]:
    path = LESSONS / f"lesson_{lesson:02}.py"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = {}
    for node in ast.parse(text).body:
        if "exercise" in (declared := decorators(node)):
            said = {each.arg: ast.literal_eval(each.value) for each in declared["exercise"].keywords}
            found[node.name] = "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]) + "\n", said
    return found


@functools.cache
def renamed() -> dict[str, str]:
    """What exercises and predictions are called today, by each name that `formerly` says they had."""
    found = {}
    for text in (path.read_text(encoding="utf-8") for path in lesson_files()):
        for node in ast.parse(text).body if "formerly=" in text else ():
            call = decorators(node).get("exercise") or getattr(node, "value", None)
            for said in (each.value.value for each in getattr(call, "keywords", ()) if each.arg == "formerly"):
                found |= dict.fromkeys(said.split(), getattr(node, "name", "") or call.args[0].value)
    return found


def with_new_names(code: str) -> str:
    """A cell's code in which everything that was renamed is called what it is called today."""
    for old, new in renamed().items():
        code = re.sub(rf"(?<![\w.]){old}(?!\w)", new, code)
    return code


def decorators(node: ast.AST) -> dict[str, ast.expr]:
    """The decorators of a definition by their last names: `@x.mistake("…")` is `mistake`."""
    found = {}
    for decorator in getattr(node, "decorator_list", []):
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        found[name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")] = decorator
    return found


def without_answer(node: ast.FunctionDef | ast.ClassDef) -> ast.FunctionDef | ast.ClassDef:
    """Leave of a reference answer its signature and its docstring; changes `node`."""
    node.body = [*node.body[: ast.get_docstring(node) is not None], ast.Expr(ast.Constant(...))]
    return node


def is_blank(answer: object) -> bool:
    """Whether a function, or every method of a class, does nothing yet: only a docstring, `...` or `pass`."""
    if inspect.isclass(answer):
        return all(is_blank(value) for value in vars(answer).values() if inspect.isfunction(value))
    if not inspect.isfunction(answer) or {*answer.__code__.co_consts} - {None, answer.__doc__}:
        return False
    return {step.opname for step in dis.get_instructions(answer)} <= DOES_NOTHING
