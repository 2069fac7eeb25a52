"""What counts in a case of an exercise, and when two values count as equal.

Works on plain data alone, so that a judge can do it in a process in which no learner's code ever ran.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from course_utils.exercises.outcome import IN_WORDS, Stage
from course_utils.exercises.plain import MAX_SHOWN, Evidence, Plain, raised_type, show

TOLERANCE = {"rel_tol": 1e-5, "abs_tol": 1e-6}
Cases = Sequence[Evidence]  # what one answer did in each case
NOTHING = {"type": "None"}
INTERCHANGEABLE = ({"list", "tuple"}, {"function", "module"}, {"handle", "context manager"})
PLURAL = re.compile(r"(the )?(arguments|gradients|hooks|modes|names|outputs|parameters|places|\S+ and \S+)\b")
RETURNED = "your function returned"
CHANGES = {
    "value": "your function changed its input `{name}` in place",
    "requires_grad": "your function changed `requires_grad` of its input `{name}`",
    "training": "your function left `{name}` in another mode (train/eval) than it found it in",
    "settings": "your function changed an attribute of `{name}` or of a module in it, or gave it a new one",
    "hooks of others": "your function removed a hook from `{name}` that is not its own",
}
KEPT_ALIVE = "an input is still in memory when all is over, so something that your answer made still refers to it: "
KEPT_ALIVE += (
    "perhaps a stored tensor that is not detached, or a hook whose function uses the tensor that the hook is on"
)


class Fact(NamedTuple):
    """One thing that counts in a case: words, the value here and in the reference, and the stage if it has just one."""

    words: str
    mine: Plain
    expected: Plain
    stage: Stage | None = None

    @property
    def agrees(self) -> bool:
        """Whether the two values count as equal."""
        return alike(self.mine, self.expected)


def facts(got: Evidence, expected: Evidence) -> Iterator[Fact]:
    """Everything that counts in one case, in the order in which it is judged."""
    yield Fact("raised", plain_state(raised_type(got)), plain_state(raised_type(expected)), Stage.RAISED)
    yield from _values(got, expected)
    yield from _gradients(got, expected)
    yield from _unwanted_changes(got, expected)
    yield from _wanted_changes(got, expected)
    for setting in got["world"]:
        if setting not in expected["world"]:
            yield _side_effect(f"your function changed {setting} and did not undo that")
    if got["alive"] and not expected["alive"]:
        yield _side_effect(KEPT_ALIVE)


def passes(got: Evidence, expected: Evidence) -> bool:
    """Whether an answer does all that counts in a case as another one does it."""
    return all(fact.agrees for fact in facts(got, expected))


def side_effects(got: Cases, key: Cases) -> list[str]:
    """The side effects in all cases, in words, each once."""
    found = [fact for pair in zip(got, key, strict=False) for fact in facts(*pair) if fact.stage is Stage.SIDE_EFFECT]
    return list(dict.fromkeys(fact.words for fact in found))


def plain_state(value: Any) -> Plain:
    """Something that is the same or not, and is never shown, as plain data."""
    return {"type": "state", "value": value}


def _side_effect(words: str) -> Fact:
    return Fact(words, plain_state(True), plain_state(False), Stage.SIDE_EFFECT)


def _values(got: Evidence, expected: Evidence) -> Iterator[Fact]:
    """What was returned and what was seen. What is said of the answer in words comes first."""
    seen = [
        Fact(f"{label} {_was_or_were(label)}", got["seen"].get(label, NOTHING), value)
        for label, value in expected["seen"].items()
    ]
    yield from (fact for fact in seen if fact.words.startswith(IN_WORDS))
    yield Fact(RETURNED, got["returned"], expected["returned"])
    yield from (fact for fact in seen if not fact.words.startswith(IN_WORDS))


def _was_or_were(label: str) -> str:
    return "were" if PLURAL.match(label) else "was"


def _gradients(got: Evidence, expected: Evidence) -> Iterator[Fact]:
    for name, reference in expected["inputs"].items():
        if "grad" in reference and "[" not in name:  # those inside a list or a dict are not compared
            mine = _by_place(name, got["inputs"][name]["grad"])
            for place, grad in _by_place(name, reference["grad"]).items():
                yield Fact(f"{place}.grad was", mine.get(place, NOTHING), grad)


def _by_place(name: str, grad: Mapping[str, Any]) -> Mapping[str, Plain]:
    """The gradient of a tensor, or those of a module's parameters, by the words for where they are."""
    if "type" in grad:
        return {name: grad}
    return {f"{name}.{parameter}": one for parameter, one in grad.items()}


def _unwanted_changes(got: Evidence, expected: Evidence) -> Iterator[Fact]:
    """The changes of inputs that the reference does not make, those of one kind together."""
    wanted = expected["changed"]
    for aspect in dict.fromkeys(aspect for changed in got["changed"].values() for aspect in changed):
        if aspect == "hooks" and not _could_remove(got, expected):
            continue
        changed = [name for name, aspects in got["changed"].items() if aspect in aspects]
        names = [name for name in changed if aspect not in wanted.get(name, ())]
        if names:
            told = "` and `".join(names)
            left = _tell_left(told, got["inputs"].get(names[0], {}), expected) if aspect == "hooks" else ""
            yield _side_effect(left or CHANGES[aspect].format(name=told))


def _could_remove(got: Evidence, expected: Evidence) -> bool:
    """Whether every handle came to the case that was to remove it: no error came between, and they were returned."""
    if raised_type(got) != raised_type(expected):
        return False
    return not _returns_handles(expected) or alike(got["returned"], expected["returned"])


def _returns_handles(case: Evidence) -> bool:
    return "'handle'" in str(case["returned"])


def _tell_left(names: str, state: Mapping[str, Any], expected: Evidence) -> str:
    """That a hook is left on something, and what to do: the state tells whether there are modules in it."""
    inside = " or on a module in it" if len(state.get("training", ())) > 1 else ""
    mend = "remove those that have done their work, even if an error comes"
    if _returns_handles(expected):
        mend = "removing what you returned does not take it away"
    elif expected["returned"]["type"] == "context manager":
        mend = "it belongs there while a block runs, and neither before nor after it"
    return f"your function left a hook on `{names}`{inside}: {mend}"


def _wanted_changes(got: Evidence, expected: Evidence) -> Iterator[Fact]:
    """What became of the inputs that the reference changes."""
    for name, changed in expected["changed"].items():
        mine, reference = got["inputs"][name], expected["inputs"][name]
        for aspect in changed:
            if aspect in ("requires_grad", "training"):
                words = f"`{name}` did not end in the state ({aspect}) it should"
                yield Fact(words, plain_state(mine.get(aspect)), plain_state(reference[aspect]), Stage.WRONG_VALUE)
            elif aspect == "value" and "type" in reference["value"]:  # of a tensor, not of a module
                yield Fact(f"afterwards `{name}` was", mine["value"], reference["value"])


def alike(mine: Plain, expected: Plain) -> bool:
    """Whether two plain values count as equal: numbers within tolerance, a tuple for a list, 3 for 3.0."""
    return differing_part(mine, expected) is None


class Part(NamedTuple):
    """The first difference inside two values: its stage, the path to it ("[2]['a']"), and what stands there in each."""

    stage: Stage
    path: str
    mine: Plain
    expected: Plain


def differing_part(got: Plain, expected: Plain, path: str = "") -> Part | None:
    """The first difference inside two plain values, which stand at `path`; None where they count as equal."""
    if "items" in expected and _same_kind(got, expected):
        return _differing_item(got, expected, path)
    stage = _differing_stage(got, expected)
    return Part(stage, path, got, expected) if stage else None


def _same_kind(got: Plain, expected: Plain) -> bool:
    kinds = got["type"], expected["type"]
    return kinds[0] == kinds[1] or kinds == ("float", "int") or {*kinds} in INTERCHANGEABLE


def _differing_stage(got: Plain, expected: Plain) -> Stage | None:
    """At which stage two values differ that hold no others; None where they count as equal."""
    if not _same_kind(got, expected):
        return Stage.RETURNED_NOTHING if got["type"] == "None" else Stage.WRONG_TYPE
    if expected["type"] == "tensor":
        return _tensor_stage(got, expected)
    if "value" not in expected or close(got.get("value"), expected["value"]):
        return None
    return Stage.WRONG_VALUE if _finite(got.get("value")) else Stage.NOT_FINITE


def _tensor_stage(got: Plain, expected: Plain) -> Stage | None:
    if got["shape"] != expected["shape"]:
        return Stage.WRONG_SHAPE
    if got["dtype"] != expected["dtype"]:
        return Stage.WRONG_DTYPE
    pairs = list(zip(got["values"], expected["values"], strict=True))
    if all(close(a, b) for a, b in pairs):
        return None
    return Stage.WRONG_VALUE if all(_finite(a) or not _finite(b) for a, b in pairs) else Stage.NOT_FINITE


def _differing_item(got: Plain, expected: Plain, path: str) -> Part | None:
    """The first difference inside two lists, tuples, sets or dicts; the whole where they have not the same keys."""
    whole = Part(Stage.WRONG_VALUE, path, got, expected)
    if expected["type"] == "dict":
        mine, reference = _by_key(got), _by_key(expected)
        if mine.keys() != reference.keys():
            return whole
        items = [(show(key), mine[place][1], value) for place, (key, value) in reference.items()]
    else:
        items = list(zip(map(str, range(len(got["items"]))), got["items"], expected["items"], strict=False))
    parts = (differing_part(one, other, f"{path}[{place}]") for place, one, other in items)
    first = next((part for part in parts if part), None)
    lengths = len(got["items"]), len(expected["items"])
    if lengths[0] == lengths[1]:
        return first
    return first if first and min(lengths) > MAX_SHOWN else whole  # a short list is shown whole


def _by_key(value: Plain) -> dict[tuple[str, int], list[Plain]]:
    """The pairs of a dict by their keys, which may look alike, as two modules of a class do: then by their number."""
    found, count = {}, Counter()
    for key, one in value["items"]:
        count[repr(key)] += 1
        found[repr(key), count[repr(key)]] = [key, one]
    return found


def _finite(value: Any) -> bool:
    return value not in ("nan", "inf", "-inf")


def close(a: Any, b: Any) -> bool:
    """Whether two numbers, texts or flags are equal, floats within tolerance. An int is no bool."""
    kinds = {type(a), type(b)}
    if kinds in ({float}, {int, float}):
        return math.isclose(a, b, **TOLERANCE)
    return len(kinds) == 1 and a == b


def kind_of_error(error: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """What was raised, and its message without numbers and names that a learner chooses, also those of nodes;
    `Linear.forward()` stays.

    Whether a hook raised it is known of a learner's own hooks only, so it does not count.
    """
    known = r"'(?:[a-z]\w*|NoneType|Tensor)'(?= object)"
    words = re.findall(rf"(?<!\S)(?:{known}|\w+\.\w+\(\)|(?!\w+Backward\b)[^\W\d_]+)(?!\S)", error["message"])
    return error["type"], error["during"] if error["during"] == "call" else "afterwards", words[:12]
