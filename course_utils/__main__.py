"""The course's commands: `python -m course_utils COMMAND`, which the Makefile's targets call."""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from course_utils.root import ROOT, CourseError, has_answers, nearest

OLDEST_PYTHON = (3, 10)
STUDENT_COMMANDS = ("lab", "check", "doctor", "setup", "help")  # what a students' release has
MAKE_ONLY = ("setup", "test", "test-all", "bench")
INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended

# Each target of the Makefile: what it is for, and the variables that it takes.
TARGETS = {
    "lab": ("open the lessons in JupyterLab", "PORT= ARGS= TORCH=cpu"),
    "check": ("show your own score, from the work folder", "LESSON=01"),
    "doctor": ("find what is wrong with the environment, and how to mend it", ""),
    "setup": ("make the environment, as every other target does first", "TORCH=cpu"),
    "test": ("run the fast tests", "ARGS="),
    "test-all": ("run the fast tests, then the slow ones, a browser's among them", "ARGS="),
    "notebooks": ("build and run the lessons from notebooks/source", "ARGS="),
    "grade": ("grade a folder of submissions", "SUBMISSIONS= ROSTER= REPORT= ARGS="),
    "instructor": ("write the answered lessons with the teacher's notes", "LESSON=01"),
    "slides": ("write slides of the lessons, with speaker notes", "LESSON=01"),
    "handout": ("write a lesson, with your network and picture, as a page", "LESSON=07 NETWORK= IMAGE= ARGS="),
    "release": ("write the zip for students, without the answers", "ARGS="),
    "train": ("train the picture networks again, in minutes", "ARGS="),
    "bench": ("measure speed and memory against the budgets", "ARGS="),
}  # fmt: skip


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, object]]:
    """The function that does a command, as `module:function` of this package, and what it is called with.

    Ends with argparse's own words and status 2 for options that the command does not take.
    """
    parser = argparse.ArgumentParser(prog="python -m course_utils", allow_abbrev=False)
    commands = parser.add_subparsers(required=True)

    def command(name: str, function: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, description=f"{TARGETS[name][0].capitalize()}.", allow_abbrev=False)
        added.set_defaults(function=function)
        return added

    lab = command("lab", "lab.jupyter:open_lab")
    lab.epilog = "All other options are JupyterLab's own, such as --no-browser."
    lab.add_argument("--port", type=int, default=8888, help="where it listens on this machine (default: 8888)")
    lab.set_defaults(rest="arguments")
    check = command("check", "grading.grade:check_work")
    check.add_argument("--lesson", help="this lesson only, like 01")
    check.set_defaults(folder=ROOT / "work")
    command("doctor", "lab.doctor:main")
    notebooks = command("notebooks", "authoring.build:build_notebooks")
    notebooks.add_argument(
        "lessons", nargs="*", help="which to build, like 01 02; by default those that are out of date"
    )
    notebooks.add_argument("--check", action="store_true", help="say which are out of date; build nothing")
    grade = command("grade", "grading.grade:run")
    if "grade" in arguments:  # only this command waits for the grader's modules
        grade.add_argument("submissions", type=Path, help="a folder, a zip or a notebook")
        importlib.import_module("course_utils.grading.grade").add_options(grade)
    command("instructor", "authoring.editions:write_instructor").add_argument("--lesson", help="this one only, like 01")
    command("slides", "authoring.slides:write_slides").add_argument("--lesson", help="this one only, like 01")
    handout = command("handout", "authoring.editions:write_handout")
    handout.add_argument("--lesson", default="", help="the lesson's number, like 07")
    handout.add_argument("--network", default="", help="a network by name, like resnet34")
    handout.add_argument("--image", default="", help="a picture's file")
    handout.add_argument("--layer", default="", help="a layer of the network by name, like layer3")
    release = command("release", "authoring.release:write_release")
    release.add_argument("--output", type=Path, metavar="ZIP", help="where to write it")
    release.add_argument("--nbgrader", type=Path, metavar="FOLDER", help="write an nbgrader course there instead")
    command("train", "authoring.train:main").set_defaults(rest="argv")
    options, rest = parser.parse_known_args(arguments)
    values = vars(options)
    if (name := values.pop("rest", None)) is not None:
        values[name] = rest
    elif rest:
        parser.error(f"{arguments[0]} takes no {' '.join(rest)}")
    return values.pop("function"), values


def list_targets() -> None:
    """Print a line for every target of this edition."""
    print("make TARGET, or python -m course_utils TARGET (but for {}):\n".format(", ".join(MAKE_ONLY)))
    for name, (summary, variables) in TARGETS.items():
        if has_answers() or name in STUDENT_COMMANDS:
            print(f"  {name:<11}{summary}" + f"   [{variables}]" * bool(variables))
    print("\nStart with: make lab")


def run(arguments: Sequence[str]) -> int:
    """Run a command with its arguments. Raises `CourseError` for one that is not there."""
    name = arguments[0] if arguments else "help"
    if name in ("help", "-h", "--help"):
        list_targets()
        return 0
    if name not in TARGETS:
        known = (
            f"Did you mean {near[0]}?" if (near := nearest(name, TARGETS, 1)) else f"There are {', '.join(TARGETS)}."
        )
        raise CourseError(f"There is no command {name!r}. {known}")
    if name not in STUDENT_COMMANDS and not has_answers():
        here = ", ".join(command for command in STUDENT_COMMANDS if command != "help")
        raise CourseError(
            f"`{name}` needs the whole course, and this is the students' release, without answers and tests. "
            f"Here you have: {here}."
        )
    if name in MAKE_ONLY:
        raise CourseError(f"`{name}` is a target of make:  make {name}")
    function, values = parse(arguments)
    module, _, function = function.partition(":")
    return getattr(importlib.import_module(f"course_utils.{module}"), function)(**values) or 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` (default: `sys.argv[1:]`) name and return its exit status.

    What goes wrong on a learner's machine is said in a sentence on stderr, with status 1.
    """
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"The course needs Python 3.10 or newer, and {sys.executable} is {sys.version.split()[0]}.")
    try:
        return run(sys.argv[1:] if arguments is None else arguments)
    except CourseError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        print(f"{sys.executable} has no package {error.name}. Use `make`, or the course's own Python in .venv; "
              "`make setup` installs what is missing.", file=sys.stderr)  # fmt: skip
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        print(f"{error.filename}: {error.strerror}. Free some space, or move the course to a folder of your own.",
              file=sys.stderr)  # fmt: skip
    return 1


if __name__ == "__main__":
    sys.exit(main())
