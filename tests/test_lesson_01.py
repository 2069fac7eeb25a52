"""The values that lesson 01 teaches, found by a second method, and that its committed notebook shows just these."""

import pytest
import torch
from lesson_pages import LessonPage

PAGE = LessonPage("01_tensor_hooks")
shows = PAGE.shows


def slope(function, values: list[float]) -> list[float]:
    """The gradient of `function` at `values` by central differences in float64: no autograd takes part."""
    at = torch.tensor(values, dtype=torch.float64)
    steps = 0.5 * torch.eye(len(values), dtype=torch.float64)  # exact for functions that are at most quadratic
    return [(function(at + step) - function(at - step)).item() for step in steps]


@pytest.mark.parametrize(
    ("function", "values", "gradient", "shown"),
    [
        (lambda t: (t[0] + t[1]) * (t[0] + 1), [1, 2], [5, 2], "w.grad = 5 x.grad = 2"),
        (lambda a: a * 2, [3], [2], "after backward: [2.0]"),
        (lambda t: ((t[:4] + t[4:]) * torch.arange(1, 5)).sum(), range(8), [1, 2, 3, 4] * 2, "z sees [1.0, 2.0, 3.0"),
        (lambda w: (w * torch.arange(4, 11, 2)).sum(), [1, 2, 3, 4], [4, 6, 8, 10], "w.grad = [4.0, 6.0, 8.0, 10.0]"),
        (lambda x: ((x - 2 - x) ** 2).sum(), [3], [0], "z: 1 y: -4 x.grad = 0"),
        (lambda b: b.mean(), [2] * 5, [0.2] * 5, f"b: {[0.2] * 5} a: {[0.4] * 5}"),
    ],
)  # fmt: skip
def test_gradients_by_finite_differences(function, values, gradient, shown):
    assert slope(function, [*values]) == pytest.approx(gradient)
    assert shows(shown)


def test_what_hooks_change_by_the_chain_rule():
    """Each leaf receives the sum over its paths; a hook on a changes what comes through a = w + x, and that alone."""
    through_a, through_b = 1 + 1, 1 + 2  # the value of b, and that of a
    assert shows(f"w.grad = {6 * (through_a + through_b)} x.grad = {through_a}")
    assert shows(f"w.grad = {6 * through_a + through_b} x.grad = {6 * through_a}")
    at_z = 1 + 2
    at_y = -2 * 2 * at_z + 2
    assert shows(f"z: 1 -> {at_z} y: {at_y - 2} -> {at_y} x.grad = {at_y + 2 * 2 * at_z}")
