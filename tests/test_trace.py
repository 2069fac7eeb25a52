"""trace.py: one call as a timeline, in torch's own order, and nothing changed by watching."""

import contextlib
import functools
import warnings

import pytest
import torch
from hook_nets import Pencil, global_hooks_checked
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.hooks.inventory import count_hooks
from course_utils.hooks.trace import go_backward, trace, tracing


@pytest.fixture(autouse=True)
def _clean_global_hooks(monkeypatch):
    with global_hooks_checked(monkeypatch, None):
        yield


def test_a_trace_shows_all_hooks_in_torchs_order():
    model = Pencil()

    def spy(*args):
        return None

    kinds = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(getattr(model.fc2, f"register_{kind}")(spy))
            stack.enter_context(getattr(torch_module, f"register_module_{kind}")(spy))
        timeline = trace(model, torch.ones(1, 3, requires_grad=True))
    fc2 = [(kind, scope) for kind, module, scope, _ in timeline.order() if module == "fc2"]
    assert fc2 == [
        ("forward pre-hook", "global"),
        ("forward pre-hook", "local"),
        ("forward", ""),
        ("returns", ""),
        ("forward hook", "global"),
        ("forward hook", "local"),
        ("full backward pre-hook", "global"),
        ("full backward pre-hook", "local"),
        ("backward", ""),
        ("full backward hook", "global"),
        ("full backward hook", "local"),
    ]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert count_hooks(model).total() == 0


def test_the_table_is_plain_and_deterministic():
    model = Pencil(inplace=True)

    def double(module, args, output):
        return 2 * output

    with model.fc2.register_forward_hook(double):
        timeline = trace(model, torch.ones(1, 3))
    assert (
        repr(timeline)
        == """\
    what            module  hook          sees
 1  forward         Pencil                ((1, 3),)
 2    forward       fc1                   ((1, 3),)
 3    returns       fc1                   (1, 4)
 4    forward       relu                  ((1, 4),)
 5    returns       relu                  (1, 4)
 6    forward       fc2                   ((1, 4),)
 7    returns       fc2                   (1, 1)
 8    forward hook  fc2     local double  (((1, 4),), (1, 1)) -> (1, 1)
 9  returns         Pencil                (1, 1)
10  backward        Pencil                (1, 1)
11    backward      fc2                   (1, 1)
12    backward      relu                  (1, 4)
13    backward      fc1                   (1, 4)"""
    )


def test_a_trace_compares_a_hand_written_call():
    class Mini(Pencil):
        def __call__(self, *args):
            for hook in self._forward_hooks.values():  # wrong: a forward hook before forward
                hook(self, args, None)
            return self.forward(*args)

    orders = []
    for model in (Pencil(), Mini()):
        with model.register_forward_hook(lambda *args: None):
            orders.append(trace(model, torch.ones(1, 3)).order("forward", "forward hook"))
    assert orders[0][-1] == orders[1][0] == ("forward hook", "", "local", "<lambda>")


def test_options_of_wrapped_hooks_stay_and_everything_is_put_back():
    model, seen, handles = Pencil(), [], []

    def spy(*args, tag=""):
        seen.append(len(args))

    model.fc1.register_forward_hook(spy, with_kwargs=True)
    model.fc1.register_forward_hook(functools.partial(spy, tag="p"), prepend=True)
    model.relu.forward = torch.relu
    model.fc1.weight.register_hook(lambda grad: None)  # of no module: it runs, and is no line of the table
    before = dict(model.fc1._forward_hooks)
    timeline = trace(model, torch.ones(1, 3))
    assert seen == [3, 4]
    assert [hook for *_, hook in timeline.order("forward hook")] == ["spy", "spy"]
    assert list(model.fc1._forward_hooks.items()) == list(before.items())
    assert "forward" not in vars(model)
    assert model.relu.forward is torch.relu
    handles.append(model.fc2.register_forward_hook(lambda *args: handles[0].remove()))
    assert len(trace(model, torch.ones(1, 3)).order("forward hook")) == 3
    assert count_hooks(model.fc2).total() == 0, "a hook that removed itself came back"


def test_tracing_keeps_the_timeline_when_forward_raises():
    model = Pencil()
    model.fc1.register_forward_hook(lambda *args: None, always_call=True)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), tracing(model) as timeline:
        model(torch.ones(1, 5))
    assert [event.kind for event in timeline.events] == ["forward", "forward", "raises", "forward hook", "raises"]
    assert timeline.events[2].sees == "RuntimeError"


def test_a_legacy_hook_and_a_module_outside_are_named():
    model = Pencil()
    with (
        model.fc2.register_backward_hook(lambda *args: None),
        torch_module.register_module_forward_pre_hook(lambda *args: None),
        warnings.catch_warnings(),
        tracing(model) as timeline,
    ):
        warnings.simplefilter("ignore", FutureWarning)
        nn.L1Loss()(model(torch.ones(1, 3)), torch.zeros(1, 1)).backward()
    model.zero_grad()
    assert ("legacy backward hook", "fc2", "local", "<lambda>") in timeline.order()
    assert ("forward pre-hook", "(L1Loss, not in the model)", "global", "<lambda>") in timeline.order()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_without_a_graph_the_trace_says_why_there_is_no_backward(mode):
    with mode():
        timeline = trace(Pencil().requires_grad_(False), torch.ones(1, 3))
    assert repr(timeline).splitlines()[-1].startswith("No backward pass through Pencil: ")
    assert not timeline.order("backward")


def test_a_trace_of_kwargs_and_structures_without_backward():
    class Net(nn.Module):
        def forward(self, x, *, scale):
            return {"out": x * scale, "n": 3}

    timeline = trace(Net(), torch.ones(2), scale=2.0, backward=False)
    assert [event.sees for event in timeline.events] == [((2,), {"scale": "float"}), {"out": (2,), "n": "int"}]
    assert timeline.note == ""
    x = torch.ones(2, requires_grad=True)
    assert [kind for kind, *_ in trace(Net(), x, scale=2.0).order()] == ["forward", "returns", "backward"]
    assert x.grad is None


def test_after_the_block_nothing_is_written_and_hooks_work_on():
    model, kept = Pencil(), []

    def keep(module, args, output):
        kept.append(output)
        return output * 2

    with model.fc2.register_forward_hook(keep), tracing(model) as timeline:
        traced = next(iter(model.fc2._forward_hooks.values()))
        output = model(torch.ones(1, 3))
    before = list(timeline.events)
    output.backward()
    assert traced(model.fc2, (), torch.ones(1)).item() == 2  # whoever kept it can still call it
    assert timeline.events == before
    assert len(before) == 9


def test_going_backward_leaves_no_grad_also_on_leaves_and_complex_numbers():
    leaf, number = torch.ones(2, requires_grad=True), torch.ones(1, dtype=torch.complex64, requires_grad=True)
    seen = []
    leaf.register_hook(lambda grad: seen.append(grad.tolist()))
    number.register_hook(lambda grad: seen.append(grad.tolist()))
    assert go_backward({"a": leaf, "b": [number * 3, "text"]})
    assert sorted(map(str, seen)) == ["[(3+0j)]", "[1.0, 1.0]"]
    assert leaf.grad is number.grad is None
    with torch.no_grad():
        assert not go_backward(leaf)
