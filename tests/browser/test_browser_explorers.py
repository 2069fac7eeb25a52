"""Every explorer as its lesson makes it, and every question, with a kernel: they fit, and work by mouse and by keys."""

import re
from contextlib import contextmanager

import pytest
from faults import find_faults

from course_utils.authoring.source import learner, sources, tags_of
from course_utils.exercises.engine import predictions_of
from tests.browser.conftest import LESSONS
from tests.browser.lab_page import NARROW, SCRIPTS, WIDE

pytestmark = pytest.mark.browser

# Buttons that ask for a file, open something, or take away what the others would work on.
APART = ("Your own picture", "Draw one", "Remove", "Wipe", "Draw this graph")
NEEDED = re.compile(r"from |import |language = ")  # what an explorer's cell may need begins so
QUESTIONS = """\
from course_utils.exercises import predict
for name in {}:
    display(predict(name))
"""


def read_explorers() -> dict[str, str]:
    """The first explorer of each lesson that has one, with what it needs of the lesson: name of the lesson -> code."""
    found = {}
    for path in sources():
        needed = []
        for cell in learner(path).cells:
            if "explore" in tags_of(cell):
                found[path.stem] = "\n".join([*needed, cell.source])
                break
            if cell.cell_type == "code" and NEEDED.match(cell.source):
                needed.append(cell.source)
    return found


EXPLORERS = [name.removesuffix(".ipynb") for name in LESSONS if not name.startswith("09")]  # which is a reference
GRAPHS = ("01", "02", "03", "11")  # drawings that are as wide as what is drawn: graphs, calls, tokens


@pytest.fixture(scope="module")
def panels(window):
    """A notebook with a cell for each explorer, and one for each lesson's questions, run in front of the window."""
    questions = [QUESTIONS.format([each.name for each in predictions_of(number)]) for number in range(len(LESSONS))]
    explorers = read_explorers()
    assert list(explorers) == EXPLORERS
    window.lab.write("panels.ipynb", [*explorers.values(), *questions])
    window.open("panels.ipynb")
    window.run_all()
    window.look_through()
    yield window
    window.shut_down()


@pytest.fixture(params=EXPLORERS)
def explorer(request, panels):
    """The explorer of a lesson as a `Driver`."""
    return Driver(panels, request.param)


class Driver:
    def __init__(self, window, lesson: str) -> None:
        self.window, self.page, self.lesson = window, window.page, lesson
        self.number = EXPLORERS.index(lesson)
        self.panel = window.cell(self.number).locator(".jp-OutputArea-output .widget-vbox").first
        self.panel.scroll_into_view_if_needed()

    def look(self) -> tuple[str, str]:
        """What is shown: the picture's markup, and the sentence."""
        picture = self.panel.locator('img, svg[role="img"]').first.evaluate("each => each.outerHTML")
        return picture, self.panel.locator('[role="status"]').first.text_content()

    @contextmanager
    def changing(self):
        """Wait until something else is shown than before what is done here.

        It may leave one of the two as it was (an opacity is in no sentence), but not both.
        """
        before = self.look()
        yield
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
                return {inside: panel.contains(each), kind, words: each.textContent || words,
                        on: each.matches('.mod-active'), at_end: each.ariaValueNow === each.ariaValueMax,
                        state: `${each.ariaValueNow} ${each.value}`,
                        group: each.closest('.widget-toggle-buttons')?.textContent};
            }"""
        )


def test_as_it_opens_each_game_and_its_picture_share_a_screen_and_sliders_have_words(panels):
    """The first test here: the others use the explorers."""
    heights, labels = {}, {}
    for number, name in enumerate(EXPLORERS):
        output = panels.cell(number).locator(".jp-OutputArea").first
        heights[name] = output.evaluate(SCRIPTS["measure_game"])
        labels[name] = output.locator(".noUi-handle").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert {name: height for name, height in heights.items() if height >= 780} == {}
    assert {name: words for name, words in labels.items() if not all(words) or len(set(words)) < len(words)} == {}


@pytest.mark.parametrize(("dark", "width"), [(False, WIDE), (True, NARROW)])
def test_no_panel_is_cut_or_too_wide_and_axe_finds_nothing(panels, look, take_picture, dark, width):
    """A graph that the reader writes may scroll in its own frame; nothing else may. Numbers do not break."""
    look(dark, width)
    assert panels.panel.get_by_role("radio").count() > 3 * len(predictions_of())
    assert [each for each in panels.read_cells() if any(out["output_type"] == "error" for out in each["outputs"])] == []
    assert panels.panel.evaluate(SCRIPTS["find_too_wide"]) == []
    for number, name in enumerate(EXPLORERS):
        if name[:2] not in GRAPHS:
            assert panels.cell(number).evaluate(SCRIPTS["count_scrolling"]) == 0, f"the picture of {name} scrolls"
        take_picture(panels.cell(number), f"explorer-{name}-{'dark' if dark else 'light'}-{width}")
    assert find_faults(panels.page) == []
    assert (panels.complaints, panels.outside) == ([], [])


def test_by_mouse(explorer):
    """A click on the rail of each slider, on a button of each group of choices, on each plain button, and in a list."""
    panel, used = explorer.panel, 0
    for fold in panel.get_by_role("button", name="More", exact=True).all():
        fold.click()
    sliders = panel.locator(".noUi-target:not([disabled]):visible")
    for number in range(sliders.count()):
        handle = sliders.nth(number).locator(".noUi-handle")
        now, least, most = (float(handle.get_attribute(f"aria-value{name}")) for name in ("now", "min", "max"))
        with explorer.changing():
            click_at(sliders.nth(number), 0.1 if now - least > most - now else 0.9, 0.5)
        used += 1
    for number in range(panel.locator(".widget-toggle-buttons").count()):
        before = explorer.look()
        panel.locator(".widget-toggle-buttons").nth(number).locator("button:not(.mod-active)").first.click()
        explorer.window.wait_until_idle()
        used += explorer.look() != before
    for words in ("Register", "Add hook", "Next"):
        if panel.get_by_role("button", name=words, exact=True).count():
            with explorer.changing():
                panel.get_by_role("button", name=words, exact=True).click()
            used += 1
    if panel.locator("select").count():
        menu = panel.locator("select").first
        with explorer.changing():
            menu.select_option(index=0 if menu.evaluate("menu => menu.selectedIndex") else 1)
        used += 1
    assert used >= 2 - (explorer.lesson == "00_start_here"), "the case of lesson 00 has three buttons only"
    assert panel.locator('[role="alert"]').count() == 0


@pytest.mark.parametrize("explorer", ["01_tensor_hooks", "02_retain_grad_or_hook"], indirect=True)
def test_a_gradient_that_was_committed_to_is_followed_until_it_arrives(explorer):
    explorer.panel.get_by_label("I expect at").select_option(index=0)
    explorer.panel.get_by_role("textbox", name="gradient").fill("7")
    explorer.panel.get_by_role("textbox", name="gradient").press("Enter")
    asked = explorer.panel.locator('[role="status"]').filter(has_text="You expect 7 at")
    asked.wait_for()
    while asked.count():
        with explorer.changing():
            explorer.panel.get_by_role("button", name="Next", exact=True).click()
    assert explorer.panel.locator('[role="status"]').filter(has_text="You expected 7 at").count() == 1


SEEING = ["05_feature_maps", "06_guided_backprop", "07_cam_and_grad_cam"]


@pytest.mark.parametrize("explorer", SEEING, indirect=True)
def test_a_panel_keeps_its_height_with_a_photograph(explorer):
    photographs, heights = explorer.panel.get_by_label("Photograph"), set()
    for index in (2, 0, 1):
        with explorer.changing():
            photographs.select_option(index=index)
        heights.add(round(explorer.panel.bounding_box()["height"]))
    assert len(heights) == 1, heights


@pytest.mark.parametrize("explorer", ["05_feature_maps", "08_hooks_in_practice"], indirect=True)
def test_a_place_is_chosen_on_the_picture(explorer):
    """A click where the canvas lies over the picture."""
    pointed = explorer.panel.locator(".course-pointed")
    place = pointed.locator("canvas")
    place.wait_for()  # it comes when the page says that it has ipycanvas
    explorer.page.wait_for_function(
        """box => {
            const [canvas, img] = ['canvas', 'img'].map(each => box.querySelector(each).getBoundingClientRect());
            return ['x', 'y', 'width', 'height'].every(each => canvas[each] === img[each]);
        }""",
        arg=pointed.element_handle(),
    )
    with explorer.changing():
        click_at(place, 0.65, 0.8)
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
    if focus["kind"] in ("slider", "list"):
        along = "ArrowLeft" if focus["at_end"] else "ArrowRight"
        explorer.page.keyboard.press(along if focus["kind"] == "slider" else "ArrowDown")
        explorer.page.wait_for_function(
            "before => `${document.activeElement.ariaValueNow} ${document.activeElement.value}` !== before",
            arg=focus["state"],
        )
        return True
    one_of_many = focus["kind"] == "choice" and not focus["on"] and focus["group"] not in chosen
    alone = focus["kind"] == "button" and not any(each in focus["words"] for each in APART)
    if one_of_many or alone or focus["kind"] == "box":
        chosen.add(focus["group"])
        explorer.page.keyboard.press("Space")
        return True
    return False
