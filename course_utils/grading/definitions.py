"""The cells of a notebook as statements, and which of them an answer needs: those that give its names their values.

A *definition* is a statement at the top level of a cell that binds names. It travels whole, with all that binds the
names that it uses. What only changes something (`x.append(1)`) does not travel; where an answer fails without it, the
whole notebook is run (see `answers.choose_cells`). Nothing here is run.
"""

import ast
import codecs
import contextlib
import functools
import json
import re
import symtable
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from course_utils.root import CourseError

Place = tuple[int, int]  # the number of a cell, and the position of a statement in it
DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MAX_CODE = 500_000  # characters: Python needs a kilobyte and more to parse some of them
MOST_MAGICS = 100  # lines for IPython in a cell, which reads all of the cell anew for each
MAGIC = re.compile(r"^[ \t]*[%!?]|=[ \t]*[!%]|\?[ \t]*$", re.MULTILINE)
# A magic whose cell is Python that the notebook runs, and empty lines before and after it.
ABOVE = re.compile(r"(?:[ \t]*\n)*(?:%%(?:capture|time|timeit|prun)\b.*\n)?(?:[ \t]*\n)*")


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a cell, and what it does with names."""

    source: str
    line: int  # the first one in its cell, decorators included
    binds: set[str]  # see `read_names`
    uses: set[str]
    defines: set[str]  # what it binds with `def` or `class`


@dataclass(frozen=True)
class Cell:
    """A code cell: its text, its statements, and the error that says why it lacks some or all of them."""

    id: str
    tags: Sequence[str]
    source: str
    statements: Sequence[Statement] = ()
    error: SyntaxError | None = None


@contextlib.contextmanager
def quiet_parser() -> Iterator[None]:
    """Keep Python's warnings about a student's code off the grader's screen; what it cannot do is a `SyntaxError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ValueError, RecursionError, MemoryError) as error:  # null bytes, lone surrogates, endless nesting
            raise SyntaxError(f"{error}" if isinstance(error, ValueError) else "it is nested too deeply") from None


def read_cell(source: str, cell_id: str = "", tags: Sequence[str] = ()) -> Cell:
    """Parse the text of a code cell. Lines for IPython (`%…`, `!…`, `…?`) are read as the calls that they stand for."""
    source = source.lstrip(codecs.BOM_UTF8.decode()).replace("\r\n", "\n").replace("\r", "\n")
    with contextlib.suppress(SyntaxError):
        return Cell(cell_id, tags, source, *_read_statements(source))
    try:
        return Cell(cell_id, tags, source, *_read_statements(_without_magics(source)))
    except SyntaxError as error:
        return Cell(cell_id, tags, source, error=error)


@quiet_parser()
def _without_magics(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    if sum(1 for _ in MAGIC.finditer(source)) > MOST_MAGICS:
        raise SyntaxError(f"it has more than {MOST_MAGICS} lines for IPython")
    above = ABOVE.match(source)[0]
    return "\n" * above.count("\n") + TransformerManager().transform_cell(source[len(above) :])


def read_cells(data: bytes) -> list[Cell]:
    """The code cells of a notebook file of any version; `CourseError` with a reason if it is no notebook."""
    if not data.strip():
        raise CourseError("it is empty")
    try:
        text = decode(data)
        notebook = None if is_script(text) else json.loads(text)
    except (ValueError, RecursionError) as error:
        why = f"it is not complete JSON in UTF-8, so it was cut off or is no notebook ({error})"
        raise CourseError(_say_what_else_it_is(data) or why) from None
    if is_script(text):
        return [read_cell(part) for part in _read_script(text)]
    version = notebook.get("nbformat") if isinstance(notebook, dict) else None
    if version not in (1, 2, 3, 4):
        raise CourseError(f"it is JSON, but no notebook of version 1 to 4: its nbformat is {version}")
    if version < 4:
        import nbformat

        try:
            notebook = nbformat.reads(text, as_version=4)
        except Exception as error:  # an old notebook may be broken in any way; none may stop the batch
            raise CourseError(f"it is an old notebook that cannot be converted ({error!r})") from None
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise CourseError("it is a notebook without a list of cells")
    cells = [cell for cell in cells if isinstance(cell, dict)]
    # One key turns a cell into text by mistake: an answer's cell is one all the same.
    code = [cell for cell in cells if cell.get("cell_type") == "code" or "answer" in _tags(cell)]
    size = sum(len(str(cell.get("source", ""))) for cell in code)
    if size > MAX_CODE:
        raise CourseError(f"its code cells hold {size:,} characters; the most that is read is {MAX_CODE:,}")
    return join_split_cells(_read_cell_of(cell) for cell in code)


def join_split_cells(cells: Iterable[Cell]) -> list[Cell]:
    """The cells without empty ones; what begins inside a function or a class belongs to the cell above it.

    One key splits a cell in two; then the second part is indented.
    """
    found: list[Cell] = []
    for cell in (each for each in cells if each.source.strip()):
        if found and cell.source[0] in " \t":
            joined = read_cell(f"{found[-1].source}\n{cell.source}", found[-1].id, found[-1].tags)
            if not joined.error:
                found.pop()
                cell = joined
        found.append(cell)
    return found


def decode(data: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 as some editors save it; `UnicodeDecodeError` for another."""
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data[:4]
    return data.decode("utf-16" if is_wide else "utf-8-sig")


def is_script(text: str) -> bool:
    """Whether a text is Python with marks of cells, as jupytext and editors write notebooks, or defines functions."""
    return not text.lstrip().startswith(("{", "<")) and bool(re.search(r"^# ?%%|^def ", text, re.MULTILINE))


def _read_script(text: str) -> list[str]:
    if len(text) > MAX_CODE:
        raise CourseError(f"it holds {len(text):,} characters; the most that is read is {MAX_CODE:,}")
    return re.split(r"^# ?%%.*$", text, flags=re.MULTILINE)


def _say_what_else_it_is(data: bytes) -> str:
    """What a file is that is not JSON, if that can be seen; else nothing."""
    if re.search(rb"^<{7}", data, re.MULTILINE):
        return "it holds the marks of a conflict between two versions (<<<<<<<), as git leaves them"
    if re.match(rb"\s*<(!doctype|html)", data, re.IGNORECASE):
        return "it is a page (HTML) that was saved from a browser, and not the notebook itself"
    return ""


def _read_cell_of(cell: dict) -> Cell:
    source = cell.get("source")  # what is no text counts as empty
    parts = source if isinstance(source, list) else [source]
    text = "".join(part for part in parts if isinstance(part, str))
    return read_cell(text, str(cell.get("id")), _tags(cell))


def _tags(cell: dict) -> list:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return tags if isinstance(tags, list) else []


@functools.lru_cache(maxsize=500)  # most cells of a class are the lesson's own
@quiet_parser()
def _read_statements(source: str) -> tuple[list[Statement], SyntaxError | None]:
    lines, body, found, problem = source.split("\n"), ast.parse(source).body, [], None
    shared = Counter(line for node in body for line in {node.lineno, node.end_lineno})
    for node in body:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        is_part = shared[node.lineno] + shared[node.end_lineno] > 2
        try:
            with quiet_parser():
                text = ast.unparse(node) if is_part else "\n".join(lines[first - 1 : node.end_lineno])
                found.append(Statement(text, first, *read_names(text), {each.name for each in inner_definitions(node)}))
        except SyntaxError as error:  # it parses, and is no Python all the same, such as two arguments of one name
            error.lineno = first - 1 + (error.lineno or 1)
            problem = problem or error
    return found, problem


def inner_definitions(node: ast.AST) -> list[DEFINES]:
    """The functions and classes that a statement or a module defines outside of other functions and classes."""
    found, waiting = [], [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, DEFINES):
            found.append(each)
        elif isinstance(each, ast.mod | ast.stmt | ast.excepthandler | ast.match_case):
            waiting += ast.iter_child_nodes(each)
    return found


@quiet_parser()
def read_names(source: str) -> tuple[set[str], set[str]]:
    """The names that `source` binds or deletes when it runs, and those that it takes from outside.

    The latter are also those that a function in it takes, and built-in names. Raises `SyntaxError` for what cannot be,
    such as two arguments of one name.
    """
    table = symtable.symtable(source, "<answer>", "exec")
    binds = {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}
    uses = {each.get_name() for each in table.get_symbols() if each.is_referenced()} - binds
    waiting = table.get_children()
    while waiting:
        inner = waiting.pop()
        waiting += inner.get_children()
        for each in inner.get_symbols():
            if each.is_global() or (inner.get_type() == "class" and each.is_referenced()):
                uses.add(each.get_name())
    return binds, uses


class Names:
    """The names that the cells of one notebook define; what it has lost of the `lesson`'s cells comes before them."""

    def __init__(self, cells: Sequence[Cell], lesson: Sequence[Cell] = ()) -> None:
        self._binders: dict[str, list[tuple[Place, Statement]]] = {}
        theirs = {each.source for cell in cells for each in cell.statements}
        for number, cell in enumerate([*lesson, *cells], -len(lesson)):
            for position, each in enumerate(cell.statements):
                if number >= 0 or each.source not in theirs:
                    for name in each.binds:
                        self._binders.setdefault(name, []).append(((number, position), each))

    def find_needed(self, names: Iterable[str], cell: int, but: Collection[str] = ()) -> dict[Place, Statement]:
        """The definitions that code in cell number `cell` needs for `names`, in order; `but` names need no other.

        Of each name, it is all that gives it a value up to the end of that cell or, if there is none, the first after.
        """
        end, chosen = (cell + 1, -1), {}
        waiting, seen = sorted(names), {*but}
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            binders = self._binders.get(name, [])
            for place, each in [one for one in binders if one[0] < end] or binders[:1]:
                if place not in chosen:
                    chosen[place] = each
                    waiting += each.uses
        return dict(sorted(chosen.items()))
