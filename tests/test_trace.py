"""trace.py: one call as a timeline, in torch's own order, and nothing changed by watching."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.hooks.inventory import count_hooks
from course_utils.hooks.trace import go_backward, trace, tracing
from course_utils.vision.toys import SmallNet

ONES = torch.ones(1, 3)
TABLE = """\
    what            module    hook          sees
 1  forward         SmallNet                ((1, 3),)
 2    forward       fc1                     ((1, 3),)
 3    returns       fc1                     (1, 4)
 4    forward       relu                    ((1, 4),)
 5    returns       relu                    (1, 4)
 6    forward       fc2                     ((1, 4),)
 7    returns       fc2                     (1, 1)
 8    forward hook  fc2       local double  (((1, 4),), (1, 1)) -> (1, 1)
 9  returns         SmallNet                (1, 1)
10  backward        SmallNet                (1, 1)
11    backward      fc2                     (1, 1)
12    backward      relu                    (1, 4)
13    backward      fc1                     (1, 4)"""


def test_the_table_is_plain_and_deterministic():
    model = SmallNet()
    model.relu.inplace = True

    def double(module, args, output):
        return 2 * output

    with model.fc2.register_forward_hook(double):
        timeline = trace(model, ONES)
    assert repr(timeline) == TABLE
    assert all(parameter.grad is None for parameter in model.parameters())


def test_options_of_wrapped_hooks_stay_and_everything_is_put_back():
    model, seen, handles = SmallNet(), [], []

    def spy(*args, tag=""):
        seen.append(len(args))

    model.fc1.register_forward_hook(spy, with_kwargs=True)
    model.fc1.register_forward_hook(functools.partial(spy, tag="p"), prepend=True)
    model.relu.forward = torch.relu
    model.fc1.weight.register_hook(lambda grad: None)  # of no module: it runs, and is no line of the table
    before = dict(model.fc1._forward_hooks)
    timeline = trace(model, ONES)
    assert seen == [3, 4]
    assert [hook for *_, hook in timeline.order("forward hook")] == ["spy", "spy"]
    assert list(model.fc1._forward_hooks.items()) == list(before.items())
    assert "forward" not in vars(model)
    assert model.relu.forward is torch.relu
    handles.append(model.fc2.register_forward_hook(lambda *args: handles[0].remove()))
    assert len(trace(model, ONES).order("forward hook")) == 3
    assert count_hooks(model.fc2).total() == 0, "a hook that removed itself came back"


def test_tracing_keeps_the_timeline_when_forward_raises():
    model = SmallNet()
    model.fc1.register_forward_hook(lambda *args: None, always_call=True)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), tracing(model) as timeline:
        model(torch.ones(1, 5))
    seen = [(event.kind, event.depth) for event in timeline.events]
    assert seen == [("forward", 0), ("forward", 1), ("raises", 1), ("forward hook", 1), ("raises", 0)]
    assert timeline.events[2].sees == "RuntimeError"


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_legacy_hook_and_a_module_outside_are_named():
    model, everywhere = SmallNet(), torch_module.register_module_forward_pre_hook(lambda *args: None)
    with everywhere, model.fc2.register_backward_hook(lambda *args: None), tracing(model) as timeline:
        nn.L1Loss()(model(ONES), torch.zeros(1, 1)).backward()
    assert ("legacy backward hook", "fc2", "local", "<lambda>") in timeline.order()
    assert ("forward pre-hook", "(L1Loss, not in the model)", "global", "<lambda>") in timeline.order()


def test_a_trace_of_kwargs_and_structures_without_backward_or_a_graph():
    model = nn.Module()
    model.forward = lambda x, *, scale: {"out": x * scale, "n": 3}
    timeline = trace(model, torch.ones(2), scale=2.0, backward=False)
    assert [event.sees for event in timeline.events] == [((2,), {"scale": "float"}), {"out": (2,), "n": "int"}]
    assert timeline.note == ""
    timeline = trace(SmallNet().requires_grad_(False), ONES)
    assert repr(timeline).splitlines()[-1].startswith("No backward pass through SmallNet: nothing before it requires")
    assert not timeline.order("backward")


def test_after_the_block_nothing_is_written_and_hooks_work_on():
    model = SmallNet()
    with model.fc2.register_forward_hook(lambda module, args, output: output * 2), tracing(model) as timeline:
        (traced,) = model.fc2._forward_hooks.values()
        forward = model.fc1.forward
        output = model(ONES)
    output.backward()
    assert traced(model.fc2, (), torch.ones(1)).item() == 2  # whoever kept it can still call it
    assert count_hooks(forward(ONES)).total() == 0
    assert len(timeline.events) == 9


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
