"""The plan of a lesson, as the notes for its teacher have it: its sections with their minutes."""

import itertools
import re

from course_utils.authoring.source import choose, read_source, tags_of

ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
CUT = "at home if time is short"  # what a plan says of parts that may be left out


def plan_of(lesson: int) -> list[tuple[int, int, str, str]]:
    """The rows of the lesson's plan: the minutes at which each begins and ends, its sections, and how to teach them."""
    cells = read_source(*choose([f"{lesson:02d}"])).cells
    rows = ROW.findall("\n".join(cell.source for cell in cells if "instructor" in tags_of(cell)))
    ends = [0, *itertools.accumulate(int(minutes) for minutes, *_ in rows)]
    return [(*each, *row[1:]) for each, row in zip(itertools.pairwise(ends), rows, strict=True)]
