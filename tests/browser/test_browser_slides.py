"""A lesson's slides in a real browser: nothing is loaded, nothing is too wide, and the speaker view has the notes."""

import pytest

from course_utils.authoring import slides

pytestmark = pytest.mark.browser


def test_slides_ask_for_nothing_and_the_speaker_view_has_the_notes(browser, tmp_path):
    for package in ("pyreveal", "latex2mathml"):
        pytest.importorskip(package, reason=f"slides need {package}: pip install -e '.[instructor]'")
    slides.write_slides("01", tmp_path)
    address, asked, errors, wide = (tmp_path / "01_tensor_hooks.slides.html").as_uri(), [], [], []
    context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    context.on("request", lambda request: asked.append(request.url))
    shown = context.new_page()
    shown.on("pageerror", lambda error: errors.append(str(error)))
    shown.goto(address)
    shown.wait_for_function("window.Reveal && Reveal.isReady()")
    for number in range(shown.evaluate("Reveal.getTotalSlides()")):
        too_wide = "(slide => slide.scrollWidth > slide.clientWidth)(Reveal.getCurrentSlide())"
        wide += [number] if shown.evaluate(too_wide) else []
        shown.evaluate("Reveal.next()")
    shown.evaluate("Reveal.slide(1)")  # the plan stands with what the lesson is for
    with context.expect_page() as opened:
        shown.keyboard.press("s")
    notes = opened.value.locator(".speaker-controls-notes .value")
    notes.filter(has_text="Where does the gradient go?").wait_for(timeout=60_000)
    assert "chalk" in notes.inner_text()
    context.close()
    assert (errors, wide) == ([], [])
    assert [url for url in asked if not url.startswith(("data:", address, "about:"))] == []
