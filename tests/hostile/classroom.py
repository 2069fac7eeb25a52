"""The class in which most students attack the grader: hostile answers, odd files, and honest notebooks between them."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from grading_samples import TENSOR_HOOKS, hand_in, notebook_with, put, source_under_name
from nbformat import NotebookNode

EXERCISE = "scale_gradient"
LESSON = TENSOR_HOOKS
HONEST = {exercise.name: source_under_name(exercise.accepted[0], exercise.name) for exercise in LESSON.exercises}
SHORT = {
    "EXERCISE": EXERCISE,
    "RIGHT": "return tensor.register_hook(lambda grad: grad * factor)",
    "WRONG": "return tensor.register_hook(lambda grad: grad)",
    "ENDED": "The Python process ended while your answer ran",
    "LATE": "did not come to an end in time",
    "TOO_MUCH": "more memory or disk",
}
IMPORTS = (
    "import builtins, ctypes, gc, json, os, shutil, signal, socket, subprocess, sys, threading, time\nimport torch\n"
)


class Attack(NamedTuple):
    """What a student hands in as the answer to `EXERCISE`, the words in the row, and whether it passes.

    With `by_hand`, a person has to look.
    """

    name: str
    source: str
    words: str = ""
    passes: bool = False
    by_hand: bool = False


def read_attacks() -> list[Attack]:
    """The attacks in `answers.txt`: `## name | passes by-hand | words`, the body; what precedes it ends with `--`."""
    found = []
    for part in Path(__file__).with_name("answers.txt").read_text(encoding="utf-8").split("## ")[1:]:
        head, body = part.split("\n", 1)
        name, flags, words = (one.strip() for one in head.split("|"))
        for short, text in SHORT.items():
            body, words = body.replace(short, text), words.replace(short, text)
        above, _, inside = body.rpartition("--\n")
        function = f"def {EXERCISE}(tensor, factor):\n{textwrap.indent(inside, '    ')}"
        found.append(Attack(name, f"{IMPORTS}{above}{function}", words, "passes" in flags, "by-hand" in flags))
    return found


def _defined(inside: str, above: str = "") -> str:
    return f"import os\n{above}def {EXERCISE}(tensor, factor):\n    {inside}\n"


ATTACKS = [
    *read_attacks(),
    Attack("null bytes", _defined("return '\x00'"), "not Python"),
    Attack("not Python", _defined("return ("), "not Python"),
    Attack("half a character", _defined("return '\ud800'"), "not Python"),
    Attack("exits while it is defined", _defined(SHORT["RIGHT"], "@os._exit\n"), "raised"),
    Attack("dies while it is defined", _defined(SHORT["RIGHT"], "@(lambda _: os._exit(1))\n"), SHORT["ENDED"]),
]


def write_class(folder: Path) -> dict[str, str]:
    """Write a notebook for every attack, honest ones between them, and odd files.

    Returns for each odd file's student what the reason must say; "" where all answers count in full.
    """
    honest = notebook_with(LESSON, HONEST)
    for number, each in enumerate(ATTACKS):
        text = json.dumps(notebook_with(LESSON, HONEST | {EXERCISE: each.source}))
        put(folder, f"{each.name}/{LESSON.name}.ipynb", text=text)
        if number % 20 == 0:
            hand_in(folder, f"honest {number}", LESSON, honest)
    return _write_files(folder, honest)


def _write_files(folder: Path, notebook: NotebookNode) -> dict[str, str]:

    def other(**parts: object) -> bytes:
        return json.dumps({**notebook, **parts}).encode()

    def more(*sources: str) -> bytes:
        empty = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        cells = [{**empty, "source": text, "id": f"more-{number}"} for number, text in enumerate(sources)]
        return other(cells=[*notebook["cells"], *cells])

    spec = {"name": "ir", "display_name": "R", "language": "R"}
    chain = "x0 = 1\n" + "".join(f"x{number} = x{number - 1}\n" for number in range(1, 9000)) + "def f(): return x8999"
    odd: dict[str, tuple[bytes | Callable[[Path], object], str]] = {
        "f-deep-code": (more("x = " + "-" * 100_000 + "1"), ""),
        "f-deep-json": (b"[" * 5_000_000, "nested too deeply"),
        "f-directory": (Path.mkdir, "is a folder"),
        "f-many-cells": (more(*[""] * 20_000), ""),
        "f-many-names": (more(chain), ""),
        "f-other-language": (other(metadata={"kernelspec": spec, "language_info": {"name": "R"}}), ""),
        "f-pipe": (os.mkfifo, "not a regular file"),
        "f-symlink": (lambda path: path.symlink_to("/etc/passwd"), "links are not followed"),
        "f-two-gigabytes": (lambda path: (path.touch(), os.truncate(path, 2 * 1024**3)), "larger than"),
    }
    for student, (content, _) in odd.items():
        path = folder / student / f"{LESSON.name}.ipynb"
        path.parent.mkdir()
        path.write_bytes(content) if isinstance(content, bytes) else content(path)
    for name in ("f-line\nbreak", "f-up..down", "f-nothing"):
        (folder / name).mkdir()
    (folder / "f-link").symlink_to(folder.parent)
    named = {"f-line\\nbreak": "should have", "f-up..down": "should have", "f-nothing": "no notebook", "f-link": "link"}
    return {student: reason for student, (_, reason) in odd.items()} | named
