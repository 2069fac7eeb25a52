"""What a class's answers say: how hard each item is, how well it tells students apart, and what to discuss.

An item is an exercise or a prediction. The measures are those of classical test theory (Crocker and Algina,
*Introduction to Classical and Modern Test Theory*, 1986, chapter 14). An item's *difficulty* is the share of those who
passed it, with Wilson's interval. Its *discrimination* is the correlation between passing it and the rest score, with
Fisher's interval: the rest score is how much more of their other items students passed than all who answered these. It
stays fair where not everybody has answered the same items. All intervals are those of 95 %.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np
import scipy

from course_utils.authoring import pace
from course_utils.authoring.source import choose, defined_name, learner, tags_of
from course_utils.exercises.declaration import called_with, name_of, predictions_of, read_declarations
from course_utils.exercises.outcome import Stage
from course_utils.root import CourseError

FEW = 40  # answers: of an item with fewer, nothing is doubted
LEAST_EACH = 5  # who passed, and who did not: else there is no discrimination
LEAST_OTHERS = 3  # other items of a student: else they have no rest score
FLAT_BELOW, SURELY_BELOW = 0.12, 0.3  # of an item that tells nothing: its discrimination, and the interval's upper end
NEARLY_ALL = 0.975  # a share that counts as everybody
MOST_TOPICS = 3

REVERSED, FLAT, EASY, HARD, UNUSED = "reversed", "flat", "easy", "hard", "unused"
DOUBTS = {
    REVERSED: "Good students fail it more often than weak ones. Look at its task and its cases first.",
    FLAT: "Good students fail it about as often as weak ones, so it does not measure what the other items measure.",
    HARD: "Nobody, or hardly anybody, passes it. Look at its task and its cases.",
    EASY: "Everybody, or nearly everybody, passes it, so it tells nothing about who understood. "
    "As practice it may still be right.",
    UNUSED: "Nobody chooses this wrong answer. Write one that somebody believes, or leave it out.",
}


class Answer(NamedTuple):
    """What one student did with one item.

    `said` are the causes that came up, or the wrong options that were chosen. `tries` is 0 where nobody counted them.
    """

    student: str
    item: str
    right: bool
    said: Sequence[str] = ()
    tries: int = 0


class Estimate(NamedTuple):
    """A number with the two ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Item:
    """What the answers say about one item.

    `answers` and `right` are numbers of students, and `share` is the difficulty. `tries` is the median of those who
    passed, None where nobody counted. `said` has what came up, with the number of students, the most frequent first.
    `doubts` are keys of `DOUBTS`, and `unused` are the wrong options that nobody chose.
    """

    name: str
    answers: int
    right: int
    share: Estimate
    tries: int | None
    discrimination: Estimate | None
    said: Sequence[tuple[str, int]]
    doubts: Sequence[str]
    unused: Sequence[str]


class Topic(NamedTuple):
    """A misconception to discuss: what `students` said or did in `item`, and where that is taught.

    Of a prediction, `question` is what it asks, and `ask` is a question to those who said this.
    """

    item: Item
    said: str
    students: int
    place: str
    question: str = ""
    ask: str = ""


@dataclass(frozen=True)
class Study:
    """The items of a class, and the misconceptions that most of its students had."""

    items: Sequence[Item]
    topics: Sequence[Topic]
    enough = FEW  # answers, for the page

    @property
    def doubts(self) -> list[tuple[str, list[Item]]]:
        """The doubts that there are, as sentences, each with its items."""
        found = {doubt: [item for item in self.items if doubt in item.doubts] for doubt in DOUBTS}
        return [(DOUBTS[doubt], items) for doubt, items in found.items() if items]

    @property
    def few(self) -> list[Item]:
        """The items that too few have answered to doubt them."""
        return [item for item in self.items if item.answers < FEW]


def study(answers: Sequence[Answer]) -> Study:
    """What the answers of a class say about the exercises and predictions of the course."""
    known = {each.name: each for each in predictions_of()}
    options = {name: [each for each in one.options if each != one.answer] for name, one in known.items()}
    items = analyse(answers, options)
    topics = []
    for item, said, students in choose_topics(items):
        topic = Topic(item, said, students, find_place(item.name))
        if asked := known.get(item.name):
            topic = topic._replace(question=asked.question, ask=asked.ask.get(said, ""))
        topics.append(topic)
    return Study(items, topics)


def analyse(answers: Sequence[Answer], options: Mapping[str, Sequence[str]]) -> list[Item]:
    """What the answers say about each item, in the order in which the items come; `options` has the wrong ones."""
    discriminations = find_discriminations(answers)
    by_item: dict[str, list[Answer]] = {}
    for each in answers:
        by_item.setdefault(each.item, []).append(each)
    return [_describe(name, mine, discriminations[name], options.get(name, ())) for name, mine in by_item.items()]


def _describe(name: str, mine: Sequence[Answer], discrimination: Estimate | None, options: Sequence[str]) -> Item:
    right = sum(each.right for each in mine)
    share = find_share(right, len(mine))
    tries = [each.tries for each in mine if each.right and each.tries]
    said = Counter(text for each in mine for text in {*each.said})
    unused, doubts = [], []
    if len(mine) >= FEW:
        unused = [option for option in options if option not in said]
        doubts = _find_doubts(share, discrimination)
        if unused:
            doubts.append(UNUSED)
    return Item(
        name=name,
        answers=len(mine),
        right=right,
        share=share,
        tries=median_low(tries) if tries else None,
        discrimination=discrimination,
        said=sorted(said.items(), key=lambda pair: (-pair[1], pair[0])),
        doubts=doubts,
        unused=unused,
    )


def _find_doubts(share: Estimate, discrimination: Estimate | None) -> list[str]:
    if share.value >= NEARLY_ALL:
        return [EASY]
    if share.value <= 1 - NEARLY_ALL:
        return [HARD]
    if discrimination is None or discrimination.value >= FLAT_BELOW or discrimination.high >= SURELY_BELOW:
        return []
    return [REVERSED if discrimination.high < 0 else FLAT]


def find_share(right: int, answers: int) -> Estimate:
    """The share of right answers with its interval (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    found = scipy.stats.binomtest(right, answers).proportion_ci(method="wilson")
    return Estimate(right / answers, found.low, found.high)


def find_discriminations(answers: Sequence[Answer]) -> dict[str, Estimate | None]:
    """By item, the correlation of passing it with the rest score; None where too few passed it, or too few did not."""
    items = {name: place for place, name in enumerate(dict.fromkeys(each.item for each in answers))}
    students = {name: place for place, name in enumerate(dict.fromkeys(each.student for each in answers))}
    right = np.full((len(students), len(items)), np.nan)
    for each in answers:
        right[students[each.student], items[each.item]] = each.right
    ahead = right - np.nanmean(right, axis=0) if items else right
    others = np.sum(~np.isnan(right), axis=1, keepdims=True) - 1
    rest = (np.nansum(ahead, axis=1, keepdims=True) - ahead) / np.maximum(others, 1)
    rest[others[:, 0] < LEAST_OTHERS] = np.nan
    return {name: _correlate(right[:, place], rest[:, place]) for name, place in items.items()}


def _correlate(right: np.ndarray, rest: np.ndarray) -> Estimate | None:
    has_both = ~np.isnan(rest)
    right, rest = right[has_both], rest[has_both]
    passed = right.sum()
    if min(passed, len(right) - passed) < LEAST_EACH or np.ptp(rest) == 0:
        return None
    found = scipy.stats.pearsonr(right, rest)
    return Estimate(found.statistic, *found.confidence_interval())


def choose_topics(items: Iterable[Item]) -> list[tuple[Item, str, int]]:
    """Item, its most frequent misconception, and students; the most frequent first, without items that look broken."""
    sound = [item for item in items if item.said and not {REVERSED, HARD} & {*item.doubts}]
    found = [(item, said, students) for item in sound for said, students in item.said[:1] if students > 1]
    return sorted(found, key=lambda topic: -topic[2])[:MOST_TOPICS]


def answers_in_class(said: Mapping[str, Any]) -> list[Answer]:
    """What each learner did in a class, as `make class` wrote it; of a prediction, the first vote is the answer."""
    right = {each.name: each.answer for each in predictions_of()}
    found = []
    for number, who in enumerate(said["learners"]):
        for name, (stage, tries, *causes) in who["exercises"].items():
            found.append(Answer(str(number), name, stage == Stage.PASSED, causes, tries))
        for name, votes in who["votes"].items():
            chosen = [vote for vote in votes if vote]
            if name in right and chosen:
                wrong = [vote for vote in chosen if vote != right[name]]
                found.append(Answer(str(number), name, chosen[0] == right[name], wrong))
    return found


class InClass(NamedTuple):
    """What a class that learned together has left: what its answers say, its votes by prediction, and by exercise how
    many questions about their own code learners answered, and how many of them right.
    """

    study: Study
    votes: Mapping[str, Sequence[int]]
    questions: Mapping[str, Sequence[int]]


def read_class(path: Path) -> InClass:
    """What stands in the file that a class left."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        counted = said["predictions"], said.get("questions", {})  # older files have no questions
        votes, questions = ({name: [*map(int, counts)] for name, counts in each.items()} for each in counted)
        return InClass(study(answers_in_class(said)), votes, questions)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CourseError(f"{path} is not a file that `make class` wrote.") from None


def find_place(item: str) -> str:
    """Where an exercise or a prediction stands: the lesson, and the headings above it, of which each is a slide."""
    lessons = {each.name: each.lesson for each in (*read_declarations(), *predictions_of())}
    if item not in lessons:
        return ""
    number = lessons[item]
    return " · ".join([f"Lesson {number:02d}, {name_of(number)[0]}", *_headings(number).get(item, ())])


@cache
def _headings(lesson: int) -> dict[str, list[str]]:
    """By exercise and prediction of a lesson, the headings above it, from the section's down."""
    above: dict[int, str] = {}
    found = {}
    for cell in learner(*choose([f"{lesson:02d}"])).cells:
        tags = tags_of(cell)
        if cell.cell_type == "markdown":
            for level, title, _ in pace.split_at_headings(cell.source):
                if level > 1:
                    above = {over: text for over, text in above.items() if over < level} | {level: title}
        elif "answer" in tags:
            found[defined_name(cell.source)] = [*above.values()]
        elif "predict" in tags and (name := called_with(cell.source, "predict")):
            found[name] = [*above.values()]
    return found
