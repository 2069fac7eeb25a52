"""Every lesson in JupyterLab, as whoever has done it opens it again: it fits, can be read, and loads nothing.

What lives only while a kernel runs is looked at in `test_browser_explorers.py`.
"""

import os

import nbformat
import pytest
from faults import find_faults
from nbformat.sign import NotebookNotary

from course_utils.authoring import source
from course_utils.exercises.engine import predictions_of
from tests.browser.lab_page import NARROW, SCRIPTS, WIDE
from tests.test_saving import save_built

pytestmark = pytest.mark.browser

LOOKS = [(False, WIDE), (True, NARROW)]
if os.environ.get("COURSE_SCREENSHOTS"):
    LOOKS += [(True, WIDE), (False, NARROW)]
PLACES = ("explore", "predict", "check", "why")


@pytest.fixture(scope="module", params=source.sources(), ids=lambda path: path.stem)
def lesson(request, window):
    """A lesson in front of the window, as it was saved when all predictions were made; its name."""
    asked = predictions_of(source.number_of(request.param))
    notebook = save_built(request.param, {each.name: each.answer for each in asked})
    for cell in notebook.cells:
        cell.metadata["jupyter"] = {"source_hidden": True}  # editors take long, and wrap their lines
    path = window.lab.work / f"done-{request.param.stem}.ipynb"
    nbformat.write(notebook, path)
    notary = NotebookNotary(data_dir=str(window.lab.work.parent / "home" / "data"))
    notary.sign(notebook)
    notary.store.close()
    window.open(path.name)
    window.look_through()
    yield request.param.stem
    window.shut_down()


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_no_output_is_cut_or_wider_than_the_page_and_axe_finds_nothing(lesson, window, look, take_picture, dark, width):
    look(dark, width)
    assert window.panel.locator("details, table, img, svg").count() > 0, "what is saved is shown"
    assert window.panel.evaluate(SCRIPTS["find_too_wide"]) == []
    assert (window.outside, window.complaints) == ([], [])
    for number, cell in enumerate(window.read_cells()):
        if set(PLACES) & set(cell["tags"]):
            name = f"{lesson}-{number:03}-{'dark' if dark else 'light'}-{width}"
            take_picture(window.cell(number), name)
    assert find_faults(window.page) == []


def test_axe_would_find_a_picture_without_words(window):
    window.open("00_start_here.ipynb")
    window.panel.evaluate(
        "each => each.insertAdjacentHTML('beforeend', '<p class=jp-OutputArea-output><img id=mute></p>')"
    )
    assert find_faults(window.page, ".jp-OutputArea-output:has(#mute)") == ['image-alt: <img id="mute">']
    window.shut_down()
