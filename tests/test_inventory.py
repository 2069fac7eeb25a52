"""inventory.py: every kind of hook is found, named and counted, and none is left behind unseen."""

import functools
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.hooks.inventory import CALL_KINDS, HooksLeftError, count_hooks, list_hooks, no_hooks_left
from course_utils.vision.toys import SmallNet


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
    assert str(raised.value) == (
        "the block left 5 hooks behind: global forward hook print for all modules, forward hook print on SmallNet, "
        "forward hook print on fc1, forward pre-hook print on fc2, tensor hook print on fc1.bias. Call .remove() on "
        "the handle that registering returned, or use the handle as a context manager."
    )
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
