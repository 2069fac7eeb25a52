"""Every lesson as a learner meets it: nothing tells an answer before the commit, and then the explanation unfolds."""

import pytest
from faults import find_faults

from course_utils.authoring.source import called_with
from course_utils.exercises.classroom import SEALED
from course_utils.exercises.engine import find_prediction, predictions_of
from tests.sealing import find_told

pytestmark = pytest.mark.browser


def find_answers(text: str, lesson) -> list[str]:
    """The sentences of sealed explanations and replies of this lesson that `text` has."""
    asked = predictions_of(int(lesson.name[:2]))
    assert asked
    return [told for each in asked for told in find_told(text, each)]


def test_a_fresh_copy_shows_no_output_and_no_answer(lesson):
    assert lesson.fresh.outputs == 0
    assert lesson.fresh.folded == len(lesson.find("setup"))
    assert "predict(" in lesson.fresh.words
    assert find_answers(lesson.fresh.words, lesson) == []


def test_run_all_leaves_questions_open_until_a_commit_by_keyboard(lesson):
    window, page = lesson.window, lesson.window.page
    numbers = lesson.find("predict"), lesson.find("why")
    questions, explanations = ([window.cell(each) for each in one] for one in numbers)
    assert len(questions) == len(explanations) > 0
    for question, explanation in zip(questions, explanations, strict=True):
        assert question.get_by_role("radio").count() > 1
        assert question.get_by_role("radio", checked=True).count() == 0
        assert explanation.get_by_text(SEALED).is_visible()
    assert find_answers(window.panel.inner_text(), lesson) == []

    questions[0].focus()
    press_tab_to(page, questions[0].get_by_role("radio").first)
    page.keyboard.press("ArrowDown")
    press_tab_to(page, questions[0].get_by_role("button", name="Commit"))
    page.keyboard.press("Enter")
    explanations[0].get_by_text("You said").wait_for()
    explanations[0].scroll_into_view_if_needed()
    asked = find_prediction(called_with(lesson.cells[numbers[1][0]]["source"], "why"))
    assert find_told(explanations[0].inner_text(), asked)
    page.wait_for_function("() => document.activeElement.textContent === 'Committed'")  # the focus stays
    assert [each.get_by_text(SEALED).count() for each in explanations] == [0, *[1] * (len(explanations) - 1)]
    assert find_faults(page, f'.jp-Cell[data-windowed-list-index="{numbers[1][0]}"] .jp-OutputArea-output') == []


def press_tab_to(page, control, most: int = 8) -> None:
    """Press Tab until the focus is on this control, `most` times at most."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if control.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError("Tab does not come to this control")
