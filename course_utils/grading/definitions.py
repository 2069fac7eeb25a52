"""Which code an answer needs: the definitions of the names that it uses; what it does without is told.

A *definition* is a statement at the top level of a cell that binds names. It travels whole, with what it uses. Names
mean what they would if the notebook were run from top to bottom as far as the answer's cell: the last definition up to
there or else the first one after. What functions use is looked up from the answer's cell too, for they run only then.
"""

import ast
import bisect
import contextlib
import dis
import functools
import inspect
import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from course_utils.root import CourseError

Place = tuple[int, int]  # the number of a cell, and the position of a statement in it
DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
SOLID = DEFINES | ast.Import | ast.ImportFrom
WHOLE = SOLID | ast.Assign | ast.AnnAssign | ast.AugAssign
PYTHON_MAGICS = ("capture", "time", "timeit", "prun")  # cell magics whose body is Python that the notebook runs
DYNAMIC = {"eval", "exec", "globals", "locals", "vars"}  # what uses them means names by texts
SETTERS = re.compile(r"set_(?!print)|use_|register|enable|disable|append|update|clear")  # what changes even a module
MOST_GLOBALS = 20  # that a function may set and be followed
MAX_CODE = 500_000  # characters: Python needs a kilobyte and more to parse some of them


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a cell (of an import one name), and what it does with names."""

    source: str
    line: int  # the first one in its cell, decorators included
    binds: set[str]  # see `read_names`
    uses: set[str]
    sets: set[str]
    defines: set[str]  # what it binds with `def` or `class`
    changes: set[str]  # things of which it changes a part
    touches: set[str]  # things of which it may, if they are not solid
    whole: bool  # what it binds has a new value, whatever it was before
    solid: bool  # what it binds is a function, a module or a constant
    late: bool  # it has functions: what they use may be defined later


@dataclass(frozen=True)
class Cell:
    """A code cell: its text, its statements, and the error that says why it lacks some or all of them."""

    id: str
    tags: Sequence[str]
    source: str
    statements: Sequence[Statement] = ()
    error: SyntaxError | None = None


def read_cell(source: str, cell_id: str = "", tags: Sequence[str] = ()) -> Cell:
    """Parse the text of a code cell. Lines for IPython (`%…`, `!…`, `…?`) count as empty, so that they do no harm."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        return Cell(cell_id, tags, source, *_read_statements(source))
    except SyntaxError as error:
        with contextlib.suppress(SyntaxError):
            plain = _without_magics(source)
            return Cell(cell_id, tags, plain, *_read_statements(plain))
        return Cell(cell_id, tags, source, error=error)


def read_cells(data: bytes) -> list[Cell]:
    """The code cells of a notebook file of any version; `CourseError` with a reason if it is no notebook."""
    if not data.strip():
        raise CourseError("it is empty")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise CourseError(f"it is not complete JSON in UTF-8, so it was cut off or is no notebook ({error})") from None
    version = notebook.get("nbformat") if isinstance(notebook, dict) else None
    if version not in (1, 2, 3, 4):
        raise CourseError(f"it is JSON, but no notebook of version 1 to 4: its nbformat is {version}")
    if version < 4:
        import nbformat

        try:
            notebook = nbformat.convert(nbformat.from_dict(notebook), 4)
        except Exception as error:  # an old notebook may be broken in any way; none may stop the batch
            raise CourseError(f"it is an old notebook that cannot be converted ({error!r})") from None
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise CourseError("it is a notebook without a list of cells")
    code = [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    size = sum(len(str(cell.get("source", ""))) for cell in code)
    if size > MAX_CODE:
        raise CourseError(f"its code cells hold {size:,} characters; the most that is read is {MAX_CODE:,}")
    return [_read_cell_of(cell) for cell in code]


def _read_cell_of(cell: dict) -> Cell:
    source, metadata = cell.get("source"), cell.get("metadata")  # what is no text counts as empty
    parts = source if isinstance(source, list) else [source]
    text = "".join(part for part in parts if isinstance(part, str))
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return read_cell(text, str(cell.get("id")), tags if isinstance(tags, list) else [])


@contextlib.contextmanager
def quiet_compiler() -> Iterator[None]:
    """Keep Python's warnings about a student's code off the grader's screen; what it cannot do is a `SyntaxError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ValueError, RecursionError, MemoryError) as error:  # null bytes, lone surrogates, endless nesting
            raise SyntaxError(f"{error}" if isinstance(error, ValueError) else "it is nested too deeply") from None


def _without_magics(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    blank_lines, magic, body = re.match(r"((?:[ \t]*\n)*)(?:%%(\w+).*)?((?s:.*))", source).groups()
    if magic and magic not in PYTHON_MAGICS:
        return ""
    body = re.sub(r"^([ \t]*)%time[ \t]+(?=\S)", r"\1", "pass" * bool(magic) + body, flags=re.MULTILINE)
    with contextlib.suppress(SyntaxError), quiet_compiler():
        body = TransformerManager().transform_cell(body)
    return blank_lines + body


@functools.lru_cache(maxsize=500)  # most cells of a class are the lesson's own
@quiet_compiler()
def _read_statements(source: str) -> tuple[list[Statement], SyntaxError | None]:
    lines, body, found, problem = source.split("\n"), ast.parse(source).body, [], None
    shared = Counter(line for node in body for line in {node.lineno, node.end_lineno})
    for node in body:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        names = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
        is_part = names or shared[node.lineno] + shared[node.end_lineno] > 2
        try:
            with quiet_compiler():
                compile(ast.Module([node], []), "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                for each in [type(node)(**vars(node) | {"names": [name]}) for name in names] or [node]:
                    text = ast.unparse(each) if is_part else "\n".join(lines[first - 1 : node.end_lineno])
                    found.append(_read_statement(each, text, first))
        except SyntaxError as error:  # it parses, and cannot be compiled
            problem = problem or error
    return found, problem


def _read_statement(node: ast.stmt, text: str, line: int) -> Statement:
    binds, uses, sets = read_names(text)
    defines = {each.name for each in inner_definitions(node)}
    parts = [part for top in getattr(node, "decorator_list", [node]) for part in ast.walk(top)]
    calls = [part for part in parts if isinstance(part, ast.Call)]
    is_harmless = isinstance(node, DEFINES) or not calls or getattr(calls[0].func, "id", "") in ("display", "print")
    changes, touches = {*map(_changed, parts)}, set() if is_harmless else uses
    whole = isinstance(node, WHOLE) and not re.match(r"import \w+\.\S+$", text)
    solid = isinstance(node, SOLID) or isinstance(getattr(node, "value", None), ast.Constant | ast.Lambda)
    late = bool(defines) or any(isinstance(part, ast.Lambda) for part in parts)
    return Statement(text, line, binds, uses, sets, defines, changes, touches, whole, solid, late)


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


def _changed(part: ast.AST) -> str:
    """The name of the thing that a part of a statement changes: it sets something in it, or calls what does so."""
    is_place = isinstance(part, ast.Attribute | ast.Subscript)
    if not is_place or (isinstance(part.ctx, ast.Load) and not SETTERS.match(getattr(part, "attr", ""))):
        return ""
    for _ in range(50):
        part = getattr(part, "func", None) or getattr(part, "value", part)
    return getattr(part, "id", "")


@quiet_compiler()
def read_names(source: str) -> tuple[set[str], set[str], set[str]]:
    """The names that `source` binds or deletes, those that it takes from outside, and globals that its functions bind.

    Its bytecode tells them. Functions' own variables are none of them; built-in names are. `*` stands for any name.
    Raises `SyntaxError` for what cannot be compiled, such as two arguments of one name.
    """
    waiting = [(compile(source, "<answer>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True), True, set())]
    binds = {"*"} if re.search(r"^from __future__|import \*", source) else set()
    uses, sets = set(), set()
    has_branches = re.match(r"(if|try|match)\b", source)  # what one has bound, another may have to take from outside
    while waiting:
        code, runs_now, own = waiting.pop()
        for step in dis.get_instructions(code):
            kind, _, where = step.opname.partition("_")
            if where not in ("NAME", "GLOBAL", "FROM_DICT_OR_GLOBALS"):
                continue
            if kind == "LOAD" and step.argval not in own:
                uses.add(step.argval)
            elif kind in ("STORE", "DELETE"):
                if runs_now or where == "GLOBAL":
                    (binds if runs_now else sets).add(step.argval)
                if not (runs_now and has_branches):
                    own.add(step.argval)
        consts = [each for const in code.co_consts for each in (const if isinstance(const, tuple) else [const])]
        if DYNAMIC.intersection(code.co_names):
            words = re.findall(r"[^\W\d]\w*", " ".join(each for each in consts if isinstance(each, str)))
            uses |= {*words} - {*code.co_varnames}
            binds.update(words if runs_now else ())
        for each in filter(inspect.iscode, consts):
            is_comprehension = runs_now and each.co_name.endswith(("comp>", "expr>"))
            waiting.append((each, is_comprehension, own if is_comprehension else set()))
    return binds, uses, sets


class Names:
    """The names that the cells of one notebook define; what it has lost of the `lesson`'s cells comes before them."""

    def __init__(self, cells: Sequence[Cell], lesson: Sequence[Cell] = ()) -> None:
        self._by_name: dict[str, list[tuple[Place, Statement]]] = {}
        self._own: list[tuple[Place, Statement]] = []
        theirs, known = ({each.source for cell in part for each in cell.statements} for part in (cells, lesson))
        setters: dict[str, set[str]] = {}
        for number, cell in enumerate([*lesson, *cells], -len(lesson)):
            for position, each in enumerate(cell.statements):
                if number < 0 and each.source in theirs:
                    continue
                called = each.sets.union(*(setters[name] for name in each.uses & setters.keys()))
                called = called if len(called) <= MOST_GLOBALS else set()
                setters |= dict.fromkeys(each.defines, called)
                for name in each.binds if each.defines else each.binds | called:
                    self._by_name.setdefault(name, []).append(((number, position), each))
                if each.source not in known:
                    self._own.append(((number, position), each))

    def needed(
        self, names: Iterable[str], cell: int, but: Collection[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...], set[str]]:
        """What an answer in cell number `cell` needs for `names`. `but` are its own, which need no other definition.

        Returns definitions in their order, statements that stay behind and may matter, and names without a definition.
        """
        here = (cell + 1, -1)  # all of the answer's cell counts as before
        chosen = {place: statement for place, statement in self._by_name.get("*", []) if place < here}
        first: dict[str, Place] = {}
        missing, seen = set(), set()
        waiting = [(name, here) for name in sorted(names)]
        while waiting:
            name, before = waiting.pop()
            if name in but or (name, before) in seen:
                continue
            seen.add((name, before))
            found = self._by_name.get(name, [(before, None)])
            place, statement = found[max(0, bisect.bisect_left(found, before, key=lambda each: each[0]) - 1)]
            if place == before:
                missing.add(name)
                continue
            if not statement.whole or name not in statement.binds:  # it may be what it was before
                waiting.append((name, place))
            if name not in statement.binds and not statement.uses.isdisjoint(but):  # the answer is called
                continue
            first[name] = min(place, first.get(name, place))
            if place not in chosen:
                chosen[place] = statement
                places = [place, here] if statement.late else [place]
                waiting += [(used, each) for used in statement.uses for each in places]
        start = dict.fromkeys([*missing, *but], (-1, 0)) | first
        fluid = {name for name, place in first.items() if not chosen[place].solid}
        left = []
        for place, each in self._own:
            after = any(start.get(name, here) < place < here for name in each.changes | (each.touches & fluid))
            left += [each.source] if after and place not in chosen else []
        return tuple(chosen[place].source for place in sorted(chosen)), tuple(left), missing
