"""Where the course lies, which edition of it this is, and what every room needs: its error, a near name, a safe write.

Standard library only: `python -m course_utils` imports this before anything is installed.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import sys
import unicodedata
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ASSETS = Path(__file__).with_name("assets")
ANSWERS = Path(__file__).with_name("lessons") / "answers"  # a page for each exercise, which no student gets
BACKUPS = "backups"  # beside a learner's copies: the files as they were before an update
STUDENT_COMMANDS = ("lab", "check", "submit", "doctor", "language-model", "setup")  # what a students' release has


class CourseError(ValueError):
    """Something that whoever runs this can put right; the message says what, and how."""


def skip_grammar() -> None:
    """Let jsonschema do without a format that no file here has: every process would build its grammar, for 2 s."""
    sys.modules.setdefault("rfc3987_syntax", None)  # to import it raises ImportError, as if it were missing


def nearest(name: object, known: Iterable[str], most: int = 3) -> list[str]:
    """Return up to `most` of the `known` names that look like `name`, the likeliest first; [] where none does."""
    return difflib.get_close_matches(str(name), list(known), n=most, cutoff=0.5)


def name_key(name: str) -> str:
    """What two people's names have in common that look the same: without accents, capitals and the width of letters."""
    return re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", name)).casefold()


def require(what: str, name: object, known: Iterable[str], lister: str = "") -> str:
    """Return `name`, one of the `known` names; else raise `CourseError`, which says the nearest, and all of them.

    what: what they name, to begin a sentence with. lister: where they are many, what lists them, in their place.
    """
    if name not in (known := [*known]):
        near = " or ".join(map(repr, nearest(name, known)))
        there = f"{lister} lists them" if lister else f"There are: {', '.join(map(repr, known))}"
        raise CourseError(f"{what}: there is no {name!r}{f'; did you mean {near}?' if near else '.'} {there}.")
    return name


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: a reader, or the next run after a crash, never finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def find_free_path(path: Path) -> Path:
    """Return `path`, or where there is such a file, the first of `name-2`, `name-3` and so on that is free."""
    found, number = path, 1
    while found.exists():
        number += 1
        found = path.with_stem(f"{path.stem}-{number}")
    return found


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """A zip of `files`, by their path in it. The same files give the same bytes, whatever the machine and day.

    A script, which begins with `#!`, may be run.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.create_system = 3  # Unix, so that the rights count
            entry.external_attr = (0o755 if files[name].startswith(b"#!") else 0o644) << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


PLACEHOLDER = "/REPOSITORY"  # so the address ends as long as there is none


def repository() -> str:
    """The address of the course's repository, as pyproject.toml says it."""
    return re.findall(r'^Repository = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[0]


def recorded_path(lesson: int) -> Path:
    """Where a students' release keeps the results that its checks compare with, in the place of reference answers."""
    return ASSETS / f"recorded_{lesson:02d}.json"


def has_answers() -> bool:
    """Whether the reference answers are here; in a students' release, recorded results are."""
    return ANSWERS.is_dir()


def sealed_path(lesson: int) -> Path:
    """Where what a lesson's source says of its exercises and predictions is kept for the package; see `seal`."""
    return ASSETS / f"sealed_{lesson:02d}.json"


def sealed_lessons() -> list[int]:
    """The numbers of the lessons, in order."""
    return sorted(int(path.stem[-2:]) for path in ASSETS.glob("sealed_[0-9][0-9].json"))
