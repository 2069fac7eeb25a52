"""One JupyterLab, one browser and one window for all tests here that need nothing of their own.

Where Playwright or Chromium is missing, every test says so and is skipped. `COURSE_SCREENSHOTS=folder` takes pictures,
of the lessons in both themes at both widths, and keeps them in the folder.
"""

import os
from pathlib import Path

import pytest

from tests.browser import lab_page
from tests.browser.lab_page import WIDE

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
LESSONS = sorted(path.name for path in NOTEBOOKS.glob("[0-9]*.ipynb"))


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    if missing := lab_page.say_what_is_missing():
        pytest.skip(missing)
    with lab_page.start_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="session")
def browser():
    if missing := lab_page.say_what_is_missing():
        pytest.skip(missing)
    with lab_page.start_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def window(browser, lab):
    return lab_page.LabPage(browser, lab)


@pytest.fixture
def look(window):
    """Give the window a theme and a width; put both back afterwards."""

    def change(dark: bool, width: int) -> None:
        window.set_theme(dark)
        window.set_width(width)

    yield change
    change(False, WIDE)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """After the last test here the window rests, for other tests may follow in this process."""
    window = item.funcargs.get("window")
    if window and nextitem is not None and HERE not in nextitem.path.parents:
        window.rest()


@pytest.fixture(scope="session")
def take_picture():
    """Take a picture of a page, or of a part of it, where somebody asked for pictures."""
    folder = os.environ.get("COURSE_SCREENSHOTS")

    def take(place, name):
        if folder:
            place.screenshot(path=Path(folder) / f"{name}.png")

    return take
