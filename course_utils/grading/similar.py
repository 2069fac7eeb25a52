"""Which students' answers are alike but for names, order and layout: a hint to look at two texts, and no verdict.

A text is taken apart into its statements. Names that its writer chose, comments, docstrings and annotations do not
count, nor does the order. What is the lesson's own and what a right answer of the course says tells nothing about two
students. The rest is weighed by how rare it is in the class, in bits: what one student of eight wrote has three.
"""

import ast
import hashlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from course_utils.root import write_whole
from course_utils.show import page_templates

PAGE = "similar.html"

LEAST_ALIKE = 0.7  # the share of what is their own that two students have in common
LEAST_BITS = 10.0  # what they have in common at least: by chance it would be so in one pair of a thousand
MORE = 8  # students are imagined in every class who wrote something else, so that a class of two can be compared

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


def take_apart(source: str) -> Iterator[str]:
    """The statements of a text, each as a plain text of its syntax tree.

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
            yield ast.dump(found)


def _is_body(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(each, (ast.stmt, ast.ExceptHandler)) for each in value)


def name_alike(source: str) -> str:
    """The same short text for all answers that differ in names, order and layout only."""
    return hashlib.sha256("\n".join(sorted(take_apart(source))).encode()).hexdigest()[:10]


def find_pairs(students: Mapping[str, Texts], known: Mapping[str, Iterable[str]]) -> tuple[list[Pair], list[str]]:
    """The pairs of students with much of their own in common, the most alike first; and who has too little to tell.

    `known` has, for each exercise, texts that are nobody's own.
    """
    nobodys = {(exercise, part) for exercise, texts in known.items() for text in texts for part in take_apart(text)}
    holders = defaultdict(list)
    for student, texts in students.items():
        for part in {(exercise, part) for exercise, text in texts.items() for part in take_apart(text)} - nobodys:
            holders[part].append(student)
    totals, common, where = dict.fromkeys(students, 0.0), Counter(), defaultdict(set)
    for (exercise, _), who in holders.items():
        bits = math.log2((len(students) + MORE) / max(2, len(who)))  # what one wrote has as much as what two did
        if bits < 1:  # many wrote it
            continue
        for student in who:
            totals[student] += bits
        for pair in itertools.combinations(sorted(who), 2):
            common[pair] += bits
            where[pair].add(exercise)
    pairs = [
        Pair(one, other, share, sorted(where[one, other]))
        for (one, other), bits in common.items()
        if bits >= LEAST_BITS and (share := bits / min(totals[one], totals[other])) >= LEAST_ALIKE
    ]
    too_little = [student for student, bits in totals.items() if bits < LEAST_BITS]
    return sorted(pairs, key=lambda pair: -pair.share), too_little


def write_similar(students: Mapping[str, Texts], known: Mapping[str, Iterable[str]], report: Path) -> str:
    """Write the page of the pairs, with both texts of each exercise side by side; returns a line about it."""
    pairs, too_little = find_pairs(students, known)
    page = page_templates().get_template("grading_similar.html.j2")
    write_whole(report / PAGE, page.render(pairs=pairs, too_little=too_little, students=students))
    line = f"{report / PAGE}: {len(pairs)} pairs of students with similar texts"
    return f"{line}; {len(too_little)} wrote too little of their own to tell" if too_little else line
