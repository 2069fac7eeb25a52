"""The course's commands: `python3 -m course_utils COMMAND`, which every target of the Makefile calls.

A bare Python may run this file, and an old one too: it keeps to the syntax of Python 3.6, imports only the standard
library, and loads the rest of the package after `check_python` has let it.
"""

import argparse
import difflib
import errno
import os
import shutil
import subprocess
import sys

OLDEST_PYTHON = (3, 10)  # as in pyproject.toml and setup.py, which an older Python cannot read
STUDENT_COMMANDS = ("lab", "check", "doctor", "setup", "help")  # what a release for students has
INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended


class Command:
    """One command: the sentence that lists it, the options it takes, and the function that does it.

    `run(options, rest)` gets the parsed options and the arguments that none of them took. `examine(options, rest)`
    comes before a set-up that may take minutes, and raises `CourseError` for what could not work after it.
    """

    def __init__(self, run, summary, variables="", options=(), examine=None) -> None:
        self.run = run
        self.summary = summary
        self.variables = variables
        self.options = options
        self.examine = examine


def run_setup(options, rest) -> int:
    print("The course is set up. Open it with `make lab`, or `python -m course_utils lab` where there is no make.")
    return 0


def examine_lab(options, rest) -> None:
    from course_utils.lab.jupyter import choose_port

    options.port = choose_port(options.port)


def run_lab(options, rest) -> int:
    from course_utils.lab.jupyter import open_lab

    return open_lab(options.port, rest)


def run_tests(options, rest) -> int:
    from course_utils.root import ROOT

    # The whole suite runs in a process for each core (up to 4: each takes 2 GB), a file at a time, the long ones with a
    # browser first; a part of it runs in one.
    # More threads than cores wait for each other: with two for each of two processes, lessons take four times as long.
    arguments = rest or ["--numprocesses=auto", "--maxprocesses=4", "--dist=loadfile", "--no-loadscope-reorder"]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], cwd=str(ROOT), env=environment)


def run_check(options, rest) -> int:
    from course_utils.grading.grade import main as grade
    from course_utils.lab.jupyter import WORK

    lesson = ["--lesson", options.lesson] if options.lesson else []
    return grade(["--check", str(WORK), *lesson, *rest]) or 0


def build_notebooks(options, rest) -> int:
    from course_utils.authoring.build import build_notebooks as build

    return build([each for each in rest if each != "--check"], check="--check" in rest)


def run_instructor(options, rest) -> int:
    from course_utils.authoring.editions import write_instructor

    return write_instructor(options.lesson)


def run_slides(options, rest) -> int:
    from course_utils.authoring.slides import write_slides

    return write_slides(options.lesson)


def run_handout(options, rest) -> int:
    from course_utils.authoring.editions import write_handout

    layer = rest[rest.index("--layer") + 1] if "--layer" in rest[:-1] else ""
    return write_handout(options.lesson, options.network, options.image, layer)


def run_release(options, rest) -> int:
    from course_utils.authoring.release import write_release

    parser = argparse.ArgumentParser(prog="python -m course_utils release")
    parser.add_argument("--output")
    parser.add_argument("--nbgrader")
    return write_release(**vars(parser.parse_args(rest)))


def examine_grade(options, rest) -> None:
    from course_utils.root import CourseError

    if not options.submissions:
        raise CourseError("Say which folder to grade:  make grade SUBMISSIONS=folder")


def run_grade(options, rest) -> int:
    from course_utils.grading.grade import main as grade

    arguments = [options.submissions]
    if options.roster:
        arguments += ["--roster", options.roster]
    if options.report:
        arguments += ["--report", options.report]
    return grade(arguments + rest) or 0


def run_training(options, rest) -> int:
    from course_utils.authoring.train import main as train

    return train(["--train", *rest])


def run_bench(options, rest) -> int:
    from tests.bench.bench import main as bench

    return bench(rest)


def run_doctor(options, rest) -> int:
    from course_utils.lab.doctor import main as diagnose

    return diagnose()


def refuse_arguments(options, rest) -> None:
    from course_utils.root import CourseError

    if rest:
        raise CourseError(f"This command takes no such arguments: {' '.join(rest)}")


COMMANDS = {
    "lab": Command(run_lab, "open the lessons in JupyterLab", "PORT= ARGS= TORCH=cpu", ("port",), examine_lab),
    "check": Command(run_check, "show your own score, from the work folder", "LESSON=01", ("lesson",)),
    "doctor": Command(
        run_doctor, "find what is wrong with the environment, and how to mend it", "", (), refuse_arguments
    ),
    "setup": Command(run_setup, "make the environment, as every other target does first", "", (), refuse_arguments),
    "test": Command(run_tests, "run the whole test suite", "ARGS="),
    "notebooks": Command(build_notebooks, "build and run the lessons from notebooks/source", "ARGS="),
    "grade": Command(
        run_grade,
        "grade a folder of submissions",
        "SUBMISSIONS= ROSTER= REPORT= ARGS=",
        ("submissions", "roster", "report"),
        examine_grade,
    ),
    "instructor": Command(
        run_instructor, "write the answered lessons with the teacher's notes", "LESSON=01", ("lesson",)
    ),
    "slides": Command(run_slides, "write slides of the lessons, with speaker notes", "LESSON=01", ("lesson",)),
    "handout": Command(
        run_handout,
        "run a lesson with another network and picture, and write it as a page",
        "LESSON=07 NETWORK= IMAGE= ARGS=",
        ("lesson", "network", "image"),
    ),
    "release": Command(run_release, "write the zip for students, without the answers", "ARGS="),
    "train": Command(run_training, "train the picture networks again, in minutes", "ARGS="),
    "bench": Command(run_bench, "measure speed and memory against the budgets", "ARGS="),
}


def list_commands() -> None:
    """Print every command of this edition with its line, and the variables that its make target understands."""
    from course_utils.root import has_answers

    print("make TARGET, or python -m course_utils TARGET:\n")
    here = COMMANDS if has_answers() else [name for name in COMMANDS if name in STUDENT_COMMANDS]
    for name in here:
        command = COMMANDS[name]
        variables = f"   [{command.variables}]" if command.variables else ""
        print(f"  {name:<11}{command.summary}{variables}")
    print("\nStart with: make lab")


def check_python() -> bool:
    """Tell whether this Python is new enough; where it is not, say so and name one that is."""
    if sys.version_info >= OLDEST_PYTHON:
        return True
    needed = ".".join(map(str, OLDEST_PYTHON))
    message = f"The course needs Python {needed} or newer, and {sys.executable} is {sys.version.split()[0]}. "
    newer = find_newer_python()
    if newer:
        message += f"This machine has a newer one: add PYTHON={newer} to the make command."
    else:
        message += "Install a newer one from python.org or your package manager, then add PYTHON=python3.12 (its name)."
    print(message, file=sys.stderr)
    return False


def find_newer_python() -> str:
    """Return the name of a Python on the PATH that is new enough, or an empty string."""
    for minor in range(14, OLDEST_PYTHON[1] - 1, -1):
        name = f"python3.{minor}"
        # A name on the PATH may be a version manager's shim with nothing behind it, so it has to run.
        if shutil.which(name) and subprocess.call([name, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            return name
    return ""


def parse_options(name, arguments) -> tuple:
    """Split the arguments of command `name` into its options and the rest, which is passed on as it is."""
    parser = argparse.ArgumentParser(
        prog=f"python -m course_utils {name}", description=COMMANDS[name].summary, allow_abbrev=False
    )
    parser.add_argument("--torch", default="", help="cpu: take PyTorch's own CPU wheels (1 GB instead of 3)")
    for option in COMMANDS[name].options:
        parser.add_argument(f"--{option}", default="")
    return parser.parse_known_args(arguments)


def run_command(name, arguments) -> int:
    """Run one command with the environment's Python, making the environment first where it is missing."""
    from course_utils.lab import setup
    from course_utils.root import CourseError, has_answers

    if name not in STUDENT_COMMANDS and not has_answers():
        raise CourseError(
            f"`{name}` needs the whole course, and this is the students' release, without answers and tests. "
            f"Here you have: {', '.join(command for command in STUDENT_COMMANDS if command != 'help')}."
        )
    options, rest = parse_options(name, arguments)
    if COMMANDS[name].examine:
        COMMANDS[name].examine(options, rest)
    python = setup.prepare_environment(options.torch)
    if not setup.is_running(python):
        # The other Python examines the options again: a port may have been taken meanwhile.
        return setup.run_again(python, [name, *arguments])
    return COMMANDS[name].run(options, rest)


def main(arguments=None) -> int:
    """Run the command that `arguments` (default: `sys.argv[1:]`) name and return its exit status.

    What goes wrong on a learner's machine is said in a sentence on stderr, with status 1; an unknown command is 2.
    """
    if not check_python():
        return 1
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("help", "-h", "--help"):
        list_commands()
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "The commands are: " + ", ".join(COMMANDS) + "."
        print(f"There is no command {name!r}. {hint}", file=sys.stderr)
        return 2

    from course_utils.lab.setup import DISK_FULL
    from course_utils.root import CourseError

    try:
        return run_command(name, arguments[1:])
    except CourseError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        # Only these two are the machine's fault and have a cure that a sentence can name; others are bugs.
        if error.errno == errno.ENOSPC:
            print(DISK_FULL, file=sys.stderr)
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename:
            print(
                f"{os.fspath(error.filename)} cannot be written or read: give yourself the right to, or move the "
                "course to a folder of your own.",
                file=sys.stderr,
            )
        else:
            raise
    return 1


if __name__ == "__main__":
    sys.exit(main())
