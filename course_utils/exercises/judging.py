"""From evidence to an outcome: compare what an answer did with what the reference did.

Works on plain data alone, so that a judge can do it in a process in which no learner's code ever ran. `facts` says what
counts, and `alike` when two values count as equal; everything else is words.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from course_utils.exercises.outcome import IN_WORDS, Outcome, Stage
from course_utils.exercises.plain import MAX_SHOWN, Evidence, Plain, name_type, number_text, show

TOLERANCE = {"rel_tol": 1e-5, "abs_tol": 1e-6}
Cases = Sequence[Evidence]  # what one answer did in each case
Mistakes = Iterable[tuple[str, Cases | Callable[..., Cases]]]  # each with its message; see `judge`
Part = tuple[Stage, str, Plain, Plain]
NOTHING, ABSENT = {"type": "None"}, {"type": "absent"}
INTERCHANGEABLE = ({"list", "tuple"}, {"int", "float"}, {"function", "module"})
CHANGES = {
    "value": "your function changed its input `{name}` in place",
    "requires_grad": "your function changed `requires_grad` of its input `{name}`",
    "training": "your function left `{name}` in another mode (train/eval) than it found it in",
    "settings": "your function changed an attribute of `{name}` or of a module in it, or gave it a new one",
    "hooks": "your function left a hook on `{name}`: remove those that have done their work, even if an error comes",
    "hooks of others": "your function removed a hook from `{name}` that is not its own",
}
KEPT_ALIVE = "something you stored keeps an input, and with it the computation graph, alive after the call: "
KEPT_ALIVE += "store a detached copy, or only the numbers you need"


class Fact(NamedTuple):
    """One thing that counts in a case: words, the value here and in the reference, and the stage if it has just one."""

    words: str
    mine: Plain
    expected: Plain
    stage: Stage | None = None


def facts(got: Evidence, expected: Evidence) -> Iterator[Fact]:
    """Everything that counts in one case, in the order in which it is judged."""
    raised = (_state(case["raised"] and case["raised"]["type"]) for case in (got, expected))
    yield Fact("raised", *raised, Stage.RAISED)
    returned = Fact("your function returned", got["returned"], expected["returned"])
    seen = [Fact(f"{label} was", got["seen"].get(label, NOTHING), value) for label, value in expected["seen"].items()]
    yield from sorted([returned, *seen], key=lambda fact: not fact.words.startswith(IN_WORDS))
    for name, reference in expected["inputs"].items():
        if "grad" in reference and "[" not in name:
            mine = _gradients(name, got["inputs"][name]["grad"])
            for place, grad in _gradients(name, reference["grad"]).items():
                yield Fact(f"{place}.grad was", mine.get(place, NOTHING), grad)
    asked = expected["changed"]
    for aspect in dict.fromkeys(aspect for changed in got["changed"].values() for aspect in changed):
        names = [name for name, found in got["changed"].items() if aspect in {*found} - {*asked.get(name, ())}]
        if names and (aspect != "hooks" or _could_remove(got, expected)):
            yield _side_effect(CHANGES[aspect].format(name="` and `".join(names)))
    for name, changed in asked.items():
        mine, reference = got["inputs"][name], expected["inputs"][name]
        for aspect in changed:
            if aspect in ("requires_grad", "training"):
                words = f"`{name}` did not end in the state ({aspect}) it should"
                yield Fact(words, _state(mine.get(aspect)), _state(reference[aspect]), Stage.WRONG_VALUE)
            elif aspect == "value" and "type" in reference["value"]:  # of a tensor, not of a module
                yield Fact(f"afterwards `{name}` was", mine["value"], reference["value"])
    for setting in got["world"]:
        if setting not in expected["world"]:
            yield _side_effect(f"your function changed {setting} and did not put it back")
    if got["alive"] and not expected["alive"]:
        yield _side_effect(KEPT_ALIVE)


def _could_remove(got: Evidence, expected: Evidence) -> bool:
    """Whether every handle came to the case that was to remove it: no error came between, and they were returned."""
    returned, mine, reference = expected["returned"], *((case["raised"] or {}).get("type") for case in (got, expected))
    return mine == reference and ("'handle'" not in str(returned) or alike(got["returned"], returned))


def _state(value: Any) -> Plain:
    return {"type": "state", "value": value}


def _side_effect(words: str) -> Fact:
    return Fact(words, _state(True), _state(False), Stage.SIDE_EFFECT)


def _gradients(name: str, grad: Mapping[str, Any]) -> Mapping[str, Plain]:  # of a tensor, or of a module's parameters
    return {name: grad} if "type" in grad else {f"{name}.{key}": one for key, one in grad.items()}


def alike(mine: Plain, expected: Plain) -> bool:
    """Whether two plain values count as equal: numbers within tolerance, a tuple for a list, 3 for 3.0."""
    return _differing_part(mine, expected) is None


def _differing_part(got: Plain, expected: Plain, path: str = "") -> Part | None:
    """The first difference inside two plain values: its stage, the path to it, and what stands there in each."""
    mine, reference, stage = got["type"], expected["type"], None
    if mine == "None" != reference:
        stage = Stage.RETURNED_NOTHING
    elif mine != reference and {mine, reference} not in INTERCHANGEABLE:
        stage = Stage.WRONG_TYPE
    elif reference == "tensor":
        stage = _tensor_stage(got, expected)
    elif "items" in expected:
        return _differing_item(got, expected, path)
    elif "value" in expected and not _close(got.get("value"), expected["value"]):
        stage = Stage.WRONG_VALUE if _finite(got.get("value")) else Stage.NOT_FINITE
    return (stage, path, got, expected) if stage else None


def _tensor_stage(got: Plain, expected: Plain) -> Stage | None:
    if got["shape"] != expected["shape"]:
        return Stage.WRONG_SHAPE
    if got["dtype"] != expected["dtype"]:
        return Stage.WRONG_DTYPE
    pairs = list(zip(got["values"], expected["values"], strict=True))
    if all(_close(a, b) for a, b in pairs):
        return None
    return Stage.WRONG_VALUE if all(_finite(a) or not _finite(b) for a, b in pairs) else Stage.NOT_FINITE


def _differing_item(got: Plain, expected: Plain, path: str) -> Part | None:
    if expected["type"] == "dict":
        mine, reference = _by_key(got), _by_key(expected)
        if mine.keys() != reference.keys():
            return Stage.WRONG_VALUE, path, got, expected
        items = [(show(key), mine[place][1], value) for place, (key, value) in reference.items()]
    else:
        items = zip(map(str, range(len(got["items"]))), got["items"], expected["items"], strict=False)
    found = (_differing_part(one, reference, f"{path}[{place}]") for place, one, reference in items)
    first, lengths = next(filter(None, found), None), {len(got["items"]), len(expected["items"])}
    if len(lengths) == 1 or (first and min(lengths) > MAX_SHOWN):  # a short list is shown whole
        return first
    return Stage.WRONG_VALUE, path, got, expected


def _by_key(value: Plain) -> dict[tuple[str, int], list[Plain]]:  # keys may look alike, as two modules of a class do
    found, count = {}, Counter()
    for key, one in value["items"]:
        count[repr(key)] += 1
        found[repr(key), count[repr(key)]] = [key, one]
    return found


def _finite(value: Any) -> bool:
    return value not in ("nan", "inf", "-inf")


def _close(a: Any, b: Any) -> bool:
    kinds = {type(a), type(b)}
    if kinds in ({float}, {int, float}):
        return math.isclose(a, b, **TOLERANCE)
    return len(kinds) == 1 and a == b


class Difference(NamedTuple):
    """The first thing in which an answer differs from the reference: at which stage, and a sentence about it."""

    stage: Stage
    sentence: str


def first_difference(got: Cases, expected: Cases, name: str) -> Difference | None:
    """Compare case by case; the first case that differs decides. None if they are equal within tolerance."""
    for mine, reference in zip(got, expected, strict=False):
        where = f"for {reference['given']}" if reference["given"] else "in the first case"
        fact = next((fact for fact in facts(mine, reference) if not alike(fact.mine, fact.expected)), None)
        if fact and fact.stage is Stage.RAISED:
            return _tell_error(mine, reference, where, name)
        if fact and fact.stage:
            return Difference(fact.stage, f"{where} {fact.words}")
        if fact:
            return _tell_value(fact.mine, fact.expected, fact.words, where)
    if len(got) < len(expected):
        return Difference(Stage.RAISED, "the run stopped before the last case")
    return None


def _tell_error(got: Evidence, expected: Evidence, where: str, name: str) -> Difference:
    mine, reference = got["raised"], expected["raised"]
    if reference:
        came = f"{mine['type']}: {mine['message']}" if mine else "nothing was raised"
        return Difference(Stage.WRONG_VALUE, f"{where} expected {reference['type']} to be raised; got: {came}")
    if mine["type"] == "TimeIsUp":
        line = f" (it was in your line {mine['line']}: `{mine['text']}`)" if mine["line"] else ""
        return Difference(Stage.RAISED, f"{where} your answer did not come to an end in time and was stopped{line}")
    problem = f"{mine['type']}: {mine['message']}" if mine["message"] else mine["type"]
    if mine["line"]:
        after = "; it ran after your function had returned, as hooks do" if mine["during"] == "hook" else ""
        return Difference(Stage.RAISED, f"{where} your line {mine['line']}, `{mine['text']}`, raised {problem}{after}")
    if mine["during"] == "call":
        if mine["type"] == "TypeError" and "argument" in mine["message"]:
            return Difference(Stage.RAISED, f"{name} was called as its task says, and that failed: {problem}")
        return Difference(Stage.RAISED, f"{where} your answer raised {problem}")
    returned, wanted = got["returned"], expected["returned"]
    if returned["type"] != wanted["type"]:
        if alike(returned, wanted):
            return Difference(Stage.WRONG_TYPE, f"{where} what your function returned could not be used")
        return _tell_value(returned, wanted, "your function returned", where)
    return Difference(Stage.RAISED, f"{where} what came after your answer raised {problem}")


def _tell_value(got: Plain, expected: Plain, subject: str, where: str) -> Difference:
    stage, path, mine, reference = _differing_part(got, expected)
    at = f" (at {path})" if path else ""
    if stage in (Stage.WRONG_VALUE, Stage.NOT_FINITE):
        return Difference(stage, f"{where} {subject} {_pair_text(mine, reference)}{at}")
    came, wanted = name_type(mine), name_type(reference)
    if mine.get("value") == "generator" and reference["type"] == "context manager":
        came = "a generator (put `@contextlib.contextmanager` above the function)"
    if stage is Stage.RETURNED_NOTHING:
        wanted = show(reference)
        if path or not subject.endswith("returned"):
            stage, came = Stage.WRONG_VALUE, "None"
    elif stage is Stage.WRONG_SHAPE:
        wanted = f"shape {tuple(reference['shape'])}"
    elif stage is Stage.WRONG_DTYPE:
        came, wanted = f"a tensor of dtype {mine['dtype']}", reference["dtype"]
    return Difference(stage, f"{where} {subject} {came}{at}; expected {wanted}")


def _pair_text(mine: Plain, reference: Plain) -> str:
    if mine["type"] == "tensor" and len(mine["values"]) > MAX_SHOWN:
        pairs = enumerate(zip(mine["values"], reference["values"], strict=True))
        index, (one, other) = next((index, pair) for index, pair in pairs if not _close(*pair))
        place: list[int] = []
        for size in reversed(mine["shape"]):
            index, last = divmod(index, size)
            place.insert(0, last)
        return f"{number_text(one)} at {place}; expected {number_text(other)} there"
    return f"{show(mine)}; expected {show(reference)}"


def _case_alike(one: Evidence, other: Evidence) -> bool:
    """Whether two answers did the same in a case; where they raised does not count."""
    if one["raised"] and other["raised"]:
        return kind_of_error(one["raised"]) == kind_of_error(other["raised"])
    return all(alike(fact.mine, fact.expected) for fact in itertools.chain(facts(one, other), facts(other, one)))


def kind_of_error(error: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """What was raised, and its message without numbers and names that a learner chooses; `Linear.forward()` stays.

    Whether a hook raised it is known of a learner's own hooks only, so it does not count.
    """
    known = r"'(?:[a-z]\w*|NoneType|Tensor)'(?= object)"
    words = re.findall(rf"(?<!\S)(?:{known}|\w+\.\w+\(\)|[^\W\d_]+)(?!\S)", error["message"])
    return error["type"], error["during"] if error["during"] == "call" else "afterwards", words[:12]


def judge(name: str, got: Cases, key: Cases, mistakes: Mistakes, possible: int = 0, hints: int = 0) -> Outcome:
    """The outcome of one exercise from the evidence of the answer, of the reference and of the declared mistakes.

    `mistakes` pairs each declared message with the evidence of its function for the same cases, or with a function that
    gives it, `at` one case or of all. They only explain a failure: no more is asked for than it takes.
    """
    difference = first_difference(got, key, name)
    if difference is None:
        return Outcome(name, Stage.PASSED, possible=possible, hints=hints)
    sentence = difference.sentence
    beside = next((words for words in _side_effects(got, key) if words not in sentence), "")
    sentence += "." * (not sentence.endswith((".", "!", "?") if beside else (".", "!", "?", "`")))
    sentence += f" Besides, {beside}." * bool(beside)
    cause = " Besides: ".join(_find_causes(got, key, mistakes))
    if difference.stage is Stage.WRONG_VALUE:
        cause = cause or _relate_numbers(got, key)
    return Outcome(name, difference.stage, sentence, cause, possible=possible, hints=hints)


def _side_effects(got: Cases, key: Cases) -> list[str]:
    pairs = zip(got, key, strict=False)
    return list({fact.words: None for pair in pairs for fact in facts(*pair) if fact.stage is Stage.SIDE_EFFECT})


def _find_causes(got: Cases, key: Cases, mistakes: Mistakes) -> list[str]:
    """The message of the mistake that behaves alike; else of those that together do, but for side effects."""
    others, causes, names = [], [], got[0]["names"] if got else []
    left = _differences(got, key)
    first = min((number for number, _ in left), default=None)
    mine = {(0, words): value for (number, words), value in left.items() if number == first}
    for message, evidence in mistakes:
        if first is not None:  # only what does something of the same there, and has time for it, is run in all cases
            there = evidence(at=first) if callable(evidence) else evidence[first : first + 1]
            found = _differences(there, key[first : first + 1])
            if not any(alike(value, found.get(place, ABSENT)) for place, value in mine.items()):
                continue
        evidence = evidence() if callable(evidence) else evidence
        if _can_be_said(message, evidence[0]["names"], names):
            if len(got) == len(evidence) and all(map(_case_alike, got, evidence)):
                return [message]
            others.append((message, _differences(evidence, key)))
    if any("in place" in words for words in _side_effects(got, key)):
        return []  # then nothing else that is seen has a cause of its own
    for message, found in others:
        touched = {place: value for place, value in left.items() if place[1] in {words for _, words in found}}
        # It explains an aspect if it does there, in every case, what the answer does.
        if found and touched.keys() == found.keys() and all(alike(touched[each], found[each]) for each in found):
            causes.append(message)
            left = {place: value for place, value in left.items() if place not in found}
    return causes if not left else []


def _relate_numbers(got: Cases, key: Cases) -> str:
    """What all numbers of the first aspect that differs have in common, wherever it differs; empty if nothing."""
    found = [fact for pair in zip(got, key, strict=False) for fact in facts(*pair)]
    wrong = [fact for fact in found if not alike(fact.mine, fact.expected)]
    pairs = [(_numbers(fact.mine), _numbers(fact.expected)) for fact in wrong if fact.words == wrong[0].words]
    count = wrong and wrong[0].expected["type"] == "int" and wrong[0].words != "your function returned"
    if not pairs or count or not all(mine and len(mine) == len(expected) for mine, expected in pairs):
        return ""
    flat = [two for pair in pairs for two in zip(*pair, strict=True)]
    if all(_close(one, -other) for one, other in flat):
        return "Every number has the other sign."
    if all(_close(abs(one), abs(other)) for one, other in flat):
        return "The numbers are right but for the signs of some."
    if all(all(map(_close, sorted(mine), sorted(expected))) for mine, expected in pairs):
        return "The numbers are right, and stand in another order."
    factors = {number_text(one / other) for one, other in flat if other} if len(flat) > 1 else set()
    if len(factors) == 1 and all(bool(one) == bool(other) for one, other in flat):
        return f"Every number is {factors.pop()} times what it should be."
    shifts = {number_text(one - other) for one, other in flat} if len(flat) > 1 else set()
    return f"Every number differs by {shifts.pop()} from what it should be." if len(shifts) == 1 else ""


def _numbers(value: Plain) -> list[float]:
    """The finite numbers in a value; none where there is anything else."""
    parts = value.get("values") or [each.get("value") for each in value.get("items", []) if isinstance(each, dict)]
    parts = parts or [value.get("value")]
    return list(parts) if {*map(type, parts)} <= {int, float} else []


def _can_be_said(message: str, names: Sequence[str], answer: Sequence[str]) -> bool:
    """Whether what a message says the mistake has, a name in its code or a hook, is in the answer too."""
    registers = [any(name.startswith("register_") for name in each) for each in (names, answer)]
    if registers == [True, False] and re.search(r"\b[Yy]our (\w+ )?hook", message):
        return False
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", message)))) & set(names) <= set(answer)


def _differences(got: Cases, key: Cases) -> dict[tuple[int, str], Plain]:
    """What differs but for side effects: the value by the number of the case and the words for it."""
    found = {}
    for number, (mine, reference) in enumerate(zip(got, key, strict=False)):
        for fact in facts(mine, reference):
            if fact.stage is not Stage.SIDE_EFFECT and not alike(fact.mine, fact.expected):
                error = fact.stage is Stage.RAISED and mine["raised"]
                found[number, fact.words] = _state(kind_of_error(error)) if error else fact.mine
    return found
