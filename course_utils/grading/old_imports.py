"""Where the names are now that lessons of an earlier edition imported: answers handed in for it keep their points.

`renew_imports` rewrites the import statements of a submission's cell, and nothing else: every line keeps its number.
Lessons of today import from today's places, so a new edition needs lines here only for what it has moved.
"""

import ast

from course_utils.grading.definitions import Cell, read_cell

# For each old module (all are below course_utils) the new one of each name that went elsewhere, and of all that are
# left (""); what follows a colon is the name's new name.
MOVED = {
    "attention": {"draw_attention": "vision.charts", "": "vision.toys"},
    "calls": {"": "hooks.call"},
    "cam_pictures": {"": "vision.pictures"},
    "charts": {"": "vision.charts"},
    "diagnosis": {"": "vision.toys"},
    "doctor": {"": "lab.doctor"},
    "feature_maps": {"make_edge_net": "vision.toys", "follow_things": "vision.scores", "": "vision.pictures"},
    "guided_pictures": {"show_fixed": "vision.pictures", "": "vision.charts"},
    "hooks": {"record": "hooks.record", "trace": "hooks.trace", "": "hooks.inventory"},
    "localisation": {"": "vision.scores"},
    "memory": {"": "hooks.memory"},
    "networks": {"": "vision.networks"},
    "own_picture": {"": "vision.own"},
    "patching": {"": "vision.patching"},
    "pictures": {"": "vision.pictures"},
    "saliency": {"SaliencyError": "root:CourseError", "": "vision.saliency"},
    "sanity": {"": "vision.scores"},
    "scenes": {"": "scenes.scene"},
}
EXERCISES = "exercises.lesson_"  # from exercises/lesson_NN to lessons/lesson_NN
PACKAGE = "course_utils."


def find_new_place(module: str, name: str = "") -> tuple[str, str]:
    """Where `name`, which once was in `module`, is imported from today, and its name there."""
    if module.startswith(PACKAGE + EXERCISES):
        return module.replace(".exercises.", ".lessons."), name
    places = MOVED.get(module.removeprefix(PACKAGE), {}) if module.startswith(PACKAGE) else {}
    place, _, renamed = places.get(name, places.get("", "")).partition(":")
    return PACKAGE + place if place else module, renamed or name


def renew_imports(cell: Cell) -> Cell:
    """The cell with its imports from the course's old places taken from the new ones, line by line as it was."""
    if cell.tree is None or PACKAGE[:-1] not in cell.source:
        return cell
    nodes = [node for node in ast.walk(cell.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = before = cell.source.encode().split(b"\n")  # columns of a syntax tree count bytes
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        if text := _renew(node):
            first, last = node.lineno - 1, node.end_lineno - 1
            changed = lines[first][: node.col_offset] + text.encode() + lines[last][node.end_col_offset :]
            lines = [*lines[:first], *changed.split(b"\n"), *lines[last + 1 :]]
    if lines is before:
        return cell
    renewed = read_cell(b"\n".join(lines).decode(), cell.id, cell.tags)
    return cell if renewed.error else renewed  # as with `import a.b as c, \` and a second line


def _renew(node: ast.Import | ast.ImportFrom) -> str:
    if isinstance(node, ast.Import):  # `import a.b` without `as` binds `a`, and would need its uses rewritten too
        names = [
            ast.alias(find_new_place(each.name)[0] if each.asname else each.name, each.asname) for each in node.names
        ]
        texts = [ast.unparse(ast.Import(names))]
    else:
        by_place: dict[str, list[ast.alias]] = {}
        for each in node.names:
            place, name = find_new_place(node.module or "", each.name)
            by_place.setdefault(place, []).append(
                ast.alias(name, each.asname or (each.name if name != each.name else None))
            )
        texts = [ast.unparse(ast.ImportFrom(place, names, node.level)) for place, names in by_place.items()]
    if texts == [ast.unparse(node)]:
        return ""
    start, _, end = texts[-1].rpartition("import ")
    breaks = "\n" * (node.end_lineno - node.lineno)
    return "; ".join([*texts[:-1], f"{start}import ({end}{breaks})" if breaks else texts[-1]])
