"""An exercise and a prediction under a new name: answers, progress and grades follow."""

import json

import nbformat
import pytest

from course_utils.authoring.source import learner
from course_utils.exercises import classroom, declaration, saved_progress
from course_utils.exercises.engine import find, find_prediction
from course_utils.grading.answers import collect_answers, read_cells
from course_utils.grading.lessons import read_lessons
from course_utils.lab.update import update_lessons

DECLARED = """
@exercise(lesson=0, hints=[], formerly="oldest biggest")
def largest(tensor): ...
prediction("gradient_of_square", lesson=0, formerly="old_square")
"""
START = read_lessons()["00_start_here"]
OWN = "print(biggest(x), model.biggest, biggest_of)"
ANSWER = "def biggest(tensor):\n    return tensor.max().item()"


@pytest.fixture(autouse=True)
def names(tmp_path, monkeypatch):
    """The start lesson, as if its exercise and its prediction had had other names."""
    monkeypatch.setattr(declaration, "LESSONS", tmp_path)
    (tmp_path / "lesson_00.py").write_text(DECLARED)
    declaration.renamed.cache_clear()
    yield
    declaration.renamed.cache_clear()


def with_old_names(answer: str = "") -> nbformat.NotebookNode:
    """The lesson of an earlier edition, with the learner's answer and a cell of the learner's."""
    made = learner(START.path)
    for cell in made.cells:
        for new, old in (("largest", "biggest"), ("gradient_of_square", "old_square")):
            cell.source = cell.source.replace(new, old)
            cell.id = cell.id.replace(new.replace("_", "-"), old.replace("_", "-"))
        if answer and cell.id == "answer-biggest":
            cell.source = answer
    made.cells += [nbformat.v4.new_code_cell(OWN, id="own")] if answer else []
    return made


def test_what_is_asked_for_by_an_old_name_is_found(monkeypatch):
    assert find("biggest") is find("oldest") is find("largest")
    assert find_prediction("old_square") is find_prediction("gradient_of_square")
    old = {"exercises": {"biggest": {"attempts": 4, "passed": True, "hints": 1}}, "predictions": {"old_square": "9"}}
    monkeypatch.setattr(saved_progress, "_in_memory", old)
    assert saved_progress.of_exercise("largest") == {"attempts": 4, "passed": True, "hints": 1}
    assert str(classroom.predict("old_square", "6")).startswith("You said 9.")
    exec(ANSWER, space := {})
    assert "largest: passed" in str(classroom.check(space["biggest"]))
    assert saved_progress.load()["exercises"] == {"largest": {"attempts": 5, "passed": True, "hints": 1}}


def test_an_update_moves_the_answer_and_the_learners_own_cells_to_the_new_name(tmp_path):
    lesson, mine = tmp_path / START.path.with_suffix(".ipynb").name, tmp_path / "work"
    nbformat.write(with_old_names(), lesson)
    (first,) = update_lessons([lesson], mine)
    nbformat.write(with_old_names(ANSWER), first.written)
    nbformat.write(learner(START.path), lesson)
    (found,) = update_lessons([lesson], mine)
    assert "a new edition, with your 1 answer and 1 cell of your own. The file" in found.sentence
    cells = {cell.id: cell.source for cell in nbformat.read(found.written, as_version=4).cells}
    wanted = {cell.id: cell.source for cell in learner(START.path).cells}
    wanted |= {"answer-largest": ANSWER.replace("biggest", "largest"), "own": OWN.replace("biggest(", "largest(")}
    assert cells == wanted


def test_an_answer_handed_in_under_the_old_name_is_graded():
    answers = collect_answers(read_cells(json.dumps(with_old_names(ANSWER)).encode()), START)
    (found,) = (each for each in answers if each.exercise.name == "largest")
    assert (found.outcome, found.source.strip()) == (None, ANSWER.replace("biggest", "largest"))
