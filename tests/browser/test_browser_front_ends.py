"""In front-ends that know nothing of the course's settings: keys stay in a panel, and a sentence wakes a dead one."""

import pytest

from tests.browser import lab_page
from tests.browser.test_browser_sealed import WIDGET_TROUBLES

pytestmark = pytest.mark.browser
CODE = """\
import ipywidgets
from course_utils.exercises import predict
from course_utils.explorers import GradientFlow
ipywidgets.Dropdown(options="abc")
---
GradientFlow("two paths", step=2)
---
predict("gradient_of_square")
---
"the last cell"
"""
NAME = "keys.ipynb"


@pytest.fixture(scope="module", params=["jupyterlab", "notebook"])
def page(request, browser, tmp_path_factory):
    """A notebook that was run, in front of the window, with cells for a list, an explorer and a prediction."""
    if missing := lab_page.say_what_is_missing():
        pytest.skip(missing)
    pytest.importorskip(request.param, reason="pip install -e '.[browser]'")
    with lab_page.start_lab(tmp_path_factory.mktemp("plain"), front_end=request.param) as lab:
        lab.write(NAME, CODE.split("---\n"))
        window = lab_page.LabPage(browser, lab, NAME)
        window.run_all()
        yield window
        window.page.close()


def press(page, control, key: str) -> tuple[int, int]:
    """Press a key on a control; returns which cell is active then, and how many cells there are."""
    control.scroll_into_view_if_needed()
    control.focus()
    page.page.keyboard.press(key)
    page.wait_until_idle()
    return tuple(
        page.page.evaluate(
            "() => { const {activeCellIndex, widgets} = jupyterapp.shell.currentWidget.content;"
            " return [activeCellIndex, widgets.length]; }"
        )
    )


def choose(page, number: int):
    """Make a cell the active one, not its code, as a click beside it does; returns it."""
    page.cell(number).locator(".jp-InputPrompt").first.click()
    return page.cell(number)


def test_arrow_keys_and_letters_stay_in_an_explorer(page):
    explorer = choose(page, 1)
    slider, graph = explorer.locator(".noUi-handle").first, explorer.locator("select").first

    def wait_for(words):
        explorer.locator('[role="status"]', has_text=words).wait_for()

    for key, step in (("ArrowRight", 3), ("ArrowUp", 4), ("ArrowDown", 3), ("ArrowLeft", 2)):
        assert press(page, slider, key) == (1, 4)
        wait_for(f"Step {step} of 5")
    assert press(page, graph, "ArrowDown") == (1, 4)
    assert graph.evaluate("each => each.selectedIndex") == 1
    wait_for("Forward is done: o =")
    assert press(page, graph, "d") == press(page, graph, "x") == press(page, slider, "Enter") == (1, 4)


def test_arrow_keys_stay_in_a_prediction(page):
    radio = choose(page, 2).locator("input[type=radio]")
    radio.first.check()
    assert press(page, radio.first, "ArrowDown") == (2, 4)
    assert radio.nth(1).is_checked()


def test_shift_enter_runs_the_cell_from_an_explorer_too(page):
    assert press(page, choose(page, 1).locator(".noUi-handle").first, "Shift+Enter")[0] == 2


def test_without_a_panel_an_arrow_leaves_a_widget(page):
    """What the others would find if nothing kept the keys."""
    assert press(page, choose(page, 0).locator("select").first, "ArrowDown")[0] == 1


def test_a_sentence_stands_where_a_widget_was(page, take_picture):
    """The last test here: the kernel is another one afterwards."""
    page.save()
    page.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    panel = page.cell(2).locator(".course-panel.jupyter-widgets-disconnected").first
    panel.wait_for()
    shown = "each => [getComputedStyle(each, '::before').content, getComputedStyle(each, '::before').display]"
    assert "Run this cell to wake it" in panel.evaluate(shown)[0]
    signs = [each.evaluate(shown)[1] for each in panel.locator(".jupyter-widgets-disconnected").all()]
    assert set(signs) == {"none"}, "it is said once"
    page.load(NAME)
    dead = page.cell(2).locator(".jp-OutputArea-output.jupyter-widgets")
    dead.wait_for(state="attached")
    assert [trouble for trouble in WIDGET_TROUBLES if trouble in page.panel.inner_text()] == []
    assert "Run this cell to wake" in dead.evaluate("each => getComputedStyle(each, '::after').content")
    take_picture(page.cell(2), f"asleep-{page.lab.front_end}")
