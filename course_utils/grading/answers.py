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
    if version < 4:
        import nbformat

        try:
            notebook = nbformat.convert(nbformat.from_dict(notebook), 4)
        except Exception as error:  # an old notebook may be broken in any way; none may stop the batch
            problem = f"{type(error).__name__}: {error}"
            raise CourseError(f"it is an old notebook that cannot be converted ({problem})") from None
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
        source, name, metadata = cell.get("source"), cell.get("id"), cell.get("metadata")
        parts = source if isinstance(source, list) else [source]
        text = "".join(part for part in parts if isinstance(part, str))
        tags = metadata.get("tags") if isinstance(metadata, dict) else None
        found.append(read_cell(text, name if isinstance(name, str) else "", tags if isinstance(tags, list) else ()))
    return found


def find_answer(name: str, cells: list[Cell], lasting_id: str | None) -> tuple[int, DEFINES | None] | None:
    """The answer to the exercise `name` among the code `cells`; the lesson's own answer cell has `lasting_id`.

    Returns the number of its cell and the definition in it, or None in its place where the cell does not parse; None
    where nothing has the name. It is the empty skeleton only where there is nothing else.
    """
    ids = Counter(cell.id for cell in cells)
    last_first = range(len(cells))[::-1]
    own = [number for number in last_first if cells[number].id == lasting_id and ids[lasting_id] == 1]
    tagged = [number for number in last_first if "answer" in cells[number].tags]
    blank = None
    for number in [*own, *tagged, *sorted(last_first, key=lambda number: cells[number].error is not None)]:
        cell = cells[number]
        if cell.error:
            if re.search(rf"^(async\s+def|def|class)\s+{re.escape(name)}\b", cell.source, re.MULTILINE):
                return number, None
            continue
        for node in reversed(cell.tree.body):
            if isinstance(node, DEFINES) and node.name == name:
                if not is_blank_definition(node):
                    return number, node
                blank = blank or (number, node)
                break
    return blank


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
