"""A class with a real kernel and the projected page in a real browser: votes, checks, three pages, a kill."""

import re
import subprocess
import sys

import pytest
from faults import find_faults

from course_utils.exercises import classroom
from course_utils.exercises.engine import find
from course_utils.live import server
from tests.browser.lab_page import find_port
from tests.browser.live_class import LiveClass, running

pytestmark = pytest.mark.browser

LESSON = "00_start_here.ipynb"
WRONG = "def largest(tensor):\n    return tensor.max()\n"
# The smallest text on the page, but for formulas (their indices are small), and how much is wider than the window.
SIZES = """() => {
    const sizes = [], walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const {parentElement, textContent} = walker.currentNode;
        if (!textContent.trim() || parentElement.closest('math')) continue;
        sizes.push(parseFloat(getComputedStyle(parentElement).fontSize));
    }
    return [Math.min(...sizes), document.documentElement.scrollWidth - innerWidth];
}"""


SHOWN = {"join": "20 joined", "votes": "First vote", "class": "✓ passed", "help": "Hint to give", "plan": "Minute"}


class Projector:
    """The instructor's page at the size of a projector; `complaints` are the errors in it."""

    def __init__(self, browser, live, screen):
        self.complaints, self.page = [], browser.new_context(viewport={"width": 1920, "height": 1080}).new_page()
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        self.page.goto(f"{live.address}/class?key={live.room.key}")
        self.page.keyboard.press(str([*server.SCREENS].index(screen) + 1))
        assert "key" not in self.page.url

    def sees(self, text):
        self.page.locator("#view").get_by_text(text).first.wait_for(timeout=10_000)

    def close(self):
        self.page.context.close()


@pytest.fixture
def learner(window):
    """The start lesson, opened and run, with nothing done yet."""
    for name in ("progress.json", "class.json"):
        (window.lab.work / name).unlink(missing_ok=True)
    window.open(LESSON)
    window.run_all()
    yield window
    window.shut_down()
    for name in ("progress.json", "class.json"):
        (window.lab.work / name).unlink(missing_ok=True)


def run_in(window, number, code):
    """Run `code` in the place of a cell."""
    window.cell(number).locator(".cm-content").click()
    window.page.keyboard.press("ControlOrMeta+a")
    window.page.keyboard.insert_text(code)
    window.page.keyboard.press("Shift+Enter")
    window.wait_until_idle()


def find_last(window, tag):
    return [number for number, cell in enumerate(window.read_cells()) if tag in cell["tags"]][-1]


def test_a_real_kernel_votes_twice_waits_for_the_reveal_and_checks_before_three_pages(learner, browser, tmp_path):
    with running(tmp_path, lesson="00") as live:
        votes, where, helps = pages = [Projector(browser, live, screen) for screen in ("votes", "class", "help")]
        votes.page.get_by_role("button", name="Explanations wait for the reveal").click()
        answer, asked, told = (find_last(learner, tag) for tag in ("answer", "predict", "why"))
        joining = f"from course_utils.live import join\njoin({live.address!r}, {live.room.code!r}, 'Ann <b>')\n"
        run_in(learner, answer, joining)
        assert "You are in the class as Ann <b>." in learner.cell(answer).locator(".jp-OutputArea").text_content()
        where.sees("Learner 1")
        question, explanation = learner.cell(asked), learner.cell(told)
        explanation.get_by_text(classroom.WAITS).wait_for()
        question.get_by_label("9", exact=True).check()
        question.get_by_role("button", name="Commit").click()
        question.get_by_text("Your class gets 9 as your vote.").wait_for()
        votes.sees("1 of 1 voted")
        votes.page.keyboard.press("n")
        votes.sees("Talk to your neighbour")
        votes.page.keyboard.press("n")
        votes.sees("0 of 1 voted again")
        question.get_by_label("6", exact=True).check()
        question.get_by_role("button", name="Vote again").click()
        votes.sees("1 of 1 voted again")
        assert explanation.get_by_text(classroom.WAITS).is_visible()
        votes.page.locator("#phase-reveal").press("Enter")
        explanation.get_by_text("You said 9, and then 6, and so it is.").wait_for()
        votes.sees("✓ 6")
        assert votes.page.evaluate("() => document.activeElement.id") == "phase-reveal", "the focus stays"

        run_in(learner, answer, WRONG)
        learner.page.keyboard.press("Shift+Enter")
        where.sees("✗ tried (1)")
        helps.sees(find("largest").mistakes[0].message.split("`")[0])
        helps.sees(find("largest").hints[0].split("`")[0])
        assert where.page.get_by_text("Ann").count() == 0
        where.page.keyboard.press("h")
        where.sees("Ann <b>")
        for page in pages:
            assert (page.complaints, find_faults(page.page, "html")) == ([], [])
            page.close()


def test_every_screen_is_large_clean_and_complete_with_a_full_class(browser, tmp_path, pictures):
    """With twenty learners, names hidden and shown; formulas are drawn."""
    pytest.importorskip("latex2mathml")
    with running(tmp_path, lesson="07") as live:
        shown = Projector(browser, live, "join")
        asked = next(each for each in live.room.predictions.values() if "$" in each.why)
        exercises = [each for each in live.room.exercises.values() if each.lesson == 7]
        live.press("prediction", asked.name)
        for number in range(20):
            token = live.join(f"A learner with a long name {number}")
            live.vote(token, asked.name, [*asked.options][number % len(asked.options)])
            for place, each in enumerate(exercises[: number % 8]):
                live.report(token, each.name, "wrong value", each.mistakes[(number + place) % 3].message)
                if place < number % 5:
                    live.report(token, each.name, "passed")
        live.press("phase", "reveal")
        live.press("timer", "start")
        for key, screen in enumerate(server.SCREENS, start=1):
            for names in ("hidden", "shown"):
                shown.page.keyboard.press(str(key))
                shown.page.wait_for_function("(name) => location.hash === `#${name}`", arg=screen)
                shown.sees(SHOWN[screen])
                smallest, too_wide = shown.page.evaluate(SIZES)
                assert (smallest >= 28, too_wide <= 0, screen) == (True, True, screen)
                assert find_faults(shown.page, "html") == []
                shown.page.screenshot(path=pictures / f"class-{screen}-{names}.png")
                shown.page.keyboard.press("h")
            if screen == "votes":
                assert shown.page.locator("math").count() > 0
        assert shown.complaints == []
        shown.close()


def start(folder, port):
    """A class in a process of its own, as `make class` starts it; it says when it listens."""
    code = "from pathlib import Path; from course_utils.live.server import serve; import sys; "
    code += "serve('00', '127.0.0.1', int(sys.argv[2]), folder=Path(sys.argv[1]), show=False)"
    command = [sys.executable, "-c", code, str(folder), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = process.stdout.readline() + process.stdout.readline()
    return process, re.search(r"room code (\w+)", said)[1], re.search(r"key=(\S+)", said)[1]


class Kept:
    """What `LiveClass` asks of a room in another process."""

    def __init__(self, code, key):
        self.code, self.key, self.reports = code, key, []


def test_a_kill_in_the_middle_loses_nothing_and_the_page_comes_back_by_itself(browser, tmp_path):
    port = find_port()
    process, code, key = start(tmp_path, port)
    live = LiveClass(f"http://127.0.0.1:{port}", Kept(code, key))
    try:
        shown = Projector(browser, live, "votes")
        tokens = [live.join(f"{number}") for number in range(3)]
        for token in tokens[:2]:
            live.vote(token, "gradient_of_square", "9")
        shown.sees("2 of 3 voted")
        process.kill()
        process.wait()
        shown.page.get_by_role("alert").filter(has_text="lost the class").wait_for()
        process, *known = start(tmp_path, port)
        assert known == [code, key]
        live.vote(tokens[2], "gradient_of_square", "6")
        shown.sees("3 of 3 voted")
        assert shown.page.get_by_role("alert").is_hidden()
        shown.close()
    finally:
        process.terminate()
        process.wait()
