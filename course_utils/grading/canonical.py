"""Evidence as text that is equal exactly where an answer did what the reference did.

nbval compares text. So numbers within the engine's tolerance of the key's are replaced by the key's, a tuple stands for
a list, and what does not count (what was printed, on which line something was raised) is left out: a line a fact. What
counts is what `course_utils.exercises.judging` compares; a test holds the two together.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from course_utils.exercises.judging import ABSOLUTE, RELATIVE
from course_utils.exercises.plain import Plain

if TYPE_CHECKING:
    from course_utils.exercises.evidence import Evidence

LONGEST = 300  # characters of a value; of a longer one its beginning and its digest

NOTHING: Plain = {"type": "None"}


def canonical(cases: Sequence[Evidence], key: Sequence[Evidence]) -> str:
    """The evidence of `cases` as lines of text, with `key` as the measure. `canonical(key, key)` is the right text."""
    lines = []
    for number, (case, reference) in enumerate(zip(cases, key, strict=False), start=1):
        lines.append(f"case {number}")
        lines += [f"  {name}: {_write(value)}" for name, value in _facts(case, reference)]
    return "\n".join(lines)


def _write(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}… sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def _facts(case: Evidence, key: Evidence) -> Iterator[tuple[str, Any]]:
    """Everything that counts in one case, by a name."""
    yield "raised", case["raised"]["type"] if case["raised"] else None
    yield "returned", snap(case["returned"], key["returned"])
    for label, reference in key["seen"].items():
        yield label, snap(case["seen"].get(label, NOTHING), reference)
    for name, reference in key["inputs"].items():
        mine = case["inputs"][name]
        if "grad" in reference:
            yield f"{name}.grad", _snap_many(mine["grad"], reference["grad"])
        changed = key["changed"].get(name, [])
        yield f"{name} changed", sorted(set(case["changed"].get(name, [])) - set(changed))
        if "value" in changed and "type" in reference["value"]:
            yield f"{name} afterwards", snap(mine["value"], reference["value"])
        for aspect in ("requires_grad", "training"):
            if aspect in changed:
                yield f"{name}.{aspect}", mine.get(aspect)
    yield "settings changed", sorted(set(case["world"]) - set(key["world"]))
    yield "kept alive", case["alive"] and not key["alive"]


def _snap_many(mine: Any, reference: Any) -> Any:
    """A gradient, or a module's gradients by parameter."""
    if "type" in reference:
        return snap(mine, reference)
    return {name: snap(mine.get(name, NOTHING), one) for name, one in reference.items()}


def snap(mine: Plain, key: Plain) -> Plain:
    """`mine` as the key writes it, wherever the two count as equal."""
    kind = mine["type"]
    if {kind, key["type"]} <= {"list", "tuple"} or {kind, key["type"]} <= {"int", "float"}:
        kind = key["type"]
    if kind != key["type"]:
        return mine
    if kind == "tensor":
        found = {name: mine[name] for name in ("type", "dtype", "shape")}
        return found | {"values": _snap_numbers(mine["values"], key["values"])}
    if kind == "dict":
        theirs = {repr(name): value for name, value in key["items"]}
        pairs = ((repr(name), value) for name, value in mine["items"])
        mine_by_name = {name: snap(value, theirs.get(name, NOTHING)) for name, value in pairs}
        return {"type": kind, "items": mine_by_name}
    if "items" in key:
        pairs = zip_longest(mine["items"], key["items"][: len(mine["items"])], fillvalue=NOTHING)
        return {"type": kind, "items": [snap(one, reference) for one, reference in pairs]}
    if "value" not in key:
        return {"type": kind}
    return {"type": kind, "value": _snap_numbers([mine.get("value")], [key["value"]])[0]}


def _snap_numbers(mine: list, key: list) -> list:
    if len(mine) != len(key):
        return mine
    return [theirs if _close(one, theirs) else one for one, theirs in zip(mine, key, strict=True)]


def _close(one: Any, key: Any) -> bool:
    """Numbers within the engine's tolerance; everything else must be the same in type and value."""
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, key))
    if not numbers:
        return False
    return math.isclose(one, key, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
