"""The class page of a graded class in a real browser: its matrix sorts by keyboard, and hostile text runs nowhere."""

import pytest

from course_utils.grading.report import Score, write_pages
from course_utils.grading.submissions import read_lessons

pytestmark = pytest.mark.browser


def test_the_matrix_sorts_by_keyboard_and_hostile_text_runs_nowhere(browser, tmp_path):
    """Of 200 students with all exercises, whose names are code."""
    hostile = "</script><script>document.title = 'stolen'</script><img src=x onerror=\"document.title = 'stolen'\">"
    shown = {7: ("wrong value", 0), 11: ("not attempted", 0), 13: ("unreadable", 0)}
    exercises = [(lesson.name, one.name) for lesson in read_lessons().values() for one in lesson.exercises]
    rows = [
        Score(f"s{number} {hostile}", *names, 0, 1, shown.get(number, ("passed", 1))[0], hostile, hostile)
        for number in range(200)
        for names in exercises
    ]
    write_pages(rows, tmp_path)
    page = browser.new_page(viewport={"width": 800, "height": 600})
    complaints = []
    page.on("console", lambda said: complaints.append(said.text))
    page.goto((tmp_path / "index.html").as_uri())
    names, heads = page.locator(".matrix tbody th"), page.locator(".matrix thead tr:last-child th")

    def press(place, key):
        heads.nth(place).locator("button").focus()
        page.keyboard.press(key)
        return [name.split()[0] for name in names.all_text_contents()], heads.nth(place).get_attribute("aria-sort")

    assert heads.count() == 4 + len(exercises)
    found, order = press(9, "Enter")
    assert (found[-3:], order) == (["s7", "s11", "s13"], "ascending")
    found, order = press(9, "Space")
    assert (found[:4], order) == (["s13", "s11", "s7", "s0"], "descending")
    found, order = press(0, "Enter")
    assert (found[:3], found[-1], page.locator("[aria-sort]").count()) == (["s0", "s1", "s2"], "s199", 1)
    page.locator(".matrix").evaluate("box => box.scrollTo(3000, 3000)")
    matrix, head, name = (each.bounding_box() for each in (page.locator(".matrix"), heads.nth(20), names.nth(60)))
    assert (head["y"] - matrix["y"] < 60, name["x"] - matrix["x"] < 5) == (True, True), "both stay in view"
    assert (page.title(), complaints) == ("Report for the class", [])
    page.set_viewport_size({"width": 1280, "height": 800})
    box = page.locator(".matrix")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth"), "all exercises fit"
    page.locator("td[tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    assert page.locator("#said").inner_text().startswith(f"s1 {hostile[:8]}")
    assert page.locator("#said").inner_text().endswith(f"{exercises[1][1]}: passed, 0 of 1, look by hand")
    page.close()
