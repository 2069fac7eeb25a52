"""What a class keeps, in one SQLite file. What was saved outlives a kill and a power cut."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from course_utils.root import CourseError

# `FULL` waits for the disk at each commit. In WAL mode, `NORMAL` does not, and a power cut would take the last seconds.
OPEN = """PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
PRAGMA wal_autocheckpoint=100;
CREATE TABLE IF NOT EXISTS kept (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, value TEXT NOT NULL);"""
INSERT = "INSERT INTO kept (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
BUSY = "A class is running here already. End it first, with Ctrl-C in its window."


class Store:
    """Values by their keys, in `kept`, in the order in which the keys came.

    `put` changes what is kept at once, and `save` brings it to the disk: many changes cost one wait. Whatever is
    answered to a learner is saved first. Raises `CourseError` where another process has the file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)  # it has names, and the instructor's key
        self._file = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            self._file.executescript(OPEN)
        except sqlite3.OperationalError:
            self._file.close()
            raise CourseError(BUSY) from None
        rows = self._file.execute("SELECT key, value FROM kept ORDER BY number")
        self.kept: dict[str, Any] = {key: json.loads(value) for key, value in rows}
        self.derived: dict[Any, Any] = {}  # computed from what is kept; `put` clears it
        self._unsaved: dict[str, str] = {}

    def put(self, key: str, value: Any) -> None:
        """Keep anything that JSON can hold, in the place of what had the key."""
        self.kept[key] = value
        self.derived.clear()
        self._unsaved[key] = json.dumps(value)

    def save(self) -> None:
        """Wait until all that was put is on the disk.

        Raises `sqlite3.Error` where the disk takes nothing; the next call then tries all of it again.
        """
        if not self._unsaved:
            return
        self._file.execute("BEGIN")
        try:
            self._file.executemany(INSERT, self._unsaved.items())
            self._file.execute("COMMIT")
        except sqlite3.Error:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            raise
        self._unsaved.clear()

    def close(self) -> None:
        """Save, and let another process have the file."""
        try:
            self.save()
        finally:
            self._file.close()
