"""The files that stay of a class: a page about its answers, and the data, which `make grade` can show as well."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from course_utils.authoring.item_analysis import answers_in_class, study
from course_utils.exercises.causes import BESIDES
from course_utils.lessons.inventory import MOST, WHEN, Change, compare_scores
from course_utils.live.room import Report, Room
from course_utils.root import write_whole
from course_utils.show import page_templates

VERSION = 3


def write_summary(room: Room, folder: Path) -> Path:
    """Write what the class did in all lessons that it was at, as JSON and as a page; returns the path of the data.

    No other class has it; the page stands beside it, with the ending `.html`.
    """
    path, said = folder / room.summary, summarise(room)
    write_whole(path, json.dumps(said, indent=1) + "\n")
    page = (
        page_templates()
        .get_template("live_summary.html.j2")
        .render(
            study=study(answers_in_class(said)),
            votes=said["predictions"],
            questions=said["questions"],
            learners=len(said["learners"]),
            change=_compare([each["inventory"] for each in said["learners"]]),
            most=MOST,
        )
    )
    write_whole(path.with_suffix(".html"), page)
    return path


def summarise(room: Room) -> dict[str, Any]:
    """By prediction the votes and the right ones, by exercise the questions about their own code that learners answered
    and the right ones, and what each learner did.

    A learner's exercise has the last stage, the number of tries, and the causes that came up; the inventory, the right
    answers before the course and after it.
    """
    tries = {key: mine for lesson in room.lessons_seen for key, mine in room.tries(lesson).items()}
    votes = {each.name: room.votes(each.name) for each in room.predictions.values() if each.lesson in room.lessons_seen}
    scores, learners = room.scores(), []
    for number, learner in room.people.here.items():
        own = {name: found for (who, name), found in tries.items() if who == number}
        mine = {name: [found[-1].said, len(found), *_causes(found)] for name, found in own.items()}
        voted = {name: found[number] for name, found in votes.items() if number in found}
        learners.append({"name": learner.name, "exercises": mine, "votes": voted, "inventory": scores.get(number, {})})
    return {
        "version": VERSION,
        "lessons": room.lessons_seen,
        "predictions": {name: _count_right(room, name) for name in votes},
        "questions": room.questions(),
        "learners": learners,
    }


def _compare(scores: Iterable[Mapping[str, int]]) -> Change | None:
    """The inventory before and after, of those who have answered both forms; None where nobody has."""
    pairs = [[each[when] for when in WHEN] for each in scores if len(each) == len(WHEN)]
    return compare_scores(*zip(*pairs, strict=True)) if pairs else None


def _causes(tries: Iterable[Report]) -> list[str]:
    causes = [cause for each in tries if each.cause for cause in each.cause.split(BESIDES)]
    return [*dict.fromkeys(causes)]


def _count_right(room: Room, prediction: str) -> list[int]:
    """For the first vote and then the second: how many voted, and how many of them were right."""
    answer = room.predictions[prediction].answer
    return [count for votes in room.rounds(prediction) for count in (votes.total(), votes[answer])]
