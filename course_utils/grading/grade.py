"""The commands: grade a class, or check a learner's own work."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import sys
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils.root import CourseError

if TYPE_CHECKING:
    from course_utils.grading.batch import Graded
    from course_utils.grading.lessons import Lesson
    from course_utils.grading.sandbox.crew import DaskCrew, LocalCrew
    from course_utils.grading.submissions import Submission

DESCRIPTION = """\
Grade submissions: a folder (student/lesson.ipynb, lesson/student.ipynb or nbgrader's
submitted/student/lesson/lesson.ipynb), a zip of one, or one notebook. Only the answers are taken from a notebook; each
is run by itself, with inputs that nobody has seen, and compared with the reference answer elsewhere. The report folder
gets index.html (the class), a page for each student, scores.csv, scores.json, and verdicts.ipynb (the record that
nbval judged: for you, not for students). Ctrl-C keeps what is done, and the same command goes on from there.
"""
EPILOG = "Exit status: 0 all graded, 1 some need a look by hand (they are listed), 2 nothing could be run."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a grading: the parameters of `run` but for the submissions."""
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 graded, 1 some need a look by hand, 2 could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m course_utils.grading",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("submissions", nargs="?", type=Path, metavar="SUBMISSIONS", help="folder, zip or notebook")
    parser.add_argument("--check", type=Path, metavar="WORKDIR", help="show the scores of the lessons in WORKDIR")
    add_options(parser)
    options = vars(parser.parse_args(argv))
    work = options.pop("check")
    if (options["submissions"] is None) == (work is None):
        print("grading: give a folder of submissions, or --check and a folder of your own work.", file=sys.stderr)
        return 2
    return run(**options) if work is None else check_work(work, options["lesson"])


def _in_a_sentence(command: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(command)
    def say(*arguments: object, **options: object) -> int:
        try:
            return command(*arguments, **options)
        except CourseError as error:
            print(f"grading: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print("grading: stopped; nothing was written.", file=sys.stderr)
        return 2

    return say


@_in_a_sentence
def run(
    submissions: Path,
    report: Path = Path("report"),
    roster: Path | None = None,
    lesson: str | None = None,
    engine: str = "auto",
    jobs: int | None = None,
    scheduler: str | None = None,
) -> int:
    """Grade `submissions` (a folder, a zip or a notebook), write the `report` folder, and print a table.

    `roster` is a CSV file of names, each of which gets a row; `lesson` (such as 01) limits what is graded; `engine` is
    auto, fork or kernel; `jobs` says how many answers run at a time; `scheduler` is the address of a Dask cluster.
    Returns the exit status: 0 graded, 1 some need a look by hand, 2 nothing could be run (a sentence says why).
    """
    if not submissions.exists():
        raise CourseError(f"{submissions} does not exist: give the folder that holds a folder for each student.")
    if submissions.is_file() and submissions.suffix.lower() not in (".zip", ".ipynb"):
        raise CourseError(f"{submissions} is not a folder, a .zip or an .ipynb file.")
    from course_utils.grading.verdict import NOTEBOOK, Comparer, import_lean

    # What takes longest is started first, each in a process of its own: the imports of torch, and of pytest with nbval.
    with _make_crew(engine, jobs, scheduler, [submissions, report]) as crew, Comparer() as comparer:
        import_lean()
        from course_utils.exercises.declaration import read_declarations
        from course_utils.grading.batch import grade
        from course_utils.grading.lessons import read_lessons
        from course_utils.grading.resume import GradingMemory

        lessons = read_lessons(read=read_declarations)
        found = _find(submissions, roster, lessons, _choose(lessons, lesson))
        try:
            report.mkdir(parents=True, exist_ok=True)
            (report / NOTEBOOK).unlink(missing_ok=True)
            memory = GradingMemory(report)
        except OSError as error:
            raise CourseError(f"the report cannot be written to {report}: {error.strerror}.") from None
        graded = grade(
            found, crew=crew, memory=memory, record=report / NOTEBOOK, comparer=comparer, progress=_show_progress
        )
    return _write_report(graded, len(found), report)


@_in_a_sentence
def check_work(folder: Path, lesson: str | None = None) -> int:
    """Show a learner's own scores, by the grader's rule: an outcome for each exercise, and the total.

    `folder` holds copies of the lessons; `lesson` (such as 01) limits what is checked.
    Returns the exit status, as `run` does.
    """
    from course_utils.exercises.declaration import read_declarations
    from course_utils.grading.batch import grade
    from course_utils.grading.lessons import read_lessons
    from course_utils.grading.submissions import find_work

    submissions = find_work(folder, _choose(read_lessons(read=read_declarations), lesson), student="you")
    if not submissions:
        raise CourseError(f"there is no lesson in {folder}; `make lab` puts a copy of each lesson there.")
    with _make_crew() as crew:
        graded = grade(submissions, crew=crew)
    name = None
    for row, outcome in zip(graded.scores, graded.outcomes, strict=True):
        if row.lesson != name:
            name = row.lesson
            print(name)
        print(textwrap.indent(str(outcome or f"{row.exercise}: no score"), "  "))
        if row.reason:
            print(f"    {row.reason}")
    print(f"total: {sum(row.points for row in graded.scores)} of {sum(row.possible for row in graded.scores)}")
    return 1 if any(row.look_by_hand for row in graded.scores) else 0


def _choose(lessons: Mapping[str, Lesson], number: str | None) -> Mapping[str, Lesson]:
    if number is None:
        return lessons
    found = {name: each for name, each in lessons.items() if number in (name, name[:2], str(each.number))}
    if not found:
        raise CourseError(f"there is no lesson {number}; there is {', '.join(name[:2] for name in lessons)}.")
    return found


def _find(
    place: Path, roster: Path | None, lessons: Mapping[str, Lesson], chosen: Mapping[str, Lesson]
) -> list[Submission]:
    from course_utils.grading.submissions import add_roster, find_submissions, read_roster

    try:
        found = [each for each in find_submissions(place, lessons) if each.lesson is None or each.lesson.name in chosen]
        if roster:
            handed_in = {each.name for each in found}
            wanted = {name: each for name, each in chosen.items() if each.exercises}
            asked = {name: each for name, each in wanted.items() if name in handed_in} or wanted
            found = add_roster(found, read_roster(roster), asked)
    except zipfile.BadZipFile as error:
        raise CourseError(f"{place} is not a zip that can be read: {error}.") from None
    except OSError as error:
        raise CourseError(f"{error.filename or place} cannot be read: {error.strerror}.") from None
    if not found:
        raise CourseError(f"there is nothing to grade in {place}: it should hold student/lesson.ipynb.")
    return found


def _make_crew(
    engine: str = "auto", jobs: int | None = None, scheduler: str | None = None, hidden: Sequence[Path] = ()
) -> LocalCrew | DaskCrew:
    from course_utils.grading.sandbox.crew import DaskCrew, LocalCrew, choose_engine

    chosen = choose_engine(engine)
    try:
        return DaskCrew(scheduler, chosen) if scheduler else LocalCrew(chosen, jobs, hidden=hidden, key=True)
    except ModuleNotFoundError as error:
        raise CourseError(f"{error.name} is missing: pip install 'course-utils[cluster]'.") from None
    except (OSError, ValueError) as error:
        raise CourseError(f"{error}.") from None


@contextlib.contextmanager
def _show_progress(total: int) -> Iterator[object]:
    from tqdm import tqdm

    with tqdm(total=total, desc="grading", unit="notebook", file=sys.stderr, disable=not total) as bar:
        yield bar
    # The class page will want it; it is imported while nbval compares.
    threading.Thread(target=importlib.import_module, args=("matplotlib.figure",), daemon=True).start()


def _write_report(graded: Graded, submissions: int, report: Path) -> int:
    from course_utils.grading.report import CLASS_PAGE, table, write_pages, write_scores

    try:
        write_scores(graded.scores, report, graded.isolation)
        write_pages(graded.scores, report, graded.isolation)
    except OSError as error:
        raise CourseError(f"the report cannot be written to {report}: {error.strerror}.") from None
    print(table(graded.scores))
    for line in ["", *graded.isolation, *filter(None, [graded.problem])]:
        print(line)
    if graded.known:
        print(f"{graded.known} of {submissions} were graded before and have not changed.")
    if graded.stopped:
        print("Stopped. What had run until then is graded and kept; the same command goes on from here.")
    print(f"The report is {report / CLASS_PAGE}.")
    return 1 if any(row.look_by_hand for row in graded.scores) else 0
