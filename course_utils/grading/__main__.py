"""The commands: grade submissions, or a learner's own work."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_utils.grading.grade import Crew, Graded
    from course_utils.grading.lessons import Lesson
    from course_utils.grading.submissions import Submission

DESCRIPTION = """\
Grade submissions: a folder (student/lesson.ipynb, lesson/student.ipynb or nbgrader's
submitted/student/lesson/lesson.ipynb), a zip of one, or one notebook. Only the answers are taken from a notebook; each
is run by itself, with inputs that nobody has seen, and compared with the reference answer elsewhere. The report folder
gets index.html (the class), a page for each student, scores.csv, scores.json, and verdicts.ipynb (the record that
nbval judged: for you, not for students). Ctrl-C keeps what is done, and the same command goes on from there.
"""
EPILOG = "Exit status: 0 all graded, 1 some need a look by hand (they are listed), 2 nothing could be run."


class CannotRun(Exception):
    """Nothing was graded; the message says why and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 graded, 1 some need a look by hand, 2 could not run."""
    options = _parser().parse_args(argv)
    try:
        if (options.submissions is None) == (options.check is None):
            raise CannotRun("give a folder of submissions, or --check and a folder of your own work.")
        if options.check is not None:
            return check_work(options.check, _choose(_load_lessons(options.folder), options.lesson))
        _look_at(options.submissions)
        return grade_submissions(options)
    except CannotRun as error:
        print(f"grading: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("grading: stopped; nothing was written.", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course_utils.grading",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("submissions", nargs="?", type=Path, metavar="SUBMISSIONS", help="folder, zip or notebook")
    parser.add_argument("--report", type=Path, default=Path("report"), metavar="DIR", help="where to (default: report)")
    parser.add_argument("--roster", type=Path, metavar="CSV", help="names (column `student`); each gets a row")
    parser.add_argument("--lesson", metavar="NN", help="grade this lesson only, such as 01")
    parser.add_argument(
        "--engine",
        choices=("auto", "fork", "kernel"),
        default="auto",
        help="fork: sandboxed children, on Linux; kernel: a kernel for each exercise, slow (default: auto)",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="answers that run at a time (default: one for each core)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="run on a Dask cluster, such as tcp://10.0.0.1:8786")
    parser.add_argument("--check", type=Path, metavar="WORKDIR", help="show the scores of the lessons in WORKDIR")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # where the lessons' sources are, for tests
    return parser


def _load_lessons(folder: Path | None) -> dict[str, Lesson]:
    from course_utils.authoring.source import FOLDER, CourseError
    from course_utils.exercises.declaration import read_declarations
    from course_utils.grading.lessons import load_lessons

    try:
        return load_lessons(folder or FOLDER, read_declarations)
    except CourseError as error:
        raise CannotRun(str(error)) from None


def _choose(lessons: Mapping[str, Lesson], number: str | None) -> Mapping[str, Lesson]:
    """The lesson that `number` means (`01`, `1` or its whole name), or all without a number."""
    if number is None:
        return lessons
    found = {name: each for name, each in lessons.items() if number in (name, name[:2], str(each.number))}
    if not found:
        raise CannotRun(f"there is no lesson {number}; there is {', '.join(name[:2] for name in lessons) or 'none'}.")
    return found


def _look_at(place: Path) -> None:
    """Raise `CannotRun` for what cannot hold submissions, before anything is started."""
    if not place.exists():
        raise CannotRun(f"{place} does not exist: give the folder that holds a folder for each student.")
    if place.is_file() and place.suffix.lower() not in (".zip", ".ipynb"):
        raise CannotRun(f"{place} is not a folder, a .zip or an .ipynb file.")


def _find(
    place: Path, roster: Path | None, lessons: Mapping[str, Lesson], chosen: Mapping[str, Lesson]
) -> list[Submission]:
    """What to grade: the submissions to the `chosen` among the `lessons`, and what the roster adds."""
    from course_utils.grading.submissions import add_roster, find_submissions, read_roster

    try:
        found = [each for each in find_submissions(place, lessons) if each.lesson is None or each.lesson.name in chosen]
        if roster:
            handed_in = {each.name for each in found}
            wanted = {name: each for name, each in chosen.items() if each.exercises}
            asked = {name: each for name, each in wanted.items() if name in handed_in} or wanted
            found = add_roster(found, read_roster(roster), asked)
    except zipfile.BadZipFile as error:
        raise CannotRun(f"{place} is not a zip that can be read: {error}.") from None
    except OSError as error:
        raise CannotRun(f"{error.filename or place} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise CannotRun(f"{error}.") from None
    if not found:
        raise CannotRun(f"there is nothing to grade in {place}: it should hold student/lesson.ipynb.")
    return found


def grade_submissions(options: argparse.Namespace) -> int:
    """Grade, write the report and print the table."""
    from course_utils.grading.comparing import NOTEBOOK, Comparer
    from course_utils.grading.lean import import_lean

    # What takes longest is started first, each in a process of its own: the imports of torch, and of pytest with nbval.
    with _crew(options) as crew, Comparer() as comparer:
        import_lean()
        from course_utils.grading.grade import grade
        from course_utils.grading.resume import Memory
        from course_utils.grading.sandbox.fork import HostDied

        lessons = _load_lessons(options.folder)
        submissions = _find(options.submissions, options.roster, lessons, _choose(lessons, options.lesson))
        record = options.report / NOTEBOOK
        try:
            options.report.mkdir(parents=True, exist_ok=True)
            record.unlink(missing_ok=True)
            memory = Memory(options.report)
        except OSError as error:
            raise CannotRun(f"the report cannot be written to {options.report}: {error.strerror}.") from None
        try:
            graded = grade(submissions, crew=crew, memory=memory, record=record, comparer=comparer, progress=_progress)
        except HostDied as error:
            raise CannotRun(f"no answer can be run here: {error}.") from None
    return _report(graded, len(submissions), options.report)


def _report(graded: Graded, submissions: int, report: Path) -> int:
    """Write the report and print the table."""
    from course_utils.grading.pages import write_pages
    from course_utils.grading.report import table, write_scores

    try:
        write_scores(graded.scores, report, graded.isolation)
        write_pages(graded.scores, report, graded.isolation)
    except OSError as error:
        raise CannotRun(f"the report cannot be written to {report}: {error.strerror}.") from None
    print(table(graded.scores))
    for line in ["", *graded.isolation, *filter(None, [graded.problem])]:
        print(line)
    if graded.known:
        print(f"{graded.known} of {submissions} were graded before and have not changed.")
    if graded.stopped:
        print("Stopped. What had run until then is graded and kept; the same command goes on from here.")
    print(f"The report is {report / 'index.html'}.")
    return 1 if any(row.look_by_hand for row in graded.scores) else 0


def _crew(options: argparse.Namespace) -> Crew:
    from course_utils.grading.sandbox.crew import DaskCrew, LocalCrew, choose_engine

    try:
        engine = choose_engine(options.engine)
        if options.scheduler is None:
            return LocalCrew(engine, options.jobs, hidden=[options.submissions, options.report], key=True)
        return DaskCrew(options.scheduler, engine)
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error.name} is missing: pip install 'course-utils[cluster]'.") from None
    except (OSError, ValueError) as error:
        raise CannotRun(f"{error}.") from None


@contextlib.contextmanager
def _progress(total: int) -> Iterator[object]:
    """A bar with an estimate of the time that is left."""
    from tqdm import tqdm

    with tqdm(total=total, desc="grading", unit="notebook", file=sys.stderr, disable=not total) as bar:
        yield bar
    # The class page will want it; it is imported while nbval compares.
    threading.Thread(target=importlib.import_module, args=("matplotlib.figure",), daemon=True).start()


def check_work(folder: Path, lessons: Mapping[str, Lesson]) -> int:
    """Show a learner's own scores, by the grader's rule: an outcome for each exercise, and the total."""
    from course_utils.grading.grade import grade
    from course_utils.grading.submissions import find_work

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
