"""The learner's copies for Colab and for a JupyterHub, which `make copies` keeps in a branch of their own."""

import shutil
from pathlib import Path

import nbformat

from course_utils.exercises.saved_progress import MARKER
from course_utils.lab.update import BASE, update_lessons
from course_utils.root import ASSETS, ROOT, repository, write_whole

COPIES = ROOT / "build" / "copies"
LINKS = """\
{} holds the lessons, without outputs, for the branch `copies` of {}.
Colab:       https://colab.research.google.com/github/{}/blob/copies/00_start_here.ipynb
JupyterHub:  https://HUB/hub/user-redirect/git-pull?repo={}&branch=copies&targetPath=hooks\
&urlpath=lab/tree/hooks/00_start_here.ipynb"""


def write_copies(folder: Path = COPIES) -> int:
    """Write the lessons to `folder` as `make lab` copies them, but their first cell installs the course; returns 0."""
    address, get = repository(), (ASSETS / "get_course.txt").read_text(encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    for _, path, _ in update_lessons(sorted((ROOT / "notebooks").glob("*.ipynb")), folder):
        copy = nbformat.read(path, as_version=4)
        first = next(cell for cell in copy.cells if cell.id == "find-the-course")
        first.source = get.replace("ARCHIVE", f"{address}/archive/HEAD.zip").rstrip()
        write_whole(path, f"{nbformat.writes(copy)}\n")
    shutil.rmtree(folder / BASE)
    write_whole(folder / MARKER, "Copies of the lessons: progress is kept beside them.\n")
    print(LINKS.format(folder, address, address.removeprefix("https://github.com/"), address))
    return 0
