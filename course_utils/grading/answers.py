"""Which cell of a notebook answers an exercise.

Whatever is wrong with a notebook becomes a reason in words. The answer to an exercise is the function (or class) with
the exercise's name in a code cell, at its top level or in an `if`, `try` or `with` there, looked for

1. in the cell with the lasting id of the lesson's answer cell (ids that occur twice are ignored),
2. in the cells tagged `answer`, the last first,
3. in all code cells, the last first, as in a notebook run from top to bottom.

The first that is more than the empty skeleton counts. Nothing of a notebook runs here.
"""

import ast
import json
import re

from course_utils.grading.definitions import DEFINES, Cell, Statement, inner_definitions, read_cell
from course_utils.root import CourseError

MAX_CODE = 500_000  # characters: Python needs a kilobyte and more to parse some of them


def read_cells(data: bytes) -> list[Cell]:
    """The code cells of a notebook file of any version; `CourseError` with a reason if it is no notebook."""
    if not data.strip():
        raise CourseError("it is empty")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise CourseError("it is nested too deeply for a notebook") from None
    except ValueError as error:
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
    return code_cells(code)


def code_cells(cells: list[dict]) -> list[Cell]:
    """A notebook's code `cells`, read; what is no text counts as empty."""
    found = []
    for cell in cells:
        source, metadata = cell.get("source"), cell.get("metadata")
        parts = source if isinstance(source, list) else [source]
        text = "".join(part for part in parts if isinstance(part, str))
        tags = metadata.get("tags") if isinstance(metadata, dict) else None
        found.append(read_cell(text, str(cell.get("id")), tags if isinstance(tags, list) else []))
    return found


def find_answer(name: str, cells: list[Cell], lasting_id: str | None) -> tuple[int, Statement | None] | None:
    """The answer to the exercise `name` among the code `cells`; the lesson's own answer cell has `lasting_id`.

    Returns the number of its cell and the statement that defines it, or None in its place where the cell does not
    parse; None where nothing has the name. It is the empty skeleton only where there is nothing else.
    """
    last_first = range(len(cells))[::-1]
    own = [number for number in last_first if cells[number].id == lasting_id]
    tagged = [number for number in last_first if "answer" in cells[number].tags]
    sound_first = sorted(last_first, key=lambda number: not cells[number].statements)
    blank = None
    for number in [*(own if len(own) == 1 else []), *tagged, *sound_first]:
        cell = cells[number]
        mine = [each for each in cell.statements if name in each.defines]
        if mine and not is_blank_answer(name, mine[-1]):
            return number, mine[-1]
        if mine:
            blank = blank or (number, mine[-1])
        elif cell.error and re.search(rf"^[ \t]*(async\s+def|def|class)\s+{name}\b", cell.source, re.MULTILINE):
            return number, None
    return blank


def is_blank_answer(name: str, statement: Statement) -> bool:
    """Whether all that a statement defines under a name is the empty skeleton, as far as its text can tell."""
    return all(_is_blank(node) for node in inner_definitions(ast.parse(statement.source)) if node.name == name)


def _is_blank(node: DEFINES) -> bool:
    said = [one for one in node.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
    parts = [one for one in node.body if one not in said and not isinstance(one, ast.Pass)]
    return all(isinstance(node, ast.ClassDef) and isinstance(one, DEFINES) and _is_blank(one) for one in parts)
