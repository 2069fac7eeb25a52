"""What every exercise's reference and mistakes do, observed once a session and seed."""

from collections.abc import Callable
from functools import cache

from course_utils.exercises.engine import exercises_of
from course_utils.exercises.evidence import Evidence
from course_utils.exercises.outcome import Outcome

EXERCISES = {each.name: each for each in exercises_of()}


@cache
def key_of(name: str, seed: int) -> tuple[list[Evidence], dict[str, list[Evidence]]]:
    return EXERCISES[name].key(seed)


def outcome_of(name: str, answer: Callable, seed: int = 0) -> Outcome:
    """What `check` says to an answer, with the key of the session."""
    exercise, (reference, mistakes) = EXERCISES[name], key_of(name, seed)
    return exercise.judge(exercise.observe(answer, seed), reference, mistakes.items())
