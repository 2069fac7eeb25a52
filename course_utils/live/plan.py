"""The plan of a lesson in class: the cut of 90 minutes that the notes for its teacher have."""

import re

from course_utils.authoring.source import choose, read_source, tags_of

ROW = re.compile(r"^\| (\d+) to (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def plan_of(lesson: int) -> list[tuple[int, int, str, str, str]]:
    """The rows of the cut: from which minute to which, sections, what is done in the room, what stays for home."""
    cells = read_source(*choose([f"{lesson:02d}"])).cells
    rows = ROW.findall("\n".join(cell.source for cell in cells if "instructor" in tags_of(cell)))
    return [(int(start), int(end), *row) for start, end, *row in rows]
