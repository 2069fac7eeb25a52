"""Who is in a class: names that nobody has twice, tokens that know a learner again, and those who were removed."""

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hmac import compare_digest
from pathlib import Path

from course_utils.live.store import Store
from course_utils.root import CourseError, name_key

LETTERS = "ACDEFGHJKLMNPQRTUVWXY34679"  # of codes: none looks like another
ROOM_CODE, OWN_CODE = 6, 8  # their lengths; whoever has somebody's own code is this learner, so it is longer
MOST_LEARNERS, MOST_NAME = 1000, 40
BLANK = "\u034f\u115f\u1160\u2800\u3164\uffa0"  # signs that count as printable, and show nothing
TOWER = re.compile("([\u0300-\u036f]{2})[\u0300-\u036f]+")  # of accents, which would stand in other rows

WRONG_CODE = "The room code is another one: look at the projected page."
LOCKED = "The instructor has locked the room. Ask for it to be opened, and try again."
NOT_LISTED = "This name is not on the list of the class. Write it as the list has it."
TAKEN = "Somebody is in the class with this name already. If it was not you, tell your instructor."


class Refused(Exception):
    """Why somebody cannot come in, as a sentence."""


@dataclass
class Learner:
    """One learner; `code` is their own, for a phone or another kernel, and `joined` are seconds since 1970.

    Who turned out to be another learner, on another device, has the number of that one in `same_as`.
    """

    number: int
    name: str
    code: str
    address: str
    joined: float
    removed: bool = False
    same_as: int = 0


class People:
    """The learners of a class, as `store` keeps them. With a `roster`, only its names come in, each of them once."""

    def __init__(self, store: Store, roster: Sequence[str] = ()) -> None:
        self._store = store
        self.roster = {name_key(name): name for name in roster}
        self.all: dict[int, Learner] = {}
        self.reported: Counter[int] = Counter()  # how often each has reported something
        self.wrong_codes = 0  # since the class began or went on
        for key, value in store.kept.items():
            if key.startswith("learner ") and value is not None:
                learner = Learner(**value)
                self.all[learner.number] = learner
        if "code" not in store.kept:
            self.change_code()

    @property
    def code(self) -> str:
        """The room code."""
        return self._store.kept["code"]

    @property
    def here(self) -> dict[int, Learner]:
        """All who came in and were not removed, by their numbers."""
        return {number: each for number, each in self.all.items() if not each.removed}

    @property
    def names(self) -> dict[int, str]:
        """The names of all who are here, by their numbers."""
        return {number: each.name for number, each in self.here.items()}

    @property
    def missing(self) -> list[str]:
        """The names of the roster that nobody has yet."""
        taken = {name_key(each.name) for each in self.here.values()}
        return [name for key, name in self.roster.items() if key not in taken]

    def change_code(self) -> None:
        """Make another room code. All who are here stay."""
        self._store.put("code", _new_code(ROOM_CODE))

    def find(self, token: str) -> Learner | None:
        """The learner who has this token; None where nobody has, or who has it was removed."""
        learner = self._find_any(token)
        return None if learner is None or learner.removed else learner

    def join(self, code: str, name: str, token: str, address: str, now: float) -> tuple[Learner, str]:
        """Let in who knows the room code or was here before; the learner, and the token to know them by.

        A token that is known, and somebody's own code, do without the room code. Raises `Refused`.
        """
        name, code = _clean(name), re.sub(r"[\s-]", "", code).upper()
        before, learner = self.find(token), self._find_code(code)
        if before and learner and before is not learner:
            self._unite(before, learner)
        learner = learner or before
        if learner is None:
            self._refuse_stranger(code)
            learner = self._find_any(token) or self._make_learner(name, address, now)
        if name or learner.removed:
            learner.name = self._choose_name(learner.number, name or learner.name)
        learner.removed = False
        self.all[learner.number] = learner
        self._keep(learner)
        return learner, self._keep_token(token, learner)

    def resolve(self, number: int) -> int:
        """The number of the learner that this one turned out to be; mostly itself."""
        learner = self.all.get(number)
        return learner.same_as or number if learner else number

    def remove(self, numbers: Sequence[int]) -> None:
        """Take learners out of the class, with all that they said. They come back only with the room code."""
        for number in numbers:
            self.all[number].removed = True
            self._keep(self.all[number])

    def _refuse_stranger(self, code: str) -> None:
        if not _same(code, self.code):
            self.wrong_codes += 1
            raise Refused(WRONG_CODE)
        if self._store.kept["locked"] == "yes":
            raise Refused(LOCKED)

    def _make_learner(self, name: str, address: str, now: float) -> Learner:
        number = self._store.kept.get("learners", 0) + 1  # never used again, for tokens remember it
        name, here = self._choose_name(number, name), self.here
        if len(here) >= MOST_LEARNERS:
            self._give_way(here)
        self._store.put("learners", number)
        return Learner(number, name, _new_code(OWN_CODE), address, now)

    def _unite(self, one: Learner, other: Learner) -> None:
        """Both are one person: from now on `other`, also for what `one` did."""
        for each in self.all.values():
            if one.number in (each.number, each.same_as):
                each.same_as, each.removed = other.number, True
                self._keep(each)

    def _give_way(self, here: dict[int, Learner]) -> None:
        """Forget the last to come of the most crowded address, best one who has reported nothing.

        So a right code is never refused, and a flood only displaces itself.
        """
        crowd = Counter(each.address for each in here.values())

        def weigh(learner: Learner) -> tuple[int, bool, int]:
            return crowd[learner.address], not self.reported[learner.number], learner.number

        number = max(here.values(), key=weigh).number
        del self.all[number]
        self._store.put(f"learner {number}", None)

    def _choose_name(self, number: int, wanted: str) -> str:
        """The name as it may be shown. Without a roster, the second `Ann` becomes `Ann (2)`. Raises `Refused`."""
        others = {name_key(each.name) for each in self.here.values() if each.number != number}
        if self.roster:
            if name_key(wanted) not in self.roster:
                raise Refused(NOT_LISTED)
            if name_key(wanted) in others:
                raise Refused(TAKEN)
            return self.roster[name_key(wanted)]
        wanted = wanted or f"Learner {number}"
        name, count = wanted, 1
        while name_key(name) in others:
            count += 1
            name = f"{wanted} ({count})"
        return name

    def _find_any(self, token: str) -> Learner | None:
        number = self._store.kept.get(_digest(token))
        return None if number is None else self.all.get(self.resolve(number))

    def _find_code(self, code: str) -> Learner | None:
        return next((each for each in self.here.values() if _same(each.code, code)), None)

    def _keep(self, learner: Learner) -> None:
        self._store.put(f"learner {learner.number}", asdict(learner))

    def _keep_token(self, token: str, learner: Learner) -> str:
        if self._find_any(token) is not learner:
            token = secrets.token_urlsafe(24)
            self._store.put(_digest(token), learner.number)
        return token


def read_roster(path: Path) -> list[str]:
    """The names in a text file, one a line. Raises `CourseError` if there is none, or a name stands there twice."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise CourseError(f"The roster {path} cannot be read as text: {error}") from None
    names = [name for name in map(_clean, lines) if name]
    counts = Counter(map(name_key, names))
    if twice := [name for name in names if counts[name_key(name)] > 1]:
        raise CourseError(f"The roster {path} has {twice[0]} twice: give them names that differ.")
    if not names:
        raise CourseError(f"The roster {path} holds no names. Write one name on each line.")
    return names


def _new_code(length: int) -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(length))


def _clean(name: str) -> str:
    """A name as it may be shown: on one line, without signs that are not seen, and not too long."""
    seen = "".join(sign for sign in name if (sign.isprintable() or sign.isspace()) and sign not in BLANK)
    return " ".join(TOWER.sub(r"\1", seen).split())[:MOST_NAME]


def _same(one: str, other: str) -> bool:
    return compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))


def _digest(token: str) -> str:
    return f"token {hashlib.sha256(token.encode(errors='replace')).hexdigest()}"
