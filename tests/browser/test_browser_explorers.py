"""Every explorer in its lesson, driven by the mouse and by the keyboard alone: picture and sentence change."""

import pytest

pytestmark = pytest.mark.browser

# Buttons that ask for a file, open something, or take away what the others would work on.
APART = ("Your own picture", "Draw one", "Remove", "Wipe", "Draw this graph")


@pytest.fixture
def explorer(lesson, explorer_in_sight):
    """The lesson's explorer as a `Driver`."""
    if not lesson.find("explore"):
        pytest.skip(f"{lesson.name} has no explorer")
    return Driver(lesson)


class Driver:
    def __init__(self, lesson) -> None:
        self.window, self.page = lesson.window, lesson.window.page
        self.lesson, self.number = lesson.name, lesson.find("explore")[0]
        self.panel = self.window.find_explorer()

    def look(self) -> tuple[str, str]:
        """What is shown: the picture's markup, and the sentence."""
        picture = self.panel.locator('img, svg[role="img"]').first.evaluate("each => each.outerHTML")
        return picture, self.panel.locator('[role="status"]').first.text_content()

    def wait_for_picture(self, before: tuple[str, str]) -> None:
        """Wait until something is shown that was not before.

        A move may leave one of the two as it was (an opacity is in no sentence), but not both.
        """
        self.page.wait_for_function(
            """([panel, picture, sentence]) => {
                const shown = panel.querySelector('img, svg[role="img"]');
                const words = panel.querySelector('[role="status"]');
                return shown && words && (shown.outerHTML !== picture || words.textContent !== sentence);
            }""",
            arg=[self.panel.element_handle(), *before],
        )
        self.window.wait_until_idle()

    @property
    def active_cell(self) -> int:
        return self.page.evaluate("() => jupyterapp.shell.currentWidget.content.activeCellIndex")

    def describe_focus(self) -> dict:
        """The element that has the focus: what it is, what it says, and whether it is in this panel."""
        return self.panel.evaluate(
            """panel => {
                const each = document.activeElement;
                const kind = each.matches('.noUi-handle') ? 'slider'
                    : each.matches('.widget-toggle-buttons button') ? 'choice'
                    : each.matches('select') ? 'list'
                    : each.matches('input[type=checkbox]') ? 'box'
                    : each.matches('button') ? 'button' : 'other';
                const words = each.closest('.jupyter-widgets')?.textContent ?? '';
                return {inside: panel.contains(each), kind, words: each.textContent || words, title: each.title,
                        on: each.matches('.mod-active'), place: each.getAttribute('aria-valuenow'),
                        most: each.getAttribute('aria-valuemax'), value: each.value ?? ''};
            }"""
        )


def test_by_mouse(explorer):
    """A click on the rail of each slider, on a button of each group of choices, on each box and plain button."""
    page, panel, used = explorer.page, explorer.panel, 0
    for fold in panel.get_by_role("button", name="More", exact=True).all():
        fold.click()
    sliders = panel.locator(".noUi-target:not([disabled]):visible")
    for number in range(sliders.count()):
        before = explorer.look()
        target = sliders.nth(number)
        handle = target.locator(".noUi-handle")
        now, least, most = (float(handle.get_attribute(f"aria-value{name}")) for name in ("now", "min", "max"))
        share = 0.1 if now - least > most - now else 0.9
        click_at(target, share, 0.5)
        page.wait_for_function(
            "([handle, now]) => Number(handle.getAttribute('aria-valuenow')) !== now",
            arg=[handle.element_handle(), now],
        )
        explorer.wait_for_picture(before)
        used += 1
    for number in range(panel.locator(".widget-toggle-buttons").count()):
        before = explorer.look()
        panel.locator(".widget-toggle-buttons").nth(number).locator("button:not(.mod-active)").first.click()
        explorer.window.wait_until_idle()
        used += explorer.look() != before
    for words in ("Register", "Add hook", "Next"):
        if panel.get_by_role("button", name=words, exact=True).count():
            before = explorer.look()
            panel.get_by_role("button", name=words, exact=True).click()
            explorer.wait_for_picture(before)
            used += 1
    if panel.locator("select").count():
        before, menu = explorer.look(), panel.locator("select").first
        menu.select_option(index=0 if menu.evaluate("menu => menu.selectedIndex") else 1)
        explorer.wait_for_picture(before)
        used += 1
    assert used >= (1 if explorer.lesson == "00_start_here.ipynb" else 2), (
        "the case of lesson 00 has three buttons only"
    )
    assert explorer.panel.locator('[role="alert"]').count() == 0


def test_a_gradient_that_was_committed_to_is_followed_until_it_arrives(explorer):
    if not explorer.panel.get_by_role("button", name="Commit", exact=True).count():
        pytest.skip("this explorer asks for nothing")
    explorer.panel.get_by_label("I expect at").select_option(index=0)
    explorer.panel.get_by_role("textbox", name="gradient").fill("7")
    explorer.panel.get_by_role("textbox", name="gradient").press("Enter")
    asked = explorer.panel.locator('[role="status"]').filter(has_text="You expect 7 at")
    asked.wait_for()
    while asked.count():
        before = explorer.look()
        explorer.panel.get_by_role("button", name="Next", exact=True).click()
        explorer.wait_for_picture(before)
    assert explorer.panel.locator('[role="status"]').filter(has_text="You expected 7 at").count() == 1


def test_a_panel_keeps_its_height_with_a_photograph(explorer):
    photographs, heights = explorer.panel.get_by_label("Photograph"), set()
    if not photographs.count():
        pytest.skip("this explorer takes no photograph")
    for index in (2, 0, 1):
        before = explorer.look()
        photographs.select_option(index=index)
        explorer.wait_for_picture(before)
        heights.add(round(explorer.panel.bounding_box()["height"]))
    assert len(heights) == 1, heights


def test_handles_and_pictures_have_words(explorer):
    """Those of ipywidgets and of JupyterLab alone have none."""
    handles = explorer.panel.locator(".noUi-handle").all()
    labels = [handle.get_attribute("aria-label") for handle in handles]
    assert all(labels), labels
    assert len(set(labels)) == len(labels)
    shown = '.jp-OutputArea-output img:not([src^="data:image/gif"])'  # which keeps a panel's keys
    figures = [explorer.window.cell(number) for number, each in enumerate(explorer.window.read_cells()) if each["code"]]
    alts = [each.get_attribute("alt") for figure in figures for each in figure.locator(shown).all()]
    assert all(alts), alts


def test_a_place_is_chosen_on_the_picture(explorer):
    """A click where the canvas lies over the picture, and an arrow key on it."""
    pointed = explorer.panel.locator(".course-pointed")
    if not pointed.count():
        pytest.skip("no place is chosen in this explorer")
    place = pointed.locator("canvas")
    place.wait_for()  # it comes when the page says that it has ipycanvas
    explorer.page.wait_for_function(
        """box => {
            const [canvas, img] = ['canvas', 'img'].map(each => box.querySelector(each).getBoundingClientRect());
            return ['x', 'y', 'width', 'height'].every(each => canvas[each] === img[each]);
        }""",
        arg=pointed.element_handle(),
    )
    before = explorer.look()
    click_at(place, 0.65, 0.8)
    explorer.wait_for_picture(before)
    assert place.get_attribute("aria-label").startswith("Place in the picture")


def click_at(target, across: float, down: float) -> None:
    """Click at a share of the width and of the height, as soon as nothing moves there or covers it."""
    box = target.bounding_box()
    target.click(position={"x": across * box["width"], "y": down * box["height"]})


def test_by_keyboard_alone(explorer):
    """Tab goes through all controls in order, and each does its work without the focus leaving for another cell."""
    explorer.window.cell(explorer.number).focus()  # as after running it
    began, changed, reached = explorer.look(), {"picture": False, "sentence": False}, []
    chosen: set[str] = set()
    for _ in range(80):
        explorer.page.keyboard.press("Tab")
        focus = explorer.describe_focus()
        if not focus["inside"]:
            if reached:
                break
            continue
        reached.append(focus)
        before = explorer.look()
        if use_by_keyboard(explorer, focus, chosen):
            explorer.window.wait_until_idle()
            after = explorer.look()
            changed["picture"] |= after[0] != before[0]
            changed["sentence"] |= after[1] != before[1]
        assert explorer.active_cell == explorer.number, f"{focus} took the reader to another cell"
    kinds = {focus["kind"] for focus in reached}
    assert changed == {"picture": True, "sentence": True}, began
    for kind, css in (("slider", ".noUi-handle"), ("list", "select"), ("choice", ".widget-toggle-buttons button")):
        assert (kind in kinds) == (explorer.panel.locator(f"{css}:visible").count() > 0), (kind, reached)


def use_by_keyboard(explorer, focus: dict, chosen: set[str]) -> bool:
    """Use the control that has the focus with its own keys; return whether there was something to do."""
    keyboard = explorer.page.keyboard
    if focus["kind"] == "slider":
        keyboard.press("ArrowLeft" if focus["place"] == focus["most"] else "ArrowRight")
        explorer.page.wait_for_function("place => document.activeElement.ariaValueNow !== place", arg=focus["place"])
        return True
    if focus["kind"] == "list":
        keyboard.press("ArrowDown")
        explorer.page.wait_for_function("value => document.activeElement.value !== value", arg=focus["value"])
        return True
    if focus["kind"] == "choice" and not focus["on"]:
        group = explorer.page.evaluate(
            "() => document.activeElement.closest('.widget-toggle-buttons').parentElement.id"
            " + document.activeElement.closest('.widget-toggle-buttons').textContent"
        )
        if group not in chosen:
            chosen.add(group)
            keyboard.press("Space")
            return True
    if focus["kind"] == "box" or (focus["kind"] == "button" and not any(each in focus["words"] for each in APART)):
        keyboard.press("Space")
        return True
    return False
