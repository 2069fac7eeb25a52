"""What is the same for everyone in a process, and what an answer must leave as it was:

    with World() as world:
        run(answer)
    world.changed    # the names of what the answer left changed

`SETTINGS` says what there is: the settings, modes and global hooks of torch, and what belongs to Python, numpy and
matplotlib. What an honest answer changes by the way has no name: it is put back without a word. Not looked at is what
cannot be put back (operators registered in torch, the number of threads between operations), and what no exercise
depends on (how files are loaded, how processes are started).
"""

import builtins
import gc
import inspect
import os
import random
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn, overrides
from torch._tensor_str import PRINT_OPTS
from torch.autograd import forward_ad, graph
from torch.backends import mha
from torch.nn.modules import module as torch_modules
from torch.optim import optimizer as torch_optimizers
from torch.utils import _device, _python_dispatch, checkpoint

TORCHS_FOLDER = str(Path(torch.__file__).parent)
TORCHS_VARIABLES = ("TORCH", "PYTORCH", "TRITON", "KINETO")  # torch sets those of the environment that begin so
COMPILER = "torch._dynamo.eval_frame"  # is loaded where something was compiled
# What torch's core has getters and setters for, and what is an object's, or no setting, or told by another name.
NO_SWITCHES = {"dispatch_mode", "fake_constant", "tensor_metadata", "value_trace", "thread_name", "tracing_state"}
NO_SWITCHES |= {"graph_exec_group", "deterministic_algorithms", "torch_function_state", "fwd_grad_enabled"}
SMALLEST = sys.float_info.min  # the half of it is a denormal number
VARIABLES = os.environ
OWN_GENERATOR = np.random.MT19937(0)  # of numpy's random numbers while answers run
MISSING = object()


class Setting(NamedTuple):
    """One thing that is the same for everyone: its name, how it is read and how it is set."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]

    def differs(self, before: Any) -> bool:
        """Whether it is not as it was `before`."""
        try:
            return bool(self.read() != before)
        except Exception:  # what stands there now may be anything
            return True


def _ignore(_: Any) -> None:
    """How a setting is set that another one puts back as well."""


def _refill(table: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Let a table have its old content, in the old order, in which hooks run."""
    table.clear()
    table.update(before)


def _patch_back(table: dict[str, Any], before: dict[str, Any]) -> None:
    """Let a table that is always in use have its old content: it is never empty."""
    table.update(before)
    for name in table.keys() - before.keys():
        del table[name]


# --- settings of torch ------------------------------------------------------------------------------------------------


def _read_modes() -> tuple[Any, ...]:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return overrides._get_current_function_mode_stack(), _device.CURRENT_DEVICE, context


def _write_modes(before: tuple[Any, ...]) -> None:
    stack, _device.CURRENT_DEVICE, torch._GLOBAL_DEVICE_CONTEXT.device_context = before
    while torch._C._len_torch_function_stack():
        overrides._pop_mode()
    for mode in stack:
        overrides._push_mode(mode)


def _read_devices() -> list[Any]:
    stack = overrides._get_current_function_mode_stack()
    devices = [mode.device for mode in stack if isinstance(mode, _device.DeviceContext)]
    return [device for device in devices[-1:] if device.type != "cpu"]


def _read_other_modes() -> list[Any]:
    stack = overrides._get_current_function_mode_stack()
    return [mode for mode in stack if not isinstance(mode, _device.DeviceContext)]


def _write_dispatch_modes(before: list[Any]) -> None:
    while torch._C._len_torch_dispatch_stack():
        _python_dispatch._pop_mode()
    for mode in before:
        _python_dispatch._push_mode(mode)


def _write_inference_mode(before: bool) -> None:
    _inference_modes.append(torch._C._InferenceMode(before))
    _inference_modes[-1].__enter__()


_inference_modes: list[Any] = []  # those entered here; one that is lost would be left again


def _write_forward_level(before: int) -> None:
    while forward_ad._current_level > before:
        forward_ad.exit_dual_level()
    while forward_ad._current_level < before:
        forward_ad.enter_dual_level()


def _write_saved_hooks(before: tuple[Callable, Callable] | None) -> None:
    while _read_saved_hooks() not in (None, before):
        torch._C._autograd._pop_saved_tensors_default_hooks()
    if _read_saved_hooks() != before:
        torch._C._autograd._push_saved_tensors_default_hooks(*before)


def _write_saved_hooks_ban(before: str | None) -> None:
    if before is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(before, False)


_read_saved_hooks = partial(torch._C._autograd._top_saved_tensors_default_hooks, True)


def _read_autocast() -> tuple[Any, ...]:
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    is_enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return nesting, torch.is_autocast_cache_enabled(), is_enabled, dtype


def _write_autocast(before: tuple[Any, ...]) -> None:
    nesting, has_cache, is_enabled, dtype = before
    while _read_autocast()[0] > nesting:
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(has_cache)
    torch.set_autocast_enabled("cpu", is_enabled)
    torch.set_autocast_dtype("cpu", dtype)


def _read_deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _read_stance() -> Any:
    """The stance of torch's compiler; None where it is not loaded, or has the one that it begins with."""
    stance = sys.modules[COMPILER]._stance if COMPILER in sys.modules else None
    return None if stance is None or stance == type(stance)() else stance


def _write_stance(before: Any) -> None:
    compiler = sys.modules[COMPILER]
    compiler._set_stance(before or type(compiler._stance)())


def _tables() -> Iterator[Setting]:
    """The tables of hooks that are for all modules, or for all optimizers."""
    for what, module in ("modules", torch_modules), ("optimizers", torch_optimizers):
        for name, table in vars(module).items():
            if name.startswith("_global_") and isinstance(table, dict):
                yield Setting(f"hooks on all {what}", table.copy, partial(_refill, table))


def _attributes(name: str, owner: object, *attributes: str) -> Setting:
    """Attributes of a module or an object; without names, its private flags, which context managers set."""
    values = vars(owner)
    kept = attributes or [key for key, value in values.items() if _is_flag(key, value)]

    def read() -> list[Any]:
        return [values[key] for key in kept]

    return Setting(name, read, lambda before: values.update(zip(kept, before, strict=True)))


def _is_flag(name: str, value: Any) -> bool:
    return name.startswith("_") and not name.startswith("__") and isinstance(value, bool | int | None)


def _switches() -> Iterator[Setting]:
    """The settings that torch's core has a function to read for, and one to set."""
    for setter in (name for name in dir(torch._C) if name.startswith("_set_")):
        what = setter.removeprefix("_set_")
        getters = f"_get_{what}", f"_is_{what}", f"_get_{what.removeprefix('sdp_use_')}_sdp_enabled"
        read = next((getattr(torch._C, name) for name in getters if hasattr(torch._C, name)), None)
        if read and what not in NO_SWITCHES:
            yield Setting(f"torch's setting `{what}`", read, partial(_write_switch, getattr(torch._C, setter)))


def _precisions() -> Iterator[Setting]:
    for backend, kinds in ("generic", ["all"]), ("mkldnn", ["all", "matmul", "conv", "rnn"]):
        for kind in kinds:
            read = partial(torch._C._get_fp32_precision_getter, backend, kind)
            write = partial(torch._C._set_fp32_precision_setter, backend, kind)
            yield Setting("torch's setting `fp32_precision`", read, write)


def _write_switch(write: Callable, before: Any) -> None:
    write(*before) if isinstance(before, tuple) else write(before)


# --- settings of Python, numpy and matplotlib -------------------------------------------------------------------------


def _read_sys() -> tuple[Any, ...]:
    return vars(sys).copy(), sys.path[:], sys.argv[:], sys.getrecursionlimit(), sys.gettrace(), sys.getprofile()


def _write_sys(before: tuple[Any, ...]) -> None:
    attributes, path, argv, limit, trace, profile = before
    _patch_back(vars(sys), attributes)
    sys.path[:], sys.argv[:] = path, argv
    sys.setrecursionlimit(limit)
    sys.settrace(trace)
    sys.setprofile(profile)


def _read_variables() -> dict[str, str]:
    return {name: value for name, value in VARIABLES._data.items() if not name.startswith(ENCODED)}


def _write_variables(before: dict[str, str]) -> None:
    now = _read_variables()
    for name in now.keys() - before.keys():
        del VARIABLES[VARIABLES.decodekey(name)]
    for name in before.keys() - {each for each in now if now[each] == before.get(each)}:
        VARIABLES[VARIABLES.decodekey(name)] = VARIABLES.decodevalue(before[name])


ENCODED = tuple(map(VARIABLES.encodekey, TORCHS_VARIABLES))


def _read_folder() -> str | None:
    with suppress(FileNotFoundError):
        return os.getcwd()


def _write_warnings(before: tuple[Any, ...]) -> None:
    with warnings.catch_warnings():  # whose end tells Python that the filters are others
        pass
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
    if before is not None:  # else the answer has loaded it
        dict.update(sys.modules["matplotlib"].rcParams, before)


_read_handler = partial(inspect.unwrap(signal.getsignal), signal.SIGINT)  # without the names of handlers: quicker

TORCH = (
    # First, for nothing else can be read under a mode that fails. The CPU by name is a mode, and no other device.
    Setting("default device", _read_devices, _ignore),
    Setting("active modes of torch", _read_other_modes, _ignore),
    Setting("", _read_modes, _write_modes),
    Setting("active modes of torch", _python_dispatch._get_current_dispatch_mode_stack, _write_dispatch_modes),
    _attributes("", _python_dispatch),
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("inference mode", torch.is_inference_mode_enabled, _write_inference_mode),  # it changes others as well
    Setting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("number of threads", torch.get_num_threads, torch.set_num_threads),
    Setting(
        "deterministic algorithms",
        _read_deterministic,
        lambda before: torch.use_deterministic_algorithms(before[0], warn_only=before[1]),
    ),
    Setting(
        "anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda before: torch.set_anomaly_enabled(*before),
    ),
    Setting("forward-mode differentiation", lambda: forward_ad._current_level, _write_forward_level),
    Setting("autocast", _read_autocast, _write_autocast),
    Setting("treatment of denormal numbers", lambda: SMALLEST / 2 == 0, torch.set_flush_denormal),
    Setting("hooks on what autograd saves", _read_saved_hooks, _write_saved_hooks),
    Setting(
        "hooks on what autograd saves",
        torch._C._autograd._saved_tensors_hooks_get_disabled_error_message,
        _write_saved_hooks_ban,
    ),
    *_tables(),
    _attributes("", torch_modules, "_global_is_full_backward_hook"),  # stays after such a hook is gone
    _attributes("settings of `torch.backends.mha`", mha),
    _attributes("settings of `torch.__future__`", torch.__future__),
    _attributes("settings of `torch.autograd.graph`", graph),
    _attributes("settings of `torch.utils.checkpoint`", checkpoint),
    _attributes("how tensors are printed", PRINT_OPTS, *vars(PRINT_OPTS)),
    Setting("stance of torch's compiler", _read_stance, _write_stance),
    *_precisions(),
    *_switches(),
)
PYTHON = (
    Setting("settings of `sys`", _read_sys, _write_sys),
    Setting("environment variables", _read_variables, _write_variables),
    Setting("working folder", _read_folder, os.chdir),
    # Without a name: an answer may silence warnings, and a case may listen to them.
    Setting("", lambda: (warnings.filters[:], warnings.showwarning), _write_warnings),
    Setting("what Ctrl-C does", _read_handler, partial(signal.signal, signal.SIGINT)),
    Setting("Python's garbage collection", lambda: (gc.isenabled(), gc.get_threshold()), _write_collection),
    Setting("settings of numpy", lambda: (np.geterr(), np.get_printoptions()), _write_numpy),
    Setting("settings of matplotlib", _read_matplotlib, _write_matplotlib),
)
SETTINGS = (*TORCH, *PYTHON)
IMPORTS_CHANGE = {"settings of `sys`", "environment variables", "settings of matplotlib"}


# --- functions that an answer may have replaced -----------------------------------------------------------------------

PATCHED = {
    "functions of `torch`": torch,
    "functions of `torch.autograd`": torch.autograd,
    "functions of `torch.nn.functional`": nn.functional,
    "methods of `torch.Tensor`": torch.Tensor,
    "methods of `torch.nn.Module`": nn.Module,
    "methods of `torch.optim.Optimizer`": torch.optim.Optimizer,
}
LAYERS = [each for each in vars(nn).values() if isinstance(each, type) and issubclass(each, nn.Module)]
OPTIMIZERS = [each for each in vars(torch.optim).values() if isinstance(each, type)]


def _read_functions() -> dict[str, Any]:
    """All names of the owners in `PATCHED`, and what the layers and the optimizers do."""
    tables = {name: vars(owner).copy() for name, owner in PATCHED.items()}
    tables["methods of torch's layers"] = {each: vars(each).get("forward", MISSING) for each in LAYERS}
    tables["methods of torch's optimizers"] = {each: vars(each).get("step", MISSING) for each in OPTIMIZERS}
    return tables


def _replaced(now: dict[Any, Any], before: dict[Any, Any], owner: object) -> Iterator[Any]:
    """The keys under which somebody else than torch put something, or took it away."""
    for key in now.keys() | before.keys():
        new, old = now.get(key, MISSING), before.get(key, MISSING)
        if new is not old and (callable(old) or _hides(new, key, owner)) and not _is_torchs_own(new, old):
            yield key


def _hides(new: Any, key: Any, owner: object) -> bool:
    """Whether a new name stands before an inherited one."""
    if isinstance(owner, types.ModuleType):
        return False
    return callable(new) and (owner is None or hasattr(super(owner, owner), key))


def _is_torchs_own(new: Any, old: Any) -> bool:
    """Whether torch itself put `new` where `old` was: it does so when an optimizer is made or a function compiled."""
    code = getattr(new, "__code__", None)
    if code is None or not code.co_filename.startswith(TORCHS_FOLDER):
        return False
    return "_dynamo" in code.co_filename or new.__qualname__ == getattr(old, "__qualname__", None)


def _put_functions_back(before: dict[str, Any]) -> list[str]:
    changed = []
    for name, table in _read_functions().items():
        if table == before[name]:
            continue
        owner = PATCHED.get(name)
        for key in _replaced(table, before[name], owner):
            target, attribute = (owner, key) if owner else (key, "step" if "optimizers" in name else "forward")
            old = before[name].get(key, MISSING)
            delattr(target, attribute) if old is MISSING else setattr(target, attribute, old)
            changed.append(name)
    return changed


# --- all together -----------------------------------------------------------------------------------------------------


class World:
    """Puts everything back as it was at the beginning of the block when the block ends, however it ends.

    `changed` then has the names of what was different and should not be, sorted.
    """

    def __init__(self) -> None:
        self.changed: list[str] = []
        self._first = self._settings = [setting.read() for setting in SETTINGS]
        self._functions = _read_functions()
        self._builtins, self._modules = vars(builtins).copy(), sys.modules.copy()
        self._random = random.getstate(), np.random.get_bit_generator()

    def __enter__(self) -> "World":
        np.random.set_bit_generator(OWN_GENERATOR)  # to keep numpy's own and put it back takes longer
        random.seed(0)  # the same numbers for every answer
        np.random.seed(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._put_modules_back()
        self._tell(_put_functions_back(self._functions))
        self._settings = self._first
        self.put_back()
        random.setstate(self._random[0])
        np.random.set_bit_generator(self._random[1])

    def begin_case(self) -> None:
        """Take what is there now for what has to stay: a case may have hooks for all modules, and takes them away."""
        self._settings = [setting.read() for setting in SETTINGS]

    def keep_python_running(self) -> None:
        """Put back that without which no code runs: Python's own functions, and the modules that were loaded."""
        if vars(builtins) != self._builtins:
            _patch_back(vars(builtins), self._builtins)
            self._tell(["Python's built-in functions"])
        if len(sys.modules) < len(self._modules):
            self._put_modules_back()

    def put_back(self) -> None:
        """Put the settings back. What takes as long as a small case waits for the end of the block: functions that were
        replaced, and random numbers.
        """
        self.keep_python_running()
        has_imported = len(sys.modules) > len(self._modules)
        for setting, before in zip(SETTINGS, self._settings, strict=True):
            if setting.differs(before):
                with suppress(Exception):  # a folder that is gone, for example: it is named all the same
                    setting.write(before)
                if setting.name and not (has_imported and setting.name in IMPORTS_CHANGE):
                    self._tell([setting.name])
        if has_imported:
            self._modules = sys.modules | self._modules

    def _put_modules_back(self) -> None:
        if sys.modules == self._modules:
            return
        if any(sys.modules.get(name) is not module for name, module in self._modules.items()):
            sys.modules.update(self._modules)
            self._tell(["Python's loaded modules"])

    def _tell(self, names: list[str]) -> None:
        self.changed = sorted({*self.changed, *names})
