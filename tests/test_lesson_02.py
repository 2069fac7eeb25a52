"""The values that lesson 02 teaches, found by a second method, and that its committed notebook shows just these."""

import pytest
import torch
from lesson_pages import LessonPage
from test_memory import MIB, profiled_peak

PAGE = LessonPage("02_retain_grad_or_hook")
shows = PAGE.shows


def slope(function, values: list[float]) -> list[float]:
    """The gradient of `function` at `values` by central differences in float64: no autograd takes part."""
    at = torch.tensor(values, dtype=torch.float64)
    steps = 0.5 * torch.eye(len(values), dtype=torch.float64)  # exact for functions that are at most quadratic
    return [(function(at + step) - function(at - step)).item() for step in steps]


@pytest.mark.parametrize(
    ("function", "values", "gradient", "shown"),
    [
        (lambda z: (torch.arange(1, 5) * z).sum(), [4, 6, 8, 10], [1, 2, 3, 4], "z.grad = [1.0, 2.0, 3.0, 4.0]"),
        (lambda y: ((y - 3) ** 2).sum(), [1], [-4], "y.grad = -4 z.grad = 1"),
        (lambda x: ((x - 2 - x) ** 2).sum(), [3], [0], "x.grad = 0"),
        (lambda b: b.mean(), [2] * 5, [0.2] * 5, f"b.grad = {[0.2] * 5}"),
        (lambda a: (2 * a).mean(), [1] * 5, [0.4] * 5, f"a.grad = {[0.4] * 5}"),
    ],
)
def test_gradients_by_finite_differences(function, values, gradient, shown):
    assert slope(function, values) == pytest.approx(gradient)
    assert shows(shown)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_retain_grad_comes_after_all_hooks_wherever_it_is_called(place):
    x = torch.arange(4.0).requires_grad_()
    z = x + 1
    calls = [lambda: z.register_hook(lambda grad: 2 * grad), lambda: z.register_hook(lambda grad: 10 * grad)]
    for call in (*calls[:place], z.retain_grad, *calls[place:]):
        call()
    (torch.arange(1.0, 5.0) * z).sum().backward()
    assert z.grad.tolist() == x.grad.tolist() == [20, 40, 60, 80]
    assert shows("z.grad = [20.0, 40.0, 60.0, 80.0] x.grad = [20.0, 40.0, 60.0, 80.0]")


def test_kept_gradients_of_higher_derivatives():
    x = torch.tensor(4.0, requires_grad=True)
    z = x * x
    (of_z,) = torch.autograd.grad(z * z, z, create_graph=True)
    first = of_z * 2 * x  # the chain rule by hand; what the second pass sends through z is 2 · 2x
    (added,) = torch.autograd.grad(first, z)
    assert (of_z.item(), first.item(), added.item()) == (32, 256, 16)
    assert shows("first derivative 256 = 4x³ z.grad = 32, z.grad.requires_grad = True")
    assert shows("second derivative 192 = 12x² z.grad = 48")


def peak_in_the_allocators_log(watch) -> float:
    """Peak MiB of backward through 16 times tanh, from the profiler.

    The activations are held, so that backward frees none of them: the log would count that as less memory.
    """
    held = [torch.zeros(256, 1024, requires_grad=True)]
    for _ in range(16):
        held.append(torch.tanh(held[-1]))
        watch(held[-1])
    return profiled_peak(held[-1].mean().backward) / MIB


def keep(choose):
    kept = []
    return lambda h: h.register_hook(lambda grad: kept.append(choose(grad)))


@pytest.mark.parametrize(
    ("line", "watch", "expected"),
    [
        ("neither", lambda h: None, 2),
        ("a hook that keeps one number", keep(lambda grad: grad.norm().item()), 2),
        ("a hook that keeps the gradient", keep(lambda grad: grad), 17),
        ("retain_grad()", lambda h: h.retain_grad(), 18),
        ("grad[0]", keep(lambda grad: grad[0]), 17),
        ("grad[0].clone()", keep(lambda grad: grad[0].clone()), 2.0625),
    ],
)
def test_peaks_of_backward(line, watch, expected):
    # One KiB of tolerance: loss.backward() also makes the number 1 that it starts from.
    assert peak_in_the_allocators_log(watch) == pytest.approx(expected, abs=1 / 1024)
    assert shows(f"{line} {expected:.2f} MiB")


def test_memory_that_forward_saves_by_counting():
    size = 256 * 1024  # numbers in each of the 16 results that tanh saves
    assert shows(f"as it is saved {16 * size * 4 / MIB:.2f} MiB")
    assert shows(f"as float16 saved {16 * size * 2 / MIB:.2f} MiB")
    assert shows(f"packed as float16 {1024 * 1024 * 2 / MIB:.2f} MiB leaves left alone 0.00 MiB")  # of the weight
