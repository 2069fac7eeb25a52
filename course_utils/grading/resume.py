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
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from course_utils.exercises.outcome import Outcome, Stage
from course_utils.grading.sandbox.own_folder import LOCK, lock
from course_utils.grading.sandbox.tasks import Closing
from course_utils.grading.verdict import NOTEBOOK, Verdict
from course_utils.root import ROOT, CourseError, write_whole

FOLDER, ABOUT = ".grading", "run.json"
LEFT = (
    NOTEBOOK,
    ".*.part",
    "students/.*.part",
    f"{FOLDER}/*/.*.part",
)  # by an earlier grader: its record, halves of files


def digest_course() -> str:
    """A digest of everything that a score depends on: the course's code and lessons, Python, and torch."""
    found = hashlib.sha256(f"{sys.version} torch {version('torch')}".encode())
    for path in sorted([*(ROOT / "course_utils").rglob("*.py"), *(ROOT / "notebooks" / "source").glob("*.py")]):
        found.update(path.relative_to(ROOT).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()


class GradingMemory(Closing):
    """What an earlier run of the same course has left in the folder `report`; `None` remembers and keeps nothing.

    No other grader writes to the report until this is closed. Raises `CourseError` if one does, or if nothing can be
    written there.
    """

    def __init__(self, report: Path | None) -> None:
        self.problem, self.secret, self.isolation = "", secrets.randbits(128), []
        self._folder = report / FOLDER / digest_course()[:40] if report else None
        if report is None:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (report / FOLDER).chmod(0o700)
            self._held = lock(report / FOLDER / LOCK)
            if self._held is None:
                raise CourseError(
                    f"another grading writes to {report} now: wait for its end, or give another --report."
                )
            for old in [path for pattern in LEFT for path in report.glob(pattern)]:
                old.unlink()
        except OSError as error:
            raise CourseError(f"the report cannot be written to {report}: {error.strerror}.") from None
        for old in set((report / FOLDER).glob("*/")) - {self._folder}:
            shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads((self._folder / ABOUT).read_text(encoding="utf-8"))
            self.isolation, self.secret = list(map(str, known["isolation"])), int(known["secret"] or self.secret)
        self._write(ABOUT, {"isolation": self.isolation, "secret": str(self.secret)})

    def close(self) -> None:
        """Let other graders have the report."""
        self._held.close()

    def _write(self, name: str, content: object) -> None:
        try:
            write_whole(self._folder / name, json.dumps(content))
        except OSError as error:
            self.problem = f"what was graded cannot be kept for a second run: {error.strerror}"

    def finish(self, isolation: Sequence[str], complete: bool) -> None:
        """Note what kept the answers in; if the grading is `complete`, forget its secret."""
        self.isolation = list(dict.fromkeys([*self.isolation, *isolation]))
        if self._folder:
            self._write(ABOUT, {"isolation": self.isolation, "secret": "" if complete else str(self.secret)})

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
        if path:
            self._write(path.name, [asdict(each) for each in verdicts])


def _read_verdict(content: dict) -> Verdict:
    outcome = content["outcome"]
    return Verdict(**content | {"outcome": Outcome(**outcome | {"stage": Stage(outcome["stage"])})})
