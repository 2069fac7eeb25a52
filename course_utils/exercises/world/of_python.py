"""The global state of Python, numpy and matplotlib."""

import builtins
import gc
import os
import signal
import sys
import warnings
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from course_utils.exercises.world.state import State, refill

ENVIRONMENT = os.environ
TORCHS_VARIABLES = ("TORCH", "PYTORCH", "TRITON")  # what torch sets in the environment begins so


def _lacks_modules(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a module was taken away or another one put in its place; more may have been loaded."""
    if list(now.values())[: len(before)] == list(before.values()):
        return False
    return any(now.get(name) is not module for name, module in before.items())


def _read_sys() -> tuple[Any, ...]:
    return vars(sys).copy(), sys.path[:], sys.argv[:], sys.getrecursionlimit(), sys.gettrace(), sys.getprofile()


def _write_sys(before: tuple[Any, ...]) -> None:
    attributes, path, argv, limit, trace, profile = before
    refill(vars(sys), attributes)
    sys.path[:], sys.argv[:] = path, argv
    sys.setrecursionlimit(limit)
    sys.settrace(trace)
    sys.setprofile(profile)


def _changed_variables(now: dict[Any, Any], before: dict[Any, Any]) -> list[str]:
    if now == before:
        return []
    keys = [key for key in now.keys() | before.keys() if now.get(key) != before.get(key)]
    names = map(ENVIRONMENT.decodekey, keys)
    return [name for name in names if not name.startswith(TORCHS_VARIABLES)]


def _write_environment(before: dict[Any, Any]) -> None:
    for name in _changed_variables(ENVIRONMENT._data, before):
        value = before.get(ENVIRONMENT.encodekey(name))
        if value is None:
            del ENVIRONMENT[name]
        else:
            ENVIRONMENT[name] = ENVIRONMENT.decodevalue(value)


def _read_folder() -> str | None:
    with suppress(FileNotFoundError):
        return os.getcwd()


def _write_warnings(before: tuple[Any, ...]) -> None:
    warnings.filters[:], warnings.showwarning = before


def _write_collection(before: tuple[bool, tuple[int, ...]]) -> None:
    is_enabled, threshold = before
    (gc.enable if is_enabled else gc.disable)()
    gc.set_threshold(*threshold)


def _write_numpy(before: tuple[dict[str, Any], dict[str, Any]]) -> None:
    errors, printing = before
    np.seterr(**errors)
    np.set_printoptions(**printing)


def _read_matplotlib() -> dict[str, Any] | None:
    if "matplotlib" not in sys.modules:
        return None
    parameters = sys.modules["matplotlib"].rcParams
    return dict(zip(dict.keys(parameters), dict.values(parameters), strict=True))  # 50 times faster than `copy`


def _write_matplotlib(before: dict[str, Any] | None) -> None:
    if before is not None:
        dict.update(sys.modules["matplotlib"].rcParams, before)


VITAL = (
    State("Python's built-in functions", vars(builtins).copy, partial(refill, vars(builtins)), imports_too=True),
    State("Python's loaded modules", sys.modules.copy, sys.modules.update, _lacks_modules),
)
PYTHON = (
    State("settings of `sys`", _read_sys, _write_sys, imports_too=True),
    State(
        "environment variables",
        lambda: ENVIRONMENT._data.copy(),
        _write_environment,
        lambda now, before: bool(_changed_variables(now, before)),
        imports_too=True,
    ),
    State("working folder", _read_folder, os.chdir),
    # Without a name: an answer may silence warnings, and a case may listen to them.
    State("", lambda: (warnings.filters[:], warnings.showwarning), _write_warnings),
    State("what Ctrl-C does", partial(signal.getsignal, signal.SIGINT), partial(signal.signal, signal.SIGINT)),
    State("Python's garbage collection", lambda: (gc.isenabled(), gc.get_threshold()), _write_collection),
    State("settings of numpy", lambda: (np.geterr(), np.get_printoptions()), _write_numpy),
    State("settings of matplotlib", _read_matplotlib, _write_matplotlib, imports_too=True),
)
