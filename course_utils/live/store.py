"""What a class keeps, in one SQLite file: values by their keys, in the order in which they came.

Everything is with the system before it is answered, so that a kill loses nothing. A power cut may lose the last pages:
to wait for the disk each time would cost a full class seconds. One process at a time has the file.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

from course_utils.root import CourseError

OPEN = """PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
PRAGMA wal_autocheckpoint=100;
CREATE TABLE IF NOT EXISTS kept (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, value TEXT NOT NULL);"""


class Store:
    """The file of one class; `kept` is what is in it. Raises `CourseError` where another process has it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # it has names, and the instructor's key
        self._file = sqlite3.connect(path, isolation_level=None, timeout=0)
        self.close = self._file.close  # then another process may have it
        try:
            self._file.executescript(OPEN)
        except sqlite3.OperationalError:
            raise CourseError("A class is running here already. End it first, with Ctrl-C in its window.") from None
        rows = self._file.execute("SELECT key, value FROM kept ORDER BY number")
        self.kept: dict[str, Any] = {key: json.loads(value) for key, value in rows}

    def put(self, key: str, value: Any) -> None:
        """Keep anything that JSON can hold, in the place of what had the key."""
        insert = "INSERT INTO kept (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        self._file.execute(insert, (key, json.dumps(value)))
        self.kept[key] = value
