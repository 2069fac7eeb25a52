"""The commands: grade a class, or check a learner's own work."""

import argparse
import functools
import itertools
import signal
import textwrap
from pathlib import Path

from course_utils.root import CourseError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the parameters of `run` to a command line."""
    parser.epilog = "Exit status: 0 all graded, 1 some need a look by hand (they are listed), 2 nothing could be run. "
    parser.epilog += "Ctrl-C keeps what is done. The guide for graders is course_utils/grading/README.md."
    parser.argument_default, option = argparse.SUPPRESS, parser.add_argument  # the defaults are those of `run`
    layouts = "student/lesson.ipynb, lesson/student.ipynb or nbgrader's submitted/student/lesson/lesson.ipynb"
    option("submissions", type=Path, help=f"a folder ({layouts}), a zip of one, or one notebook")
    option("--report", type=Path, metavar="DIR", help="where to (default: report)")
    option("--roster", type=Path, metavar="CSV", help="names (column `student`); each gets a row")
    option("--for", dest="system", choices=("moodle", "canvas"), help="what imports gradebook.csv (default: moodle)")
    option("--lesson", metavar="NN", help="grade this lesson only, such as 01")
    about = "auto: sandboxed children, on Linux; process: a new process for each exercise, slow (default: auto)"
    option("--engine", choices=("auto", "process"), help=about)
    option("--jobs", type=int, metavar="N", help="answers that run at a time (default: one for each core)")
    option("--scheduler", metavar="ADDRESS", help="run on a Dask cluster, such as tcp://10.0.0.1:8786")
    option("--live", type=Path, metavar="FILE", help="what `make class` wrote, to show beside the grades")
    option("--exit-zero", action="store_true", help="exit with 0 also when some need a look by hand")


def run(
    submissions: Path,
    report: Path = Path("report"),
    roster: Path | None = None,
    lesson: str | None = None,
    engine: str = "auto",
    jobs: int | None = None,
    scheduler: str | None = None,
    system: str = "moodle",
    live: Path | None = None,
    exit_zero: bool = False,
) -> int:
    """Grade `submissions` (a folder, a zip or a notebook), write the `report` folder, and print a table.

    The parameters are the options that `add_options` describes; `system` is `--for`. Returns the exit status: 0 graded,
    1 some need a look by hand (0 with `exit_zero`, unless it was stopped). Raises `CourseError` if nothing can be run.
    """
    if not submissions.exists():
        raise CourseError(f"{submissions} does not exist: give the folder that holds a folder for each student.")
    if submissions.is_file() and submissions.suffix.lower() not in (".zip", ".ipynb"):
        raise CourseError(f"{submissions} is not a folder, a .zip or an .ipynb file.")
    from course_utils.grading.report import read_class
    from course_utils.grading.sandbox.walls import readable

    for place in (submissions, report):
        if any(place.resolve().is_relative_to(library) for library in readable()):
            raise CourseError(f"{place} is in a library's folder, which answers may read: take another.")
    in_class = read_class(live) if live else [{}, {}]
    _end_as_ctrl_c()
    from course_utils.grading.verdict import NOTEBOOK, Comparer, import_lean

    # What takes longest is started first, each in a process of its own: the imports of torch, and of pytest with nbval.
    with _make_crew(engine, jobs, scheduler) as crew, Comparer() as comparer:
        import_lean()
        from tqdm import tqdm

        from course_utils.grading.batch import grade
        from course_utils.grading.resume import GradingMemory

        found, people = _find(submissions, roster, lesson)
        bar = functools.partial(tqdm, None, "grading", unit="notebook", delay=0.1)
        with GradingMemory(report) as memory:
            record = report / NOTEBOOK
            graded = grade(found, crew=crew, memory=memory, record=record, comparer=comparer, progress=bar)
            status = _write_report(graded, len(found), report, people, system, in_class)
    return 0 if exit_zero and not graded.stopped else status


def check_work(folder: Path, lesson: str | None = None) -> int:
    """Show a learner's own scores, by the grader's rule: an outcome for each exercise, and the total.

    `folder` holds copies of the lessons; `lesson` (such as 01) limits what is checked.
    Returns the exit status, and raises, as `run` does.
    """
    from tqdm import tqdm

    from course_utils.exercises.outcome import Outcome, Stage
    from course_utils.grading.batch import grade
    from course_utils.grading.report import NO_SCORE
    from course_utils.grading.submissions import Submission

    paths = ((folder / f"{name}.ipynb", each) for name, each in _read_lessons(lesson)[1].items())
    submissions = [Submission("you", each.name, path, each) for path, each in paths if path.exists()]
    if not submissions:
        raise CourseError(f"there is no lesson in {folder}; `make lab` puts a copy of each lesson there.")
    _end_as_ctrl_c()
    with _make_crew() as crew:
        graded = grade(submissions, crew=crew, progress=functools.partial(tqdm, None, "checking", unit="lesson"))
    for name, rows in itertools.groupby(graded.scores, key=lambda row: row.lesson):
        print(name)
        for row in rows:
            said = f"{row.exercise}: no score"
            if row.stage not in NO_SCORE:
                said = Outcome(row.exercise, Stage(row.stage), row.sentence, row.cause, possible=row.possible, hints=1)
            print(textwrap.indent(str(said), "  "))
            if row.reason:
                print(f"    {row.reason}")
    print(f"total: {sum(row.points for row in graded.scores)} of {sum(row.possible for row in graded.scores)}")
    return int(any(row.look_by_hand for row in graded.scores))


def _end_as_ctrl_c():
    for name in {"SIGTERM", "SIGHUP"} & {*dir(signal)}:  # nohup's choice stays, Windows has one of the two
        if signal.getsignal(number := getattr(signal, name)) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _read_lessons(number):
    from course_utils.grading.lessons import read_lessons

    lessons = read_lessons()
    return lessons, {name: each for name, each in lessons.items() if number in (None, name[:2])}


def _find(place, roster, number):
    from course_utils.grading.roster import add_roster, read_roster
    from course_utils.grading.submissions import find_submissions

    lessons, chosen = _read_lessons(number)
    found = [each for each in find_submissions(place, lessons) if each.lesson is None or each.lesson.name in chosen]
    people = read_roster(roster) if roster else {}
    if people:
        wanted = {name: each for name, each in chosen.items() if each.exercises}
        handed_in = wanted.keys() & {each.name for each in found}
        found = add_roster(found, people, {name: wanted[name] for name in wanted if name in handed_in or not handed_in})
    if not found:
        raise CourseError(f"there is nothing to grade in {place}: it should hold student/lesson.ipynb.")
    return found, people


def _make_crew(engine="auto", jobs=None, scheduler=None):
    from course_utils.grading.sandbox.crew import DaskCrew, make_engine
    from course_utils.grading.sandbox.tasks import cores

    try:
        return DaskCrew(scheduler, engine) if scheduler else make_engine(engine, jobs or cores())
    except ModuleNotFoundError as error:
        raise CourseError(f"{error.name} is missing: pip install 'course-utils[cluster]'.") from None
    except (OSError, ValueError) as error:
        raise CourseError(f"{error}.") from None


def _write_report(graded, submissions, report, people, system, in_class):
    from course_utils.grading.report import CLASS_PAGE, looks, table, write_gradebook, write_pages, write_scores

    try:
        write_scores(graded.scores, report, graded.isolation)
        write_gradebook(graded.scores, report, people, system)
        write_pages(graded.scores, report, graded.isolation, in_class)
    except OSError as error:
        raise CourseError(f"the report cannot be written to {report}: {error.strerror}.") from None
    print(table(graded.scores), "", *graded.isolation, *filter(None, [graded.problem]), sep="\n")
    if graded.known:
        print(f"{graded.known} of {submissions} were graded before and have not changed.")
    if graded.stopped:
        print("Stopped. What had run until then is graded and kept; the same command goes on from here.")
    print(f"The report is {report / CLASS_PAGE}.")
    if by_hand := len(looks(graded.scores)):
        print(f"To look at by hand: {by_hand}, which are listed above and in the report.")
    return min(by_hand, 1)
