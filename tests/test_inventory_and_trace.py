"""trace.py: one call as a timeline, changed by nobody's watching; inventory.py: no hook is left behind unseen."""

import functools
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.hooks.inventory import CALL_KINDS, HooksLeftError, count_hooks, list_hooks, no_hooks_left
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


@pytest.fixture(autouse=True)
def _forget_that_a_global_hook_was_full(monkeypatch):
    monkeypatch.setattr(torch_module, "_global_is_full_backward_hook", None)


def ignore(*args):  # `print` will not do everywhere: torch marks some hooks
    return None


def register(kind, scope=""):
    name = f"register_{scope and 'module_'}{kind.replace(' ', '_').replace('-', '_')}"
    return scope + kind, lambda model: getattr(torch_module if scope else model, name)(ignore)


@pytest.mark.parametrize(
    ("kind", "register"),
    [
        *map(register, ("forward pre-hook", "full backward pre-hook", "full backward hook", "state-dict pre-hook")),
        *map(register, ("load-state-dict pre-hook", "load-state-dict post-hook")),
        ("forward hook", lambda m: m[0].register_forward_hook(ignore, always_call=True, with_kwargs=True)),
        ("legacy backward hook", lambda m: m[0].register_backward_hook(ignore)),
        ("state-dict hook", lambda m: m.register_state_dict_post_hook(lambda *args: None)),
        ("tensor hook", lambda m: m[0].weight.register_hook(ignore)),
        ("tensor hook", lambda m: m[0].running_mean.requires_grad_().register_hook(ignore)),
        ("post-accumulate-grad hook", lambda m: m[0].weight.register_post_accumulate_grad_hook(ignore)),
        *(register(kind, "global ") for kind in CALL_KINDS),
        *(register(f"{what} registration hook", "global ") for what in ("buffer", "module", "parameter")),
    ],
)
def test_every_kind_is_counted_and_gone_when_its_handle_is_removed(kind, register):
    model = nn.Sequential(nn.BatchNorm1d(2))
    handle = register(model)
    assert dict(count_hooks(model)) == {kind: 1}
    handle.remove()
    assert count_hooks(model).total() == count_hooks(model)[kind] == 0


def test_every_table_of_the_installed_torch_is_known():
    """What torch keeps in a table of a module, or for all modules, is found when something lies in it."""
    options = ("_with_kwargs", "_always_called")  # tables that say how a hook of another one is called
    for holder, scope in ((nn.Identity(), "local"), (torch_module, "global")):
        tables = {name: table for name, table in vars(holder).items() if "hooks" in name and isinstance(table, dict)}
        assert len(tables) > 7
        for name, table in tables.items():
            if not name.endswith(options):
                with mock.patch.dict(table, {0: ignore}):
                    found = list_hooks(holder if scope == "local" else nn.Identity())
                assert [(hook.scope, hook.table is table, hook.key) for hook in found] == [(scope, True, 0)], name


@pytest.mark.parametrize(("hook", "name"), [(functools.partial(print, "x"), "print"), (nn.ReLU(), "ReLU")])
def test_list_hooks_says_where_and_which(hook, name):
    model = SmallNet()
    model.fc2.register_forward_hook(hook)
    (found,) = list_hooks(model)
    assert (found.kind, found.owner, found.scope, found.name) == ("forward hook", "fc2", "local", name)
    with pytest.raises(TypeError, match=r"nn\.Module or a Tensor, got list"):
        list_hooks([model])


def test_the_guard_names_what_was_left_and_leaves_it_there():
    model, handles = SmallNet(), []
    old = model.fc1.register_forward_hook(print)  # from before: may stay, but not come back in another place

    def forget():
        with no_hooks_left(model):
            old.remove()
            handles.append(torch_module.register_module_forward_hook(print))
            handles.append(model.fc2.register_forward_pre_hook(print))
            model.register_forward_hook(print)
            model.fc1.bias.register_hook(print)
            model.fc1.register_forward_hook(print)

    with pytest.raises(HooksLeftError) as raised:
        forget()
    handles[0].remove()
    left = "global forward hook print for all modules, forward hook print on SmallNet, forward hook print on fc1, "
    left += "forward pre-hook print on fc2, tensor hook print on fc1.bias. "
    assert str(raised.value).startswith(f"the block left 5 hooks behind: {left}Call .remove()")
    assert handles[1].id in model.fc2._forward_pre_hooks


def test_the_guard_is_silent_when_all_is_removed_and_hides_no_other_error():
    model, tensor = SmallNet(), torch.ones(1, requires_grad=True)
    model.register_forward_hook(print)
    with no_hooks_left(model, tensor):
        model.register_forward_hook(print).remove()
    with pytest.raises(ZeroDivisionError), no_hooks_left(model):
        model.register_forward_hook(print) and 1 / 0
    with pytest.raises(HooksLeftError, match="left 1 hook behind: tensor hook"), no_hooks_left(model, tensor):
        tensor.register_hook(print)
