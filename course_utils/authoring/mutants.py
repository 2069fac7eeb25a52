"""Try the mutants of the right answers, and tell how the checks fare."""

from collections.abc import Sequence
from functools import cache

import torch

from course_utils.exercises.answers import Equivalent
from course_utils.exercises.cases import Numbers
from course_utils.exercises.edits import Mutant, mutants_of
from course_utils.exercises.engine import Exercise, exercises_of, find
from course_utils.exercises.evidence import TimeIsUp
from course_utils.exercises.judging import find_first_wrong
from course_utils.exercises.plain import raised_type
from course_utils.exercises.recorded import VISIBLE_SEED

SEEDS = (VISIBLE_SEED, 1, 20_261)
SECONDS = 0.5  # that a mutant has for a case


@cache
def made_of(name: str) -> list[Mutant]:
    """The mutants of the reference and of every accepted answer of an exercise."""
    exercise = find(name)
    with torch.random.fork_rng(devices=[]):
        given = next(exercise.make_cases(Numbers(VISIBLE_SEED))).given
    return list(mutants_of(exercise.page.answers, exercise.namespace, given))


def try_mutants(exercise: Exercise, mutants: Sequence[Mutant]) -> tuple[list[Mutant], list[Mutant]]:
    """Try `mutants` in the cases of `SEEDS`; returns those that pass, and those that are refused."""
    references = {seed: exercise.lazy_key(seed)[0] for seed in SEEDS}  # most are refused by the first seed
    for answer in exercise.accepted:
        exercise.observe(answer, VISIBLE_SEED)  # what it imports takes no mutant's time
    passing, refused = [], []
    for mutant in mutants:
        for seed, reference in references.items():
            got = exercise.observe(mutant.function, seed, SECONDS)
            if raised_type(got[-1]) == TimeIsUp.__name__:  # a busy machine must not decide
                got = exercise.observe(mutant.function, seed, 4 * SECONDS)
            if find_first_wrong(got, reference) is not None:
                refused.append(mutant)
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


def show_mutants(lesson: str | None = None, exercise: str | None = None) -> int:
    """Print how the mutants of each exercise fare, and those that pass as diffs; returns how many pass undeclared."""
    undeclared = 0
    print(f"{'exercise':<26}made  refused  equivalent  pass")
    for each in [find(exercise)] if exercise else exercises_of(int(lesson) if lesson else None):
        print(f"{each.name:<26}", end="", flush=True)
        mutants = made_of(each.name)
        passing, refused = try_mutants(each, mutants)
        unlike = [mutant for mutant in passing if not reasons_for(each, mutant)]
        undeclared += len(unlike)
        print(f"{len(mutants):>4}{len(refused):>9}{len(passing) - len(unlike):>12}{len(unlike):>6}")
        for mutant in unlike:
            print(f"  {mutant.edit}")
        for mutant in refused:
            if reasons_for(each, mutant):
                print(f"  declared equivalent, and does not pass: {mutant.edit}")
        for entry in unused_equivalents(each, mutants):
            print(f"  declared equivalent, and not made: {entry}")
    return undeclared
