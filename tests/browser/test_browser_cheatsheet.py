"""The cheat sheet on a phone and on a laptop: nothing is cut, and each cell says what it is about."""

import nbformat
import pytest
from faults import find_faults

from course_utils.authoring.cheatsheet import COLUMNS, make_page
from tests.browser.conftest import NOTEBOOKS

pytestmark = pytest.mark.browser
READ = (
    """() => [...document.querySelectorAll('tbody td + td')].map(cell => getComputedStyle(cell, '::before').content)"""
)


@pytest.mark.parametrize(("width", "labelled"), [(390, True), (1280, False)])
def test_the_cheat_sheet_fits_a_phone_and_a_laptop(browser, width, labelled):
    context = browser.new_context(viewport={"width": width, "height": 844}, is_mobile=width < 500)
    shown = context.new_page()
    shown.set_content(make_page(nbformat.read(NOTEBOOKS / "09_every_hook.ipynb", as_version=4)))
    assert shown.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    assert shown.evaluate("() => parseFloat(getComputedStyle(document.querySelector('td')).fontSize)") >= 13
    said = shown.evaluate(READ)
    assert len(said) > 40
    assert [column in each for each, column in zip(said, COLUMNS[1:] * len(said), strict=False)] == [labelled] * len(
        said
    )
    assert find_faults(shown, "html") == []
    context.close()
