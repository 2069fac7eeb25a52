"""The memory that `measure_memory` counts, against sizes worked out by hand and against torch's own profiler."""

import torch
from torch.profiler import ProfilerActivity, profile

from course_utils.hooks.memory import measure_memory

MIB = 2**20


def profiled_peak(run):
    """The peak of the allocator's own log: a second method, which knows nothing of tensors."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        run()
    events = [event for event in log.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert events, "the profiler logged no memory at all"
    events.sort(key=lambda event: event.start_ns())
    total = peak = 0
    for event in events:
        total += event.nbytes()
        peak = max(peak, total)
    return peak


def test_counts_a_new_tensor_until_it_is_deleted_also_after_the_block():
    with measure_memory() as memory:
        tensor = torch.zeros(256, 1024)
        assert memory.live == MIB
        del tensor
        assert memory.live == 0
        kept = torch.zeros(10)
    assert (memory.live, memory.peak) == (40, MIB)
    assert repr(memory) == "40 bytes live, 1048576 bytes at the peak"
    del kept
    assert (memory.live, memory.peak) == (0, MIB)


def test_a_view_keeps_the_whole_storage_alive_and_costs_nothing_itself():
    with measure_memory() as memory:
        whole = torch.zeros(256, 1024)
        row = whole[0]
        assert memory.live == MIB
        del whole
    assert memory.live == MIB
    assert row.numel() == 1024


def test_tensors_from_before_and_changes_in_place_are_not_counted():
    old = torch.zeros(1000)
    with measure_memory() as memory:
        old.mul_(2).view(10, 100).t().add_(1)
        assert memory.live == 0
    assert memory.peak == 0


def test_two_results_of_one_operation_are_both_counted():
    numbers = torch.arange(8.0)
    with measure_memory() as memory:
        found = torch.topk(numbers, 2)
        assert memory.live == 2 * 4 + 2 * 8  # float32 values, int64 places
    assert found.indices.tolist() == [7, 6]


def test_agrees_with_the_profiler_to_the_byte_on_a_backward():
    def make_loss():
        x = torch.zeros(64, 1024, requires_grad=True)
        h = x
        for _ in range(5):
            h = torch.tanh(h * 2)
            h.retain_grad()
        return (h.exp() * h).sum()

    for _ in range(2):
        loss = make_loss()
        with measure_memory() as memory:
            loss.backward()
        assert memory.peak == profiled_peak(make_loss().backward) > 0


def test_sparse_tensors_do_no_harm():
    with measure_memory() as memory:
        sparse = torch.eye(3).to_sparse()
        assert sparse.sum().item() == 3
    assert memory.peak > 0
