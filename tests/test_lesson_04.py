"""What lesson 04 teaches, found by a second method, and that its committed notebook shows just this."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import warnings

import pytest
import torch
from exercise_keys import outcome_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lesson_pages import LessonPage, small_net
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

from course_utils.exercises.outcome import Stage
from course_utils.hooks.call import read_parts
from course_utils.hooks.inventory import count_hooks, no_hooks_left
from course_utils.hooks.trace import trace
from course_utils.lessons import lesson_04, torch_steps
from course_utils.lessons.lesson_04 import STEPS, MiniModule, MiniSteps, global_hooks, plug_in
from course_utils.lessons.torch_steps import TorchSteps

PAGE = LessonPage("04_inside_call")
shows = PAGE.shows
KINDS = ("forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook")


@pytest.fixture
def x():
    return torch.ones(1, 3, requires_grad=True)


@pytest.fixture(autouse=True)
def _leaves_no_hook():
    with no_hooks_left(nn.Identity()):
        yield
    assert torch_module._global_is_full_backward_hook is None, "torch remembers a global backward hook"


# --- C1: the parts, the fast path -------------------------------------------------------------------------------------


def test_the_parts_of_the_installed_torch_are_those_that_the_lesson_lists():
    parts = {part.name: part for part in read_parts()}
    assert shows(*[f"{part.name}: {part.does}" for part in parts.values()])
    source = parts["forward pre-hooks"].source  # what the lesson points at
    for words in ("*_global_forward_pre_hooks.items()", "*self._forward_pre_hooks.items()", "(args_result,)"):
        assert words in source
    assert "args_result is not None" in source
    assert shows("brackets run", nn.Module.__call__.__name__)


def functions_run(call) -> list[str]:
    """The Python functions of torch and of this file that run in `call()`, found by the interpreter's profiler."""
    names = []

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename in (torch_module.__file__, __file__):
            names.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return [name for name in names if name not in ("<lambda>", "__getattr__")]


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x


def test_the_fast_path_runs_nothing_but_forward(x):
    layer = Twice()
    assert functions_run(lambda: layer(x)) == ["_wrapped_call_impl", "_call_impl", "forward"]
    handle = layer.register_forward_hook(lambda *_: None)
    assert functions_run(lambda: layer(x)) == ["_wrapped_call_impl", "_call_impl", "inner", "forward"]
    handle.remove()
    assert functions_run(lambda: layer(x)) == ["_wrapped_call_impl", "_call_impl", "forward"]


def test_a_local_hook_takes_one_module_off_the_fast_path_and_a_global_one_all(x):
    net = small_net()
    net.fc1.register_forward_hook(lambda *_: None)
    assert functions_run(lambda: net(x)).count("inner") == 1
    with torch_module.register_module_forward_hook(lambda *_: None):
        assert functions_run(lambda: small_net()(x)).count("inner") == 4
    fast, slow = "dispatch, choose forward, fast path", "dispatch, choose forward, forward, forward hooks, return"
    assert shows(f"net: {fast} fc1: {fast} relu: {fast} fc2: {fast}")
    assert shows(f"net: {fast} fc1: {slow} relu: {fast} fc2: {fast}")
    assert shows(f"net: {slow} fc1: {slow} relu: {slow} fc2: {slow}")


# --- C2: forward, directly --------------------------------------------------------------------------------------------


def test_forward_directly_skips_the_modules_own_hooks(x):
    net, fired = small_net(), []
    net.register_forward_hook(lambda *_: fired.append("net"))
    net.fc1.register_forward_hook(lambda *_: fired.append("fc1"))
    assert torch.equal(net(x), net.forward(x))
    assert fired == ["fc1", "net", "fc1"]
    lines = ["net(x):", "the hook of fc1 fires", "the hook of net fires", "net.forward(x):", "the hook of fc1 fires"]
    assert shows(*lines, "Predict:")


# --- C3: the order of everything --------------------------------------------------------------------------------------


def note_all(fired, module, name):
    for kind in KINDS:
        getattr(module, f"register_{kind}")(lambda *_, kind=kind: fired.append((name, kind.replace("_", " "))))


def words(kind: str) -> str:
    return kind.replace("pre hook", "pre-hook")


def test_the_order_of_everything_in_one_layer(x):
    layer, fired = small_net().fc1, []
    note_all(fired, layer, "local")
    notes = {kind: lambda *_, kind=kind: fired.append(("global", kind.replace("_", " "))) for kind in KINDS}
    with global_hooks(**notes):
        output = layer(x)
        forward = list(fired)
        output.sum().backward()
    assert forward == [(where, kind) for kind in ("forward pre hook", "forward hook") for where in ("global", "local")]
    assert fired[4:] == [
        (where, kind) for kind in ("full backward pre hook", "full backward hook") for where in ("global", "local")
    ]
    shown = re.findall(r"^ *\d+ +(.+?) +Linear +(global|local) look", PAGE.printed, re.MULTILINE)
    assert [(where, kind) for kind, where in shown] == [(where, words(kind)) for where, kind in fired]


def test_hooks_of_a_network_nest_forward_and_backward(x):
    net, fired = small_net(), []
    for name, module in (("net", net), ("fc1", net.fc1), ("fc2", net.fc2)):
        note_all(fired, module, name)
    net(x).sum().backward()
    lines = [f"{name}: {words(kind)}" for name, kind in fired]
    assert shows("forward:", *lines[:6], "backward:", *lines[6:])
    assert x.grad.tolist() == [[22, 26, 30]]  # as the text says, the gradient that net's full hook waits for


# --- always_call, views, legacy ---------------------------------------------------------------------------------------


def test_always_called_hooks_run_when_forward_raises(x):
    layer, fired = Twice(), []
    layer.forward = lambda x: 1 / 0
    layer.register_forward_hook(lambda *_: fired.append("plain"))
    layer.register_forward_hook(lambda module, args, output: fired.append(output), always_call=True)
    with pytest.raises(ZeroDivisionError):
        layer(x)
    assert fired == [None]
    assert shows("always_call: None", "caught: forward gave up")


def test_a_full_backward_hook_makes_views(x):
    given = []
    layer = Twice()
    layer.register_forward_pre_hook(lambda module, args: given.append(args[0]))
    layer.forward = lambda inner: given.append(inner) or 2 * inner
    layer.register_full_backward_hook(lambda *_: None)
    output = layer(x)
    before, inside = given
    assert before is x
    assert inside is not x
    assert inside._base is x
    assert output._is_view()
    assert shows("x itself: True same memory: True no node", "output: MulBackward0")
    assert shows("x itself: False same memory: True BackwardHookFunctionBackward", "output: BackwardHookFunction")
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        output.add_(1)
    output.clone().add_(1)
    assert shows("RuntimeError: Output 0 of BackwardHookFunction is a view and is being modified inplace")


def test_entries_of_grad_input(x):
    class Four(nn.Module):
        def forward(self, x, factor, shift, *, bias):
            return x * factor + shift + bias

    layer, seen = Four(), []
    layer.register_full_backward_hook(lambda module, into, out: seen.extend(into))
    layer(x, 3, torch.ones(1, 3), bias=torch.ones(1, 3, requires_grad=True)).sum().backward()
    first, number, constant = seen
    assert (first.tolist(), number, constant.tolist()) == ([[3, 3, 3]], None, [[0, 0, 0]])
    assert shows("tensor([[3., 3., 3.]]) None tensor([[0., 0., 0.]])")


def test_a_dict_gets_no_full_backward_hook(x):
    layer, fired = Twice(), []
    layer.forward = lambda x: {"twice": 2 * x}
    layer.register_full_backward_hook(lambda *_: fired.append("fired"))
    with pytest.warns(UserWarning, match="module output should be a Tensor or a tuple of Tensors"):
        layer(x)["twice"].sum().backward()
    assert fired == []
    assert shows("warning: For backward hooks to be called, module output should be a Tensor or a tuple of Tensors")


@pytest.mark.parametrize(("register", "seen"), [("register_backward_hook", 3), ("register_full_backward_hook", 6)])
def test_legacy_hooks_see_the_last_operation(x, register, seen):
    layer, found = Twice(), []
    layer.forward = lambda x: (2 * x) * 3
    getattr(layer, register)(lambda module, into, out: found.append(into[0].tolist()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = layer(x)
    output.sum().backward()
    assert found == [[[seen] * 3]]
    node = type(output.grad_fn).__name__
    assert shows(
        f"{register}: warnings: {len(caught)}, the output's node is {node}", f"the hook sees {[[seen * 1.0] * 3]}"
    )


# --- MiniModule against nn.Module -------------------------------------------------------------------------------------


def network(base):
    class Layer(base):
        def __init__(self, factor):
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(float(factor)))

        def forward(self, x):
            return x * self.factor

    class Network(base):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(2), Layer(3)

        def forward(self, x):
            return self.second(self.first(x))

    return Network()


EFFECTS = {
    "forward_pre_hook": lambda args: (args[0] + 1,),
    "forward_hook": lambda args, output: output * 2,
    "full_backward_pre_hook": lambda out: (out[0] * 5,),
    "full_backward_hook": lambda into, out: tuple(None if each is None else each * 7 for each in into),
}
PLACES = ("", "first", "second", "global")
HOOKS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(PLACES), st.booleans(), st.booleans()), max_size=8)


def play(base, hooks, fails):
    """One call and backward with the hooks (kind, place, changes something, always_call): all that can be seen."""
    net, seen = network(base), []
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
            if place == "global":
                register = getattr(torch_module, f"register_module_{kind}")
            else:
                register = getattr(net.get_submodule(place), f"register_{kind}")
            stack.enter_context(register(hook, **options))
        if fails:
            net.second.forward = lambda x: 1 / 0
            with pytest.raises(ZeroDivisionError):
                net(x)
            return seen, None, None
        order = trace(net, x).order()
        output = net(x)
        output.sum().backward()
    gradients = [x.grad.tolist(), net.first.factor.grad.item(), net.second.factor.grad.item()]
    return seen, order, (output.tolist(), gradients, type(output.grad_fn).__name__)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(HOOKS, st.booleans())
def test_mini_module_does_what_torch_does(hooks, fails):
    expected = play(nn.Module, hooks, fails)
    assert play(MiniModule.reference, hooks, fails) == expected
    nested = next(each for each in MiniModule.accepted if each.__doc__ is None)
    assert play(nested, hooks, fails) == expected


def test_mini_module_has_forty_lines():
    count = 0
    for exercise in (*STEPS, MiniModule):
        for node in ast.walk(ast.parse(exercise.source)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                count += 1 + body[-1].end_lineno - body[0].lineno + 1
    assert 35 <= count <= 50


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

    class Own(MiniSteps):
        def __call__(self, *args):
            return "my own call"

    Own.__name__ = "MiniModule"
    assert plug_in(Own)()() == "my own call"
    assert "MiniModule: yours" in capsys.readouterr().out


def test_plug_in_refuses_other_things():
    with pytest.raises(ValueError, match="forward_between_nodes is no step of a call; the steps are takes_fast_path"):
        plug_in(lesson_04.forward_between_nodes)
    with pytest.raises(ValueError, match="7 is no step"):
        plug_in(7)


def test_mini_steps_lead_nowhere_else():
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
    with torch_module.register_module_backward_hook(print):  # torch refuses it if it remembers a global full one
        pass
    torch_module._global_is_full_backward_hook = None


# --- The exercises: wrong answers beyond the declared mistakes, and odd right ones ------------------------------------


def add_hooks_too_early(module, full_hooks, pre_hooks, args):
    output = module.forward(*args)
    output.register_hook(lambda gradient: pre_hooks[0](module, (gradient,)))
    args[0].register_hook(lambda gradient: full_hooks[0](module, (gradient,), None))
    return output


class HandleThatForgets:
    def __init__(self, table):
        self.id = 1

    def remove(self):
        pass


class CallThatForgets(MiniSteps):
    def __call__(self, *args):
        for hook in self.hooks_in_order("forward_pre_hooks").values():
            hook(self, args)
        return self.forward(*args)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("takes_fast_path", lambda module: True),
        ("hooks_in_order", lambda module, kind: list(getattr(module, f"_{kind}").values())),
        ("run_pre_hooks", lambda module, hooks, args: [hook(module, args) for hook in hooks.values()]),
        ("run_forward_hooks", lambda module, hooks, args, output, started: output),
        ("run_always_called", lambda module, hooks, started, args, output: [hook(args) for hook in hooks.values()]),
        ("pass_through", lambda look, *tensors: [each.register_hook(look) for each in tensors] and tensors),
        ("forward_between_nodes", add_hooks_too_early),
        ("Handle", HandleThatForgets),
        ("MiniModule", CallThatForgets),
    ],
)
def test_other_wrong_answers_fail_with_a_sentence(name, answer):
    outcome = outcome_of(name, answer)
    assert outcome.stage not in (Stage.PASSED, Stage.NOT_ATTEMPTED)
    assert len(outcome.sentence) > 30


def test_an_answer_that_uses_torchs_own_handle_is_told_what_was_expected():
    class Handle(RemovableHandle):
        def __init__(self, table):
            super().__init__(table)

    assert "expected a context manager" in outcome_of("Handle", Handle).sentence


@pytest.mark.parametrize("name", ["run_pre_hooks", "run_forward_hooks", "run_always_called"])
def test_torchs_own_steps_do_what_the_exercises_ask_for(name):
    assert outcome_of(name, getattr(TorchSteps, name)).passed


@pytest.mark.parametrize("name", ["takes_fast_path", "hooks_in_order"])
def test_torchs_own_steps_read_the_tables_that_the_exercises_ask_for(name):
    def answer(module, *arguments):
        mine = TorchSteps()
        for kind in torch_steps.KINDS:
            mine.__dict__[f"_{kind}"] = getattr(module, f"_{kind}")
        return getattr(mine, name)(*arguments)

    assert outcome_of(name, answer).passed


def test_torchs_own_steps_leave_the_tables_of_global_hooks_alone():
    before = {name: value for name, value in vars(torch_module).items() if name.startswith("_global_")}
    steps = TorchSteps()
    with torch_module.register_module_forward_hook(print):
        assert not steps.takes_fast_path()
        assert list(steps.hooks_in_order("forward_hooks").values()) == [print]
        assert steps.run_pre_hooks({1: lambda _, args: args[0] + 1}, (1,)) == (2,), "the global hook does not run here"
    assert {name: value for name, value in vars(torch_module).items() if name.startswith("_global_")} == before
