"""The values that lesson 02 teaches and shows, found by a second method; the memory that `measure_memory` counts."""

import itertools
import re

import pytest
import torch
from lesson_pages import LessonPage
from torch.profiler import ProfilerActivity, profile

from course_utils.exercises.engine import exercises_of
from course_utils.hooks.memory import measure_memory

PAGE = LessonPage("02_retain_grad_or_hook")
shows = PAGE.shows
MIB = 2**20


def profiled_peak(watch) -> float:
    """Peak MiB of backward through 16 layers, from the log of the allocator, which knows nothing of the course.

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
    return max(itertools.accumulate(event.nbytes() for event in events)) / MIB


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
    assert profiled_peak(watch) == pytest.approx(expected, abs=1 / 1024)
    assert shows(f"{line} {expected:.2f} MiB")


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


def test_no_right_answer_of_count_saved_bytes_keeps_a_graph_that_is_dropped():
    (exercise,) = [each for each in exercises_of(2) if each.name == "count_saved_bytes"]
    x = torch.zeros(256, 1024, requires_grad=True)
    for answer in exercise.answers:
        with measure_memory() as memory:
            assert answer.function(torch.tanh, x) == MIB
        assert memory.live == 0, answer.source


def test_counts_new_storages_until_the_last_view_is_deleted_also_after_the_block():
    old = torch.zeros(1000)
    with measure_memory() as memory:
        old.mul_(2).view(10, 100).t().add_(1)  # from before, and changed in place
        assert memory.live == memory.peak == 0
        tensor = torch.zeros(256, 1024)
        row = tensor[0]
        del tensor
        assert memory.live == MIB
        del row
        assert memory.live == 0
        kept = torch.zeros(10)
    assert repr(memory) == "40 bytes live, 1048576 bytes at the peak"
    del kept
    assert (memory.live, memory.peak) == (0, MIB)
    with measure_memory() as memory:
        found = torch.topk(old, 2)  # two results of one operation
        assert memory.live == 2 * 4 + 2 * 8  # float32 values, int64 places
        assert torch.eye(3).to_sparse().sum().item() == 3  # sparse tensors do no harm
    del found
