"""A class with a real kernel, and its pages in a real browser: projected, the instructor's own, and on a phone."""

from types import SimpleNamespace

import pytest
from faults import find_faults

from course_utils.authoring import slides
from course_utils.exercises import classroom
from course_utils.exercises.engine import find
from course_utils.live import handlers
from course_utils.live.room import SCREENS
from tests.browser.lab_page import SCRIPTS, find_port
from tests.browser.live_class import LiveClass, running, start

pytestmark = pytest.mark.browser

BEGIN = """\
from course_utils.exercises import check, predict, why
from course_utils.lessons.lesson_00 import largest
from course_utils.live import join
join({address!r}, {code!r}, 'Ann <b>')
"""
CELLS = 'predict("gradient_of_square")', 'why("gradient_of_square")', "", "check(largest)"
WRONG = "def largest(tensor):\n    return tensor.max()\n"
SHOWN = {"join": "joined", "votes": "First vote", "class": "Passed", "help": "A nudge for all", "plan": "Minute"}
FIRST = "Maximilian", "Sofia", "Li", "Amara", "Christopher", "Beatriz"
LAST = "Schneider", "Wei", "Okafor", "Papadopoulos"


class Window:
    """One of the class's pages at the size of a screen; `complaints` are the errors in it."""

    def __init__(self, browser, live, path, width=1920, height=1080, **more):
        self.page = browser.new_context(viewport={"width": width, "height": height}, **more).new_page()
        self.complaints = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        self.page.on("dialog", lambda dialog: dialog.accept())
        self.page.goto(f"{live.address}/{path}")

    def press(self, name):
        self.page.get_by_role("button", name=name, exact=True).click()

    def sees(self, text):
        self.page.locator("#view").get_by_text(text).first.wait_for(timeout=10_000)

    def overflow(self):
        """By how many pixels the page is wider, and higher, than the window."""
        return self.page.evaluate(
            "() => ['Width', 'Height'].map(side => document.documentElement[`scroll${side}`] - window[`inner${side}`])"
        )

    def close(self):
        assert (self.complaints, find_faults(self.page, "html")) == ([], [])
        self.page.context.close()


def open_projector(browser, live, path="class", **size):
    window = Window(browser, live, f"{path}?key={live.room.key}", **size)
    window.page.locator("#view nav").first.wait_for()
    return window


def open_desk(browser, live, **size):
    return open_projector(browser, live, "desk", **size)


def test_a_real_kernel_votes_twice_waits_for_the_reveal_and_checks_before_two_pages(window, browser, tmp_path):
    with running(tmp_path, lesson="00") as live:
        shown, desk = open_projector(browser, live), open_desk(browser, live, width=1280, height=720)
        assert "key" not in shown.page.url + desk.page.url
        (window.lab.work / "progress.json").unlink(missing_ok=True)
        window.lab.write("class.ipynb", [BEGIN.format(address=live.address, code=live.room.people.code), *CELLS])
        window.open("class.ipynb")
        joined, question, explanation = map(window.cell, range(3))
        for number in range(3):
            window.run(number)
        assert "You are in the class as Ann <b>." in joined.locator(".jp-OutputArea").text_content()
        shown.sees("1 joined")
        explanation.get_by_text(classroom.WAITS).wait_for()
        question.get_by_label("9", exact=True).check()
        question.get_by_role("button", name="Commit").click()
        question.get_by_text("Your class gets 9 as your vote.").wait_for()
        shown.page.keyboard.press("2")
        shown.sees("1 of 1 voted")
        desk.sees("Fewer than 30 % are right")
        desk.sees("Ann <b>")
        shown.page.keyboard.press("n")
        shown.sees("Talk to your neighbour")
        desk.press("Vote again")
        shown.sees("0 of 1 voted again")
        desk.press("60 s")
        shown.sees("0:5")
        question.get_by_label("6", exact=True).check()
        question.get_by_role("button", name="Vote again").click()
        shown.sees("1 of 1 voted again")
        assert explanation.get_by_text(classroom.WAITS).is_visible()
        shown.page.locator("#phase-reveal").press("Enter")
        explanation.get_by_text("You said 9, and then 6, and so it is.").wait_for()
        shown.sees("✓ 6")
        assert shown.page.evaluate("() => document.activeElement.id") == "phase-reveal", "the focus stays"

        window.type_into(3, WRONG)
        window.run(4)
        desk.press("3 Who is where")
        desk.sees("✗ 1 Ann <b>")
        shown.sees("Here now")
        assert shown.page.get_by_text("Ann").count() == 0
        shown.page.keyboard.press("h")
        shown.sees("Ann <b>")
        desk.press("4 Help")
        desk.sees(find("largest").mistakes[0].message.split("`")[0])
        shown.sees(find("largest").hints[0].split("`")[0])
        shown.close()
        desk.close()
        window.shut_down()


def fill(live, learners):
    """A class where some have voted twice, and are at all exercises."""
    exercises = live.room.exercises_here
    asked = next(each for each in live.room.predictions_here if "$" in each.why)
    live.press("prediction", asked.name)
    for number in range(learners):
        token = live.join(f"{FIRST[number % 6]} {LAST[number % 4]}")
        live.vote(token, asked.name, [*asked.options][number % len(asked.options)])
        for place, each in enumerate(exercises[: number % 8]):
            live.report(token, each.name, "wrong value", each.mistakes[(number + place) % 3].message)
            if place < number % 5:
                live.report(token, each.name, "passed")
    live.press("phase", "reveal")
    live.press("timer", "start")


@pytest.mark.parametrize(("width", "height", "names"), [(1920, 1080, "no"), (1280, 720, "yes")])
def test_every_screen_with_sixty_learners_fits_and_is_clean(browser, tmp_path, take_picture, width, height, names):
    """On two projectors, with names hidden and shown; formulas are drawn."""
    pytest.importorskip("latex2mathml")
    with running(tmp_path, lesson="07") as live:
        fill(live, 60)
        live.press("names", names)
        shown = open_projector(browser, live, width=width, height=height)
        for number, screen in enumerate(SCREENS, start=1):
            shown.page.keyboard.press(str(number))
            shown.sees(SHOWN[screen])
            smallest = shown.page.evaluate(SCRIPTS["smallest_text"])
            assert (screen, max(*shown.overflow(), 0), smallest >= 20 * width / 1920) == (screen, 0, True)
            assert find_faults(shown.page, "html") == []
            take_picture(shown.page, f"class-{height}-{screen}")
            if screen == "votes":
                assert shown.page.locator("math").count() > 0
        shown.close()


def test_the_instructors_page_works_on_a_laptop_and_on_a_phone_and_removes_whoever_disturbs(
    browser, tmp_path, take_picture
):
    with running(tmp_path, lesson="07") as live:
        fill(live, 12)
        laptop = open_desk(browser, live, width=1280, height=720)
        phone = open_desk(browser, live, width=390, height=844, is_mobile=True)
        for screen in SCREENS:
            live.press("screen", screen)
            for window in (laptop, phone):
                window.page.locator(f"#screen-{screen}[aria-pressed=true]").wait_for()
                assert (screen, window.overflow()[0]) == (screen, 0)
                take_picture(window.page, f"desk-{window.page.viewport_size['width']}-{screen}")
            assert find_faults(phone.page, "html") == []
        laptop.press("1 Join")
        laptop.press("Remove Li Okafor")
        laptop.sees("11 joined")
        laptop.press("New code")
        laptop.press("Locked")
        laptop.page.locator("#locked[aria-pressed=true]").wait_for()
        laptop.press("04")
        laptop.page.locator("#lesson-04[aria-pressed=true]").wait_for()
        laptop.close()
        phone.close()


def test_every_question_fits_the_projector_and_no_phone_scrolls_sideways(browser, tmp_path, take_picture):
    with running(tmp_path, lesson="00") as live:
        shown = open_projector(browser, live, width=1280, height=720)
        phone = join_by_phone(browser, live)
        live.press("screen", "votes")
        too_large = []
        for lesson in live.room.buttons()["lesson"][0]:
            live.press("lesson", lesson)
            for each in live.room.predictions_here:
                live.press("prediction", each.name)
                for phase in ("again", "reveal"):
                    live.press("phase", phase)
                    shown.page.locator(f"#prediction-{each.name}[aria-pressed=true]").wait_for()
                    shown.page.locator(f"#phase-{phase}[aria-pressed=true]").wait_for()
                    phone.sees("The answer" if phase == "reveal" else "Look at the question again")
                    for window in (shown, phone):
                        window.page.wait_for_function("() => [...document.images].every(each => each.complete)")
                    overflow = [*shown.overflow(), phone.overflow()[0]]
                    if max(overflow) > 0:
                        too_large.append((each.name, phase, overflow))
                    take_picture(shown.page, f"question-{lesson}-{each.name}-{phase}")
        assert too_large == []
        shown.close()
        phone.close()


def join_by_phone(browser, live, name=""):
    """What the QR code leads to, on a phone, with the room code filled in."""
    phone = Window(browser, live, f"#{live.room.people.code}", width=390, height=844, is_mobile=True, has_touch=True)
    phone.page.get_by_label("Your name").fill(name)
    phone.press("Join")
    phone.sees("You are in the class as")
    return phone


def test_a_phone_votes_twice_is_known_after_a_reload_and_out_after_it_was_removed(browser, tmp_path, take_picture):
    with running(tmp_path, lesson="01") as live:
        live.press("prediction", "hook_on_a")
        phone = join_by_phone(browser, live, "Ann")
        live.press("screen", "votes")
        for step, said in (("vote", "30"), ("again", "15")):
            live.press("phase", step)
            phone.page.locator("label.option", has_text=said).tap()
            take_picture(phone.page, f"phone-{step}")
            phone.press("Send my vote")
            phone.sees(f"{said}.")
            assert (phone.overflow()[0], find_faults(phone.page, "html")) == (0, [])
        assert live.room.votes("hook_on_a") == {1: ["30", "15"]}
        phone.page.reload()
        live.press("phase", "reveal")
        phone.sees("You said 30, and then 15.")
        take_picture(phone.page, "phone-reveal")
        live.press("remove", 1)
        phone.page.get_by_text("You are not in the class any more.").wait_for()
        phone.page.get_by_label("Room code").fill("WRONGS")
        phone.press("Join")
        phone.page.get_by_role("alert").filter(has_text="The room code is another one").wait_for()
        phone.page.get_by_label("Room code").fill(live.room.people.code.lower())
        phone.press("Join")
        phone.sees("You said 30, and then 15.")
        refused = [each for each in phone.complaints if "401" not in each and "403" not in each]
        assert refused == []
        phone.page.context.close()


class Kept:
    """What `LiveClass` asks of a room in another process."""

    def __init__(self, code, key):
        self.people, self.key, self.reports = SimpleNamespace(code=code), key, []


def test_a_kill_in_the_middle_loses_nothing_and_the_page_comes_back_by_itself(browser, tmp_path):
    port = find_port()
    process, code, key = start(tmp_path, port, "00")
    live = LiveClass(f"http://127.0.0.1:{port}", Kept(code, key))
    try:
        shown = open_projector(browser, live)
        shown.page.keyboard.press("2")
        tokens = [live.join(f"{number}") for number in range(3)]
        for token in tokens[:2]:
            live.vote(token, "gradient_of_square", "9")
        shown.sees("2 of 3 voted")
        process.kill()
        process.wait()
        shown.page.get_by_role("alert").filter(has_text="lost the class").wait_for()
        process, *known = start(tmp_path, port, "00")
        assert known == [code, key]
        live.vote(tokens[2], "gradient_of_square", "6")
        shown.sees("3 of 3 voted")
        assert shown.page.get_by_role("alert").is_hidden()
        shown.page.context.close()
    finally:
        process.terminate()
        process.wait()


SHOW = """name => {
    const { h, v } = Reveal.getIndices(document.querySelector(`a[href$='=${name}']`).closest('section'));
    Reveal.slide(h, v);
}"""


def test_a_question_on_a_slide_opens_on_the_page_of_the_class(browser, tmp_path, monkeypatch):
    pytest.importorskip("pyreveal", reason="slides need pyreveal: pip install -e '.[instructor]'")
    monkeypatch.setattr(handlers, "SLIDES", tmp_path)
    with running(tmp_path, lesson="01") as live:
        live.ask("/slides", status=404, **live.cookie)
        slides.write_slides("01", folder=tmp_path)
        desk, shown = open_desk(browser, live), None
        with desk.page.expect_popup() as opened:
            desk.page.get_by_role("link", name="Open the slides").click()
        deck = opened.value
        deck.wait_for_function("window.Reveal && Reveal.isReady()")
        live.press("lesson", "00")  # a slide's question also brings its lesson
        for name, words in {"hook_on_a": "now sits on a instead of w", "hook_on_w": "the hook on the leaf w"}.items():
            live.press("screen", "plan")
            deck.evaluate(SHOW, name)
            link = deck.locator(f"a[href$='={name}']")
            if shown is None:
                with deck.expect_popup() as opened:
                    link.click()
                shown = opened.value
            else:  # in the same window
                link.click()
            shown.locator("#view").get_by_text(words).first.wait_for()
            assert (live.room.asked.name, live.room.lesson) == (name, 1)
        with deck.expect_popup() as opened:
            deck.keyboard.press("s")
        opened.value.frame_locator("#current-slide iframe").locator("section.present .predict").first.wait_for(
            timeout=30_000
        )
        desk.close()
