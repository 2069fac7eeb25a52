"""The values that lesson 01 teaches, found by a second method, and that its committed notebook shows just these."""

import weakref

import pytest
import torch
from lesson_pages import LessonPage
from test_lesson_02 import slope

from course_utils.lessons.patient import loss_of

PAGE = LessonPage("01_tensor_hooks")
shows = PAGE.shows


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


def test_only_leaves_have_a_gradient_to_read_and_results_warn():
    assert shows("w: requires_grad = False grad = None x: requires_grad = True grad = 2")
    assert all(shows(f"{name}: requires_grad = True grad = None (with a warning)") for name in "ay")
    assert shows("b: requires_grad = False grad = None")
    assert shows("z.grad = None (with a warning)")


def test_which_of_the_patients_layers_have_a_gradient_before_and_after_the_cure():
    code = [cell.source for cell in PAGE.code if "def standardise" in cell.source]
    names, found = {"torch": torch, "nn": torch.nn}, []
    for part in (code[0], code[1].partition("after =")[0]):
        exec(part, names)
        torch.manual_seed(0)
        net = names["Patient"]().double()
        loss_of(net).backward()
        found.append({name.partition(".")[0] for name, each in net.named_parameters() if each.grad is not None})
    assert found == [{"third", "last"}, {"first", "second", "third", "last"}]
    assert shows("their hooks ran: last.bias, last.weight, third.bias, third.weight")


def test_a_hook_lives_in_the_graph_also_when_its_tensor_is_gone():
    x, seen = torch.ones(2, requires_grad=True), []
    h = 3 * x
    h.register_hook(lambda grad: seen.append(grad.tolist()))
    gone, total = weakref.ref(h), (2 * h).sum()
    del h
    assert gone() is None
    total.backward()
    assert seen == [[2.0, 2.0]]
