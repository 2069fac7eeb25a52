"""The values that lesson 02 teaches, found by a second method, and that its committed notebook shows just these."""

from __future__ import annotations

import warnings

import pytest
import torch
from lesson_pages import LessonPage
from torch.profiler import ProfilerActivity, profile

PAGE = LessonPage("02_retain_grad_or_hook")
shows = PAGE.shows
MIB = 2**20


def vector_graph():
    x = torch.arange(4.0).requires_grad_()
    y = torch.arange(4.0, 8.0).requires_grad_()
    w = torch.arange(1.0, 5.0).requires_grad_()
    z = x + y
    return x, y, w, z, (w * z).sum()


# --- R1: the gradients of results, by finite differences --------------------------------------------------------------


def slope(function, values: torch.Tensor) -> list[float]:
    """The gradient of `function` at `values` by central differences in float64: no autograd takes part."""
    found = []
    for index in range(values.numel()):
        step = torch.zeros_like(values, dtype=torch.float64)
        step[index] = 0.5  # exact for the functions here, which are at most quadratic
        found.append((function(values.double() + step) - function(values.double() - step)).item())
    return found


def test_gradients_in_the_vector_graph():
    _, _, w, z, o = vector_graph()
    z.retain_grad()
    o.retain_grad()
    o.backward()
    assert z.grad.tolist() == slope(lambda value: (w.detach().double() * value).sum(), z.detach()) == [1, 2, 3, 4]
    assert o.grad.item() == 1
    assert shows("z.grad = [1.0, 2.0, 3.0, 4.0] o.grad = 1.0")


def test_gradients_in_the_square_graph():
    x, y = torch.tensor([3.0]), torch.tensor([1.0])
    assert slope(lambda value: ((value - x) ** 2).sum(), y) == [-4]
    assert slope(lambda value: ((value - 2 - value) ** 2).sum(), x) == [0]
    assert shows("y.grad = -4 z.grad = 1 x.grad = 0")


def test_gradients_in_the_mean_graph():
    assert slope(lambda value: value.mean(), torch.full((5,), 2.0)) == pytest.approx([0.2] * 5)
    assert slope(lambda value: (2 * value).mean(), torch.ones(5)) == pytest.approx([0.4] * 5)
    assert shows(f"b.grad = {[0.2] * 5} a.grad = {[0.4] * 5}")


# --- R3: after all hooks, of the newest values, added up --------------------------------------------------------------


def times(factor):
    return lambda grad: grad * factor


@pytest.mark.parametrize("place", [0, 1, 2])
def test_retain_grad_comes_after_all_hooks_wherever_it_is_called(place):
    x, _, _, z, o = vector_graph()
    for index, factor in enumerate((2, 10, None)):
        if index == place:
            z.retain_grad()
        if factor:
            z.register_hook(times(factor))
    o.backward()
    assert z.grad.tolist() == x.grad.tolist() == [20, 40, 60, 80]
    assert shows("z.grad = [20.0, 40.0, 60.0, 80.0] x.grad = [20.0, 40.0, 60.0, 80.0]")
    assert shows("arrived: [1.0, 2.0, 3.0, 4.0] passed on: [20.0, 40.0, 60.0, 80.0]")


def test_retain_grad_moves_on_with_a_tensor_changed_in_place():
    h = 3 * torch.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    h.register_hook(lambda grad: seen.append(grad.tolist()))
    h.retain_grad()
    h.mul_(10)
    h.sum().backward()
    assert (seen, h.grad.tolist()) == ([[10, 10]], [1, 1])
    assert shows("the hook from before sees [10.0, 10.0] h.grad = [1.0, 1.0]")


def test_kept_gradients_add_up_into_a_new_tensor():
    _, _, _, z, o = vector_graph()
    z.retain_grad()
    o.backward(retain_graph=True)
    first = z.grad
    o.backward()
    assert (z.grad.tolist(), first.tolist()) == ([2, 4, 6, 8], [1, 2, 3, 4])
    assert shows("z.grad = [2.0, 4.0, 6.0, 8.0] first = [1.0, 2.0, 3.0, 4.0]")


def test_autograd_grad_fills_the_kept_gradient_and_no_leaf():
    x, _, _, z, o = vector_graph()
    z.retain_grad()
    torch.autograd.grad(o, x)
    assert (x.grad, z.grad.tolist()) == (None, [1, 2, 3, 4])
    assert shows("returned: [1.0, 2.0, 3.0, 4.0] x.grad = None z.grad = [1.0, 2.0, 3.0, 4.0]")


def test_kept_gradients_of_higher_derivatives():
    x = torch.tensor(4.0, requires_grad=True)
    z = x * x
    (of_z,) = torch.autograd.grad(z * z, z, create_graph=True)
    first = of_z * 2 * x  # the chain rule by hand; what the second pass sends through z is 2 · 2x
    (added,) = torch.autograd.grad(first, z)
    assert (of_z.item(), first.item(), added.item()) == (32, 256, 16)
    assert shows("first derivative 256 = 4x³ z.grad = 32, z.grad.requires_grad = True")
    assert shows("second derivative 192 = 12x² z.grad = 48")


# --- R4: the warning --------------------------------------------------------------------------------------------------


def test_reading_grad_warns_until_it_was_asked_for():
    _, _, _, z, o = vector_graph()
    o.backward()
    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert z.grad is None
    z.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert z.grad is None
    sentence = "UserWarning: The .grad attribute of a Tensor that is not a leaf Tensor is being accessed."
    assert shows(f".grad = None {sentence} .grad = None Predict:")
    assert PAGE.printed.count("UserWarning") == 1
    assert "Triggered internally" not in PAGE.printed


# --- R2: memory, by the allocator's own log ---------------------------------------------------------------------------


def peak_in_the_allocators_log(watch) -> float:
    """Peak MiB of backward through 16 times tanh, from the profiler, which knows nothing of tensors or of the course.

    The activations are held, so that backward frees none of them: the log would count that as less memory.
    """
    held = [torch.zeros(256, 1024, requires_grad=True)]
    for _ in range(16):
        held.append(torch.tanh(held[-1]))
        watch(held[-1])
    loss = held[-1].mean()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        loss.backward()
    events = [event for event in log.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    total = peak = 0
    for event in events:
        total += event.nbytes()
        peak = max(peak, total)
    return peak / MIB


def keep(kept, choose):
    return lambda h: h.register_hook(lambda grad: kept.append(choose(grad)))


@pytest.mark.parametrize(
    ("line", "watch", "expected"),
    [
        ("neither", lambda h: None, 2),
        ("a hook that keeps one number", keep([], lambda grad: grad.norm().item()), 2),
        ("a hook that keeps the gradient", keep([], lambda grad: grad), 17),
        ("retain_grad()", lambda h: h.retain_grad(), 18),
        ("grad[0]", keep([], lambda grad: grad[0]), 17),
        ("grad[0].clone()", keep([], lambda grad: grad[0].clone()), 2.0625),
    ],
)
def test_peaks_of_backward(line, watch, expected):
    # One KiB of tolerance: loss.backward() also makes the number 1 that it starts from.
    assert peak_in_the_allocators_log(watch) == pytest.approx(expected, abs=1 / 1024)
    assert shows(f"{line} {expected:.2f} MiB")


def test_memory_saved_by_forward():
    assert shows("as it is saved 16.00 MiB peak 18.00 MiB the same gradient")
    assert shows("as float16 saved 8.00 MiB peak 11.00 MiB a gradient off by up to 1%")
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: saved.append(each.nbytes) or each, lambda each: each):
        h = torch.zeros(256, 1024, requires_grad=True)
        for _ in range(16):
            h = torch.tanh(h)
        h.mean()
    assert sum(saved) == 16 * MIB


def test_a_product_with_packed_weights_costs_more():
    assert 1024 * 1024 * 2 / MIB == 2  # a float16 copy of the weight
    assert shows("kept as they are 0.00 MiB packed as float16 2.00 MiB leaves left alone 0.00 MiB")


def test_gradients_of_a_square_in_three_precisions():
    x = torch.tensor([1.001, 2049.0, 70000.0, 1e-8])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        numbers = " ".join(f"{value:.6g}" for value in (2 * x.to(dtype).float()).tolist())
        assert shows(f"{str(dtype).removeprefix('torch.')} {numbers}")
