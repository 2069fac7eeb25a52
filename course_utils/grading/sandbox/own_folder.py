"""Temporary folders and locks that end with their process, however it ends: by itself, by Ctrl-C, or killed."""

import contextlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO

from course_utils.grading.sandbox.tasks import Closing

try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

PREFIX, LOCK = "course-grader-", "lock"


def lock(path: Path) -> BinaryIO | None:
    """Lock a file until what is returned is closed, or its process ends; None if somebody else has locked it."""
    file = path.open("ab")
    try:
        if os.name == "nt":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.close()
        return None
    return file


class OwnFolder(Closing):
    """A new temporary folder, at `path`, until it is closed. What a killed process has left, the next one removes."""

    def __init__(self) -> None:
        for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                is_own = old.lstat().st_uid == getattr(os, "geteuid", int)() and not old.is_symlink()
                if is_own and (held := lock(old / LOCK)):
                    with held:  # so that nobody takes it for their own before it is gone
                        remove(old)
        held = None
        while held is None or not (self.path / LOCK).exists():
            # Before it is locked, another process may take the folder for a leftover; then there has to be another.
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            with contextlib.suppress(FileNotFoundError):
                held = lock(self.path / LOCK)
        self.close = weakref.finalize(self, _end, self.path, held)  # at the latest when Python ends


def _end(folder: Path, held: BinaryIO) -> None:
    held.close()  # Windows removes no open file
    remove(folder)


def remove(folder: str | Path) -> None:
    """Remove a folder with all that is in it, closed folders too; no link is followed."""
    for path, names, _ in os.walk(folder):
        for name in names:
            if not os.path.islink(inside := os.path.join(path, name)):
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(inside, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
