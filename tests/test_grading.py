"""The grader: only answers are taken, only evidence comes out, and the scores are those that `check` would give."""

from __future__ import annotations

import ast
import copy
import csv
import errno
import json
import os
import re
import textwrap
import time

import nbformat
import pytest
from grading_samples import add_cell, as_version_3, hand_in, helpers_of, notebook_with, raw_notebook, source_under_name
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.authoring import source
from course_utils.exercises.classroom import VISIBLE_SEED
from course_utils.exercises.engine import exercises_of, find
from course_utils.exercises.judging import first_difference
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading import definitions
from course_utils.grading import report as reports
from course_utils.grading.grade import main
from course_utils.grading.answers import read_cells
from course_utils.root import CourseError
from course_utils.grading.verdict import canonical
from course_utils.grading.collect import CollectedAnswer, collect_answers
from course_utils.grading.verdict import Comparer
from course_utils.grading.definitions import (
    Names,
    read_cell,
    text_of,
    used_names,
)
from course_utils.grading.batch import STOPPED, grade
from course_utils.grading.verdict import (
    Item,
    Verdict,
    compare,
    judge_answer,
    judge_in_words,
)
from course_utils.grading.lessons import Lesson, read_lessons
from course_utils.grading.evidence import (
    fits,
    read_record,
)
from course_utils.grading.report import (
    COLUMNS,
    NOT_GRADED,
    Score,
    score,
    table,
    write_scores,
)
from course_utils.grading.resume import GradingMemory
from course_utils.grading.evidence import (
    Key,
    Observed,
    make_keys,
    make_task,
    read_ran,
    seed_for,
)
from course_utils.grading.sandbox import driver
from course_utils.grading.sandbox.crew import LocalCrew, choose_engine
from course_utils.grading.sandbox.fork import ForkEngine
from course_utils.grading.sandbox.kernel import KernelEngine, make_notebook
from course_utils.grading.sandbox.tasks import Limits
from course_utils.grading.submissions import (
    MAX_BYTES,
    Submission,
    find_submissions,
    read_submission,
)

SEED = 20_261
LESSONS = read_lessons()
LESSON = LESSONS["01_tensor_hooks"]
START = LESSONS["00_start_here"]
EXERCISES = [exercise for lesson in LESSONS.values() for exercise in lesson.exercises]
OTHERS = [
    (exercise.name, kind, index)
    for exercise in EXERCISES
    for kind in ("accepted", "mistakes")
    for index in range(len(getattr(exercise, kind)))
]


def through_json(value):
    return json.loads(json.dumps(value))


def lesson_of(exercise):
    return next(lesson for lesson in LESSONS.values() if exercise in lesson.exercises)


def function_of(name, kind, index):
    found = getattr(find(name), kind)[index]
    return found if kind == "accepted" else found.function


@pytest.fixture(scope="module")
def keys():
    """The key of every exercise, made in this process."""
    found = {}
    for exercise in EXERCISES:
        evidence, mistakes = through_json(exercise.key(seed_for(exercise.name, SEED)))
        found[exercise.name] = Key(tuple(evidence), tuple((text, tuple(each)) for text, each in mistakes.items()))
    return found


# ------------------------------------------------------------------------------------------------------------- names


def needed(*sources, of=None):
    """What the last cell needs from the cells of a notebook, and what nobody defines."""
    cells = [read_cell(source) for source in sources]
    found, missing = Names(cells).needed(used_names(of or sources[-1]), len(cells) - 1, but="answer")
    return found, missing - set(dir(__builtins__)) - set(__builtins__)


def test_names_from_outside_are_used_and_own_variables_are_not():
    source = textwrap.dedent(
        """
        @decorate
        def answer(tensor, factor=DEFAULT):
            own = tensor * factor
            return [helper(one) for one in own if one > limit]
        """
    )
    assert used_names(source) == {"decorate", "DEFAULT", "helper", "limit"}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param(
            ["import torch as t\nfrom torch import nn, jit"],
            ["import torch as t", "from torch import nn"],
            id="imports",
        ),
        pytest.param(
            ["def nn(): return deep\ndeep = 3\nt = other = nn"],
            ["def nn(): return deep", "deep = 3", "t = other = nn"],
            id="transitive",
        ),
        pytest.param(["a, (nn, t) = 1, (2, 3)\nunused = slow()"], ["a, (nn, t) = 1, (2, 3)"], id="tuple"),
        pytest.param(
            ["try:\n    import nn\nexcept ImportError:\n    nn = None\nt: int = 1"],
            ["try:\n    import nn\nexcept ImportError:\n    nn = None", "t: int = 1"],
            id="try",
        ),
        pytest.param(["t = 1\nnn = t + 1", "t = 5"], ["t = 1", "nn = t + 1", "t = 5"], id="each in its time"),
        pytest.param(
            ["t = nn = 1\nt.patched = 2\nprint(t)\nnn.run()\nt += 1\ndel nn"], ["t = nn = 1"], id="no effects"
        ),
        pytest.param(["from everywhere import *"], ["from everywhere import *"], id="star"),
    ],
)
def test_definitions_travel_in_order_and_nothing_else(cells, expected):
    found, _ = needed(*cells, "def answer(): return t, nn")
    assert found == expected


def test_last_definition_before_the_answer_counts():
    assert needed("k = 1", "k = 2", "def answer(): return k")[0] == ["k = 2"]
    assert needed("k = 1", "def answer(): return k\nk = 3")[0] == ["k = 3"], "the answer's cell runs whole"
    cells = [read_cell(text) for text in ("def answer(): return k", "k = 4", "k = 5")]
    assert Names(cells).needed({"k"}, 0, but="answer") == (["k = 4"], set()), "else the first one after"


def test_functions_that_call_each_other_come_once():
    found, missing = needed(
        "def even(n): return odd(n)\ndef odd(n): return even(n) or answer(n)", "def answer(n): return even(n)"
    )
    assert len(found) == 2
    assert not missing


@pytest.mark.parametrize(
    "source",
    [
        "%matplotlib inline\n!pip list\nx = 3\n\ndef answer():\n    %time 1\n    return x",
        "%%time\n\n\nx = 3\ndef answer():\n    return x",
        "\n\nx = 3\nfiles = !ls\nx?\n\ndef answer():\n    return x",
    ],
)
def test_lines_for_ipython_do_no_harm_and_keep_the_line_numbers(source):
    cell = read_cell(source)
    assert cell.error is None
    wanted = [number for number, line in enumerate(source.split("\n"), start=1) if line.startswith("def")]
    assert [node.lineno for node in cell.tree.body if hasattr(node, "name")] == wanted
    assert needed(source, of="def answer():\n    return x\n")[0] == ["x = 3"]


def test_the_text_of_a_statement_is_what_ast_says():
    source = "é = 'ü'; x = '''a\nü b'''; y = 3\nif x:\n    z = 1\nelse:\n    z = (2,\n 3)  # no\nw: int = 4\n"
    nodes = ast.parse(source).body
    assert [text_of(node, source) for node in nodes] == [ast.get_source_segment(source, node) for node in nodes]


def test_a_cell_is_split_once_for_all_its_statements():
    """With thousands of statements in a cell, a submission could keep the grader busy for hours."""
    before = definitions._lines.cache_info().misses
    Names([read_cell("".join(f"x{number} = {number}\n" for number in range(1000)))])
    assert definitions._lines.cache_info().misses == before + 1


def test_a_cell_of_another_language_is_empty():
    assert read_cell("%%bash\nrm -rf everything").tree.body == []


# ----------------------------------------------------------------------------------------------------------- collect


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (raw_notebook("x = 1")[:-20], "cut off"),
        (b"PK\x03\x04\xff\xfe", "UTF-8"),
        (b"print('hello')", "no notebook"),
        (b"[1, 2]", "not a notebook"),
        (b'{"cells": []}', "not a notebook"),
        (b'{"nbformat": true, "cells": []}', "not a notebook"),
        (b'{"nbformat": 7, "cells": []}', "version 7"),
        (b'{"nbformat": 4, "cells": {"a": 1}}', "without a list of cells"),
        (b'{"nbformat": 3, "worksheets": 5}', "cannot be converted"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"nbformat": 4, "cells": [' + b"9" * 5000 + b"]}", "no notebook"),
    ],
)
def test_what_is_no_notebook_has_a_reason(data, reason):
    with pytest.raises(CourseError, match=reason):
        read_cells(data)


@pytest.mark.parametrize(
    "cell",
    [
        17,
        None,
        {"cell_type": "code"},
        {"cell_type": "code", "source": 5, "metadata": 6, "id": 7},
        {"cell_type": "code", "source": ["def f(", 3, ")"], "metadata": {"tags": "answer"}},
        {"cell_type": "code", "source": "\x00", "metadata": {"tags": [1, {}]}},
        {"cell_type": "code", "source": "x = '\ud800'", "metadata": {}},
        {"cell_type": "code", "source": "def scale_gradient(a, a):\n    return 1", "metadata": {}},
        {"cell_type": "markdown", "source": "def scale_gradient(): pass", "metadata": {}},
    ],
)
def test_odd_cells_do_not_stop_the_reading(cell):
    good = "def keep_positive(tensor):\n    return tensor"
    answers = collect_answers(read_cells(raw_notebook(cell, good)), LESSON)
    assert [answer.exercise.name for answer in answers if answer.source] == ["keep_positive"]


def test_code_that_is_nested_too_deeply_costs_itself_only():
    chain = "if x:\n    y = 0\n" + "elif x:\n    y = 1\n" * 700
    cells = read_cells(raw_notebook(chain, ONE))
    assert cells[0].error is None
    assert "return 1" in only(collect_answers(cells, LESSON)).source


def test_only_small_regular_files_are_opened(tmp_path):
    (tmp_path / "folder.ipynb").mkdir()
    (tmp_path / "large.ipynb").write_bytes(b" " * (MAX_BYTES + 1))
    (tmp_path / "link.ipynb").symlink_to(tmp_path / "large.ipynb")
    os.mkfifo(tmp_path / "pipe.ipynb")
    reasons = {
        "folder": "is a folder",
        "large": "larger than 20 MB",
        "link": "link",
        "pipe": "regular",
        "gone": "cannot",
    }
    for name, reason in reasons.items():
        with pytest.raises(CourseError, match=reason):
            read_submission(Submission("ann", name, tmp_path / f"{name}.ipynb"))


def test_every_file_in_the_folder_gets_a_row(tmp_path):
    folder, outside = tmp_path / "class", tmp_path / "outside"
    for path in (
        folder / "ann",
        folder / "empty",
        folder / "up..down",
        folder / "line\nbreak",
        folder / ".git",
        outside,
    ):
        path.mkdir(parents=True)
    blank = nbformat.writes(source.learner(LESSON.path))
    (outside / "secret.ipynb").write_text(blank)
    (folder / "ann" / "01_tensor_hooks.ipynb").write_text(blank)
    (folder / "ann" / "01_tensor_hook (1).ipynb").write_text(blank)
    (folder / "ann" / "notes.txt").write_text("mine")
    (folder / "ann" / "00_start_here.ipynb").symlink_to(outside / "secret.ipynb")
    (folder / "empty" / "answers.py").write_text("x = 1")
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    (folder / "loose.ipynb").write_text(blank)
    (folder / "readme.md").write_text("for the grader")
    found = {(each.student, each.name): each for each in find_submissions(folder, LESSONS)}
    assert found["ann", "01_tensor_hooks"].lesson is LESSON
    assert found["ann", "01_tensor_hooks"].reason == ""
    reasons = {where: each.reason for where, each in found.items() if each.reason}
    assert "the nearest is 01_tensor_hooks.ipynb" in reasons.pop(("ann", "01_tensor_hook (1)"))
    assert "links are not followed" in reasons.pop(("ann", "00_start_here"))
    assert "only answers.py" in reasons.pop(("empty", ""))
    assert "links are not followed" in reasons.pop(("linked", ""))
    assert "should have" in reasons.pop(("up..down", ""))
    assert "should have" in reasons.pop(("line\\nbreak", ""))
    assert "not in a student's folder" in reasons.pop(("", "loose.ipynb"))
    assert not reasons


def only(answers, name="scale_gradient"):
    return next(answer for answer in answers if answer.exercise.name == name)


ONE = "def scale_gradient(tensor, factor):\n    return 1\n"
TWO = "def scale_gradient(tensor, factor):\n    return 2\n"


def answer_in(notebook, name="scale_gradient"):
    return only(collect_answers(read_cells(nbformat.writes(notebook).encode()), LESSON), name)


def test_answers_are_found_by_id_then_tag_then_name():
    notebook = notebook_with(LESSON, {"scale_gradient": ONE})
    add_cell(notebook, TWO, at=len(notebook.cells))
    assert "return 1" in answer_in(notebook).source, "the lesson's own cell comes first"
    cell = next(cell for cell in notebook.cells if "return 1" in cell.source)
    cell.id = "lost"
    assert "return 1" in answer_in(notebook).source, "then the tag"
    cell.metadata.tags = []
    assert "return 2" in answer_in(notebook).source, "then the last with the name"


def test_a_doubled_id_says_nothing():
    notebook = notebook_with(LESSON, {"scale_gradient": ONE})
    cell = copy.deepcopy(next(cell for cell in notebook.cells if "return 1" in cell.source))
    cell.source = TWO
    notebook.cells.append(cell)
    data = json.dumps(notebook).encode()
    assert "return 2" in only(collect_answers(read_cells(data), LESSON)).source, "the last tagged one, as when run"


def test_an_empty_skeleton_does_not_hide_the_answer_elsewhere():
    notebook = notebook_with(LESSON, {})
    add_cell(notebook, TWO, at=len(notebook.cells))
    assert "return 2" in answer_in(notebook).source


def test_an_empty_skeleton_of_a_class_does_not_hide_the_answer_elsewhere():
    lesson = lesson_of(find("SaveOutput"))
    notebook = notebook_with(lesson, {})
    add_cell(notebook, "class SaveOutput:\n    def __call__(self): return 2\n", at=len(notebook.cells))
    assert (
        "return 2" in only(collect_answers(read_cells(nbformat.writes(notebook).encode()), lesson), "SaveOutput").source
    )


def test_lost_ids_and_tags_and_old_versions_change_nothing():
    notebook = nbformat.reads(LESSON.answered_notebook(), as_version=4)
    wanted = [
        (answer.exercise.name, answer.source)
        for answer in collect_answers(read_cells(json.dumps(notebook).encode()), LESSON)
    ]
    bare = copy.deepcopy(notebook)
    for number, cell in enumerate(bare.cells):
        cell.metadata = {}
        cell.id = f"cell-{number}"
    bare.metadata = {"kernelspec": {"name": "julia", "display_name": "Julia", "language": "julia"}}
    for data in (json.dumps(bare).encode(), as_version_3(notebook), b"\xef\xbb\xbf" + json.dumps(bare).encode()):
        answers = collect_answers(read_cells(data), LESSON)
        assert [(answer.exercise.name, answer.source) for answer in answers] == wanted


def test_a_skeleton_and_a_missing_answer_are_not_attempted():
    blank = collect_answers(read_cells(nbformat.writes(source.learner(LESSON.path)).encode()), LESSON)
    assert {answer.outcome.stage for answer in blank} == {Stage.NOT_ATTEMPTED}
    missing = only(collect_answers(read_cells(raw_notebook("x = 1")), LESSON))
    assert "no function called `scale_gradient`" in missing.outcome.sentence
    assigned = only(collect_answers(read_cells(raw_notebook("scale_gradient = lambda t, f: t")), LESSON))
    assert "write the answer with `def`" in assigned.outcome.sentence


def test_a_cell_that_does_not_parse_costs_its_own_exercise_only():
    notebook = notebook_with(
        LESSON,
        {
            "scale_gradient": "\ndef scale_gradient(tensor, factor):\n    return (\n",
            "keep_positive": "def keep_positive(tensor):\n    return 1\n",
        },
    )
    broken = answer_in(notebook).outcome
    assert broken.stage is Stage.RAISED
    assert "your line 3, `return (`, is not Python" in broken.sentence
    assert answer_in(notebook, "keep_positive").outcome is None
    twice = only(collect_answers(read_cells(raw_notebook("\n\ndef scale_gradient(a, a): return a")), LESSON)).outcome
    assert "your line 3, `def scale_gradient(a, a): return a`, is not Python: duplicate argument" in twice.sentence


def test_what_a_student_lost_comes_from_the_lesson():
    answer = only(
        collect_answers(read_cells(raw_notebook("def scale_gradient(t, f):\n    return torch.relu, number")), LESSON)
    )
    assert "import torch" in answer.support
    assert any(text.startswith("def number") for text in answer.support)
    own = raw_notebook("torch = 5", "def scale_gradient(t, f):\n    return torch")
    assert only(collect_answers(read_cells(own), LESSON)).support == ("torch = 5",)


# ------------------------------------------------------------------------------------------------------------ driver


def observe(name, support, source):
    return through_json(driver.observe_answer(name, support, textwrap.dedent(source), SEED))


def test_driver_notes_what_defining_an_answer_raises():
    record = observe("largest", "", "\n\n@missing\ndef largest(tensor):\n    return 1\n")
    assert record["raised"]["type"] == "NameError"
    assert record["raised"]["line"] == 3
    assert record["raised"]["text"] == "@missing"
    assert observe("largest", "", "import sys\nsys.exit()")["raised"]["type"] == "SystemExit"
    stopped = observe("largest", "", "def largest(tensor):\n    raise KeyboardInterrupt\n")
    assert stopped["raised"]["type"] == "KeyboardInterrupt"


def test_driver_goes_on_without_a_definition_that_fails():
    record = observe("largest", "a = 1 / 0\nb = 2", "def largest(tensor):\n    return b\n")
    assert record["cases"][0]["returned"] == {"type": "int", "value": 2}
    assert record["lost"] == ["`a = 1 / 0` raised ZeroDivisionError: division by zero"]


def test_driver_knows_blank_classes_and_functions():
    assert observe("largest", "", "def largest(tensor):\n    pass\n")["blank"]
    assert observe("largest", "", "class largest:\n    def __init__(self): ...\n")["blank"]


def test_each_answer_has_a_namespace_of_its_own():
    observe("largest", "left_over = 1", "def largest(tensor):\n    return left_over\n")
    record = observe("largest", "", "def largest(tensor):\n    return left_over\n")
    assert record["cases"][0]["raised"]["type"] == "NameError"


def test_an_endless_answer_is_stopped(monkeypatch):
    monkeypatch.setattr(find("largest"), "limit", 0.2)
    record = observe("largest", "", "def largest(tensor):\n    while True:\n        pass\n")
    assert record["cases"][0]["raised"]["type"] == "TimeIsUp"
    assert observe("largest", "while True: pass", "def largest(tensor): return 1")["raised"]["type"] == "TimeIsUp"


# ----------------------------------------------------------------------------------------------------------- records


def good_record():
    exercise = find("scale_gradient")
    return through_json(
        {
            "exercise": exercise.name,
            "blank": False,
            "raised": None,
            "lost": [],
            "cases": exercise.observe(exercise.reference, SEED),
        }
    )


def spoil(record, path, value):
    """Put `value` at a place of the record."""
    place = record
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return record


def test_the_drivers_record_is_in_order():
    assert read_record(json.dumps(good_record()), "scale_gradient") == good_record()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["exercise"], "another"),
        (["blank"], 1),
        (["more"], 1),
        (["lost"], ["a", 2]),
        (["cases"], None),
        (["cases"], [{}] * 1000),
        (["cases", 0], []),
        (["cases", 0, "given"], 7),
        (["cases", 0, "alive"], "no"),
        (["cases", 0, "world"], "all"),
        (["cases", 0, "raised"], {"type": "Error"}),
        (["cases", 0, "returned"], {"type": "tensor", "dtype": "float32", "shape": [1], "values": ["1"]}),
        (["cases", 0, "returned"], {"type": "tensor", "dtype": "float32", "shape": [True], "values": [1.0]}),
        (["cases", 0, "returned"], {"type": "int", "value": 1.5}),
        (["cases", 0, "returned"], {"type": "int", "value": 10**400}),
        (["cases", 0, "returned"], {"type": "None", "value": 1}),
        (["cases", 0, "returned"], {"type": ["None"]}),
        (["cases", 0, "returned"], {"type": "list", "items": [1]}),
        (["cases", 0, "returned"], {"type": "dict", "items": [[{"type": "None"}]]}),
        (["cases", 0, "changed"], {"tensor": ["everything"]}),
        (["cases", 0, "inputs", "tensor"], {}),
        (["cases", 0, "inputs", "tensor", "hooks"], True),
        (["cases", 0, "inputs", "tensor", "grad"], {"a": 1}),
    ],
)
def test_a_forged_record_is_refused(path, value):
    with pytest.raises(CourseError):
        read_record(json.dumps(spoil(good_record(), path, value)), "scale_gradient")


def test_text_that_is_no_record_is_refused(monkeypatch):
    for text in (None, "", "{", "NaN", "[" * 100_000, '{"exercise": Infinity}', json.dumps([good_record()])):
        with pytest.raises(CourseError):
            read_record(text, "scale_gradient")
    deep = json.dumps(spoil(good_record(), ["cases", 0, "returned"], "deep"))
    deep = deep.replace('"deep"', '{"type": "list", "items": [' * 400 + "]}" * 400)
    with pytest.raises(CourseError, match="deeply"):
        read_record(deep, "scale_gradient")
    monkeypatch.setattr("course_utils.grading.evidence.MAX_CHARACTERS", 100)
    with pytest.raises(CourseError, match="longer"):
        read_record(json.dumps(good_record()), "scale_gradient")


def test_evidence_about_other_inputs_does_not_fit():
    cases, key = good_record()["cases"], good_record()["cases"]
    assert fits(cases, key)
    assert fits(cases[:1], key)
    assert not fits(spoil(cases, [0, "inputs"], {}), key)
    assert not fits(spoil(good_record()["cases"], [0, "inputs", "tensor", "grad"], {"weight": {"type": "None"}}), key)


# ------------------------------------------------------------------------------------------- fairness and agreement


@pytest.mark.parametrize("name", [exercise.name for exercise in EXERCISES])
def test_evidence_of_every_kind_is_in_order(name, keys):
    for evidence in [keys[name].evidence, *(evidence for _, evidence in keys[name].mistakes)]:
        check_evidence(list(evidence))


@pytest.mark.parametrize(("name", "kind", "index"), OTHERS)
def test_a_submission_gets_what_check_says(name, kind, index, keys):
    """The whole way but for the kernel: notebook, collect, driver, JSON, judge."""
    exercise, function = find(name), function_of(name, kind, index)
    seed = seed_for(name, SEED)
    wanted = exercise.check(function, seed)
    lesson = lesson_of(exercise)
    notebook = notebook_with(lesson, {name: f"{helpers_of(function)}\n\n{source_under_name(function, name)}"})
    answer = only(collect_answers(read_cells(nbformat.writes(notebook).encode()), lesson), name)
    record = driver.observe_answer(name, "\n".join(answer.support), answer.source, seed)
    record = read_record(json.dumps(record), name)
    assert record["lost"] == []
    assert record["raised"] is None
    observed = Observed(answer, tuple(record["cases"]))
    verdict = judge_in_words(observed, keys[name])
    assert (verdict.outcome.stage, verdict.outcome.cause) == (wanted.stage, wanted.cause)
    assert verdict.outcome.points == wanted.points
    key = keys[name].evidence
    assert (canonical(observed.evidence, key) == canonical(key, key)) == wanted.passed


@pytest.mark.parametrize("name", [exercise.name for exercise in exercises_of()])
def test_canonical_text_and_judging_agree_on_any_two_answers(name):
    """Each answer known in turn as the key of the others: who differs in words differs in text."""
    exercise = find(name)
    functions = [exercise.reference, *exercise.accepted, *(mistake.function for mistake in exercise.mistakes)]
    found = [through_json(exercise.observe(function, SEED)) for function in functions]
    for key in found:
        for evidence in found:
            assert fits(evidence, key)
            words = first_difference(evidence, key, name) is None
            assert (canonical(evidence, key) == canonical(key, key)) == words


numbers = st.one_of(
    st.integers(-3, 3), st.floats(-3, 3), st.sampled_from(["nan", "inf", "-inf", 0.0, -0.0, 1.0, 1.0000001])
)
scalars = st.one_of(
    st.just({"type": "None"}),
    st.sampled_from([{"type": "handle"}, {"type": "function"}, {"type": "Thing"}]),
    st.builds(lambda value: {"type": "float", "value": value}, numbers.filter(lambda value: type(value) is not int)),
    st.builds(lambda value: {"type": "int", "value": value}, st.integers(-3, 3)),
    st.builds(lambda value: {"type": "bool", "value": value}, st.booleans()),
    st.builds(lambda value: {"type": "str", "value": value}, st.text("ab", max_size=2)),
    st.builds(
        lambda values, dtype: {"type": "tensor", "dtype": dtype, "shape": [len(values)], "values": values},
        st.lists(numbers, max_size=3),
        st.sampled_from(["float32", "int64"]),
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(
            lambda kind, items: {"type": kind, "items": items},
            st.sampled_from(["list", "tuple", "set"]),
            st.lists(inner, max_size=3),
        ),
        st.builds(
            lambda pairs: {
                "type": "dict",
                "items": [[{"type": "str", "value": key}, value] for key, value in pairs.items()],
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        ),
    ),
    max_leaves=6,
)


def nearly(value, step):
    """`value` with every float moved by a relative `step`."""
    if isinstance(value, dict):
        return {name: nearly(part, step) for name, part in value.items()}
    if isinstance(value, list):
        return [nearly(part, step) for part in value]
    return value * (1 + step) if isinstance(value, float) else value


@settings(max_examples=400, deadline=None)
@given(values, st.one_of(values, st.sampled_from([0.0, 1e-7, 9e-6, 2e-5, 1e-3])))
def test_canonical_text_and_judging_agree_on_any_value(key, other):
    mine = nearly(key, other) if isinstance(other, float) else other
    case = {
        "given": "x = 1",
        "raised": None,
        "seen": {},
        "printed": "",
        "inputs": {},
        "changed": {},
        "world": [],
        "alive": False,
    }
    got, expected = [case | {"returned": mine}], [case | {"returned": key}]
    words = first_difference(got, expected, "any") is None
    assert (canonical(got, expected) == canonical(expected, expected)) == words


def test_canonical_text_is_short_and_leaves_out_what_does_not_count():
    case = good_record()["cases"][0]
    talking = case | {"printed": "look!"}
    assert canonical([talking], [case]) == canonical([case], [case])
    large = {"type": "tensor", "dtype": "float32", "shape": [5000], "values": [0.1] * 5000}
    text = canonical([case | {"returned": large}], [case | {"returned": large}])
    assert "sha256" in text
    assert max(map(len, text.splitlines())) < 400
    other = large | {"values": [*[0.1] * 4999, 0.2]}
    assert canonical([case | {"returned": other}], [case | {"returned": large}]) != text


# ------------------------------------------------------------------------------------------------ the class, for real


RAISES = "\n\ndef scale_gradient(tensor, factor):\n    raise RuntimeError('not today')\n"
EXITS = "import os\n\ndef keep_positive(tensor):\n    os._exit(1)\n"
STUBBORN = """
import time

def largest(tensor):
    while True:
        try:
            time.sleep(60)
        except BaseException:
            continue
"""
PATCHES = """
import torch, course_utils.exercises.judging
torch.allclose = torch.equal = lambda *_, **__: True
course_utils.exercises.judging.judge = None
def check(answer): return "passed"
def judge(*_): return "passed"
"""


def constants_for_the_visible_seed():
    """An answer to `largest` that knows the inputs everyone sees and what belongs to them."""
    cases = find("largest").observe(find("largest").reference, VISIBLE_SEED)
    known = {str(case["inputs"]["tensor"]["value"]["values"]): case["returned"]["value"] for case in cases}
    return f"def largest(tensor):\n    return {known!r}.get(str(tensor.reshape(-1).tolist()), 0.0)\n"


def rough_notebook():
    """One answer that is not Python, one that raises, one that kills its kernel; the others are right."""
    exercises = {exercise.name: exercise for exercise in LESSON.exercises}
    answers = {name: source_under_name(exercise.accepted[0], name) for name, exercise in exercises.items()}
    answers |= {"record_gradient": "def record_gradient(tensor:\n", "scale_gradient": RAISES, "keep_positive": EXITS}
    answers["hook_once"] = "%time\nfrom collections import OrderedDict\n" + answers["hook_once"]
    return notebook_with(LESSON, answers)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class of submissions, graded once: the rows by student and exercise, and the record that nbval judged."""
    folder = tmp_path_factory.mktemp("class")
    mistaken = {
        exercise.name: source_under_name(exercise.mistakes[0].function, exercise.name) for exercise in LESSON.exercises
    }
    right = nbformat.reads(LESSON.answered_notebook(), as_version=4)
    hand_in(folder, "blank", LESSON, source.learner(LESSON.path))
    hand_in(folder, "mistaken", LESSON, notebook_with(LESSON, mistaken))
    path = hand_in(folder, "right", LESSON, right)
    hand_in(folder, "rough", LESSON, rough_notebook())
    for student, data in {
        "cut": path.read_bytes()[:1000],
        "empty": b"",
        "latin": "é".encode("latin-1"),
        "text": b"my answers",
    }.items():
        (folder / student).mkdir()
        (folder / student / path.name).write_bytes(data)
    (folder / "folder" / path.name).mkdir(parents=True)
    renamed = hand_in(folder, "renamed", LESSON, right)
    renamed.rename(renamed.with_name("tensor_hooks.ipynb"))
    hand_in(folder, "constants", START, notebook_with(START, {"largest": constants_for_the_visible_seed()}))
    patched = notebook_with(START, {"largest": "def largest(tensor):\n    return 0.5\n"})
    add_cell(patched, PATCHES, at=0)
    for cell in patched.cells:
        cell.metadata.tags = [*cell.metadata.get("tags", []), "raises-exception", "nbval-skip"]
    hand_in(folder, "patches", START, patched)
    hand_in(folder, "stubborn", START, notebook_with(START, {"largest": STUBBORN}))
    record = tmp_path_factory.mktemp("report") / "verdicts.ipynb"
    start = time.perf_counter()
    memory = GradingMemory(None)
    memory.secret = SEED
    result = grade(
        find_submissions(folder, LESSONS), memory=memory, record=record, limits=Limits(exercise=15, submission=200)
    )
    return {
        "rows": {(row.student, row.exercise): row for row in result.scores},
        "scores": result.scores,
        "record": record,
        "seconds": time.perf_counter() - start,
    }


def stages_of(graded, student):
    return {exercise: row.stage for (name, exercise), row in graded["rows"].items() if name == student}


@pytest.mark.slow
def test_right_answers_get_all_points(graded, record_property):
    record_property("seconds of grading the class of the tests", graded["seconds"])
    rows = [row for row in graded["scores"] if row.student == "right"]
    assert len(rows) == len(LESSON.exercises)
    assert all(row.points == row.possible > 0 for row in rows)


@pytest.mark.slow
def test_mistakes_get_the_words_of_check(graded):
    for exercise in LESSON.exercises:
        row = graded["rows"]["mistaken", exercise.name]
        wanted = exercise.check(exercise.mistakes[0].function, seed_for(exercise.name, SEED))
        assert (row.points, row.stage, row.cause) == (0, str(wanted.stage), exercise.mistakes[0].message)
        assert row.possible == exercise.points
        if wanted.stage is not Stage.RAISED:  # there, the line number is that of another file
            assert row.sentence == wanted.sentence


@pytest.mark.slow
def test_a_blank_notebook_is_not_attempted(graded):
    assert set(stages_of(graded, "blank").values()) == {"not attempted"}


@pytest.mark.slow
def test_one_bad_answer_does_not_cost_the_others(graded):
    stages = stages_of(graded, "rough")
    assert [stages.pop(name) for name in ("record_gradient", "scale_gradient", "keep_positive")] == ["raised"] * 3
    assert set(stages.values()) == {"passed"}
    rows = graded["rows"]
    assert "your line 1, `def record_gradient(tensor:`, is not Python" in rows["rough", "record_gradient"].sentence
    assert "your line 4, `raise RuntimeError('not today')`, raised" in rows["rough", "scale_gradient"].sentence
    assert "The Python process ended while your answer ran" in rows["rough", "keep_positive"].sentence
    assert not any(row.look_by_hand for row in graded["scores"] if row.student == "rough")


@pytest.mark.slow
def test_an_answer_that_cannot_be_stopped_is_killed(graded):
    row = graded["rows"]["stubborn", "largest"]
    assert (row.stage, row.look_by_hand) == ("raised", False)
    assert "did not come to an end in time" in row.sentence


@pytest.mark.slow
def test_constants_for_the_visible_inputs_fail(graded):
    namespace = {}
    exec(constants_for_the_visible_seed(), namespace)
    assert find("largest").check(namespace["largest"], VISIBLE_SEED).passed
    assert graded["rows"]["constants", "largest"].stage == "wrong value"


@pytest.mark.slow
def test_patching_in_other_cells_gains_nothing(graded):
    row = graded["rows"]["patches", "largest"]
    assert (row.points, row.stage, row.look_by_hand) == (0, "wrong value", False)


@pytest.mark.slow
def test_broken_files_lose_nothing(graded):
    reasons = {"cut": "cut off", "empty": "is empty", "latin": "UTF-8", "text": "no notebook", "folder": "is a folder"}
    for student, reason in reasons.items():
        rows = [row for row in graded["scores"] if row.student == student]
        assert [row.exercise for row in rows] == [exercise.name for exercise in LESSON.exercises]
        assert all(row.stage == NOT_GRADED and row.look_by_hand and reason in row.reason for row in rows)
    (renamed,) = [row for row in graded["scores"] if row.student == "renamed"]
    assert (renamed.exercise, renamed.look_by_hand) == ("", True)
    assert "the nearest is 01_tensor_hooks.ipynb" in renamed.reason


@pytest.mark.slow
def test_the_record_holds_evidence_and_nothing_else(graded):
    record = nbformat.read(graded["record"], as_version=4)
    nbformat.validate(record)
    cells = [cell for cell in record.cells if cell.cell_type == "code"]
    judged = {(cell.metadata.student, cell.metadata.exercise) for cell in cells}
    assert ("right", "scale_gradient") in judged
    assert not {student for student, _ in judged} & {"blank", "stubborn", "cut"}
    text = graded["record"].read_text()
    assert str(SEED) not in text
    assert "register_hook" not in text, "no code of anyone's"


# ------------------------------------------------------------------------------------------------------ run and judge


@pytest.fixture(scope="module", params=["fork", "kernel"])
def engine(request):
    """Each engine in turn."""
    made = ForkEngine() if request.param == "fork" else KernelEngine()
    yield made
    made.close()


def answer_to(name, source):
    return CollectedAnswer(find(name), textwrap.dedent(source))


def run_answers(engine, answers, limits=None):
    rans = engine.run([make_task(answer, SEED) for answer in answers], limits)
    return [read_ran(answer, ran) for answer, ran in zip(answers, rans, strict=True)]


@pytest.mark.slow
def test_what_one_answer_left_behind_does_not_reach_the_next(engine):
    bomb = """
    import linecache, os, threading, time
    def wait_for_the_next():
        while "<answer scale_gradient>" not in linecache.cache:
            time.sleep(0.01)
        os._exit(1)
    def largest(tensor):
        threading.Thread(target=wait_for_the_next, daemon=True).start()
        return tensor.max().item()
    """
    right = """
    def scale_gradient(tensor, factor):
        return tensor.register_hook(lambda grad: grad * factor)
    """
    largest, scaled = run_answers(engine, [answer_to("largest", bomb), answer_to("scale_gradient", right)])
    assert scaled.evidence is not None
    assert largest.evidence is not None


@pytest.mark.slow
def test_a_forged_record_beside_the_true_one_is_looked_at_by_hand(engine):
    forged = """
    import os
    from IPython.display import display
    def largest(tensor):
        display({"application/vnd.course-utils.evidence": "{}"}, raw=True)
        os.write(3, b"{}")
        return 0.0
    """
    (observed,) = run_answers(engine, [answer_to("largest", forged)])
    assert observed.evidence is None
    assert "record" in observed.reason
    assert judge_answer(observed, Key()).verdict.by_hand


def test_a_kernel_that_does_not_start_is_nobodys_fault(monkeypatch):
    monkeypatch.setitem(source.KERNELSPEC, "name", "no-such-kernel")
    (observed,) = run_answers(KernelEngine(), [answer_to("largest", "def largest(t): return 1")])
    assert observed.outcome is None
    assert "NoSuchKernel" in observed.reason


def test_out_of_time_before_its_turn_is_no_verdict(engine):
    (observed,) = run_answers(engine, [answer_to("largest", "def largest(t): return 1")], Limits(submission=0))
    assert (observed.outcome, observed.evidence) == (None, None)
    assert "used up" in observed.reason


@pytest.mark.slow
def test_an_answer_that_did_not_get_its_full_time_is_not_blamed():
    with ForkEngine() as engine:
        (observed,) = run_answers(engine, [answer_to("largest", STUBBORN)], Limits(exercise=60, submission=2))
    assert (observed.outcome, observed.evidence) == (None, None)
    assert observed.reason


def test_the_run_notebook_holds_no_key():
    task = make_task(answer_to("largest", "def largest(t): return 1"), SEED)
    text = nbformat.writes(make_notebook([task], setup=""))
    assert "show_mistakes" not in text
    assert find("largest").mistakes[0].message not in text
    assert str(task.seed) not in text


def test_seeds_tell_nothing_about_each_other():
    seeds = {seed_for(exercise.name, SEED) for exercise in EXERCISES}
    assert len(seeds) == len(EXERCISES)
    assert seed_for("largest", SEED) == seed_for("largest", SEED) != seed_for("largest", SEED + 1)


def observed_as(evidence):
    return Observed(answer_to("largest", ""), tuple(evidence))


def final(*pairs):
    """The final verdicts on pairs of evidence and key."""
    return compare([Item("ann", START.name, judge_answer(observed_as(evidence), key)) for evidence, key in pairs])


@pytest.mark.slow
def test_nbval_and_words_must_agree(keys, monkeypatch):
    key = keys["largest"]
    wrong = key.mistakes[0][1]
    passed, failed = final((key.evidence, key), (wrong, key))
    assert (passed.outcome.passed, failed.outcome.passed) == (True, False)
    assert not passed.by_hand
    assert not failed.by_hand
    always = Outcome("largest", Stage.PASSED, possible=1)
    monkeypatch.setattr("course_utils.exercises.judging.judge", lambda *_: always)
    passed, failed = final((key.evidence, key), (wrong, key))
    assert not passed.by_hand
    assert failed.by_hand
    assert "nbval finds evidence and key different" in failed.reason


@pytest.mark.slow
def test_many_items_are_compared_in_parts_and_stay_in_order(keys, monkeypatch):
    started, start = [], Comparer.start

    def noting(self, notebook):
        started.append(len(nbformat.reads(notebook, as_version=4).cells) - 1)  # without the heading
        start(self, notebook)

    monkeypatch.setattr("course_utils.grading.verdict.WORTH_A_PROCESS", 2)
    monkeypatch.setattr("joblib.cpu_count", lambda: 3)
    monkeypatch.setattr(Comparer, "start", noting)
    key = keys["largest"]
    wrong = key.mistakes[0][1]
    verdicts = final(*[(key.evidence if right else wrong, key) for right in (1, 0, 0, 1, 1, 0, 1)])
    assert [verdict.outcome.passed for verdict in verdicts] == [True, False, False, True, True, False, True]
    assert not any(verdict.by_hand for verdict in verdicts)
    assert started == [2, 2, 3]


def test_a_part_that_cannot_be_compared_costs_no_other_its_verdict(keys, monkeypatch):
    monkeypatch.setattr("course_utils.grading.verdict.WORTH_A_PROCESS", 1)
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    answers = iter([([None], "no pytest"), ([True], "")])
    monkeypatch.setattr(Comparer, "finish", lambda self, count: next(answers))
    key = keys["largest"]
    first, second = final((key.evidence, key), (key.evidence, key))
    assert (first.by_hand, second.by_hand) == (True, False)
    assert "no pytest" in first.reason


def test_without_nbval_everything_is_looked_at_by_hand(keys, monkeypatch):
    monkeypatch.setattr(Comparer, "finish", lambda self, count: ([None] * count, "no pytest"))
    (verdict,) = final((keys["largest"].evidence, keys["largest"]))
    assert verdict.by_hand
    assert "no pytest" in verdict.reason


def test_ctrl_c_while_judging_keeps_the_verdicts_in_words(keys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Comparer, "finish", interrupted)
    (verdict,) = final((keys["largest"].evidence, keys["largest"]))
    assert (verdict.outcome.passed, verdict.by_hand) == (True, True)
    assert "stopped" in verdict.reason


def test_a_full_disk_while_judging_keeps_the_verdicts_in_words(keys, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Comparer, "start", refuse)
    (verdict,) = final((keys["largest"].evidence, keys["largest"]))
    assert (verdict.outcome.passed, verdict.by_hand) == (True, True)
    assert "No space left" in verdict.reason


def test_evidence_that_breaks_the_judge_costs_one_verdict(keys, monkeypatch):
    def fail(*_):
        raise KeyError("unheard of")

    monkeypatch.setattr("course_utils.exercises.judging.judge", fail)
    (verdict,) = final((keys["largest"].evidence, keys["largest"]))
    assert (verdict.outcome, verdict.by_hand) == (None, True)


@pytest.fixture
def executed(monkeypatch):
    """The notebooks that papermill is given for a key: how many exercises each has."""
    from course_utils.grading.sandbox import kernel

    found, execute = [], kernel.execute

    def noting(notebook, seeds, *arguments):
        found.append(len(seeds))
        return execute(notebook, seeds, *arguments)

    monkeypatch.setattr(kernel, "execute", noting)
    return found


@pytest.mark.slow
def test_every_exercise_has_a_key(keys, executed):
    """The answered editions, run as submissions are, do what the declared reference answers do in this process."""
    wanted = [(lesson, {exercise.name for exercise in lesson.exercises}) for lesson in LESSONS.values()]
    with LocalCrew(choose_engine(), jobs=1, key=True) as crew:
        found = make_keys(wanted, SEED, seat=crew.seat)
    assert executed == [len(EXERCISES)], "one kernel for all"
    assert found.keys() == keys.keys()
    for name, key in found.items():
        assert not key.reason, name
        assert first_difference(key.evidence, keys[name].evidence, name) is None
        assert [message for message, _ in key.mistakes] == [mistake.message for mistake in find(name).mistakes]


@pytest.mark.slow
def test_a_kernel_that_is_lost_costs_no_key(keys, executed):
    """Where the process in the seat is gone, an ordinary kernel makes the key."""
    with LocalCrew(choose_engine(), jobs=1, key=True) as crew:
        crew.seat.close()
        found = make_keys([(START, {"largest"})], SEED, seat=crew.seat)
    assert executed == [1, 1]
    assert not found["largest"].reason


# ----------------------------------------------------------------------------------------------- report and commands


SCORES = [
    Score("ann", "01_tensor_hooks", "scale_gradient", 2, 2, "passed", look_by_hand=False),
    Score("ann", "00_start_here", "largest", 0, 1, "wrong value", 'for x, got "a"', "a cause", False),
    Score("bo", "01_tensor_hooks", "scale_gradient", 0, 2, reason="the file could not be read: it is empty"),
    Score("bo", "01_tensor_hooks", "keep_positive", 0, 1, reason="the file could not be read: it is empty"),
    Score("cy", "tensors", "", reason="tensors.ipynb is not the name of a lesson"),
    Score("di", "00_start_here", "largest", 1, 1, "passed", reason="nbval disagrees"),
    Score("di", "00_start_here", "smallest", 1, 1, "passed", look_by_hand=False),
]


def test_scores_are_written_with_stable_columns(tmp_path):
    write_scores(SCORES, tmp_path)
    with (tmp_path / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    documented = re.findall(r"^([a-z_]+)  ", reports.__doc__, re.MULTILINE)
    assert tuple(documented) == COLUMNS
    assert [row["look_by_hand"] for row in rows] == ["no", "no", "yes", "yes", "yes", "yes", "no"]
    assert rows[1]["sentence"] == 'for x, got "a"'
    data = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert (data["version"], tuple(data["columns"])) == (2, COLUMNS)
    assert data["scores"][2]["look_by_hand"] is True
    assert [tuple(row) for row in data["scores"]] == [COLUMNS] * len(SCORES)


def test_the_table_has_a_line_for_each_student_and_each_thing_to_see():
    assert table(SCORES).splitlines() == [
        "student  00_start_here  01_tensor_hooks  total",
        "ann      0 of 1         2 of 2           2 of 3",
        "bo       -              0 of 3           0 of 3",
        "cy       -              -                -",
        "di       2 of 2         -                2 of 2",
        "",
        "To look at by hand:",
        "  bo/01_tensor_hooks: the file could not be read: it is empty",
        "  cy/tensors: tensors.ipynb is not the name of a lesson",
        "  di/00_start_here, largest: nbval disagrees",
    ]


def test_what_no_screen_should_get_is_escaped():
    row = score("ann", "l", "e", 1, Verdict(Outcome("e", Stage.RAISED, "a\x1b[31mb\ud800"), reason="\x00"))
    assert (row.sentence, row.reason) == ("a\\x1b[31mb\\ud800", "\\x00")


@pytest.mark.parametrize(
    ("make", "arguments", "sentence"),
    [
        (None, [], "give a folder"),
        (None, ["class", "--check", "work"], "give a folder"),
        (None, ["gone"], "does not exist"),
        ("file", ["here"], "is not a folder"),
        ("folder", ["here"], "nothing to grade"),
        ("folder", ["here", "--lesson", "77"], "there is no lesson 77; there is 00, 01"),
        ("folder", ["--check", "here"], "there is no lesson in here"),
    ],
)
def test_what_cannot_be_run_gets_one_sentence(make, arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if make:
        (tmp_path / "here").mkdir() if make == "folder" else (tmp_path / "here").write_text("")
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_a_folder_that_cannot_be_read_gets_one_sentence(tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("course_utils.grading.submissions.find_submissions", refuse)
    assert main([str(tmp_path)]) == 2
    assert "cannot be read: Permission denied" in capsys.readouterr().err


def test_help_says_what_the_exit_status_means(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "Exit status: 0 all graded, 1 some need a look by hand" in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_said_before_the_work(tmp_path, capsys):
    hand_in(tmp_path / "class", "ann", LESSON, source.learner(LESSON.path))
    (tmp_path / "taken").write_text("")
    assert main([str(tmp_path / "class"), "--report", str(tmp_path / "taken")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.slow
def test_a_learners_own_score_by_the_same_rule(tmp_path, capsys):
    answers = {"largest": "def largest(tensor):\n    return tensor.max()\n"}
    nbformat.write(notebook_with(START, answers), tmp_path / f"{START.name}.ipynb")
    before = sorted(tmp_path.rglob("*"))
    assert main(["--check", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "largest: not yet (wrong type or structure)" in printed
    assert find("largest").mistakes[0].message in printed
    assert "total: 0 of 1" in printed
    assert "seed" not in printed
    assert sorted(tmp_path.rglob("*")) == before, "grading leaves the work folder as it was"


@pytest.mark.slow
def test_grading_a_folder_writes_the_report(tmp_path, capsys):
    hand_in(tmp_path / "class", "ann", LESSON, source.learner(LESSON.path))
    hand_in(tmp_path / "class", "ann", START, source.learner(START.path))
    report = tmp_path / "report"
    assert main([str(tmp_path / "class"), "--report", str(report), "--lesson", "01"]) == 0
    assert "ann      0 of" in capsys.readouterr().out
    assert {row["lesson"] for row in json.loads((report / "scores.json").read_text())["scores"]} == {LESSON.name}
    (tmp_path / "class" / "bo").mkdir()
    assert main([str(tmp_path / "class"), "--report", str(report)]) == 1
    assert "bo: there is no notebook in the folder" in capsys.readouterr().out


def test_ctrl_c_keeps_what_is_done(tmp_path):
    for student in ("ann", "bo", "cy"):
        hand_in(tmp_path, student, LESSON, source.learner(LESSON.path))

    found = find_submissions(tmp_path, LESSONS)

    def interrupted():
        yield found[0]
        raise KeyboardInterrupt

    class Interrupted(list):
        def __iter__(self):
            return interrupted()

    result = grade(Interrupted(found))
    assert result.stopped
    assert {row.student: row.reason for row in result.scores} == {"ann": "", "bo": STOPPED, "cy": STOPPED}
    assert len(result.scores) == 3 * len(LESSON.exercises)
    assert {row.stage for row in result.scores if row.student == "ann"} == {"not attempted"}


def test_one_submission_that_breaks_the_grader_costs_itself_only(tmp_path, monkeypatch):
    for student in ("ann", "bo"):
        hand_in(tmp_path, student, LESSON, source.learner(LESSON.path))
    read = iter([OSError("the disk is full"), []])

    def fail_first(*_):
        found = next(read)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("course_utils.grading.batch.read_cells", fail_first)
    rows = grade(find_submissions(tmp_path, LESSONS)).scores
    assert {row.reason for row in rows if row.student == "ann"} == {"it could not be graded: OSError: the disk is full"}
    assert {row.stage for row in rows if row.student == "bo"} == {"not attempted"}


def test_a_verdict_notebook_that_cannot_be_written_costs_no_score(tmp_path, monkeypatch):
    hand_in(tmp_path, "ann", START, notebook_with(START, {"largest": find("largest").source}))
    monkeypatch.setattr("course_utils.grading.verdict._compare_in_parts", lambda items, _: [(True, "")] * len(items))
    result = grade(find_submissions(tmp_path, LESSONS), record=tmp_path / "no folder" / "verdicts.ipynb")
    assert sum(row.points for row in result.scores) == find("largest").points
    assert "verdict notebook cannot be written: No such file" in result.problem


def test_a_lesson_without_exercises_has_a_row(tmp_path):
    hand_in(tmp_path, "ann", LESSON, source.learner(LESSON.path))
    empty = {LESSON.name: Lesson(LESSON.path, ())}
    (row,) = grade(find_submissions(tmp_path, empty)).scores
    assert (row.reason, row.look_by_hand) == ("this lesson has no exercises", False)


def test_without_a_key_nothing_passes(keys):
    (verdict,) = final((keys["largest"].evidence, Key(reason="there is no key for it")))
    assert (verdict.outcome, verdict.by_hand) == (None, True)
