"""What was graded before, so that a second run goes on instead of starting again.

In the report's folder `.grading` (for its owner only), in a folder for this state of the course, is a file for each
submission that has been run: what was judged of each answer, for the same bytes of the same lesson. What belongs to one
lesson alone is not in the folder's name but in the file's, so that who changes an exercise has its lesson graded anew.
The secret that the seeds come from is there too, until a grading is complete: by the next, students have read in their
reports for which inputs their answers failed.
"""

import contextlib
import functools
import hashlib
import json
import secrets
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout

from course_utils.exercises.declaration import read_declarations
from course_utils.grading.report import Score
from course_utils.grading.sandbox.tasks import Closing
from course_utils.grading.verdict import NOTEBOOK
from course_utils.root import ANSWERS, ROOT, CourseError, write_whole

FOLDER, ABOUT, LOCK = ".grading", "run.json", "lock"
LEFT = (NOTEBOOK, ".*.part", "students/.*.part", f"{FOLDER}/*/.*.part")  # by an earlier grader; halves of files


# What only the scores of one lesson depend on, and what all do.
LESSON = "course_utils/lessons/lesson_{0}.py", "course_utils/assets/*_{0}.json", "notebooks/{0}_*.ipynb"
COURSE = "course_utils/**/*.py", "course_utils/assets/*"


def digest_course() -> str:
    """A digest of what all scores depend on: the course's code and assets, Python, and torch."""
    apart = {path for pattern in LESSON for path in ROOT.glob(pattern.format("[0-9][0-9]"))}
    paths = {path for pattern in COURSE for path in ROOT.glob(pattern)} - apart
    return _digest(paths, f"{sys.version} torch {version('torch')}")


def digest_lesson(lesson: str) -> str:
    """A digest of what the scores of one lesson depend on besides: its text, its cases and its answers."""
    paths = {path for pattern in LESSON for path in ROOT.glob(pattern.format(lesson[:2]))}
    names = (each.name for each in read_declarations() if f"{each.lesson:02d}" == lesson[:2])
    return _digest(paths | {path for name in names if (path := ANSWERS / f"{name}.md").exists()}, lesson)


def _digest(paths: Iterable[Path], about: str) -> str:
    found = hashlib.sha256(about.encode())
    for path in sorted(paths):
        found.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


class GradingMemory(Closing):
    """What an earlier run of the same course has left in the folder `report`; `None` remembers and keeps nothing.

    Of the student `anew` nothing is remembered.
    Until this is closed it is locked. Raises `CourseError` if another grader locks it, or nothing can be written there.
    """

    def __init__(self, report: Path | None, anew: str | None = None) -> None:
        self._anew, self._digest_lesson = anew, functools.cache(digest_lesson)
        self.problem, self.secret, self.isolation, self._folder = "", secrets.randbits(128), [], None
        if report is None:
            return
        self._folder = report / FOLDER / digest_course()[:40]
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.parent.chmod(0o700)
            held = FileLock(self._folder.with_name(LOCK), thread_local=False)
            held.acquire(blocking=False)
            self.close = held.release
            for old in [path for pattern in LEFT for path in report.glob(pattern)]:
                old.unlink()
        except Timeout:
            message = f"another grading writes to {report} now: wait for it, or give another --report."
            raise CourseError(message) from None
        except OSError as error:
            raise CourseError(f"the report cannot be written to {report}: {error.strerror}.") from None
        for old in {*self._folder.parent.glob("*/")} - {self._folder}:
            shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(Exception):  # whatever it is, it was not written here
            known = json.loads((self._folder / ABOUT).read_text(encoding="utf-8"))
            self.isolation, self.secret = known["isolation"], known["secret"] or self.secret
        self.finish([], complete=False)

    def finish(self, isolation: Sequence[str], complete: bool) -> None:
        """Note what kept the answers in; if the grading is `complete`, forget its secret."""
        self.isolation = list(dict.fromkeys([*self.isolation, *isolation]))
        self._write(ABOUT, {"isolation": self.isolation, "secret": 0 if complete else self.secret})

    def recall(self, student: str, lesson: str, data: bytes) -> tuple[str, list[Score]]:
        """The name under which is kept what is judged of a submission, and what was; [] if nothing can be read."""
        whose = json.dumps([student, lesson, self._digest_lesson(lesson), hashlib.sha256(data).hexdigest()])
        name = f"{hashlib.sha256(whose.encode()).hexdigest()[:40]}.json"
        if student == self._anew:
            return name, []
        with contextlib.suppress(Exception):  # there is no folder, or it was not written here
            return name, [Score(**row) for row in json.loads((self._folder / name).read_text(encoding="utf-8"))]
        return name, []

    def keep(self, name: str, scores: Sequence[Score]) -> None:
        """Note what was judged of a submission, so that it need not be run again; `problem` says if that fails."""
        self._write(name, [asdict(each) for each in scores])

    def _write(self, name: str, content: object) -> None:
        try:
            if self._folder:
                write_whole(self._folder / name, json.dumps(content))
        except OSError as error:
            self.problem = f"what was graded cannot be kept for a second run: {error.strerror}"
