"""What the grader takes from a notebook: the answers, and the definitions that they need."""

import ast
import copy
import json
import time

import jupytext
import nbformat
import pytest
from grading_samples import LESSONS, START, TENSOR_HOOKS, TWO, add_cell, answer_in, notebook_with, only, raw_notebook

from course_utils.exercises.outcome import Stage
from course_utils.grading.answers import collect_answers, read_notebook
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
        (b'{"nbformat": 4, "cells": {"a": 1}}', "without a list of cells"),
        (b'{"nbformat": 3, "worksheets": 5}', "cannot be converted"),
        (b"[" * 100_000, "no notebook"),
        (b'{"nbformat": 4, "cells": [' + b"9" * 5000 + b"]}", "no notebook"),
        (raw_notebook("x = 1\n" * 100_000), "code cells hold 600,000 characters"),
        (b"# %%\nx = 1\n" * 100_000, "^it holds 1,100,000 characters"),
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
        (["scale_gradient = lambda t, f: t"], Stage.NOT_ATTEMPTED, "no function called `scale_gradient`"),
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


@pytest.mark.parametrize(
    "make",
    [
        lambda number, again: ["", *[" " * again] * number],
        lambda number, again: [f"x{each} = x{each - 1}  # {again}" for each in range(1, number)],
        lambda number, again: ["\n".join(["x = !ls"] * number) + f"\ny = {again}"],
    ],
    ids=["empty", "chain", "commands"],
)
def test_the_work_grows_with_the_notebook_and_not_with_its_square(make):
    """Eight times the cells: about eight times the processor's time, and 64 times if each were compared with each."""
    least, answer = [], "def scale_gradient(t, f):\n    return x{}"
    for number in (300, 2400):
        times = []
        for again in range(3):
            data = raw_notebook(*make(number, again), answer.format(number - 1))  # no text is read twice
            begun = time.process_time()
            read_notebook(data, TENSOR_HOOKS.name)
            times.append(time.process_time() - begun)
        least.append(min(times))
    assert least[1] < 24 * least[0]


def test_what_a_student_lost_comes_from_the_lesson():
    data = raw_notebook("def scale_gradient(t, f):\n    return torch.relu, change_gradient")
    support = only(collect_answers(read_cells(data), TENSOR_HOOKS)).support
    assert {"import torch", "def change_gradient"} <= {text.split("(")[0] for text in support}
    own = raw_notebook("torch = 5", "def scale_gradient(t, f):\n    return torch")
    assert only(collect_answers(read_cells(own), TENSOR_HOOKS)).support[-1] == "torch = 5"


def needed(*sources, of=None):
    """What the last cell needs from the cells of a notebook."""
    cells = [read_cell(source) for source in sources]
    names = read_names(of or sources[-1])[1]
    return [each.source for each in Names(cells).find_needed(names, len(cells) - 1, but={"answer"}).values()]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["import torch as t\nfrom torch import nn, jit"], ["import torch as t", "from torch import nn, jit"]),
        (["def nn(): return deep\ndeep = 3\nt = x = nn"], ["def nn(): return deep", "deep = 3", "t = x = nn"]),
        (["t = 1\nnn = t + 1", "t = 5"], ["t = 1", "nn = t + 1", "t = 5"]),  # each as it was in its time
        (["t = nn = 1\nt.patched = 2\nprint(t)\nnn.run()\nt += 1"], ["t = nn = 1", "t += 1"]),
        (["nn = 1", "for i in far: print(i)", "for i in range(3): t = i"], ["nn = 1", "for i in range(3): t = i"]),
        (["nn = 1\nif nn: t = 2\nif nn: print(nn)"], ["nn = 1", "if nn: t = 2"]),
        (["%%bash\nrm -rf t nn", "t, nn = 1, 2"], ["t, nn = 1, 2"]),
        (["t = [nn := deep for _ in (1,)]\ndeep = [1]"], ["t = [nn := deep for _ in (1,)]", "deep = [1]"]),
        (["class t(deep):\n    nn = nn + 1\nnn = 1"], ["class t(deep):\n    nn = nn + 1", "nn = 1"]),
    ],
)
def test_definitions_travel_in_order_and_nothing_else(cells, expected):
    assert needed(*cells, "def answer(): return t, nn") == expected


def test_all_that_gives_a_name_its_value_before_the_answer_travels_in_order():
    assert needed("k = 1", "k = 2", "def answer(): return k") == ["k = 1", "k = 2"]
    assert needed("k = 1", "def answer(): return k\nk = 3") == ["k = 1", "k = 3"], "the answer's cell runs whole"
    cells = [read_cell(text) for text in ("def answer(): return k", "k = 4", "k = 5")]
    found = Names(cells).find_needed({"k"}, 0, but={"answer"})
    assert [each.source for each in found.values()] == ["k = 4"], "else the first one after"
    circle = "def even(n): return odd(n)\ndef odd(n): return even(n) or answer(n)"
    assert needed(circle, "def answer(n): return even(n)") == circle.split("\n"), "each once"


def test_lines_for_ipython_do_no_harm_and_keep_the_line_numbers():
    for text in (
        "%matplotlib inline\n!pip list\nx = 3\n\ndef answer():\n    %time 1\n    return x",
        "%%time\n\n\nx = 3\ndef answer():\n    return x",
        "\n\nx = 3\nfiles = !ls\nx?\n\ndef answer():\n    return x",
    ):
        cell = read_cell(text)
        lines = [text.split("\n")[each.line - 1] for each in cell.statements if each.defines]
        assert (cell.error, lines) == (None, ["def answer():"])
        assert needed(text, of="def answer():\n    return x\n") == ["x = 3"]
    texts = 'y = 1\nz = [\n    y\n    % 2]\na = \'%pwd\'\n# !ls\nb = """\n!kept\n%kept\n"""'
    found = [each.source for each in read_cell(f"!ls\n{texts}").statements]
    assert found == ["get_ipython().system('ls')", *read_texts(texts)]
    assert read_cell("%%writefile -a x.py\ny = 1\n").statements[0].source == (
        "get_ipython().run_cell_magic('writefile', '-a x.py', 'y = 1\\n')"
    )


def read_texts(source):
    """The statements of Python without lines for IPython."""
    return [ast.get_source_segment(source, node) for node in ast.parse(source).body]


@pytest.mark.parametrize(
    ("cells", "joined"),
    [
        (["def f(x):\n    y = x", "    return y"], ["def f(x):\n    y = x\n    return y"]),
        (["class f:", "    def g(self): ...", "", "\tx = 1"], ["class f:\n    def g(self): ...", "\tx = 1"]),
        (["def f(x): return x", "    y = f(1)\n    y"], ["def f(x): return x", "    y = f(1)\n    y"]),
        (["x = 1", "    return x"], ["x = 1", "    return x"]),
        (["    x = 1"], ["    x = 1"]),
    ],
)
def test_a_cell_that_begins_inside_a_function_or_a_class_belongs_to_the_one_above(cells, joined):
    assert [cell.source for cell in read_cells(raw_notebook(*cells))] == joined


WRONG = "def largest(tensor):\n    return 0.0"


@pytest.mark.parametrize(
    ("cells", "whole"),
    [
        ([WRONG], False),
        (["def helper(x): return x", "def largest(tensor):\n    return helper(tensor)"], True),
        (["from __future__ import annotations", WRONG], True),
        (["k = await later", "def largest(tensor):\n    return k"], True),
        (["items = []", "items.append(1)", "def largest(tensor):\n    return items"], True),
        (["print(1)", WRONG], True),
        ([WRONG, "def largest(tensor):\n    return 1.0"], True),
        (["@print\ndef helper(): pass", WRONG], True),
        (["largest = max"], True),
        (["x = 1", "print(x)"], False),
        (["globals()['largest'] = max"], True),
        (["def largest(tensor): ...", "largest.calls = 1"], True),
        (["def largest(tensor):\n    return (", "largest = max"], True),
        (["def largest(tensor):\n    return ("], False),
    ],
)
def test_the_whole_notebook_may_do_better_where_there_is_more_code_of_the_students_own(cells, whole):
    assert only(collect_answers(read_cells(raw_notebook(*cells)), START), "largest").whole == whole


def test_an_untouched_lesson_has_no_attempt_in_it_whatever_it_shows():
    for lesson in LESSONS.values():
        answers = read_notebook(nbformat.writes(notebook_with(lesson, {})).encode(), lesson.name).answers
        assert {each.outcome and each.outcome.stage for each in answers} <= {Stage.NOT_ATTEMPTED}, lesson.name


def test_an_untouched_lesson_with_a_wrong_answer_is_not_run_as_a_whole():
    for lesson in LESSONS.values():
        answers = {each.name: f"def {each.name}(*_): return 0\n" for each in lesson.exercises}
        notebook = read_notebook(nbformat.writes(notebook_with(lesson, answers)).encode(), lesson.name)
        assert [each.exercise.name for each in notebook.answers if each.whole] == []
        assert notebook.cells == ()


def test_of_a_whole_notebook_the_students_cells_run_and_what_they_use_of_the_lessons():
    bound_below = "def keep_positive(tensor): return hooked(tensor)"  # by `%run`, say; the lesson has its own later on
    notebook = notebook_with(TENSOR_HOOKS, {"scale_gradient": TWO, "keep_positive": bound_below})
    add_cell(notebook, "mine = change_gradient", at=len(notebook.cells))
    add_cell(notebook, "this is ( not Python", at=len(notebook.cells))
    cells = read_notebook(nbformat.writes(notebook).encode(), TENSOR_HOOKS.name).cells
    firsts = [text.strip().partition("\n")[0].partition("(")[0] for text in cells]
    assert firsts[-4:] == ["def scale_gradient", "def keep_positive", "mine = change_gradient", "this is "]
    assert "def change_gradient" in "\n".join(cells)
    assert "hooked = " not in "\n".join(cells)
    assert len(cells) < 8, "and not the rest of the lesson"
