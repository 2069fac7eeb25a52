"""What a question about a learner's own answer is, and what it is made of.

Nobody writes down what is true: it is observed, in a case of the exercise, which runs as `check` runs it.
"""

import itertools
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.changes import Change, Source, changes_of, read_source
from course_utils.exercises.engine import Exercise
from course_utils.exercises.evidence import TimeIsUp, can_limit_time, observe_all
from course_utils.exercises.plain import Evidence, raised_type, show
from course_utils.exercises.recorded import VISIBLE_SEED

SECONDS = 0.2  # of computing, for trying changes; a learner is waiting
SECONDS_FOR_A_CASE = 0.2  # that an answer has; a longer case is not asked about
SECONDS_FOR_A_CHANGE = 0.03  # in each case, and ten times what the answer itself takes
CASES = 3  # that are looked at
LONGEST_CASE = 200  # of the words for a case that is asked about
MOST_OPTIONS, FEWEST_OPTIONS = 4, 3


@dataclass(frozen=True)
class Question:
    """A question about an answer; `answer` is that of the options which was observed.

    `key` tells it from other questions about the same exercise, also where lines have moved. `explain` returns the
    reason in a sentence, from a record of what happens in one more run.
    """

    exercise: str
    key: str
    text: str
    options: tuple[str, ...]
    answer: str
    explain: Callable[[], str]


@dataclass(frozen=True)
class Subject:
    """What a question is made of: an answer, its text, and what it does in the first cases; and which were `asked`.

    A change has `limit` seconds for a case, and nothing more is tried after `end`, in seconds of computing.
    """

    exercise: Exercise
    answer: Callable
    source: Source
    own: list[Evidence]
    asked: Collection[str]
    limit: float
    end: float

    @property
    def is_quick(self) -> bool:
        """Whether most of the time is left."""
        return self.end - time.process_time() > 0.8 * SECONDS

    @property
    def cases(self) -> list[int]:
        """The numbers of the cases that can be told, the one with the least to read and to compute with first."""
        told = [at for at, case in enumerate(self.own) if 0 < len(case["given"]) <= LONGEST_CASE]
        return sorted(told, key=lambda at: _how_hard(self.own[at]))

    def tell_case(self, at: int) -> str:
        """The words for case number `at`."""
        return self.own[at]["given"].rstrip(",")

    def changes(self, share: float) -> Iterator[Change]:
        """The changes of the answer, until this share of the time that is left is used up."""
        now = time.process_time()
        end = now + share * (self.end - now)
        return itertools.takewhile(lambda _: time.process_time() < end, changes_of(self.source))

    def run(self, change: Change, at: int) -> Evidence:
        """What a changed answer does in case number `at`."""
        return self.exercise.observe(change.function, VISIBLE_SEED, self.limit, at)[0]

    def run_all(self, change: Change) -> list[Evidence]:
        """What a changed answer does in all cases that are looked at."""
        return _run_first(self.exercise, change.function, self.limit)


def find_subject(exercise: Exercise, answer: Callable, asked: Collection[str]) -> Subject | None:
    """What questions about an answer that passes are made of.

    None without the text of the answer, where no time can be limited, or where each case takes long.
    """
    end = time.process_time() + SECONDS
    source = read_source(answer) if can_limit_time() else None
    if source is None:
        return None
    start = time.monotonic()
    own = _run_first(exercise, answer, SECONDS_FOR_A_CASE)
    limit = SECONDS_FOR_A_CHANGE + 10 * (time.monotonic() - start) / len(own)
    own = [case for case in own if raised_type(case) != TimeIsUp.__name__]
    return Subject(exercise, answer, source, own, asked, limit, end) if own else None


def _how_hard(case: Evidence) -> int:
    """How much there is to read and to compute with; most where the answer only lets an error pass."""
    values = [case["returned"], *case["seen"].values()]
    words = case["given"] + "".join(show(value) for value in values)
    unwieldy = len(re.findall(r"\de[+-]\d|begins with", words))  # no head computes with 5e+31
    return len(words) + 100 * unwieldy + 10_000 * bool(case["raised"])


def _run_first(exercise: Exercise, function: Callable, limit: float) -> list[Evidence]:
    """What a function does in the first cases, without those that were used before."""

    def make_cases(rng: Numbers) -> Iterator[Case]:
        for case in itertools.islice(exercise.make_cases(rng), CASES):
            case.fresh = True
            yield case

    return observe_all(make_cases, function, VISIBLE_SEED, limit, None)


def shuffle(texts: Sequence[str], by: str) -> list[str]:
    """The texts in an order that says nothing, and is the same each time."""
    return sorted(texts, key=lambda each: zlib.crc32(f"{by}{each}".encode()))
