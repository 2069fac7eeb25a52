"""What reads a student's text: it has its time and its memory, and costs neither the class nor the next student."""

import os
import time

import pytest
from grading_samples import START, raw_notebook

from course_utils.grading import desk as desks
from course_utils.grading.answers import read_notebook
from course_utils.grading.desk import Desk
from course_utils.root import CourseError

RIGHT = "def largest(tensor):\n    return tensor.max().item()\n"


def nested(blocks):
    """Python doubles what is compiled with each of these."""
    lines = [" " * depth + "try:" for depth in range(blocks)] + [" " * blocks + "pass"]
    for depth in reversed(range(blocks)):
        lines += [" " * depth + "finally:", " " * depth + " try: pass", " " * depth + " finally: pass"]
    return "\n".join(lines)


# Small texts that are hard to parse, to compile, or to tokenise.
BOMBS = {
    "blocks in blocks": nested(19),
    "blocks in blocks, in the answer": "def largest(tensor):\n"
    + "\n".join(f" {line}" for line in nested(19).split("\n")),
    "commands": "x = !ls\n" * 600 + "x = 1",
    "help": "x?\n" * 20_000,
    "statements on a line": "x=1;" * 100_000,
    "statements": "x = 1\n" * 80_000,
    "alternatives": "match x:\n    case " + "|".join(map(str, range(60_000))) + ": pass",
    "brackets": "x = " + "(" * 100_000,
    "signs": "x = " + "-" * 200_000 + "1",
    "powers": "x = " + "9**" * 50_000 + "9",
    "additions": "x = " + "1+" * 100_000 + "1",
    "a number": "x = " + "9" * 400_000,
    "texts without an end": "'''\"\"\"" * 50_000,
    "quotes": "!\n" + "'\\\n" * 100_000,
    "f-strings": "x = " + "f'{" * 1_000,
    "conditions": "if x: pass\n" + "elif x: pass\n" * 30_000,
    "decorators": "@a\n" * 100_000 + "def f(): pass",
    "functions in functions": "\n".join(" " * depth + "def f():" for depth in range(90)) + " pass",
    "lambdas": "x = " + "lambda:" * 50_000 + "1",
    "names": "a" * 490_000,
    "a class of attributes": "class A:\n" + " x = y\n" * 50_000,
}


@pytest.fixture(scope="module")
def desk():
    with Desk() as made:
        yield made


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_text_stalls_the_reading(bomb, desk):
    """It is read, and the neighbouring answer found, or it is refused in a sentence; the desk reads on."""
    said = ""
    try:
        (answer,) = desk.ask(read_notebook, raw_notebook(BOMBS[bomb], RIGHT), START.name).answers
    except CourseError as error:
        said = str(error)
    assert said == desks.TOO_HARD or (said == "" and RIGHT in answer.source)
    (answer,) = desk.ask(read_notebook, raw_notebook(RIGHT), START.name).answers
    assert answer.source == RIGHT


def test_who_takes_too_long_or_too_much_is_ended_and_another_one_answers(monkeypatch):
    with Desk() as desk:
        monkeypatch.setattr(desks, "SECONDS", 0.5)
        for work in ((time.sleep, 60), (os._exit, 0), (os.abort,)):
            with pytest.raises(CourseError, match="to read it takes more than"):
                desk.ask(*work)
            assert desk.ask(abs, -1) == 1
        monkeypatch.undo()
        with pytest.raises(RuntimeError, match="MemoryError"):
            desk.ask(bytes, desks.MEMORY)
        with pytest.raises(CourseError, match="it is empty"):
            desk.ask(read_notebook, b"", START.name)
