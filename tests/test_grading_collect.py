"""What the grader takes from a notebook: the answers, and the definitions that they need."""

import copy
import json
import time

import jupytext
import nbformat
import pytest
from grading_samples import LESSONS, TENSOR_HOOKS, TWO, answer_in, judged, notebook_with, only, raw_notebook

from course_utils.exercises.outcome import Stage
from course_utils.grading.answers import collect_answers
from course_utils.grading.definitions import Names, read_cell, read_cells, read_names
from course_utils.root import CourseError


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (raw_notebook("x = 1")[:-20], "cut off"),
        (b"PK\x03\x04\xff\xfe", "UTF-8"),
        (b"print('hello')", "no notebook"),
        (b'{"cells": []}', "no notebook of version 1 to 4"),
        (b'{"nbformat": 7, "cells": []}', "its nbformat is 7"),
        (b'{"nbformat": 4, "cells": {"a": 1}}', "without a list of cells"),
        (b'{"nbformat": 3, "worksheets": 5}', "cannot be converted"),
        (b"[" * 100_000, "no notebook"),
        (b'{"nbformat": 4, "cells": [' + b"9" * 5000 + b"]}", "no notebook"),
        (raw_notebook("x = 1\n" * 100_000), "code cells hold 600,000 characters"),
        (b"# %%\nx = 1\n" * 100_000, "holds 1,100,000 characters"),
        (b"  <!DOCTYPE html>\n<html>", "a page .HTML. that was saved from a browser"),
        (raw_notebook("x")[:20] + b"\n<<<<<<< HEAD\n", "the marks of a conflict between two versions"),
        (b'{"nbformat": 5, "cells": []}', "its nbformat is 5"),
        (raw_notebook("x = 1").decode().encode("utf-16")[:-20], "cut off"),
    ],
)
def test_what_is_no_notebook_has_a_reason(data, reason):
    with pytest.raises(CourseError, match=reason):
        read_cells(data)


def test_odd_cells_do_not_stop_the_reading():
    good = "def keep_positive(tensor):\n    return tensor"
    for odd in (
        17,
        None,
        {"cell_type": "code"},
        {"cell_type": "code", "source": 5, "metadata": 6, "id": 7},
        {"cell_type": "code", "source": ["def f(", 3, ")"], "metadata": {"tags": "answer"}},
        {"cell_type": "code", "source": "\x00", "metadata": {"tags": [1, {}]}},
        {"cell_type": "code", "source": "x = '\ud800'", "metadata": {}},
        {"cell_type": "code", "source": "def scale_gradient(a, a):\n    return 1", "metadata": {}},
        {"cell_type": "code", "source": "if x:\n    y = 0\n" + "elif x:\n    y = 1\n" * 700, "metadata": {}},
        {"cell_type": "markdown", "source": "def scale_gradient(): pass", "metadata": {}},
    ):
        answers = collect_answers(read_cells(raw_notebook(odd, good)), TENSOR_HOOKS)
        assert [answer.exercise.name for answer in answers if answer.source] == ["keep_positive"]


def test_answers_are_found_by_id_then_tag_then_name():
    notebook = notebook_with(TENSOR_HOOKS, {"scale_gradient": TWO.replace("2", "1")})
    notebook.cells.append(nbformat.v4.new_code_cell(TWO))
    assert "return 1" in answer_in(notebook).source, "the lesson's own cell comes first"
    cell = next(cell for cell in notebook.cells if "return 1" in cell.source)
    double = copy.deepcopy(cell) | {"source": TWO}
    notebook.cells.append(double)
    assert "return 2" in answer_in(notebook).source, "a doubled id says nothing: the last tagged one, as when run"
    notebook.cells.remove(double)
    cell.id = "lost"
    assert "return 1" in answer_in(notebook).source, "then the tag"
    cell.metadata.tags = []
    assert "return 2" in answer_in(notebook).source, "then the last with the name"


def test_an_empty_skeleton_does_not_hide_the_answer_elsewhere():
    save = "class SaveOutput:\n    def __call__(self): return 2"
    for lesson, name, text in ((TENSOR_HOOKS, "scale_gradient", TWO), (LESSONS["03_module_hooks"], "SaveOutput", save)):
        notebook = notebook_with(lesson, {})
        notebook.cells.append(nbformat.v4.new_code_cell(text))
        assert "return 2" in answer_in(notebook, name).source


def test_lost_ids_and_tags_and_old_versions_change_nothing():
    whole = nbformat.writes(notebook_with(TENSOR_HOOKS, {each.name: each.source for each in TENSOR_HOOKS.exercises}))
    old, bare = nbformat.convert(nbformat.reads(whole, as_version=4), 3), nbformat.reads(whole, as_version=4)
    for number, cell in enumerate(bare.cells):
        cell.metadata, cell.id = {}, f"cell-{number}"
    bare.metadata = {"kernelspec": {"name": "julia", "display_name": "Julia", "language": "julia"}}
    texts = (whole, json.dumps(bare), json.dumps(old), "\ufeff" + json.dumps(bare))
    files = [*(text.encode() for text in texts), whole.encode("utf-16"), whole.encode("utf-16-le")]
    found = [collect_answers(read_cells(data), TENSOR_HOOKS) for data in files]
    wanted, *others = [[(one.exercise.name, one.source) for one in answers] for answers in found]
    assert others == [wanted] * 5
    script = jupytext.writes(nbformat.reads(whole, as_version=4), "py:percent").encode()
    answers = collect_answers(read_cells(script), TENSOR_HOOKS)
    stripped = [(name, text.strip()) for name, text in wanted]
    assert [(one.exercise.name, one.source.strip()) for one in answers] == stripped


@pytest.mark.parametrize(
    ("cells", "stage", "words"),
    [
        (["x = 1"], Stage.NOT_ATTEMPTED, "no function called `scale_gradient`"),
        (["scale_gradient = lambda t, f: t"], Stage.NOT_ATTEMPTED, "write the answer with `def`"),
        (["def scale_gradient(t, f):\n    '''Do.'''\n    ..."], Stage.NOT_ATTEMPTED, "as it came"),
        (["\ndef scale_gradient(t, f):\n    return (\n"], Stage.RAISED, "your line 3, `return (`, is not Python"),
        (["\n\ndef scale_gradient(a, a): return a"], Stage.RAISED, "your line 3, `def scale_gradient(a, a): return a`"),
    ],
)
def test_what_is_no_answer_has_an_outcome_in_words(cells, stage, words):
    answers = collect_answers(read_cells(raw_notebook(*cells, "def keep_positive(t):\n    return t")), TENSOR_HOOKS)
    assert only(answers).outcome.stage is stage
    assert words in only(answers).outcome.sentence
    assert only(answers, "keep_positive").outcome is None, "it costs no other answer anything"


def broken(number):
    """So many cells that are not Python, and an answer that lacks as many names."""
    lacks = ", ".join(f"name_{each}" for each in range(number))
    cells = [*(f"def other_{each}(" for each in range(number)), "class name_7(:"]
    return *cells, f"def scale_gradient(t, f):\n    return {lacks}"


@pytest.mark.parametrize("make", [broken, lambda number: ["", *[" "] * number]], ids=["broken", "empty"])
def test_the_work_grows_with_the_notebook_and_not_with_its_square(make):
    """Eight times the cells: about eight times the processor's time, and 64 times if each were compared with each."""
    least = []
    for number in (1000, 8000):
        cells, times = read_cells(raw_notebook(*make(number))), []
        for _ in range(5):
            begun = time.process_time()
            answer = only(collect_answers(cells, TENSOR_HOOKS))
            times.append(time.process_time() - begun)
        least.append(min(times))
    assert least[1] < 24 * least[0]
    assert answer.left == (("class name_7(:",) if make is broken else ())


def test_what_a_student_lost_comes_from_the_lesson():
    data = raw_notebook("def scale_gradient(t, f):\n    return torch.relu, change_gradient")
    support = only(collect_answers(read_cells(data), TENSOR_HOOKS)).support
    assert {"import torch", "def change_gradient"} <= {text.split("(")[0] for text in support}
    own = raw_notebook("torch = 5", "def scale_gradient(t, f):\n    return torch")
    assert only(collect_answers(read_cells(own), TENSOR_HOOKS)).support == ("torch = 5",)


def needed(*sources, of=None):
    """What the last cell needs from the cells of a notebook, and what nobody defines."""
    cells = [read_cell(source) for source in sources]
    found, _, missing = Names(cells).needed(read_names(of or sources[-1])[1], len(cells) - 1, but={"answer"})
    return list(found), missing - set(dir(__builtins__)) - set(__builtins__)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["import torch as t\nfrom torch import nn, jit"], ["import torch as t", "from torch import nn"]),
        (["def nn(): return deep\ndeep = 3\nt = x = nn"], ["def nn(): return deep", "deep = 3", "t = x = nn"]),
        (["t = 1\nnn = t + 1", "t = 5"], ["t = 1", "nn = t + 1", "t = 5"]),  # each as it was in its time
        (["t = nn = 1\nt.patched = 2\nprint(t)\nnn.run()\nt += 1"], ["t = nn = 1", "t += 1"]),
        (["nn = 1", "for i in far: print(i)", "for i in range(3): t = i"], ["nn = 1", "for i in range(3): t = i"]),
        (["nn = 1\nif nn: t = 2\nif nn: print(nn)"], ["nn = 1", "if nn: t = 2"]),
        (["%%bash\nrm -rf t nn", "t, nn = 1, 2"], ["t, nn = 1, 2"]),
    ],
)
def test_definitions_travel_in_order_and_nothing_else(cells, expected):
    found, _ = needed(*cells, "def answer(): return t, nn")
    assert found == expected


def test_last_definition_before_the_answer_counts():
    assert needed("k = 1", "k = 2", "def answer(): return k")[0] == ["k = 2"]
    assert needed("k = 1", "def answer(): return k\nk = 3")[0] == ["k = 3"], "the answer's cell runs whole"
    cells = [read_cell(text) for text in ("def answer(): return k", "k = 4", "k = 5")]
    assert Names(cells).needed({"k"}, 0, but={"answer"}) == (("k = 4",), (), set()), "else the first one after"
    circle = "def even(n): return odd(n)\ndef odd(n): return even(n) or answer(n)"
    assert needed(circle, "def answer(n): return even(n)") == (circle.split("\n"), set()), "each once"


def test_lines_for_ipython_do_no_harm_and_keep_the_line_numbers():
    for text in (
        "%matplotlib inline\n!pip list\nx = 3\n\ndef answer():\n    %time 1\n    return x",
        "%%time\n\n\nx = 3\ndef answer():\n    return x",
        "\n\n%time x = 3\nfiles = !ls\nx?\n\ndef answer():\n    return x",
    ):
        cell = read_cell(text)
        lines = [text.split("\n")[each.line - 1] for each in cell.statements if each.defines]
        assert (cell.error, lines) == (None, ["def answer():"])
        assert needed(text, of="def answer():\n    return x\n")[0] == ["x = 3"]


@pytest.mark.parametrize(
    ("cell", "answer", "left"),
    [
        ("items = []\nitems.append(1)", "items", "items.append(1)"),
        ("items = [0]\nprint(items)\nfor each in (items,):\n    each.clear()", "not items", "for each in (items,):"),
        ("items = [0]\ngone = items.pop()", "not items", "gone = items.pop()"),
        ("from torch import nn\nnn.set_it(8)\nnn.ones(3)\nnn.set_printoptions(1)", "not nn", "nn.set_it(8)"),
        ("class Found: pass\nFound.it = 1\nFound()", "hasattr(Found, 'it')", "Found.it = 1"),
        ("def note(): pass\n@note.register\ndef _(x): pass", "not note", "@note.register"),
        ("items = [0]\nitems.append(1)\nitems = []", "items", ""),
        ("largest.calls = 1", "hasattr(largest, 'calls')", "largest.calls = 1"),
        ("def twice(x, x): return x\nother = 1", "'twice' in globals()", "def twice(x, x): return x"),
        ("items = 1 / 0", "items", "`items = 1 / 0` raised ZeroDivisionError"),
    ],
)
def test_what_stays_behind_is_told_and_looked_at_unless_the_answer_passes(cell, answer, left):
    score = judged(cell, answer=answer)
    assert (score.points, score.look_by_hand) == (0, bool(left))
    assert left in score.reason
    assert ("It was run without" in score.sentence) == bool(left and "raised" not in left)
    score = judged(cell, answer=f"({answer}) or True")
    assert (score.points == 1 or "raised" in left, score.look_by_hand) == (True, "raised" in left)
