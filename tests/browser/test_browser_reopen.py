"""A lesson that is closed and opened again in another kernel; and *Run All*, which tells nothing before the commit."""

import nbformat
import pytest

from course_utils.authoring.source import called_with
from course_utils.exercises.declaration import find_prediction
from course_utils.exercises.predictions import HIDDEN
from tests.browser import lab_page
from tests.browser.test_browser_lessons import WIDGET_TROUBLES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIRST, SECOND = "who_has_a_gradient", "hook_on_w"  # predictions of the lesson
LESSON = "01_tensor_hooks.ipynb"
OWN = "print('mine:', 6 * 7)"
VIEW = "application/vnd.jupyter.widget-view+json"


class Visit:
    """A learner with the lesson in front."""

    def __init__(self, browser, lab) -> None:
        self.window = lab_page.LabPage(browser, lab, LESSON)
        self.page = self.window.page
        self.cells = self.window.read_cells()

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
        self.page.keyboard.press("Shift+Enter")
        self.window.wait_until_idle()
        self.cells = self.window.read_cells()


def save(window) -> None:
    window.page.keyboard.press("ControlOrMeta+s")
    window.page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")


def read(cell) -> str:
    cell.scroll_into_view_if_needed()
    return cell.locator(".jp-OutputArea").first.inner_text()


def take_picture(cell, folder, name: str) -> None:
    cell.scroll_into_view_if_needed()
    cell.screenshot(path=folder / f"reopen-{name}.png")


def find_views(path) -> list:
    """The outputs in a file that would need a running kernel."""
    outputs = [each for cell in nbformat.read(path, as_version=4).cells for each in cell.get("outputs", ())]
    return [each for each in outputs if VIEW in each.get("data", {})]


def test_run_all_tells_nothing_and_a_closed_lesson_opens_with_its_pictures_and_goes_on(browser, tmp_path, pictures):
    with lab_page.start_lab(tmp_path) as lab:
        visit = Visit(browser, lab)
        for _ in range(2):  # run all, twice
            visit.window.run_all()
        visit.window.look_through()
        waiting = {name: cell for name in visit.find("predict") for cell in visit.find_waiting(name)}
        assert len(waiting) == 6
        assert [name for name, cell in waiting.items() if HIDDEN not in read(cell)] == []
        assert "requires_grad" not in read(waiting[FIRST])
        take_picture(waiting[FIRST], pictures, "waits")
        visit.commit(FIRST, "only x")
        waiting[FIRST].get_by_text("b: requires_grad = False").wait_for()
        assert "You said only x." in read(waiting[FIRST])
        assert HIDDEN in read(waiting[SECOND])
        take_picture(waiting[FIRST], pictures, "played")
        visit.write_below(visit.find("why")[FIRST], OWN)
        save(visit.window)
        visit.page.close()
    assert find_views(lab.work / LESSON) == []

    with lab_page.start_lab(tmp_path) as lab:  # another server, and another kernel
        visit = Visit(browser, lab)
        seen = visit.window.look_through().words
        assert [trouble for trouble in WIDGET_TROUBLES if trouble in seen] == []
        assert "mine: 42" in seen
        question, explorer = visit.find("predict")[FIRST], visit.find("explore")[None]
        assert "You said only x." in read(question)
        assert "b: requires_grad = False" in read(visit.find_waiting(FIRST)[0])
        assert HIDDEN in read(visit.find_waiting(SECOND)[0])
        assert explorer.locator("svg[aria-label]").count() == 1
        for name, cell in {"question": question, "explorer": explorer}.items():
            assert "Run this cell to wake it" in read(cell)
            take_picture(cell, pictures, f"asleep-{name}")
        visit.find("predict")[SECOND].get_by_role("button", name="Run all cells down to here").click()
        visit.find("predict")[SECOND].get_by_role("radio").first.wait_for()
        visit.window.wait_until_idle()
        assert question.get_by_role("radio", checked=True).count() == 1
        assert explorer.get_by_role("slider").count() == 1
        (number,) = visit.find_numbers(SECOND)
        visit.window.run(number)
        visit.commit(SECOND, "30")
        visit.window.cell(number).get_by_text("w.grad = 30").wait_for()
        save(visit.window)
        visit.write_below(visit.find("why")[FIRST], OWN)
        save(visit.window)
        assert visit.page.locator(".jp-Dialog").count() == 0, "the file is what JupyterLab has saved"
        assert visit.window.complaints == []
        visit.page.close()


@pytest.mark.parametrize("front_end", ["jupyterlab", "notebook"])
def test_without_the_courses_settings_a_sentence_stands_where_a_widget_was(browser, tmp_path, pictures, front_end):
    pytest.importorskip(front_end, reason="pip install -e '.[browser]'")
    code = "from course_utils.exercises import predict\npredict('hook_on_w')"
    with lab_page.start_lab(tmp_path, front_end=front_end) as lab:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, lab.work / "plain.ipynb")
        window = lab_page.LabPage(browser, lab, "plain.ipynb")
        window.run_all()
        window.cell(0).get_by_role("radio").first.wait_for()
        save(window)
        window.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
        panel = window.cell(0).locator(".course-panel.jupyter-widgets-disconnected").first
        panel.wait_for()
        shown = "each => [getComputedStyle(each, '::before').content, getComputedStyle(each, '::before').display]"
        assert "Run this cell to wake it" in panel.evaluate(shown)[0]
        signs = [each.evaluate(shown)[1] for each in panel.locator(".jupyter-widgets-disconnected").all()]
        assert set(signs) == {"none"}
        take_picture(window.cell(0), pictures, f"restarted-{front_end}")
        window.page.close()
    assert len(find_views(lab.work / "plain.ipynb")) == 1
    with lab_page.start_lab(tmp_path, front_end=front_end) as lab:
        window = lab_page.LabPage(browser, lab, "plain.ipynb")
        dead = window.cell(0).locator(".jp-OutputArea-output.jupyter-widgets")
        dead.wait_for(state="attached")
        assert [trouble for trouble in WIDGET_TROUBLES if trouble in window.panel.inner_text()] == []
        assert "Run this cell to wake" in dead.evaluate("each => getComputedStyle(each, '::after').content")
        take_picture(window.cell(0), pictures, f"plain-{front_end}")
        window.page.close()
