"""A lesson as a learner meets it: it runs, and nothing tells an answer before the commit, which opens the why."""

import pytest
from faults import find_faults

from course_utils.authoring.source import called_with
from course_utils.exercises.classroom import SEALED
from course_utils.exercises.engine import find_prediction, predictions_of
from tests.browser.lab_page import SCRIPTS
from tests.sealing import find_told

pytestmark = pytest.mark.browser

LESSON = "07_cam_and_grad_cam.ipynb"  # the one with most pictures, and an explorer that waits for a prediction
# What JupyterLab writes in the place of a widget that it cannot show.
WIDGET_TROUBLES = ("model not found", "Error displaying widget", "Error creating widget", "Loading widget")


@pytest.fixture(scope="module")
def fresh(window):
    """What a fresh copy of the lesson shows; it is in front of the window."""
    window.open_fresh(LESSON)
    yield window.look_through()
    window.shut_down()


def find_answers(text: str) -> list[str]:
    """The sentences of sealed explanations and replies of the lesson that `text` has."""
    return [told for each in predictions_of(7) for told in find_told(text, each)]


def find_tagged(cells: list[dict], tag: str) -> list[int]:
    return [number for number, cell in enumerate(cells) if tag in cell["tags"]]


def test_a_fresh_copy_shows_no_output_and_no_answer(fresh, window):
    assert fresh.outputs == 0
    assert fresh.folded == len(find_tagged(window.read_cells(), "setup"))
    assert "predict(" in fresh.words
    assert find_answers(fresh.words) == []


@pytest.fixture(scope="module")
def ran(fresh, window):
    window.run_all()


def test_it_runs_without_an_error_a_question_or_anything_outside_this_machine(ran, window):
    code = [cell for cell in window.read_cells() if cell["code"]]
    assert [cell["source"] for cell in code if cell["count"] is None] == []
    outputs = [each for cell in code for each in cell["outputs"]]
    assert [each for each in outputs if "error" in (each["output_type"], each.get("name"))] == []
    shown = window.panel.text_content()
    assert [trouble for trouble in WIDGET_TROUBLES if trouble in shown] == []
    assert window.page.locator(".jp-Dialog, .Toastify__toast").count() == 0
    assert (window.complaints, window.outside) == ([], [])
    # The GIF keeps a panel's keys.
    pictures = window.panel.locator('.jp-OutputArea-output img:not([src^="data:image/gif"])')
    assert pictures.count() > 5
    assert all(pictures.evaluate_all("all => all.map(each => each.alt)"))
    assert window.panel.evaluate(SCRIPTS["find_too_wide"]) == []
    assert window.panel.evaluate(SCRIPTS["count_scrolling"]) == 0, "a picture scrolls"


def test_questions_stay_open_until_a_commit_by_keyboard(ran, window):
    cells, page = window.read_cells(), window.page
    questions, explanations = ([window.cell(each) for each in find_tagged(cells, tag)] for tag in ("predict", "why"))
    assert len(questions) == len(explanations) > 0
    for question, explanation in zip(questions, explanations, strict=True):
        assert question.get_by_role("radio").count() > 1
        assert question.get_by_role("radio", checked=True).count() == 0
        assert explanation.get_by_text(SEALED).is_visible()
    assert find_answers(window.panel.inner_text()) == []

    questions[0].focus()
    press_tab_to(page, questions[0].get_by_role("radio").first)
    page.keyboard.press("ArrowDown")
    press_tab_to(page, questions[0].get_by_role("button", name="Commit"))
    page.keyboard.press("Enter")
    explanations[0].get_by_text("You said").wait_for()
    explanations[0].scroll_into_view_if_needed()
    (first, *_) = find_tagged(cells, "why")
    assert find_told(explanations[0].inner_text(), find_prediction(called_with(cells[first]["source"], "why")))
    page.wait_for_function("() => document.activeElement.textContent === 'Committed'")  # the focus stays
    assert [each.get_by_text(SEALED).count() for each in explanations] == [0, *[1] * (len(explanations) - 1)]
    assert find_faults(page, f'.jp-Cell[data-windowed-list-index="{first}"] .jp-OutputArea-output') == []


def press_tab_to(page, control, most: int = 8) -> None:
    """Press Tab until the focus is on this control, `most` times at most."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if control.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError("Tab does not come to this control")
