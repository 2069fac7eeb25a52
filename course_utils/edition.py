"""Which edition of the course this is: the whole one, or a release for students, without the reference answers.

In a release the checks compare with results that were recorded from the answers (`course_utils.release` makes it).
Standard library only: `python -m course_utils` asks before anything is installed.
"""

from __future__ import annotations

from pathlib import Path

from course_utils.setup import SetupError

ASSETS = Path(__file__).with_name("assets")
STUDENT_COMMANDS = ("lab", "check", "doctor", "setup", "help")


def recorded_path(lesson: int) -> Path:
    """Where a release keeps the recorded results of a lesson's exercises."""
    return ASSETS / f"recorded_{lesson:02d}.json"


def has_answers() -> bool:
    """Whether the reference answers are here; if not, recorded results are."""
    return not any(ASSETS.glob("recorded_[0-9][0-9].json"))


def refuse_in_release(command: str) -> None:
    """Raise `SetupError` if this is a release for students and `command` needs what only the whole course has."""
    if command not in STUDENT_COMMANDS and not has_answers():
        raise SetupError(
            f"`{command}` needs the whole course, and this is the students' release, without answers and tests. "
            f"Here you have: {', '.join(name for name in STUDENT_COMMANDS if name != 'help')}."
        )
