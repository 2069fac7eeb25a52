"""The course's commands: `python -m course_utils COMMAND`, which the Makefile's targets call."""

from __future__ import annotations

import argparse
import errno
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from course_utils.root import ASSETS, ROOT, STUDENT_COMMANDS, CourseError, has_answers, nearest, require, skip_grammar

OLDEST_PYTHON = (3, 10)


def port(text: str) -> int:
    """The number of a port. Others would be cut to 16 bits without a word."""
    if not 0 < (number := int(text)) < 2**16:
        raise argparse.ArgumentTypeError("a port is a number from 1 to 65535")
    return number


TYPES = {"int": int, "float": float, "path": Path, "port": port}


@functools.cache
def read_targets() -> dict[str, dict[str, Any]]:
    """Each target of the Makefile: what it is about, the variables that it takes, the function that does it and its
    options, as argparse takes them. Without a function, make alone does it. Defaults are those of the function.
    """
    return json.loads((ASSETS / "commands.json").read_text(encoding="utf-8"))


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The function that does a command, as `module:function` of this package, and what it is called with.

    Ends with argparse's own words and status 2 for options that the command does not take. Raises `CourseError` for a
    lesson, an exercise or a file that there is not.
    """
    parser = _make_parser()
    options, rest = parser.parse_known_args(arguments)
    values, command = vars(options), arguments[0]
    if command == "lab":
        values["arguments"] = rest
    elif rest:
        parser.error(f"{command} takes no {' '.join(rest)}")
    function = values.pop("function")
    if values.get("lesson"):
        values["lesson"] = resolve_name("course_utils.authoring.source:choose")([values["lesson"]])[0].stem[:2]
    if command == "handout":
        resolve_name("course_utils.authoring.source:refuse_handout")(**values)
    if values.get("exercise"):
        _refuse_exercise(values["exercise"])
    if "output" in values and values["output"].is_dir():
        raise CourseError(f"{values['output']} is a folder: give the name of the zip, too.")
    return function, values


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m course_utils", allow_abbrev=False)
    commands = parser.add_subparsers(required=True)
    for name, target in read_targets().items():
        if "function" not in target:
            continue
        about = {"description": f"{target['about'].capitalize()}.", "epilog": target.get("epilog")}
        command = commands.add_parser(name, allow_abbrev=False, argument_default=argparse.SUPPRESS, **about)
        command.set_defaults(function=target["function"])
        for option, settings in target.get("options", {}).items():
            kind = {"type": TYPES[settings["type"]]} if "type" in settings else {}
            command.add_argument(option, **settings | kind)
    commands.choices["check"].set_defaults(folder=ROOT / "work")
    return parser


def _refuse_exercise(name: str) -> None:
    # Here, before the function's module imports torch.
    declarations = resolve_name("course_utils.exercises.declaration:read_declarations")()
    known = [each.name for each in declarations]
    if name not in known:
        raise CourseError(f"There is no exercise {name}; there is {', '.join(nearest(name, known) or known)}.")


def run(arguments: Sequence[str]) -> int:
    """Run a command with its arguments, or list the commands. Raises `CourseError` for one that is not there."""
    name = arguments[0] if arguments else "help"
    targets = read_targets()
    if name in ("help", "-h", "--help"):
        _list_targets()
        return 0
    require("Commands", name, targets, "`make help`")
    if name not in _targets_here():
        whole = f"`{name}` needs the whole course, and this is the students' release, without answers and tests."
        raise CourseError(f"{whole} Here you have: {', '.join(STUDENT_COMMANDS)}.")
    if "function" not in targets[name]:
        raise CourseError(f"`{name}` is a target of make:  make {name}")
    function, values = parse(arguments)
    return resolve_name(f"course_utils.{function}")(**values) or 0


def _targets_here() -> dict[str, dict[str, Any]]:
    """The targets that this edition of the course has."""
    targets = read_targets()
    return targets if has_answers() else {name: targets[name] for name in targets if name in STUDENT_COMMANDS}


def _list_targets() -> None:
    make_only = ", ".join(name for name, target in read_targets().items() if "function" not in target)
    print(f"make TARGET, or python -m course_utils TARGET (but for {make_only}):\n")
    for name, target in _targets_here().items():
        variables = f"   [{target['variables']}]" if target["variables"] else ""
        print(f"  {name:<15}{target['about']}{variables}")
    print("\nStart with: make lab")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` (default: `sys.argv[1:]`) name; returns its status, or 2 if it could not run."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"The course needs Python 3.10 or newer, and {sys.executable} is {sys.version.split()[0]}.")
    skip_grammar()
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
