"""Try the mutants of the right answers, and tell how the checks fare: `make mutants LESSON=03`."""

from typing import NamedTuple

from course_utils.exercises.engine import Exercise, exercises_of, find
from course_utils.exercises.mutants import SECONDS, Mutant

SEEDS = (0, 1, 20_261)


class Tried(NamedTuple):
    """What came of the mutants of an exercise: how many, and how many of those refused got a cause; those that pass."""

    exercise: Exercise
    made: int
    explained: int
    passing: list[Mutant]


def try_mutants(exercise: Exercise) -> Tried:
    """Try every mutant in the cases of `SEEDS`."""
    keys = {seed: exercise.key(seed) for seed in SEEDS}
    explained, passing = 0, []
    for mutant in exercise.mutants:
        for seed, (reference, mistakes) in keys.items():
            outcome = exercise.judge(exercise.observe(mutant.function, seed, SECONDS), reference, mistakes.items())
            if not outcome.passed:
                explained += bool(outcome.cause)
                break
        else:
            passing.append(mutant)
    return Tried(exercise, len(exercise.mutants), explained, passing)


def show_mutants(lesson: int | None = None, exercise: str | None = None) -> int:
    """Print how the mutants of each exercise fare, and those that pass as diffs; returns how many pass undeclared."""
    chosen = [find(exercise)] if exercise else exercises_of(lesson)
    undeclared = 0
    print(f"{'exercise':<28}made  refused  equivalent  pass  with a cause")
    for tried in map(try_mutants, chosen):
        passing = [mutant for mutant in tried.passing if mutant.edit not in tried.exercise.equivalents]
        refused = tried.made - len(tried.passing)
        equivalent, undeclared = len(tried.passing) - len(passing), undeclared + len(passing)
        share = f"{tried.explained / max(refused, 1):.0%}"
        print(f"{tried.exercise.name:<28}{tried.made:>4}{refused:>9}{equivalent:>12}{len(passing):>6}{share:>14}")
        for mutant in passing:
            print(f"  {mutant.edit}")
    return undeclared
