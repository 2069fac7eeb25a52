"""Any Python value as plain data, and plain data as words.

What an answer did is compared, stored and carried out of a sandbox as *plain data*: dicts, lists, strings, numbers,
booleans and None, ready for JSON. Nothing of the learner's own objects survives the conversion, so nothing of them can
be run later. Each value is a dict with its `type`; a tensor keeps its dtype, shape and numbers.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Plain = dict[str, Any]

MAX_NUMBERS = 65_536
MAX_ITEMS = 1_000
MAX_DEPTH = 8
MAX_TEXT = 2_000


def plain(value: object, depth: int = 0) -> Plain:
    """Turn `value` into plain data.

    Tensors become `{"type": "tensor", "dtype", "shape", "values"}` with a flat list of numbers; lists, tuples and sets
    keep their items, mappings their pairs in order; a handle, a generator, a function or a module keeps its kind only.
    Numbers that JSON lacks are the strings "nan", "inf" and "-inf". Never raises: what cannot be read keeps its type's
    name.
    """
    import torch  # here, so that a process that only judges need not import it
    from torch import nn
    from torch.utils.hooks import RemovableHandle

    if depth > MAX_DEPTH:
        return {"type": "too deep"}
    if value is None:
        return {"type": "None"}
    if isinstance(value, bool):
        return {"type": "bool", "value": bool(value)}
    if isinstance(value, int):
        return {"type": "int", "value": int(value)} if abs(int(value)) < 2**63 else {"type": "huge int"}
    if isinstance(value, float):
        return {"type": "float", "value": _number(float(value))}
    if isinstance(value, complex):
        return {"type": "complex", "value": [_number(value.real), _number(value.imag)]}
    if isinstance(value, str):
        return {"type": "str", "value": str(value)[:MAX_TEXT]}
    if isinstance(value, torch.Tensor):
        return _plain_tensor(value)
    if isinstance(value, (torch.dtype, torch.device)):
        return {"type": "str", "value": str(value)}
    if isinstance(value, RemovableHandle):
        return {"type": "handle"}
    if inspect.isgenerator(value) or inspect.iscoroutine(value) or inspect.isasyncgen(value):
        return {"type": "generator"}
    if isinstance(value, nn.Module):
        return {"type": "module", "value": type(value).__name__}
    if isinstance(value, Mapping):
        pairs = list(value.items())[:MAX_ITEMS]
        return {"type": "dict", "items": [[plain(key, depth + 1), plain(item, depth + 1)] for key, item in pairs]}
    if isinstance(value, (list, tuple)) or type(value).__name__ in {"deque", "dict_keys", "dict_values"}:
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {"type": kind, "items": [plain(item, depth + 1) for item in list(value)[:MAX_ITEMS]]}
    if isinstance(value, (set, frozenset)):
        items = sorted((plain(item, depth + 1) for item in list(value)[:MAX_ITEMS]), key=repr)
        return {"type": "set", "items": items}
    if hasattr(type(value), "__enter__") and hasattr(type(value), "__exit__"):
        return {"type": "context manager"}
    if callable(value):
        return {"type": "function"}
    return {"type": type(value).__name__}


def _number(value: float) -> float | str:
    return value + 0.0 if math.isfinite(value) else str(value)  # + 0.0 makes 0 of the -0 that no reader expects


def _plain_tensor(tensor: torch.Tensor) -> Plain:
    found: Plain = {"type": "tensor", "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
    try:
        flat = tensor.detach().to("cpu").reshape(-1)[:MAX_NUMBERS]
        numbers = flat.tolist()
    except (RuntimeError, NotImplementedError):  # a meta tensor, an exotic layout
        return {"type": "tensor without numbers"}
    if flat.is_complex():
        numbers = [part for number in numbers for part in (number.real, number.imag)]
    return found | {"values": [_number(number) if isinstance(number, float) else number for number in numbers]}


def name_type(value: Plain) -> str:
    """Name the type of `value` as a learner would say it: "a tensor of shape (2,)", "a list of 3", "nothing (None)"."""
    kind = value["type"]
    if kind == "None":
        return "nothing (None)"
    if kind == "tensor":
        return f"a tensor of shape {shape_text(value)}"
    if kind in {"list", "tuple", "set", "dict"}:
        return f"a {kind} of {len(value['items'])}"
    names = {
        "int": "a whole number (int)",
        "float": "a number (float)",
        "bool": "a bool",
        "str": "a string",
        "handle": "a hook's handle",
        "tensor without numbers": "a tensor whose numbers cannot be read (on the meta device, or sparse)",
        "generator": "a generator (the function uses `yield` or `async`; use `return`)",
        "function": "a function",
        "context manager": "a context manager",
    }
    if kind == "module":
        return f"a module ({value['value']})"
    return names.get(kind, f"an object of type {kind}")


def shape_text(value: Plain) -> str:
    """The shape of a plain tensor as Python writes a tuple."""
    return str(tuple(value["shape"]))


def number_text(number: float | int | str | bool, decimal_point: bool = True) -> str:
    """A number as PyTorch prints it, short: 3., 0.25, -1., 1e-06, nan. Whole numbers of whole dtypes have no point."""
    if isinstance(number, (bool, str)):
        return str(number)
    if not decimal_point:
        return str(number)
    text = f"{number:.5g}"
    return text if re.search(r"[.en]", text) else text + "."


def show(value: Plain, limit: int = 12) -> str:
    """Write plain data the way a learner reads it: `[1., 2.]`, `3`, `(1, 'a')`; at most `limit` numbers of a tensor."""
    kind = value["type"]
    if kind == "tensor":
        return _show_tensor(value, limit)
    if kind in {"int", "bool"}:
        return str(value["value"])
    if kind == "float":
        return number_text(value["value"])
    if kind == "str":
        return repr(value["value"])
    if kind == "None":
        return "None"
    if kind in {"list", "tuple", "set"}:
        items = ", ".join(show(item, limit) for item in value["items"][:limit])
        items += ", …" if len(value["items"]) > limit else ""
        if kind == "set":
            return "{" + items + "}"
        return f"[{items}]" if kind == "list" else f"({items}{',' if len(value['items']) == 1 else ''})"
    if kind == "dict":
        pairs = ", ".join(f"{show(key)}: {show(item, limit)}" for key, item in value["items"][:limit])
        return "{" + pairs + (", …" if len(value["items"]) > limit else "") + "}"
    return name_type(value)


def _show_tensor(value: Plain, limit: int) -> str:
    numbers = value["values"]
    floating = value["dtype"].startswith(("float", "bfloat", "complex"))
    if len(numbers) > limit:
        head = ", ".join(number_text(number, floating) for number in numbers[:4])
        return f"a tensor of shape {shape_text(value)} that begins with {head}"

    def nested(shape: list[int], items: list) -> str:
        if not shape:
            return number_text(items[0], floating) if items else "?"
        step = len(items) // shape[0] if shape[0] else 0
        return "[" + ", ".join(nested(shape[1:], items[i * step : (i + 1) * step]) for i in range(shape[0])) + "]"

    return nested(list(value["shape"]), list(numbers))
