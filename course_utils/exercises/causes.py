"""Why an answer may be wrong: the declared mistakes that behave as it does, or what all its numbers have in common."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from course_utils.exercises.comparing import (
    RETURNED,
    Cases,
    Fact,
    alike,
    close,
    facts,
    kind_of_error,
    passes,
    plain_state,
    side_effects,
)
from course_utils.exercises.outcome import Stage
from course_utils.exercises.plain import Evidence, Plain, number_text

# The message of each mistake, with what its function does in every case, or a function that tells it, `at` one case or
# of all.
Mistakes = Iterable[tuple[str, Cases | Callable[..., Cases]]]
LAZY = "`map`, `filter`, and a function with `yield` do nothing until somebody goes through what they return. "
LAZY += "Make a list, and return that."
BESIDES = " Besides: "  # between the messages of two mistakes in one answer
# Words that say which hooks there are, and what is then in the name of the function that registers them.
SAID_OF_HOOKS = {
    r"\b[Yy]our (\w+ )?hook|[Tt]he hook's handle": "register_",
    r"\b[Pp]re-hook": "pre_hook",
    r"\b[Ll]oad hook": "load_state_dict",
    r"\b[Bb]ackward hook": "backward_hook",
    r"\b[Ff]orward hook": "forward_hook",
    r"\b[Pp]ost-accumulate": "post_accumulate",
    r"\bfor all modules|\b[Gg]lobal hook": "register_module_",
}
# Operations that messages speak of in plain words, too.
OPERATIONS = {"abs", "clone", "detach", "mean", "median", "norm", "softmax", "square", "std", "sum"}
Differences = Mapping[tuple[int, str], Plain]  # by the number of the case and the words for what differs
Pairs = Sequence[tuple[Sequence[float], Sequence[float]]]  # numbers that came, and those that were expected


class Causes(NamedTuple):
    """The messages of the mistakes that an answer has, and whether they explain all that differs."""

    messages: list[str]
    explain_all: bool

    def __str__(self) -> str:
        return BESIDES.join(self.messages)


def find_causes(got: Cases, key: Cases, mistakes: Mistakes) -> Causes:
    """The mistakes that explain an answer: one that behaves alike, or several that together do.

    No more is asked of `mistakes` than it takes.
    """
    if _is_lazy(got, key):
        return Causes([LAZY], True)
    left = find_differences(got, key)
    causes: list[str] = []
    while True:
        candidates = {}
        for message, cases in _find_candidates(left, got, key, mistakes):
            if _behaves_alike(got, cases):
                return Causes([message], True)
            candidates[message] = cases
        if _changes_an_input_in_place(got, key):
            return Causes([], False)  # then nothing else that is seen has a cause of its own
        found, left = _explain_together(left, key, _without_other_effects(candidates, got, key))
        causes += found
        if not (found and left):
            return Causes(causes, not left)


def _is_lazy(got: Cases, key: Cases) -> bool:
    """Whether an answer returns what runs only when somebody goes through it, where a list or a dict is asked for."""
    returned, wanted = (cases[0]["returned"] if cases else {} for cases in (got, key))
    return returned.get("value") in ("map", "filter", "zip", "generator") and "items" in wanted


def _find_candidates(left: Differences, got: Cases, key: Cases, mistakes: Mistakes) -> Iterator[tuple[str, Cases]]:
    """The mistakes that do something of the same in the first case of what is `left`, and whose messages are true of
    the answer.
    """
    first = min((number for number, _ in left), default=None)
    mine = {words: value for (number, words), value in left.items() if number == first}
    names, right = (cases[0]["names"] if cases else [] for cases in (got, key))
    for message, known in mistakes:
        if mine:  # what does nothing of the same in that case, which is tried alone, is not run in all cases
            there = known(at=first) if callable(known) else known[first : first + 1]
            if not any(_share_something(mine, _case_differences(case, key[first])) for case in there):
                continue
        cases = known() if callable(known) else known
        if _can_be_said(message, cases[0]["names"], right, names):
            yield message, cases


def _without_other_effects(candidates: Mapping[str, Cases], got: Cases, key: Cases) -> dict[str, Cases]:
    """The mistakes that have no side effect which the answer has not."""
    mine = {*side_effects(got, key)}
    return {message: cases for message, cases in candidates.items() if {*side_effects(cases, key)} <= mine}


def _share_something(mine: Mapping[str, Plain], theirs: Mapping[str, Plain]) -> bool:
    return any(words in theirs and alike(value, theirs[words]) for words, value in mine.items())


def _can_be_said(message: str, names: Sequence[str], right: Sequence[str], answer: Sequence[str]) -> bool:
    """Whether what a message says the mistake has, with the `names` in its code, is in the answer: a hook, and what the
    `right` answer does not have, a piece of code or an operation, such as "a sum".
    """
    for words, part in SAID_OF_HOOKS.items():
        mistake_has, answer_has = (any(part in name for name in each) for each in (names, answer))
        if mistake_has and not answer_has and re.search(words, message):
            return False
    return names_said(message, names) - {*right} <= {*answer}


def names_said(message: str, names: Sequence[str]) -> set[str]:
    """Those of `names` that a message says: in a piece of code, or as an operation."""
    code = " ".join(message.split("`")[1::2])
    said = {*re.findall(r"\w+", code)} | (OPERATIONS & {*re.findall(r"\w+", message)})
    return said & {*names}


def _behaves_alike(got: Cases, other: Cases) -> bool:
    """Whether two answers did the same in every case."""
    return len(got) == len(other) and all(map(_did_the_same, got, other))


def _did_the_same(one: Evidence, other: Evidence) -> bool:
    """Whether two answers did the same in a case; where they raised does not count."""
    if one["raised"] and other["raised"]:
        return kind_of_error(one["raised"]) == kind_of_error(other["raised"])
    return passes(one, other) and passes(other, one)


def _changes_an_input_in_place(got: Cases, key: Cases) -> bool:
    return any("in place" in words for words in side_effects(got, key))


def _explain_together(left: Differences, key: Cases, candidates: Mapping[str, Cases]) -> tuple[list[str], Differences]:
    """The messages of mistakes each of which explains other aspects, and what is left unexplained.

    A mistake explains aspects if the answer does there, in every case, what the mistake does, and if it is seen in more
    than one case.
    """
    causes = []
    for message, cases in candidates.items():
        found = find_differences(cases, key)
        aspects = {words for _, words in found}
        touched = {place: value for place, value in left.items() if place[1] in aspects}
        told_by = {number for number, _ in found}
        does_the_same = touched.keys() == found.keys() and all(alike(left[each], found[each]) for each in found)
        if len(told_by) > 1 and does_the_same:
            causes.append(message)
            left = {place: value for place, value in left.items() if place not in found}
    return causes, left


def find_differences(got: Cases, key: Cases) -> Differences:
    """What differs in all cases but for side effects."""
    return {
        (number, words): value
        for number, (mine, reference) in enumerate(zip(got, key, strict=False))
        for words, value in _case_differences(mine, reference).items()
    }


def _case_differences(mine: Evidence, reference: Evidence) -> dict[str, Plain]:
    """What differs in one case but for side effects, by the words for it.

    After an error in what came behind the call, only what was returned counts as well: the rest was not seen.
    """
    found = {}
    for fact in facts(mine, reference):
        is_seen = not mine["raised"] or (fact.words == RETURNED and mine["raised"]["during"] != "call")
        if fact.stage is Stage.SIDE_EFFECT or fact.agrees:
            continue
        if fact.stage is Stage.RAISED and mine["raised"]:
            found[fact.words] = plain_state(kind_of_error(mine["raised"]))
        elif is_seen:
            found[fact.words] = fact.mine
    return found


def gives_zeros_alone(got: Cases, key: Cases) -> bool:
    """Whether everything that is wrong is 0: many mistakes together come to that, so it tells of none of them."""
    numbers = [number for value in find_differences(got, key).values() for number in _numbers(value)]
    return bool(numbers) and not any(numbers)


def relate_numbers(got: Cases, key: Cases) -> str:
    """What all numbers of the aspects that differ have in common, in every case in which these are; empty if nothing,
    or if one case alone tells.
    """
    found = [fact for pair in zip(got, key, strict=False) for fact in facts(*pair)]
    found = [fact for fact in found if fact.stage is not Stage.SIDE_EFFECT]
    differing = {fact.words for fact in found if not fact.agrees}
    same = [fact for fact in found if fact.words in differing and not _is_empty(fact)]
    if not same or any(_is_a_count(fact.words, fact.expected) for fact in same):
        return ""
    pairs = [(_numbers(fact.mine), _numbers(fact.expected)) for fact in same]
    if not all(mine and len(mine) == len(expected) for mine, expected in pairs) or not all(map(_has_shape, same)):
        return ""
    if sum(not fact.agrees for fact in same) < 2:
        return ""
    for sentence, find in RELATIONS.items():
        if said := find(pairs):
            return sentence.format(said)
    return ""


def _is_empty(fact: Fact) -> bool:
    """Whether there is nothing in it, as there should be: nothing that could have a relation to anything."""
    return fact.agrees and not _numbers(fact.expected)


def _has_shape(fact: Fact) -> bool:
    return all(fact.mine.get(what) == fact.expected.get(what) for what in ("shape", "dtype"))


def _is_a_count(words: str, expected: Plain) -> bool:
    """Whether a case counts something there, such as calls: counts have no relation to each other."""
    return expected["type"] == "int" and words != RETURNED


def _numbers(value: Plain) -> list[float]:
    """The finite numbers in a tensor or a list, or a number itself; none where there is anything else."""
    if value.get("values"):
        found = value["values"]
    elif value["type"] in ("list", "tuple", "set"):
        found = [item.get("value") for item in value["items"]]
    else:
        found = [value.get("value")]
    return list(found) if all(type(number) in (int, float) for number in found) else []


def _flat(pairs: Pairs) -> list[tuple[float, float]]:
    return [two for pair in pairs for two in zip(*pair, strict=True)]


def _is_negated(pairs: Pairs) -> bool:
    return all(close(one, -other) for one, other in _flat(pairs))


def _has_other_signs(pairs: Pairs) -> bool:
    return all(close(abs(one), abs(other)) for one, other in _flat(pairs))


def _is_reordered(pairs: Pairs) -> bool:
    return all(all(map(close, sorted(mine), sorted(expected))) for mine, expected in pairs)


def _common_factor(pairs: Pairs) -> str:
    """By what all numbers are multiplied; empty if by different factors, or if there are one or two only."""
    flat = {*_flat(pairs)}
    factors = {number_text(one / other) for one, other in flat if other}
    zeros_agree = all(bool(one) == bool(other) for one, other in flat)
    return factors.pop() if len(flat) > 2 and len(factors) == 1 and zeros_agree else ""


def _common_shift(pairs: Pairs) -> str:
    """What is added to all numbers; empty if it differs, or if there are one or two only."""
    flat = {*_flat(pairs)}
    shifts = {number_text(one - other) for one, other in flat}
    return shifts.pop() if len(flat) > 2 and len(shifts) == 1 else ""


# What wrong numbers may have to do with the right ones: a sentence, and the function that tests it. Where the sentence
# is not true, that returns False or ""; where it has {}, the text to put there.
RELATIONS: dict[str, Callable[[Pairs], bool | str]] = {
    "Every wrong number has the other sign.": _is_negated,
    "Where numbers are wrong, only signs are.": _has_other_signs,
    "Where numbers are wrong, the right ones stand there in another order.": _is_reordered,
    "Every wrong number is {} times what it should be.": _common_factor,
    "Every wrong number differs by {} from what it should be.": _common_shift,
}
