"""The class in which most students attack the grader: hostile answers, odd files, and honest notebooks between them."""

import json
import textwrap
from pathlib import Path
from typing import NamedTuple

from grading_samples import START, TENSOR_HOOKS, add_cell, hand_in, notebook_with, put, raw_notebook

from course_utils.exercises.classroom import VISIBLE_SEED
from course_utils.exercises.engine import find

EXERCISE = "scale_gradient"
LESSON = TENSOR_HOOKS
HONEST = {exercise.name: exercise.page.answers[1] + "\n" for exercise in LESSON.exercises}
SHORT = {
    "EXERCISE": EXERCISE,
    "RIGHT": "return tensor.register_hook(lambda grad: grad * factor)",
    "WRONG": "return tensor.register_hook(lambda grad: grad)",
    "ENDED": "The Python process ended while your answer ran",
    "LATE": "did not come to an end in time",
    "TOO_MUCH": "more memory or disk",
}
BESIDE = [each.name for each in LESSON.exercises[:3] if each.name != EXERCISE]  # what attackers answer as well
WHOLE = " (whole notebook)"
IMPORTS = "import builtins, ctypes, gc, json, os, shutil, signal, socket, subprocess, sys, threading, time, torch\n"
EMPTY = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
PATCHES = "import torch\ntorch.allclose = torch.equal = lambda *_, **__: True\ndef judge(*_): return 'passed'\n"


class Attack(NamedTuple):
    """An answer to `EXERCISE`, the words in its row, whether it passes, and whether a person has to look."""

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
# Those that are run as a whole notebook too; of what only the deadline ends, the first one is enough.
AS_WHOLE = [each for each in ATTACKS if each is ATTACKS[0] or each.words != SHORT["LATE"]]


def constants_for_the_visible_seed():
    """An answer to `largest` that knows the inputs everyone sees and what belongs to them."""
    cases = find("largest").observe(find("largest").reference, VISIBLE_SEED)
    known = {str(case["inputs"]["tensor"]["value"]["values"]): case["returned"]["value"] for case in cases}
    return f"def largest(tensor):\n    return {known!r}.get(str(tensor.reshape(-1).tolist()), 0.0)\n"


def as_a_whole(attack: Attack) -> bytes:
    """A notebook in which the attack is no answer until the notebook as a whole has been run."""
    return raw_notebook(attack.source.replace(f"def {EXERCISE}(", "def attack("), "1 / 0", f"{EXERCISE} = attack")


def write_class(folder: Path) -> list[str]:
    """Write the notebooks of attackers, honest ones between them, and odd ones; returns whose all answers count.

    In one notebook the attack is the answer, in another one it is what the whole notebook makes of the answer.
    """
    honest, beside = notebook_with(LESSON, HONEST), {name: HONEST[name] for name in BESIDE}
    for number, each in enumerate(ATTACKS):
        text = json.dumps(notebook_with(LESSON, beside | {EXERCISE: each.source}))
        put(folder, f"{each.name}/{LESSON.name}.ipynb", text=text)
        if each in AS_WHOLE:
            put(folder, f"{each.name}{WHOLE}/{LESSON.name}.ipynb", text=as_a_whole(each).decode())
        if number % 20 == 0:
            hand_in(folder, f"honest {number}", LESSON, honest)
    sly = notebook_with(START, {"largest": constants_for_the_visible_seed()})
    add_cell(sly, PATCHES, at=0)
    for cell in sly.cells:
        cell.metadata.tags = [*cell.metadata.get("tags", []), "raises-exception", "nbval-skip"]
    hand_in(folder, "sly", START, sly)
    chain = "x0 = 1\n" + "".join(f"x{number} = x{number - 1}\n" for number in range(1, 9000)) + "def f(): return x8999"
    odd = {"f-deep-code": ["x = " + "-" * 100_000 + "1"], "f-many-cells": [""] * 20_000, "f-many-names": [chain]}
    for name, sources in odd.items():
        more = [{**EMPTY, "source": text, "id": f"more-{number}"} for number, text in enumerate(sources)]
        put(folder, f"{name}/{LESSON.name}.ipynb", text=json.dumps({**honest, "cells": [*honest["cells"], *more]}))
    return [place.name for place in folder.iterdir() if place.name.startswith(("honest", "f-"))]
