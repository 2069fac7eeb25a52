"""The rules of a class: who may report what, what the instructor can press, and what follows from both.

Everything here is what learners say of themselves, so nothing of it is ever scored.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from course_utils.exercises.causes import BESIDES
from course_utils.exercises.declaration import Prediction, predictions_of
from course_utils.exercises.engine import Exercise, exercises_of
from course_utils.exercises.outcome import Stage
from course_utils.lessons import inventory
from course_utils.live.material import lessons, plan_of
from course_utils.live.people import People
from course_utils.live.store import Store
from course_utils.root import CourseError, find_free_path

SCREENS = {"join": "Join", "votes": "Predict", "class": "Who is where", "help": "Help", "plan": "Plan"}
PHASES = {"vote": "Vote", "discuss": "Discuss", "again": "Vote again", "reveal": "Reveal"}
COUNTDOWNS = ("0", "30", "60", "120")  # seconds; 0 takes it away
SWITCHES = ("yes", "no")
MOST_REPORTS = 1000  # of one learner
BEGINNING = {"screen": "join", "names": "no", "waits": "yes", "locked": "no", "lesson": "01", "countdown": None}


class Unknown(Exception):
    """Nothing that a lesson reports, or no button of the page: what it is instead, as a sentence."""


class Report(NamedTuple):
    """What a learner did. Of an exercise, `said` is the stage; of a prediction, the choice, made in `phase`.

    Of the inventory, it is the number of right answers.
    """

    learner: int
    kind: str
    name: str
    said: str
    cause: str
    phase: str
    at: float


Found = TypeVar("Found")


def _until_change(find: Callable[..., Found]) -> Callable[..., Found]:
    """Remember what a method of a room finds until anything that the room keeps changes: many pages show the same."""

    @wraps(find)
    def remember(room: "Room", *about: Any) -> Found:
        derived, key = room.store.derived, (find.__name__, about)
        if key not in derived:
            derived[key] = find(room, *about)
        return derived[key]

    return remember


class Room:
    """One class. `clock` gives the seconds since 1970; with a `roster`, only its names come in."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, roster: Sequence[str] = ()) -> None:
        self.store, self.clock = Store(path), clock
        self.exercises = {each.name: each for each in exercises_of()}
        self.predictions = {each.name: each for each in predictions_of()}
        self.people = People(self.store, roster)
        self._begin(path.parent)
        kept = self.store.kept
        self.key, self.began, self.summary = kept["key"], kept["began"], kept["summary"]
        self._reports = [Report(*value) for key, value in kept.items() if key.startswith("report ")]
        self.people.reported.update(each.learner for each in self._reports)
        self.choose(kept["lesson"])
        self.store.save()

    def _begin(self, folder: Path) -> None:
        began = self.clock()
        summary = find_free_path(folder / time.strftime("class-%Y-%m-%d-%H%M%S.json", time.localtime(began)))
        first = {"key": secrets.token_urlsafe(24), "began": began, "summary": summary.name, **BEGINNING}
        for key, value in first.items():
            if key not in self.store.kept:
                self.store.put(key, value)

    # ---- what there is

    @property
    def lesson(self) -> int:
        """The number of the lesson that the class is at."""
        return int(self.store.kept["lesson"])

    @property
    @_until_change
    def reports(self) -> list[Report]:
        """What all who are here have reported, in the order in which it came."""
        here, resolve = self.people.here, self.people.resolve
        whose = [(resolve(each.learner), each) for each in self._reports]
        return [
            each if each.learner == number else each._replace(learner=number)
            for number, each in whose
            if number in here
        ]

    @property
    def asked(self) -> Prediction:
        """The prediction that the class is at."""
        return self.predictions[self._of_lesson("prediction", "")]

    @property
    def predictions_here(self) -> list[Prediction]:
        """The predictions of the lesson, in the order in which it asks them."""
        return predictions_of(self.lesson)

    @property
    def exercises_here(self) -> list[Exercise]:
        """The exercises of the lesson."""
        return exercises_of(self.lesson)

    @property
    def lessons_seen(self) -> list[int]:
        """The lessons that the class has been at, in order."""
        return sorted(int(key.removeprefix("seen ")) for key in self.store.kept if key.startswith("seen "))

    def switched_on(self, what: str) -> bool:
        """Whether `names` are shown to the room, explanations are sealed (`waits`), or the room is `locked`."""
        return self.store.kept[what] == "yes"

    def phase(self, prediction: str) -> str:
        """How far the room is with a prediction: one of `PHASES`."""
        return self.store.kept.get(f"phase {prediction}", "vote")

    def seconds_left(self) -> int | None:
        """What is left of the countdown, at least 0; None where none was started."""
        ends = self.store.kept["countdown"]
        return None if ends is None else max(0, round(ends - self.clock()))

    def minute(self) -> int | None:
        """The minute of the plan; None where the timer stands."""
        began = self._of_lesson("timer", None)
        return None if began is None else int(self.clock() - began) // 60

    def step(self) -> int | None:
        """The row of the plan where the instructor is; None where the timer stands."""
        return None if self.minute() is None else int(self._of_lesson("at", "0"))

    def opened(self) -> dict[str, bool]:
        """By prediction, whether its explanation is open to learners; empty where it opens as each one commits."""
        if not self.switched_on("waits"):
            return {}
        return {each.name: self.phase(each.name) == "reveal" for each in self.predictions_here}

    def _of_lesson(self, what: str, default: Any) -> Any:
        return self.store.kept.get(f"{what} {self.lesson}", default)

    # ---- what learners do

    def report(self, learner: int, content: Mapping[str, Any]) -> bool:
        """Keep what a learner did; whether it is new. Raises `Unknown` for what no lesson could have reported."""
        given = [content.get(each) for each in ("id", "kind", "name", "said", "cause")]
        if not all(isinstance(each, str) for each in given) or not 0 < len(given[0]) <= 64:
            raise Unknown("This is no report")
        if self.people.reported[learner] >= MOST_REPORTS:
            raise Unknown("These were too many reports")
        key, kind, name, said, cause = given
        if said not in self._can_say(kind, name):
            raise Unknown("No lesson reports this")
        cause = cause if kind == "exercise" and _says(self.exercises[name], cause) else ""
        phase = self.phase(name) if kind == "prediction" else ""
        key = f"report {learner} {key}"
        if key in self.store.kept:
            return False
        report = Report(learner, kind, name, said, cause, phase, self.clock())
        self.store.put(key, report)
        self._reports.append(report)
        self.people.reported[learner] += 1
        return True

    def _can_say(self, kind: str, name: str) -> Collection[str]:
        """What a lesson can report of something with this name; nothing where no lesson has it."""
        if kind == "prediction":
            return self.predictions[name].options if name in self.predictions else ()
        names, said = {
            "exercise": (self.exercises, [*map(str, Stage)]),
            "question": (self.exercises, ("right", "wrong")),
            inventory.KIND: (inventory.WHEN, inventory.SCORES),
        }.get(kind, ((), ()))
        return said if name in names else ()

    def scores(self) -> dict[int, dict[str, int]]:
        """What each learner had right in the inventory, before the course and after it."""
        found: dict[int, dict[str, int]] = {}
        for each in self.reports:
            if each.kind == inventory.KIND:
                found.setdefault(each.learner, {})[each.name] = int(each.said)
        return found

    @_until_change
    def votes(self, prediction: str) -> dict[int, list[str]]:
        """What each learner said at first and then, where "" is nothing.

        As in the lesson, the first choice stays. Of those in the second vote, the last one counts. A vote after the
        reveal counts for neither.
        """
        found: dict[int, list[str]] = {}
        for each in self.reports:
            if (each.kind, each.name) != ("prediction", prediction) or each.phase == "reveal":
                continue
            mine = found.setdefault(each.learner, ["", ""])
            if each.phase == "again":
                mine[1] = each.said
            elif not mine[0]:
                mine[0] = each.said
        return found

    def rounds(self, prediction: str) -> list[Counter[str]]:
        """How many chose each option, in the first vote and in the second one."""
        votes = self.votes(prediction).values()
        return [Counter(mine[number] for mine in votes if mine[number]) for number in (0, 1)]

    @_until_change
    def tries(self, lesson: int) -> dict[tuple[int, str], list[Report]]:
        """What each learner tried in each exercise of a lesson, up to the first pass."""
        found: dict[tuple[int, str], list[Report]] = {}
        for each in self.reports:
            if each.kind == "exercise" and self.exercises[each.name].lesson == lesson:
                mine = found.setdefault((each.learner, each.name), [])
                if not mine or mine[-1].said != Stage.PASSED:
                    mine.append(each)
        return found

    def questions(self) -> dict[str, list[int]]:
        """By exercise, how many questions about their own code learners have answered, and how many of them right."""
        said = Counter((each.name, each.said) for each in self.reports if each.kind == "question")
        return {name: [said[name, "right"] + said[name, "wrong"], said[name, "right"]] for name, _ in said}

    # ---- what the instructor does

    def choose(self, lesson: str) -> None:
        """Go to a lesson (`01`), where it was left. Raises `CourseError` where there is none, or its questions are not
        sealed yet.
        """
        plan = plan_of(int(lesson))
        if lesson not in lessons():
            raise CourseError(f"Lesson {lesson} has no sealed questions and exercises yet. First run: make notebooks")
        self.plan = plan
        self.store.put("lesson", lesson)
        self.store.put(f"seen {int(lesson)}", True)
        self.store.put("countdown", None)
        if self._of_lesson("prediction", "") not in self.predictions:
            self.store.put(f"prediction {self.lesson}", self.predictions_here[0].name)

    def buttons(self) -> dict[str, tuple[Collection[str], Callable[[str], None]]]:
        """What can be pressed: with which values, and what that does."""
        people, put = self.people.here, self.store.put
        numbers = [str(number) for number in people]
        return {
            "screen": (SCREENS, partial(put, "screen")),
            "names": (SWITCHES, partial(put, "names")),
            "waits": (SWITCHES, partial(put, "waits")),
            "locked": (SWITCHES, partial(put, "locked")),
            "code": (("new",), lambda _: self.people.change_code()),
            "remove": (numbers, lambda value: self.people.remove([int(value)])),
            "remove_address": ({each.address for each in people.values()}, self._remove_address),
            "remove_later": (numbers, self._remove_later),
            "lesson": (lessons(), self.choose),
            "prediction": ([each.name for each in self.predictions_here], self._ask),
            "ask": (self.predictions, self._ask_from_slide),
            "phase": (PHASES, self._set_phase),
            "countdown": (COUNTDOWNS, self._count_down),
            "timer": (("start", "stop"), self._start_or_stop),
            "at": ([str(number) for number in range(len(self.plan))], partial(put, f"at {self.lesson}")),
        }

    def act(self, what: str, value: str) -> None:
        """Do what the instructor pressed. Raises `Unknown` for what is on no button."""
        values, do = self.buttons().get(what, ((), None))
        if value not in values:
            raise Unknown("There is no such button")
        do(value)

    def _remove_address(self, address: str) -> None:
        self.people.remove([number for number, each in self.people.here.items() if each.address == address])

    def _remove_later(self, first: str) -> None:
        self.people.remove([number for number in self.people.here if number >= int(first)])

    def _ask(self, prediction: str) -> None:
        self.store.put(f"prediction {self.lesson}", prediction)
        self.store.put("countdown", None)

    def _ask_from_slide(self, prediction: str) -> None:
        self.choose(f"{self.predictions[prediction].lesson:02d}")
        self._ask(prediction)
        self.store.put("screen", "votes")

    def _set_phase(self, phase: str) -> None:
        self.store.put(f"phase {self.asked.name}", phase)
        self.store.put("countdown", None)

    def _count_down(self, seconds: str) -> None:
        self.store.put("countdown", self.clock() + int(seconds) if int(seconds) else None)

    def _start_or_stop(self, said: str) -> None:
        self.store.put(f"timer {self.lesson}", self.clock() if said == "start" else None)
        self.store.put(f"at {self.lesson}", "0")


def _says(exercise: Exercise, cause: str) -> bool:
    """Whether the course itself could have said this of an answer; a learner's own words are not projected."""
    known = {mistake.message for mistake in exercise.mistakes}
    return all(each in known for each in cause.split(BESIDES))
