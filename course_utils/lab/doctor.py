"""Look at the environment a lesson runs in, and say how to mend it: `doctor()`, or `make doctor`.

While all is well, it shows no version, path or number of the machine; `doctor(details=True)` adds those.
"""

from __future__ import annotations

import importlib
import importlib.metadata as installed
import os
import shutil
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from course_utils.lab.jupyter import MARKER, WORK
from course_utils.show import BAD, CAUTION, GOOD, NEUTRAL, code_spans

SYMBOLS = {"ok": "✓", "warn": "!", "fail": "✗", "note": "i"}
EDGES = {"ok": GOOD, "warn": CAUTION, "fail": BAD, "note": NEUTRAL}
PRETRAINED = ("alexnet", "resnet34", "squeezenet1_1")
REINSTALL = "in the course's folder run `make setup`, then restart the kernel (menu Kernel, Restart Kernel)."
MAKE_AGAIN = "close Jupyter, delete the folder `.venv` and run `make lab`, with `PYTHON=python3.12` for another Python."
OWN_KERNEL = "menu Kernel, Change Kernel, choose Python 3 (ipykernel); or open the lessons with `make lab`."


class Finding(NamedTuple):
    """What one check found: ok, warn (not all of a lesson runs), fail, or note; in a sentence; how to mend it."""

    name: str
    status: str
    found: str
    mend: str = ""
    details: str = ""  # versions, paths and numbers; a note is shown with these only


class Diagnosis(NamedTuple):
    """All findings, with a plain-text and an HTML face."""

    findings: tuple[Finding, ...]
    details: bool = False

    @property
    def summary(self) -> str:
        """How many checks are fine."""
        fine = [one.status == "ok" for one in self.findings if one.status != "note"]
        if all(fine):
            return "All is well: the lessons can start."
        return f"{sum(fine)} of {len(fine)} checks are fine; the lines above say how to mend the rest."

    def _shown(self) -> Iterator[tuple[str, list[str]]]:
        for _, status, found, mend, details in self.findings:
            if self.details or status != "note":
                yield (
                    status,
                    [found, *[details] * bool(self.details and details), *[f"To mend it: {mend}"] * bool(mend)],
                )

    def __repr__(self) -> str:
        return "\n".join([*(f"{status:<6}" + "\n      ".join(lines) for status, lines in self._shown()), self.summary])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<li style="display:flex;border-left:4px solid {EDGES[status]};padding:.15em .75em;margin:.15em 0">'
            f'<strong style="flex:0 0 4.5em"><span aria-hidden="true">{SYMBOLS[status]}</span> {status}</strong> '
            f"<div>{code_spans(found)}{''.join(f'<div>{code_spans(line)}</div>' for line in more)}</div></li>"
            for status, (found, *more) in self._shown()
        )
        return (
            '<div role="group" aria-label="What the doctor found" style="color:var(--jp-content-font-color0, inherit)">'
            f'<ul style="list-style:none;margin:0;padding:0">{rows}</ul>'
            f"<p><strong>{self.summary}</strong></p></div>"
        )


def doctor(details: bool = False) -> Diagnosis:
    """Check the environment of this notebook and show what was found; with `details`, versions, paths and notes too."""
    return Diagnosis((*examine(Path.cwd()), _look_for_copy(Path.cwd()), _look_for_weights()), details)


def main() -> int:
    """Print the diagnosis of the environment that runs this, with details; return 1 where a check failed."""
    findings = (*examine(WORK if WORK.is_dir() else WORK.parent), _look_for_weights())
    print(Diagnosis(findings, details=True))
    return int(any(one.status == "fail" for one in findings))


def examine(folder: Path) -> Iterator[Finding]:
    """What lessons in `folder` need, the most basic first. Raises nothing, whatever is missing or broken."""
    places = [*site.getsitepackages(), site.getusersitepackages()]
    course = next(iter(installed.distributions(name="course-utils", path=places)), None)
    wanted = [Requirement(line) for line in (course and course.requires) or [] if "extra ==" not in line]
    others = [one for one in wanted if one.name not in ("torch", "torchvision")]
    python = f"Python {sys.version.split()[0]} at {sys.executable}"
    old = "" if sys.version_info >= (3, 10) else f"Python is too old: {python}."
    yield _check("Python is new enough", old, MAKE_AGAIN, python)
    for package, name in (("torch", "PyTorch"), ("torchvision", "torchvision")):
        lacking = _lacking([one for one in wanted if one.name == package] or [Requirement(package)])
        broken = "" if lacking else _broken(package)
        mend = REINSTALL if lacking else f"{MAKE_AGAIN} PyTorch and torchvision must come from one index."
        yield _check(f"{name} is new enough, and loads", lacking or broken, mend, f"{name} {_version(package)}")
    yield _check("The other packages are new enough", _lacking(others), REINSTALL, ", ".join(map(_named, others)))
    elsewhere = (
        "" if course else f"The kernel is another Python than the course's: {sys.prefix} does not have the course."
    )
    yield _check("The kernel is the course's own", elsewhere, OWN_KERNEL, f"environment {sys.prefix}")
    widgets = [Requirement(line) for line in ("ipywidgets>=8", "comm", "jupyterlab_widgets>=3")]
    broken = _lacking(widgets) or _broken("ipywidgets")
    yield _check("Widgets can be shown", broken, REINSTALL, ", ".join(map(_named, widgets)))
    free = shutil.disk_usage(folder).free / 1e9
    full = f"The disk is nearly full: {free:.1f} GB are free." if free < 1 else ""
    yield _check(
        "There is room on the disk", full, "free some space: the lessons want 1 GB.", f"{free:.0f} GB free", "warn"
    )
    shut = "" if os.access(folder, os.W_OK) else f"Nothing can be saved in {folder}."
    yield _check("Files can be saved in this folder", shut, "move the course to a folder of your own.", str(folder))


def _check(fine: str, wrong: str, mend: str, details: str, status: str = "fail") -> Finding:
    return Finding(fine, status, wrong, mend) if wrong else Finding(fine, "ok", fine, "", details)


def _version(name: str) -> str:
    return next((one.version for one in installed.distributions(name=name)), "")


def _named(one: Requirement) -> str:
    return f"{one.name} {_version(one.name)}"


def _lacking(wanted: Iterable[Requirement]) -> str:
    """A sentence that names those of the requirements that are not met; "" where all are."""
    lacking = [
        f"{one.name} {_version(one.name) or 'is missing'} (needed: {one.specifier or 'any version'})"
        for one in wanted
        if not _version(one.name) or not one.specifier.contains(_version(one.name), prereleases=True)
    ]
    return f"Missing or too old: {', '.join(lacking)}." if lacking else ""


def _broken(package: str) -> str:
    """A sentence with what importing the package raises, if it does."""
    try:
        importlib.import_module(package)
    except Exception as error:  # a broken build can raise anything
        return f"{package} does not load: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return ""


def _look_for_copy(folder: Path) -> Finding:
    """Is this a learner's copy, so that progress is saved? (Builds and tests of the lessons save none on purpose.)"""
    if os.environ.get("COURSE_PROGRESS", "").lower() == "off":
        return Finding("copy", "note", "This is a build or a test of the lesson, so no progress is saved.")
    if any((place / MARKER).exists() for place in (folder, *folder.parents)):
        return Finding("copy", "note", "This is your copy of the lessons: your progress is saved in it.")
    found = "This is not your copy of the lessons, so your progress is not saved."
    return Finding("copy", "warn", found, "open the lessons with `make lab`, which copies them to the folder `work`.")


def _look_for_weights() -> Finding:
    """Which pretrained networks are here? Only a few cells want one, and they go on without."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    weights = Path(os.environ.get("TORCH_HOME", cache)).expanduser() / "hub" / "checkpoints"
    here = [name for name in PRETRAINED if any(weights.glob(f"{name}-*.pth"))]
    found = f"Weights of pretrained networks: {', '.join(here) or 'none'} of {', '.join(PRETRAINED)} here."
    return Finding("pretrained", "note", f"{found} The lessons go on without.", details=str(weights))
