"""Any Python value as plain data, and plain data as words.

What an answer did is compared, stored and carried out of a sandbox as plain data, ready for JSON: nothing of the
learner's own objects survives. Each value is a dict with its `type`; a tensor keeps its dtype, shape and numbers.
"""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

Plain = dict[str, Any]
Evidence = dict[str, Any]  # of one case; see `evidence.observe`

MAX_NUMBERS = 65_536
MAX_ITEMS = 1_000
MAX_DEPTH = 8
MAX_TEXT = 2_000
MAX_SHOWN = 12  # numbers of a tensor, items of a list
MAX_SHOWN_DEPTH = 3  # of lists in lists
GENERATORS = ("generator", "coroutine", "async_generator")
LISTS = {"deque", "dict_keys", "dict_values"}  # count as lists

NAMES = {
    "None": "nothing (None)",
    "int": "a whole number (int)",
    "float": "a number (float)",
    "bool": "a bool",
    "str": "a string",
    "handle": "a hook's handle",
    "tensor without numbers": "a tensor whose numbers cannot be read (on the meta device, or sparse)",
    "function": "a function",
    "context manager": "a context manager",
    **dict.fromkeys(GENERATORS, "a generator, which has not run yet"),
}


def plain(value: object, depth: int = 0) -> Plain:
    """Turn `value` into plain data.

    Tensors become `{"type": "tensor", "dtype", "shape", "values"}` with a flat list of numbers; lists, tuples and sets
    keep their items, mappings their pairs in order; a handle, a generator, a function or a module keeps its kind only.
    Numbers that JSON lacks are the strings "nan", "inf" and "-inf". Never raises: what cannot be read keeps its type's
    name.
    """
    if depth > MAX_DEPTH:
        return {"type": "too deep"}
    if value is None:
        return {"type": "None"}
    if isinstance(value, (int, float, complex)):
        return _plain_number(value)

    import torch  # here, so that a process that only judges need not import it

    if isinstance(value, (str, torch.dtype, torch.device)):
        return {"type": "str", "value": str(value)[:MAX_TEXT]}
    if isinstance(value, torch.Tensor):
        return _plain_tensor(value)
    if isinstance(value, torch.utils.hooks.RemovableHandle):
        return {"type": "handle"}
    if isinstance(value, torch.nn.Module):
        return {"type": "module", "value": type(value).__name__}
    if isinstance(value, (Mapping, list, tuple, set, frozenset)) or type(value).__name__ in LISTS:
        return _plain_items(value, depth + 1)
    return _plain_object(value)


def _plain_object(value: object) -> Plain:
    if isinstance(value, contextlib.AbstractContextManager):
        return {"type": "context manager"}
    if callable(getattr(type(value), "remove", None)):  # a learner's own class may be one for several hooks
        return {"type": "handle"}
    return {"type": "function"} if callable(value) else {"type": "object", "value": type(value).__name__}


def _plain_number(value: complex) -> Plain:
    if isinstance(value, bool):
        return {"type": "bool", "value": value}
    if isinstance(value, int):
        return {"type": "int", "value": int(value)} if abs(int(value)) < 2**63 else {"type": "huge int"}
    if isinstance(value, float):
        return {"type": "float", "value": _number(float(value))}
    return {"type": "complex", "value": [_number(value.real), _number(value.imag)]}


def _plain_items(value: Any, depth: int) -> Plain:
    """A mapping, list, tuple, set or what counts as a list, whose items stand at `depth`."""
    try:
        items = list(value.items() if isinstance(value, Mapping) else value)[:MAX_ITEMS]
    except Exception:  # a class of the learner's own may raise anything
        return {"type": "object", "value": type(value).__name__}
    if isinstance(value, Mapping):
        return {"type": "dict", "items": [[plain(key, depth), plain(item, depth)] for key, item in items]}
    items = [plain(item, depth) for item in items]
    if isinstance(value, (set, frozenset)):
        return {"type": "set", "items": sorted(items, key=repr)}
    return {"type": "tuple" if isinstance(value, tuple) else "list", "items": items}


def _number(value: float) -> float | str:
    return value + 0.0 if math.isfinite(value) else str(value)  # + 0.0 makes 0 of the -0 that no reader expects


def _plain_tensor(tensor: Any) -> Plain:
    try:
        flat = tensor.detach().to("cpu").reshape(-1)[:MAX_NUMBERS]
        numbers = flat.tolist()
    except Exception:  # of a meta tensor or an exotic layout, or under a mode that an answer has left on
        return {"type": "tensor without numbers"}
    if flat.is_complex():
        numbers = [part for number in numbers for part in (number.real, number.imag)]
    values = [_number(number) if isinstance(number, float) else number for number in numbers]
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"type": "tensor", "dtype": dtype, "shape": list(tensor.shape), "values": values}


def raised_type(case: Evidence) -> str | None:
    """The name of the type of what was raised in a case, if anything was."""
    return case["raised"]["type"] if case["raised"] else None


def name_type(value: Plain) -> str:
    """Name the type of `value` as a learner would say it: "a tensor of shape (2,)", "a list of 3", "nothing (None)"."""
    kind = value["type"]
    if kind == "tensor":
        return f"a tensor of shape {tuple(value['shape'])}"
    if kind == "module":
        return f"a module ({value['value']})"
    if "items" in value:
        return f"a {kind} of {len(value['items'])}"
    kind = value["value"] if kind == "object" else kind
    return NAMES.get(kind, f"an object of type {kind}")


def number_text(number: float | int | str | bool, decimal_point: bool = True) -> str:
    """A number as PyTorch prints it, short: 3., 0.25, -1., 1e-06, nan. Whole numbers of whole dtypes have no point."""
    if isinstance(number, (bool, str)) or not decimal_point:
        return str(number)
    text = f"{number:.5g}"
    return text if re.search(r"[.en]", text) else text + "."


def show(value: Plain) -> str:
    """Write plain data the way a learner reads it: `[1., 2.]`, `3`, `(1, 'a')`; at most 12 numbers or items."""
    text = _show(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _show(value: Plain, depth: int = 0) -> str:
    kind = value["type"]
    if kind == "tensor":
        return _show_tensor(value)
    if kind == "float":
        return number_text(value["value"])
    if kind in {"int", "bool", "None", "str"}:
        return repr(value.get("value"))
    if "items" not in value or depth > MAX_SHOWN_DEPTH:
        return name_type(value)
    return _show_items(value, depth)


def _show_items(value: Plain, depth: int) -> str:
    shown = value["items"][:MAX_SHOWN]
    if value["type"] == "dict":
        items = [f"{_show(key, depth + 1)}: {_show(item, depth + 1)}" for key, item in shown]
    else:
        items = [_show(item, depth + 1) for item in shown]
    if len(value["items"]) > MAX_SHOWN:
        items.append("…")
    text = ", ".join(items)
    if value["type"] == "list":
        return f"[{text}]"
    if value["type"] == "tuple":
        return f"({text},)" if len(items) == 1 else f"({text})"
    return "set()" if value["type"] == "set" and not items else f"{{{text}}}"


def _show_tensor(value: Plain) -> str:
    if not value["values"] and max(value["shape"], default=0) > MAX_SHOWN:  # a row without a number is one all the same
        return name_type(value)
    has_points = value["dtype"].startswith(("float", "bfloat", "complex"))
    texts = [number_text(number, has_points) for number in value["values"][: MAX_SHOWN + 1]]
    if len(texts) > MAX_SHOWN:
        return f"{name_type(value)} that begins with {', '.join(texts[:4])}"
    if value["dtype"].startswith("complex"):
        texts = texts[::2]  # real parts
    shape = value["shape"]
    for axis in reversed(range(len(shape))):  # from the innermost brackets outwards
        size, count = shape[axis], math.prod(shape[:axis])
        rows = [texts[row * size : (row + 1) * size] for row in range(count)]
        texts = [f"[{', '.join(row)}]" for row in rows]
    return texts[0]


def find_place(number: int, shape: Sequence[int]) -> list[int]:
    """The indices in a tensor of the number that is at `number` in a flat one."""
    place = []
    for size in reversed(shape):
        number, index = divmod(number, size)
        place.insert(0, index)
    return place
