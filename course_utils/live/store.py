"""What a class keeps, in one SQLite file: its settings, its learners, and what they reported.

Everything is on the disk before it is answered, so that a kill loses nothing. One process at a time has the file.
"""

import hashlib
import json
import secrets
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from course_utils.root import CourseError

TABLES = """
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS learner (number INTEGER PRIMARY KEY, token TEXT UNIQUE NOT NULL, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS report (learner INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    said TEXT NOT NULL, cause TEXT NOT NULL, phase TEXT NOT NULL, at REAL NOT NULL, UNIQUE (learner, id));
"""


class Report(NamedTuple):
    """What a learner did: `kind` is "exercise" (`said` is the stage) or "prediction" (the choice, made in `phase`)."""

    learner: int
    kind: str
    name: str
    said: str
    cause: str
    phase: str
    at: float


class Store:
    """The file of one class. Raises `CourseError` where another process has it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # it has names, and the instructor's key
        self._file = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            self._file.executescript(
                f"PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {TABLES}"
            )
        except sqlite3.OperationalError:
            raise CourseError("A class is running here already. End it first, with Ctrl-C in its window.") from None
        self.close = self._file.close  # so that another process may have the file
        self._settings = {name: json.loads(value) for name, value in self._file.execute("SELECT * FROM setting")}
        self._learners = dict(self._file.execute("SELECT token, number FROM learner"))
        self.names: dict[int, str] = dict(self._file.execute("SELECT number, name FROM learner"))
        self.reports = [Report(*row) for row in self._file.execute(f"SELECT {','.join(Report._fields)} FROM report")]

    def get(self, name: str, default: Any = None) -> Any:
        """A setting."""
        return self._settings.get(name, default)

    def put(self, name: str, value: Any) -> None:
        """Keep a setting: anything that JSON can hold."""
        self._file.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, json.dumps(value)))
        self._settings[name] = value

    def add_learner(self, name: str) -> str:
        """A new learner's token; only its digest is kept. Without a `name`, it is one made of the number."""
        token, number = secrets.token_urlsafe(24), len(self.names) + 1
        name = name or f"Learner {number}"
        self._file.execute("INSERT INTO learner VALUES (?, ?, ?)", (number, _digest(token), name))
        self._learners[_digest(token)], self.names[number] = number, name
        return token

    def find_learner(self, token: str) -> int | None:
        """The number of the learner who has this token; None where nobody has."""
        return self._learners.get(_digest(token))

    def rename(self, learner: int, name: str) -> None:
        """Call a learner by another name."""
        self._file.execute("UPDATE learner SET name = ? WHERE number = ?", (name, learner))
        self.names[learner] = name

    def add(self, key: str, report: Report) -> bool:
        """Keep a report, once: whether its `key` is a new one of this learner's."""
        columns = ("id", *Report._fields)
        sql = f"INSERT OR IGNORE INTO report ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})"
        new = self._file.execute(sql, (key, *report)).rowcount > 0
        if new:
            self.reports.append(report)
        return new


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
