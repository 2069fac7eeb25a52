"""Try the mutants of the right answers, and tell how the checks fare: `make mutants LESSON=03`.

What a mutant that is refused does in the first cases is kept in `assets/slips.json`: a learner's answer that does the
same gets the mutant's slip for its likely cause (`exercises.slips`).
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch

from course_utils.authoring.edits import Mutant, mutants_of
from course_utils.exercises.cases import Numbers
from course_utils.exercises.engine import Exercise, exercises_of, find
from course_utils.exercises.evidence import Evidence, TimeIsUp
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.slips import PATH, SEED, can_be_said, fingerprint
from course_utils.root import write_whole

SEEDS = (SEED, 1, 20_261)
SECONDS = 0.5  # that a mutant has for a case


class Refused(NamedTuple):
    """A mutant that the check refuses: with the inputs of which seed, in which words, and what it did."""

    mutant: Mutant
    seed: int
    outcome: Outcome
    evidence: list[Evidence]


class Tried(NamedTuple):
    """What came of the mutants of an exercise."""

    passing: list[Mutant]
    refused: list[Refused]


@cache
def made_of(name: str) -> list[Mutant]:
    """The mutants of the reference and of every accepted answer of an exercise; whose slip says most comes first."""
    exercise = find(name)
    with torch.random.fork_rng(devices=[]):
        given = next(exercise.make_cases(Numbers(SEED))).given
    return sorted(mutants_of((exercise.reference, *exercise.accepted), given), key=lambda each: each.rank)


def try_mutants(exercise: Exercise, mutants: Sequence[Mutant]) -> Tried:
    """Try `mutants` in the cases of `SEEDS`."""
    reference, mistakes = exercise.key(SEED)  # most are refused by these
    keys = [(SEED, reference, mistakes.items()), *((seed, *exercise.lazy_key(seed)) for seed in SEEDS[1:])]
    for answer in exercise.accepted:
        exercise.observe(answer, SEED)  # what it imports takes no mutant's time
    tried = Tried([], [])
    for mutant in mutants:
        for seed, reference, mistakes in keys:
            got = exercise.observe(mutant.function, seed, SECONDS)
            if got[-1]["raised"] and got[-1]["raised"]["type"] == TimeIsUp.__name__:  # a busy machine must not decide
                got = exercise.observe(mutant.function, seed, 4 * SECONDS)
            outcome = exercise.judge(got, reference, mistakes)
            if not outcome.passed:
                tried.refused.append(Refused(mutant, seed, outcome, got))
                break
        else:
            tried.passing.append(mutant)
    return tried


def slips_of(tried: Tried) -> dict[str, str]:
    """The slips by the fingerprints of what they do, but for those that have a cause in words anyway."""
    slips: dict[str, str] = {}
    for mutant, seed, outcome, got in tried.refused:
        timed_out = any(case["raised"] and case["raised"]["type"] == TimeIsUp.__name__ for case in got)
        told = outcome.cause or outcome.stage is Stage.SIDE_EFFECT or not can_be_said(mutant.slip, got, outcome.stage)
        if seed == SEED and not told and not timed_out:
            slips.setdefault(fingerprint(got), mutant.slip)
    return slips


def show_mutants(lesson: str | None = None, exercise: str | None = None, write: bool = False) -> int:
    """Print how the mutants of each exercise fare, and those that pass as diffs; returns how many pass undeclared.

    With `write`, which needs all lessons, the slips are written anew.
    """
    undeclared, slips = 0, {}
    print(f"{'exercise':<26}made  refused  equivalent  pass")
    for each in [find(exercise)] if exercise else exercises_of(None if write or not lesson else int(lesson)):
        print(f"{each.name:<26}", end="", flush=True)
        mutants = made_of(each.name)
        tried = try_mutants(each, mutants)
        passing = [mutant for mutant in tried.passing if mutant.edit not in each.equivalents]
        undeclared, slips[each.name] = undeclared + len(passing), slips_of(tried)
        equivalent = len(tried.passing) - len(passing)
        print(f"{len(mutants):>4}{len(tried.refused):>9}{equivalent:>12}{len(passing):>6}")
        for mutant in passing:
            print(f"  {mutant.edit}")
        for edit in each.equivalents.keys() - {mutant.edit for mutant in tried.passing}:
            print(f"  declared equivalent, and does not pass, or is not made: {edit}")
    if write:
        words = sorted({slip for found in slips.values() for slip in found.values()})
        table = {name: {mark: words.index(slip) for mark, slip in found.items()} for name, found in slips.items()}
        write_whole(PATH, json.dumps({"slips": words, "exercises": table}, indent=0) + "\n")
    return undeclared
