"""What an instructor makes of the lessons: the answered edition with notes, slides, and handouts.

    python -m course_utils instructor 01 02         answered notebooks with notes, in build/instructor
    python -m course_utils slides                   reveal.js slides with speaker notes, in build/slides
    python -m course_utils handout --lesson 07 --network resnet34 --image photo.jpg

`main` is what these commands call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from course_utils.root import CourseError


def main(argv: Sequence[str]) -> int:
    """`instructor [lessons…]`, `slides [lessons…]` or `handout --lesson 07 [--network …] [--image …]`; returns 0.

    Says in a sentence what each file is. Raises `CourseError` for what cannot be made; what is written is whole.
    """
    command, *rest = argv
    options = _read_options(command, rest)
    if command == "handout":
        return _make_handout(options)
    return _make_editions(command, options.lessons)


def _read_options(command: str, rest: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m course_utils {command}", allow_abbrev=False)
    if command == "handout":
        parser.description = "Write a lesson as one HTML file; with a network or a picture, run it again with these."
        parser.add_argument("--lesson", default="", help="the lesson's number, like 07")
        parser.add_argument("--network", default="", help="a network by name, like resnet34")
        parser.add_argument("--image", default="", help="a picture's file")
        parser.add_argument("--layer", default="", help="a layer of the network by name, like layer3")
    else:
        parser.add_argument("lessons", nargs="*", help="lessons, like 01 02; all if none is named")
    return parser.parse_args(rest)


def _make_editions(command: str, names: Sequence[str]) -> int:
    from course_utils.authoring.editions import choose_lessons

    write, what = _writer(command)
    for source in choose_lessons(list(names)):
        start = time.perf_counter()
        path = write(source)
        print(f"{_shown(path)}: {what} ({time.perf_counter() - start:.0f} s).", flush=True)
    return 0


def _writer(command: str) -> tuple[Callable[[Path], Path], str]:
    if command == "instructor":
        from course_utils.authoring.instructor import write_edition

        return write_edition, "the lesson with answers and notes for the teacher"
    if command == "slides":
        from course_utils.authoring.slides import write_slides

        return write_slides, "the slides; S opens the speaker view with the notes"
    raise CourseError(f"There is no edition {command!r}: there are instructor, slides and handout.")


def _make_handout(options: argparse.Namespace) -> int:
    from course_utils.authoring.editions import choose_lessons
    from course_utils.authoring.handouts import write_handout

    if not options.lesson:
        raise CourseError("Say which lesson:  make handout LESSON=07")
    (source,) = choose_lessons([options.lesson])
    path, words = write_handout(source, options.network, options.image, options.layer)
    print(f"{_shown(path)}: {words}")
    return 0


def _shown(path: Path) -> str:
    """The path as seen from here, if it is below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
