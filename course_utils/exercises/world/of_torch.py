"""The global state of torch: its settings, its modes, and the hooks that are for all modules or all optimizers."""

import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn, overrides
from torch._tensor_str import PRINT_OPTS
from torch.autograd import forward_ad
from torch.backends import mha, opt_einsum
from torch.nn.utils import parametrize
from torch.optim import optimizer as torch_optimizer
from torch.utils import _device, _python_dispatch

from course_utils.exercises.world.state import State, watch_attributes

COMPILER = "torch._dynamo.eval_frame"  # these two are loaded where something was compiled
BACKENDS = "torch._dynamo.backends.registry"
# What torch's core has by such names too: of an object, told elsewhere, or no setting.
NO_SWITCHES = {"dispatch_mode", "fake_constant", "tensor_metadata", "value_trace"}
NO_SWITCHES |= {"deterministic_algorithms", "thread_name", "tracing_state", "graph_exec_group"}
AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")
CPU = torch.device("cpu")
SMALLEST = sys.float_info.min  # the half of it is a denormal number

_inference_modes: list[Any] = []  # those entered here; each one lost would be left again


def _write_inference_mode(before: bool) -> None:
    _inference_modes.append(torch._C._InferenceMode(before))
    _inference_modes[-1].__enter__()


def _read_device() -> tuple[torch.device, Any, Any]:
    """The device that tensors are made on, and what torch remembers of it."""
    modes = [mode for mode in _read_function_modes() if isinstance(mode, _device.DeviceContext)]
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return modes[-1].device if modes else CPU, _device.CURRENT_DEVICE, context


def _write_device(before: tuple[torch.device, Any, Any]) -> None:
    _, _device.CURRENT_DEVICE, torch._GLOBAL_DEVICE_CONTEXT.device_context = before
    modes = [mode for mode in _read_function_modes() if not isinstance(mode, _device.DeviceContext)]
    if before[2]:
        modes.insert(0, before[2])
    _write_function_modes(modes)


def _devices_differ(now: tuple[torch.device, Any, Any], before: tuple[torch.device, Any, Any]) -> bool:
    return now[0] != before[0]


def _read_function_modes() -> list[Any]:
    return overrides._get_current_function_mode_stack()


def _write_function_modes(before: list[Any]) -> None:
    while torch._C._len_torch_function_stack():
        overrides._pop_mode()
    for mode in before:
        overrides._push_mode(mode)


def _write_dispatch_modes(before: list[Any]) -> None:
    while torch._C._len_torch_dispatch_stack():
        _python_dispatch._pop_mode()
    for mode in before:
        _python_dispatch._push_mode(mode)


def _write_forward_level(before: int) -> None:
    while forward_ad._current_level > before:
        forward_ad.exit_dual_level()
    while forward_ad._current_level < before:
        forward_ad.enter_dual_level()


_read_saved_hooks = partial(torch._C._autograd._top_saved_tensors_default_hooks, True)
_read_saved_hooks_ban = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message


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


def _read_autocast() -> tuple[Any, ...]:
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    devices = [(torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in AUTOCAST_DEVICES]
    return nesting, torch.is_autocast_cache_enabled(), devices


def _write_autocast(before: tuple[Any, ...]) -> None:
    nesting, has_cache, devices = before
    while _read_autocast()[0] > nesting:
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(has_cache)
    for each, (is_enabled, dtype) in zip(AUTOCAST_DEVICES, devices, strict=True):
        torch.set_autocast_enabled(each, is_enabled)
        torch.set_autocast_dtype(each, dtype)


def _write_parametrize(before: int) -> None:
    parametrize._cache_enabled = before
    parametrize._cache.clear()


def _stop_profiler(before: bool) -> None:
    if not before:
        torch.autograd._disable_profiler()


def _read_stance() -> Any:
    return sys.modules[COMPILER]._stance if COMPILER in sys.modules else None


def _stances_differ(now: Any, before: Any) -> bool:
    return now is not None and now != (before or type(now)())  # without arguments it is the default


def _write_stance(before: Any) -> None:
    sys.modules[COMPILER]._set_stance(before or type(_read_stance())())


def _read_backend() -> Any:
    return getattr(sys.modules.get(BACKENDS), "_default_backend", None)


def _write_backend(before: Any) -> None:
    sys.modules[BACKENDS].set_default_backend(before)


def _read_cuda_device() -> int:
    return torch.cuda.current_device() if torch.cuda.is_initialized() else 0


def _watch_flags(module: types.ModuleType, name: str = "") -> State:
    """The private flags of a module, which contexts set and put back."""
    flags = [
        each
        for each, value in vars(module).items()
        if each.startswith("_") and not each.startswith("__") and isinstance(value, (bool, int, type(None)))
    ]
    return watch_attributes(name or f"settings of `{module.__name__}`", vars(module), *flags)


def _watch_tables(name: str, module: types.ModuleType) -> Iterator[State]:
    """The tables of global hooks in a module."""
    for key, table in vars(module).items():
        if key.startswith("_global_") and isinstance(table, dict):
            yield State(name, table.copy, partial(_write_table, table))


def _write_table(table: dict[int, Callable], before: dict[int, Callable]) -> None:
    table.clear()  # for hooks run in the order of the table
    table.update(before)


def _watch_switches() -> Iterator[State]:
    """The settings that torch's core has a function to read for, and one to set."""
    for setter in (name for name in dir(torch._C) if name.startswith("_set_")):
        what = setter.removeprefix("_set_")
        getters = f"_get_{what}", f"_is_{what}", f"_get_{what.removeprefix('sdp_use_')}_sdp_enabled"
        read = next((getattr(torch._C, name) for name in getters if hasattr(torch._C, name)), None)
        if read and what not in NO_SWITCHES:
            yield State(f"torch's setting `{what}`", read, partial(_write_switch, getattr(torch._C, setter)))


def _write_switch(write: Callable, before: Any) -> None:
    write(*before) if isinstance(before, tuple) else write(before)


def _watch_precisions() -> Iterator[State]:
    for backend in ("generic", "cuda", "mkldnn"):
        for kind in ("all",) if backend == "generic" else ("all", "matmul", "conv", "rnn"):
            read = partial(torch._C._get_fp32_precision_getter, backend, kind)
            write = partial(torch._C._set_fp32_precision_setter, backend, kind)
            yield State("torch's setting `fp32_precision`", read, write)


# It comes first, for it changes which class `torch.Storage` is.
DEFAULT_DTYPE = State("default dtype", torch.get_default_dtype, torch.set_default_dtype)
SETTINGS = (
    State("inference mode", torch.is_inference_mode_enabled, _write_inference_mode),  # it changes others as well
    State("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    State("default device", _read_device, _write_device, _devices_differ),
    State("", _read_device, _write_device),  # the CPU by name is not another device, and yet a mode
    State("active modes of torch", _read_function_modes, _write_function_modes),
    State("active modes of torch", _python_dispatch._get_current_dispatch_mode_stack, _write_dispatch_modes),
    _watch_flags(_python_dispatch, "active modes of torch"),
    State("number of threads", torch.get_num_threads, torch.set_num_threads),
    State(
        "deterministic algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda before: torch.use_deterministic_algorithms(before[0], warn_only=before[1]),
    ),
    State(
        "anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda before: torch.set_anomaly_enabled(*before),
    ),
    State("forward-mode differentiation", lambda: forward_ad._current_level, _write_forward_level),
    State("autocast", _read_autocast, _write_autocast),
    State("treatment of denormal numbers", lambda: SMALLEST / 2 == 0, torch.set_flush_denormal),
    State("hooks on what autograd saves", _read_saved_hooks, _write_saved_hooks),
    State("hooks on what autograd saves", _read_saved_hooks_ban, _write_saved_hooks_ban),
    *_watch_tables("hooks on all modules", nn.modules.module),
    *_watch_tables("hooks on all optimizers", torch_optimizer),
    *_watch_tables("hooks on all CUDA graphs", torch.cuda.graphs),
    watch_attributes("", vars(nn.modules.module), "_global_is_full_backward_hook"),  # stays after such a hook is gone
    State("settings of `torch.nn.utils.parametrize`", lambda: parametrize._cache_enabled, _write_parametrize),
    _watch_flags(mha),
    _watch_flags(torch.__future__),
    _watch_flags(torch.autograd.graph),
    _watch_flags(torch.compiler),
    _watch_flags(torch.utils.checkpoint),
    watch_attributes("settings of `torch.backends.opt_einsum`", vars(opt_einsum.m), "enabled", "strategy"),
    watch_attributes("how tensors are printed", vars(PRINT_OPTS), *vars(PRINT_OPTS)),
    State("profiler", torch._C._autograd._profiler_enabled, _stop_profiler),
    _watch_flags(torch.autograd.profiler, "profiler"),
    State("stance of torch's compiler", _read_stance, _write_stance, _stances_differ),
    State("backend of torch's compiler", _read_backend, _write_backend, imports_too=True),
    State("current CUDA device", _read_cuda_device, torch.cuda.set_device),
    *_watch_precisions(),
    *_watch_switches(),
)
