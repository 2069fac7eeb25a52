"""The memory that `measure_memory` counts, against sizes by hand; `test_lesson_02` asks torch's own profiler too."""

import itertools

import torch
from torch.profiler import ProfilerActivity, profile

from course_utils.hooks.memory import measure_memory

MIB = 2**20


def profiled_peak(run):
    """The peak of the allocator's own log: a second method, which knows nothing of tensors or of the course."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        run()
    events = [event for event in log.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(itertools.accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


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
