"""A lesson's source: its editions, and ids that last."""

import textwrap

import nbformat
import pytest

from course_utils.authoring import source
from course_utils.root import CourseError

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

# %% the slider again
slider
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


def test_learners_do_not_see_the_notes_for_instructors(write_source):
    path = write_source(SOURCE)
    whole, learner = source.read_source(path), source.learner(path)
    assert [cell.source for cell in whole.cells if cell not in learner.cells] == ["Ask the room."]


def test_answered_puts_each_answer_in_its_cell(write_source):
    path = write_source(SOURCE)
    learner, answered = source.learner(path), source.answered(path, {"scale_gradient": ANSWER})
    changed = [new for old, new in zip(learner.cells, answered.cells, strict=True) if old != new]
    assert [(cell.id, cell.source) for cell in changed] == [("answer-scale-gradient", ANSWER.rstrip("\n"))]
    noted = source.answered(path, {"scale_gradient": ANSWER}, instructor=True)
    assert len(noted.cells) == len(answered.cells) + 1


def test_answered_wants_an_answer_for_every_cell_and_a_cell_for_every_answer(write_source):
    path = write_source(SOURCE)
    with pytest.raises(CourseError, match=r"90_example: no answer .* for scale_gradient; there is scale_gradients"):
        source.answered(path, {"scale_gradients": ""})
    with pytest.raises(CourseError, match=r"for scale_gradient; there is none"):
        source.answered(path, {})
    with pytest.raises(CourseError, match=r"no cell .* defines other; there is scale_gradient\."):
        source.answered(path, {"scale_gradient": "", "other": ""})


def test_put_answers_leaves_other_cells_and_the_given_notebook_alone(write_source):
    notebook = source.learner(write_source(SOURCE))
    notebook.cells[3].update(execution_count=7, outputs=[nbformat.v4.new_output("stream", text="old")])
    before = nbformat.writes(notebook)
    assert nbformat.writes(source.put_answers(notebook, {})) == before
    cell = source.put_answers(notebook, {"scale_gradient": "pass"}).cells[3]
    assert (cell.source, cell.outputs, cell.execution_count) == ("pass", [], None)
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
    with pytest.raises(CourseError, match=f"90_example, {complaint}"):
        source.answer_cells(source.read_source(path), path.stem)


def test_an_answer_cell_may_define_a_class_and_import(write_source):
    path = write_source('# %% tags=["answer"]\nimport torch\n\n\nclass Recorder:\n    def stop(self): ...\n')
    assert list(source.answer_cells(source.learner(path))) == ["Recorder"]


def test_ids_say_what_a_cell_is(write_source):
    predict = '# %% tags=["predict"]\nprint(len("x"), predict("hook_on_a", options=[5, 12]))\n'
    ids = [cell.id for cell in source.read_source(write_source(SOURCE + predict)).cells]
    assert [ids[1], *ids[3:5], *ids[7:]] == [
        "parameters",
        "answer-scale-gradient",
        "check-scale-gradient",
        "the-slider-again",
        "predict-hook-on-a",
    ]
    assert [ids[place].partition("-")[0] for place in (0, 2, 6)] == ["text", "setup", "explore"]


def test_an_edit_changes_no_other_id(write_source):
    cells = source.read_source(write_source(SOURCE)).cells
    for index, cell in enumerate(cells):
        before = [other.id for other in cells]
        line = cell.source.splitlines()[-1]
        edited = SOURCE.replace(f"{line}\n", f"{line}  # edited\n")
        after = [other.id for other in source.read_source(write_source("# %%\n1 + 1\n\n" + edited.lstrip())).cells]
        del before[index], after[index + 1]
        assert before == after[1:], cell.source


def test_two_cells_with_one_text_need_a_name(write_source):
    with pytest.raises(CourseError, match=r"90_example, cell 2 \(`1 \+ 1`\): .*cell 1.*# %% the name"):
        source.read_source(write_source("# %%\n1 + 1\n\n# %%\n1 + 1\n"))
    named = source.read_source(write_source("# %%\n1 + 1\n\n# %% The same, later!\n1 + 1\n"))
    assert (named.cells[1].id, named.cells[1].metadata) == ("the-same-later", {})


@pytest.mark.parametrize("tag", ["check", "predict"])
def test_a_tag_without_its_call_is_an_error(write_source, tag):
    with pytest.raises(CourseError, match=rf"cell 1 .*must call {tag}\("):
        source.read_source(write_source(f'# %% tags=["{tag}"]\nprint(1, {tag}(f()))\n'))


def test_lessons_are_chosen_by_number_name_or_path(write_source, tmp_path):
    one, two = write_source("1", "91_one"), write_source("2", "92_tensor_hooks")
    assert source.choose([], tmp_path) == [one, two]
    assert source.choose(["92", "91_one"], tmp_path) == [two, one]
    assert source.choose([str(one), "notebooks/92_tensor_hooks.ipynb"], tmp_path) == [one, two]
    with pytest.raises(CourseError, match=r"There is no lesson 92_tensorhooks; there is 92_tensor_hooks\."):
        source.choose(["92_tensorhooks"], tmp_path)
    with pytest.raises(CourseError, match="in a clone of the course's repository"):
        source.choose([], tmp_path / "source")
