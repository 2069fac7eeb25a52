"""What each screen shows: to the room, to the instructor alone, and to one learner on a phone.

`see_public` never holds what would answer a question: no vote before the reveal, no cause, no hint but the first.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any, NamedTuple

from course_utils.exercises.declaration import Prediction
from course_utils.exercises.engine import Exercise
from course_utils.exercises.outcome import Stage
from course_utils.live.material import Setting, settings_of
from course_utils.live.room import Report, Room

STUCK = 10 * 60  # seconds
MOST_CAUSES = 5
MOST_NAMES = 80  # on a projected page
LEAST, MOST = 30, 70  # percent right between which a discussion helps most; Crouch and Mazur, Am. J. Phys. 69 (2001)
FINISHED = "finished"

WAIT = "Wait until more have voted."
EXPLAIN = "Fewer than 30 % are right. Explain the idea once more, and then let all of them vote again."
DISCUSS = "30 to 70 % are right. Let each of them convince a neighbour, and then let all of them vote again."
GO_ON = "More than 70 % are right. Reveal the answer, explain it briefly, and go on."
BETTER = "After the discussion {0} % are right, and before it {1} % were. Reveal the answer and explain it."
NOT_BETTER = "After the discussion {0} % are right, and before it {1} % were. Explain the idea before the reveal."


class Place(NamedTuple):
    """An exercise: how many have passed it, and who is at it now, each with the number of tries.

    Of the questions about the passed answers, `asked` were answered, and `right` of them right.
    """

    exercise: str
    passed: int
    here: list[tuple[int, int]]
    asked: int = 0
    right: int = 0


class Trouble(NamedTuple):
    """What is wrong in most answers at this moment: how many learners have it, and after how many tries."""

    exercise: Exercise
    cause: str
    learners: int
    tries: int


class Stuck(NamedTuple):
    """A learner who has been at an exercise for `minutes`."""

    learner: int
    exercise: str
    minutes: int
    tries: int


def see_public(room: Room) -> dict[str, Any]:
    """What the projected page shows. Unless the names are switched on, nobody's name is in it."""
    seen = _see_frame(room, room.people.names if room.switched_on("names") else {})
    if seen["screen"] == "votes":
        return seen | see_question(room)
    if seen["screen"] == "class":
        return seen | {"places": see_places(room), "few": len(room.people.here) <= MOST_NAMES}
    if seen["screen"] == "help":
        return seen | {"nudges": see_nudges(room), "stuck": len(see_stuck(room))}
    return seen


def see_private(room: Room) -> dict[str, Any]:
    """What the instructor's own page shows, beside the projected one."""
    seen = _see_frame(room, room.people.names)
    if seen["screen"] == "join":
        crowd = Counter(each.address for each in room.people.here.values())
        return seen | {"crowd": {address: count for address, count in crowd.most_common() if count > 1}}
    if seen["screen"] == "votes":
        return seen | see_question(room) | {"advice": advise(room), "voters": _see_voters(room)}
    if seen["screen"] == "class":
        return seen | {"places": see_places(room)}
    if seen["screen"] == "help":
        return seen | {"troubles": see_troubles(room), "stuck": see_stuck(room)}
    return seen


def see_question(room: Room) -> dict[str, Any]:
    """The prediction that the class is at, with its code and figure; and the votes, which only a reveal shows."""
    asked = room.asked
    phase, rounds = room.phase(asked.name), room.rounds(asked.name)
    wrong = [option for option, _ in (rounds[1] or rounds[0]).most_common() if option != asked.answer]
    return {
        "asked": asked,
        "setting": settings_of(room.lesson).get(asked.name, Setting()),
        "phase": phase,
        "voted": rounds[phase == "again"].total(),
        "rounds": rounds,
        "most": wrong[0] if wrong else "",
    }


def advise(room: Room) -> str:
    """What the share of right votes says about the next step, by Mazur's rule; "" after the reveal."""
    asked = room.asked
    phase = room.phase(asked.name)
    first, second = (_percent_right(asked, votes) for votes in room.rounds(asked.name))
    if phase == "reveal":
        return ""
    now = second if phase == "again" else first
    if now is None:
        return WAIT
    if phase == "again":
        said = NOT_BETTER if second < LEAST else BETTER
        return said.format(second, first or 0)
    if first < LEAST:
        return EXPLAIN
    return DISCUSS if first <= MOST else GO_ON


def see_places(room: Room) -> list[Place]:
    """Where everybody is: at the exercise tried last, or after a pass at the next one that is not passed yet."""
    tries, names = room.tries(room.lesson), [each.name for each in room.exercises_here]
    last = {each.learner: each.name for each in room.reports if each.kind == "exercise" and each.name in names}
    here = defaultdict(list)
    for learner in room.people.here:
        passed = {name for name in names if _is_passed(tries.get((learner, name), []))}
        at = _find_place(names, passed, last.get(learner, names[0]))
        here[at].append((learner, len(tries.get((learner, at), []))))
    done = Counter(name for (_, name), mine in tries.items() if _is_passed(mine))
    said = room.questions()
    places = [Place(name, done[name], here[name], *said.get(name, (0, 0))) for name in names]
    return [*places, Place(FINISHED, len(here[FINISHED]), here[FINISHED])]


def see_troubles(room: Room) -> list[Trouble]:
    """The most frequent causes in the last tries of those who have not passed."""
    tried = defaultdict(list)
    for (_, name), mine in _open_tries(room).items():
        if mine[-1].cause:
            tried[name, mine[-1].cause].append(len(mine))
    found = [
        Trouble(room.exercises[name], cause, len(counts), median_low(counts)) for (name, cause), counts in tried.items()
    ]
    return sorted(found, key=lambda each: -each.learners)[:MOST_CAUSES]


def see_nudges(room: Room) -> list[tuple[Exercise, int]]:
    """The exercises that most have tried and not passed, and how many these are: each has a first hint for all."""
    counts = Counter(name for _, name in _open_tries(room))
    return [(room.exercises[name], count) for name, count in counts.most_common(3)]


def see_stuck(room: Room) -> list[Stuck]:
    """Who has been at one exercise for ten minutes, the longest first."""
    now, last = room.clock(), {each.learner: each.name for each in room.reports}
    found = [
        Stuck(learner, name, int(now - mine[0].at) // 60, len(mine))
        for (learner, name), mine in _open_tries(room).items()
        if now - mine[0].at >= STUCK and last[learner] == name
    ]
    return sorted(found, key=lambda each: -each.minutes)


def see_ballot(room: Room, learner: int) -> dict[str, Any]:
    """What one learner sees on a phone: a question only while it is projected, and the answer after the reveal."""
    person, asked = room.people.here[learner], room.asked
    seen = {"person": person, "asked": None}
    if room.store.kept["screen"] != "votes":
        return seen
    first, second = room.votes(asked.name).get(learner, ("", ""))
    question = see_question(room)
    phase = question["phase"]
    may_vote = phase == "again" or (phase != "reveal" and not first)
    left = room.seconds_left()
    return seen | question | {"first": first, "second": second, "may_vote": may_vote, "left": left}


def _see_frame(room: Room, names: Mapping[int, str]) -> dict[str, Any]:
    """What every screen has."""
    return {"room": room, "screen": room.store.kept["screen"], "people": room.people, "names": names}


def _see_voters(room: Room) -> dict[str, list[list[str]]]:
    """By option, the names of those who chose it, in the first vote and in the second one."""
    names = room.people.names
    found: dict[str, list[list[str]]] = defaultdict(lambda: [[], []])
    for learner, choices in room.votes(room.asked.name).items():
        for number, choice in enumerate(choices):
            if choice:
                found[choice][number].append(names[learner])
    return found


def _percent_right(asked: Prediction, counts: Counter[str]) -> int | None:
    return round(100 * counts[asked.answer] / counts.total()) if counts else None


def _is_passed(tries: Sequence[Report]) -> bool:
    return bool(tries) and tries[-1].said == Stage.PASSED


def _find_place(names: Sequence[str], passed: set[str], last: str) -> str:
    """The exercise tried last, or the first after it, and then of all, that is not passed."""
    start = names.index(last)
    return next((name for name in [*names[start:], *names[:start]] if name not in passed), FINISHED)


def _open_tries(room: Room) -> dict[tuple[int, str], list[Report]]:
    return {key: mine for key, mine in room.tries(room.lesson).items() if not _is_passed(mine)}
