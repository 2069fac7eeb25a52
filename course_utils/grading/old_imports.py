"""Where the names are now that lessons of an earlier edition imported: answers handed in for it keep their points.

`renew_imports` rewrites the import statements of a submission's cell, and nothing else: every line keeps its number.
Lessons of today import from today's places, so a new edition needs lines here only for what it has moved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from course_utils.grading.definitions import Cell, read_cell

# Old module, new module (both below course_utils), and the names that went there; without names, all that are left.
MOVED = """
attention        vision.attention     draw_attention
attention        vision.toys
calls            hooks.call
cam_pictures     vision.pictures
charts           vision.charts
diagnosis        vision.toys
doctor           lab.doctor
feature_maps     vision.toys          make_edge_net
feature_maps     vision.scores        follow_things
feature_maps     vision.pictures
guided_pictures  vision.pictures      show_fixed
guided_pictures  vision.charts
hooks            hooks.record         record
hooks            hooks.trace          trace
hooks            hooks.inventory
localisation     vision.scores
memory           hooks.memory
networks         vision.networks
own_picture      vision.own
patching         vision.patching
pictures         vision.pictures
saliency         vision.saliency
sanity           vision.sanity
scenes           scenes.scene
"""
EXERCISES = "exercises.lesson_"  # from exercises/lesson_NN to lessons/lesson_NN
PACKAGE = "course_utils."


def _read_table() -> dict[str, dict[str, str]]:
    """For each old module the new one by name, and under "" the one for all other names."""
    found: dict[str, dict[str, str]] = {}
    for line in MOVED.strip().splitlines():
        old, new, *names = line.split()
        found.setdefault(PACKAGE + old, {}).update(dict.fromkeys(names or [""], PACKAGE + new))
    return found


TABLE = _read_table()


def find_new_place(module: str, name: str = "") -> str:
    """The module from which `name`, which once was in `module`, is imported today; "" where it has not moved."""
    if module.startswith(PACKAGE + EXERCISES):
        return module.replace(".exercises.", ".lessons.")
    places = TABLE.get(module, {})
    return places.get(name, places.get("", ""))


def renew_imports(cell: Cell) -> Cell:
    """The cell with its imports from the course's old places taken from the new ones, line by line as it was."""
    if cell.tree is None or PACKAGE[:-1] not in cell.source:
        return cell
    lines = cell.source.encode().split(b"\n")  # columns of a syntax tree count bytes
    changed = False
    for node in sorted(_imports(cell.tree), key=lambda node: (node.lineno, node.col_offset), reverse=True):
        text = _renew(node)
        if not text:
            continue
        first, last = node.lineno - 1, node.end_lineno - 1
        before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        lines[first : last + 1] = (before + text.encode() + after).split(b"\n")
        changed = True
    return read_cell(b"\n".join(lines).decode(), cell.id, cell.tags) if changed else cell


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _renew(node: ast.Import | ast.ImportFrom) -> str:
    """The statement with today's places, on as many lines as it has; "" where nothing has moved."""
    if isinstance(node, ast.Import):  # `import a.b` without `as` binds `a`, and would need its uses rewritten too
        names = [
            ast.alias((each.asname and find_new_place(each.name)) or each.name, each.asname) for each in node.names
        ]
        renewed = ast.unparse(ast.Import(names))
        return renewed if renewed != ast.unparse(node) else ""
    by_place: dict[str, list[ast.alias]] = {}
    for each in node.names:
        by_place.setdefault(find_new_place(node.module or "", each.name) or node.module or "", []).append(each)
    if node.level or list(by_place) == [node.module]:
        return ""
    texts = [ast.unparse(ast.ImportFrom(place, names, 0)) for place, names in by_place.items()]
    start, _, end = texts[-1].rpartition(" import ")
    breaks = "\n" * (node.end_lineno - node.lineno)
    return "; ".join([*texts[:-1], f"{start} import ({end}{breaks})" if breaks else texts[-1]])
