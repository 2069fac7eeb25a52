"""JupyterLab in a real browser, driven by code: for the tests in `tests/browser` and for `make bench`.

It needs Playwright's Python package (the extra `browser`) and a Chromium of the system's. `say_what_is_missing()` tells
whether they are there. Nothing is downloaded, and nothing outside this machine is asked.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import nbformat

from course_utils.authoring.source import METADATA
from course_utils.lab import jupyter
from course_utils.lab.update import update_lessons
from course_utils.root import CourseError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

OF_JUPYTERLAB = (  # what it complains of itself, whatever is in a notebook
    "Canceled future",  # a kernel was ended before it answered
    "'removeChild'",  # its splash screen was to go twice in a moment
)
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
BLANK = "about:blank"
WIDE, NARROW = 1280, 800  # of a window, in pixels
PATIENCE = 120  # seconds for anything that a slow machine may take its time for
SCRIPTS = dict(
    re.findall(r"^// (\w+): .*\n((?:.+\n)+)", Path(__file__).with_name("scripts.js").read_text(encoding="utf-8"), re.M)
)  # what a page is asked to evaluate, by name


def find_chromium() -> str:
    """Return the path of a Chromium on PATH, or "" where there is none."""
    return next((path for name in CHROMIUMS if (path := shutil.which(name))), "")


def say_what_is_missing() -> str:
    """Return a sentence that says what keeps a browser from being driven here, or "" where nothing does."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed: .venv/bin/python -m pip install -e '.[browser]'"
    if not find_chromium():
        return f"there is no Chromium on PATH ({', '.join(CHROMIUMS)}): on Debian, apt-get install chromium"
    return ""


# ---- JupyterLab


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its `address` with the token in `token`, and the folder `work` with the lessons.

    The `front_end` is "" for what `make lab` opens, or the name of one without the course's settings.
    """

    address: str
    token: str
    work: Path
    front_end: str = ""

    def page_of(self, path: str = "") -> str:
        """The address of a notebook in `work`, or of an empty JupyterLab, in a workspace that remembers nothing."""
        place = f"lab/tree/{path}" if path else "lab"
        if self.front_end == "notebook":
            place = f"notebooks/{path}" if path else "tree"
        return f"{self.address}/{place}?token={self.token}&reset"

    def write(self, name: str, cells: Iterable[str]) -> None:
        """Put a notebook with these cells of code into `work`."""
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells], metadata=METADATA)
        nbformat.write(made, self.work / name)


@contextmanager
def start_lab(folder: Path, notebooks: Path = jupyter.NOTEBOOKS, front_end: str = "") -> Iterator[Lab]:
    """Start JupyterLab as `make lab` does, on fresh copies of `notebooks` in the empty folder `folder`; then end it.

    With a `front_end`, "jupyterlab" or "notebook", start that on them, without any settings of the course's.
    The learner's own `work/`, settings and progress are out of reach. Raises `CourseError` if it does not start.
    """
    lessons, home, log = folder / "work", folder / "home", folder / "lab.log"
    jupyter.prepare(home, lessons, notebooks)
    environment = jupyter.isolate_jupyter(dict(os.environ), folder / "plain" if front_end else home)
    environment.pop("COURSE_PROGRESS", None)  # this progress is to be kept: the folder is a learner's
    port = find_port()
    # The second argument lets this module ask JupyterLab for its state; it changes nothing that a learner sees.
    command = jupyter.lab_command(port, ["--no-browser", "--LabApp.expose_app_in_browser=True"], lessons)
    if front_end:
        command = [sys.executable, "-m", front_end, "--no-browser", "--expose-app-in-browser", "--allow-root"]
        command += [f"--ServerApp.port={port}", f"--ServerApp.root_dir={lessons}"]
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Lab(f"http://127.0.0.1:{port}", _wait_for_token(server, log), lessons, front_end)
    finally:
        server.terminate()  # it ends the kernels, too
        server.wait()


def find_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def _wait_for_token(server: subprocess.Popen, log: Path) -> str:
    """The token in the address that JupyterLab prints when it is ready."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := re.search(r"http://127\.0\.0\.1:\d+/\S+token=(\w+)", log.read_text(encoding="utf-8")):
            return found.group(1)
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise CourseError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')}")


# ---- the browser


@contextmanager
def start_browser() -> Iterator[Browser]:
    """Start the system's Chromium without a window, and end it. Raises `CourseError` where there is none."""
    if missing := say_what_is_missing():
        raise CourseError(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Playwright's own arguments keep Chromium from its sandbox (so that root can use it) and from the network.
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


class Look(NamedTuple):
    """What a page shows to who scrolls through a notebook: its words, and the numbers of outputs and folded cells."""

    words: str
    outputs: int
    folded: int


class LabPage:
    """One browser window on a `Lab`, used as a learner uses it: open a lesson, run it, press, type, look.

    `page` is Playwright's. `outside` collects the addresses beyond this machine that were asked for (and refused), and
    `complaints` the errors that the page has reported since a notebook was opened.
    """

    def __init__(self, browser: Browser, lab: Lab, path: str = "", width: int = WIDE, height: int = 900) -> None:
        self.lab = lab
        self.page: Page = browser.new_page(viewport={"width": width, "height": height})
        self.page.set_default_timeout(1000 * PATIENCE)
        self.page.add_init_script(SCRIPTS["be_idle"])
        self.outside: list[str] = []
        self.complaints: list[str] = []
        self.page.on("pageerror", self._note)
        self.page.route(lambda address: not address.startswith(lab.address), self._refuse)
        self.load(path)

    def _note(self, error: object) -> None:
        if not any(words in str(error) for words in OF_JUPYTERLAB):
            self.complaints.append(str(error))

    def _refuse(self, route: object) -> None:
        self.outside.append(route.request.url)
        route.abort()

    def load(self, path: str = "") -> None:
        """Load JupyterLab anew, with the notebook `path` open, as after pressing Reload."""
        self.page.goto(self.lab.page_of(path))
        self.page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)")
        # JupyterLab leaves out what is not in sight; here, all of it is looked at.
        self.page.add_style_tag(content="* { content-visibility: visible !important; }")
        if path:
            self.wait_for_kernel(path)

    def open(self, path: str) -> None:
        """Open the notebook `path` of the work folder in a tab of its own, and wait until its kernel is ready."""
        if self.page.url == BLANK:
            self.load()
        self.complaints.clear()
        self.execute_command("docmanager:open", path=path)
        self.wait_for_kernel(path)

    def open_fresh(self, path: str) -> None:
        """Open a lesson as it comes, for somebody who has done nothing yet and is in no class."""
        for name in ("progress.json", "class.json", path):
            (self.lab.work / name).unlink(missing_ok=True)
        list(update_lessons([jupyter.NOTEBOOKS / path], self.lab.work))
        self.open(path)

    def execute_command(self, command: str, **arguments: str) -> None:
        """Carry out a command of JupyterLab's, as its menus do, and wait until it is done."""
        script = "async ([command, args]) => { await jupyterapp.commands.execute(command, args); }"
        self.page.evaluate(script, [command, arguments])

    def wait_for_kernel(self, path: str) -> None:
        """Wait until the notebook `path` is in front with its kernel: only then can it be shut down."""
        self.page.wait_for_function(SCRIPTS["kernel_is_ready"], arg=path)

    @property
    def panel(self) -> Locator:
        """The notebook in front."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def cell(self, index: int) -> Locator:
        """The cell with this number, from 0."""
        return self.panel.locator(f'.jp-Cell[data-windowed-list-index="{index}"]')

    def read_cells(self) -> list[dict]:
        """Each cell as JupyterLab holds it: `source`, `code` (is it code), `tags`, `count`, and the output's kinds."""
        return self.page.evaluate(SCRIPTS["read_cells"])

    def look_through(self) -> Look:
        """Scroll through the notebook in front, cell by cell, and say what there is to be seen."""
        self.page.evaluate(SCRIPTS["scroll_through"])
        parts = ".jp-OutputArea-output", ".jp-InputPlaceholder:visible"
        return Look(self.panel.inner_text(), *(self.panel.locator(each).count() for each in parts))

    def run_all(self) -> None:
        """Run all cells, as *Run > Run All Cells* does, and wait for the last one."""
        self.execute_command("notebook:run-all-cells")
        self.wait_until_idle()

    def type_into(self, index: int, code: str) -> None:
        """Replace what is in a cell, and run it with Shift+Enter, which goes on to the next cell."""
        self.cell(index).locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(code)
        self.run_and_go_on()

    def run_and_go_on(self) -> None:
        """Press Shift+Enter, and wait for what runs."""
        self.page.keyboard.press("Shift+Enter")
        self.wait_until_idle()

    def save(self) -> None:
        """Save the notebook in front by its key."""
        self.page.keyboard.press("ControlOrMeta+s")
        self.page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")

    def run(self, index: int) -> None:
        """Run the cell with this number, from 0, once more, and wait for it."""
        self.page.evaluate("index => { jupyterapp.shell.currentWidget.content.activeCellIndex = index; }", index)
        self.execute_command("notebook:run-cell")
        self.wait_until_idle()

    def execute(self, code: str) -> None:
        """Run code in the kernel of the notebook in front, in none of its cells."""
        self.page.evaluate(
            "async code => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel"
            ".requestExecute({code, store_history: false}).done; }",
            code,
        )
        self.wait_until_idle()

    def time_key(self, handle: Locator, key: str) -> float:
        """Press a key on a slider, and return the milliseconds from the key to the new picture of its explorer.

        Measured in the page, from the key's event to the picture's load event (of an SVG: to its place in the page).
        Where the picture stays as it was, to the new sentence.
        """
        handle.evaluate(SCRIPTS["time_next_picture"], 1000 * PATIENCE)
        handle.press(key)
        milliseconds = self.page.evaluate("() => window.courseMove")
        if milliseconds is None:
            raise CourseError(f"no new picture {PATIENCE} s after {key} on a slider")
        return milliseconds

    def wait_until_idle(self) -> None:
        """Wait until the kernel has done all that it was asked for, and no widget is on its way to the page."""
        # The kernel answers in order: what was asked before this question is done when its answer comes.
        self.page.evaluate(
            "async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestKernelInfo(); }"
        )
        self.page.wait_for_function(SCRIPTS["is_idle"], polling=50)  # milliseconds: it reads the whole page each time

    def set_theme(self, dark: bool) -> None:
        """Choose JupyterLab's light or dark theme, as in the menu *Settings*."""
        theme = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.execute_command("apputils:change-theme", theme=theme)
        self.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)

    def set_width(self, pixels: int) -> None:
        """Make the window as wide as this."""
        self.page.set_viewport_size({"width": pixels, "height": self.page.viewport_size["height"]})

    def shut_down(self) -> None:
        """End the kernel of every open notebook, and close its tab, saving nothing."""
        if self.page.url == BLANK:
            return
        self.page.evaluate(SCRIPTS["shut_down"])

    def rest(self) -> None:
        """Shut down, and show an empty page: JupyterLab keeps half a core busy even when nothing happens in it."""
        self.shut_down()
        self.page.goto(BLANK)


# ---- what is done with it


def slider_latencies(moves: int) -> dict[str, list[float]]:
    """Move the sliders of every explorer by key, in turns, and time each new picture: name -> `moves` milliseconds.

    An explorer without a slider is left out. Raises `CourseError` where there is no browser, or no new picture.
    """
    with _open_window() as page:
        names = _name_explorers()
        page.lab.write("explorers.ipynb", [f"from course_utils.explorers import *\n\n{each}" for each in names])
        page.open("explorers.ipynb")
        page.run_all()
        times = {name: _time_moves(page, page.cell(number), moves) for number, name in enumerate(names)}
    return {name: each for name, each in times.items() if each}


@contextmanager
def _open_window() -> Iterator[LabPage]:
    """A window on a JupyterLab of its own, in a folder that is removed afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="course-browser-") as folder,
        start_lab(Path(folder)) as lab,
        start_browser() as browser,
    ):
        yield LabPage(browser, lab)


def _name_explorers() -> list[str]:
    """What makes each explorer, and some on the real network."""
    from course_utils.explorers import __all__ as every

    names = [f"{name}()" for name in every]
    return names + [f'{name}(picture="chelsea")' for name in ("FeatureMaps", "GuidedBackprop", "GradCam")]


def _time_moves(page: LabPage, cell: Locator, moves: int) -> list[float]:
    """Move the sliders in `cell` in turns, each to and fro over its range."""
    cell.scroll_into_view_if_needed()
    times: list[float] = []
    keys: dict[int, str] = {}
    for move in range(moves):
        handles = cell.locator(".noUi-target:not([disabled]):visible .noUi-handle").all()  # a move may make new ones
        if not handles:
            return []
        turn = move % len(handles)
        handle = handles[turn]
        now, least, most = (float(handle.get_attribute(f"aria-value{name}")) for name in ("now", "min", "max"))
        if turn not in keys or now in (least, most):
            keys[turn] = "ArrowLeft" if now == most else "ArrowRight"
        times.append(page.time_key(handle, keys[turn]))
        page.wait_until_idle()
    return times
