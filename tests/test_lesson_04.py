"""What lesson 04 teaches, compared with torch itself."""

import ast
import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_exercises import outcome_of
from torch import nn
from torch.nn.modules import module as torch_module

from course_utils.authoring.source import read_source, sources
from course_utils.exercises.cases import Numbers
from course_utils.hooks.call import read_parts
from course_utils.hooks.inventory import count_hooks, no_hooks_left
from course_utils.hooks.trace import trace
from course_utils.lessons import lesson_04
from course_utils.lessons.lesson_04 import MiniModule, MiniSteps, global_hooks, make_net, plug_in
from course_utils.lessons.torch_steps import TorchSteps


@pytest.fixture(autouse=True)
def _leaves_no_hook():
    with no_hooks_left(nn.Identity()):
        yield
    assert torch_module._global_is_full_backward_hook is None, "torch remembers a global backward hook"


EFFECTS = {
    "forward_pre_hook": lambda args: (args[0] + 1,),
    "forward_hook": lambda args, output: output * 2,
    "full_backward_pre_hook": lambda out: (out[0] * 5,),
    "full_backward_hook": lambda into, out: tuple(None if each is None else each * 7 for each in into),
}
PLACES = ("", "first", "second", "global")
HOOKS = st.lists(st.tuples(*map(st.sampled_from, (list(EFFECTS), PLACES)), st.booleans(), st.booleans()), max_size=8)


def play(base, hooks, fails):
    """One call and backward with the hooks (kind, place, changes something, always_call): all that can be seen."""
    net, seen = make_net(base, Numbers(0)), []
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, torch_module, "_global_is_full_backward_hook", None)
        for number, (kind, place, changes, always) in enumerate(hooks):

            def hook(module, *values, kind=kind, changes=changes, number=number):
                seen.append((number, kind, repr(values)))
                if values and values[-1] is not None and changes:  # no output when forward failed
                    return EFFECTS[kind](*values)

            hook.__name__ = f"hook{number}"
            options = {"always_call": always} if kind == "forward_hook" else {}
            owner, name = (torch_module, "module_") if place == "global" else (net.get_submodule(place), "")
            stack.enter_context(getattr(owner, f"register_{name}{kind}")(hook, **options))
        if fails:
            net.second.forward = lambda x: 1 / 0
            with pytest.raises(ZeroDivisionError):
                net(x)
            return seen, None, None
        order = trace(net, x).order()
        output = net(x)
        output.sum().backward()
    gradients = [each.grad.tolist() for each in (x, *net.parameters())]
    return seen, order, (output.tolist(), gradients, type(output.grad_fn).__name__)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(HOOKS, st.booleans())
def test_mini_module_does_what_torch_does(hooks, fails):
    """Its steps are those of `torch_steps`, where the learner has written none."""
    expected = play(nn.Module, hooks, fails)
    assert play(MiniModule.reference, hooks, fails) == expected
    assert play(MiniModule.accepted[0], hooks, fails) == expected


def test_plug_in_takes_what_is_there(capsys):
    def run_pre_hooks(module, hooks, args):
        return ("mine",)

    def takes_fast_path(module): ...

    plugged = plug_in(run_pre_hooks, takes_fast_path, MiniModule)
    lines = capsys.readouterr().out.splitlines()
    assert "run_pre_hooks: yours" in lines
    assert "takes_fast_path: the course's, until yours is there" in lines
    assert "MiniModule: the course's, until yours is there" in lines
    assert plugged().run_pre_hooks({}, ()) == ("mine",)
    assert plugged().takes_fast_path() is True
    own = type("MiniModule", (MiniSteps,), {"__call__": lambda self, *args: "my own call"})
    assert plug_in(own)()() == "my own call"
    assert "MiniModule: yours" in capsys.readouterr().out


def test_what_is_no_step_is_refused():
    with pytest.raises(ValueError, match="forward_between_nodes is no step of a call; the steps are takes_fast_path"):
        plug_in(lesson_04.forward_between_nodes)
    with pytest.raises(ValueError, match="7 is no step"):
        plug_in(7)
    with pytest.raises(NotImplementedError, match="put the steps in order"):
        MiniSteps()(1)


def test_global_hooks_leave_nothing_behind():
    def fail_inside():
        with global_hooks(full_backward_hook=print, forward_hook=print):
            assert count_hooks(nn.Identity()).total() == 2
            raise LookupError

    with pytest.raises(LookupError):
        fail_inside()
    assert count_hooks(nn.Identity()).total() == 0


@pytest.mark.parametrize("name", ["run_forward_hooks", "run_always_called"])
def test_torchs_own_steps_know_which_hooks_have_started(name):
    assert outcome_of(name, getattr(TorchSteps, name)).passed


def test_every_part_of_the_installed_call_is_shown_once():
    cells = [cell.source for cell in read_source(sources()[4]).cells if cell.cell_type == "code"]
    calls = [node for cell in cells for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Call)]
    showing = [call for call in calls if getattr(call.func, "id", "") in ("print_source", "fold_source")]
    shown = [each.value for call in showing for each in call.args]
    assert sorted(shown) == sorted(part.name for part in read_parts())


@pytest.mark.parametrize("first_requires", [True, False])
def test_all_tensors_become_views_if_one_of_them_requires_a_gradient(first_requires):
    received = []

    class Two(nn.Module):
        def forward(self, *given):
            received.extend(given)
            return given[0] + 0, given[1] + 0

    first, second = torch.ones(2, requires_grad=first_requires), torch.ones(2, requires_grad=not first_requires)
    layer = Two()
    with layer.register_full_backward_hook(lambda *_: None):
        results = layer(first, second)
        assert [each._is_view() for each in (*received, *results)] == [True] * 4
        received.clear()
        plain = first.detach(), second.detach()
        layer(*plain)
        assert all(one is other for one, other in zip(received, plain, strict=True))
