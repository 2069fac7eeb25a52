"""The course's commands: `python -m course_utils COMMAND`, which the Makefile's targets call."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name

from course_utils.root import ROOT, STUDENT_COMMANDS, CourseError, has_answers, nearest

OLDEST_PYTHON = (3, 10)

# Each target of the Makefile: what it is for, the variables that it takes, and the function that does it: make alone if
# there is none.
TARGETS = {
    "lab": ("open the lessons in JupyterLab", "PORT= ARGS= TORCH=cpu", "lab.jupyter:open_lab"),
    "check": ("show your own score, from the work folder", "LESSON=01", "grading.grade:check_work"),
    "submit": ("check what is in your work folder, and write one file to send", "NAME= ARGS=", "grading.submit:submit"),
    "doctor": ("find what is wrong with the environment, and how to mend it", "", "lab.doctor:main"),
    "setup": ("make the environment, as every other target does first", "TORCH=cpu", ""),
    "test": ("run the fast tests", "ARGS=", ""),
    "test-all": ("run the fast tests, then the slow ones, a browser's among them", "ARGS=", ""),
    "test-pythons": ("run the fast tests with the oldest and the newest Python that is here", "", ""),
    "notebooks": ("build and run the lessons from notebooks/source", "ARGS=", "authoring.build:build_notebooks"),
    "copies": ("write the lessons for Colab and JupyterHub to a branch of their own", "", "lab.copies:write_copies"),
    "grade": ("grade a folder of submissions", "SUBMISSIONS= ROSTER= REPORT= ARGS=", "grading.grade:run"),
    "class": ("teach it live, with votes", "LESSON=01 HOST= PORT= ADDRESS= FORGET=1 ARGS=", "live.server:serve"),
    "instructor": ("write the lessons with answers and notes", "LESSON=01", "authoring.editions:write_instructor"),
    "slides": ("write slides of the lessons, with speaker notes", "LESSON=01", "authoring.slides:write_slides"),
    "handout": (
        "write a lesson, with your network and picture, as a page", "LESSON=07 NETWORK= IMAGE= CLASS= ARGS=",
        "authoring.editions:write_handout"
    ),
    "site": ("write the lessons as a web site, to read offline", "ARGS=", "authoring.site:write_site"),
    "cheatsheet": ("write all hooks on one page, from lesson 09", "", "authoring.cheatsheet:write_cheatsheet"),
    "release": ("write the zip for students, without the answers", "ARGS=", "authoring.release:write_release"),
    "mutants": ("check that wrong answers are refused", "LESSON=03 EXERCISE=", "authoring.mutants:show_mutants"),
    "train": ("train the picture networks again, in minutes", "ARGS=", "authoring.train:main"),
    "bench": ("measure speed and memory against the budgets", "ARGS=", ""),
}  # fmt: skip
MAKE_ONLY = [name for name, (*_, function) in TARGETS.items() if not function]


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, object]]:
    """The function that does a command, as `module:function` of this package, and what it is called with.

    Ends with argparse's own words and status 2 for options that the command does not take. Raises `CourseError` for a
    lesson, an exercise or a file that there is not.
    """
    parser = argparse.ArgumentParser(prog="python -m course_utils", allow_abbrev=False)
    commands = parser.add_subparsers(required=True)
    option = {}
    for name, (about, _, function) in TARGETS.items():
        if function:
            command = commands.add_parser(name, description=f"{about.capitalize()}.", allow_abbrev=False)
            command.set_defaults(function=function)
            option[name] = command.add_argument

    commands.choices["lab"].epilog = "All other options are JupyterLab's own, such as --no-browser."
    option["lab"]("--port", type=int, default=8888, help="where it listens on this machine (default: 8888)")
    only = "only copy the lessons and write JupyterLab's settings"
    option["lab"]("--prepare", dest="only_prepare", action="store_true", help=only)
    option["check"]("--folder", type=Path, default=ROOT / "work", help="where your lessons are (default: work)")
    option["submit"]("--name", default="", help="yours, as your instructor knows it; without it, you are asked")
    option["submit"]("--check", action="store_true", help="also run the answers, and show their scores")
    option["notebooks"]("lessons", nargs="*", help="which to build, like 01 02; by default those that are out of date")
    option["notebooks"]("--check", action="store_true", help="say which are out of date; build nothing")
    if "grade" in arguments:  # only this command waits for the grader's modules
        resolve_name("course_utils.grading.grade:add_options")(commands.choices["grade"])
    option["class"]("--lesson", default="", help="the lesson, like 01 (default: that of last time)")
    option["class"]("--host", default="", help="this computer's address to listen on (default: that of its network)")
    option["class"]("--port", type=int, default=8900, help="where it listens there (default: 8900)")
    option["class"]("--address", default="", help="what learners type, where it is another, as behind a tunnel")
    option["class"]("--new", action="store_true", help="begin another class, also where one of today could go on")
    option["class"]("--forget", action="store_true", help="delete everything that was kept of all classes")
    for name in ("check", "instructor", "mutants", "slides"):
        option[name]("--lesson", help="this lesson only, like 03")
    option["site"]("--answers", action="store_true", help="with an answer to each exercise, below a fold")
    option["handout"]("--lesson", default="", help="the lesson's number, like 07")
    option["handout"]("--network", default="", help="a network by name, like resnet34")
    option["handout"]("--image", default="", help="a picture's file")
    option["handout"]("--layer", default="", help="a layer of the network by name, like layer3")
    what = 'what to explain, like "tiger cat", or "tiger cat rather than tabby"'
    option["handout"]("--class", dest="chosen", default="", help=what)
    option["release"]("--output", type=Path, metavar="ZIP", help="where to write it")
    option["release"]("--nbgrader", type=Path, metavar="FOLDER", help="write an nbgrader course there instead")
    option["release"]("--hints", type=int, default=2, help="of each exercise, if they complete no answer (default: 2)")
    option["mutants"]("--exercise", help="of this exercise only")
    option["mutants"]("--write", action="store_true", help="try all, and write their slips to the assets")
    option["train"]("--measure", action="store_true", help="only measure the networks that are there")
    options, rest = parser.parse_known_args(arguments)
    values = vars(options)
    if arguments[0] == "lab":
        values["arguments"] = rest
    elif rest:
        parser.error(f"{arguments[0]} takes no {' '.join(rest)}")
    function = values.pop("function")
    # Refused here, before the function's module imports torch.
    if lesson := values.get("lesson"):
        values["lesson"] = resolve_name("course_utils.authoring.source:choose")([lesson])[0].stem[:2]
    if arguments[0] == "handout":
        resolve_name("course_utils.authoring.source:refuse_handout")(**values)
    name, read = values.get("exercise"), resolve_name("course_utils.exercises.declaration:read_declarations")
    if name and name not in (known := [each.name for each in read()]):
        raise CourseError(f"There is no exercise {name}; there is {', '.join(nearest(name, known) or known)}.")
    if (output := values.get("output")) and output.is_dir():
        raise CourseError(f"{output} is a folder: give the name of the zip, too.")
    return function, values


def run(arguments: Sequence[str]) -> int:
    """Run a command with its arguments, or list the commands. Raises `CourseError` for one that is not there."""
    name = arguments[0] if arguments else "help"
    here = {name: about for name, about in TARGETS.items() if name in STUDENT_COMMANDS or has_answers()}
    if name in ("help", "-h", "--help"):
        print(f"make TARGET, or python -m course_utils TARGET (but for {', '.join(MAKE_ONLY)}):\n")
        for target, (summary, variables, _) in here.items():
            print(f"  {target:<13}{summary}" + f"   [{variables}]" * bool(variables))
        print("\nStart with: make lab")
        return 0
    if name not in TARGETS:
        near = nearest(name, TARGETS, 1)
        known = f"Did you mean {near[0]}?" if near else f"There are {', '.join(TARGETS)}."
        raise CourseError(f"There is no command {name!r}. {known}")
    if name not in here:
        whole = f"`{name}` needs the whole course, and this is the students' release, without answers and tests."
        raise CourseError(f"{whole} Here you have: {', '.join(STUDENT_COMMANDS)}.")
    if name in MAKE_ONLY:
        raise CourseError(f"`{name}` is a target of make:  make {name}")
    function, values = parse(arguments)
    return resolve_name(f"course_utils.{function}")(**values) or 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` (default: `sys.argv[1:]`) name; returns its status, or 2 if it could not run."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"The course needs Python 3.10 or newer, and {sys.executable} is {sys.version.split()[0]}.")
    try:
        return run(sys.argv[1:] if arguments is None else arguments)
    except CourseError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", file=sys.stderr)
        return 130  # what a shell reports for a command that Ctrl-C ended
    except ModuleNotFoundError as error:
        use = "Use `make`, or the course's own Python in .venv; `make setup` installs what is missing."
        print(f"{sys.executable} has no package {error.name}. {use}", file=sys.stderr)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        mend = "Free some space, or move the course to a folder of your own."
        print(f"{error.filename}: {error.strerror}. {mend}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
