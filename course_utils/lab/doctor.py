"""Look at the environment a lesson runs in, and say how to mend it: `doctor()`, or `make doctor`.

While all is well, it shows no version, path or number of the machine; `doctor(details=True)` adds those.
"""

import importlib
import importlib.metadata as installed
import os
import shutil
import site
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from course_utils.exercises.saved_progress import is_lost, location
from course_utils.language import find_missing
from course_utils.root import ASSETS, ROOT
from course_utils.show import BAD, CAUTION, GOOD, NEUTRAL, code_spans

MARKS = {"ok": (GOOD, "✓"), "warn": (CAUTION, "!"), "fail": (BAD, "✗"), "note": (NEUTRAL, "i")}  # colour and symbol
WIDGETS = ("ipywidgets>=8", "comm", "jupyterlab_widgets>=3")
REINSTALL = "in the course's folder run `make setup`, then restart the kernel (menu Kernel, Restart Kernel)."
MAKE_AGAIN = "close Jupyter, delete the folder `.venv` and run `make lab`, with `PYTHON=python3.12` for another Python."
FREE_SPACE = "free some space: the lessons want 1 GB."
ONE_INDEX = "PyTorch and torchvision must come from one index."
OWN_KERNEL = "menu Kernel, Change Kernel, choose Python 3 (ipykernel); or open the lessons with `make lab`."


class Finding(NamedTuple):
    """What one check found: ok, warn (not all of a lesson runs), fail, or note; in a sentence; how to mend it."""

    status: str
    found: str
    mend: str = ""
    details: str = ""  # versions, paths and numbers; a note is shown with these only

    def lines(self) -> list[str]:
        """What is said of it."""
        mend = f"To mend it: {self.mend}" if self.mend else ""
        return [line for line in (self.found, self.details, mend) if line]

    def __str__(self) -> str:
        return f"{self.status:<6}" + "\n      ".join(self.lines())


class Diagnosis(NamedTuple):
    """All findings, with a plain-text and an HTML face."""

    findings: tuple[Finding, ...]

    def summary(self) -> str:
        """Whether all is well, in a sentence."""
        fine = [one.status == "ok" for one in self.findings if one.status != "note"]
        rest = f"{sum(fine)} of {len(fine)} checks are fine; the lines above say how to mend the rest."
        return "All is well: the lessons can start." if all(fine) else rest

    def __repr__(self) -> str:
        return "\n".join([*map(str, self.findings), self.summary()])

    def _repr_html_(self) -> str:
        page, row = (ASSETS / "doctor.html").read_text(encoding="utf-8").splitlines()
        rows = ""
        for one in self.findings:
            found, *more = map(code_spans, one.lines())
            rows += row.format(*MARKS[one.status], one.status, found, "".join(f"<div>{line}</div>" for line in more))
        return page.format(rows, self.summary())


def doctor(details: bool = False) -> Diagnosis:
    """Check the environment of this notebook and show what was found; with `details`, versions, paths and notes too."""
    found = [*examine(Path.cwd()), _look_for_language_model(), _look_for_copy()]
    usual = [one._replace(details="") for one in found if one.status != "note"]
    return Diagnosis(tuple(found if details else usual))


def main() -> int:
    """Print what is found in the environment that runs this, with details; return 1 where a check failed."""
    work, found = ROOT / "work", []
    # To load PyTorch takes a while, so each line comes at once.
    for one in chain(examine(work if work.is_dir() else ROOT), [_look_for_language_model()]):
        found.append(one)
        print(one, flush=True)
    print(Diagnosis(tuple(found)).summary())
    return int(any(one.status == "fail" for one in found))


def examine(folder: Path) -> Iterator[Finding]:
    """What lessons in `folder` need, the most basic first. Raises nothing, whatever is missing or broken."""
    # With an older one, what this file imports would have raised an error.
    yield Finding("ok", "Python is new enough", details=f"Python {sys.version.split()[0]} at {sys.executable}")
    places = [*site.getsitepackages(), site.getusersitepackages()]
    course = next(iter(installed.distributions(name="course-utils", path=places)), None)
    needed = map(Requirement, (course and course.requires) or [])
    wanted = {one.name: one for one in needed if not one.marker or one.marker.evaluate()}
    for package, name in (("torch", "PyTorch"), ("torchvision", "torchvision")):
        own = wanted.pop(package, Requirement(package))
        yield _check_packages(f"{name} is new enough, and loads", [own], package, f"{MAKE_AGAIN} {ONE_INDEX}")
    yield _check_packages("The other packages are new enough", wanted.values())
    yield _check_kernel(has_course=course is not None)
    yield _check_packages("Widgets can be shown", [*map(Requirement, WIDGETS)], "ipywidgets")
    yield _check_room(folder)
    yield _check_saving(folder)


def _check_kernel(has_course: bool) -> Finding:
    if not has_course:
        found = f"The kernel is another Python than the course's: {sys.prefix} does not have the course."
        return Finding("fail", found, OWN_KERNEL)
    return Finding("ok", "The kernel is the course's own", details=f"environment {sys.prefix}")


def _check_room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free / 1e9
    if free < 1:
        return Finding("warn", f"The disk is nearly full: {free:.1f} GB are free.", FREE_SPACE)
    return Finding("ok", "There is room on the disk", details=f"{free:.0f} GB free")


def _check_saving(folder: Path) -> Finding:
    if not os.access(folder, os.W_OK):
        return Finding("fail", f"Nothing can be saved in {folder}.", "move the course to a folder of your own.")
    return Finding("ok", "Files can be saved in this folder", details=str(folder))


def _check_packages(fine: str, wanted: Iterable[Requirement], load: str = "", mend: str = REINSTALL) -> Finding:
    found, lacking = [], []
    for one in wanted:
        version = next((each.version for each in installed.distributions(name=one.name)), "")
        if version and one.specifier.contains(version, prereleases=True):
            found.append(f"{one.name} {version}")
        else:
            needed = one.specifier or "any version"
            lacking.append(f"{one.name} {version or 'is missing'} (needed: {needed})")
    if lacking:
        return Finding("fail", f"Missing or too old: {', '.join(lacking)}.", REINSTALL)
    try:
        if load:
            importlib.import_module(load)
    except Exception as error:  # a broken build can raise anything
        reason = str(error).strip().partition("\n")[0]
        return Finding("fail", f"{load} does not load: {type(error).__name__}: {reason}", mend)
    return Finding("ok", fine, details=", ".join(found))


def _look_for_language_model() -> Finding:
    if missing := find_missing():
        found = f"Lesson 11 has no language model ({', '.join(missing)} missing), so its cells run on random weights."
        return Finding("note", found, "to fetch it once, 100 MB, run `make language-model`.")
    return Finding("note", "Lesson 11 has its language model.")


def _look_for_copy() -> Finding:
    if is_lost():
        found = "This is not your copy of the lessons, so your progress is not saved."
        return Finding("warn", found, "open the lessons with `make lab`, which copies them to the folder `work`.")
    if location():
        return Finding("note", "This is your copy of the lessons: your progress is saved in it.")
    return Finding("note", "This is a build or a test of the lesson, so no progress is saved.")
