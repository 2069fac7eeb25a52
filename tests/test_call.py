"""call.py: the parts of `__call__` in the installed torch, and the life of one call."""

import contextlib
import inspect
import itertools
import re
import sys
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.hooks.call import HOOK_KINDS, life_of_a_call, read_parts, show_values
from course_utils.hooks.inventory import count_hooks, no_hooks_left
from course_utils.hooks.trace import trace
from course_utils.root import CourseError
from course_utils.vision.toys import SmallNet

ONES, FAST = torch.ones(1, 3), ["dispatch", "choose forward", "fast path"]


@pytest.fixture(autouse=True)
def _as_after_a_global_hook_long_removed(monkeypatch):
    """Torch remembers of the first global backward hook for ever that it was a full one."""
    monkeypatch.setattr(torch_module, "_global_is_full_backward_hook", True)
    yield
    assert count_hooks(nn.Identity()).total() == 0
    assert torch_module._global_is_full_backward_hook is True


PARTS = [  # in the order in which they run: what stands in the source, and what does not
    ("dispatch", ["_compiled_call_impl", "_call_impl"], []),
    ("choose forward", ["self.forward", "="], ["if not"]),
    ("fast path", ["_global_forward_pre_hooks", "return forward_call"], ["result"]),
    ("collect backward pre-hooks", ["_get_backward_pre_hooks()"], ["_get_backward_hooks()"]),
    ("collect backward hooks", ["_get_backward_hooks()"], ["_get_backward_pre_hooks()"]),
    ("sort backward hooks", ["_global_is_full_backward_hook is True", "non_full_backward_hooks"], []),
    ("forward pre-hooks", ["_forward_pre_hooks_with_kwargs", "args = args_result"], ["BackwardHook"]),
    ("wrap inputs", ["BackwardHook(", "setup_input_hook"], ["forward_call"]),
    ("forward", ["= forward_call("], ["return"]),
    ("forward hooks", ["_forward_hooks_always_called", "result = hook_result"], ["except"]),
    ("wrap outputs", ["setup_output_hook"], ["grad_fn"]),
    ("legacy backward hooks", ["grad_fn.register_hook"], ["setup_output_hook"]),
    ("return", ["return result"], ["("]),
    ("after an exception", ["except Exception", "always_call", "raise"], ["forward_call"]),
    ("insert a node", ["BackwardHookFunction.apply"], ["def setup_output_hook"]),
    ("backward pre-hooks", ["def setup_output_hook", "user_pre_hooks"], []),
    ("full backward hooks", ["def _set_user_hook", "for hook in self.user_hooks"], ["user_pre_hooks"]),
]


def test_each_part_of_the_installed_torch_is_the_right_piece_of_source():
    parts = read_parts()
    assert [part.name for part in parts] == [name for name, _, _ in PARTS]
    for part, (_, words, not_words) in zip(parts, PARTS, strict=True):
        assert all(word in part.source for word in words), part.source
        assert not any(word in part.source for word in not_words), part.source
        owner = nn.Module if part.function.startswith("Module.") else torch.utils.hooks.BackwardHook
        lines = inspect.getsource(sys.modules[owner.__module__]).splitlines()[part.first - 1 : part.last]
        assert [line.strip() for line in lines] == [line.strip() for line in part.source.splitlines()]
    called = [part for part in parts if part.function == "Module._call_impl"]
    assert all(earlier.last < later.first for earlier, later in itertools.pairwise(called))


class Rewritten(nn.Module):
    """A release that renamed its variables, flattened `inner` and moved the fast path down."""

    def _call_impl(self, *arguments, **options):  # noqa: C901  as complex as torch's own
        run = self.forward
        if self._backward_pre_hooks:
            before = self._get_backward_pre_hooks()
        if self._backward_hooks:
            full, legacy = self._get_backward_hooks()
        if not self._forward_hooks:
            return run(*arguments, **options)
        try:
            if self._forward_pre_hooks:
                for hook in torch_module._global_forward_pre_hooks.values():
                    hook(self, arguments)
            if full or before:
                arguments = full.setup_input_hook(arguments)
            value = run(*arguments, **options)
            if self._forward_hooks:
                for hook in torch_module._global_forward_hooks.values():
                    hook(self, arguments, value)
            if full:
                value = full.setup_output_hook(value)
            if legacy:
                value.grad_fn.register_hook(legacy[0])
            return value
        except Exception:
            for key in self._forward_hooks_always_called:
                self._forward_hooks[key](self, arguments)
            raise


def test_parts_are_found_by_structure_and_a_missing_one_is_named_with_the_release():
    parts = {part.name: part for part in read_parts(Rewritten)}
    assert list(parts) == [name for name, _, _ in PARTS]
    assert parts["forward"].source == "value = run(*arguments, **options)\n"
    assert parts["return"].source == "return value\n"
    assert parts["fast path"].first > parts["collect backward hooks"].last
    with pytest.raises(CourseError, match=r"'choose forward' was not found in Sequential\.forward of torch \d"):
        read_parts(type("Bare", (nn.Module,), {"_call_impl": nn.Sequential.forward}))


def fired_in(moments):
    return [(moment.hook, moment.module) for moment in moments if moment.what == "hook"]


def parts_of(moments, module, taken=True):
    return [m.part.name for m in moments if m.what == "part" and m.module == module and m.taken == taken]


def test_without_hooks_a_call_takes_the_fast_path():
    moments = life_of_a_call(SmallNet(), ONES)
    assert parts_of(moments, "fc1") == FAST
    assert all(moment.taken for moment in moments)
    gradients = {"fc2": "[[1]]", "": "[[1]]", "relu": "[[1, 2, 3, 4]]", "fc1": "[[1, 0, 3, 0]]"}
    assert [(m.module, m.values) for m in moments if m.what == "gradient"] == [*gradients.items()]
    assert not [m for m in life_of_a_call(SmallNet(), ONES, backward=False) if m.phase == "backward"]
    frozen = life_of_a_call(SmallNet().requires_grad_(False), ONES)
    assert frozen[-1].sentence == "There is no backward pass: the output has no graph."


def test_a_hook_on_one_module_takes_only_that_module_off_the_fast_path():
    moments = life_of_a_call(SmallNet(), ONES, [("forward hook", "fc1")])
    assert parts_of(moments, "relu") == FAST
    assert parts_of(moments, "fc1", taken=False)[0] == "fast path"
    steps = {m.part.name: m for m in moments if m.module == "fc1" and m.what == "part"}
    hooks, wrap = steps["forward hooks"], steps["wrap inputs"]
    assert steps["forward"].values == "([[1, 1, 1]],)"
    assert hooks.values == steps["return"].values == "[[7, -13, 27, -29]]"
    assert hooks.sentence == f"fc1: {hooks.part.does}"
    assert wrap.sentence == f"fc1: no, its condition does not hold. ({wrap.part.does})"
    (fired,) = [moment for moment in moments if moment.what == "hook"]
    assert (fired.module, fired.part, fired.fired) == ("fc1", hooks.part, (fired.hook,))
    assert fired.values == "(([[1, 1, 1]],), [[7, -13, 27, -29]])"
    assert fired.sentence == "fc1: forward hook fires: it sees ([[1, 1, 1]],) and [[7, -13, 27, -29]]."


def test_all_kinds_fire_in_the_order_that_trace_reports_and_lines_lie_in_their_parts():
    kinds = ["forward pre-hook", "forward hook", "full backward pre-hook", "full backward hook"]
    chosen = [(kind, place) for place in ("relu", "global") for kind in reversed(kinds)]
    model, x = SmallNet(), ONES.clone().requires_grad_()
    with no_hooks_left(model):
        moments = life_of_a_call(model, x, chosen)
    assert all(moment.part.first <= moment.line <= moment.part.last for moment in moments if moment.part)
    with contextlib.ExitStack() as stack:
        for name in (f"register_{kind.replace(' ', '_').replace('-', '_')}" for kind in kinds):
            stack.enter_context(getattr(model.relu, name)(lambda *seen: None))
            stack.enter_context(getattr(torch_module, name.replace("r_", "r_module_", 1))(lambda *seen: None))
        order = trace(model, x).order()
    hooks = [(kind, module, "global" if scope == "global" else module) for kind, module, scope, hook in order if hook]
    assert fired_in(moments) == [(f"{place}: {kind}", module) for kind, module, place in hooks]
    assert len(hooks) == 4 * 4 + 4
    assert x.grad is None


def test_backward_hooks_are_shown_beside_the_source_that_runs_them():
    x = ONES.clone().requires_grad_()
    moments = life_of_a_call(SmallNet(), x, [("full backward hook", "fc1"), ("full backward pre-hook", "fc1")])
    assert [(m.hook, m.phase, m.part.name, m.values) for m in moments if m.what == "hook"] == [
        ("fc1: full backward pre-hook", "backward", "backward pre-hooks", "(([[1, 0, 3, 0]],),)"),
        ("fc1: full backward hook", "backward", "full backward hooks", "(([[22, 26, 30]],), ([[1, 0, 3, 0]],))"),
    ]
    assert {"wrap inputs", "wrap outputs", "sort backward hooks"} <= set(parts_of(moments, "fc1"))
    moments = life_of_a_call(SmallNet(), ONES, [("full backward hook", "fc1")])
    (warning,) = [moment for moment in moments if moment.what == "warning"]
    assert warning.sentence.startswith("UserWarning: Full backward hook is firing")


def test_legacy_hooks_and_toggling_between_legacy_and_full():
    model = SmallNet()
    for kind in ("legacy backward hook", "full backward hook", "legacy backward hook"):
        for place in ("fc1", "global"):
            assert fired_in(life_of_a_call(model, ONES, [(kind, place)]))
    assert model.fc1._is_full_backward_hook is None
    with model.fc1.register_full_backward_hook(lambda *seen: None), pytest.raises(RuntimeError, match="both"):
        life_of_a_call(model, ONES, [("legacy backward hook", "fc1")])  # while yours is there, torch refuses the other
    assert "legacy backward hooks" in parts_of(life_of_a_call(model, ONES, [("legacy backward hook", "relu")]), "relu")


def test_always_called_hooks_run_after_an_exception():
    chosen = [("forward hook", "fc1"), ("always-called forward hook", "fc1"), ("always-called forward hook", "global")]
    with no_hooks_left(model := SmallNet()):
        moments = life_of_a_call(model, torch.ones(1, 5), chosen)
    kind = "always-called forward hook"
    assert fired_in(moments) == [(f"global: {kind}", "fc1"), (f"fc1: {kind}", "fc1"), (f"global: {kind}", "")]
    assert {m.part.name for m in moments if m.what == "hook"} == {"after an exception"}
    assert moments[-1].what == "raises"
    assert re.match("RuntimeError leaves the call: .*shapes cannot be multiplied", moments[-1].sentence)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_nothing_changes_and_a_trace_function_is_put_back(error):
    model, before, debugger = SmallNet(), sys.gettrace(), lambda *seen: None
    if error:
        model.relu.forward = mock.Mock(side_effect=error)
    sys.settrace(debugger)
    try:
        with pytest.raises(error) if error else contextlib.nullcontext():
            life_of_a_call(model, (ONES,), [(kind, "global") for kind in HOOK_KINDS[:5]])
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)
    assert count_hooks(model).total() == 0
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert all(module._is_full_backward_hook is None for module in model.modules())


def test_wrong_kinds_and_places():
    for kind, place, words in (("backward", "fc1", "no hook kind 'backward'"), (HOOK_KINDS[0], "fc9", "'fc9' is")):
        with pytest.raises(CourseError, match=words):
            life_of_a_call(SmallNet(), ONES, [(kind, place)])


def test_values_are_short_text():
    assert show_values({"a": [torch.tensor([1.0, -2.5])], "b": True}) == "{'a': [[1, -2.5]], 'b': 'bool'}"
    assert show_values((torch.tensor(3), None, "word", torch.tensor([True]))) == "(3, None, 'str', [1])"
    numbers = torch.arange(9), torch.arange(8).reshape(2, 4), torch.ones(0, 2), torch.ones(9, dtype=torch.complex64)
    assert show_values(numbers) == "(9 numbers from 0 to 8, [[0, 1, 2, 3], [4, 5, 6, 7]], 0 numbers, 9 numbers)"
