"""What came of a check: one value with two faces.

`str(outcome)` is plain text (what nbval compares), `_repr_html_` is what a notebook shows. Words and a symbol carry the
meaning, never colour alone.
"""

import re
from dataclasses import dataclass
from enum import Enum

from course_utils.show import CAUTION, GOOD, NEUTRAL, Told


class Stage(str, Enum):
    """The stages of a check, in the order in which they are passed. The first that fails is the outcome."""

    NOT_AN_EXERCISE = "not an exercise"
    NOT_ATTEMPTED = "not attempted"
    RAISED = "raised"
    RETURNED_NOTHING = "returned nothing"
    WRONG_TYPE = "wrong type or structure"
    WRONG_SHAPE = "wrong shape"
    WRONG_DTYPE = "wrong dtype"
    NOT_FINITE = "not finite"
    WRONG_VALUE = "wrong value"
    SIDE_EFFECT = "side effect"
    PASSED = "passed"

    __str__ = str.__str__


IN_WORDS = "what was wrong"  # begins the name of what a case says about an answer in words; it should be 'nothing'
UNEXPLAINED = (Stage.WRONG_SHAPE, Stage.WRONG_VALUE)  # what is said of the others says by itself what to change
UNKNOWN = "The cause is not known: work through this input by hand, and look for the first step that differs."


@dataclass(frozen=True, repr=False)
class Outcome(Told):
    """The outcome of one exercise.

    `sentence` says what was seen (for which input, what came, what was expected); `cause` is the declared mistake that
    behaves the same, if there is one; `event` is the first thing that happened otherwise than in a right run, where no
    cause is known; `note` is advice about the checking itself, such as "run the cell first".
    """

    exercise: str
    stage: Stage
    sentence: str = ""
    cause: str = ""
    note: str = ""
    possible: int = 0
    hints: int = 0
    event: str = ""
    can_replay: bool = False

    @property
    def passed(self) -> bool:
        """True if every stage was passed."""
        return self.stage is Stage.PASSED

    @property
    def points(self) -> int:
        """The points earned: all of them or none."""
        return self.possible if self.passed else 0

    @property
    def headline(self) -> str:
        """One line: the exercise and how it went."""
        if self.stage is Stage.NOT_AN_EXERCISE:
            return "check: nothing was checked"
        if self.passed:
            return f"{self.exercise}: passed ({self.points} point{'' if self.points == 1 else 's'})"
        if self.stage is Stage.NOT_ATTEMPTED:
            return f"{self.exercise}: not attempted yet"
        return f"{self.exercise}: not yet ({self.stage})"

    @property
    def lines(self) -> list[str]:
        """What follows the headline, a line each."""
        replay = f"See both runs side by side: replay({self.exercise})" if self.can_replay else ""
        event = f"First difference: {self.event}" if self.event else ""
        found = (self.sentence, self._likely_cause, event, self.note, self._way_on, replay)
        return [line for line in found if line]

    @property
    def _likely_cause(self) -> str:
        if self.cause:
            return f"Likely cause: {self.cause}"
        says_why = self.stage not in UNEXPLAINED or re.search(f"{IN_WORDS}|expected .a hook's", self.sentence)
        return "" if says_why or self.event else UNKNOWN

    @property
    def _way_on(self) -> str:
        return f"Stuck? hint({self.exercise})" if self.hints and self.symbol == "✗" else ""

    @property
    def symbol(self) -> str:
        """A sign beside the words."""
        if self.passed:
            return "✓"
        return "○" if self.stage in (Stage.NOT_ATTEMPTED, Stage.NOT_AN_EXERCISE) else "✗"

    @property
    def edge(self) -> str:
        """The colour of the card's edge. The words say the same."""
        return {"✓": GOOD, "✗": CAUTION, "○": NEUTRAL}[self.symbol]
