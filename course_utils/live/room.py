"""The rules of a class: who may report what, what the room sees of it and when, and the file that stays at the end.

Everything here is what learners say of themselves, so nothing of it is ever scored.
"""

import hashlib
import json
import re
import secrets
import sqlite3
import time
from collections import Counter, defaultdict, namedtuple
from collections.abc import Callable, Mapping
from hmac import compare_digest
from pathlib import Path
from statistics import median_low
from typing import Any

from tornado.web import HTTPError

from course_utils.authoring.source import choose, read_source, tags_of
from course_utils.exercises.engine import Exercise, exercises_of, predictions_of
from course_utils.exercises.outcome import Stage
from course_utils.exercises.recorded import slip_sentences
from course_utils.root import CourseError, write_whole

PHASES = {"vote": "Vote", "discuss": "Discuss", "again": "Vote again", "reveal": "Reveal"}
LETTERS = "ACDEFGHJKLMNPQRTUVWXY34679"  # of room codes: none looks like another
MOST_LEARNERS, MOST_REPORTS, MOST_NAME = 400, 300, 40
MOST_CAUSES = 5
STUCK = 10 * 60  # seconds
VERSION = 1
OPEN = """PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
PRAGMA wal_autocheckpoint=100;
CREATE TABLE IF NOT EXISTS kept (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, value TEXT NOT NULL);"""
ROW = re.compile(r"^\| (\d+) to (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)

# What a learner did. Of an exercise, `said` is the stage; of a prediction, the choice, made in `phase`.
Report = namedtuple("Report", "learner kind name said cause phase at")


class Store:
    """What a class keeps, in one SQLite file: `kept`, values by their keys, in the order in which they came.

    Everything is with the system before it is answered, so that a kill loses nothing. A power cut may lose the last
    pages: to wait for the disk each time would cost a full class seconds. Raises `CourseError` where another process
    has the file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # it has names, and the instructor's key
        self._file = sqlite3.connect(path, isolation_level=None, timeout=0)
        self.close = self._file.close  # then another process may have it
        try:
            self._file.executescript(OPEN)
        except sqlite3.OperationalError:
            raise CourseError("A class is running here already. End it first, with Ctrl-C in its window.") from None
        rows = self._file.execute("SELECT key, value FROM kept ORDER BY number")
        self.kept: dict[str, Any] = {key: json.loads(value) for key, value in rows}

    def put(self, key: str, value: Any) -> None:
        """Keep anything that JSON can hold, in the place of what had the key."""
        insert = "INSERT INTO kept (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        self._file.execute(insert, (key, json.dumps(value)))
        self.kept[key] = value


class Room:
    """One class on one lesson. `clock` gives the seconds since 1970."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.store, self.clock, kept = (store := Store(path)), clock, store.kept
        self.exercises = {each.name: each for each in exercises_of()}
        self.asked = {each.name: each for each in predictions_of()}
        if "code" not in kept:
            store.put("key", secrets.token_urlsafe(24))
            store.put("began", clock())
            store.put("code", "".join(secrets.choice(LETTERS) for _ in range(6)))
        self.key, self.code, self.began = (kept[each] for each in ("key", "code", "began"))
        learners = [(key, value) for key, value in kept.items() if key.startswith("learner ")]
        self.names = {number: name for number, (_, name) in enumerate(learners, start=1)}
        self._numbers = {key: number for number, (key, _) in enumerate(learners, start=1)}
        self.reports = [Report(*value) for key, value in kept.items() if key.startswith("report ")]
        self.choose(kept.get("lesson", "01"))

    def choose(self, lesson: str) -> None:
        """Go to a lesson (`01`). Raises `CourseError` where there is none."""
        self.lesson, self.plan = int(lesson), plan_of(int(lesson))
        self.predictions = {name: each for name, each in self.asked.items() if each.lesson == self.lesson}
        if self.store.kept.get("lesson") != lesson:
            for key, value in {"lesson": lesson, "timer": None, "prediction": next(iter(self.predictions), "")}.items():
                self.store.put(key, value)

    def find_learner(self, token: str) -> int | None:
        """The number of the learner who has this token; None where nobody has."""
        return self._numbers.get(_digest(token))

    def join(self, content: Mapping[str, Any]) -> dict[str, str] | None:
        """Let in who knows the room code, or is here already: a token, of which a digest is kept, and the name."""
        code, name, token = (str(content.get(each, "")) for each in ("code", "name", "token"))
        number, name = self.find_learner(token), _clean(name)
        if number is None:
            if not compare_digest(code.strip().upper().encode(), self.code.encode()):
                return None
            if len(self.names) >= MOST_LEARNERS:
                raise HTTPError(400, reason="The room is full")
            token, number = secrets.token_urlsafe(24), len(self.names) + 1
        name = name or self.names.get(number, f"Learner {number}")
        self.store.put(_digest(token), name)
        self._numbers[_digest(token)], self.names[number] = number, name
        return {"token": token, "name": name}

    def report(self, learner: int, content: Mapping[str, Any]) -> bool:
        """Keep what a learner did; whether it is new. Raises `HTTPError` for what no lesson could have reported."""
        key, kind, name, said, cause = (content.get(each) for each in ("id", "kind", "name", "said", "cause"))
        if not all(isinstance(each, str) for each in (key, kind, name, said, cause)) or not 0 < len(key) <= 64:
            raise HTTPError(400, reason="This is no report")
        if sum(each.learner == learner for each in self.reports) >= MOST_REPORTS:
            raise HTTPError(400, reason="These were too many reports")
        if kind == "exercise" and name in self.exercises and said in {*map(str, Stage)}:
            cause, phase = cause if _says(self.exercises[name], cause) else "", ""
        elif kind == "prediction" and name in self.asked and said in self.asked[name].options:
            cause, phase = "", self.phase(name)
        else:
            raise HTTPError(400, reason="No lesson reports this")
        if new := (key := f"report {learner} {key}") not in self.store.kept:
            report = Report(learner, kind, name, said, cause, phase, self.clock())
            self.store.put(key, report)
            self.reports.append(report)
        return new

    def phase(self, prediction: str) -> str:
        """How far the room is with a prediction: one of `PHASES`."""
        return self.store.kept.get(f"phase {prediction}", "vote")

    def act(self, what: str, value: str) -> None:
        """Do what the instructor pressed. Raises `HTTPError` for what is on no button."""
        buttons = {"phase": PHASES, "prediction": self.predictions, "waits": ("yes", "no"), "timer": ("start", "stop")}
        buttons["at"] = [str(each) for each in range(len(self.plan))]
        if value not in buttons.get(what, ()):
            raise HTTPError(400, reason="There is no such button")
        if what == "timer":
            self.store.put("at", "0")
            value = self.clock() if value == "start" else None
        self.store.put(f"phase {self.store.kept['prediction']}" if what == "phase" else what, value)

    def opened(self) -> dict[str, bool]:
        """By prediction, whether its explanation is open to learners; empty where it opens as each one commits."""
        waits = self.store.kept.get("waits") == "yes"
        return {name: self.phase(name) == "reveal" for name in self.predictions} if waits else {}

    def see(self, screen: str, names: bool = False) -> dict[str, Any]:
        """What a screen of the page shows. Without `names`, nobody's name is in it."""
        shown = {"join": dict, "votes": self._see_votes, "class": self._see_class, "help": self._see_help}
        shown["plan"] = self._see_plan
        calls = {number: name if names else f"Learner {number}" for number, name in self.names.items()}
        return {"screen": screen, "calls": calls, "names": names, "room": self} | shown[screen]()

    def _see_votes(self) -> dict[str, Any]:
        asked = self.predictions.get(self.store.kept["prediction"])
        if asked is None:
            return {"asked": None}  # a lesson without predictions
        votes, phase = self._votes(asked.name), self.phase(asked.name)
        rounds = [Counter(each[place] for each in votes.values() if each[place]) for place in (0, 1)]
        wrong = rounds[1] or rounds[0]
        most = max((each for each in asked.options if each != asked.answer and wrong[each]), key=wrong.get, default="")
        found = {"asked": asked, "phase": phase, "phases": PHASES, "voted": rounds[phase == "again"].total()}
        told = {"rounds": rounds, "most": most, "question": asked.ask.get(most)}
        return found | told if phase == "reveal" else found

    def _votes(self, prediction: str) -> dict[int, list[str]]:
        """For each learner the first vote, and the last one of the second round; "" where there is none."""
        found: dict[int, list[str]] = {}
        for each in self.reports:
            if (each.kind, each.name) == ("prediction", prediction):
                mine = found.setdefault(each.learner, ["", ""])
                if each.phase == "again":
                    mine[1] = each.said
                elif not mine[0]:
                    mine[0] = each.said
        return found

    def _tries(self) -> dict[tuple[int, str], list[Report]]:
        """What each learner tried in each exercise of the lesson, up to the first pass."""
        found: dict[tuple[int, str], list[Report]] = {}
        for each in self.reports:
            if each.kind == "exercise" and self.exercises[each.name].lesson == self.lesson:
                mine = found.setdefault((each.learner, each.name), [])
                if not mine or mine[-1].said != Stage.PASSED:
                    mine.append(each)
        return found

    def _see_class(self) -> dict[str, Any]:
        tries, columns = self._tries(), [each.name for each in self.exercises.values() if each.lesson == self.lesson]
        rows = {learner: [tries.get((learner, name), []) for name in columns] for learner in self.names}
        passed = Counter(name for (_, name), mine in tries.items() if mine[-1].said == Stage.PASSED)
        return {"columns": {name: passed[name] for name in columns}, "rows": rows}

    def _see_help(self) -> dict[str, Any]:
        now, last = self.clock(), {each.learner: each for each in self.reports}
        open_now = {key: mine for key, mine in self._tries().items() if mine[-1].said != Stage.PASSED}
        causes = defaultdict(list)  # how often each learner has tried whose last try has this cause
        for (_, name), mine in open_now.items():
            causes[name, mine[-1].cause].append(len(mine))
        stuck = [
            (learner, name, int(now - mine[0].at) // 60, len(mine))
            for (learner, name), mine in open_now.items()
            if now - mine[0].at >= STUCK and last[learner].name == name
        ]
        most = sorted((each for each in causes.items() if each[0][1]), key=lambda each: -len(each[1]))[:MOST_CAUSES]
        frequent = [(self.exercises[name], cause, len(tries), median_low(tries)) for (name, cause), tries in most]
        return {"causes": frequent, "stuck": sorted(stuck, key=lambda each: -each[2])}

    def _see_plan(self) -> dict[str, Any]:
        began = self.store.kept["timer"]
        minute, at = (None, None) if began is None else (int(self.clock() - began) // 60, int(self.store.kept["at"]))
        return {"plan": self.plan, "minute": minute, "at": at}

    def write_summary(self, folder: Path) -> Path:
        """Write what the class did to a JSON file that `make grade` can show beside its own page."""
        seen, tries, learners = self._see_class(), self._tries(), []
        votes = {name: self._votes(name) for name in self.predictions}
        for number, name in self.names.items():
            tried = {each: [found[-1].said, len(found)] for (who, each), found in tries.items() if who == number}
            voted = {each: found[number] for each, found in votes.items() if number in found}
            learners.append({"name": name, "exercises": tried, "votes": voted})
        tried = Counter(name for _, name in tries)
        exercises = {name: [tried[name], passed] for name, passed in seen["columns"].items()}
        predictions = {}
        for name, found in votes.items():
            rounds, answer = list(zip(*found.values(), strict=True)) or [(), ()], self.predictions[name].answer
            predictions[name] = [count for each in rounds for count in (sum(map(bool, each)), each.count(answer))]
        content = {"version": VERSION, "exercises": exercises, "predictions": predictions, "learners": learners}
        path = folder / f"lesson-{self.lesson:02d}-{time.strftime('%Y-%m-%d', time.localtime(self.began))}.json"
        write_whole(path, json.dumps(content, indent=1) + "\n")
        return path


def plan_of(lesson: int) -> list[tuple[int, int, str, str, str]]:
    """The cut of 90 minutes in the teacher's notes: from which minute to which, what, in the room, at home."""
    cells = read_source(*choose([f"{lesson:02d}"])).cells
    rows = ROW.findall("\n".join(cell.source for cell in cells if "instructor" in tags_of(cell)))
    return [(int(start), int(end), *row) for start, end, *row in rows]


def _clean(name: str) -> str:
    """A name as it may be shown: on one line, without signs that are not seen, and not too long."""
    seen = "".join(sign for sign in name if sign.isprintable() or sign.isspace())
    return " ".join(seen.split())[:MOST_NAME]


def _says(exercise: Exercise, cause: str) -> bool:
    """Whether the course itself could have said this of an answer; a learner's own words are not projected."""
    known = {mistake.message for mistake in exercise.mistakes} | set(slip_sentences())
    return all(each in known for each in cause.split(" Besides: "))


def _digest(token: str) -> str:
    return f"learner {hashlib.sha256(token.encode()).hexdigest()}"
