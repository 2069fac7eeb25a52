"""What all tests share: two tiers, the longest first, and no progress kept."""

import signal

import pytest

from course_utils.root import skip_grammar

skip_grammar()
# What takes longest in `make test-all`, in this order: what is still running at the end is short then.
LONGEST = ("browser/", "test_notebooks", "test_release", "test_exercises", "test_grading_class", "test_grading_batch",
           "test_grading_sandbox", "test_nbgrader", "test_evidence", "test_commands")  # fmt: skip


def pytest_configure():
    """Let tests interrupt what they start, also where this was started in the background, which ignores Ctrl-C."""
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
    """A file's tests stay in one process, for what they share is made once.

    Those with a browser share one JupyterLab in each of two processes. The tests of the notebooks share nothing, and go
    one by one to the process that is free.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            if "browser/" in file:
                alone = ("_cheatsheet.py", "_live.py", "_report.py", "_site.py", "_slides.py")
                return "pages" if file.endswith(alone) else "lessons"
            return nodeid if "test_notebooks" in file else file

    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def keep_no_progress():
    """Nobody's progress is read or written by a test, in this process or in one that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_PROGRESS", "off")
        yield


@pytest.fixture
def nothing_remembered(monkeypatch):
    """No progress, and no answer that has failed, in this process either."""
    monkeypatch.setattr("course_utils.exercises.saved_progress._in_memory", {})
    monkeypatch.setattr("course_utils.exercises.session.session.failed_code", {})


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A learner's folder, in which progress is kept; the work goes on there."""
    (tmp_path / ".course-work").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_PROGRESS")
    return tmp_path
