"""How many learners a hub holds: kernels that join a class, move an explorer, vote and check, all at the same time.

    python -m tests.bench.kernels 12          twelve learners of lesson 01, and then of lesson 07; Linux only

A learner is a kernel of its own, as under JupyterLab. Memory is the kernel's share: what several kernels have in common
is divided among them. Time is that of the processor. What JupyterLab and its server need comes on top.
"""

import asyncio
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from jupyter_client import AsyncKernelManager

from tests.bench.bench import Row, table
from tests.bench.live import serve

JOIN = "from course_utils.live import join; join({address!r}, {code!r}, name='Learner {number}')"
PREPARE = "from course_utils.exercises import check, predict\nfrom course_utils.lessons import lesson_{lesson}"
MOVE = """
import time
from course_utils.explorers import {explorer}
panel = {explorer}({arguments})
slider = panel.controls[{control!r}]
times = []
for place in range(20):
    start = time.perf_counter()
    slider.value = slider.min + place % (slider.max - slider.min + 1)
    times.append(1000 * (time.perf_counter() - start))
    time.sleep(0.3)
print('moved', sorted(times)[10])
"""
LESSONS = {
    "01": ("GradientFlow", "'two paths'", "step", "predict('hook_on_a', 15)", "record_gradient"),
    "07": ("GradCam", "9, 'cat'", "number", "predict('where_the_second_looks', 'on the buoy')", "pointing_game"),
}


class Learner:
    """A kernel that does what a learner does."""

    def __init__(self, folder: Path) -> None:
        self.kernel = AsyncKernelManager(kernel_name="python3")
        self.folder = folder

    async def run(self, code: str) -> str:
        """Run a cell, and return what it printed; `RuntimeError` where it raises."""
        said = []
        answer = await self.client.execute_interactive(code, timeout=300, output_hook=said.append)
        if answer["content"]["status"] != "ok":
            raise RuntimeError("\n".join(answer["content"]["traceback"]))
        return "".join(each["content"].get("text", "") for each in said)

    async def learn(self, lesson: str, **class_: object) -> float:
        """Import, join, move an explorer, vote, answer and check; returns the middle time of a move, in ms."""
        explorer, arguments, control, vote, exercise = LESSONS[lesson]
        await self.kernel.start_kernel(cwd=str(self.folder))
        self.client = self.kernel.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=300)
        await self.run(PREPARE.format(lesson=lesson))
        await self.run(JOIN.format(**class_))
        moved = await self.run(MOVE.format(explorer=explorer, arguments=arguments, control=control))
        await self.run(vote)
        await self.run(
            f"from course_utils.exercises.engine import find\nexec(find({exercise!r}).source)\ncheck({exercise})"
        )
        return float(re.search(r"moved (\S+)", moved)[1])

    @property
    def memory(self) -> float:
        """This kernel's share of the memory, in MiB."""
        shares = Path(f"/proc/{self.kernel.provisioner.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss: +(\d+)", shares, re.MULTILINE)[1]) / 1024

    @property
    def seconds(self) -> float:
        """What this kernel has used of the processor."""
        fields = Path(f"/proc/{self.kernel.provisioner.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(lesson: str, count: int, address: str, code: str) -> list[Row]:
    """Let so many learners begin at once, and measure each when all have done."""
    with tempfile.TemporaryDirectory() as folder:
        learners = [Learner(Path(folder)) for _ in range(count)]
        start = time.perf_counter()
        try:
            each = [one.learn(lesson, address=address, code=code, number=n) for n, one in enumerate(learners)]
            moves = await asyncio.gather(*each)
            took = time.perf_counter() - start
            memory, seconds = [[getattr(one, name) for one in learners] for name in ("memory", "seconds")]
        finally:
            for one in learners:
                one.client.stop_channels()
                await one.kernel.shutdown_kernel(now=True)
    what = f"lesson {lesson}, {count} learners"
    return [
        Row(f"{what}: memory of each", sum(memory) / count, None, "MiB"),
        Row(f"{what}: processor time of each, until the vote and the check are done", sum(seconds) / count, None, "s"),
        Row(f"{what}: until all have voted and checked", took, None, "s"),
        Row(f"{what}: a move of the explorer in the slowest kernel, the middle one", max(moves), None, "ms"),
    ]


if __name__ == "__main__":
    count, rows = int(sys.argv[1]), []
    with serve() as (address, code, _):
        for lesson in LESSONS:
            rows += asyncio.run(measure(lesson, count, address, code))
    load = os.getloadavg()[0]
    print(
        table(rows), f"\n{os.cpu_count()} cores; load in the last minute, these learners included: {load:.1f}", sep=""
    )
