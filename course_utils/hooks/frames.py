"""Read a frame, the record that Python keeps of a running function: where it is, which hook it runs, how it ended."""

import dis
import functools
import inspect
import linecache
import os
from collections.abc import Callable
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import nn

TORCH = os.path.dirname(torch.__file__)
_RETURNS = {dis.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in dis.opmap}


def place_of(frame: FrameType | None) -> str:
    """Return the line of the user's code that is running, the last one outside torch, with its file and number."""
    inside = (TORCH, os.path.dirname(__file__), contextmanager.__code__.co_filename, functools.__file__)
    while frame and (frame.f_code.co_filename.startswith(inside) or frame.f_code.co_filename.startswith("<")):
        frame = frame.f_back
    if frame is None:
        return ""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    file = os.path.basename(frame.f_code.co_filename)
    if "ipykernel" in frame.f_code.co_filename:
        return f"line {frame.f_lineno} of its cell: `{line}`"
    return f"{file}:{frame.f_lineno}: `{line}`"


def has_raised(frame: FrameType) -> bool:
    """Whether a function that ends now does not return: an exception leaves it."""
    return frame.f_code.co_code[frame.f_lasti] not in _RETURNS


def is_checkpointed(frame: FrameType | None) -> bool:
    """Whether `torch.utils.checkpoint` is among the callers."""
    while frame and not frame.f_code.co_filename.endswith(os.path.join("utils", "checkpoint.py")):
        frame = frame.f_back
    return frame is not None


def is_same_hook(one: Any, other: Any) -> bool:
    """Whether two hooks are the same function, method or object; a `functools.partial` counts as what it calls."""
    one, other = getattr(one, "hook", one), getattr(other, "hook", other)  # torch wraps some hooks
    return one == other or (isinstance(one, functools.partial) and is_same_hook(one.func, other))


def codes_of(hook: Callable) -> list[CodeType]:
    """Return the code that runs when the hook is called; an empty list for a function written in C."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    function = getattr(hook, "__func__", hook)
    if not isinstance(function, FunctionType):
        function = inspect.getattr_static(type(function), "__call__", None)
    return [function.__code__] if isinstance(function, FunctionType) else []


def is_run_of(hook: Callable, frame: FrameType) -> bool:
    """Whether a frame with the code of the hook runs this very hook.

    Functions made in a loop share their code. Where torch's own Python calls one, torch knows which; else they differ
    in what they closed over, in defaults, or in `self`.
    """
    caller = frame.f_back
    given = caller.f_locals.get("hook") if caller and caller.f_code.co_filename.startswith(TORCH) else None
    if given is not None and frame.f_code in codes_of(given):
        return is_same_hook(given, hook)
    while isinstance(hook, functools.partial):
        hook = hook.func
    function = getattr(hook, "__func__", hook)
    first = next(iter(_positional(frame)), None)
    if not isinstance(hook, FunctionType) and first is not getattr(hook, "__self__", hook):
        return False
    if not isinstance(function, FunctionType):
        return True
    found = frame.f_locals
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    defaults = [each for each in parameters if each.default is not each.empty]
    closed = all(found.get(name) is _content_of(cell) for name, cell in cells)
    return closed and not any(_is_of_another(found[each.name], each.default) for each in defaults)


def _is_of_another(value: Any, default: Any) -> bool:
    """Whether an argument is not the default and of its type: then it is the default of another function of a loop."""
    return value is not default and type(value) is type(default)


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _positional(frame: FrameType) -> list[Any]:
    code, found = frame.f_code, frame.f_locals
    values = [found[name] for name in code.co_varnames[: code.co_argcount] if name in found]
    if code.co_flags & inspect.CO_VARARGS:
        values += found[code.co_varnames[code.co_argcount + code.co_kwonlyargcount]]
    return values


def split_arguments(hook: Callable, frame: FrameType) -> tuple[Any, list[Any]]:
    """Return the module or optimizer that torch gave to the hook (None for other kinds), and the arguments after it."""
    added = 0
    while isinstance(hook, functools.partial):
        added += len(hook.args)
        hook = hook.func
    if not isinstance(hook, FunctionType):
        added += 1  # `self`
    values = _positional(frame)[added:]
    defaults = list(getattr(hook, "__defaults__", None) or ())
    while defaults and values[len(values) - 1 :] and values[-1] is defaults[-1]:  # `name=name` of a function in a loop
        values.pop()
        defaults.pop()
    for place, value in enumerate(values):
        if isinstance(value, (nn.Module, torch.optim.Optimizer)):
            return value, values[place + 1 :]
    return None, values
