"""Recording and tracing are invisible to any model, and what they record is what a run without any hook gives.

Hypothesis grows random trees of modules. Each is run bare, recorded, and by hand: without hooks, never in place.
"""

import contextlib
import copy
import functools
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.hooks.inventory import count_hooks, no_hooks_left
from course_utils.hooks.record import record, tensors_in
from course_utils.hooks.trace import tracing
from course_utils.root import CourseError

WIDTH = 4


class Residual(nn.Sequential):
    inplace = True

    def forward(self, x):
        out = super().forward(x)
        return out.add_(x) if self.inplace else out + x


class Repeat(nn.Sequential):
    def forward(self, x):
        return self[0](self[0](x))


class Split(nn.Module):
    def forward(self, x):
        return torch.sin(x), 3.0, {"left": torch.cos(x), "right": [x * 3, "text"]}


class Join(nn.Sequential):
    def forward(self, x):
        return sum(place * tensor for place, tensor in enumerate(tensors_in(self[0](x)), 1))


def by_hand(model, x, share):
    """Return the output and (module, its output) of each call; `share`: what changes nothing returns its very input."""

    def call(module, x):
        out = module.forward(x)
        out = x.clone() if out is x and not share else out
        taps.append((module, out))
        return out

    taps = []
    for module in model.modules():
        module.inplace = False
    with mock.patch.object(nn.Module, "__call__", call):
        return model(x), taps


linear = functools.partial(nn.Linear, WIDTH, WIDTH)
norm = functools.partial(nn.BatchNorm1d, WIDTH)
relu_in_place = functools.partial(nn.ReLU, inplace=True)


def in_a_row(*makers):
    return lambda: nn.Sequential(*[make() for make in makers])


def grow(children):
    several = st.lists(children, min_size=1, max_size=3)
    residual = several.map(lambda makers: lambda: Residual(in_a_row(*makers, linear)()))
    return st.one_of(
        several.map(lambda makers: in_a_row(*makers)),
        residual,
        residual.map(lambda make: in_a_row(make, relu_in_place)),
        children.map(lambda make: lambda: Repeat(make())),
        children.map(lambda make: lambda: nn.Sequential(module := make(), nn.Tanh(), module)),
    )


view_in_place = in_a_row(linear, lambda: nn.Unflatten(1, (2, -1)), relu_in_place, lambda: nn.Flatten(1))
rows = [(linear, relu_in_place), (linear, norm, relu_in_place), (linear, nn.Identity, relu_in_place)]
simple = [linear, norm, nn.Dropout, nn.Identity, nn.Tanh, nn.ReLU, view_in_place, lambda: Join(Split())]
trees = st.recursive(st.sampled_from([*simple, *(in_a_row(*row) for row in rows)]), grow, max_leaves=6)
contexts, yes = st.sampled_from([contextlib.nullcontext, torch.no_grad, torch.inference_mode]), st.booleans()
modes, parts = st.sampled_from(["train", "eval", "mixed"]), st.sampled_from(["none", "some", "all"])
slow_is_fine = [HealthCheck.too_slow, HealthCheck.data_too_large]
common = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=slow_is_fine)


def build(make, mode="train", frozen="none"):
    torch.manual_seed(1)
    model = nn.Sequential(make(), linear()).train(mode != "eval")
    for index, module in enumerate(model.modules() if mode == "mixed" else ()):
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
        "random state": torch.get_rng_state(),
    }


WATCH = {
    "record": lambda model: record(model, nn.Module, gradients=True),
    "record in the graph": lambda model: record(model, nn.Module, gradients=True, detach=False),
    "trace": tracing,
}


@common
@given(make=trees, mode=modes, frozen=parts, wants=yes, watch=st.sampled_from(list(WATCH)))
def test_watching_is_invisible(make, mode, frozen, wants, watch):
    model = build(make, mode, frozen)
    attributes = [sorted(vars(module)) for module in model.modules()]
    expected = run(copy.deepcopy(model), make_input(wants))
    with no_hooks_left(model), WATCH[watch](model):
        found = run(model, make_input(wants))
    # Clones that are handed on may change the order in which autograd adds gradients: the last bits.
    close = {"rtol": 1e-5, "atol": 1e-5} if watch == "record in the graph" else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(found, expected, **close)
    assert [sorted(vars(module)) for module in model.modules()] == attributes
    assert count_hooks(model).total() == 0


@common
@given(make=trees, mode=modes, frozen=st.sampled_from(["none", "some"]), wants=yes, detach=yes, context=contexts)
def test_records_and_traces_equal_the_calculation_by_hand(make, mode, frozen, wants, detach, context):
    model, gradients = build(make, mode, frozen), {}
    wants = wants and context is contextlib.nullcontext
    torch.manual_seed(7)
    with context():
        output, taps = by_hand(copy.deepcopy(model), make_input(wants), share=detach)
    if can := [tensor for _, out in taps for tensor in tensors_in(out) if tensor.requires_grad]:
        found = torch.autograd.grad(score(output), can, allow_unused=True)
        gradients = dict(zip(map(id, can), found, strict=True))
    with tracing(model) as timeline, record(model, nn.Module, gradients=True, detach=detach) as seen, context():
        run(model, make_input(wants))
    types = [type(module) for module, _ in taps]
    assert [type(model.get_submodule(call.layer)) for call in seen.calls] == types
    assert [event.type for event in timeline.events if event.kind == "returns"] == [each.__name__ for each in types]
    for call, (_, out) in zip(seen.calls, taps, strict=True):
        wanted = tensors_in(out)
        for ours, theirs in zip(tensors_in(call.output), wanted, strict=True):
            torch.testing.assert_close(ours, theirs)
            assert ours.requires_grad == (theirs.requires_grad and not detach)
            assert not (detach and ours.is_inference())
        if reached := [gradients[id(t)] for t in wanted if gradients.get(id(t)) is not None]:
            torch.testing.assert_close(tensors_in(call.gradient), reached)
        else:
            with pytest.raises(CourseError, match="has no gradient"):
                _ = call.gradient


@common
@given(make=trees, index=st.integers(0, 200), error=st.sampled_from([ValueError, KeyboardInterrupt]))
def test_nothing_stays_when_any_module_raises(make, index, error):
    model = build(make)
    modules = list(model.modules())
    modules[index % len(modules)].forward = mock.Mock(side_effect=error("stop here"))
    for watch in WATCH.values():
        with pytest.raises(error, match="stop here"), no_hooks_left(model), watch(model):
            model(make_input(True))
        assert count_hooks(model).total() == 0
        assert [m for m in modules if "forward" in vars(m)] == [modules[index % len(modules)]]
