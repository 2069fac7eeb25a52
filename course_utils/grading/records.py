"""Reading what a student's process wrote: evidence is believed to be data, and nothing more.

`read_record` takes the JSON text that the driver displayed and returns it if every part has the type and the size it
must have. The student's code ran in the process that wrote it, so anything may be in there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_utils.exercises.evidence import Evidence

MAX_CHARACTERS = 32 * 1024 * 1024
MAX_CASES = 200
MAX_DEPTH = 12
ASPECTS = {"value", "requires_grad", "training", "hooks"}
NOT_JSON_NUMBERS = {"nan", "inf", "-inf"}


class BadRecord(ValueError):
    """Text that is not the driver's; the message says what is wrong with it."""


def read_json(text: object) -> Any:
    """The value of a JSON text of bearable size."""
    if not isinstance(text, str):
        raise BadRecord("it is not text")
    if len(text) > MAX_CHARACTERS:
        raise BadRecord(f"it is longer than {MAX_CHARACTERS // 1024**2} MB")
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise BadRecord("it is nested too deeply") from None
    except ValueError as error:
        raise BadRecord(f"it is not JSON: {error}") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def read_record(text: object, exercise: str) -> dict[str, Any]:
    """The driver's record about `exercise`; `BadRecord` if it is not of the form that `driver.observe_answer` gives."""
    record = read_json(text)
    _fields(record, {"exercise": _text, "blank": _flag, "raised": _raised, "lost": _texts, "cases": check_evidence})
    if record["exercise"] != exercise:
        raise BadRecord(f"it is about {record['exercise']!r}, not {exercise}")
    return record


def check_evidence(cases: Any) -> None:
    """Raise `BadRecord` unless `cases` is a list of evidence as `evidence.observe_all` makes it."""
    if not isinstance(cases, list) or len(cases) > MAX_CASES:
        raise BadRecord("its cases are not a list, or are too many")
    for case in cases:
        _fields(
            case,
            {
                "given": _text,
                "raised": _raised,
                "returned": _plain,
                "seen": _mapping(_plain),
                "printed": _text,
                "inputs": _mapping(_input),
                "changed": _mapping(_aspects),
                "world": _texts,
                "alive": _flag,
            },
        )


def fits(cases: Sequence[Evidence], key: Sequence[Evidence]) -> bool:
    """Whether evidence is about the same inputs as the key's, so that the two can be compared."""
    return all(
        case["inputs"].keys() == reference["inputs"].keys()
        and all(_is_like(case["inputs"][name], state) for name, state in reference["inputs"].items())
        for case, reference in zip(cases, key, strict=False)
    )


def _is_like(mine: dict[str, Any], key: dict[str, Any]) -> bool:
    """Whether two states of an input are of the same kind of thing: the same aspects, of one value or of several."""
    if mine.keys() != key.keys():
        return False
    return all(("type" in mine[part]) == ("type" in key[part]) for part in ("value", "grad") if part in key)


def _fields(value: Any, checks: Mapping[str, Callable[[Any], None]]) -> None:
    if not isinstance(value, dict) or value.keys() != checks.keys():
        raise BadRecord(f"its parts are not {', '.join(checks)}")
    for name, check in checks.items():
        check(value[name])


def _mapping(check: Callable[[Any], None]) -> Callable[[Any], None]:
    def check_all(value: Any) -> None:
        if not isinstance(value, dict):
            raise BadRecord(f"a {type(value).__name__} stands where names with values should")
        for one in value.values():
            check(one)

    return check_all


def _expect(value: Any, *types: type) -> None:
    if type(value) not in types:  # not isinstance: a bool is no number here
        raise BadRecord(f"a {type(value).__name__} stands where {' or '.join(one.__name__ for one in types)} should")
    if type(value) is int and abs(value) >= 2**63:
        raise BadRecord("a whole number is larger than any that is written")


def _text(value: Any) -> None:
    _expect(value, str)


def _flag(value: Any) -> None:
    _expect(value, bool)


def _texts(value: Any) -> None:
    _expect(value, list)
    for one in value:
        _text(one)


def _aspects(value: Any) -> None:
    _texts(value)
    if not ASPECTS.issuperset(value):
        raise BadRecord("it names changes that nobody looks for")


def _raised(value: Any) -> None:
    if value is not None:
        _fields(value, {"type": _text, "message": _text, "during": _text, "line": _line, "text": _text})


def _line(value: Any) -> None:
    _expect(value, int, type(None))


def _input(value: Any) -> None:
    """The state of one argument; a module's value, gradients and modes are mappings by name."""
    _expect(value, dict)
    if "value" not in value or value.keys() - ASPECTS - {"grad"}:
        raise BadRecord("the state of an input is not one")
    for name, part in value.items():
        if name in ("value", "grad"):
            _plain_or_many(part)
        elif name == "hooks":
            _expect(part, int)
        elif isinstance(part, dict):
            _mapping(_flag)(part)
        else:
            _flag(part)


def _plain_or_many(value: Any) -> None:
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        _plain(value)
    else:
        _mapping(_plain)(value)


def _plain(value: Any, depth: int = 0) -> None:
    """One value as `plain.plain` writes it."""
    if depth > MAX_DEPTH:
        raise BadRecord("a value is nested too deeply")
    _expect(value, dict)
    kind = value.get("type")
    _text(kind)
    if kind == "tensor":
        _plain_tensor(value)
    elif kind in ("list", "tuple", "set"):
        _only(value, "type", "items")
        _expect(value["items"], list)
        for item in value["items"]:
            _plain(item, depth + 1)
    elif kind == "dict":
        _only(value, "type", "items")
        _expect(value["items"], list)
        for pair in value["items"]:
            if not isinstance(pair, list) or len(pair) != 2:
                raise BadRecord("a mapping has something else than pairs")
            _plain(pair[0], depth + 1)
            _plain(pair[1], depth + 1)
    elif kind in ("bool", "int", "float", "str", "module", "complex"):
        _only(value, "type", "value")
        _scalar(kind, value["value"])
    else:
        _only(value, "type")


def _only(value: dict, *names: str) -> None:
    if value.keys() != set(names):
        raise BadRecord(f"a value of type {value.get('type')!r} has other parts than {', '.join(names)}")


def _scalar(kind: str, value: Any) -> None:
    if kind == "complex":
        _expect(value, list)
        if len(value) != 2:
            raise BadRecord("a complex number has two parts")
        for part in value:
            _number(part)
    elif kind == "float":
        _number(value)
    else:
        _expect(value, {"bool": bool, "int": int}.get(kind, str))


def _number(value: Any) -> None:
    if not (isinstance(value, str) and value in NOT_JSON_NUMBERS):
        _expect(value, int, float)


def _plain_tensor(value: dict) -> None:
    if value.keys() - {"unreadable"} != {"type", "dtype", "shape", "values"}:
        raise BadRecord("a tensor has other parts than dtype, shape and values")
    _text(value["dtype"])
    _text(value.get("unreadable", ""))
    _expect(value["shape"], list)
    _expect(value["values"], list)
    for size in value["shape"]:
        _expect(size, int)
    for number in value["values"]:
        if not isinstance(number, bool):
            _number(number)
