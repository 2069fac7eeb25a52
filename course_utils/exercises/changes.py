"""Changes of one line in an answer, told so that its author sees the line: what questions about it are made of."""

import ast
import inspect
import itertools
import linecache
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from course_utils.exercises.edits import Instead, changed, define, edits_of, replace
from course_utils.exercises.evidence import codes_of, namespace_of, with_inner

DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
LONGEST = 120  # characters of a line that is shown
MOST_LINES = 3  # of a statement that is left out
# The edits that say most about hooks come first, then all others, and at last those that only change a number.
TELLING = ("a statement less", "no return", "no remove", "no clone", "no detach", "no with", "no finally", "no try")
TELLING += ("late binding", "in place", "not in place", "no decorator", "never", "always")
SMALL = ("other constant", "one operand", "compute otherwise", "compare otherwise", "no index", "an argument less")
SMALLEST = 2  # the rank of those
UNFAIR = {"only once", "of an argument the first only", "swallow", "except less", "no except", "a method less"}
BLOCKS = {
    "no with": "You leave out {head} and keep the lines in it.",
    "always": "You leave out {head} and keep the lines in it.",
    "never": "You leave out {head} and the lines in it.",
    "never, alone": "You put `pass` in place of {head} and the lines in it.",
    "no try": "You leave out the `try` in line {line} and its `finally`, and keep all lines in them.",
    "no finally": "You leave out the `finally` with the lines in it, and the word `try` in line {line}.",
}


class Source(NamedTuple):
    """An answer's text: its syntax tree, its lines without what all of them are indented by, the number of the first
    line in its cell, and the names among which it runs.
    """

    tree: ast.FunctionDef | ast.ClassDef
    lines: list[str]
    first: int
    namespace: Mapping[str, object]

    def number(self, line: int) -> int:
        """The number in the cell of a line of the syntax tree."""
        return self.first + line - 1

    def text(self, number: int) -> str:
        """The line with this number in the cell."""
        return self.lines[number - self.first].strip()

    @property
    def steps(self) -> set[int]:
        """The numbers of the lines with a step of their own: neither a definition nor the head of a block."""
        nodes = [each for each in ast.walk(self.tree) if isinstance(each, ast.stmt) and not hasattr(each, "body")]
        return {self.number(each.lineno) for each in nodes}

    @property
    def blocks(self) -> list[list[Any]]:
        """All lists in the tree, among them the statements of each block."""
        return [value for each in ast.walk(self.tree) for value in vars(each).values() if isinstance(value, list)]

    def stand_together(self, numbers: Sequence[int]) -> bool:
        """Whether the statements of these lines stand in one block."""
        lines = [{self.number(each.lineno) for each in block if isinstance(each, ast.stmt)} for block in self.blocks]
        return any({*numbers} <= block for block in lines)


class Change(NamedTuple):
    """One line of an answer, changed or left out: in words, and what can be run."""

    rank: int  # 0 for the changes that say most
    words: str
    key: str  # the words without the numbers of lines
    function: Callable


def read_source(function: Callable) -> Source | None:
    """The text of a function or class; None where there is none, as for what was not typed into a cell."""
    answer = inspect.unwrap(function)
    try:
        lines, first = _find_class(answer) if inspect.isclass(answer) else inspect.getsourcelines(answer)
        text = textwrap.dedent("".join(lines))
        tree = ast.parse(text).body[-1]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if not isinstance(tree, DEFINITIONS) or getattr(answer, "__closure__", None):
        return None
    return Source(tree, text.splitlines(), first, namespace_of(answer))


def _find_class(answer: type) -> tuple[list[str], int]:
    """The lines of a class and the number of the first. (For one of a notebook, `inspect` finds no file.)"""
    code = codes_of(answer)[0]  # of a method
    lines = linecache.getlines(code.co_filename)
    for node in ast.parse("".join(lines)).body:
        if isinstance(node, ast.ClassDef) and node.lineno <= code.co_firstlineno <= node.end_lineno:
            first = min(each.lineno for each in (node, *node.decorator_list))
            return lines[first - 1 : node.end_lineno], first
    raise OSError(f"{answer.__name__} is not in its file.")


def changes_of(source: Source) -> Iterator[Change]:
    """The changes of an answer that can be told in a sentence and run, each text once.

    The most telling one of each line comes first, and then the second of each.
    """
    before = "\n".join(source.lines)
    seen, own = {before}, define(before, source.tree.name, source.namespace)
    for operator, old, new, home in _in_turn(source):
        written = _write(source, operator, old, new, home)
        if written is None or written[2] in seen:
            continue
        words, key, text = written
        if "empty" in text or "seed" in key:  # nobody knows what is in new memory, or what is drawn
            continue
        seen.add(text)
        # An error, and the record of events, then have the numbers of the lines in the cell.
        function = define("\n" * (source.first - 1) + text, source.tree.name, source.namespace)
        if function is not None and not _unbinds(own, function):
            yield Change(_rank(source.tree, operator, old), words, key, function)


def _unbinds(before: Callable, after: Callable) -> bool:
    """Whether a change lets a name be read that is bound no more; in the kernel may be another thing of that name."""
    (bound, _), (still_bound, read) = _names_in(before), _names_in(after)
    return not read.isdisjoint(bound - still_bound)


def _names_in(function: Callable) -> tuple[set[str], set[str]]:
    """The names that a function, or a class's methods, bind, and those that they read from elsewhere."""
    codes = [each for code in codes_of(function) for each in with_inner(code)]
    bound = {name for code in codes for name in (*code.co_varnames, *code.co_cellvars)}
    return bound, {name for code in codes for name in code.co_names}


def _in_turn(source: Source) -> list[tuple[str, ast.AST, Instead, ast.stmt]]:
    """The edits that may be asked about, one of each line after the other, each with the statement that it is in."""
    homes = {id(part): each for each in ast.walk(source.tree) if isinstance(each, ast.stmt) for part in ast.walk(each)}
    found = [(*edit, homes[id(edit[1])]) for edit in edits_of(source.tree) if id(edit[1]) in homes]
    found = [
        edit
        for edit in found
        if edit[0] not in UNFAIR and not edit[0].startswith("no __") and not _is_silly(source, edit[1], edit[3])
    ]
    found.sort(key=lambda edit: _rank(source.tree, *edit[:2]))
    by_line = defaultdict(list)
    for edit in found:
        by_line[edit[3].lineno].append(edit)
    turns = itertools.zip_longest(*by_line.values())
    return [edit for turn in turns for edit in turn if edit]


def _rank(tree: ast.AST, operator: str, old: ast.AST) -> int:
    is_last = operator == "no return" and old in getattr(tree, "body", ())  # then nothing comes back, as everybody sees
    return SMALLEST if operator in SMALL or is_last else 0 if operator in TELLING else 1


def _is_silly(source: Source, old: ast.AST, home: ast.stmt) -> bool:
    """Whether an edit would only touch words (a docstring, a message, a text that is put together), or put a module or
    a `with` to a use that nobody thinks of.
    """
    match old:
        case ast.Expr(ast.Constant()):
            return True
        case ast.Call(ast.Attribute(value=ast.Name(name))) if isinstance(source.namespace.get(name), ModuleType):
            return True
        case ast.Call() if any(old is part.context_expr for part in getattr(home, "items", ())):
            return True
    if isinstance(home, ast.Raise | ast.Assert):
        return old is not home
    texts = [part for part in ast.walk(home) if isinstance(part, ast.JoinedStr)]
    return any(old is part for text in texts for part in ast.walk(text))


def _write(source: Source, operator: str, old: ast.AST, new: Instead, home: ast.stmt) -> tuple[str, str, str] | None:
    """A change in words, with numbers of lines and without, and the whole text with it; None where it has no words."""
    if new == [] and isinstance(home, ast.stmt) and not hasattr(old, "body"):
        return _leave_out(source, old)
    if operator in BLOCKS:
        return _open_block(source, operator, old)
    if operator == "no decorator" and len(old.decorator_list) == 1:
        return _leave_out(source, old.decorator_list[0], "")
    if operator == "no return" and isinstance(old, ast.Lambda):
        new = changed(old, body=ast.Constant(None))
    if getattr(old, "end_lineno", None) == getattr(old, "lineno", 0) and not isinstance(new, list):
        return _splice(source, old, _text_of(source, new))
    return _rewrite(source, home, replace(home, old, new))


def _leave_out(source: Source, node: ast.AST, instead: str = "pass") -> tuple[str, str, str] | None:
    """A statement with lines of its own is left out, or a decorator, in whose place nothing need stand."""
    start, end = node.lineno - 1, node.end_lineno
    first, last = source.lines[start], source.lines[end - 1]
    indent = len(first) - len(first.lstrip())
    is_first = node.col_offset == (indent if instead else indent + len("@"))
    is_last = not last.encode()[node.end_col_offset :].strip()
    if not (is_first and is_last) or end - start > MOST_LINES:
        return None
    lines = [*source.lines[:start], " " * indent + instead, *[""] * (end - start - 1), *source.lines[end:]]
    text = f"`{first.strip()}`"
    what = f"line {source.number(start + 1)}, {text}"
    if end - start > 1:
        what = f"lines {source.number(start + 1)} to {source.number(end)}, from {text} on"
    needs_pass = instead and [node] in source.blocks
    words = f"You put `pass` in place of {what}." if needs_pass else f"You leave out {what}."
    return _fit(words, f"leave out {text}", lines, text)


def _open_block(source: Source, operator: str, old: ast.stmt) -> tuple[str, str, str] | None:
    """A `with`, an `if` or a `try` is left out, with the lines in it or without: `if True:` takes its place."""
    if getattr(old, "orelse", []) or getattr(old, "handlers", []):
        return None
    left_out = {"never": [old], "no finally": getattr(old, "finalbody", [])}.get(operator, [])
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for node in left_out for each in ast.walk(node)):
        return None  # below `if False:` a `yield` still makes a generator
    line, head = old.lineno, source.lines[old.lineno - 1].strip()
    instead = {line: "if False:" if operator == "never" else "if True:"}
    if isinstance(old, ast.Try):
        end = max(n for n in range(line, old.finalbody[0].lineno) if source.lines[n - 1].strip().startswith("finally"))
        instead[end] = "if False:" if operator == "no finally" else "if True:"
    heads = [source.lines[number - 1].strip() for number in instead]
    if not all(each.endswith(":") and not each.startswith("elif") for each in heads):
        return None
    lines = list(source.lines)
    for number, text in instead.items():
        lines[number - 1] = lines[number - 1].replace(lines[number - 1].strip(), text)
    number = source.number(line)
    kind = "never, alone" if operator == "never" and [old] in source.blocks else operator
    words = BLOCKS[kind].format(head=f"line {number}, `{head}`,", line=number).replace(":`,", ":`")
    return _fit(words, f"{operator} {head}", lines, head)


def _text_of(source: Source, new: ast.AST) -> str:
    """A node as text: as it stands there, where it is a part of the answer."""
    part = new.value if isinstance(new, ast.Expr) else new
    if any(part is each for each in ast.walk(source.tree)):
        return ast.get_source_segment("\n".join(source.lines), part)
    return ast.unparse(ast.fix_missing_locations(new))


def _splice(source: Source, old: ast.AST, text: str) -> tuple[str, str, str] | None:
    """Other text in the place of a node that stands in one line."""
    line = source.lines[old.lineno - 1].encode()
    new = line[: old.col_offset] + text.encode() + line[old.end_col_offset :]
    return _tell_two(source, old.lineno, new.decode())


def _rewrite(source: Source, old: ast.stmt, new: Instead) -> tuple[str, str, str] | None:
    """A statement of which only the first line differs, where it is written as Python itself would write it."""
    if isinstance(new, list):
        return None
    before, after = (ast.unparse(ast.fix_missing_locations(each)).splitlines() for each in (old, new))
    line = source.lines[old.lineno - 1]
    if before[1:] != after[1:] or before[0] != line.strip() or before[0] == after[0]:
        return None
    return _tell_two(source, old.lineno, line.replace(before[0], after[0]))


def _tell_two(source: Source, number: int, line: str) -> tuple[str, str, str] | None:
    """Another line in the place of the one with this number."""
    lines = [*source.lines[: number - 1], line, *source.lines[number:]]
    old, new = source.lines[number - 1].strip(), line.strip()
    words = f"You change line {source.number(number)}\nfrom `{old}`\nto `{new}`."
    return _fit(words, f"change `{old}`\nto `{new}`", lines, old, new)


def _fit(words: str, key: str, lines: Sequence[str], *shown: str) -> tuple[str, str, str] | None:
    is_short = all(0 < len(text) <= LONGEST and text.count("`") in (0, 2) for text in shown)
    return (words, key, "\n".join(lines)) if is_short else None
