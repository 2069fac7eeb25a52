"""How many minutes a lesson takes, by one stated model, so that no lesson promises what nobody can keep.

For somebody who reads English as a second language: 150 words of prose in a minute, the explanations of predictions
included; 15 lines of code in a minute, and 12 seconds to run a cell and to look at what it shows; a minute to think
about a prediction; 3 to try an explorer; 3 for each point of an exercise, because a point is about three lines of
answer, and a line takes a minute with its thinking, its check and its mending.
"""

import re
from pathlib import Path

from course_utils.authoring.source import learner, number_of, tags_of
from course_utils.exercises.engine import exercises_of, predictions_of

LONGEST = 90  # minutes, of any lesson
REFERENCE = 9  # the lesson that is looked up and not read: of it only predictions and exercises count
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
APART = {"setup", "predict", "why", "explore", "answer", "check"}  # cells whose code nobody reads, or that count apart


def minutes(path: Path) -> dict[str, float]:
    """The minutes that the lesson with the source `path` takes a learner, by what they are for."""
    cells, number = learner(path).cells, number_of(path)
    asked, tags = predictions_of(number), [tag for cell in cells for tag in tags_of(cell)]
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    words = [FENCED.sub("", prose), *(f"{each.question} {each.options[each.answer]} {each.why}" for each in asked)]
    code = [cell.source for cell in cells if cell.cell_type == "code" and not APART & set(tags_of(cell))]
    lines = [line for text in [*code, *FENCED.findall(prose)] for line in text.splitlines() if line.strip()]
    found = {
        "words": len(re.findall(r"\w[\w'.-]*", " ".join(words))) / 150,
        "code": len(lines) / 15 + len(code) / 5,
        "predictions": 1.0 * tags.count("predict"),
        "explorers": 3.0 * tags.count("explore"),
        "exercises": 3.0 * sum(each.points for each in exercises_of(number)),
    }
    found |= {"words": 0.0, "code": 0.0} if number == REFERENCE else {}
    return {name: round(value, 1) for name, value in found.items()}
