"""Temporary folders that end with their process, however it ends: by itself, by Ctrl-C, or killed."""

import contextlib
import os
import secrets
import shutil
import tempfile
import weakref
from pathlib import Path

from filelock import BaseFileLock, FileLock

from course_utils.grading.sandbox.tasks import Closing

PREFIX, LOCK = "course-grader-", ".lock"


class OwnFolder(Closing):
    """A temporary folder, at `path`, and its lock, until it is closed. What a killed process has left is removed."""

    def __init__(self) -> None:
        place = Path(tempfile.gettempdir())
        for old in place.glob(f"{PREFIX}*{LOCK}"):
            with contextlib.suppress(OSError):
                if old.lstat().st_uid == getattr(os, "geteuid", int)() and not old.with_suffix("").is_symlink():
                    _end(old.with_suffix(""), FileLock(old, mode=0o600).acquire(blocking=False).lock)
        self.path = place / f"{PREFIX}{secrets.token_hex(8)}"
        held = FileLock(self.path.with_suffix(LOCK), mode=0o600, thread_local=False)
        held.acquire()
        self.path.mkdir(mode=0o700)
        self.close = weakref.finalize(self, _end, self.path, held)  # at the latest when Python ends


def _end(folder: Path, held: BaseFileLock) -> None:
    remove(folder)
    held.release()
    Path(held.lock_file).unlink(missing_ok=True)


def remove(folder: str | Path) -> None:
    """Remove a folder with all that is in it, closed folders too; no link is followed."""
    for path, names, _ in os.walk(folder):
        for name in names:
            if not os.path.islink(inside := os.path.join(path, name)):
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(inside, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
