"""What an answer changes for everyone is put back, noticed and told; what honest ones change by the way is put back."""

import builtins
import contextlib
import gc
import importlib
import os
import random
import signal
import sys
import types
import warnings

import matplotlib
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils.exercises.cases import Case
from course_utils.exercises.engine import find
from course_utils.exercises.evidence import observe_all
from course_utils.exercises.judging import judge

KEPT = []  # contexts that an answer has entered and lost


class PassingFunctions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class PassingOperations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def enter(make):
    def change():
        KEPT.append(make())
        KEPT[-1].__enter__()

    return change


def put(owner, name, value):
    return lambda: setattr(owner, name, value)


def register(name, hook=lambda *_: None):
    owner = optimizers if "optimizer" in name else modules
    return lambda: getattr(owner, name)(hook)


def spoil_variables():
    os.environ["COURSE_TEST"] = "1"
    del os.environ["PATH"]


def other_handler(*_):
    raise KeyboardInterrupt


# What an answer changes, by the name that is told; each change is one small answer.
CHANGES = {
    "default dtype": [lambda: torch.set_default_dtype(torch.float64)],
    "default device": [lambda: torch.set_default_device("meta"), enter(lambda: torch.device("meta"))],
    "grad mode": [lambda: torch.set_grad_enabled(False), enter(torch.no_grad)],
    "inference mode": [enter(torch.inference_mode)],
    "forward-mode differentiation": [forward_ad.enter_dual_level],
    "number of threads": [lambda: torch.set_num_threads(torch.get_num_threads() + 1)],
    "deterministic algorithms": [
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.set_deterministic_debug_mode("warn"),
    ],
    "anomaly detection": [
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.set_anomaly_enabled(False, check_nan=False),
    ],
    "autocast": [
        enter(lambda: torch.autocast("cpu")),
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        lambda: torch.set_autocast_cache_enabled(False),
        torch.autocast_increment_nesting,
    ],
    "hooks on what autograd saves": [
        enter(lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)),
        enter(lambda: torch.autograd.graph.disable_saved_tensors_hooks("no")),
    ],
    "hooks on all modules": [
        register("register_module_forward_hook"),
        register("register_module_forward_pre_hook"),
        register("register_module_full_backward_hook"),
        register("register_module_full_backward_pre_hook"),
        register("register_module_buffer_registration_hook"),
        register("register_module_module_registration_hook"),
        register("register_module_parameter_registration_hook"),
    ],
    "hooks on all optimizers": [
        register("register_optimizer_step_pre_hook"),
        register("register_optimizer_step_post_hook"),
    ],
    "active modes of torch": [enter(PassingFunctions), enter(PassingOperations)],
    "how tensors are printed": [lambda: torch.set_printoptions(precision=1)],
    "treatment of denormal numbers": [lambda: torch.set_flush_denormal(True)],
    "stance of torch's compiler": [lambda: torch.compiler.set_stance("force_eager")],
    "settings of `torch.__future__`": [lambda: torch.__future__.set_swap_module_params_on_conversion(True)],
    "settings of `torch.backends.mha`": [lambda: torch.backends.mha.set_fastpath_enabled(False)],
    "settings of `torch.utils.checkpoint`": [
        enter(lambda: torch.utils.checkpoint.set_checkpoint_early_stop(False)),
        enter(lambda: torch.utils.checkpoint.set_checkpoint_debug_enabled(True)),
    ],
    "settings of `torch.autograd.graph`": [put(torch.autograd.graph, "_allow_mutation_on_saved_tensors_enabled", True)],
    "torch's setting `fp32_precision`": [put(torch.backends.mkldnn.matmul, "fp32_precision", "bf16")],
    "torch's setting `warnAlways`": [lambda: torch.set_warn_always(True)],
    "torch's setting `multithreading_enabled`": [lambda: torch.autograd.set_multithreading_enabled(False)],
    "torch's setting `mkldnn_enabled`": [lambda: torch.backends.mkldnn.set_flags(False)],
    "torch's setting `sdp_use_math`": [lambda: torch.backends.cuda.enable_math_sdp(False)],
    "torch's setting `deterministic_fill_uninitialized_memory`": [
        put(torch.utils.deterministic, "fill_uninitialized_memory", False)
    ],
    "functions of `torch`": [put(torch, "relu", torch.sigmoid), lambda: delattr(torch, "sin")],
    "functions of `torch.autograd`": [put(torch.autograd, "grad", lambda *_: None)],
    "functions of `torch.nn.functional`": [put(F, "relu", lambda x: x)],
    "methods of `torch.Tensor`": [
        put(torch.Tensor, "backward", lambda self: None),
        put(torch.Tensor, "relu", lambda self: self),  # it hides what is inherited
    ],
    "methods of `torch.nn.Module`": [put(nn.Module, "__call__", nn.Module._call_impl)],
    "methods of `torch.optim.Optimizer`": [put(torch.optim.Optimizer, "zero_grad", lambda self: None)],
    "methods of torch's layers": [
        put(nn.ReLU, "forward", nn.Sigmoid.forward),
        put(nn.ReLU6, "forward", lambda self, x: x),  # it has inherited its own
    ],
    "methods of torch's optimizers": [put(torch.optim.SGD, "step", lambda self: None)],
    "Python's built-in functions": [put(builtins, "sum", max), lambda: delattr(builtins, "zip")],
    "Python's loaded modules": [
        lambda: sys.modules.pop("json"),
        lambda: sys.modules.update(json=types),
        sys.modules.clear,
    ],
    "settings of `sys`": [
        lambda: sys.path.append("elsewhere"),
        lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
        put(sys, "stdout", None),
        put(sys, "course_test", 1),
    ],
    "environment variables": [spoil_variables],
    "working folder": [lambda: os.chdir("/")],
    "what Ctrl-C does": [lambda: signal.signal(signal.SIGINT, other_handler)],
    "Python's garbage collection": [gc.disable, lambda: gc.set_threshold(1)],
    "settings of numpy": [lambda: np.seterr(all="raise"), lambda: np.set_printoptions(precision=1)],
    "settings of matplotlib": [lambda: matplotlib.rcParams.update({"lines.linewidth": 77})],
}
# What changes more than one thing, or lets nothing work.
TOGETHER = {
    "a mode in which all fails": (enter(TorchFunctionMode), ["active modes of torch"]),
    "fails where its results are read": (put(torch.Tensor, "detach", None), ["methods of `torch.Tensor`"]),
    "computes with less precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        ["torch's setting `cublas_allow_tf32`", "torch's setting `fp32_precision`"],
    ),
}
# What an honest answer may change: it is put back, and nothing is said.
BY_THE_WAY = {
    "uses torch's random numbers": lambda: torch.rand(3),
    "seeds torch": lambda: torch.manual_seed(1),
    "uses Python's random numbers": random.random,
    "seeds Python": lambda: random.seed(1),
    "uses numpy's random numbers": lambda: np.random.rand(3),
    "seeds numpy": lambda: np.random.seed(1),
    "silences warnings": lambda: warnings.simplefilter("ignore"),
    "makes warnings errors": lambda: warnings.filterwarnings("error"),
    "removes its global hook": lambda: modules.register_module_full_backward_hook(lambda *_: None).remove(),
    "names the CPU": lambda: torch.set_default_device("cpu"),
    "prints": lambda: print("a line"),
    "makes an optimizer of a kind that nobody used yet": lambda: torch.optim.Rprop([torch.ones(1)]).step(),
    "imports": lambda: importlib.reload(importlib.import_module("this")),
}


# Inference mode is also another grad mode; and where Python's modules are gone, what else is done may import them anew.
SEPARATE = sorted(CHANGES.keys() - {"inference mode", "Python's loaded modules"})


def make_cases(rng):
    for _ in range(2):
        yield Case({"x": rng.leaf(2)}, lambda _: look(), fresh=True)


def look():
    """Values that depend on nearly all global state of torch, Python and numpy."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout(0.5), nn.ReLU6())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    out = net(torch.ones(4, 2))
    out.sum().backward()
    optimizer.step()
    return {
        "out": out,
        "product": torch.ones(2, 2) @ torch.ones(2, 2),
        "weight": net[0].weight,
        "gradient": net[0].weight.grad,
        "text": repr(torch.tensor([1 / 3])) + str(np.array([1 / 3])),
        "random": [random.random(), float(np.random.rand()), torch.rand(2)],
        "python": [
            sum([1, 2]),
            len(list(zip([1], [2], strict=True))),
            os.environ.get("COURSE_TEST"),
            F.relu(-torch.ones(1)),
        ],
        "flags": [out.requires_grad, out.is_inference(), torch.is_autocast_enabled("cpu"), gc.isenabled()],
    }


def observe(change=lambda: None):
    return observe_all(make_cases, lambda x: [change()].clear(), 0, 10.0, None)


def changed_by(change):
    return sorted({name for case in observe(change) for name in case["world"]})


@pytest.fixture(scope="module")
def fresh():
    """What an honest answer does before any other of this file has run."""
    return observe()


@pytest.fixture(autouse=True)
def _nothing_is_kept():
    yield
    KEPT.clear()


@pytest.mark.parametrize(
    ("name", "change"), [(name, change) for name, changes in CHANGES.items() for change in changes]
)
def test_what_is_changed_for_everyone_is_noticed_and_told_and_put_back(name, change, fresh, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = str(judge("probe", observe(change), fresh, []))
    assert f"your function changed {name} and did not undo that" in told
    assert observe() == fresh
    assert changed_by(change) == [name], "each time"


@pytest.mark.parametrize("name", TOGETHER)
def test_what_changes_much_is_put_back_as_a_whole(name, fresh):
    change, names = TOGETHER[name]
    assert changed_by(change) == names
    assert observe() == fresh


@pytest.mark.parametrize("ending", [ValueError, SystemExit, KeyboardInterrupt])
def test_however_an_answer_ends_all_is_put_back(ending, fresh):
    names = sorted({*SEPARATE} - {"Python's built-in functions"})  # without these not much works

    def change():
        for name in names:
            CHANGES[name][0]()
        raise ending

    assert observe() == fresh  # now all is imported
    with pytest.raises(KeyboardInterrupt) if ending is KeyboardInterrupt else contextlib.nullcontext():
        assert changed_by(change) == names
    assert observe() == fresh


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_several_changes_are_all_noticed_and_put_back(data):
    names = data.draw(st.lists(st.sampled_from(SEPARATE), unique=True, max_size=6))
    changes = [data.draw(st.sampled_from(CHANGES[name])) for name in names]

    def change():
        for each in changes:
            each()

    honest = observe()
    assert changed_by(change) == sorted(names)
    assert observe() == honest


@pytest.mark.parametrize("name", BY_THE_WAY)
def test_what_honest_answers_change_by_the_way_is_put_back_without_a_word(name, fresh):
    def numbers():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), warnings.filters[:]

    before = numbers()
    assert changed_by(BY_THE_WAY[name]) == []
    assert numbers() == before
    assert observe() == fresh


def writes_into_the_table_of_all(module, kind):
    everywhere = getattr(modules, f"_global_{kind}")
    everywhere.update(getattr(module, f"_{kind}"))
    return dict(everywhere)


def test_a_hook_for_all_modules_is_noticed_also_where_the_case_has_some_itself():
    outcome = find("hooks_in_order").check(writes_into_the_table_of_all, 0)
    assert "changed hooks on all modules and did not undo that" in str(outcome)
