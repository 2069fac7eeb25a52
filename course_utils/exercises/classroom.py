"""What a learner calls in a lesson. Nothing here raises: whatever comes in, a sentence comes out."""

import contextlib
import functools
import gc
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from course_utils.exercises import saved_progress as saved
from course_utils.exercises.asking import ask_below, tell_answered
from course_utils.exercises.declaration import name_of
from course_utils.exercises.engine import Exercise, exercises_of, find, predictions_of
from course_utils.exercises.evidence import codes_of
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.predictions import SEALED, WAITS, follow_class, predict, why
from course_utils.exercises.recorded import VISIBLE_SEED, NotRecorded, other_torch
from course_utils.exercises.session import LOST, NOT_KEPT, joined_class, session
from course_utils.exercises.timelines import NoComparison, Timelines, compare_runs, tell_first_event
from course_utils.root import CourseError, has_answers
from course_utils.show import Note, page_templates

__all__ = ["check", "hint", "predict", "progress", "replay", "solution", "why"]  # for lessons
__all__ += ["LOST", "SEALED", "VISIBLE_SEED", "WAITS", "Note", "Progress", "follow_class", "joined_class", "session"]

ATTEMPTS_BEFORE_SOLUTION = 3
ALL_DONE = "You have passed every exercise and made every prediction."
OLDER = "The cell that you ran last for `{0}` stopped with an error, so `{0}` is an older one: mend that cell first."
NOT_RUN = "This is the same function as at the last check: if you have edited its cell, run that cell first."
ONLY_FIRST = "On the first inputs it was right; on these others it is not yet."


def check(*answers: object) -> Outcome:
    """Check your answer to an exercise: `check(scale_gradient)`, the function itself, without calling it.

    Runs your function and the reference answer on the same inputs and compares everything they do. Never raises.
    """
    if len(answers) != 1:
        return Outcome("check", Stage.NOT_AN_EXERCISE, "Give one function: check(my_function).")
    (answer,) = answers
    try:
        exercise = _identify(answer, "check")
    except NoExercise as error:
        return Outcome("check", Stage.NOT_AN_EXERCISE, str(error))
    if isinstance(answer, Exercise):
        return exercise.not_attempted("run the answer cell first (Shift+Enter), then run this one again.")
    if _is_older(answer, exercise.name):
        return Outcome("check", Stage.NOT_AN_EXERCISE, OLDER.format(exercise.name))
    try:
        outcome = _try_answer(exercise, answer)
    except NotRecorded as error:
        return Outcome("check", Stage.NOT_AN_EXERCISE, str(error))
    except KeyboardInterrupt:
        return Outcome(exercise.name, Stage.RAISED, "You interrupted the check.", possible=exercise.points)
    if outcome.stage is Stage.NOT_ATTEMPTED:
        return outcome
    outcome = _add_notes(exercise, outcome)
    _save_attempt(exercise, outcome)
    if outcome.passed:
        session.failed_code.pop(exercise.name, None)
        ask_below(exercise, answer)
    elif session.fails_again(exercise.name, _own_code(answer)) and not outcome.note:
        return replace(outcome, note=NOT_RUN)
    return outcome


def _try_answer(exercise: Exercise, answer: Callable) -> Outcome:
    """Try an answer on the inputs that everybody gets, and what passes there on others."""
    outcome, seed = exercise.check(answer, VISIBLE_SEED), VISIBLE_SEED
    if outcome.passed:
        seed = exercise.fresh_seed()
        fresh = exercise.check(answer, seed)
        outcome = outcome if fresh.passed else replace(fresh, note=ONLY_FIRST)
    session.seeds[exercise.name] = seed
    return tell_first_event(exercise, answer, seed, outcome)


def _add_notes(exercise: Exercise, outcome: Outcome) -> Outcome:
    """The outcome with what the class says to it, after it was told, and with what is said once."""
    notes = [outcome.note, *joined_class.tell("exercise", exercise.name, str(outcome.stage), outcome.cause)]
    if not has_answers():
        notes.append(session.say_once(other_torch(exercise.lesson)))
    notes.append(session.warn_once_of_loss())
    return replace(outcome, note=" ".join(note for note in notes if note))


def _save_attempt(exercise: Exercise, outcome: Outcome) -> None:
    record = saved.of_exercise(exercise.name)
    counted = {"attempts": record["attempts"] + 1, "passed": record["passed"] or outcome.passed}
    saved.save("exercises", exercise.name, record | counted)


def _own_code(answer: Callable) -> object:
    """What is another object after the answer's cell has run again."""
    codes = codes_of(answer)
    # What `contextlib.contextmanager` makes is wrapped, and all such wrappers share their code.
    return answer if inspect.isclass(answer) or not codes else codes[-1]


def _is_older(answer: object, name: str) -> bool:
    """Whether a later cell should have defined the answer anew, and failed. `In` has every cell, also bad syntax."""
    cells = vars(sys.modules["__main__"]).get("In", ())
    cells = [f"{cell}\n" for cell in cells if re.search(rf"^(def|class) {name}\b", cell, re.MULTILINE)]
    with contextlib.suppress(OSError, IndexError):  # without a source, or without code
        source = inspect.getsource(codes_of(answer)[0])
        return any(source in cell for cell in cells) and source not in cells[-1]
    return False


class NoExercise(CourseError):
    """What was given is no answer to an exercise; the message says what to give instead."""


def _identify(answer: object, verb: str) -> Exercise:
    """The exercise that is meant, by the answer or its placeholder; raises `NoExercise`. `verb` is what was called."""
    if isinstance(answer, Exercise):
        return answer
    if problem := _find_problem(answer, verb):
        raise NoExercise(problem)
    try:
        exercise = find(_name_of(answer))
    except CourseError as error:
        raise NoExercise(_tell_unknown(answer, error)) from None
    if isinstance(answer, str):
        raise NoExercise(f"Give the function itself, without quotes: {verb}({answer}).")
    return exercise


def _name_of(answer: object) -> str | None:
    """The name of a function or a class, which may also be given in quotes; None for anything else."""
    with contextlib.suppress(Exception):  # an object may raise when it is asked
        name = answer if isinstance(answer, str) else answer.__name__
        return name if isinstance(name, str) else None


def _find_problem(answer: object, verb: str) -> str:
    """Why no exercise can be found by something that was given, in words; empty where it can."""
    if isinstance(answer, functools.partial):
        return "This is a `functools.partial`, which has no name. Give the function that you wrote with `def`."
    if inspect.isfunction(answer) and inspect.iscoroutinefunction(answer):
        return f"`{answer.__name__}` is written with `async def`, so a call gives no result. Write it with `def`."
    if not isinstance(answer, str) and not callable(answer):
        value = "None" if answer is None else f"a value of type {type(answer).__name__}"
        mend = "If you called the function inside the brackets, leave the call away."
        return f"Give the function itself, such as {verb}(my_function): this is {value}. {mend}"
    name = _name_of(answer)
    if name is None:
        return f"This is an object of the class {type(answer).__name__}. Give the function that you wrote with `def`."
    if name == "<lambda>":
        return "A lambda has no name by which its exercise could be found. Write the answer with `def`."
    if inspect.ismethod(answer):
        return f"`{name}` is a method of an object. Give the function or the class that you wrote in the answer cell."
    return ""


def _tell_unknown(answer: object, error: CourseError) -> str:
    """What to do about a name that no exercise has; `error` says so."""
    if isinstance(answer, str):
        return f"Give the function itself, without quotes. {error}"
    closed = gc.get_referents(*(getattr(answer, "__closure__", None) or ()))  # a variable without a value: none
    inside = [getattr(each, "__name__", "") for each in closed]
    for exercise in exercises_of():
        if exercise.name in inside:
            hidden = exercise.name
            return f"A decorator hides the name of {hidden}: put `@functools.wraps(function)` above what it returns."
    return f"{error} Keep the name that the answer cell came with."


def hint(answer: object) -> Note:
    """The next hint for an exercise: from a nudge to a piece of code."""
    try:
        found = _identify(answer, "hint")
    except NoExercise as error:
        return Note("hint: no exercise found", (str(error),))
    hints = found.all_hints
    total = len(hints)
    record = saved.of_exercise(found.name)
    number = min(record["hints"] + 1, total)
    saved.save("exercises", found.name, record | {"hints": number})
    way_out = f"The way out: solution({found.name}, now=True)" if has_answers() else "Your instructor has the answers."
    last = f"That was the last hint. {way_out}"
    further = last if number == total else f"Run this again for the next hint, or check({found.name})."
    return Note(f"Hint {number} of {total} for {found.name}", (hints[number - 1], further), symbol="→")


def replay(answer: object) -> Timelines | Note:
    """What your answer does beside what a right one does, event by event, up to the first that differs.

    For the first input on which the answer fails, of those that the last check tried.
    """
    try:
        found = _identify(answer, "replay")
    except NoExercise as error:
        return Note("replay: no exercise found", (str(error),))
    title = f"replay({found.name}): nothing to show"
    if isinstance(answer, Exercise):
        return Note(title, ("Run the answer cell first (Shift+Enter), then run this one again.",))
    try:
        return compare_runs(found, answer, session.seeds.get(found.name, VISIBLE_SEED))
    except NoComparison as reason:
        return Note(title, (str(reason),))
    except Exception as error:  # an answer may do anything to what records it
        return Note(title, (f"Your answer cannot be watched: {type(error).__name__}.",))


def solution(answer: object, now: bool = False) -> Note:
    """A reference answer: after you passed, after three attempts, or at once with `now=True`."""
    try:
        found = _identify(answer, "solution")
    except NoExercise as error:
        return Note("solution: no exercise found", (str(error),))
    if not has_answers():
        line = f"This edition of the course has no answers in it: your instructor has them. Try hint({found.name})."
        return Note(f"solution({found.name}): not here", (line,))
    record = saved.of_exercise(found.name)
    left = ATTEMPTS_BEFORE_SOLUTION - record["attempts"]
    if not (now or record["passed"] or left <= 0):
        line = f"It shows after {left} more {'attempt' if left == 1 else 'attempts'}, after a pass, or with now=True."
        return Note(f"solution({found.name}): not yet", (line,))
    return Note(f"One answer to {found.name}", symbol="→", code=found.source.rstrip())


class Done(NamedTuple):
    """What is done of a lesson: exercises passed, of how many, and predictions made, of how many."""

    lesson: int
    title: str
    notebook: str  # the name of its file
    passed: int
    exercises: int
    made: int
    predictions: int

    @property
    def is_all(self) -> bool:
        """Whether nothing is left."""
        return (self.passed, self.made) == (self.exercises, self.predictions)


@dataclass(frozen=True, repr=False)
class Progress:
    """The dashboard: what is done of each lesson, and where to go on."""

    rows: Sequence[Done]
    kept: bool
    answered: str = ""  # how many questions about the learner's own code, in a sentence

    @property
    def next_lesson(self) -> Done | None:
        """The lesson to go on with: the last one begun, or the next that is not done; None where all is done."""
        last = max((row.lesson for row in self.rows if row.passed or row.made), default=0)
        left = [row for row in self.rows if not row.is_all]
        return next((row for row in left if row.lesson >= last), left[0] if left else None)

    def __repr__(self) -> str:
        wide = max(len(row.title) for row in self.rows)
        lines = [f"    {'lesson':<{wide}}  exercises  predictions"]
        for row in self.rows:
            exercises, predictions = f"{row.passed} of {row.exercises}", f"{row.made} of {row.predictions}"
            lines.append(f"{row.lesson:02d}  {row.title:<{wide}}  {exercises:<9}  {predictions}")
        lines += [self.answered] if self.answered else []
        lines.append(
            f"Go on with {self.next_lesson.lesson:02d}, {self.next_lesson.title}." if self.next_lesson else ALL_DONE
        )
        return "\n".join(lines if self.kept else [*lines, NOT_KEPT])

    def _repr_html_(self) -> str:
        page = page_templates().get_template("progress.html.j2")
        return page.render(view=self, all_done=ALL_DONE, not_kept=NOT_KEPT)


def progress() -> Progress:
    """Your progress over all lessons."""
    made = saved.load()["predictions"]
    rows = []
    for lesson in sorted({each.lesson for each in exercises_of()}):
        exercises, predictions = exercises_of(lesson), predictions_of(lesson)
        passed = sum(saved.of_exercise(each.name)["passed"] for each in exercises)
        predicted = sum(each.name in made for each in predictions)
        rows.append(Done(lesson, *name_of(lesson), passed, len(exercises), predicted, len(predictions)))
    return Progress(rows, saved.location() is not None, tell_answered())
