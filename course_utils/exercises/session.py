"""What a kernel remembers of its learner, and of the class that the learner joined. It ends with the kernel."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from course_utils.exercises import saved_progress

NOT_KEPT = "Open the lessons with `make lab` and your progress is kept between sessions."
LOST = f"Your progress will be lost when this kernel ends. {NOT_KEPT}"


@dataclass
class Session:
    """What is remembered of the learner's work in this kernel."""

    failed_code: dict[str, object] = field(default_factory=dict)  # by exercise: the code that the last check refused
    seeds: dict[str, int] = field(default_factory=dict)  # by exercise: the seed of the inputs of the last check
    said: set[str] = field(default_factory=set)  # sentences that are said once
    explanations: dict[str, Any] = field(default_factory=dict)  # by prediction: the widget that unfolds at the commit
    waiting: Any = None  # the outputs that are kept back, where there is a front end for it

    def fails_again(self, exercise: str, code: object) -> bool:
        """Remember the code that a check refused; whether it is the very code that the last check refused."""
        before = self.failed_code.get(exercise)
        self.failed_code[exercise] = code
        return before is code

    def say_once(self, sentence: str) -> str:
        """The sentence when it is said for the first time, and later nothing."""
        if sentence in self.said:
            return ""
        self.said.add(sentence)
        return sentence

    def warn_once_of_loss(self) -> str:
        """A sentence where progress ends with the kernel, the first time."""
        return self.say_once(LOST) if saved_progress.is_lost() else ""


@dataclass
class JoinedClass:
    """The class that the learner joined; without listeners there is none.

    A listener is told the kind of a thing, its name, the stage or the choice, and the cause. It returns a sentence for
    the learner, or an empty one.
    """

    listeners: list[Callable[[str, str, str, str], str]] = field(default_factory=list)
    opened: dict[str, bool] = field(default_factory=dict)  # explanations that it opens or keeps closed, by prediction
    votes: dict[str, str] = field(default_factory=dict)  # the last choice, by prediction; the lesson keeps the first

    def tell(self, kind: str, name: str, said: str, cause: str = "") -> list[str]:
        """Tell the listeners what was done; returns their sentences for the learner."""
        answers = [listener(kind, name, said, cause) for listener in self.listeners]
        return [answer for answer in answers if answer]


session = Session()
joined_class = JoinedClass()
