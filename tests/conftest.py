"""What all tests share: two tiers, no progress kept, and the seconds that lessons took, shown at the end."""

import signal

import pytest

# What takes longest in `make test-all`, in this order: what is still running at the end is short then.
LONGEST = ("browser/", "test_notebooks", "test_grading_class", "test_release", "test_grading_sandbox", "test_nbgrader",
           "test_editions", "test_lesson_07", "test_grading_batch", "test_saliency_parity")  # fmt: skip


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
    items.sort(key=lambda item: [name not in item.nodeid for name in LONGEST])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where tests run in several processes, a file's tests stay in one, for what they share is made once.

    All with a browser stay together: then there is one JupyterLab, in which each lesson is opened once. The tests of
    the notebooks share nothing, and go one by one to the process that is free.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return (
                "browser" if "browser/" in nodeid else nodeid if "test_notebooks" in nodeid else nodeid.split("::")[0]
            )

    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def keep_no_progress():
    """Nobody's progress is read or written by a test, in this process or in one that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_PROGRESS", "off")
        yield


def pytest_terminal_summary(terminalreporter):
    """Print what tests noted with `record_property("seconds of …", value)`: shown, never asserted."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    notes = [note for report in reports for note in getattr(report, "user_properties", []) if "seconds of" in note[0]]
    if notes:
        terminalreporter.section("lessons")
        for name, value in notes:
            terminalreporter.line(f"{name}: {value:.1f}")
