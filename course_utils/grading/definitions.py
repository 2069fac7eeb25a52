"""Which code an answer needs: the definitions of the names that it uses.

A *definition* is a statement at the top level of a cell that only gives names a value: an import, a function, a class,
an assignment to plain names, or an `if` or `try` made of these. What changes a thing that is already there (an
attribute set, an item added, a call) is none, and stays behind.

A name means what it would mean if the notebook were run from top to bottom as far as the answer's cell: its last
definition up to there or, if there is none, the first one after. Names that a definition uses are looked up in the same
way, from where it stands; what a function or class uses, from the answer's cell too, because its body runs only then.
"""

import ast
import bisect
import contextlib
import functools
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Place = tuple[int, int]

DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Cell:
    """A code cell: its text, and either its syntax tree or the error that says why it has none."""

    id: str
    tags: tuple[str, ...]
    source: str
    tree: ast.Module | None = field(default=None, compare=False)
    error: SyntaxError | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Definition:
    """A statement that gives names a value, and where it stands: cell and position in the cell."""

    place: Place
    names: frozenset[str]
    source: str
    late: bool = False  # a function or class: what it uses may be defined later


def read_cell(source: str, cell_id: str = "", tags: Sequence[str] = ()) -> Cell:
    """Parse the text of a code cell. Lines for IPython (`%…`, `!…`, `…?`) count as empty, so that they do no harm."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        return Cell(cell_id, tuple(tags), source, _parse(source))
    except SyntaxError as error:
        plain = _without_magics(source)
        try:
            return Cell(cell_id, tuple(tags), plain, _parse(plain))
        except SyntaxError:
            return Cell(cell_id, tuple(tags), source, error=error)


@contextlib.contextmanager
def quiet_compiler() -> Iterator[None]:
    """Keep Python's warnings about a student's code off the grader's screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _parse(source: str) -> ast.Module:
    try:
        source.encode()
        with quiet_compiler():
            return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes, lone surrogates, endless nesting
        raise SyntaxError(str(error) or "it is nested too deeply") from None


PYTHON_MAGICS = ("capture", "time", "timeit", "prun")  # cell magics whose body is Python that the notebook runs


def _without_magics(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    blank_lines = re.match(r"(?:[ \t]*\n)*", source).group()
    body = source[len(blank_lines) :]
    if cell_magic := re.match(r"%%(\w+)[^\n]*", body):
        if cell_magic.group(1) not in PYTHON_MAGICS:
            return ""
        body = "pass" + body[cell_magic.end() :]
    try:
        body = TransformerManager().transform_cell(body)
    except SyntaxError:
        return source
    return blank_lines + re.sub(r"^([ \t]*)get_ipython\(\)\..*$", r"\1pass", body, flags=re.MULTILINE)


def text_of(node: ast.stmt, source: str) -> str:
    """The text of a top-level statement of `source`, decorators included."""
    if isinstance(node, DEFINES):
        return "\n".join(_lines(source)[first_line(node) - 1 : node.end_lineno])
    lines = _lines(source)[node.lineno - 1 : node.end_lineno]
    lines[-1] = lines[-1].encode()[: node.end_col_offset].decode()
    lines[0] = lines[0].encode()[node.col_offset :].decode()
    return "\n".join(lines)


@functools.lru_cache(maxsize=8)
def _lines(source: str) -> list[str]:
    return source.split("\n")


def first_line(node: DEFINES) -> int:
    """The line on which a function or class begins, decorators included."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def definitions_in(cells: Iterable[Cell]) -> list[Definition]:
    """All definitions at the top level of `cells`, in order. Each name of an import is a definition of its own."""
    found = []
    for number, cell in enumerate(cells):
        position = 0
        for node in cell.tree.body if cell.tree else []:
            try:
                defined = list(_define(node, cell.source))
            except RecursionError:  # nested too deeply to be looked through: nobody's definition
                continue
            for names, source in defined:
                found.append(Definition((number, position), frozenset(names), source, isinstance(node, DEFINES)))
                position += 1
    return found


def _define(node: ast.stmt, source: str) -> Iterator[tuple[set[str], str]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield _imported(alias), ast.unparse(type(node)(**vars(node) | {"names": [alias]}))
    elif names := _bound(node):
        yield names, text_of(node, source)


def _imported(alias: ast.alias) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0]}


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, DEFINES):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return set().union(*map(_imported, node.names))
    if isinstance(node, ast.Assign):
        parts = [part for target in node.targets for part in ast.walk(target)]
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        return set() if any(isinstance(part, ast.Attribute | ast.Subscript) for part in parts) else names
    if isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.If | ast.Try):
        handled = [one for handler in getattr(node, "handlers", []) for one in handler.body]
        inner = [*node.body, *node.orelse, *getattr(node, "finalbody", []), *handled]
        found = [_bound(one) for one in inner if not isinstance(one, ast.Pass)]
        return set().union(*found) if all(found) else set()
    return set()


def used_names(source: str) -> set[str]:
    """The names that `source` takes from outside: not its functions' own variables; built-in names included.

    Raises `SyntaxError` for what parses and cannot be compiled, such as two arguments of one name.
    """

    def look(table: symtable.SymbolTable, outermost: bool) -> Iterator[str]:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (outermost or symbol.is_global()):
                yield symbol.get_name()
        for child in table.get_children():
            yield from look(child, False)

    try:
        with quiet_compiler():
            return set(look(symtable.symtable(source, "answer", "exec"), True))
    except RecursionError:
        raise SyntaxError("it is nested too deeply") from None


class Names:
    """The names that the cells of one notebook define."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._by_name: dict[str, list[Definition]] = {}
        for definition in definitions_in(cells):
            for name in definition.names:
                self._by_name.setdefault(name, []).append(definition)

    def find(self, name: str, before: Place) -> Definition | None:
        """The last definition of `name` before a place or, if there is none, the first one after it."""
        found = self._by_name.get(name)
        if not found:
            return None
        return found[max(0, bisect.bisect_left(found, before, key=lambda each: each.place) - 1)]

    def needed(self, names: Iterable[str], cell: int, but: str) -> tuple[list[str], set[str]]:
        """What an answer in cell number `cell` needs for `names`: definitions in their order, and names without one.

        `but` is the answer's own name, which needs no other definition.
        """
        here = (cell + 1, 0)  # all of the answer's cell counts as before
        chosen: dict[Place, Definition] = {}
        missing: set[str] = set()
        waiting = [(name, here) for name in sorted(names)]
        seen = set()
        while waiting:
            name, before = waiting.pop()
            if name == but or (name, before) in seen:
                continue
            seen.add((name, before))
            found = self.find(name, before)
            if found is None:
                missing.add(name)
            elif found.place not in chosen:
                chosen[found.place] = found
                places = [found.place, here] if found.late else [found.place]
                with contextlib.suppress(SyntaxError):  # it will not run either, and the driver says so
                    waiting += [(used, place) for used in used_names(found.source) for place in places]
        if missing:  # any of them may come from a `from … import *`
            chosen |= {each.place: each for each in self._by_name.get("*", []) if each.place < here}
        return [chosen[place].source for place in sorted(chosen)], missing
