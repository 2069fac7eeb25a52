"""The README's map of the lessons, made from their sources, and its links to hosts; `make notebooks` renews both.

Title and minutes are what each lesson says of itself, exercises are its answer cells, and what one learns is the phrase
of the table in `00_start_here`.
"""

import re
from pathlib import Path

from course_utils.authoring.source import FOLDER, answer_cells, learner, sources
from course_utils.root import CourseError, repository, write_whole

README = FOLDER.parent / "README.md"
START = "whether this computer is ready, how a lesson works; your progress, the glossary"
HEAD = "| | Lesson | You learn | Exercises | Minutes |\n|---|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
HOSTED = re.compile(r"((?:mybinder\.org/v2/gh|colab\.research\.google\.com/github|codespaces\.new)/)[\w.-]+/[\w.-]+")
PHRASE = re.compile(r"^\| (\d\d) \| \[[^\]]*\]\([^)]*\) \| (.+?) \|", re.MULTILINE)
LESSON = re.compile(r"# (.+)\n(?:.*\n)*?\*\*Time:\*\* about (\d+) minutes")


def rows(folder: Path = FOLDER) -> list[str]:
    """The map's row for each lesson of `folder`. Raises `CourseError` where a lesson lacks title, minutes or phrase."""
    found, phrases = [], {"00": START}
    for path in sources(folder):
        notebook = learner(path)
        prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        phrases |= dict(PHRASE.findall(prose)) if path.stem.startswith("00") else {}
        said, number = LESSON.match(prose), path.stem[:2]
        if not said:
            raise CourseError(f"{path.stem}: it starts with `# Title` and says `**Time:** about 60 minutes`.")
        if number not in phrases:
            raise CourseError(f"{path.stem}: the table of lessons in 00_start_here has no row for it.")
        link, exercises = f"[{said[1]}](notebooks/{path.stem}.ipynb)", len(answer_cells(notebook, path.stem))
        found.append(f"| {number} | {link} | {phrases[number]} | {exercises} | {said[2]} |")
    return found


def renew(readme: Path = README, folder: Path = FOLDER, *, write: bool = True) -> bool:
    """Bring the map in the file `readme` up to date, or with `write=False` only look; tell whether it was.

    Raises `CourseError` as `rows` does, and for a README without a place for the map.
    """
    before = readme.read_text(encoding="utf-8")
    if not TABLE.search(before):
        raise CourseError(f"The README has no place for the map of the lessons: a table that starts with {HEAD!r}.")
    after = TABLE.sub(lambda _: HEAD + "".join(f"{row}\n" for row in rows(folder)), before)
    after = HOSTED.sub(rf"\1{repository().removeprefix('https://github.com/')}", after)
    if write and after != before:
        write_whole(readme, after)
    return after == before
