"""A learner in the start lesson: a prediction, a wrong answer, a hint, the right answer, the progress, another day."""

import json

import pytest
from faults import find_faults

from course_utils.lessons.lesson_00 import largest
from tests.browser.lab_page import NARROW, SCRIPTS, WIDE

pytestmark = pytest.mark.browser

LESSON = "00_start_here.ipynb"
WRONG = "def largest(tensor):\n    return tensor.max()\n"
RIGHT = "def largest(tensor):\n    return tensor.max().item()\n"


@pytest.fixture(scope="module")
def student(window):
    """The start lesson, opened and run, with nothing done yet."""
    window.open_fresh(LESSON)
    window.run_all()
    yield Student(window)
    window.shut_down()


class Student:
    """Types and presses what a learner types and presses, and reads what stands there."""

    def __init__(self, window) -> None:
        self.window, self.page = window, window.page

    def find(self, tag: str) -> int:
        """The last cell with this tag: the first exercise of the lesson is answered already, to show a wrong answer."""
        return [number for number, cell in enumerate(self.window.read_cells()) if tag in cell["tags"]][-1]

    def read(self, number: int) -> str:
        return self.window.cell(number).locator(".jp-OutputArea").text_content()

    def ask_below(self, number: int, code: str) -> int:
        """Add a cell below this one, run `code` in it, and return its number."""
        self.window.cell(number).locator(".jp-InputPrompt").first.click()
        self.page.keyboard.press("b")
        self.window.type_into(number + 1, code)
        return number + 1

    def run_progress(self) -> str:
        """Run the cell with the dashboard, and read it."""
        (number,) = (n for n, cell in enumerate(self.window.read_cells()) if cell["source"].strip() == "progress()")
        self.window.cell(number).locator(".jp-InputPrompt").first.click()
        self.window.run_and_go_on()
        return self.read(number)

    def kept(self) -> dict:
        return json.loads((self.window.lab.work / "progress.json").read_text(encoding="utf-8"))


def test_a_prediction_by_mouse(student):
    cell = student.window.cell(student.find("predict"))
    cell.get_by_role("button", name="Commit").click()
    cell.get_by_text("Choose an answer first").wait_for()
    cell.get_by_label("9", exact=True).check()
    cell.get_by_role("button", name="Commit").click()
    cell.get_by_text("You said 9.").wait_for()
    student.window.cell(student.find("why")).get_by_text("You said 9; it is 6.").wait_for()
    assert cell.get_by_label("6", exact=True).is_disabled()
    assert student.kept()["predictions"]["gradient_of_square"] == "9"


def test_a_wrong_answer_a_hint_the_right_answer(student, take_picture):
    answer = student.find("answer")
    before = student.kept()["exercises"]["largest"]["attempts"]  # of the sample, which every run of the lesson checks
    student.window.type_into(answer, WRONG)
    student.window.run_and_go_on()
    said = student.read(answer + 1)
    assert "largest: not yet (wrong type or structure)" in said
    assert "Likely cause: You return a tensor that holds the number." in said
    assert student.kept()["exercises"]["largest"] == {"attempts": before + 1, "hints": 0, "passed": False}
    assert "0 of 1" in student.run_progress()

    asked = student.ask_below(answer + 1, "hint(largest)")
    assert "Hint 1 of 3 for largest" in student.read(asked)
    assert largest.hints[0].replace("`", "") in student.read(asked)
    shown = student.ask_below(asked, "solution(largest, now=True)")
    assert "return tensor.max().item()" in student.read(shown)
    assert find_faults(student.page) == []
    for name, number in {"wrong": answer + 1, "hint": asked, "solution": shown}.items():
        take_picture(student.window.cell(number), f"exercise-{name}")

    student.window.type_into(answer, RIGHT)
    student.window.run_and_go_on()
    assert "largest: passed (1 point)" in student.read(answer + 1)
    assert "1 of 1" in student.run_progress()
    take_picture(student.window.cell(answer + 1), "exercise-passed")


def test_a_question_about_ones_own_code_below_the_ticket(student, take_picture):
    answer = student.find("answer")
    student.window.type_into(answer, RIGHT)
    student.window.run_and_go_on()
    cell = student.window.cell(answer + 1)
    cell.get_by_text("A question about your own code").wait_for()
    student.window.set_width(NARROW)
    assert student.window.panel.evaluate(SCRIPTS["find_too_wide"]) == []
    cell.get_by_role("radio").first.check()
    cell.get_by_role("button", name="Commit").click()
    cell.get_by_text("it was run").wait_for()
    assert len(student.kept()["questions"]["largest"]["asked"]) == 1
    assert "own code: 1 answered" in student.run_progress()
    assert find_faults(student.page) == []
    take_picture(cell, "exercise-question")
    student.window.set_width(WIDE)


def test_answers_and_progress_are_there_after_a_reload_and_in_a_new_kernel(student):
    answer = student.find("answer")
    student.window.type_into(answer, RIGHT)
    student.window.save()
    student.window.load(LESSON)
    assert student.window.read_cells()[answer]["source"] == RIGHT
    student.page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    for number, cell in enumerate(student.window.read_cells()):
        if "setup" in cell["tags"]:
            student.window.run(number)
    said = student.run_progress()
    assert said.count("1 of 1") == 2  # the exercise, and the prediction
    assert "Open the lessons with" not in said


def test_the_progress_leads_to_the_lesson_to_go_on_with(student):
    """The last test here: another lesson is in front afterwards."""
    assert "Go on with 01 Tensor hooks." in student.run_progress()
    student.page.get_by_role("link", name="01 Tensor hooks").last.click()
    student.window.wait_for_kernel("01_tensor_hooks.ipynb")
