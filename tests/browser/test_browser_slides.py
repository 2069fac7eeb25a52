"""The slides of every lesson in a real browser: nothing is loaded, cut or too small; the speaker view has the notes."""

import re

import pytest

from course_utils.authoring import slides
from tests.browser.conftest import LESSONS
from tests.browser.lab_page import SCRIPTS

pytestmark = pytest.mark.browser
WIDTH, HEIGHT = 1280, 720
PICTURE = 260  # the height below which a picture is hard to see


def open_slides(context, folder, lesson, everything=False):
    """The first slide of a lesson in a window, and how many slides there are."""
    for package in ("pyreveal", "latex2mathml"):
        pytest.importorskip(package, reason=f"slides need {package}: pip install -e '.[instructor]'")
    name = lesson.removesuffix(".ipynb")
    slides.write_slides(name, everything, folder)
    page = context.new_page()
    page.goto((folder / f"{name}.slides.html").as_uri())
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    page.evaluate("Reveal.configure({fragments: false})")  # all steps of a slide at once
    return page, page.evaluate("Reveal.getTotalSlides()")


def left_alone(cell, before):
    """Whether a slide begins with an output that had room on the slide before, or whose code is not there.

    One that goes over several slides does not: each of them holds as many of its lines as there is room for.
    """
    if not (cell and cell["code"] and cell["alone"]) or cell["continued"]:
        return False
    room = before["bottom"] + (PICTURE if cell["picture"] else cell["height"])
    return not before["code"] or (not before["picture"] and room < 0.6 * HEIGHT)


@pytest.fixture
def context(browser):
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, offline=True)
    yield context
    context.close()


@pytest.mark.parametrize("everything", [False, True], ids=["plan", "all"])
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda name: name.removesuffix(".ipynb"))
def test_nothing_is_cut_or_small_and_each_slide_has_a_heading_and_more(context, tmp_path, lesson, everything):
    shown, total = open_slides(context, tmp_path, lesson, everything)
    seen, faults, last = [], [], None
    for number in range(1, total + 1):
        slide = shown.evaluate(SCRIPTS["look_at_slide"])
        seen.append(slide["words"])
        wrong = {
            "ends beyond the slide": slide["right"] > WIDTH or slide["bottom"] > HEIGHT or slide["hidden"] > 0,
            "small code": min(slide["code"], default=20) < 20,
            "only a title": slide["bare"],
            "no heading": not slide["heading"] or (slide["goesOn"] > 0) == (slide["title"] > 0),
            "a small picture below code": slide["cramped"],
            "a lone sentence": slide["lone"],
            "words about a notebook": re.search(r"Shift\+Enter|\bfolded|alt=|can wait:", slide["words"]),
            "output without its code": left_alone(slide["first"], last),
        }
        last = slide["last"] and slide["last"] | {"bottom": slide["bottom"]}
        faults += [f"{number} ({slide['heading']}): {fault}" for fault, found in wrong.items() if found]
        shown.evaluate("Reveal.next()")
    assert (faults, len(set(seen)) > 10) == ([], True)


def test_what_is_divided_is_all_there_and_in_order(context, tmp_path):
    """The longest output of the course, the source of a call, goes over many slides: each of its lines is on one."""
    shown, total = open_slides(context, tmp_path, "04_inside_call.ipynb", everything=True)
    whole = context.new_page()
    whole.set_content((tmp_path / "04_inside_call.slides.html").read_text("utf-8").split("<script>")[0])
    told = "of => [...of.querySelectorAll('.slides > section')].map(each => [...each.querySelectorAll('pre')]"
    told += ".filter(pre => !pre.closest('aside')).map(pre => pre.textContent).join('').replace(/\\n\\s*\\n/g, '\\n'))"
    asked = f"() => ({told})(document)"
    before, after = whole.evaluate(asked), shown.evaluate(asked)
    assert after == before
    assert total > whole.evaluate("document.querySelectorAll('.slides > section > section').length")


def test_slides_ask_for_nothing_and_the_speaker_view_has_the_notes(context, tmp_path):
    asked, errors = [], []
    context.on("request", lambda request: asked.append(request.url))
    context.on("weberror", lambda error: errors.append(str(error.error)))
    shown, _ = open_slides(context, tmp_path, "01_tensor_hooks.ipynb")
    shown.evaluate("Reveal.slide(1)")  # the plan stands with what the lesson is for
    with context.expect_page() as opened:
        shown.keyboard.press("s")
    notes = opened.value.locator(".speaker-controls-notes .value")
    notes.filter(has_text="Where does the gradient go?").wait_for(timeout=60_000)
    assert "chalk" in notes.inner_text()
    assert errors == []
    assert [url for url in asked if not url.startswith(("data:", tmp_path.as_uri(), "about:"))] == []
