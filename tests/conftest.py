"""What all tests share: two tiers, no progress kept, and the seconds that lessons took, shown at the end."""

import os
import signal

import pytest


def pytest_configure():
    """Let tests interrupt what they start, also where this process was started in the background.

    A shell without job control has such processes ignore Ctrl-C, and so would all that they start.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What needs a browser, reference libraries or weights is slow, and so left to `make test-all`."""
    for item in items:
        if any(item.get_closest_marker(name) for name in ("browser", "parity", "pretrained")):
            item.add_marker("slow")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where tests run in several processes, a file's tests with a browser stay with those of the other such files.

    Then there is one JupyterLab, in which each lesson is opened once.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneBrowser(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "browser" if "/browser/" in file else file

    return OneBrowser(config, log)


@pytest.fixture(scope="session", autouse=True)
def keep_no_progress():
    """Nobody's progress is read or written by a test, in this process or in one that it starts."""
    before = os.environ.get("COURSE_PROGRESS")
    os.environ["COURSE_PROGRESS"] = "off"
    yield
    if before is None:
        del os.environ["COURSE_PROGRESS"]
    else:
        os.environ["COURSE_PROGRESS"] = before


def pytest_terminal_summary(terminalreporter):
    """Print what tests noted with `record_property("seconds of …", value)`: shown, never asserted."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    notes = [note for report in reports for note in getattr(report, "user_properties", []) if "seconds of" in note[0]]
    if notes:
        terminalreporter.section("lessons")
        for name, value in notes:
            terminalreporter.line(f"{name}: {value:.1f}")
