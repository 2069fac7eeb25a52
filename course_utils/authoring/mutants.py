"""Try the mutants of the right answers, and tell how the checks fare: `make mutants LESSON=03`."""

import ast
import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from course_utils.exercises.engine import Exercise, exercises_of, find
from course_utils.exercises.evidence import Evidence
from course_utils.exercises.judging import facts
from course_utils.exercises.mutants import SECONDS, Mutant, mutate
from course_utils.exercises.outcome import Outcome, Stage

SEEDS = (0, 1, 20_261)
PAIRS = 30  # of an exercise


class Tried(NamedTuple):
    """What came of the mutants of an exercise: those that pass, and the outcome of each that is refused."""

    passing: list[Mutant]
    refused: list[tuple[Mutant, Outcome, list[Evidence]]]


def try_mutants(exercise: Exercise, mutants: Sequence[Mutant] | None = None) -> Tried:
    """Try `mutants` (by default all of them) in the cases of `SEEDS`."""
    keys = [(seed, *exercise.key(seed)) for seed in SEEDS]
    for answer in exercise.accepted:
        exercise.observe(answer, SEEDS[0])  # what it imports takes no mutant's time
    tried = Tried([], [])
    for mutant in exercise.mutants if mutants is None else mutants:
        for seed, reference, mistakes in keys:
            got = exercise.observe(mutant.function, seed, SECONDS)
            outcome = exercise.judge(got, reference, mistakes.items())
            if not outcome.passed:
                tried.refused.append((mutant, outcome, got))
                break
        else:
            tried.passing.append(mutant)
    return tried


def make_pairs(exercise: Exercise) -> list[Mutant]:
    """A seeded sample of answers with two edits."""
    chance, pairs = random.Random(exercise.name), []
    for one in chance.choices(exercise.mutants, k=PAIRS):
        two = list(mutate(ast.parse(one.source).body[0], one.function.__module__, {}))
        pairs += chance.sample(two, min(1, len(two)))
    return pairs


def share_explained(tried: Tried, others: Tried) -> float:
    """The share of refused answers whose cause is told: by a declared mistake, an exception at a line of their own, a
    side effect, or by the slip of another mutant among `others` that behaves alike."""
    alike = Counter(_fingerprint(got) for _, _, got in others.refused)
    told = (
        outcome.cause
        or outcome.stage in (Stage.RAISED, Stage.SIDE_EFFECT)
        or alike[_fingerprint(got)] > (tried is others)
        for _, outcome, got in tried.refused
    )
    return sum(map(bool, told)) / max(len(tried.refused), 1)


def _fingerprint(got: Sequence[Evidence]) -> str:
    return json.dumps([[fact.mine for fact in facts(case, case)] for case in got])


def show_mutants(lesson: int | None = None, exercise: str | None = None) -> int:
    """Print how the mutants of each exercise fare, and those that pass as diffs; returns how many pass undeclared."""
    undeclared = 0
    print(f"{'exercise':<26}made  refused  equivalent  pass  explained  pairs  explained")
    for each in [find(exercise)] if exercise else exercises_of(lesson):
        tried = try_mutants(each)
        passing = [mutant for mutant in tried.passing if mutant.edit not in each.equivalents]
        undeclared += len(passing)
        pairs = try_mutants(each, make_pairs(each))
        print(
            f"{each.name:<26}{len(each.mutants):>4}{len(tried.refused):>9}{len(tried.passing) - len(passing):>12}"
            f"{len(passing):>6}{share_explained(tried, tried):>11.0%}"
            f"{len(pairs.refused):>7}{share_explained(pairs, tried):>11.0%}"
        )
        for mutant in passing:
            print(f"  {mutant.edit}")
        for edit in each.equivalents.keys() - {mutant.edit for mutant in tried.passing}:
            print(f"  declared equivalent, and does not pass, or is not made: {edit}")
    return undeclared
