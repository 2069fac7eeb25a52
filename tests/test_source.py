"""A lesson's source: its editions, and ids that last."""

import re
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


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('tags=["answer"]\nx = 1', "1 .*defines none"),
        ('tags=["answer"]\ndef f(): ...\n\n\ndef g(): ...', "1 .*defines f, g"),
        ('tags=["answer"]\ndef f(:', "1 .*line 1 is not Python"),
        ('tags=["check"]\nprint(1, check(f()))', r"1 .*must call check\("),
        ('tags=["predict"]\npredict(f())', r"1 .*must call predict\("),
        ('tags=["answer"]\ndef f(): ...\n\n# %% b tags=["answer"]\ndef f(): ...', "2 .*another answer cell defines f"),
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
