"""The commands: grade a folder of submissions, or a learner's own work."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_utils.grading.lessons import Lesson

DESCRIPTION = """\
Grade a folder of submissions, laid out as student/lesson.ipynb. Only the answers are taken from a notebook; they are
run with inputs that nobody has seen and compared with the reference answers elsewhere. Writes scores.csv, scores.json
and verdicts.ipynb (the record that nbval judged: for you, not for students) into the report folder.
"""
EPILOG = "Exit status: 0 all graded, 1 some need a look by hand (they are listed), 2 nothing could be run."


class CannotRun(Exception):
    """Nothing was graded; the message says why and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 graded, 1 some need a look by hand, 2 could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m course_utils.grading",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("submissions", nargs="?", type=Path, metavar="SUBMISSIONS", help="folder with a folder each")
    parser.add_argument("--report", type=Path, default=Path("report"), metavar="DIR", help="where to (default: report)")
    parser.add_argument("--lesson", metavar="NN", help="grade this lesson only, such as 01")
    parser.add_argument("--check", type=Path, metavar="WORKDIR", help="show the scores of the lessons in WORKDIR")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # where the lessons' sources are, for tests
    options = parser.parse_args(argv)
    try:
        if (options.submissions is None) == (options.check is None):
            raise CannotRun("give a folder of submissions, or --check and a folder of your own work.")
        lessons = _load_lessons(options.folder)
        chosen = _choose(lessons, options.lesson)
        if options.check is not None:
            return check_work(options.check, chosen)
        return grade_folder(options.submissions, options.report, lessons, chosen)
    except CannotRun as error:
        print(f"grading: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("grading: stopped; nothing was written.", file=sys.stderr)
        return 2


def _load_lessons(folder: Path | None) -> dict[str, Lesson]:
    from course_utils.grading.lessons import load_lessons
    from course_utils.notebooks import FOLDER, LessonError

    try:
        return load_lessons(folder or FOLDER)
    except LessonError as error:
        raise CannotRun(str(error)) from None


def _choose(lessons: Mapping[str, Lesson], number: str | None) -> Mapping[str, Lesson]:
    """The lesson that `number` means (`01`, `1` or its whole name), or all without a number."""
    if number is None:
        return lessons
    found = {name: each for name, each in lessons.items() if number in (name, name[:2], str(each.number))}
    if not found:
        raise CannotRun(f"there is no lesson {number}; there is {', '.join(name[:2] for name in lessons) or 'none'}.")
    return found


def grade_folder(folder: Path, report: Path, lessons: Mapping[str, Lesson], chosen: Mapping[str, Lesson]) -> int:
    """Grade the submissions to the `chosen` among the `lessons`, write the report and print the table."""
    from tqdm import tqdm

    from course_utils.grading.collect import find_submissions
    from course_utils.grading.grade import grade
    from course_utils.grading.judge import VERDICTS
    from course_utils.grading.report import table, write_scores

    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise CannotRun(f"{folder} {what}: give the folder that holds a folder for each student.")
    try:
        found = find_submissions(folder, lessons)
    except OSError as error:
        raise CannotRun(f"{folder} cannot be read: {error.strerror}.") from None
    submissions = [each for each in found if each.lesson is None or each.lesson.name in chosen]
    if not submissions:
        raise CannotRun(f"there is nothing to grade in {folder}: it should hold student/lesson.ipynb.")
    try:
        report.mkdir(parents=True, exist_ok=True)
        (report / VERDICTS).unlink(missing_ok=True)
    except OSError as error:
        raise CannotRun(f"the report cannot be written to {report}: {error.strerror}.") from None

    def progress(them: Sequence) -> tqdm:
        return tqdm(them, desc="grading", unit="notebook", file=sys.stderr)

    graded = grade(submissions, record=report / VERDICTS, progress=progress)
    write_scores(graded.scores, report)
    print(table(graded.scores))
    if graded.stopped:
        print("\nStopped. What had run until then is graded; the rest is marked in the report.")
    print(f"\nThe report is in {report}.")
    return 1 if any(row.look_by_hand for row in graded.scores) else 0


def check_work(folder: Path, lessons: Mapping[str, Lesson]) -> int:
    """Show a learner's own scores, by the grader's rule: an outcome for each exercise, and the total."""
    from course_utils.grading.collect import find_work
    from course_utils.grading.grade import grade

    submissions = find_work(folder, lessons, student="you")
    if not submissions:
        raise CannotRun(f"there is no lesson in {folder}; `make lab` puts a copy of each lesson there.")
    graded = grade(submissions)
    lesson = None
    for row, outcome in zip(graded.scores, graded.outcomes, strict=True):
        if row.lesson != lesson:
            lesson = row.lesson
            print(lesson)
        print(textwrap.indent(str(outcome or f"{row.exercise}: no score"), "  "))
        if row.reason:
            print(f"    {row.reason}")
    print(f"total: {sum(row.points for row in graded.scores)} of {sum(row.possible for row in graded.scores)}")
    return 1 if any(row.look_by_hand for row in graded.scores) else 0


if __name__ == "__main__":
    sys.exit(main())
