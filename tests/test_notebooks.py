"""The notebook pipeline: one source gives one notebook everywhere, and the committed ones are what it gives."""

import base64
import html
import io
import json
import os
import re
import textwrap
from pathlib import Path

import nbformat
import numpy as np
import pytest
from lesson_runs import find_leftovers, find_output_differences, run_nbval, run_twice
from nbval_pictures import find_picture_differences, picture_difference
from PIL import Image, ImageDraw

from course_utils.authoring import build, source
from course_utils.exercises.engine import exercises_of, predictions_of

LESSONS = source.sources()
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def built(lesson: Path) -> Path:
    return source.FOLDER / f"{lesson.stem}.ipynb"


def number_of(lesson: Path) -> int:
    return int(lesson.stem[:2])


# ------------------------------------------------------------------------------------------------ committed notebooks


def test_every_source_has_a_notebook_and_every_notebook_a_source():
    assert {path.stem for path in source.FOLDER.glob("*.ipynb")} == {path.stem for path in LESSONS}


@each_lesson
def test_source_and_notebook_agree(lesson):
    assert build.find_differences(lesson, built(lesson)) == []


@each_lesson
def test_the_notebook_is_written_as_the_pipeline_writes_it(lesson, tmp_path):
    build.write(nbformat.read(built(lesson), as_version=4), tmp_path / "again.ipynb")
    assert (tmp_path / "again.ipynb").read_bytes() == built(lesson).read_bytes()


@each_lesson
def test_nbval_agrees_with_every_output(lesson, tmp_path):
    cells = [cell for cell in nbformat.read(built(lesson), as_version=4).cells if cell.cell_type == "code"]
    result = run_nbval(built(lesson), tmp_path)
    assert result.passed == len(cells), result.report


@each_lesson
def test_run_all_twice_in_one_kernel(lesson, tmp_path, record_property):
    runs = run_twice(source.learner(lesson), tmp_path)
    record_property(f"seconds of {lesson.stem}", runs.seconds)
    assert find_output_differences(runs.first, runs.second) == []
    assert find_leftovers(runs) == []


@each_lesson
def test_the_answered_edition_runs_twice(lesson, tmp_path, record_property):
    answers = {exercise.name: exercise.source for exercise in exercises_of(number_of(lesson))}
    answers = {name: answers[name] for name in source.answer_cells(source.learner(lesson), lesson.stem)}
    runs = run_twice(source.answered(lesson, answers), tmp_path)
    record_property(f"seconds of {lesson.stem}, answered", runs.seconds)
    assert find_output_differences(runs.first, runs.second) == []
    assert find_leftovers(runs) == []


# ------------------------------------------------------------------------------------------------- a lesson of our own

SOURCE = '''
# %% [markdown]
# # A lesson

# %% tags=["parameters"]
seed = 3

# %% tags=["setup"]
import ipywidgets as widgets
import torch
from IPython.display import Image, display

# %% tags=["answer"]
def scale_gradient(tensor, factor):
    """Scale it."""
    ...

# %% tags=["check"]
def check(name):
    print("checked")


check(scale_gradient)

# %% [markdown] tags=["instructor"]
# Ask the room.

# %% tags=["explore"]
unseen = widgets.IntSlider(1)
slider = widgets.IntSlider(seed, 0, 10, description="width")
picture = widgets.HTML("<b>a bar, 3 wide</b>")
widgets.VBox([slider, picture])

# %% the slider again
display(slider)

# %%
print("a", end="")
display(torch.ones(2))
print("b")
"the result"
'''


@pytest.fixture
def write_source(tmp_path):
    def write(text, name="90_example"):
        (tmp_path / "source").mkdir(exist_ok=True)
        path = tmp_path / "source" / f"{name}.py"
        path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A small lesson: its source, and the notebook built from it."""
    folder = tmp_path_factory.mktemp("course")
    (folder / "source").mkdir()
    path = folder / "source" / "90_example.py"
    path.write_text(SOURCE.lstrip(), encoding="utf-8")
    notebook = build.build(path)
    build.write(notebook, folder / "90_example.ipynb")
    return path, notebook


def cell_of(notebook, cell_id):
    return next(cell for cell in notebook.cells if cell.id == cell_id)


# ------------------------------------------------------------------------------------------------------------ editions


def test_learners_do_not_see_the_notes_for_instructors(write_source):
    path = write_source(SOURCE)
    whole, learner = source.read_source(path), source.learner(path)
    assert [cell.source for cell in whole.cells if cell not in learner.cells] == ["Ask the room."]


def test_answered_puts_each_answer_in_its_cell(write_source):
    path = write_source(SOURCE)
    answer = "def scale_gradient(tensor, factor):\n    return tensor.register_hook(lambda grad: grad * factor)\n"
    learner, answered = source.learner(path), source.answered(path, {"scale_gradient": answer})
    changed = [new for old, new in zip(learner.cells, answered.cells, strict=True) if old != new]
    assert [(cell.id, cell.source) for cell in changed] == [("answer-scale-gradient", answer.rstrip("\n"))]
    noted = source.answered(path, {"scale_gradient": answer}, instructor=True)
    assert len(noted.cells) == len(answered.cells) + 1


def test_answered_wants_an_answer_for_every_cell_and_a_cell_for_every_answer(write_source):
    path = write_source(SOURCE)
    with pytest.raises(source.LessonError, match=r"90_example, cell 4 .* scale_gradient; there is scale_gradients"):
        source.answered(path, {"scale_gradients": ""})
    with pytest.raises(source.LessonError, match=r"no cell .* defines scale_grad; there is scale_gradient"):
        source.answered(path, {"scale_gradient": "", "scale_grad": ""})


def test_put_answers_leaves_other_cells_and_the_given_notebook_alone(write_source):
    notebook = source.learner(write_source(SOURCE))
    before = nbformat.writes(notebook)
    assert nbformat.writes(source.put_answers(notebook, {})) == before
    assert "pass" in source.put_answers(notebook, {"scale_gradient": "pass"}).cells[3].source
    assert nbformat.writes(notebook) == before


@pytest.mark.parametrize(
    ("answer_cell", "complaint"),
    [
        ("x = 1", "cell 1 .*defines none"),
        ("def f(): ...\n\n\ndef g(): ...", "cell 1 .*defines f, g"),
        ("def f(:", "cell 1 .*line 1 is not Python"),
        ('def f(): ...\n\n# %% again tags=["answer"]\ndef f(): ...', "cell 2 .*another answer cell defines f"),
    ],
)
def test_bad_answer_cells_are_named(write_source, answer_cell, complaint):
    path = write_source(f'# %% tags=["answer"]\n{answer_cell}\n')
    with pytest.raises(source.LessonError, match=f"90_example, {complaint}"):
        source.answer_cells(source.read_source(path), path.stem)


def test_an_answer_cell_may_define_a_class_and_import(write_source):
    path = write_source('# %% tags=["answer"]\nimport torch\n\n\nclass Recorder:\n    def stop(self): ...\n')
    assert list(source.answer_cells(source.learner(path))) == ["Recorder"]


# ----------------------------------------------------------------------------------------------------------------- ids


def test_ids_say_what_a_cell_is(write_source):
    ids = [cell.id for cell in source.read_source(write_source(SOURCE)).cells]
    assert [ids[1], *ids[3:5]] == ["parameters", "answer-scale-gradient", "check-scale-gradient"]
    assert ids[0].startswith("text-")
    assert ids[2].startswith("setup-")
    assert ids[6].startswith("explore-")
    assert ids[7] == "the-slider-again"


def test_predictions_are_named_by_their_string(write_source):
    path = write_source('# %% tags=["predict"]\npredict("hook_on_a", options=[5, 12])\n')
    assert [cell.id for cell in source.learner(path).cells] == ["predict-hook-on-a"]


def test_an_edit_changes_no_other_id(write_source):
    path = write_source(SOURCE)
    cells = source.read_source(path).cells
    for index, cell in enumerate(cells):
        before = [other.id for other in cells]
        line = cell.source.splitlines()[-1]
        assert SOURCE.count(f"{line}\n") == 1
        edited = SOURCE.replace(f"{line}\n", f"{line}  # edited\n")
        after = [other.id for other in source.read_source(write_source(edited)).cells]
        del before[index], after[index]
        assert before == after, cell.source


def test_a_new_cell_changes_no_other_id(write_source):
    before = {cell.id for cell in source.read_source(write_source(SOURCE)).cells}
    after = {cell.id for cell in source.read_source(write_source("# %%\n1 + 1\n\n" + SOURCE.lstrip())).cells}
    assert before < after


def test_two_cells_with_one_text_need_a_name(write_source):
    with pytest.raises(source.LessonError, match=r"90_example, cell 2 \(`1 \+ 1`\): .*cell 1.*# %% the name"):
        source.read_source(write_source("# %%\n1 + 1\n\n# %%\n1 + 1\n"))
    named = source.read_source(write_source("# %%\n1 + 1\n\n# %% The same, later!\n1 + 1\n"))
    assert named.cells[1].id == "the-same-later"
    assert named.cells[1].metadata == {}


@pytest.mark.parametrize("tag", ["check", "predict"])
def test_a_tag_without_its_call_is_an_error(write_source, tag):
    with pytest.raises(source.LessonError, match=rf"cell 1 .*must call {tag}\("):
        source.read_source(write_source(f'# %% tags=["{tag}"]\nprint(1)\n'))


# --------------------------------------------------------------------------------------------------------------- build


def test_a_second_build_gives_the_same_bytes(example):
    path, notebook = example
    assert nbformat.writes(build.build(path)) == nbformat.writes(notebook)


def test_counts_are_sequential_and_metadata_says_nothing_of_the_run(example):
    _, notebook = example
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert "version" not in notebook.metadata.language_info
    assert {key for cell in notebook.cells for key in cell.metadata} == {"tags"}
    assert cell_of(notebook, "parameters").metadata.tags == ["parameters"]


def test_streams_stay_on_their_side_of_a_display(example):
    _, notebook = example
    kinds = [output.get("text") or output.data["text/plain"] for output in notebook.cells[-1].outputs]
    assert kinds == ["a", "tensor([1., 1.])", "b\n", "'the result'"]


def test_streams_merge_in_one_order():
    def stream(name, text):
        return nbformat.v4.new_output("stream", name=name, text=text)

    one = [stream("stderr", "1\n"), stream("stdout", "a"), stream("stdout", "b\n"), stream("stderr", "2\n")]
    other = [stream("stdout", "a"), stream("stderr", "1\n2\n"), stream("stdout", "b\n")]
    expected = [stream("stdout", "ab\n"), stream("stderr", "1\n2\n")]
    assert build.merge_streams(one) == build.merge_streams(other) == expected


def test_of_a_widget_its_words_stay_and_no_view_that_shows_nothing_without_a_kernel(example):
    _, notebook = example
    explore = next(cell for cell in notebook.cells if "explore" in source.tags_of(cell))
    for cell in (explore, cell_of(notebook, "the-slider-again")):
        (output,) = cell.outputs
        assert set(output.data) == {"text/plain"}
        assert output.metadata == {build.WIDGET: True}
    assert "widgets" not in notebook.metadata


@each_lesson
def test_plain_nbconvert_shows_each_widget_without_a_network(lesson):
    """With nbconvert's own settings: each explorer's picture, and each prediction with the call that commits."""
    from nbconvert import HTMLExporter

    notebook = nbformat.read(built(lesson), as_version=4)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    widgets = [output.data for output in outputs if output.get("metadata", {}).get(build.WIDGET)]
    assert widgets
    for data in widgets:
        if "image/svg+xml" in data:
            shown = base64.b64encode(data["image/svg+xml"].encode()).decode()
        else:
            shown = data.get("image/png") or data["text/html"]
        assert shown.replace("\n", "") in page.replace("\n", "")
    assert build.WIDGET_VIEW not in page
    for prediction in predictions_of(number_of(lesson)):
        assert html.escape(f'predict("{prediction.name}", ', quote=False) in page
    assert re.findall(r"Widget\(|Box\(children", page) == []


def test_a_lesson_runs_in_an_empty_folder_without_progress_or_settings(write_source, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "svg")
    monkeypatch.delenv("COURSE_PROGRESS", raising=False)
    path = write_source(
        """
        # %%
        import os
        print(os.listdir(), os.environ["COURSE_PROGRESS"], "svg" in os.environ.get("MPLBACKEND", ""))
        """
    )
    before = dict(os.environ), Path.cwd()
    assert build.build(path).cells[0].outputs[0].text == "[] off False\n"
    assert (dict(os.environ), Path.cwd()) == before


def test_a_cell_that_raises_is_named_with_its_traceback(write_source):
    path = write_source('# %% [markdown]\n# # Title\n\n# %%\nvalue = {}\nvalue["key"]\n')
    with pytest.raises(source.LessonError, match=r"90_example, cell 2 \(`value = \{\}`\) raised KeyError") as caught:
        build.build(path)
    assert '----> 2 value["key"]' in str(caught.value)


def test_a_cell_that_ends_the_kernel_is_a_sentence(write_source):
    with pytest.raises(source.LessonError, match="90_example: a cell ended the kernel"):
        build.build(write_source("# %%\nimport os\nos._exit(1)\n"))


def test_a_cell_that_never_ends_is_a_sentence(write_source, monkeypatch):
    monkeypatch.setattr(source, "CELL_SECONDS", 2)
    with pytest.raises(source.LessonError, match=r"90_example: a cell ran longer than 2 s[\s\S]*while True"):
        build.build(write_source("# %%\nwhile True:\n    pass\n"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<function hook at 0x7f3591fb84a0>", "a memory address: 0x7f3591fb84a0"),
        ("saved to /" + "home/ada/course/x.png", "an absolute path: /home/ada/course/x.png"),
        ("C:\\Users\\ada", "an absolute path: C:"),
        ("run on 2026-03-01 09:10", "a date or a time of day: 2026-03-01 09:10"),
        ('<img src="x.png">', "a picture without words"),
        ('<svg width="3" height="2"><path/></svg>', "a picture without words"),
    ],
)
def test_outputs_that_change_or_say_nothing_are_problems(text, complaint):
    assert any(complaint in problem for problem in build.find_problems(printed(text)))


@pytest.mark.parametrize(
    "text",
    [
        "x.grad = 12   colour 0xff",
        "see https://pytorch.org/docs/stable/notes/autograd.html",
        "<b>grad</b>/<i>x</i> and torch/nn/modules/module.py, 3/4/5",
        'M 0 0 L 10/2 5 <svg role="img" aria-label="A graph"><path/></svg>',
        '<img alt="A cat" src="cat.png"> <svg aria-hidden="true"></svg>',
        "tensor([1., 2.]) at 3:2",
    ],
)
def test_outputs_that_last_are_no_problems(text):
    assert build.find_problems(printed(text)) == []


def printed(text):
    """An executed notebook whose one cell printed `text`."""
    output = nbformat.v4.new_output("stream", name="stdout", text=text)
    metadata = {"kernelspec": source.KERNELSPEC, "language_info": source.LANGUAGE_INFO}
    cell = nbformat.v4.new_code_cell("print()", outputs=[output], execution_count=1, id="one")
    return nbformat.v4.new_notebook(cells=[cell], metadata=metadata)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda nb: nb.metadata.update(papermill={}), "metadata of a run or a machine: papermill"),
        (lambda nb: nb.metadata.language_info.update(version="3.11.2"), "language_info is of one machine"),
        (lambda nb: nb.cells[0].metadata.update(execution={}), "the source does not set: execution"),
        (lambda nb: nb.cells[0].update(execution_count=2), "execution count 2; in a clean run it is 1"),
        (lambda nb: nb.cells[0].update(execution_count=None), "execution count None"),
        (lambda nb: nb.cells[0].outputs.append(error_output()), "raised ValueError: no"),
        (lambda nb: nb.cells[0].outputs.append(display({"image/png": "iVBORw0K"})), "without alt text"),
        (lambda nb: nb.cells[0].outputs.append(display(VIEW)), "shows nothing without a kernel"),
        (lambda nb: nb.cells[0].outputs.append(display({}, widget=True)), "without a sentence as text/plain"),
    ],
)
def test_what_must_not_be_committed_is_found(spoil, complaint):
    notebook = nbformat.from_dict(json.loads(nbformat.writes(printed("fine"))))
    assert build.find_problems(notebook) == []
    spoil(notebook)
    assert any(complaint in problem for problem in build.find_problems(notebook)), build.find_problems(notebook)


VIEW = {build.WIDGET_VIEW: {"model_id": "gone", "version_major": 2, "version_minor": 0}}


def display(data, **metadata):
    return nbformat.v4.new_output("display_data", data=data, metadata=metadata)


def error_output():
    return nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])


def test_build_refuses_what_must_not_be_committed(write_source):
    with pytest.raises(source.LessonError, match=r"90_example, cell 1 \(code-.*a memory address"):
        build.build(write_source("# %%\nprint(hex(2**40))\n"))


# ----------------------------------------------------------------------------------------------- source and notebook


@pytest.mark.parametrize(
    ("edit", "difference"),
    [
        (lambda nb: nb.cells[0].update(source="# Another"), "its source is '# Another'"),
        (lambda nb: nb.cells[1].update(id="other"), "its id is 'other'"),
        (lambda nb: nb.cells[1].metadata.update(tags=[]), "its metadata is"),
        (lambda nb: nb.cells.pop(), "has 7 cells, the source has 8"),
        (lambda nb: nb.cells[-1].update(execution_count=None), "execution count None"),
    ],
)
def test_differences_between_source_and_notebook_are_found(example, tmp_path, edit, difference):
    path, notebook = example
    changed = nbformat.from_dict(json.loads(nbformat.writes(notebook)))
    build.write(changed, tmp_path / "90_example.ipynb")
    assert build.find_differences(path, tmp_path / "90_example.ipynb") == []
    edit(changed)
    build.write(changed, tmp_path / "90_example.ipynb")
    found = build.find_differences(path, tmp_path / "90_example.ipynb")
    assert difference in found[0]


def test_a_missing_or_broken_notebook_is_a_difference(example, tmp_path):
    path, _ = example
    assert "was not built yet" in build.find_differences(path, tmp_path / "no.ipynb")[0]
    (tmp_path / "half.ipynb").write_text('{"cells": [')
    assert "is not a notebook" in build.find_differences(path, tmp_path / "half.ipynb")[0]


# --------------------------------------------------------------------------------------------------------- the command


def test_the_command_builds_only_what_is_out_of_date(write_source, tmp_path, capsys):
    write_source("# %%\nprint(1)\n", "91_one")
    write_source("# %%\nprint(2)\n", "92_two")
    run = ["--folder", str(tmp_path)]
    assert build.main([*run, "--check"]) == 1
    assert "91_one.ipynb was not built yet" in capsys.readouterr().out
    assert not (tmp_path / "91_one.ipynb").exists()
    assert build.main([*run, "91"]) == 0
    assert "91_one: built in" in capsys.readouterr().out
    assert build.main(run) == 0
    output = capsys.readouterr().out
    assert "91_one: up to date" in output
    assert "92_two: built in" in output
    assert build.main([*run, "--check"]) == 0
    assert (tmp_path / "91_one.ipynb").read_text().endswith('"nbformat_minor": 5\n}\n')


def test_a_failing_build_keeps_the_old_notebook_and_builds_the_others(write_source, tmp_path, capsys):
    write_source("# %%\n1 / 0\n", "91_one")
    write_source("# %%\nprint(2)\n", "92_two")
    (tmp_path / "91_one.ipynb").write_text("old")
    assert build.main(["--folder", str(tmp_path)]) == 1
    assert "91_one, cell 1 (`1 / 0`) raised ZeroDivisionError" in capsys.readouterr().err
    assert (tmp_path / "91_one.ipynb").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["91_one.ipynb", "92_two.ipynb", "source"]


def test_an_unknown_lesson_is_answered_with_the_nearest(write_source, tmp_path, capsys):
    write_source("# %%\nprint(1)\n", "91_tensor_hooks")
    assert build.main(["--folder", str(tmp_path), "91_tensorhooks"]) == 2
    assert "there is no lesson 91_tensorhooks; there is 91_tensor_hooks" in capsys.readouterr().err


def test_outside_a_clone_the_command_says_so(tmp_path, capsys):
    assert build.main(["--folder", str(tmp_path)]) == 2
    assert "in a clone of the course's repository" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- what the checks can catch


def drawn(*, line=True, shift=0, size=(320, 240), noise=0.0, text="gradient"):
    """A PNG like a small figure: a frame, a thick line, some text."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((30 + shift, 20 + shift, 290 + shift, 210 + shift), outline="black")
    draw.text((120 + shift, 4 + shift), text, fill="black")
    if line:
        draw.line((40 + shift, 200 + shift, 280 + shift, 40 + shift), fill="#1f77b4", width=3)
    pixels = np.asarray(image, dtype=float) + noise * np.random.default_rng(0).standard_normal((size[1], size[0], 3))
    buffer = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype("uint8")).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "found",
    [drawn(), drawn(noise=2.0), drawn(size=(322, 241)), drawn(shift=1)],
    ids=["the same", "noise", "2 pixels wider", "shifted by a pixel"],
)
def test_pictures_that_show_the_same_pass(found):
    assert picture_difference(drawn(), found) is None


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (drawn(line=False), "in one block"),
        (drawn(shift=6), "in one block"),
        (drawn(size=(340, 240)), "the size is 340 x 240 pixels instead of 320 x 240"),
        (drawn(noise=60.0), "in the mean"),
        (drawn(text="GRADIENTS OF W"), "in one block"),
    ],
    ids=["a line is missing", "shifted", "wider", "noise", "another title"],
)
def test_pictures_that_show_something_else_fail(found, why):
    assert why in picture_difference(drawn(), found)


def test_transparent_is_white_and_base64_is_read():
    clear = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    white = Image.new("RGB", (40, 40), "white")
    encoded = []
    for image in (clear, white):
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        encoded.append(base64.b64encode(buffer.getvalue()).decode())
    assert picture_difference(*encoded) is None


def test_missing_pictures_and_views_are_differences():
    picture = display({"image/png": base64.b64encode(drawn()).decode()})
    assert find_picture_differences([picture], [picture]) == []
    assert find_picture_differences([], [picture]) == ["0 pictures (image/png) instead of 1"]
    assert find_picture_differences([display(VIEW)], []) == ["1 widgets instead of 0"]


NBVAL_SOURCE = """
# %%
import os, sys
print("first line")

# %%
from IPython.display import Image
from PIL import Image as Picture, ImageDraw
image = Picture.new("RGB", (64, 64), "white")
ImageDraw.Draw(image).rectangle((8, 8, 40, 40), fill="navy")
image.save("picture.png")
Image("picture.png", alt="A square")

# %%
import ipywidgets
ipywidgets.HTML("hello")
"""


@pytest.fixture(scope="module")
def nbval_example(tmp_path_factory):
    path = tmp_path_factory.mktemp("nbval") / "93_nbval.py"
    path.write_text(NBVAL_SOURCE.lstrip())
    return build.build(path)


def test_nbval_passes_a_fresh_notebook_and_names_what_differs(nbval_example, tmp_path):
    changed = nbformat.from_dict(json.loads(nbformat.writes(nbval_example)))
    changed.cells[0].outputs[0].text = "another line\n"
    changed.cells[1].outputs[0].data["image/png"] = base64.b64encode(drawn(size=(64, 64))).decode()
    changed.cells[2].outputs = []
    for name, notebook, passed in (("fresh", nbval_example, 3), ("changed", changed, 0)):
        (tmp_path / name).mkdir()
        build.write(notebook, tmp_path / f"{name}.ipynb")
        result = run_nbval(tmp_path / f"{name}.ipynb", tmp_path / name)
        assert (result.passed, result.others) == (passed, 3 - passed), result.report
    assert "another line" in result.report
    assert "picture 1 (image/png): the pixels differ" in result.report
    assert "1 widgets instead of 0" in result.report


TWICE_SOURCE = """
# %%
import torch
net = torch.nn.Linear(1, 1)

# %%
{cell}
"""


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (
            "torch.nn.modules.module.register_module_forward_hook(lambda *_: None);",
            "left behind: _global_forward_hooks",
        ),
        ("torch.set_default_dtype(torch.float64)", "default dtype was torch.float32 and is torch.float64"),
        ("torch.set_grad_enabled(False);", "grad mode was True"),
        (
            "torch.nn.ReLU.kept = [*getattr(torch.nn.ReLU, 'kept', []), net]; net.register_forward_hook(print);",
            "modules: 1",
        ),
        (
            "torch.kept = w = getattr(torch, 'kept', torch.ones(1, requires_grad=True)); w.register_hook(print);",
            "tensors",
        ),
        ("print(getattr(torch, 'seen', 'first time')); torch.seen = 'again'", "cell 2 .*first time.* became .*again"),
    ],
)
def test_what_a_second_run_reveals_is_found(write_source, tmp_path, cell, complaint):
    runs = run_twice(source.learner(write_source(TWICE_SOURCE.format(cell=cell))), tmp_path)
    found = "\n".join([*find_leftovers(runs), *find_output_differences(runs.first, runs.second)])
    assert re.search(complaint, found), found


def test_a_lesson_that_cleans_up_may_run_twice(example, tmp_path):
    path, notebook = example
    runs = run_twice(source.learner(path), tmp_path)
    assert find_leftovers(runs) == []
    assert find_output_differences(runs.first, runs.second) == []
    assert find_output_differences(notebook, runs.first) == []
