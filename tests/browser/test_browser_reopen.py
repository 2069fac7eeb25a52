"""A lesson that is closed and opened again in another kernel; and *Run All*, which tells nothing before the commit."""

import nbformat
import pytest

from course_utils.authoring.source import called_with
from course_utils.exercises.declaration import find_prediction
from course_utils.exercises.predictions import HIDDEN
from course_utils.lab.saving import WIDGET_VIEW
from tests.browser.test_browser_sealed import WIDGET_TROUBLES

pytestmark = pytest.mark.browser

FIRST, SECOND = "who_has_a_gradient", "hook_on_w"  # predictions of the lesson
LESSON = "01_tensor_hooks.ipynb"
OWN = "print('mine:', 6 * 7)"


class Visit:
    """A learner with the lesson in front."""

    def __init__(self, window) -> None:
        self.window, self.page, self.cells = window, window.page, window.read_cells()

    def find(self, tag: str) -> dict:
        """The cells with this tag, by the prediction that they are about."""
        tagged = {n: cell["source"] for n, cell in enumerate(self.cells) if tag in cell["tags"]}
        return {called_with(source, tag): self.window.cell(number) for number, source in tagged.items()}

    def find_waiting(self, name: str) -> list:
        """The cells between a prediction and its explanation."""
        return [self.window.cell(number) for number in self.find_numbers(name)]

    def find_numbers(self, name: str) -> list[int]:
        ids = self.page.evaluate("() => [...jupyterapp.shell.currentWidget.content.model.cells].map(each => each.id)")
        return [ids.index(each) for each in find_prediction(name).waits]

    def commit(self, name: str, option: str) -> None:
        cell = self.find("predict")[name]
        cell.get_by_label(option, exact=True).check()
        cell.get_by_role("button", name="Commit").click()
        cell.get_by_text(f"You said {option}.").wait_for()

    def write_below(self, cell, code: str) -> None:
        """Add a cell of one's own, and run it."""
        cell.locator(".jp-InputPrompt").first.click()
        self.page.keyboard.press("b")
        self.page.keyboard.press("Enter")
        self.page.keyboard.insert_text(code)
        self.window.run_and_go_on()
        self.cells = self.window.read_cells()


def read(cell) -> str:
    cell.scroll_into_view_if_needed()
    return cell.locator(".jp-OutputArea").first.inner_text()


def test_run_all_tells_nothing_and_a_closed_lesson_opens_with_its_pictures_and_goes_on(window, take_picture):
    window.open_fresh(LESSON)
    visit = Visit(window)
    for _ in range(2):  # run all, twice
        window.run_all()
    window.look_through()
    waiting = {name: cell for name in visit.find("predict") for cell in visit.find_waiting(name)}
    assert len(waiting) == 6
    assert [name for name, cell in waiting.items() if HIDDEN not in read(cell)] == []
    assert "requires_grad" not in read(waiting[FIRST])
    take_picture(waiting[FIRST], "reopen-waits")
    visit.commit(FIRST, "only x")
    waiting[FIRST].get_by_text("b: requires_grad = False").wait_for()
    assert "You said only x." in read(waiting[FIRST])
    assert HIDDEN in read(waiting[SECOND])
    take_picture(waiting[FIRST], "reopen-played")
    visit.write_below(visit.find("why")[FIRST], OWN)
    window.save()
    window.rest()
    cells = nbformat.read(window.lab.work / LESSON, as_version=4).cells
    assert not any(WIDGET_VIEW in output.get("data", {}) for cell in cells for output in cell.get("outputs", ()))

    window.open(LESSON)  # in a page of its own, and with another kernel
    visit = Visit(window)
    seen = window.look_through().words
    assert [trouble for trouble in WIDGET_TROUBLES if trouble in seen] == []
    assert "mine: 42" in seen
    question, explorer = visit.find("predict")[FIRST], visit.find("explore")[None]
    assert "You said only x." in read(question)
    assert "b: requires_grad = False" in read(visit.find_waiting(FIRST)[0])
    assert HIDDEN in read(visit.find_waiting(SECOND)[0])
    assert explorer.locator("svg[aria-label]").count() == 1
    for name, cell in {"question": question, "explorer": explorer}.items():
        assert "Run this cell to wake it" in read(cell)
        take_picture(cell, f"reopen-asleep-{name}")
    visit.find("predict")[SECOND].get_by_role("button", name="Run all cells down to here").click()
    visit.find("predict")[SECOND].get_by_role("radio").first.wait_for()
    window.wait_until_idle()
    assert question.get_by_role("radio", checked=True).count() == 1
    assert explorer.get_by_role("slider").count() == 1
    (number,) = visit.find_numbers(SECOND)
    window.run(number)
    visit.commit(SECOND, "30")
    window.cell(number).get_by_text("w.grad = 30").wait_for()
    window.save()
    visit.write_below(visit.find("why")[FIRST], OWN)
    window.save()
    assert window.page.locator(".jp-Dialog").count() == 0, "the file is what JupyterLab has saved"
    assert window.complaints == []
    window.shut_down()
