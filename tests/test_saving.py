"""What Jupyter saves of a lesson: stills for widgets, no answer to an open question, and all else as it is."""

import copy
import html
import json
import re
from pathlib import Path

import nbformat
import pytest
from jupyter_server.services.contents.filemanager import FileContentsManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_utils.authoring import source
from course_utils.authoring.build import WIDGET
from course_utils.exercises.declaration import find_prediction, predictions_of
from course_utils.exercises.predictions import HIDDEN
from course_utils.exercises.saved_progress import FILE, MARKER
from course_utils.explorers import GradientFlow, TheCase
from course_utils.lab import saving
from course_utils.lab.saving import WIDGET_STATE, WIDGET_VIEW, before_save, settle
from course_utils.vision import pictures
from tests.sealing import find_told

ASKED = find_prediction("hook_on_w")  # 5, 10, 15, 30 (right)
ANSWER = "It is 30"
SVG = '<svg aria-label="a graph"></svg>'


def show(view: str = "", **data: str):
    """An output with a widget, if it has a `view`."""
    kinds = {"svg": "image/svg+xml", "html": "text/html", "text": "text/plain", "png": "image/png"}
    found = {kinds[name]: value for name, value in data.items()}
    return new_output("display_data", data=found | ({WIDGET_VIEW: {"model_id": view}} if view else {}))


@pytest.fixture
def lesson():
    """A piece of lesson 01 as JupyterLab hands it over after *Run All*, with the answers in full view."""
    cells = [new_markdown_cell("my notes")]
    cells += [new_code_cell("from course_utils.explorers import *", outputs=[show("a", svg=SVG, text="`y` is 6 < 7.")])]
    cells += [new_code_cell("predict('hook_on_w')", outputs=[show("b", html="a list", text="Predict: …")])]
    (path,) = source.choose(["01"])
    (between,) = (cell for cell in source.learner(path).cells if cell.id in ASKED.waits)
    between.outputs = [
        new_output("stream", text="w.grad = 30"),
        new_output("error", ename="E", evalue="", traceback=[]),
    ]
    cells += [between, new_code_cell("why('hook_on_w')", outputs=[show("c", html=f"<details>{ANSWER}", text="sealed")])]
    cells += [new_code_cell("print('mine')", outputs=[new_output("stream", text="mine: 30")])]
    return nbformat.from_dict(new_notebook(cells=cells))


def read_html(cell) -> str:
    (output,) = cell["outputs"]
    assert WIDGET_VIEW not in output["data"]
    return output["data"]["text/html"]


def test_before_the_commit_no_answer_is_saved_and_every_widget_says_how_to_wake_it(lesson):
    before = copy.deepcopy(lesson)
    notes, explorer, question, between, explanation, mine = settle(lesson, {})["cells"]
    assert lesson == before, "what is open in the browser is another notebook"
    assert (notes, mine) == (before.cells[0], before.cells[-1])
    assert all(part in read_html(explorer) for part in (SVG, "<code>y</code> is 6 &lt; 7.", "Run this cell to wake it"))
    assert all(f"<li>{option}</li>" in read_html(question) for option in ASKED.options)
    assert "You said" not in read_html(question)
    error, note = between["outputs"]
    assert (error["ename"], note["data"]["text/plain"][: len(HIDDEN)]) == ("E", HIDDEN)
    assert ANSWER not in read_html(explanation)
    assert "opens as soon as you have committed" in read_html(explanation)


@pytest.mark.parametrize("make", [TheCase, GradientFlow])
def test_an_explorer_that_somebody_runs_is_saved_with_its_picture_and_its_sentence(lesson, monkeypatch, make):
    monkeypatch.setattr(pictures, "running_cell", lambda: "a-cell-that-somebody-runs")
    explorer = make()
    data, metadata = explorer._repr_mimebundle_()
    lesson.cells[1].outputs = [new_output("display_data", data, metadata=metadata)]
    saved = read_html(settle(lesson, {})["cells"][1])
    assert f"<p>{explorer.sentence}</p>" in saved
    assert re.search("<(img alt|svg .*aria-label)=", saved)


def test_after_the_commit_question_output_and_explanation_are_saved_with_the_answer(lesson):
    _, _, question, between, explanation, _ = settle(lesson, {"hook_on_w": "15"})["cells"]
    assert "You said 15." in read_html(question)
    assert between == lesson.cells[3]
    assert "You said 15; it is 30." in read_html(explanation)
    assert "Run this cell" not in read_html(explanation), "there is nothing left to wake"


def test_a_clue_is_saved_with_what_the_learner_made_of_it(lesson):
    lesson.cells[1].outputs = [show("a", svg=SVG, text="Clue 01: 19% of it.")]
    clues = {"01": {"found": "19% of it.", "words": "<the eye>?"}}
    assert "<em>You: &lt;the eye&gt;?</em>" in read_html(settle(lesson, {}, clues)["cells"][1])
    for other in ({}, {"02": clues["01"]}, {"01": [1]}, {"01": {"found": "19% of it."}}):
        assert "You: " not in read_html(settle(lesson, {}, other)["cells"][1])


def test_what_is_the_learners_own_stays(lesson):
    lesson.cells[3].source += "\nprint('tried')"
    assert settle(lesson, {})["cells"][3] == lesson.cells[3], "a cell that the learner has changed"
    assert settle(lesson, None)["cells"][3].outputs[0].text == "w.grad = 30", "nobody knows what was committed"
    assert "You said" not in read_html(settle(lesson, {"hook_on_w": "nonsense"})["cells"][2])
    lesson.metadata["widgets"] = {WIDGET_STATE: {"state": {"a": {}}}}
    assert settle(lesson, {})["cells"][1] == lesson.cells[1], "JupyterLab was told to save the widgets' state"
    other = new_notebook(cells=[new_code_cell("slider", outputs=[show("s", text="IntSlider()")])])
    assert settle(other, {}) is other, "no lesson"


def test_a_saved_lesson_is_saved_again_as_it_is(lesson):
    once = settle(lesson, {"hook_on_w": "15"})
    assert settle(once, {"hook_on_w": "15"}) == once
    hidden = settle(lesson, {})
    assert settle(hidden, {}) == hidden


def save_built(path: Path, choices: dict[str, str]) -> nbformat.NotebookNode:
    """The lesson of a source as Jupyter saves it after *Run All*, where these were the commitments."""
    built = nbformat.read(source.FOLDER / f"{path.stem}.ipynb", as_version=4)
    for output in (output for cell in built.cells for output in cell.get("outputs", ())):
        if output.get("metadata", {}).get(WIDGET):
            output.data[WIDGET_VIEW] = {"model_id": "any"}
    return settle(built, choices)


def read_text(markup: str) -> str:
    """What somebody reads of HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


@pytest.mark.parametrize("path", source.sources(), ids=lambda path: path.stem)
def test_no_lesson_tells_an_answer_before_the_commit(path):
    cells = save_built(path, {}).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    texts = [text for output in outputs for text in (output.get("text", ""), *output.get("data", {}).values())]
    said = "\n".join([cell.source for cell in cells] + [read_text(each) for each in texts if isinstance(each, str)])
    assert [told for asked in predictions_of(source.number_of(path)) for told in find_told(said, asked)] == []


@pytest.fixture
def manager(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")
    (tmp_path / MARKER).touch()
    (tmp_path / FILE).write_text(json.dumps({"predictions": {"hook_on_w": "15"}}))
    manager = FileContentsManager(root_dir=str(tmp_path))
    manager.pre_save_hook = before_save
    return manager


def save(manager, notebook) -> nbformat.NotebookNode:
    """What is in the file when Jupyter has saved a notebook."""
    manager.save({"type": "notebook", "content": json.loads(json.dumps(notebook))}, "01.ipynb")
    return nbformat.read(Path(manager.root_dir, "01.ipynb"), as_version=4)


def test_jupyter_saves_what_the_progress_beside_the_lesson_says(manager, lesson):
    assert "You said 15." in read_html(save(manager, lesson).cells[2])


@pytest.mark.parametrize("damage", ["a widget that is none", "an error in the hook"])
def test_a_hook_that_fails_still_saves_and_changes_nothing(manager, lesson, monkeypatch, damage):
    if damage == "an error in the hook":
        monkeypatch.setattr(saving, "settle", lambda *_: 1 / 0)
    else:
        lesson.cells[1].outputs[0].data[WIDGET_VIEW] = "?"
    saved = save(manager, lesson)
    assert [cell.source for cell in saved.cells] == [cell.source for cell in lesson.cells]
    assert [cell.get("outputs") for cell in saved.cells] == [cell.get("outputs") for cell in lesson.cells]
