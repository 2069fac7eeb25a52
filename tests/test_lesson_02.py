"""The values that lesson 02 teaches, found by a second method, and that its committed notebook shows just these."""

import re

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


def peak_in_the_allocators_log(watch, layer=lambda held: torch.tanh(held[-1])) -> float:
    """Peak MiB of backward through 16 layers, from the profiler. layer: makes the next activation from all so far.

    The activations are held, so that backward frees none of them: the log would count that as less memory.
    """
    held = [torch.zeros(256, 1024, requires_grad=True)]
    for _ in range(16):
        held.append(layer(held))
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


def residual(held):
    block = [held[-1], torch.tanh(held[-1])]
    block.append(torch.tanh(block[-1]))
    KEPT.extend(block)  # as above: backward would free what it saved
    return block[0] + block[-1]


def dense(held):
    return torch.tanh(torch.stack(held).sum(dim=0))


KEPT = []


@pytest.mark.parametrize(("layer", "expected"), [(residual, 3), (dense, 17)])
def test_peaks_of_networks_that_are_no_chains(layer, expected):
    KEPT.clear()
    peak = peak_in_the_allocators_log(lambda h: None, layer)
    assert peak == pytest.approx(expected, abs=1 / 1024)
    assert shows(f"{layer.__name__} {expected:.2f} MiB")


def test_the_patients_memory_by_counting():
    """A norm is one float64; a row keeps a gradient of 16 by 16; a loss keeps what the network saves."""
    rows, whole = 512 * 8 / 1024, 0  # KiB of a column of the task
    for columns in (8, 16, 16, 8):  # the inputs of the linear layers; the ReLU before shares its result
        whole += columns * rows
    assert shows(f"only grad.norm() {8 / 1024:.2f} KiB in each step only grad[0] {16 * 16 * 8 / 1024:.2f} KiB")
    found = float(re.search(r"only loss_of\(net\) +([\d.]+) KiB", PAGE.printed)[1])
    assert whole < found < 2 * whole, "and standardise saves something too"


def test_memory_that_forward_saves_by_counting():
    size = 256 * 1024  # numbers in each of the 16 results that tanh saves
    assert shows(f"as it is saved {16 * size * 4 / MIB:.2f} MiB")
    assert shows(f"as float16 saved {16 * size * 2 / MIB:.2f} MiB")
    assert shows(f"packed as float16 {1024 * 1024 * 2 / MIB:.2f} MiB leaves left alone 2.00 MiB weights left alone 0")
