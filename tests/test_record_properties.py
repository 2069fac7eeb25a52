"""Recording and tracing are invisible to any model, and what they record is what a calculation by hand gives.

Hypothesis grows random trees of modules. Each tree is run three times from the same random state: bare, recorded, and
by hand, with functions that never work in place.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.hooks.inventory import count_hooks, no_hooks_left
from course_utils.hooks.record import record, tensors_in
from course_utils.hooks.trace import tracing
from course_utils.root import CourseError

WIDTH = 4


class Around(nn.Module):
    """A module around another one, `body`."""

    def __init__(self, body):
        super().__init__()
        self.body = body


class Residual(Around):
    """body(x) + x, added in place."""

    def forward(self, x):
        out = self.body(x)
        out += x
        return out


class Repeat(Around):
    """The same module twice, one after the other."""

    def forward(self, x):
        return self.body(self.body(x))


class Split(nn.Module):
    """A tuple of two tensors and a number."""

    def forward(self, x):
        return torch.sin(x), 3.0, x * 2


class Name(nn.Module):
    """A dict with a nested list."""

    def forward(self, x):
        return {"left": torch.cos(x), "right": [x * 3, "text"]}


class Join(Around):
    """The sum of what the body returns, weighted by its place."""

    def forward(self, x):
        return join(self.body(x))


def join(structure):
    return sum(place * tensor for place, tensor in enumerate(tensors_in(structure), 1))


def linear():
    return nn.Linear(WIDTH, WIDTH)


leaves = st.sampled_from(
    [
        linear,
        lambda: nn.BatchNorm1d(WIDTH),
        lambda: nn.Dropout(0.5),
        nn.Identity,
        nn.Tanh,
        nn.ReLU,
        lambda: nn.Sequential(linear(), nn.ReLU(inplace=True)),
        lambda: nn.Sequential(linear(), nn.BatchNorm1d(WIDTH), nn.ReLU(inplace=True)),
        lambda: nn.Sequential(linear(), nn.Identity(), nn.ReLU(inplace=True)),
        # An in-place operation on a view.
        lambda: nn.Sequential(linear(), nn.Unflatten(1, (2, -1)), nn.ReLU(inplace=True), nn.Flatten(1)),
        lambda: Join(Split()),
        lambda: Join(Name()),
    ]
)


def _grow(children):
    several = st.lists(children, min_size=1, max_size=3)
    residual = several.map(lambda makers: lambda: Residual(nn.Sequential(*[make() for make in makers], linear())))
    return st.one_of(
        several.map(lambda makers: lambda: nn.Sequential(*[make() for make in makers])),
        residual,
        residual.map(lambda make: lambda: nn.Sequential(make(), nn.ReLU(inplace=True))),
        children.map(lambda make: lambda: Repeat(make())),
        children.map(lambda make: lambda: _twice_by_name(make())),
    )


def _twice_by_name(module):
    return nn.Sequential(module, nn.Tanh(), module)


trees = st.recursive(leaves, _grow, max_leaves=6)
modes = st.sampled_from(["train", "eval", "mixed"])
common = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def build(make, mode, frozen, seed):
    """Return a model of the tree in its mode, with some parameters frozen, weights from the seed."""
    torch.manual_seed(seed)
    model = nn.Sequential(make(), linear()).train(mode != "eval")
    if mode == "mixed":
        for index, module in enumerate(model.modules()):
            module.training = index % 2 == 0
    for index, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(frozen == "none" or (frozen == "some" and index % 2 == 0))
    return model


def make_input(wants_gradient):
    return torch.linspace(-1, 1, 3 * WIDTH).reshape(3, WIDTH).sin().requires_grad_(wants_gradient)


def score(output):
    return (output * torch.linspace(-1, 2, output.numel()).reshape(output.shape)).sum()


def run(model, x):
    """Return all that a run leaves behind: output, gradients, buffers, modes, flags and the generator's state."""
    torch.manual_seed(7)
    output = model(x)
    if output.requires_grad:
        score(output).backward()
    return {
        "output": output.detach().clone(),
        "gradients": [p.grad for p in (x, *model.parameters())],
        "buffers": [buffer.clone() for buffer in model.buffers()],
        "modes": [module.training for module in model.modules()],
        "flags": [tensor.requires_grad for tensor in (x, output, *model.parameters())],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "random state": torch.get_rng_state(),
    }


def assert_same(ours, theirs, where, exactly=True):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, torch.Tensor), where
        assert torch.equal(ours, theirs) if exactly else torch.allclose(ours, theirs, atol=1e-5), where
    elif isinstance(theirs, (dict, list)):
        assert len(ours) == len(theirs), where
        for key in theirs if isinstance(theirs, dict) else range(len(theirs)):
            assert_same(ours[key], theirs[key], f"{where}, {key}", exactly)
    else:
        assert ours == theirs, where


def by_hand(module, x, taps, share):
    """Compute `module(x)` without hooks and without in-place operations; append (module, output) to `taps`.

    `share`: a module that changes nothing returns its very input, as PyTorch's do, and not a new tensor.
    """
    if isinstance(module, nn.Sequential):
        out = x
        for child in module:
            out = by_hand(child, out, taps, share)
    elif isinstance(module, Repeat):
        out = by_hand(module.body, by_hand(module.body, x, taps, share), taps, share)
    elif isinstance(module, (Residual, Join)):
        out = by_hand(module.body, x, taps, share)
        out = out + x if isinstance(module, Residual) else join(out)
    elif isinstance(module, nn.BatchNorm1d):
        arguments = (module.running_mean, module.running_var, module.weight, module.bias, module.training)
        out = F.batch_norm(x, *arguments, module.momentum, module.eps)
    elif isinstance(module, (nn.Dropout, nn.Identity)) and not (isinstance(module, nn.Dropout) and module.training):
        out = x if share else x.clone()
    else:
        out = SIMPLE[type(module)](module, x)
    taps.append((module, out))
    return out


SIMPLE = {
    nn.Linear: lambda module, x: F.linear(x, module.weight, module.bias),
    nn.Dropout: lambda module, x: F.dropout(x, module.p),
    nn.ReLU: lambda module, x: torch.relu(x),
    nn.Tanh: lambda module, x: torch.tanh(x),
    nn.Unflatten: lambda module, x: x.reshape(3, 2, -1),
    nn.Flatten: lambda module, x: x.reshape(3, -1),
    Split: lambda module, x: (torch.sin(x), 3.0, x * 2),
    Name: lambda module, x: {"left": torch.cos(x), "right": [x * 3, "text"]},
}


@common
@given(
    make=trees, mode=modes, frozen=st.sampled_from(["none", "some", "all"]), wants=st.booleans(), detach=st.booleans()
)
def test_recording_is_invisible(make, mode, frozen, wants, detach):
    model = build(make, mode, frozen, seed=1)
    bare, recorded = copy.deepcopy(model), copy.deepcopy(model)
    expected = run(bare, make_input(wants))
    with no_hooks_left(recorded), record(recorded, nn.Module, gradients=True, detach=detach):
        found = run(recorded, make_input(wants))
    # Clones that are handed on (detach=False) may change the order in which autograd adds gradients: the last bits.
    assert_same(found, expected, "recorded against bare", exactly=detach)
    assert count_hooks(recorded).total() == 0


@common
@given(make=trees, mode=modes, frozen=st.sampled_from(["none", "some", "all"]), wants=st.booleans())
def test_tracing_is_invisible_and_sees_every_call(make, mode, frozen, wants):
    model = build(make, mode, frozen, seed=2)
    expected = run(copy.deepcopy(model), make_input(wants))
    attributes = [sorted(vars(module)) for module in model.modules()]
    with no_hooks_left(model), tracing(model) as timeline:
        found = run(model, make_input(wants))
    found["attributes"] = [sorted(vars(module)) for module in model.modules()]  # `run` looked inside the block
    assert found["attributes"] == attributes
    assert_same(found, expected, "traced against bare")
    taps = []
    by_hand(model, make_input(wants), taps, share=True)
    assert [event.type for event in timeline.events if event.kind == "returns"] == [type(m).__name__ for m, _ in taps]


@common
@given(make=trees, mode=modes, frozen=st.sampled_from(["none", "some"]), wants=st.booleans(), detach=st.booleans())
def test_records_equal_the_calculation_by_hand(make, mode, frozen, wants, detach):
    model = build(make, mode, frozen, seed=3)
    twin, taps = copy.deepcopy(model), []
    torch.manual_seed(7)
    output = by_hand(twin, make_input(wants), taps, share=detach)
    expected = [tensor for _, out in taps for tensor in tensors_in(out)]
    can = [tensor for tensor in expected if tensor.requires_grad]
    gradients = dict(
        zip(map(id, can), torch.autograd.grad(score(output), can, allow_unused=True) if can else [], strict=True)
    )
    with record(model, nn.Module, gradients=True, detach=detach) as seen:
        run(model, make_input(wants))

    assert [type(model.get_submodule(call.layer)) for call in seen.calls] == [type(module) for module, _ in taps]
    for call, (_, out) in zip(seen.calls, taps, strict=True):
        wanted = tensors_in(out)
        for ours, theirs in zip(tensors_in(call.output), wanted, strict=True):
            torch.testing.assert_close(ours, theirs)
            assert ours.requires_grad == (theirs.requires_grad and not detach)
        reached = [gradients[id(t)] for t in wanted if gradients.get(id(t)) is not None]
        if not reached:
            with pytest.raises(CourseError):
                _ = call.gradient
        else:
            for ours, theirs in zip(tensors_in(call.gradient), reached, strict=True):
                torch.testing.assert_close(ours, theirs)


@common
@given(make=trees, mode=modes, context=st.sampled_from([torch.no_grad, torch.inference_mode]))
def test_activations_are_recorded_without_a_graph(make, mode, context):
    model = build(make, mode, "none", seed=4)
    twin, taps = copy.deepcopy(model), []
    torch.manual_seed(7)
    with context():
        by_hand(twin, make_input(False), taps, share=True)
    with context(), record(model, nn.Module, gradients=True) as seen:
        run(model, make_input(False))
    for call, (_, out) in zip(seen.calls, taps, strict=True):
        for ours, theirs in zip(tensors_in(call.output), tensors_in(out), strict=True):
            torch.testing.assert_close(ours, theirs)
            assert not ours.is_inference()
        with pytest.raises(CourseError, match="builds no graph"):
            _ = call.gradient


@common
@given(make=trees, index=st.integers(0, 200), error=st.sampled_from([ValueError, KeyboardInterrupt]))
def test_no_hook_stays_when_any_module_raises(make, index, error):
    model = build(make, "train", "none", seed=5)
    modules = list(model.modules())

    def fail(*args):
        raise error("stop here")

    modules[index % len(modules)].forward = fail
    for manager in (lambda: record(model, nn.Module, gradients=True), lambda: tracing(model)):
        with pytest.raises(error, match="stop here"), no_hooks_left(model), manager():
            model(make_input(True))
        assert count_hooks(model).total() == 0
        assert [m for m in modules if "forward" in vars(m)] == [modules[index % len(modules)]]
