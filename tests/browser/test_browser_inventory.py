"""The ten minutes in a browser: a question is answered with two choices, and in the end both forms are compared."""

import json

import pytest
from faults import find_faults

from course_utils.lessons.inventory import FORMS, find_key, read_questions

pytestmark = pytest.mark.browser


def test_questions_are_answered_with_choices_and_compared_at_the_end(window, take_picture):
    window.open_fresh("inventory.ipynb")
    window.run_all()
    panel = window.cell(4).locator(".course-panel").first
    panel.scroll_into_view_if_needed()
    assert "Question 1 of 12" in panel.inner_text()
    take_picture(panel, "inventory-question")
    assert find_faults(window.page) == []
    panel.get_by_role("button", name="Next").click()
    window.wait_until_idle()
    assert "Choose what it prints, and then a reason." in panel.inner_text()
    for group in range(2):
        panel.locator(".widget-radio-box").nth(group).locator("input").first.check()
    panel.get_by_role("button", name="Next").click()
    window.wait_until_idle()
    assert "Question 2 of 12" in panel.inner_text()
    kept = json.loads((window.lab.work / "progress.json").read_text(encoding="utf-8"))
    (answer,) = kept["inventory"]["before"]["answers"]
    assert answer[0] in read_questions(kept["inventory"]["before"]["form"])[0].options

    for when, form in zip(("before", "after"), FORMS, strict=True):
        answers = [find_key(each) for each in read_questions(form)]
        given = answers if when == "after" else [*answers[:5], *[["", ""]] * 7]
        kept["inventory"][when] = {"form": form, "answers": given}
    (window.lab.work / "progress.json").write_text(json.dumps(kept), encoding="utf-8")
    window.run(8)
    page = window.cell(8).locator(".jp-OutputArea-output").first
    page.scroll_into_view_if_needed()
    assert "5 of 12 before, 12 of 12 after" in page.inner_text()
    take_picture(page, "inventory-comparison")
    assert find_faults(window.page) == []
    window.shut_down()
