"""The build: the same bytes every time, nothing in them that is different elsewhere or tomorrow."""

import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from lesson_runs import run_twice
from test_source import write_source  # noqa: F401  a fixture

from course_utils.authoring import build, readme, source
from course_utils.root import CourseError

SOURCE = """\
# %% [markdown]
# # A lesson

# %% tags=["parameters"]
seed = 3

# %% tags=["setup"]
import os
import ipywidgets as widgets
from IPython.display import Image, display

# %% tags=["explore"]
slider = widgets.IntSlider(seed, 0, 10, description="width")
widgets.VBox([slider, widgets.HTML("<b>a bar, 3 wide</b>")])

# %% the slider again
display(slider)

# %%
print("a", end="")
display([seed])
print("b", os.listdir(), os.environ["COURSE_PROGRESS"], os.environ.get("MPLBACKEND") == "svg")
"the result"
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A small lesson: its source, and the notebook built from it where a user's settings would spoil it."""
    path = tmp_path_factory.mktemp("course") / "90_example.py"
    path.write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "svg")
        patch.delenv("COURSE_PROGRESS", raising=False)
        before = dict(os.environ), Path.cwd()
        notebook = build.run(source.learner(path), path.stem)
        assert (dict(os.environ), Path.cwd()) == before
    return path, notebook


def run_source(path):
    return build.run(source.learner(path), path.stem)


@pytest.mark.slow
def test_a_second_build_gives_the_same_bytes(example):
    assert nbformat.writes(run_source(example[0])) == nbformat.writes(example[1])


def test_counts_are_sequential_and_metadata_says_nothing_of_the_run(example):
    path, notebook = example
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3, 4, 5]
    assert code[-1].outputs[-1].execution_count == 5
    assert notebook.metadata == {"kernelspec": source.KERNELSPEC, "language_info": source.LANGUAGE_INFO}
    given = source.learner(path).cells
    assert [(cell.id, cell.source, cell.metadata) for cell in notebook.cells] == [
        (cell.id, cell.source, cell.metadata) for cell in given
    ]


def test_a_lesson_runs_in_an_empty_folder_and_streams_stay_on_their_side_of_a_display(example):
    shown = [output.get("text") or output.data["text/plain"] for output in example[1].cells[-1].outputs]
    assert shown == ["a", "[3]", "b [] off False\n", "'the result'"]


def test_of_a_widget_its_words_stay_and_no_view_that_shows_nothing_without_a_kernel(example):
    for cell in example[1].cells[3:5]:
        (output,) = cell.outputs
        assert set(output.data) == {"text/plain"}
        assert output.metadata == {build.WIDGET: True}


@pytest.mark.slow
def test_parameters_are_set_in_a_cell_of_their_own_and_files_lie_beside_the_run(example, tmp_path):
    (tmp_path / "photo.txt").write_text("")
    notebook = build.run(source.learner(example[0]), "90", {"seed": 5}, [tmp_path / "photo.txt"])
    assert [cell.id for cell in notebook.cells[1:3]] == ["parameters", "injected-parameters"]
    assert "seed = 5" in notebook.cells[2].source
    assert notebook.cells[2].metadata == {"tags": ["injected-parameters"]}
    assert "b ['photo.txt'] off" in notebook.cells[-1].outputs[2].text


def test_streams_merge_in_one_order():
    def stream(name, text):
        return nbformat.v4.new_output("stream", name=name, text=text)

    one = [stream("stderr", "1\n"), stream("stdout", "a"), stream("stdout", "b\n"), stream("stderr", "2\n")]
    other = [stream("stdout", "a"), stream("stderr", "1\n2\n"), stream("stdout", "b\n")]
    expected = [stream("stdout", "ab\n"), stream("stderr", "1\n2\n")]
    assert build.merge_streams(one) == build.merge_streams(other) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "# %% [markdown]\n# # T\n\n# %%\nx = {}\nx['key']\n",
            r"cell 2 \(`x = \{\}`\) raised KeyError[\s\S]*> 2 x\['key",
        ),
        ("# %%\nimport os\nos._exit(1)\n", "a cell ended the kernel"),
        ("# %%\nwhile True:\n    pass\n", r"a cell ran longer than 2 s[\s\S]*while True"),
        ("# %%\nprint(hex(2**40))\n", r", cell 1 \(code-.*a memory address"),
    ],
)
def test_a_lesson_that_cannot_be_built_is_a_sentence(write_source, monkeypatch, text, complaint):  # noqa: F811
    monkeypatch.setattr(build, "CELL_SECONDS", 2)
    with pytest.raises(CourseError, match=f"90_example.*{complaint}"):
        run_source(write_source(text))


# ----------------------------------------------------------------------------------------- what must not be committed


def printed(text="fine"):
    """An executed notebook whose one cell printed `text`."""
    output = nbformat.v4.new_output("stream", name="stdout", text=text)
    metadata = {"kernelspec": dict(source.KERNELSPEC), "language_info": dict(source.LANGUAGE_INFO)}
    cell = nbformat.v4.new_code_cell("print()", outputs=[output], execution_count=1, id="one")
    return nbformat.v4.new_notebook(cells=[cell], metadata=metadata)


def display(data, **metadata):
    return nbformat.v4.new_output("display_data", data=data, metadata=metadata)


ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<function hook at 0x7f3591fb84a0>", "a memory address: 0x7f3591fb84a0"),
        ("saved to /" + "home/ada/course/x.png", "an absolute path: /home/ada/course/x.png"),
        ("C:\\Users\\ada", "an absolute path: C:"),
        ("run on 2026-03-01 09:10", "a date or a time of day: 2026-03-01 09:10"),
        ('<img src="x.png">', "a picture without words"),
        ('<svg width="3" height="2"><path/></svg>', "a picture without words"),
        ("x.grad = 12   colour 0xff", None),
        ("see https://pytorch.org/docs/stable/notes/autograd.html", None),
        ("<b>grad</b>/<i>x</i> and torch/nn/modules/module.py, 3/4/5", None),
        ('M 0 0 L 10/2 5 <svg role="img" aria-label="A graph"><path/></svg>', None),
        ('<img alt="A cat" src="cat.png"> <svg aria-hidden="true"></svg>', None),
        ("tensor([1., 2.]) at 3:2", None),
    ],
)
def test_outputs_that_change_or_say_nothing_are_problems_and_those_that_last_are_not(text, complaint):
    for notebook in (printed(text), printed()):
        notebook.cells[0].outputs.append(display({"text/html": text}))
        problems = "\n".join(build.find_problems(notebook))
        assert complaint in problems if complaint else problems == ""


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda nb: nb.metadata.update(papermill={}), "metadata of a run or a machine"),
        (lambda nb: nb.metadata.language_info.update(version="3.11.2"), "3.11.2"),
        (lambda nb: nb.cells[0].metadata.update(execution={}), "the source does not set: execution"),
        (lambda nb: nb.cells[0].update(execution_count=2), "execution count 2; in a clean run it is 1"),
        (lambda nb: nb.cells[0].outputs.append(ERROR), "raised ValueError: no"),
        (lambda nb: nb.cells[0].outputs.append(display({"image/png": "iVBORw0K"})), "without alt text"),
        (lambda nb: nb.cells[0].outputs.append(display({build.WIDGET_VIEW: {}})), "shows nothing without a kernel"),
        (lambda nb: nb.cells[0].outputs.append(display({}, widget=True)), "without a sentence as text/plain"),
        (lambda nb: nb.cells[0].outputs.append(display({"image/png": "iV"}, **{"image/png": {"alt": "a"}})), None),
        (lambda nb: nb.cells[0].outputs.append(display({"image/jpeg": "/9"}, alt="a")), None),
        (lambda nb: nb.cells[0].outputs.append(display({"text/plain": "a slider"}, widget=True)), None),
    ],
)
def test_what_must_not_be_committed_is_found(spoil, complaint):
    notebook = printed()
    assert build.find_problems(notebook) == []
    spoil(notebook)
    problems = build.find_problems(notebook)
    assert complaint in problems[0] if complaint else problems == []


@pytest.mark.parametrize(
    ("edit", "difference"),
    [
        (lambda nb: nb.cells[0].update(source="# Another"), "its source is '# Another'"),
        (lambda nb: nb.cells[1].update(id="other"), "its id is 'other'"),
        (lambda nb: nb.cells[1].metadata.update(tags=[]), "its metadata is"),
        (lambda nb: nb.cells.pop(), "has 5 cells, the source has 6"),
        (lambda nb: nb.cells[-1].update(execution_count=None), "execution count None"),
    ],
)
def test_differences_between_source_and_notebook_are_found(example, tmp_path, edit, difference):
    path, notebook = example
    built, changed = tmp_path / "90_example.ipynb", nbformat.from_dict(json.loads(nbformat.writes(notebook)))
    build.write(changed, built)
    assert build.find_differences(path, built) == []
    edit(changed)
    build.write(changed, built)
    assert difference in build.find_differences(path, built)[0]


def test_a_missing_or_broken_notebook_is_a_difference(example, tmp_path):
    assert "was not built yet" in build.find_differences(example[0], tmp_path / "no.ipynb")[0]
    (tmp_path / "half.ipynb").write_text('{"cells": [')
    assert "is not a notebook" in build.find_differences(example[0], tmp_path / "half.ipynb")[0]


# --------------------------------------------------------------------------------------------------------- the command

HEAD = "# %% [markdown]\n# # Lesson {}\n#\n# **Time:** about 5 minutes.\n#\n# | {} | [x](x.ipynb) | to look | 5 |\n\n"


@pytest.mark.slow
def test_the_command_builds_what_is_out_of_date_and_keeps_what_cannot_be_built(write_source, tmp_path, capsys):  # noqa: F811
    def run(*lessons, check=False):
        status = build.build_notebooks(lessons, check, tmp_path)
        return status, "".join(capsys.readouterr())

    (tmp_path.parent / "README.md").write_text(readme.HEAD)
    for name, text in (("00_start", "print(1)"), ("01_two", "print(2)")):
        write_source(HEAD.format(name[1], "01") + f"# %%\n{text}\n", name)
    status, said = run(check=True)
    assert status == 1
    assert "00_start.ipynb was not built yet" in said
    assert "README: its map of the lessons is out of date" in said
    assert not (tmp_path / "00_start.ipynb").exists()
    assert (tmp_path.parent / "README.md").read_text() == readme.HEAD
    assert "00_start: built in" in run("00")[1]
    status, said = run()
    assert status == 0
    assert "00_start: up to date\n01_two: built in" in said
    assert run(check=True) == (
        0,
        "00_start: up to date\n01_two: up to date\nREADME: its map of the lessons is up to date\n",
    )
    assert (
        "| 01 | [Lesson 1](notebooks/01_two.ipynb) | to look | 0 | 5 |" in (tmp_path.parent / "README.md").read_text()
    )
    before = (tmp_path / "01_two.ipynb").read_text()
    assert before.endswith('"nbformat_minor": 5\n}\n')
    write_source(HEAD.format(1, "01") + "# %%\n1 / 0\n", "01_two")
    status, said = run()
    assert status == 1
    assert "01_two: not built. 01_two, cell 2 (`1 / 0`) raised ZeroDivisionError" in said
    assert (tmp_path / "01_two.ipynb").read_text() == before


# ------------------------------------------------------------------------------------------------------ running twice


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("module.register_module_forward_hook(lambda *_: None);", "left behind: _global_forward_hooks"),
        ("torch.set_default_dtype(torch.float64)", "default dtype was torch.float32 and is torch.float64"),
        (
            "torch.nn.ReLU.kept = [*getattr(torch.nn.ReLU, 'kept', []), net]; net.register_forward_hook(print);",
            "modules: 1",
        ),
        ("torch.w = w = getattr(torch, 'w', torch.ones(1, requires_grad=True)); w.register_hook(print);", "tensors"),
        ("print(getattr(torch, 'seen', 'first time')); torch.seen = 'again'", "cell 2 .*first time.* became .*again"),
        ("with torch.no_grad(): print(net(torch.ones(1)).shape)", None),
    ],
)
def test_what_a_second_run_reveals_is_found(write_source, tmp_path, cell, complaint):  # noqa: F811
    start = "# %%\nimport torch\nfrom torch.nn.modules import module\nnet = torch.nn.Linear(1, 1)\n\n# %%\n"
    found = run_twice(source.learner(write_source(start + cell + "\n")), tmp_path)
    assert found == [] if complaint is None else re.search(complaint, "\n".join(found)), found
