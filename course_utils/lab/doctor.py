"""Look at the environment a lesson runs in, and say how to mend what is wrong with it.

`doctor()` in a notebook shows one line a check. While all is well, both its faces depend on nothing but that: no
version, path or number of the machine; `doctor(details=True)` adds those. Nothing here needs a working PyTorch.
"""

from __future__ import annotations

import html
import importlib
import importlib.metadata
import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_utils.lab.jupyter import MARKER, WORK
from course_utils.lab.setup import (
    OLDEST_PYTHON,
    find_version,
    list_unmet,
    release_numbers,
    split_requirement,
)
from course_utils.show import (
    BAD,
    CAUTION,
    GOOD,
    NEUTRAL,
)

Status = Literal["ok", "warn", "fail", "note"]

LEAST_DISK = 1e9  # bytes: enough for the outputs, and for the weights of one pretrained network
PRETRAINED = ("alexnet", "resnet34", "squeezenet1_1")
SYMBOLS = {"ok": "✓", "warn": "!", "fail": "✗", "note": "i"}
EDGES = {"ok": GOOD, "warn": CAUTION, "fail": BAD, "note": NEUTRAL}
REINSTALL = "in the course's folder run `make setup`, then restart the kernel (menu Kernel, Restart Kernel)."
OTHER_KERNEL = (
    "menu Kernel, Change Kernel, choose Python 3 (ipykernel) and run the lesson again. If that changes nothing, close "
    "Jupyter and open the lessons with `make lab`."
)


@dataclass(frozen=True)
class Finding:
    """What one check found.

    `found` is a sentence, the same on every machine where the status is "ok"; `details` holds versions, paths and
    numbers; `mend` says what to do where the status is "warn" (a lesson runs, but not all of it) or "fail". A "note"
    asks for nothing, and is shown with the details only.
    """

    name: str
    status: Status
    found: str
    mend: str = ""
    details: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings, with a plain-text and an HTML face."""

    findings: tuple[Finding, ...]
    details: bool = False

    @property
    def healthy(self) -> bool:
        """True where no check failed; warnings are allowed."""
        return all(finding.status != "fail" for finding in self.findings)

    @property
    def summary(self) -> str:
        """How many checks are fine, and how many findings there are to mend."""
        checks = [finding for finding in self.findings if finding.status != "note"]
        wrong = sum(finding.status != "ok" for finding in checks)
        if not wrong:
            return "All is well: the lessons can start."
        return f"{len(checks) - wrong} of {len(checks)} checks are fine; the lines above say how to mend the rest."

    def shown(self) -> list[Finding]:
        """The findings to show: notes only together with the details."""
        return [finding for finding in self.findings if self.details or finding.status != "note"]

    def __str__(self) -> str:
        lines = []
        for finding in self.shown():
            lines.append(f"{finding.status:<6}{finding.found}")
            if self.details and finding.details:
                lines.append(f"      {finding.details}")
            if finding.mend:
                lines.append(f"      To mend it: {finding.mend}")
        return "\n".join([*lines, self.summary])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(self._row(finding) for finding in self.shown())
        return (
            '<div role="group" aria-label="What the doctor found" style="color:var(--jp-content-font-color0, inherit)">'
            f'<ul style="list-style:none;margin:0;padding:0">{rows}</ul>'
            f"<p><strong>{html.escape(self.summary)}</strong></p></div>"
        )

    def _row(self, finding: Finding) -> str:
        lines = [finding.details] if self.details and finding.details else []
        lines += [f"To mend it: {finding.mend}"] if finding.mend else []
        body = "".join(f"<div>{_code_spans(line)}</div>" for line in lines)
        return (
            '<li style="display:flex;border-left:4px solid '
            f'{EDGES[finding.status]};padding:.15em .75em;margin:.15em 0"><strong style="flex:0 0 4.5em">'
            f'<span aria-hidden="true">{SYMBOLS[finding.status]}</span> {finding.status}</strong> '
            f"<div>{_code_spans(finding.found)}{body}</div></li>"
        )


def _code_spans(text: str) -> str:
    """Escape `text` for HTML and set what stands between pairs of backquotes as code."""
    parts = html.escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if odd % 2 else part for odd, part in enumerate(parts))


def doctor(details: bool = False) -> Diagnosis:
    """Check the environment of this notebook and show what was found; with `details`, versions, paths and notes too."""
    return Diagnosis(tuple(diagnose()), details)


def main() -> int:
    """Print the diagnosis of the environment that runs this, with details; return 1 where a check failed."""
    diagnosis = Diagnosis(tuple(diagnose(WORK if WORK.is_dir() else WORK.parent, notebook=False)), details=True)
    print(diagnosis)
    return 0 if diagnosis.healthy else 1


def diagnose(folder: Path | None = None, notebook: bool = True) -> list[Finding]:
    """Run every check for lessons in `folder` (default: the current one), most basic first. Raises nothing.

    `notebook=False` leaves out what is about an open lesson: whether it is the learner's own copy.
    """
    folder = folder or Path.cwd()
    return [
        check_python(),
        check_torch(),
        check_torchvision(),
        check_packages(),
        check_kernel(),
        check_widgets(),
        check_disk(folder),
        check_folder(folder),
        *([check_copy(folder)] if notebook else []),
        check_pretrained(),
    ]


# ---- versions


def _read_requirements() -> list[str]:
    """Return what the installed course says it needs, without the extras."""
    try:
        lines = importlib.metadata.requires("course-utils") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [line for line in lines if "extra ==" not in line]


def _describe_lack(requirements: Iterable[str]) -> str:
    parts = []
    for requirement in requirements:
        name, bound = split_requirement(requirement)
        parts.append(f"{name} {find_version(name) or 'is missing'} (needed: {bound or 'any version'})")
    return ", ".join(parts)


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Is Python as new as the course needs?"""
    shown, needed = ".".join(map(str, version)), ".".join(map(str, OLDEST_PYTHON))
    if version < OLDEST_PYTHON:
        return Finding(
            "Python",
            "fail",
            f"Python is too old: {shown}, and the course needs {needed} or newer.",
            f"install Python {needed} or newer, delete the folder `.venv` and run `make lab PYTHON=` with its name.",
        )
    return Finding("Python", "ok", "Python is new enough", details=f"Python {shown} at {sys.executable}")


def check_torch() -> Finding:
    """Is PyTorch there, new enough, and does it load?"""
    return _check_package("torch", "PyTorch")


def check_torchvision() -> Finding:
    """Is torchvision there, new enough, and does it fit PyTorch? (A CUDA torchvision beside a CPU torch does not.)"""
    return _check_package("torchvision", "torchvision")


def _check_package(package: str, name: str) -> Finding:
    needed = [line for line in _read_requirements() if split_requirement(line)[0] == package] or [package]
    lack = list_unmet(needed)
    if lack:
        return Finding(name, "fail", f"{name} is missing or too old: {_describe_lack(lack)}.", REINSTALL)
    try:
        importlib.import_module(package)
    except Exception as error:  # a broken build can raise anything, and the finding is what it raised
        reason = (str(error).strip().splitlines() or [""])[0]
        return Finding(
            name,
            "fail",
            f"{name} does not load: {type(error).__name__}: {reason}",
            "close Jupyter, delete the folder `.venv` and run `make lab`. PyTorch and torchvision must come from one "
            "index: both for CUDA, or both for CPU only.",
        )
    return Finding(name, "ok", f"{name} is new enough, and loads", details=f"{name} {find_version(package)}")


def check_packages() -> Finding:
    """Are the other packages as new as the course needs?"""
    requirements = [line for line in _read_requirements() if split_requirement(line)[0] not in ("torch", "torchvision")]
    if not requirements:
        return Finding("packages", "fail", "The course is not installed for this Python.", OTHER_KERNEL)
    lack = list_unmet(requirements)
    if lack:
        return Finding("packages", "fail", f"Packages are missing or too old: {_describe_lack(lack)}.", REINSTALL)
    versions = ", ".join(f"{name} {find_version(name)}" for name, _ in map(split_requirement, requirements))
    return Finding("packages", "ok", "The other packages are new enough", details=versions)


# ---- notebook


def check_kernel() -> Finding:
    """Does the kernel run the Python of the environment into which the course was installed?"""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    if any(importlib.metadata.distributions(name="course-utils", path=folders)):
        return Finding("kernel", "ok", "The kernel is the course's own", details=f"environment {sys.prefix}")
    return Finding(
        "kernel",
        "fail",
        f"The kernel is another Python than the course's: nothing of the course is installed in {sys.prefix}.",
        OTHER_KERNEL,
    )


def check_widgets() -> Finding:
    """Can sliders and buttons work: kernel side (ipywidgets, comm) and page side (JupyterLab's widget manager)?"""
    versions = []
    for package in ("ipywidgets", "comm", "jupyterlab_widgets"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            found = f"Widgets do not work: {package} cannot be imported ({error})."
            return Finding("widgets", "fail", found, REINSTALL)
        versions.append(f"{package} {find_version(package)}")
    if release_numbers(find_version("jupyterlab_widgets")) < (3,):
        found = f"Widgets do not work: jupyterlab_widgets {find_version('jupyterlab_widgets')} is too old (needed: 3)."
        return Finding("widgets", "fail", found, REINSTALL)
    manager = Path(sys.prefix, "share/jupyter/labextensions/@jupyter-widgets/jupyterlab-manager/package.json")
    if not manager.is_file():
        found = "Widgets may not show in JupyterLab: its widget manager is not in this environment."
        return Finding("widgets", "warn", found, f"{REINSTALL} Then reload the page.")
    return Finding("widgets", "ok", "Widgets can be shown", details=", ".join(versions))


# ---- disk


def check_disk(folder: Path) -> Finding:
    """Is there a gigabyte left on the disk of `folder`?"""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(
            "disk", "warn", f"The free space of {folder} cannot be read: {error.strerror}.", "free some space."
        )
    if free < LEAST_DISK:
        found = f"The disk is nearly full: {free / 1e9:.1f} GB are free."
        return Finding("disk", "warn", found, f"free some space: the lessons want {LEAST_DISK / 1e9:.0f} GB.")
    return Finding("disk", "ok", "There is room on the disk", details=f"{free / 1e9:.0f} GB free at {folder}")


def check_folder(folder: Path) -> Finding:
    """Can files be written in `folder`?"""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding(
            "folder",
            "fail",
            f"Nothing can be saved in {folder}: {error.strerror}.",
            "move the course to a folder of your own and run `make lab` there.",
        )
    return Finding("folder", "ok", "Files can be saved in this folder", details=str(folder))


def check_copy(folder: Path) -> Finding:
    """Is this a learner's copy, so that progress is saved? (Builds and tests of the lessons save none on purpose.)"""
    if os.environ.get("COURSE_PROGRESS", "").lower() == "off":
        return Finding("copy", "note", "This is a build or a test of the lesson, so no progress is saved.")
    if any((place / MARKER).exists() for place in (folder, *folder.parents)):
        return Finding("copy", "note", "This is your copy of the lessons: your progress is saved in it.")
    return Finding(
        "copy",
        "warn",
        "This is not your copy of the lessons, so your progress is not saved.",
        "open the lessons with `make lab`, which copies them to the folder `work`.",
    )


def check_pretrained() -> Finding:
    """Which pretrained networks are here? Only a few cells want one, and they go on without."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    weights = Path(os.environ.get("TORCH_HOME", cache)).expanduser() / "hub" / "checkpoints"
    here = [name for name in PRETRAINED if any(weights.glob(f"{name}-*.pth"))]
    missing = [name for name in PRETRAINED if name not in here]
    found = f"Weights of pretrained networks: {', '.join(here) or 'none'} here"
    if missing:
        found += f"; {', '.join(missing)} would be downloaded. The lessons go on without them"
    return Finding("pretrained", "note", f"{found}.", details=str(weights))
