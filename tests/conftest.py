"""What all tests share: they keep no progress, and the seconds that lessons took are shown at the end."""

import os

import pytest


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
