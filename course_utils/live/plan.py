"""What a lesson's source has for its teacher: the plan with its minutes, and the question for a wrong idea."""

import functools
import itertools
import re
from collections import Counter

from course_utils.authoring.source import called_with, choose, read_source, tags_of
from course_utils.exercises.engine import Prediction, predictions_of

ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
CUT = "at home if time is short"  # what a plan says of parts that may be left out
OTHER = ("**In 90 minutes**", "**On this slide:**")  # begin notes that are not about wrong ideas
ENOUGH = 0.09  # of the words of a note, rare ones weighing more
NOBODY_KNOWS = "Who chose this: what did you expect to happen, step by step? Who did not: where do you part?"


def plan_of(lesson: int) -> list[tuple[int, int, str, str]]:
    """The rows of the lesson's plan: the minutes at which each begins and ends, its sections, and how to teach them."""
    rows = ROW.findall("\n".join(text for _, text in _notes(lesson)))
    ends = [0, *itertools.accumulate(int(minutes) for minutes, *_ in rows)]
    return [(*each, *row[1:]) for each, row in zip(itertools.pairwise(ends), rows, strict=True)]


def question_for(asked: Prediction, option: str) -> str:
    """What the teacher's notes say to ask those who chose a wrong `option`, as Markdown.

    Of the notes that follow the prediction, it is the one that shares most with the option and its reply, rare words
    first; where none shares much, a question that fits any wrong idea.
    """
    notes = [each for _, text in _notes(asked.lesson) for each in text.split("\n\n")]
    replies = [reply for other in predictions_of(asked.lesson) for reply in other.options.values()]
    common = Counter(word for each in notes + replies for word in _words(each))
    places = iter(_notes(asked.lesson))
    after = next((text for _, text in places if text), "") if any(name == asked.name for name, _ in places) else ""
    wanted, best = _words(f"{option} {asked.options[option]} {asked.question}"), (ENOUGH, NOBODY_KNOWS)
    for each in after.split("\n\n"):
        if found := re.match(r"(.*?\*\*Ask:\*\* \".*?\")", each, re.DOTALL):
            mine = _words(each)
            share = sum(1 / common[word] for word in wanted & mine) / sum(1 / common[word] for word in mine)
            best = max(best, (share, found[1]))
    return best[1]


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3 or word.isdigit()}


@functools.cache
def _notes(lesson: int) -> list[tuple[str, str]]:
    # The lesson's predictions and the teacher's notes, in order: a name without a text, or a text without a name.
    cells = [(cell.source, tags_of(cell)) for cell in read_source(*choose([f"{lesson:02d}"])).cells]
    named = [(called_with(text, "predict") if "predict" in tags else "", text, tags) for text, tags in cells]
    notes = [each for each in named if each[0] or ("instructor" in each[2] and not each[1].startswith(OTHER))]
    return [(name, "" if name else text) for name, text, _ in notes]
