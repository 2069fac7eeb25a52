"""Every lesson in JupyterLab, in a real browser: it runs, fits on the page, can be seen and read by all."""

import os

import pytest
from faults import find_faults
from PIL import Image

from tests.browser.lab_page import NARROW, SCRIPTS, WIDE

pytestmark = pytest.mark.browser

# What JupyterLab writes in the place of a widget that it cannot show.
WIDGET_TROUBLES = ("model not found", "Error displaying widget", "Error creating widget", "Loading widget")

GRAPHS = ("01", "02", "03", "11")  # lessons with drawings that are as wide as what is drawn: graphs, calls, tokens

ALL_LOOKS = [(dark, width) for dark in (False, True) for width in (WIDE, NARROW)]
LOOKS = ALL_LOOKS if os.environ.get("COURSE_SCREENSHOTS") else [(False, WIDE), (True, NARROW)]


@pytest.fixture
def look(lesson):
    """Give the window a theme and a width; put both back afterwards."""

    def change(dark: bool, width: int) -> None:
        lesson.window.set_theme(dark)
        lesson.window.set_width(width)

    yield change
    change(False, WIDE)


def test_it_runs_without_an_error_or_a_question(lesson):
    window = lesson.window
    code = [cell for cell in lesson.cells if cell["code"]]
    assert [cell["source"] for cell in code if cell["count"] is None] == []
    bad = [each for cell in code for each in cell["outputs"] if "error" in (each["output_type"], each.get("name"))]
    assert bad == []
    shown = window.panel.text_content()
    assert [trouble for trouble in WIDGET_TROUBLES if trouble in shown] == []
    assert window.page.locator(".jp-Dialog, .Toastify__toast").count() == 0
    assert window.complaints == []


def test_it_asks_for_nothing_outside_this_machine(lesson):
    assert lesson.window.outside == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_output_is_cut_or_wider_than_the_page(lesson, look, width):
    """A graph that the reader writes may scroll in its own frame; nothing else may. Numbers do not break."""
    look(False, width)
    assert lesson.window.panel.evaluate(SCRIPTS["find_too_wide"]) == []
    if lesson.name[:2] not in GRAPHS:
        assert lesson.window.panel.evaluate(SCRIPTS["count_scrolling"]) == 0, "a picture scrolls"


def test_the_game_and_the_picture_share_a_screen_as_the_explorer_opens(lesson, explorer_in_sight):
    """Other tests have used the explorer, so its cell is run once more."""
    for number in lesson.find("explore"):
        lesson.window.run(number)
        assert lesson.window.cell(number).locator(".jp-OutputArea").first.evaluate(SCRIPTS["measure_game"]) < 780


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_what_the_course_shows(lesson, look, dark):
    look(dark, WIDE)
    assert find_faults(lesson.window.page) == []


def test_axe_would_find_a_picture_without_words(lesson):
    page = lesson.window.page
    output = lesson.window.panel.locator(".jp-OutputArea-output").first
    output.evaluate("each => { const img = document.createElement('img'); img.id = 'mute'; each.append(img); }")
    found = find_faults(page, ".jp-OutputArea-output:has(#mute)")
    page.evaluate("() => document.getElementById('mute').remove()")
    assert found == ['image-alt: <img id="mute">']


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_its_key_places_are_pictures_worth_looking_at(lesson, look, pictures, dark, width):
    """The explorer, a prediction, a check, and the first figure; in the start lesson the doctor and the progress."""
    look(dark, width)
    figures = [
        number
        for number, cell in enumerate(lesson.cells)
        if any(kind.startswith("image/") for each in cell["outputs"] for kind in each.get("data", {}))
        and "explore" not in cell["tags"]
    ]
    own = [n for n, cell in enumerate(lesson.cells) if cell["source"].strip() in ("doctor()", "progress()")]
    places = [*lesson.find("explore"), *lesson.find("predict")[:1], *lesson.find("check")[:1], *figures[:1], *own]
    assert places
    for number in places:
        theme = "dark" if dark else "light"
        path = pictures / f"{lesson.name.removesuffix('.ipynb')}-{number:03}-{theme}-{width}.png"
        cell = lesson.window.cell(number)
        cell.scroll_into_view_if_needed()
        cell.screenshot(path=path)
        with Image.open(path) as picture:
            darkest, lightest = picture.convert("L").getextrema()
            middle = picture.convert("L").resize((1, 1)).getpixel((0, 0))
        assert lightest - darkest > 150, "nothing to be seen"
        assert (middle < 128) is dark, "most of it is not in the theme's colour"
