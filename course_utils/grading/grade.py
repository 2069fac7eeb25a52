"""The commands: grade a class, or check a learner's own work."""

import functools
import itertools
import signal
import textwrap
from pathlib import Path
from typing import Any

from course_utils.exercises.declaration import read_declarations
from course_utils.grading.desk import Desk
from course_utils.grading.marks import FILE, Rules, decide, read_decisions, read_weights, write_gradebook
from course_utils.grading.report import CLASS_PAGE, NO_SCORE, looks, table, write_pages, write_scores
from course_utils.grading.sandbox.fork import make_engine
from course_utils.grading.sandbox.tasks import cores
from course_utils.grading.sandbox.walls import PACKAGE, readable
from course_utils.grading.verdict import NOTEBOOK, Comparer, make_verdict_notebook
from course_utils.root import ROOT, CourseError, require, write_whole


def run(
    submissions: Path,
    report: Path = Path("report"),
    roster: Path | None = None,
    lesson: str | None = None,
    engine: str = "auto",
    jobs: int | None = None,
    system: str = "moodle",
    live: Path | None = None,
    exit_zero: bool = False,
    student: str | None = None,
    similar: bool = False,
    **worth: Any,
) -> int:
    """Grade `submissions` (a folder, a zip or a notebook), write the `report` folder, and print a table.

    The parameters are the options of the command (`--help`); `system` is `--for`, and `worth` are those about what
    points count (`_read_rules`). Returns the exit status: 0 graded, 1 some need a look by hand (0 with `exit_zero`,
    unless it was stopped). Raises `CourseError` if nothing can be run.
    """
    if not submissions.exists():
        raise CourseError(f"{submissions} does not exist: give the folder that holds a folder for each student.")
    for place in (submissions, report, ROOT):
        if any(place.resolve().is_relative_to(library) for library in (*readable(), PACKAGE)):
            raise CourseError(f"{place} is in a library's folder, which answers may read: take another place.")
    in_class = None
    if live:
        from course_utils.authoring.item_analysis import read_class

        in_class = read_class(live)
    rules = _read_rules(**worth)
    _end_as_ctrl_c()
    # What takes longest is started first, each in a process of its own: the imports of torch, and of pytest with nbval.
    with _make_crew(engine, jobs) as crew, Comparer() as comparer, Desk() as desk:
        from tqdm import tqdm

        from course_utils.grading.batch import grade
        from course_utils.grading.resume import GradingMemory

        found, people = _find(submissions, roster, lesson, desk)
        if student is not None:
            require("Students", student, {each.student for each in found}, "The folder that you grade")
        bar = functools.partial(tqdm, desc="grading", unit="notebook", delay=0.1)
        with GradingMemory(report, student) as memory:
            decisions = read_decisions(report)
            graded = grade(found, crew=crew, desk=desk, memory=memory, comparer=comparer, progress=bar)
            graded.scores, unused = decide(rules.with_parts(graded.scores), decisions)
            status = _write_report(graded, len(found), report, people, system, in_class, rules)
            for line in unused:
                print(f"{FILE}, line {line}: nothing here has what it names.")
            if similar:
                print(_compare_texts(found, report, desk))
    return 0 if exit_zero and not graded.stopped else status


def check_work(folder: Path, lesson: str | None = None) -> int:
    """Show a learner's own scores, by the grader's rule, in a `folder` of lessons; status and errors as of `run`."""
    from tqdm import tqdm

    from course_utils.exercises.outcome import Outcome, Stage
    from course_utils.grading.batch import grade
    from course_utils.grading.submissions import Submission, read_lessons

    paths = {folder / f"{name}.ipynb": each for name, each in read_lessons().items() if lesson in (None, name[:2])}
    submissions = [Submission("you", each.name, path, each) for path, each in paths.items() if path.exists()]
    if not submissions:
        raise CourseError(f"there is no lesson in {folder}; `make lab` puts a copy of each lesson there.")
    _end_as_ctrl_c()
    with _make_crew() as crew:
        graded = grade(submissions, crew=crew, progress=functools.partial(tqdm, desc="checking", unit="lesson"))
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


def _read_rules(late=0.0, weight=(), drop_lowest=0, partial=False):
    from course_utils.grading.submissions import read_lessons

    if not 0 <= late <= 100 or drop_lowest < 0:
        raise CourseError("--late is a number from 0 to 100, and --drop-lowest one from 0 on.")
    known = [*(each.name for each in read_declarations()), *read_lessons()]
    return Rules(late / 100, read_weights(weight, known), drop_lowest, partial)


def _compare_texts(found, report, desk):
    """Write the page of students whose texts are alike; returns a line about it."""
    from course_utils.exercises.answers import read_page
    from course_utils.grading.answers import read_texts
    from course_utils.grading.similar import write_similar
    from course_utils.grading.submissions import read_submission

    students, unread = {}, 0
    for each in (one for one in found if one.lesson and one.path):
        try:
            texts = desk.ask(read_texts, read_submission(each), each.lesson.name)
            students.setdefault(each.student, {}).update(texts)
        except CourseError:  # the report has its row and says why
            unread += 1
    known = {each.name: [each.task, *read_page(each.name).answers] for each in read_declarations()}
    said = write_similar(students, known, report)
    return f"{said}; {unread} notebooks could not be read." if unread else f"{said}."


def _end_as_ctrl_c():
    for name in {"SIGTERM", "SIGHUP"} & {*dir(signal)}:  # nohup's choice stays, Windows has one of the two
        if signal.getsignal(number := getattr(signal, name)) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _find(place, roster, number, desk):
    from course_utils.grading.roster import add_roster, read_roster
    from course_utils.grading.submissions import find_submissions, name_by_cells, read_lessons

    lessons = read_lessons()
    chosen = {name: each for name, each in lessons.items() if number in (None, name[:2])}
    found = name_by_cells(find_submissions(place, lessons), lessons, desk)
    found = [each for each in found if number in (None, each.name[:2]) or not each.lesson]
    handed_in = {each.name: chosen[each.name] for each in found if each.name in chosen}
    if people := read_roster(roster) if roster else {}:
        found = add_roster(found, people, handed_in or chosen)
    if not found:
        raise CourseError(f"there is nothing to grade in {place}: it should hold student/lesson.ipynb.")
    return found, people


def _make_crew(engine="auto", jobs=None):
    try:
        return make_engine(engine, jobs or cores())
    except (OSError, ValueError) as error:
        raise CourseError(f"{error}.") from None


def _write_report(graded, submissions, report, people, system, in_class, rules):
    try:
        if any(row.expected for row in graded.scores):
            write_whole(report / NOTEBOOK, make_verdict_notebook(graded.scores))
        write_scores(graded.scores, report, graded.isolation)
        write_gradebook(graded.scores, report, people, system, rules)
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
