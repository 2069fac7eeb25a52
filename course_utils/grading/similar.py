"""Which students' answers are alike but for names, order and layout: a hint to look at two texts, and no verdict.

A text is taken apart into its statements. Names that its writer chose, comments, docstrings and annotations do not
count, nor does the order. What is the lesson's own, what a right answer of the course says, and what many in the class
wrote say nothing about two students; the rest is compared, longer statements with more weight.
"""

import ast
import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from course_utils.root import write_whole
from course_utils.show import page_templates

PAGE = "similar.html"

SMALLEST = 8  # parts of a syntax tree in a statement; a smaller one is nothing of one's own
MANY = 0.1  # the share of the class from which on a statement is common
FEW = 3  # students who may always have a statement in common without its being common
LEAST_ALIKE = 0.6  # the share of what is their own that two students have in common
LEAST_TEXT = 40  # parts of the syntax tree that they have in common, at least

Texts = Mapping[str, str]  # by exercise


class Pair(NamedTuple):
    """Two students, the share from 0 to 1 of their own text that they have in common, and in which exercises."""

    one: str
    other: str
    share: float
    exercises: list[str]


class _Plain(ast.NodeTransformer):
    """Takes out of a syntax tree what its writer chose freely."""

    def __init__(self, tree: ast.AST) -> None:
        nodes = list(ast.walk(tree))
        self._chosen = {each.arg for each in nodes if isinstance(each, ast.arg)}
        self._chosen |= {each.name for each in nodes if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
        self._chosen |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        stored = (each for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))
        self._stored = {each.attr for each in stored}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("_" if node.id in self._chosen else node.id, ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = self.visit(node.value)
        return ast.Attribute(value, "_" if node.attr in self._stored else node.attr, ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg("_")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.visit(ast.Assign([node.target], node.value))


def take_apart(source: str) -> Iterator[tuple[str, int]]:
    """The statements of a text, each as a plain text of its syntax tree, with the number of its parts.

    Of a statement with a body only the head counts, and the body's statements by themselves.
    """
    tree = ast.parse(source)
    plain = _Plain(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        head = {name: value for name, value in ast.iter_fields(node) if not _is_body(value)}
        head.pop("returns", None)
        if "name" in head:
            head["name"] = "_"
        if (found := plain.visit(type(node)(**head))) is not None:
            text = ast.dump(found)
            yield text, text.count("(")


def _is_body(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(each, (ast.stmt, ast.ExceptHandler)) for each in value)


def name_alike(source: str) -> str:
    """The same short text for all answers that differ in names, order and layout only."""
    parts = sorted(text for text, _ in take_apart(source))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]


def find_pairs(students: Mapping[str, Texts], known: Mapping[str, Iterable[str]]) -> list[Pair]:
    """The pairs of students with much of their own in common, the most alike first.

    `known` has, for each exercise, texts that are nobody's own.
    """
    sizes: dict[tuple[str, str], int] = {}
    holders: dict[tuple[str, str], list[str]] = {}
    for student, texts in students.items():
        for exercise, source in texts.items():
            for text, size in {*take_apart(source)}:
                sizes[exercise, text] = size
                holders.setdefault((exercise, text), []).append(student)
    nobodys = {(name, text) for name, sources in known.items() for each in sources for text, _ in take_apart(each)}
    most = max(FEW, MANY * len(students))
    own = {each: who for each, who in holders.items() if each not in nobodys and len(who) <= most}
    own = {each: who for each, who in own.items() if sizes[each] >= SMALLEST}
    totals = dict.fromkeys(students, 0)
    together: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for part, who in own.items():
        for student in who:
            totals[student] += sizes[part]
        for pair in itertools.combinations(sorted(who), 2):
            together.setdefault(pair, []).append(part)
    return sorted(_name_pairs(together, sizes, totals), key=lambda pair: -pair.share)


def _name_pairs(
    together: Mapping[tuple[str, str], Collection[tuple[str, str]]],
    sizes: Mapping[tuple[str, str], int],
    totals: Mapping[str, int],
) -> Iterator[Pair]:
    for (one, other), parts in together.items():
        common = sum(sizes[part] for part in parts)
        share = common / min(totals[one], totals[other])
        if common >= LEAST_TEXT and share >= LEAST_ALIKE:
            yield Pair(one, other, share, sorted({exercise for exercise, _ in parts}))


def write_similar(pairs: Sequence[Pair], students: Mapping[str, Texts], report: Path) -> Path:
    """Write the page of the pairs, with both texts of each exercise side by side; returns its path."""
    page = page_templates().get_template("grading_similar.html.j2")
    write_whole(report / PAGE, page.render(pairs=pairs, students=students))
    return report / PAGE
