"""The case in a browser: a click makes the network wrong, and a clue is on the page with the learner's own words."""

import pytest
from faults import find_faults

from course_utils.authoring.source import choose, learner
from course_utils.lessons.own_page import FILE

pytestmark = pytest.mark.browser

WORDS = "Perhaps it is the eye"
CASE = "from course_utils.explorers import TheCase\n\nTheCase()"
PAGE = "from course_utils.explorers.case import CasePage\n\nCasePage()"
WRITES = "from course_utils.lessons.own_page import write_page\n\nwrite_page()"


@pytest.fixture(scope="module")
def notebook(window):
    """The case, the clue of lesson 01, the page of the case, and the page about one's own picture; nothing is run."""
    (clue,) = (each.source for each in learner(*choose(["01"])).cells if "case.keep_clue(" in each.source)
    (window.lab.work / "progress.json").unlink(missing_ok=True)
    window.lab.write("case.ipynb", [CASE, clue, PAGE, WRITES])
    window.open("case.ipynb")
    yield window
    window.shut_down()


def run(window, number):
    """Run a cell; returns its output, in view."""
    window.run(number)
    output = window.cell(number).locator(".jp-OutputArea").first
    output.scroll_into_view_if_needed()
    return output


def test_a_click_makes_the_network_wrong_and_clues_fill_the_page(notebook, take_picture):
    panel = run(notebook, 0)
    answer = panel.locator('[role="status"]').first
    assert "answers yes (100%), and it is right" in answer.text_content()
    for words, expected in {
        "without the fish": "answers yes (100%), and it is wrong",
        "the fish alone": "answers no",
    }.items():
        panel.get_by_role("button", name=words, exact=True).click()
        notebook.wait_until_idle()
        assert expected in answer.text_content()
        take_picture(panel, f"case-{words.replace(' ', '-')}")

    clue = run(notebook, 1)
    line = clue.locator("input[type=text]")
    line.fill(WORDS)
    line.press("Enter")
    notebook.wait_until_idle()
    take_picture(clue, "case-clue")

    page = run(notebook, 2)
    assert f"You: {WORDS}" in page.inner_text()
    assert "of the gradient's strength falls on the fish" in page.inner_text()
    take_picture(page, "case-page")
    assert find_faults(notebook.page) == []


def test_the_page_about_ones_own_picture_opens_in_jupyterlab(notebook, take_picture):
    assert f"Your page is {FILE}" in run(notebook, 3).inner_text()
    notebook.execute_command("docmanager:open", path=FILE)
    frame = notebook.page.frame_locator(".jp-HTMLViewer iframe")
    frame.get_by_role("heading", name="An experiment").scroll_into_view_if_needed()
    assert frame.locator("img").evaluate_all("images => images.every(each => each.complete && each.naturalWidth)")
    take_picture(notebook.page, "own-page")
    assert notebook.outside == []
