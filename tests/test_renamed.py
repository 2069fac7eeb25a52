"""An exercise and a prediction under a new name: answers, progress and grades follow."""

import json

import nbformat
import pytest
from grading_samples import handed_out

from course_utils.exercises import classroom, declaration, saved_progress
from course_utils.exercises.engine import find, find_prediction
from course_utils.grading.answers import collect_answers
from course_utils.grading.definitions import read_cells
from course_utils.grading.submissions import read_lessons
from course_utils.lab.update import update_lessons

DECLARED = """@exercise(lesson=0, hints=[], formerly="oldest biggest")
def largest(tensor): ...
prediction("gradient_of_square", lesson=0, formerly="old_square")"""
START = read_lessons()["00_start_here"]
ANSWER, OWN = "def {}(tensor):\n    return tensor.max().item()", "print({}(x), model.biggest, biggest_of)"
DONE = {"attempts": 4, "passed": True, "hints": 1}


@pytest.fixture(autouse=True)
def names(tmp_path, monkeypatch):
    """The start lesson, as if its exercise and its prediction had had other names."""
    monkeypatch.setattr(declaration, "LESSONS", tmp_path)
    (tmp_path / "lesson_00.py").write_text(DECLARED)
    declaration.renamed.cache_clear()
    yield
    declaration.renamed.cache_clear()


def lesson(name: str, answered: bool = False) -> nbformat.NotebookNode:
    """The lesson with this name of its exercise, perhaps with what a learner wrote into it."""
    made = nbformat.reads(nbformat.writes(handed_out(START)).replace("largest", name), 4)
    for cell in made.cells * answered:
        cell.source = ANSWER.format(name) if cell.id == f"answer-{name}" else cell.source
    made.cells += [nbformat.v4.new_code_cell(OWN.format(name), id="own")] * answered
    return made


def test_what_is_asked_for_by_an_old_name_is_found_and_its_progress_counts(monkeypatch):
    assert find("biggest") is find("oldest") is find("largest")
    assert find_prediction("old_square") is find_prediction("gradient_of_square")
    old = {"exercises": {"biggest": DONE}, "predictions": {"old_square": "9"}}
    monkeypatch.setattr(saved_progress, "_in_memory", old)
    assert saved_progress.of_exercise("largest") == DONE
    assert str(classroom.predict("old_square", "6")).startswith("You said 9.")
    exec(ANSWER.format("biggest"), space := {})
    assert "largest: passed" in str(classroom.check(space["biggest"]))
    assert saved_progress.load()["exercises"] == {"largest": DONE | {"attempts": 5}}


def test_an_update_renames_the_answer_and_what_uses_it_and_an_answer_under_the_old_name_is_graded(tmp_path):
    nbformat.write(lesson("biggest"), edition := tmp_path / f"{START.name}.ipynb")
    (first,) = update_lessons([edition], tmp_path / "work")
    nbformat.write(mine := lesson("biggest", answered=True), first.written)
    nbformat.write(lesson("largest"), edition)
    (found,) = update_lessons([edition], tmp_path / "work")
    assert "a new edition, with your 1 answer and 1 cell of your own. The file" in found.sentence
    wanted = [(cell.id, cell.source) for cell in lesson("largest", answered=True).cells]
    assert [(cell.id, cell.source) for cell in nbformat.read(found.written, 4).cells] == wanted
    (answer,) = (each for each in collect_answers(read_cells(json.dumps(mine).encode()), START) if each.source)
    assert (answer.exercise.name, answer.outcome, answer.source.strip()) == ("largest", None, ANSWER.format("largest"))
