"""A lesson's source, with ids that last, and its build, in which nothing of the machine and of the day is left."""

import json
import os
import re
import textwrap
from pathlib import Path

import nbformat
import pytest

from course_utils.authoring import build, source
from course_utils.root import CourseError

EXAMPLE = """\
# %% [markdown]
# # A lesson
# %% tags=["parameters"]
seed = 3
# %% tags=["setup"]
import os, ipywidgets as widgets
# %% tags=["explore"]
slider = widgets.IntSlider(seed)
slider
# %% the slider again
display(slider)
# %%
print("a", end="")
display([seed])
print("b", os.listdir(), os.environ["COURSE_PROGRESS"], os.environ.get("MPLBACKEND") == "svg")
"the result"
"""
HEAD = "# %% [markdown]\n# # Lesson {}\n#\n# **Minutes:** counted\n#\n# | {} | [x](x.ipynb) | to look |\n\n"
ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A small lesson: its source, and the notebook built from it where a user's settings would spoil it."""
    path = tmp_path_factory.mktemp("course") / "90_example.py"
    path.write_text(EXAMPLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "svg")
        patch.delenv("COURSE_PROGRESS", raising=False)
        before = dict(os.environ), Path.cwd()
        notebook = build.run(source.learner(path), path.stem)
        assert (dict(os.environ), Path.cwd()) == before
    return path, notebook


def test_a_built_notebook_has_its_sources_cells_and_nothing_of_the_run(example):
    path, notebook = example
    assert notebook.metadata == source.METADATA
    for cell, wanted in zip(notebook.cells, source.learner(path).cells, strict=True):
        assert (cell.id, cell.source, cell.metadata) == (wanted.id, wanted.source, wanted.metadata)
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, 2, 3, 4, 5]
    last = notebook.cells[-1].outputs
    assert last[-1].execution_count == 5
    # An empty folder, nothing of the user's settings; streams stay on their side of a display.
    shown = [output.get("text") or output.data["text/plain"] for output in last]
    assert shown == ["a", "[3]", "b [] off False\n", "'the result'"]
    for cell in notebook.cells[3:5]:  # of a widget its words stay, and no view that shows nothing without a kernel
        (output,) = cell.outputs
        assert (set(output.data), output.metadata) == ({"text/plain"}, {build.WIDGET: True})


@pytest.mark.slow
def test_parameters_get_a_cell_of_their_own_and_files_lie_beside_the_lesson(example, tmp_path):
    (tmp_path / "photo.txt").touch()
    notebook = build.run(source.learner(example[0]), "90", {"seed": 5}, [tmp_path / "photo.txt"])
    assert [cell.id for cell in notebook.cells[1:3]] == ["parameters", "injected-parameters"]
    assert "seed = 5" in notebook.cells[2].source
    assert notebook.cells[2].metadata == {"tags": ["injected-parameters"]}
    assert "b ['photo.txt'] off" in notebook.cells[-1].outputs[2].text


def test_streams_merge_in_one_order():
    for order in (("err", "out", "out", "err"), ("out", "err", "err", "out")):
        parts = [nbformat.v4.new_output("stream", name=f"std{name}", text=name) for name in order]
        assert [each.text for each in build.merge_streams(parts)] == ["outout", "errerr"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1\n\n# %%\nx = {}\nx['key']\n", r"cell 2 \(`x = \{\}`\) raised KeyError[\s\S]*> 2 x\['key"),
        ("import os\nos._exit(1)\n", "a cell ended the kernel"),
        ("while True:\n    pass\n", r"a cell ran longer than 2 s[\s\S]*while True"),
        ("print(hex(2**40))\n", r", cell 1 \(code-.*a memory address"),
    ],
)
def test_a_lesson_that_cannot_be_built_is_a_sentence(write_source, monkeypatch, text, complaint):
    monkeypatch.setattr(build, "CELL_SECONDS", 2)
    with pytest.raises(CourseError, match=f"90_example.*{complaint}"):
        build.run(source.learner(write_source(f"# %%\n{text}")), "90_example")


def display(data, **metadata):
    return nbformat.v4.new_output("display_data", data=data, metadata=metadata)


@pytest.mark.parametrize(
    ("shown", "complaint"),
    [
        ("<function hook at 0x7f3591fb84a0>", "a memory address: 0x7f3591fb84a0"),
        ("saved to /" + "home/ada/course/x.png", "an absolute path: /home/ada/course/x.png"),
        ("C:\\Users\\ada", "an absolute path: C:"),
        ("run on 2026-03-01 09:10", "a date or a time of day: 2026-03-01 09:10"),
        ('<img src="x.png">', "a picture without words"),
        ('<svg width="3" height="2"><path/></svg>', "a picture without words"),
        ("colour 0xff, tensor([1., 2.]) at 3:2, https://pytorch.org/docs/stable/x.html, torch/nn/x.py, 3/4/5", None),
        ('<b>x</b>/<i>y</i> <svg aria-label="A graph"/> <img alt="A cat" src="c.png"> <svg aria-hidden="true"/>', None),
        (ERROR, "raised ValueError: no"),
        (display({"image/png": "iVBORw0K"}), "without alt text"),
        (display({}, widget=True), "without a sentence as text/plain"),
        (display({"image/png": "iV"}, **{"image/png": {"alt": "a"}}), None),
        (display({"image/jpeg": "/9"}, alt="a"), None),
        (display({"text/plain": "a slider"}, widget=True), None),
    ],
)
def test_what_would_be_different_tomorrow_or_has_no_words_is_a_problem(shown, complaint):
    both = [nbformat.v4.new_output("stream", text=str(shown)), display({"text/html": str(shown)})]
    outputs = both if isinstance(shown, str) else [shown]
    for output in outputs:
        cell = nbformat.v4.new_code_cell("print()", outputs=[output], execution_count=1, id="one")
        problems = build.find_problems(nbformat.v4.new_notebook(cells=[cell], metadata=source.METADATA))
        assert complaint in problems[0] if complaint else problems == []


@pytest.mark.parametrize(
    ("edit", "difference"),
    [
        (lambda nb: None, None),
        (lambda nb: nb.cells[0].update(source="# Another"), "its source is '# Another'"),
        (lambda nb: nb.cells[1].metadata.update(tags=[]), "its metadata is"),
        (lambda nb: nb.cells.pop(), "has 5 cells, the source has 6"),
        (lambda nb: nb.cells[-1].update(execution_count=7), "execution count 7; in a clean run it is 5"),
        (lambda nb: nb.metadata.language_info.update(version="3.11.2"), "metadata of a run or a machine: .*3.11.2"),
        (lambda nb: nb.cells[-1].outputs.append(ERROR), "raised ValueError"),
    ],
)
def test_differences_between_source_and_notebook_are_found(example, tmp_path, edit, difference):
    path, notebook = example
    built, changed = tmp_path / "90_example.ipynb", nbformat.from_dict(json.loads(nbformat.writes(notebook)))
    edit(changed)
    build.write(changed, built)
    found = build.find_differences(path, built)
    assert re.search(difference, found[0]) if difference else found == []
    built.write_text(built.read_text()[:-20])
    assert "is not a notebook" in build.find_differences(path, built)[0]


def test_the_command_builds_what_is_out_of_date_and_keeps_what_cannot_be_built(
    write_source, tmp_path, capsys, monkeypatch
):
    def run_without_a_kernel(notebook, lesson):
        if "1 / 0" in notebook.cells[-1].source:
            raise CourseError("raised ZeroDivisionError")
        for count, cell in enumerate(notebook.cells[1:], start=1):
            cell.execution_count = count
        return notebook

    def run(*lessons, check=False):
        return build.build_notebooks(lessons, check, tmp_path), "".join(capsys.readouterr())

    monkeypatch.setattr(build, "run", run_without_a_kernel)
    front = tmp_path.parent / "README.md"
    front.write_text(build.MAP_HEAD)
    for number, name in enumerate(("00_start", "01_two")):
        write_source(HEAD.format(number, "01") + f"# %%\nprint({number})\n", name)
    status, said = run(check=True)
    assert (status, (tmp_path / "00_start.ipynb").exists(), front.read_text()) == (1, False, build.MAP_HEAD)
    assert re.search("00_start.ipynb was not built[^$]*README: .* out of date", said)
    assert "00_start: built" in run("00")[1]
    assert "00_start: up to date\n01_two: built" in run()[1]
    status, said = run(check=True)
    assert (status, said.count("up to date")) == (0, 3)
    assert "| 01 | [Lesson 1](notebooks/01_two.ipynb) | to look | 0 | 0 |" in front.read_text()
    before = (tmp_path / "01_two.ipynb").read_text()
    write_source(HEAD.format(1, "01") + "# %%\n1 / 0\n", "01_two")
    status, said = run()
    assert (status, (tmp_path / "01_two.ipynb").read_text()) == (1, before)
    assert "01_two: not built. raised ZeroDivisionError" in said


SOURCE = '''
# %% [markdown]
# # A lesson
# %% tags=["parameters"]
seed = 3
# %% tags=["setup"]
import torch
# %% tags=["answer"]
def scale_gradient(tensor, factor):
    """Scale it."""
    ...
# %% tags=["check"]
check(scale_gradient)
# %% [markdown] tags=["instructor"]
# Ask the room.
# %% tags=["explore"]
slider = IntSlider(seed)
# %% the slider again!
slider
# %% tags=["predict"]
print(len("x"), predict("hook_on_a", options=[5, 12]))
'''
ANSWER = "def scale_gradient(tensor, factor):\n    return tensor.register_hook(lambda grad: grad * factor)\n"


@pytest.fixture
def write_source(tmp_path):
    def write(text, name="90_example"):
        path = tmp_path / "source" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
        return path

    return write


def test_an_answer_stands_in_its_cell_and_learners_do_not_see_the_notes(write_source):
    path = write_source(SOURCE)
    learner, whole = source.learner(path), source.read_source(path)
    assert [cell.source for cell in whole.cells if cell not in learner.cells] == ["Ask the room."]
    for given in (learner, whole):
        answered = source.put_answers(given, {"scale_gradient": ANSWER})
        changed = [new for old, new in zip(given.cells, answered.cells, strict=True) if old != new]
        assert [(cell.id, cell.source) for cell in changed] == [("answer-scale-gradient", ANSWER.rstrip("\n"))]
    learner.cells[3].update(execution_count=7, outputs=[nbformat.v4.new_output("stream", text="old")])
    before = nbformat.writes(learner)
    cell = source.put_answers(learner, {"scale_gradient": "pass"}).cells[3]
    assert (cell.source, cell.outputs, cell.execution_count) == ("pass", [], None)
    assert nbformat.writes(learner) == before
    with pytest.raises(KeyError, match="other"):
        source.put_answers(learner, {"other": ""})


def test_ids_say_what_a_cell_is(write_source):
    cells = source.read_source(write_source(SOURCE)).cells
    ids = [re.sub("-[0-9a-f]{8}$", "", cell.id) for cell in cells]
    assert ids[:5] == ["text", "parameters", "setup", "answer-scale-gradient", "check-scale-gradient"]
    assert ids[6:] == ["explore", "the-slider-again", "predict-hook-on-a"]
    assert [cell.metadata for cell in cells[3:8:4]] == [{"tags": ["answer"]}, {}], "a title is no metadata"
    assert [cell.id for cell in cells if "jupyter" in cell.metadata] == [cells[2].id], "what nobody needs to read"
    assert cells[2].metadata["jupyter"] == {"source_hidden": True}


def test_an_edit_changes_no_other_id(write_source):
    cells = source.read_source(write_source(SOURCE)).cells
    for index, cell in enumerate(cells):
        before = [other.id for other in cells]
        line = cell.source.splitlines()[-1]
        edited = SOURCE.replace(f"{line}\n", f"{line}  # edited\n")
        after = [other.id for other in source.read_source(write_source("# %%\n1 + 1\n\n" + edited.lstrip())).cells]
        del before[index], after[index + 1]
        assert before == after[1:], cell.source


def test_the_build_numbers_exercises_and_what_refers_to_them(write_source):
    text = "# %% [markdown]\n# ## T\n#\n# See exercise {{{1}}}.\n#\n# ### {2}Exercise · {0}\n\n"
    cell = text + '# %% tags=["answer"]\ndef {0}(): ...\n\n'
    one, two = cell.format("one", "two", ""), cell.format("two", "one", "More: ")
    shown = [each.source for each in source.learner(write_source(one + two)).cells]
    assert shown[0] == "## T\n\nSee exercise 2.\n\n### Exercise 1 · one"
    assert shown[2] == "## T\n\nSee exercise 1.\n\n### More: Exercise 2 · two"
    again = source.learner(write_source(cell.format("new", "other", "") + one + two)).cells
    assert [each.source.splitlines()[-1] for each in again[::2]] == [
        "### Exercise 1 · new", "### Exercise 2 · one", "### More: Exercise 3 · two",
    ]  # fmt: skip
    assert "See exercise {other}." in again[0].source, "no exercise is called so"
    with pytest.raises(CourseError, match=r"90_example: 1 headings .* but 0 answer cells"):
        source.learner(write_source("# %% [markdown]\n# ### Exercise · X\n"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('tags=["answer"]\nx = 1', "1 .*defines none"),
        ('tags=["answer"]\ndef f(): ...\n\n\ndef g(): ...', "1 .*defines f, g"),
        ('tags=["answer"]\ndef f(:', "1 .*line 1 is not Python"),
        ('tags=["check"]\nprint(1, check(f()))', r"1 .*must call check\("),
        ('tags=["predict"]\npredict(f())', r"1 .*must call predict\("),
        ('tags=["answer"]\ndef f(): ...\n\n# %% b tags=["answer"]\ndef f(): ...', "2 .*cell 1 defines f already"),
        ("\n1 + 1\n\n# %%\n1 + 1", r"2 \(`1 \+ 1`\): .*cell 1.*# %% the name"),
        ('tags=["answer"]\nimport torch\n\n\nclass Recorder:\n    def stop(self): ...', None),
    ],
)
def test_a_bad_cell_is_named(write_source, text, complaint):
    path = write_source(f"# %% {text}\n")
    if complaint is None:
        assert list(source.answer_cells(source.read_source(path))) == ["Recorder"]
        return
    with pytest.raises(CourseError, match=f"90_example, cell {complaint}"):
        source.answer_cells(source.read_source(path), path.stem)


def test_lessons_are_chosen_by_number_name_or_path(write_source, tmp_path):
    one, two = write_source("1", "91_one"), write_source("2", "92_tensor_hooks")
    assert source.choose([], tmp_path) == [one, two]
    assert source.choose(["92", "91_one"], tmp_path) == [two, one]
    assert source.choose([str(one), "notebooks/92_tensor_hooks.ipynb"], tmp_path) == [one, two]
    with pytest.raises(CourseError, match=r"There is no lesson 92_tensorhooks; there is 92_tensor_hooks\."):
        source.choose(["92_tensorhooks"], tmp_path)
    with pytest.raises(CourseError, match="in a clone of the course's repository"):
        source.choose([], tmp_path / "source")
