"""What was graded before, so that a second run goes on instead of starting again.

In the report's folder `.grading` (for its owner only) is a file for each submission that has been run: what was judged
of each answer. It counts for the same bytes of the same lesson, graded by the same course; the verdict notebook is made
anew from all of it. The secret that the seeds come from is there too while a grading is not complete. The next one has
another: by then, students have read in their reports for which inputs their answers failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.judge import Judged, Verdict
from course_utils.grading.sandbox.walls import PACKAGE

FOLDER = ".grading"


def digest_course() -> str:
    """A digest of everything that a score depends on: the course's code and lessons, Python, and torch."""
    found = hashlib.sha256(f"{sys.version} torch {version('torch')}".encode())
    sources = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "notebooks" / "source").glob("*.py")]
    for path in sorted(sources):
        found.update(path.relative_to(PACKAGE.parent).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()


class Memory:
    """The folder of an earlier run, if it was of the same course; otherwise a new one. `None` keeps nothing."""

    def __init__(self, report: Path | None) -> None:
        self._folder = report / FOLDER if report else None
        self.secret = secrets.randbits(128)
        self.isolation: list[str] = []
        if self._folder is None:
            return
        self._course = digest_course()
        self._about = self._folder / "run.json"
        if not self._read_about():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700, parents=True)
        self._write_about(str(self.secret))

    def _read_about(self) -> bool:
        """Take over what the last run has left; False if it was of another course, or cannot be read."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(self._about.read_text(encoding="utf-8"))
            if known["course"] == self._course:
                self.isolation = [str(line) for line in known["isolation"]]
                self.secret = int(known["secret"] or self.secret)
                return True
        return False

    def _write_about(self, secret: str) -> None:
        self._write(self._about, {"course": self._course, "isolation": self.isolation, "secret": secret})

    def finish(self, isolation: Sequence[str], complete: bool) -> None:
        """Note what kept the answers in; if the grading is `complete`, forget its secret."""
        self.isolation = list(dict.fromkeys([*self.isolation, *isolation]))
        if self._folder is not None:
            self._write_about("" if complete else str(self.secret))

    def path_for(self, student: str, lesson: str, data: bytes) -> Path | None:
        """Where a submission's results are, or will be."""
        if self._folder is None:
            return None
        whose = json.dumps([student, lesson]).encode()
        return self._folder / f"{hashlib.sha256(whose + hashlib.sha256(data).digest()).hexdigest()[:40]}.json"

    def recall(self, path: Path | None) -> list[Judged] | None:
        """What was judged of a submission before; None if it was not, or cannot be read any more."""
        if path is None:
            return None
        try:
            return [_judged(each) for each in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, path: Path | None, judged: Sequence[Judged]) -> None:
        """Note what was judged of a submission, so that it need not be run again."""
        if path is not None:
            self._write(path, [asdict(each) for each in judged])

    @staticmethod
    def _write(path: Path, content: object) -> None:
        """All of it or nothing: a run may be stopped at any time."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(content), encoding="utf-8")
        part.chmod(0o600)
        os.replace(part, path)


def _judged(content: dict) -> Judged:
    verdict = dict(content.pop("verdict"))
    outcome = verdict.pop("outcome")
    if outcome is not None:
        outcome = Outcome(**outcome | {"stage": Stage(outcome["stage"])})
    return Judged(verdict=Verdict(outcome, **verdict), **content)
