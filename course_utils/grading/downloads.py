"""How learning platforms, browsers and people call files: whose one is, whether it came late, which lesson it holds.

Moodle ("Download all submissions") writes `Ann Lee_1204500_assignsubmission_file/`, or the same before a file's name.
Canvas ("Download Submissions") writes `leeann_4400_990000_` or `leeann_LATE_4400_990000_` before a file's name.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from course_utils.root import name_key

MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_[a-z]+_?(?P<rest>.*)")
CANVAS = re.compile(
    r"(?P<name>[^\W_]+)_(?P<late>LATE_)?(?P<number>\d+)_(?:\d+_(?P<file>.+)|(?P<page>(?:text|link)\.html))"
)
# The heading of the roster's column in which the number stands, in small letters.
MOODLE_COLUMN, CANVAS_COLUMN = "identifier", "id"
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?\Z", re.IGNORECASE)
SCRIPT = re.compile(r"\.py\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Owner:
    """Whose a file is: a name, the number that the roster has in `column`, and whether it came late."""

    name: str
    number: str = ""
    column: str = ""
    late: bool = False


def read_owner(name: str) -> tuple[Owner, str] | None:
    """The owner whom a platform wrote into a file's or a folder's name, and what else the name says; None if none."""
    if found := MOODLE.fullmatch(name):
        return Owner(found["name"], found["number"], MOODLE_COLUMN), found["rest"]
    if found := CANVAS.fullmatch(name):
        return Owner(found["name"], found["number"], CANVAS_COLUMN, bool(found["late"])), found["file"] or found["page"]
    return None


def name_lesson(stem: str, lessons: Iterable[str]) -> str:
    """The one lesson whose name is in a file's, as in `ann_01_Tensor-Hooks (1)`; empty if there is none, or several."""
    plain = re.sub(r"[\W_]+", "_", f"_{stem.casefold()}_")
    found = [name for name in lessons if f"_{name.casefold()}_" in plain]
    return found[0] if len(found) == 1 else ""


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in their order: capitals, accents and what stands between them do not count."""
    return tuple(re.findall(r"[^\W_]+", name_key(name)))


class People:
    """Who on a roster somebody is: by a number or a login where there is one, else by the words of the name.

    `roster` has by each student's name what stands in the columns.
    """

    LOGINS = ("login", "sis login id", "sis user id", "username", "id number", "student id", "email", "email address")

    def __init__(self, roster: Mapping[str, Mapping[str, str]]) -> None:
        self._by_key: dict[object, list[str]] = defaultdict(list)
        for student, cells in roster.items():
            for key in self._read_keys(student, cells):
                self._by_key[key].append(student)

    def _read_keys(self, student: str, cells: Mapping[str, str]) -> set[object]:
        known = {heading.strip().lower(): text.strip() for heading, text in cells.items()}
        numbers = {name: re.search(r"\d+\Z", known.get(name, "")) for name in (MOODLE_COLUMN, CANVAS_COLUMN)}
        words = words_of(without_number(student))
        turned = ["".join(words[turn:] + words[:turn]) for turn in range(len(words))]  # "Lee, Ann" is Canvas' "leeann"
        keys = {(name, number[0]) for name, number in numbers.items() if number}
        keys |= {("login", known[heading].casefold()) for heading in self.LOGINS if known.get(heading)}
        return keys | {frozenset(words), *turned}

    def find(self, owner: Owner) -> list[str]:
        """The names on the roster of those who it can be: one, several, or nobody."""
        words = words_of(owner.name)
        keys = (owner.column, owner.number), ("login", owner.name.casefold()), frozenset(words), "".join(words)
        return next((self._by_key[key] for key in keys if key in self._by_key), [])


def without_number(student: str) -> str:
    """A name without the platform's number, which two students of one name have behind it."""
    return re.sub(r" \((Participant )?\d+\)\Z", "", student)
