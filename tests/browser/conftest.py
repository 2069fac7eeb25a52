"""One JupyterLab, one browser and one window for all tests here; each lesson is opened and run once.

Where Playwright or Chromium is missing, every test says so and is skipped. `COURSE_SCREENSHOTS=folder` keeps the
pictures that the tests take, and takes them in both themes at both widths.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from course_utils.lab.update import update_lessons
from tests.browser import lab_page

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


@dataclass(frozen=True)
class Lesson:
    """A lesson that was opened and run, in front of the `window`; `fresh` is what was seen before the run."""

    name: str
    window: lab_page.LabPage
    cells: list[dict]
    fresh: lab_page.Look

    def find(self, tag: str) -> list[int]:
        """The numbers of the cells with this tag."""
        return [number for number, cell in enumerate(self.cells) if tag in cell["tags"]]


@pytest.fixture(scope="session", params=LESSONS, ids=lambda name: name.removesuffix(".ipynb"))
def lesson(request, window):
    (window.lab.work / "progress.json").unlink(missing_ok=True)  # of the lesson before
    (window.lab.work / request.param).unlink(missing_ok=True)  # other tests may have run this copy, and saved it
    list(update_lessons([NOTEBOOKS / request.param], window.lab.work))
    window.open(request.param)
    fresh = window.look_through()
    window.run_all()
    yield Lesson(request.param, window, window.read_cells(), fresh)
    window.shut_down()


@pytest.fixture
def explorer_in_sight(lesson):
    """An explorer that waits for a prediction is shown, as where a class opens it; nothing is committed to."""
    tags = [tag for number in lesson.find("explore") for tag in lesson.cells[number]["tags"]]
    waits_for = {tag.removeprefix("after-"): True for tag in tags if tag.startswith("after-")}
    code = "from course_utils.exercises.predictions import follow_class\nfollow_class({})"
    lesson.window.execute(code.format(waits_for))
    yield
    lesson.window.execute(code.format({}))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """After the last test here the window rests, for other tests may follow in this process."""
    window = item.funcargs.get("window")
    if window and nextitem is not None and HERE not in nextitem.path.parents:
        window.rest()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """The folder for screenshots."""
    kept = os.environ.get("COURSE_SCREENSHOTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
