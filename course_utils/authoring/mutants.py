"""Try the mutants of the right answers, tell how the checks fare, and keep what those do that are refused.

A learner's answer that does the same gets the mutant's slip for its likely cause (`exercises.recorded`).
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch

from course_utils.authoring.edits import Mutant, mutants_of
from course_utils.exercises.answers import Equivalent
from course_utils.exercises.cases import Numbers
from course_utils.exercises.engine import Exercise, exercises_of, find
from course_utils.exercises.evidence import Evidence, TimeIsUp
from course_utils.exercises.outcome import Outcome, Stage
from course_utils.exercises.recorded import SLIPS, VISIBLE_SEED, can_be_said, fingerprint
from course_utils.root import write_whole

SEEDS = (VISIBLE_SEED, 1, 20_261)
SECONDS = 0.5  # that a mutant has for a case


class Refused(NamedTuple):
    """A mutant that the check refuses: with the inputs of which seed, in which words, and what it did."""

    mutant: Mutant
    seed: int
    outcome: Outcome
    evidence: list[Evidence]


@cache
def made_of(name: str) -> list[Mutant]:
    """The mutants of the reference and of every accepted answer of an exercise; whose slip says most comes first."""
    exercise = find(name)
    with torch.random.fork_rng(devices=[]):
        given = next(exercise.make_cases(Numbers(VISIBLE_SEED))).given
    return sorted(mutants_of(exercise.page.answers, exercise.namespace, given), key=lambda each: each.rank)


def try_mutants(exercise: Exercise, mutants: Sequence[Mutant]) -> tuple[list[Mutant], list[Refused]]:
    """Try `mutants` in the cases of `SEEDS`; returns those that pass, and those that are refused."""
    reference, mistakes = exercise.key(VISIBLE_SEED)  # most are refused by these
    keys = [(VISIBLE_SEED, reference, mistakes.items()), *((seed, *exercise.lazy_key(seed)) for seed in SEEDS[1:])]
    for answer in exercise.accepted:
        exercise.observe(answer, VISIBLE_SEED)  # what it imports takes no mutant's time
    passing, refused = [], []
    for mutant in mutants:
        for seed, reference, mistakes in keys:
            got = exercise.observe(mutant.function, seed, SECONDS)
            if got[-1]["raised"] and got[-1]["raised"]["type"] == TimeIsUp.__name__:  # a busy machine must not decide
                got = exercise.observe(mutant.function, seed, 4 * SECONDS)
            outcome = exercise.judge(got, reference, mistakes)
            if not outcome.passed:
                refused.append(Refused(mutant, seed, outcome, got))
                break
        else:
            passing.append(mutant)
    return passing, refused


def reasons_for(exercise: Exercise, mutant: Mutant) -> list[str]:
    """Why a mutant is right as well, by the page of the exercise; nothing where it is not."""
    declared = exercise.page.equivalents.items()
    return [reason for each, reason in declared if each.covers(mutant.operator, mutant.lines)]


def unused_equivalents(exercise: Exercise, mutants: Sequence[Mutant]) -> list[Equivalent]:
    """The edits that the page of an exercise declares equivalent, and that no mutant has."""
    declared = exercise.page.equivalents
    return [each for each in declared if not any(each.covers(one.operator, one.lines) for one in mutants)]


def slips_of(refused: Sequence[Refused]) -> dict[str, str]:
    """The slips by the fingerprints of what they do, but for those that have a cause in words anyway."""
    slips: dict[str, str] = {}
    for mutant, seed, outcome, got in refused:
        timed_out = any(case["raised"] and case["raised"]["type"] == TimeIsUp.__name__ for case in got)
        told = outcome.cause or outcome.stage is Stage.SIDE_EFFECT or not can_be_said(mutant.slip, got, outcome.stage)
        if seed == VISIBLE_SEED and not told and not timed_out:
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
        passing, refused = try_mutants(each, mutants)
        unlike = [mutant for mutant in passing if not reasons_for(each, mutant)]
        undeclared, slips[each.name] = undeclared + len(unlike), slips_of(refused)
        print(f"{len(mutants):>4}{len(refused):>9}{len(passing) - len(unlike):>12}{len(unlike):>6}")
        for mutant in unlike:
            print(f"  {mutant.edit}")
        for mutant in (each_refused.mutant for each_refused in refused):
            if reasons_for(each, mutant):
                print(f"  declared equivalent, and does not pass: {mutant.edit}")
        for entry in unused_equivalents(each, mutants):
            print(f"  declared equivalent, and not made: {entry}")
    if write:
        words = sorted({slip for found in slips.values() for slip in found.values()})
        table = {name: {mark: words.index(slip) for mark, slip in found.items()} for name, found in slips.items()}
        write_whole(SLIPS, json.dumps({"slips": words, "exercises": table}, indent=0) + "\n")
    return undeclared
