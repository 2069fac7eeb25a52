"""Search files for the answers to the exercises: the reference answers, the other right ones, and the mistakes.

An answer is found in three ways: as text, whatever its line breaks and indentation, in any file and in any string of a
JSON file; line by line, in any order and with others between them; and as Python, whatever its names and layout, as the
body of a function, or as all methods of a class, anywhere in a module, a notebook's cell, a block of code in a text, or
a piece of code between backquotes.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from course_utils.exercises.engine import Exercise, source_of

SHORTEST_TEXT = 24  # characters; a shorter body, such as `return []`, says nothing about an answer
SHORTEST_LINE = 16
FEWEST_LINES = 2
FEWEST_NODES = 8  # of the syntax tree; the same for bodies compared as Python
TEXT_FILES = (".py", ".ipynb", ".md", ".json", ".toml", ".yml", ".txt", ".csv", ".html", ".css", ".svg")


@dataclass(frozen=True)
class Answer:
    """One answer to look for: whose, which, and its body as text and as Python."""

    exercise: str
    kind: str
    text: str
    lines: frozenset[str]
    body: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.exercise}"


@dataclass(frozen=True)
class Found:
    """An answer that stands in a file."""

    file: str
    answer: Answer
    how: str

    def __str__(self) -> str:
        return f"{self.file}: {self.answer} ({self.how})"


def answers_of(exercise: Exercise) -> list[Answer]:
    """Everything that must not be in a release, of one exercise."""
    functions = [("the reference answer", exercise.reference)]
    functions += [("another right answer", function) for function in exercise.accepted]
    functions += [("a mistake", mistake.function) for mistake in exercise.mistakes]
    return [_read_answer(exercise.name, kind, function) for kind, function in functions]


def _read_answer(name: str, kind: str, function: Callable) -> Answer:
    source = source_of(inspect.unwrap(function))
    node = ast.parse(source).body[0]
    body = _without_docstring(node.body)
    lines = source.splitlines()[body[0].lineno - 1 :] if body[0].lineno > node.lineno else [ast.unparse(body)]
    return Answer(name, kind, squeeze("\n".join(lines)), _telling_lines("\n".join(lines)), _dump(node))


def find_answers(files: Mapping[str, bytes], exercises: Sequence[Exercise]) -> list[Found]:
    """Every answer of `exercises` that stands in one of `files` (names to contents)."""
    answers = [answer for exercise in exercises for answer in answers_of(exercise)]
    found = []
    for name, content in files.items():
        if not name.endswith(TEXT_FILES) and "." in name.rpartition("/")[2]:
            continue
        pieces = list(_pieces(name, content.decode("utf-8")))
        text = "\n".join(squeeze(piece) for piece in pieces)
        lines = frozenset(line for piece in pieces for line in _telling_lines(piece))
        bodies = {_dump(node) for piece in pieces for tree in _python_in(piece) for node in ast.walk(tree)} - {""}
        for answer in answers:
            if len(answer.text) >= SHORTEST_TEXT and answer.text in text:
                found.append(Found(name, answer, "as text"))
            elif answer.body in bodies:
                found.append(Found(name, answer, "as Python"))
            elif len(answer.lines) >= FEWEST_LINES and answer.lines <= lines:
                found.append(Found(name, answer, "line by line"))
    return found


def _telling_lines(text: str) -> frozenset[str]:
    """The lines of `text` that say something: not a bracket, `try:` or `return x` alone."""
    return frozenset(line for line in map(squeeze, text.splitlines()) if len(line) >= SHORTEST_LINE)


def squeeze(text: str) -> str:
    """`text` with every run of blanks and line breaks as one blank."""
    return re.sub(r"\s+", " ", text).strip()


def _pieces(name: str, text: str) -> Iterator[str]:
    """A file's texts: itself, or every string of a JSON file (a list of lines, as notebooks have them, is one)."""
    if not name.endswith((".ipynb", ".json")):
        yield text
        return
    waiting = [json.loads(text)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            yield "".join(value)
        elif isinstance(value, list):
            waiting += value


def _python_in(text: str) -> Iterator[ast.Module]:
    """The Python in a text: all of it, or its blocks of code, or what stands between backquotes."""
    whole = _parse(text)
    if whole is not None:
        yield whole
        strings = (node.value for node in ast.walk(whole) if isinstance(node, ast.Constant))
        texts = [value for value in strings if isinstance(value, str) and "def " in value]
    else:
        texts = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    for inner in texts:
        if inner != text and (tree := _parse(textwrap.dedent(inner))) is not None:
            yield tree


def _parse(text: str) -> ast.Module | None:
    lines = [line for line in text.splitlines() if not line.startswith(("%", "!"))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's, about what a text between backquotes happens to say
            return ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):
        return None


def _dump(node: ast.AST) -> str:
    """What a function does, or all methods of a class, whatever the names; empty for others and for very short ones."""
    if isinstance(node, ast.ClassDef):
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        methods = [node]
    else:
        return ""
    bodies = [(each, _without_docstring(each.body)) for each in methods]
    parts = [part for _, body in bodies for each in body for part in ast.walk(each)]
    if sum(not isinstance(part, ast.expr_context) for part in parts) < FEWEST_NODES:
        return ""
    return "\n".join([type(node).__name__, *(_nameless(each, body) for each, body in bodies)])


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0].value if isinstance(body[0], ast.Expr) else None
    return body[1:] or body if isinstance(first, ast.Constant) and isinstance(first.value, str) else body


def _nameless(function: ast.FunctionDef | ast.AsyncFunctionDef, body: list[ast.stmt]) -> str:
    """The dump of `body` in which the names that the function binds are numbered in the order of their appearance."""
    bound = {part.arg for part in ast.walk(function) if isinstance(part, ast.arg)}
    bound |= {part.id for part in ast.walk(function) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    bound |= {part.name for part in ast.walk(function) if isinstance(part, ast.FunctionDef | ast.ClassDef)}
    numbers: dict[str, str] = {}

    def number(match: re.Match) -> str:
        name = match.group(2)
        return f"{match.group(1)}'{numbers.setdefault(name, f'v{len(numbers)}') if name in bound else name}'"

    return re.sub(r"\b(id=|arg=|name=)'(\w+)'", number, "\n".join(ast.dump(each) for each in body))
