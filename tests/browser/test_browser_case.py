"""The case in a browser: a click makes the network wrong, and a clue is on the page with the learner's own words."""

import nbformat
import pytest
from faults import find_faults

from course_utils.lessons.own_page import FILE

pytestmark = pytest.mark.browser

WRITES = "from course_utils.lessons.own_page import write_page\n\nwrite_page()"
WORDS = "Perhaps it is the eye"


def find_cell(window, code):
    """The number of the first code cell that has this in it."""
    cells = enumerate(window.read_cells())
    return next(number for number, cell in cells if cell["code"] and code in cell["source"])


def answer_of(panel):
    return panel.locator('[role="status"]').first.text_content()


def test_a_click_makes_the_network_wrong_and_clues_fill_the_page(window, pictures):
    window.open("00_start_here.ipynb")
    window.run_all()
    panel = window.find_explorer()
    assert "answers yes (100%), and it is right" in answer_of(panel)
    for words, expected in {
        "without the fish": "answers yes (100%), and it is wrong",
        "the fish alone": "answers no",
    }.items():
        panel.get_by_role("button", name=words, exact=True).click()
        window.wait_until_idle()
        assert expected in answer_of(panel)
        panel.screenshot(path=pictures / f"case-{words.replace(' ', '-')}.png")
    assert find_faults(window.page) == []
    window.shut_down()

    window.open("01_tensor_hooks.ipynb")
    window.run_all()
    clue = window.cell(find_cell(window, "case.keep_clue("))
    clue.scroll_into_view_if_needed()
    line = clue.locator("input[type=text]")
    line.fill(WORDS)
    line.press("Enter")
    window.wait_until_idle()
    clue.screenshot(path=pictures / "case-clue.png")
    window.shut_down()

    window.open("00_start_here.ipynb")
    number = find_cell(window, "CasePage()")
    for each in (*[n for n, cell in enumerate(window.read_cells()) if "setup" in cell["tags"]], number):
        window.run(each)
    page = window.cell(number).locator(".jp-OutputArea-output").first
    page.scroll_into_view_if_needed()
    assert f"You: {WORDS}" in page.inner_text()
    assert "of the gradient's strength falls on the fish" in page.inner_text()
    page.screenshot(path=pictures / "case-page.png")
    window.shut_down()


def test_the_page_about_ones_own_picture_opens_in_jupyterlab(window, pictures):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WRITES)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, window.lab.work / "page.ipynb")
    window.open("page.ipynb")
    window.run_all()
    assert f"Your page is {FILE}" in window.cell(0).inner_text()
    window.page.evaluate("async file => { await jupyterapp.commands.execute('docmanager:open', {path: file}); }", FILE)
    frame = window.page.frame_locator(".jp-HTMLViewer iframe")
    frame.get_by_role("heading", name="An experiment").scroll_into_view_if_needed()
    assert frame.locator("img").evaluate_all("images => images.every(each => each.complete && each.naturalWidth)")
    window.page.screenshot(path=pictures / "own-page.png")
    assert window.outside == []
