"""What was graded before, so that a second run goes on instead of starting again.

In the report's folder `.grading` (for its owner only) is a file for each submission that has been run: what was judged
of each answer. It counts for the same bytes of the same lesson, graded by the same course. The secret that the seeds
come from is there too while a grading is not complete. The next one has another: by then, students have read in their
reports for which inputs their answers failed.
"""

import contextlib
import hashlib
import json
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.verdict import Verdict
from course_utils.root import ROOT, write_whole

FOLDER, ABOUT = ".grading", "run.json"


def digest_course() -> str:
    """A digest of everything that a score depends on: the course's code and lessons, Python, and torch."""
    found = hashlib.sha256(f"{sys.version} torch {version('torch')}".encode())
    for path in sorted([*(ROOT / "course_utils").rglob("*.py"), *(ROOT / "notebooks" / "source").glob("*.py")]):
        found.update(path.relative_to(ROOT).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()


class GradingMemory:
    """What an earlier run of the same course has left in the folder `report`; `None` remembers and keeps nothing."""

    def __init__(self, report: Path | None) -> None:
        self._folder = report / FOLDER if report else None
        self.problem = ""
        self.secret = secrets.randbits(128)
        self.isolation: list[str] = []
        if self._folder is None:
            return
        self._course = digest_course()
        if not self._read_about():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700, parents=True)
        self._note_secret(str(self.secret))

    def _read_about(self) -> bool:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads((self._folder / ABOUT).read_text(encoding="utf-8"))
            if known["course"] == self._course:
                self.isolation = [str(line) for line in known["isolation"]]
                self.secret = int(known["secret"] or self.secret)
                return True
        return False

    def _note_secret(self, secret: str) -> None:
        about = {"course": self._course, "isolation": self.isolation, "secret": secret}
        write_whole(self._folder / ABOUT, json.dumps(about))

    @contextlib.contextmanager
    def _noting_problems(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.problem = f"what was graded cannot be kept for a second run: {error.strerror}"

    def finish(self, isolation: Sequence[str], complete: bool) -> None:
        """Note what kept the answers in; if the grading is `complete`, forget its secret."""
        self.isolation = list(dict.fromkeys([*self.isolation, *isolation]))
        if self._folder is not None:
            with self._noting_problems():
                self._note_secret("" if complete else str(self.secret))

    def path_for(self, student: str, lesson: str, data: bytes) -> Path | None:
        """Where a submission's results are, or will be."""
        if self._folder is None:
            return None
        whose = json.dumps([student, lesson]).encode()
        return self._folder / f"{hashlib.sha256(whose + hashlib.sha256(data).digest()).hexdigest()[:40]}.json"

    def recall(self, path: Path | None) -> list[Verdict] | None:
        """What was judged of a submission before; None if it was not, or cannot be read any more."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return [_read_verdict(each) for each in json.loads(path.read_text(encoding="utf-8"))] if path else None
        return None

    def keep(self, path: Path | None, verdicts: Sequence[Verdict]) -> None:
        """Note what was judged of a submission, so that it need not be run again; `problem` says if that fails."""
        if path is not None:
            with self._noting_problems():
                write_whole(path, json.dumps([asdict(each) for each in verdicts]))


def _read_verdict(content: dict) -> Verdict:
    outcome = content["outcome"]
    return Verdict(**content | {"outcome": Outcome(**outcome | {"stage": Stage(outcome["stage"])})})
