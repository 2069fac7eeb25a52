"""The secret half of an exercise: its right answers, later hints and mistakes, on a page of Markdown of its own.

`lessons/answers/NAME.md` has these sections, of which only the answers have to be there:

    # halve_output
    ## Shared              a block of Python: imports and helpers for the code below
    ## Answers             blocks of Python; the first one is the reference, and none repeats the task's docstring
    ## Hints               a list: the hints after the first two, which stand in the lesson's source
    ## Mistakes            a block of diff, see `read_mistakes`
    ## Equivalent edits    a list, see `read_equivalents`

The code runs with the names of the lesson's module, in which the cases are, and with those of `Shared`.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from course_utils.root import ANSWERS, CourseError

SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^( *)(?:-|\d+\.) (.+(?:\n(?!\s*(?:-|\d+\.) ).+)*)", re.MULTILINE)
PIECES = re.compile(r"(?:`([^`]+)`)?(?: ?→ `([^`]+)`)?(?:, |$)")


@dataclass(frozen=True)
class Answer:
    """An answer of the course's own: its text, as it could stand in a notebook, and the function or class."""

    source: str
    function: Callable


@dataclass(frozen=True)
class Mistake(Answer):
    """A wrong answer seen in the wild, and the sentence that says what is wrong with it."""

    message: str


class Equivalent(NamedTuple):
    """Edits of a right answer that leave it right: by their operator, a piece of the code that they take away and a
    piece of what they put there. An empty piece is in any code.
    """

    operator: str
    old: str
    new: str

    def covers(self, operator: str, lines: Sequence[str]) -> bool:
        """Whether an edit by `operator` is one of these; its `lines` begin with `- ` and `+ `."""
        return operator == self.operator and all(
            not piece or any(piece in line for line in lines if line[0] == sign)
            for sign, piece in (("-", self.old), ("+", self.new))
        )


class Page(NamedTuple):
    """What a page says, as text: mistakes as pairs of a message and the answer's text."""

    shared: str
    answers: list[str]
    hints: list[str]
    mistakes: list[tuple[str, str]]
    equivalents: dict[Equivalent, str]


def read_page(name: str) -> Page:
    """The page of the exercise `name`. Raises `CourseError` where it is missing, or does not keep the form."""
    path = ANSWERS / f"{name}.md"
    try:
        return parse_page(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(f"{name} has no page of answers: {path.name} cannot be read ({error.strerror}).") from None
    except CourseError as error:
        raise CourseError(f"{path.name}: {error}") from None


def parse_page(text: str) -> Page:
    """A page's text, taken apart. Raises `CourseError` where it does not keep the form."""
    parts = SECTION.split(text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    answers = _blocks(sections.pop("Answers", ""), "python")
    if not answers:
        raise CourseError("it has no section `## Answers` with a block of Python.")
    page = Page(
        shared="\n\n".join(_blocks(sections.pop("Shared", ""), "python")),
        answers=answers,
        hints=[_join(item) for _, item in ITEM.findall(sections.pop("Hints", ""))],
        mistakes=read_mistakes("\n".join(_blocks(sections.pop("Mistakes", ""), "diff")), answers),
        equivalents=read_equivalents(sections.pop("Equivalent edits", "")),
    )
    if sections:
        raise CourseError(f"no section is called {' or '.join(sections)}.")
    return page


def _blocks(text: str, language: str) -> list[str]:
    found = BLOCK.findall(text)
    if others := [kind for kind, _ in found if kind != language]:
        raise CourseError(f"a block is called {others[0]}, where {language} is read.")
    return [code for _, code in found]


def _join(text: str) -> str:
    """The words of a text that goes on over several lines."""
    return " ".join(text.split())


# --- mistakes ---------------------------------------------------------------------------------------------------------


def read_mistakes(diff: str, answers: Sequence[str]) -> list[tuple[str, str]]:
    """The mistakes in a block of diff: pairs of a message and the whole text of the wrong answer.

        @@ What is wrong, and what to do. A longer sentence goes on
        @@ in a second line.
        -    a line of the reference
        +    what stands there instead
        @@ What else can be wrong.
        --- answer 2
             a line that stays, which says where
        +    another line below it

    Lines with `-` and with a blank must stand in the base one below the other, at one place only. A line with `+` after
    them ends such a change, and so does a line `@@` with nothing else. The base is the reference, or what the line with
    `---` names: an answer by its number, or an earlier mistake by the beginning of its message. A mistake of `+` lines
    alone is a whole answer. Raises `CourseError` where a place is not found.
    """
    found: list[tuple[str, str]] = []
    for message, lines in _split_messages(diff):
        base = answers[0]
        if lines and lines[0].startswith("--- "):
            base, lines = _find_base(lines[0].removeprefix("--- "), answers, found), lines[1:]
        try:
            found.append((message, apply_changes(lines, base)))
        except CourseError as error:
            raise CourseError(f"the mistake `{message[:60]}`: {error}") from None
    return found


def _split_messages(diff: str) -> Iterator[tuple[str, list[str]]]:
    """Each message with the lines below it."""
    message: list[str] = []
    lines: list[str] = []
    for line in diff.splitlines():
        if line.startswith("@@ "):
            if lines:
                yield " ".join(message), lines
                message, lines = [], []
            message.append(line.removeprefix("@@ ").strip())
        elif message:
            lines.append(line)
        else:
            raise CourseError(f"`{line}` stands above the first message.")
    if message:
        yield " ".join(message), lines


def _find_base(name: str, answers: Sequence[str], earlier: Sequence[tuple[str, str]]) -> str:
    if number := re.fullmatch(r"answer (\d+)", name):
        if int(number[1]) <= len(answers):
            return answers[int(number[1]) - 1]
    else:
        meant = [source for message, source in earlier if message.startswith(name)]
        if len(meant) == 1:
            return meant[0]
    raise CourseError(f"`--- {name}` names no answer, and not the beginning of one earlier message.")


def apply_changes(lines: Sequence[str], base: str) -> str:
    """`base` with changes, given as lines that begin with `-`, `+` or a blank; see `read_mistakes`."""
    if all(line.startswith("+") for line in lines):
        return "\n".join(line[1:] for line in lines)
    text, found = base.splitlines(), []
    for old, new in _split_changes(lines):
        places = [at for at in range(len(text)) if text[at : at + len(old)] == old]
        if len(places) != 1:
            shown = "\n".join(old)
            raise CourseError(f"what it changes stands {len(places)} times in its base, and not once:\n{shown}")
        found.append((places[0], len(old), new))
    for at, length, new in sorted(found, reverse=True):  # from the end, so that the other places stay where they are
        text[at : at + length] = new
    return "\n".join(text)


def combine(base: str, one: str, other: str) -> str:
    """`base` with the changes that lead to `one` and those that lead to `other`; empty where they overlap."""
    words, *texts = (re.findall(r"\w+|\s+|.", text) for text in (base, one, other))
    changes = sorted(
        (start, end, text[new_start:new_end])
        for text in texts
        for tag, start, end, new_start, new_end in difflib.SequenceMatcher(None, words, text, False).get_opcodes()
        if tag != "equal"
    )
    if any(before[1] >= after[0] for before, after in itertools.pairwise(changes)):
        return ""
    for start, end, new in reversed(changes):
        words[start:end] = new
    return "".join(words)


def _split_changes(lines: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """The changes one by one: the lines as they are, and as they become."""
    old: list[str] = []
    new: list[str] = []
    added = False
    for line in [*lines, "@@"]:
        sign, rest = line[:1], line[1:]
        if line == "@@" or (added and sign != "+"):
            if old:
                yield old, new
            elif new:
                raise CourseError(f"nothing says where the line belongs that is added first: {new[0]}")
            old, new, added = [], [], False
        if sign in ("-", " ", ""):  # an editor may take the blank of an empty line away
            old.append(rest)
        if sign in ("+", " ", ""):
            new.append(rest)
        elif sign not in "-@":
            raise CourseError(f"a line begins with {sign}: {line}")
        added |= sign == "+"


# --- equivalent edits -------------------------------------------------------------------------------------------------


def read_equivalents(text: str) -> dict[Equivalent, str]:
    """The edits that leave a right answer right, with the reason. An operator's name is the one in `edits.json`.

        - Each input has a place of its own, so it does not matter which of them comes first.
          - backwards
          - other constant, an argument less: `strict=True`, `for handle in handles`
          - one operand: `a + b` → `return a`, → `return b`

    The operators and, where it is not every edit of theirs, pieces of the code that is edited and of what it becomes.
    """
    found, reason = {}, ""
    for indent, item in ITEM.findall(text):
        if not indent:
            reason = _join(item)
            continue
        operators, _, pieces = _join(item).partition(": ")
        meant = [pair for pair in PIECES.findall(pieces) if any(pair)] or [("", "")]
        for operator in operators.split(", "):
            found.update({Equivalent(operator, old, new): reason for old, new in meant})
    return found


# --- code -------------------------------------------------------------------------------------------------------------


def run_answer(source: str, name: str, namespace: Mapping[str, Any], where: str) -> Callable:
    """The function or class `name` that `source` defines, among the names of `namespace`, which stays as it is.

    `where` is its file in a traceback. What it defines cannot be told from what stands in the lesson's module.
    """
    own = dict(namespace)
    exec(compile(source, where, "exec", dont_inherit=True), own)
    return own[name]


def with_docstrings(source: str, task: str) -> str:
    """The text of an answer with the docstrings of its task, as it would stand in a notebook.

    Raises `CourseError` where the two have not the same name, arguments and bases.
    """
    answer, skeleton = ast.parse(source).body[-1], ast.parse(task).body[-1]
    lines = source.splitlines()
    for node, asked in reversed([*_pairs(answer, skeleton)]):
        if _signature(node) != _signature(asked):
            raise CourseError(f"the answer begins with `{_signature(node)}`, and its task with `{_signature(asked)}`.")
        if ast.get_docstring(asked) is None:
            continue
        docstring = task.splitlines()[asked.body[0].lineno - 1 : asked.body[0].end_lineno]
        first = node.body[0]
        defines = isinstance(first, ast.FunctionDef | ast.ClassDef)
        at = min([first.lineno, *(each.lineno for each in first.decorator_list)] if defines else [first.lineno]) - 1
        lines[at:at] = [*docstring, ""] if defines or isinstance(node, ast.ClassDef) else docstring
    return "\n".join(lines) + "\n"


def _pairs(answer: ast.stmt, skeleton: ast.stmt) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """The definitions of a skeleton, from the top, with those of an answer."""
    yield answer, skeleton
    if isinstance(skeleton, ast.ClassDef):
        methods = {each.name: each for each in answer.body if isinstance(each, ast.FunctionDef)}
        for each in skeleton.body:
            if isinstance(each, ast.FunctionDef) and each.name in methods:
                yield methods[each.name], each


def _signature(node: ast.stmt) -> str:
    if isinstance(node, ast.ClassDef):
        return ast.unparse(ast.ClassDef(node.name, node.bases, node.keywords, [ast.Pass()], []))
    return f"def {node.name}({ast.unparse(node.args)})"
