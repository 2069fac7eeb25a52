"""Which cell of a notebook answers an exercise.

A notebook is UTF-8 and JSON, of any version, with at most 500,000 characters of code. Whatever is wrong with it becomes
a reason in words. The answer to an exercise is the function (or class) with the exercise's name at the top level of a
code cell, looked for

1. in the cell with the lasting id of the lesson's answer cell (ids that occur twice say nothing and are ignored),
2. in the cells tagged `answer`, the last first,
3. in all code cells, the last first, as in a notebook run from top to bottom.

The first that is more than the empty skeleton counts. Nothing of a notebook runs here.
"""

import ast
import json
import re
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from course_utils.exercises.declaration import is_blank
from course_utils.grading.definitions import DEFINES, Cell, quiet_compiler, read_cell
from course_utils.root import CourseError

MAX_CODE = 500_000  # characters: Python needs a kilobyte and more to parse some of them


def read_cells(data: bytes) -> list[Cell]:
    """The code cells of a notebook file of any version; `CourseError` with a reason if it is no notebook."""
    if not data.strip():
        raise CourseError("it is empty")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise CourseError("it is not text in UTF-8") from None
    except RecursionError:
        raise CourseError("it is nested too deeply for a notebook") from None
    except ValueError as error:
        raise CourseError(f"it is not complete JSON, so it was cut off or is no notebook ({error})") from None
    version = notebook.get("nbformat") if isinstance(notebook, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise CourseError("it is JSON, but not a notebook: it has no nbformat")
    if version > 4 or version < 1:
        raise CourseError(f"it is a notebook of version {version}; only versions 1 to 4 are known")
    notebook = _upgrade(notebook) if version < 4 else notebook
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise CourseError("it is a notebook without a list of cells")
    code = [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    size = sum(len(str(cell.get("source", ""))) for cell in code)
    if size > MAX_CODE:
        raise CourseError(f"its code cells hold {size:,} characters; the most that is read is {MAX_CODE:,}")
    return code_cells(code)


def _upgrade(notebook: dict) -> dict:
    import nbformat

    try:
        return nbformat.convert(nbformat.from_dict(notebook), 4)
    except Exception as error:  # an old notebook may be broken in any way; each is a reason, none may stop the batch
        raise CourseError(f"it is an old notebook that cannot be converted ({type(error).__name__}: {error})") from None


def code_cells(cells: list[dict]) -> list[Cell]:
    """The code cells among a notebook's `cells`; what is no text counts as empty."""
    found = []
    for cell in cells:
        if cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        if isinstance(source, list):
            source = "".join(part for part in source if isinstance(part, str))
        metadata = cell.get("metadata")
        tags = metadata.get("tags") if isinstance(metadata, dict) else None
        found.append(
            read_cell(
                source if isinstance(source, str) else "",
                cell["id"] if isinstance(cell.get("id"), str) else "",
                [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
            )
        )
    return found


@dataclass(frozen=True)
class AnswerPlace:
    """Where an answer is: the number of its code cell and the definition in it, or None where the cell does not parse.

    `blank` means that there is nothing but the empty skeleton.
    """

    cell: int
    node: DEFINES | None
    blank: bool = False


def find_answer(name: str, cells: list[Cell], lasting_id: str | None) -> AnswerPlace | None:
    """The answer to the exercise `name` among the code `cells`; the lesson's own answer cell has `lasting_id`.

    None where nothing has the name.
    """
    blank = None
    for number, node in _candidates(name, cells, lasting_id):
        if node is None or not is_blank_definition(node):
            return AnswerPlace(number, node)
        blank = blank or AnswerPlace(number, node, blank=True)
    return blank


def _candidates(name: str, cells: list[Cell], lasting_id: str | None) -> Iterator[tuple[int, DEFINES | None]]:
    """Where the answer may be, best first; without a node where the cell does not parse. A cell may come twice."""
    ids = Counter(cell.id for cell in cells)
    numbers = [
        *(number for number, cell in enumerate(cells) if cell.id == lasting_id and ids[cell.id] == 1),
        *(number for number in reversed(range(len(cells))) if "answer" in cells[number].tags),
    ]
    everywhere = list(reversed(range(len(cells))))
    for number in [*numbers, *sorted(everywhere, key=lambda number: cells[number].error is not None)]:
        cell = cells[number]
        if cell.error:
            if re.search(rf"^(async\s+def|def|class)\s+{re.escape(name)}\b", cell.source, re.MULTILINE):
                yield number, None
            continue
        found = [node for node in cell.tree.body if isinstance(node, DEFINES) and node.name == name]
        if found:
            yield number, found[-1]


def is_blank_definition(node: DEFINES) -> bool:
    """Whether a function or a class is the empty skeleton, as far as its text can tell."""
    if isinstance(node, ast.ClassDef):
        texts = [one for one in node.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
        parts = [one for one in node.body if one not in texts and not isinstance(one, ast.Pass)]
        return all(isinstance(one, DEFINES) and is_blank_definition(one) for one in parts)
    try:
        with quiet_compiler():
            module = compile(ast.Module([node], []), "<answer>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return False
    codes = [code for code in module.co_consts if isinstance(code, types.CodeType) and code.co_name == node.name]
    return len(codes) == 1 and is_blank(types.FunctionType(codes[0], {}))
