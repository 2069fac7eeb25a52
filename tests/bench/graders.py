"""How fast grading is, beside what else could grade the same answers: `pytest --nbval`, nbgrader and otter-grader.

    make bench ARGS="--only grading"

The same right answers to the same three exercises, in the notebook that each tool expects. Where nbgrader or
otter-grader (the extra `parity-grading`) is not installed, a sentence says so. Seconds are wall clock, of everything:
starting Python, importing torch, the key, the reports. Memory is the largest sum of private memory of all processes at
one time, looked at five times a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import nbformat
import psutil

from course_utils.authoring.source import METADATA
from course_utils.exercises.engine import find

PROGRAMS = Path(sys.executable).parent
NAMES = ("record_gradient", "scale_gradient", "keep_positive")
LESSON = "01_tensor_hooks"
ANSWERS = {name: find(name).source for name in NAMES}
CHECKS = {
    "record_gradient": """\
x = torch.tensor([1.0, 2.0], requires_grad=True)
seen = record_gradient(x)
(3 * x).sum().backward()
assert [one.tolist() for one in seen] == [[3.0, 3.0]]
""",
    "scale_gradient": """\
x = torch.tensor([1.0, 2.0], requires_grad=True)
handle = scale_gradient(x, 3)
x.sum().backward()
assert x.grad.tolist() == [3.0, 3.0]
""",
    "keep_positive": """\
x = torch.tensor([1.0, -2.0], requires_grad=True)
keep_positive(x)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 0.0]
""",
}


@dataclass(frozen=True)
class Measured:
    """What one tool needed for so many submissions, or the sentence that says why it was not measured."""

    tool: str
    submissions: int = 0
    seconds: float = 0.0
    megabytes: float = 0.0
    skipped: str = ""
    ours: float = 0.0  # seconds that ours took for as many, just before

    @property
    def per_submission(self) -> float:
        """Seconds for one submission."""
        return self.seconds / self.submissions if self.submissions else 0.0


def measure(tool: str, submissions: int, command: Sequence[str | Path], folder: Path) -> Measured:
    """Run a command in `folder` and note its time and the largest memory of all its processes."""
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "1", "COURSE_PROGRESS": "off"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # who starts Python many times does not have it compile anew
    environment["PATH"] = os.pathsep.join([str(Path(command[0]).parent), environment["PATH"]])
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(part) for part in command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    peak = [0]
    watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    watcher.start()
    said = process.communicate()[0].decode(errors="replace")
    seconds = time.perf_counter() - start
    watcher.join()
    if process.returncode:
        last = said.strip().splitlines()[-1:] or ["it said nothing"]
        return Measured(tool, submissions, skipped=f"it ended with status {process.returncode}: {last[0][:200]}")
    return Measured(tool, submissions, round(seconds, 2), round(peak[0] / 1e6))


def _watch(process: subprocess.Popen, peak: list[int]) -> None:
    """Note the largest sum of private memory of a process and all below it, while it runs."""
    while process.poll() is None:
        total = 0
        try:
            for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
                total += one.memory_full_info().uss
        except psutil.Error:
            pass  # one of them has just ended; the next look counts the others
        peak[0] = max(peak[0], total)
        time.sleep(0.2)


# ----------------------------------------------------------------------------------------------------------- the tools


def _cell(source: str, **metadata: object) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source, metadata=metadata)


IMPORT = _cell("import torch")
ANSWERED = [IMPORT, *map(_cell, ANSWERS.values())]


def _write(cells: Sequence[nbformat.NotebookNode], *paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=list(cells), metadata=METADATA), path)


def run_ours(count: int, folder: Path) -> Measured:
    """This grader, sandboxed, on every core."""
    _write(ANSWERED, *(folder / "class" / f"s{number:04}" / f"{LESSON}.ipynb" for number in range(count)))
    command = [sys.executable, "-m", "course_utils", "grade", "class", "--report", "report"]
    found = measure("ours", count, command, folder)
    return found if found.skipped else _check_scores(found, folder / "report")


def _check_scores(found: Measured, report: Path) -> Measured:
    """What was measured, if every answer got its points; else why it counts for nothing."""
    rows = json.loads((report / "scores.json").read_text(encoding="utf-8"))["scores"]
    passed = sum(row["stage"] == "passed" and row["exercise"] in NAMES and not row["look_by_hand"] for row in rows)
    wanted = len(NAMES) * found.submissions
    return found if passed == wanted else replace(found, skipped=f"{wanted - passed} right answers did not pass")


def run_nbval(count: int, folder: Path) -> Measured:
    """Plain `pytest --nbval` on the executed notebooks: a kernel for each, no sandbox."""
    checked = [_cell(text) for name in NAMES for text in (ANSWERS[name], CHECKS[name])]
    _write([IMPORT, *checked], *(folder / f"s{number:04}.ipynb" for number in range(count)))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "-c", "pytest.ini", "-p", "no:cacheprovider", "."]
    return measure("nbval", count, command, folder)


def run_nbgrader(count: int, folder: Path) -> Measured:
    """`nbgrader autograde`, with its database and one kernel for each submission."""
    cells = [IMPORT]
    for name in NAMES:
        ids = {"schema_version": 3, "task": False}
        answer = {"grade": False, "solution": True, "locked": False, "grade_id": f"answer-{name}", **ids}
        check = {"grade": True, "solution": False, "locked": True, "grade_id": f"check-{name}", "points": 1, **ids}
        cells += [_cell(ANSWERS[name], nbgrader=answer), _cell(CHECKS[name], nbgrader=check)]
    (folder / "nbgrader_config.py").write_text('c = get_config()\nc.CourseDirectory.course_id = "bench"\n')
    places = "source", *(f"submitted/s{number:04}" for number in range(count))
    _write(cells, *(folder / place / "lesson" / "lesson.ipynb" for place in places))
    made = measure("nbgrader", count, [PROGRAMS / "nbgrader", "generate_assignment", "lesson"], folder)
    return made if made.skipped else measure("nbgrader", count, [PROGRAMS / "nbgrader", "autograde", "lesson"], folder)


def run_otter(count: int, folder: Path) -> Measured:
    """`otter run`, a process for each submission: without its containers, which would cost more."""
    (folder / "tests").mkdir()
    for name in NAMES:
        lines = "".join(f">>> {line}\n" for line in CHECKS[name].splitlines())
        case = {"code": lines, "hidden": False, "locked": False}
        suite = {"cases": [case], "scored": True, "setup": "", "teardown": "", "type": "doctest"}
        test = {"name": name, "points": 1, "suites": [suite]}
        (folder / "tests" / f"{name}.py").write_text(f"OK_FORMAT = True\ntest = {test!r}\n")
    _write(ANSWERED, *(folder / f"s{number:04}.ipynb" for number in range(count)))
    made = measure("otter", count, [PROGRAMS / "otter", "generate", "-t", "tests", "-o", "autograder.zip"], folder)
    run_each = ["sh", "-ec", 'for each in s*.ipynb; do "$0" run $each -a autograder.zip --no-logo; done']
    return made if made.skipped else measure("otter", count, [*run_each, PROGRAMS / "otter"], folder)


RUNNERS = {"ours": run_ours, "nbval": run_nbval, "nbgrader": run_nbgrader, "otter": run_otter}


def measure_child() -> float | None:
    """Private memory of one sandboxed child, in MB, while its answer waits; None where this user may not look."""
    from course_utils.grading.sandbox.fork import ForkEngine
    from course_utils.grading.sandbox.tasks import Task

    waiting = ANSWERS["scale_gradient"].replace("    return", "    import time; time.sleep(1)\n    return")
    with ForkEngine() as engine:
        engine.run([Task({"scale_gradient": 1}, (), ANSWERS["scale_gradient"])])  # until a lane is ready
        thread = threading.Thread(target=engine.run, args=([Task({"scale_gradient": 1}, (), waiting)],))
        thread.start()
        found = []
        while thread.is_alive():
            try:
                lane = psutil.Process(engine.host.process.pid).children()[-1].children()[0]
                for child in [one for one in lane.children() if one.name() != "sleep"]:
                    lines = Path(f"/proc/{child.pid}/smaps_rollup").read_text().splitlines()
                    found.append(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1000)
            except (OSError, IndexError, psutil.Error):
                pass  # it has ended, or it is not for this user to see: then nothing is found
            time.sleep(0.1)
        thread.join()
    return max(found, default=None)


# ----------------------------------------------------------------------------------------------------------- the table


def measure_all(sizes: Sequence[int], ours_only: Sequence[int] = ()) -> Iterator[Measured]:
    """Grade with each tool as many submissions as `sizes` says, and with ours also as many as `ours_only` says.

    Machines are shared, and what else runs on them changes: so ours is measured right before each of the others again,
    and stands beside it (`Measured.ours`).
    """

    def run(tool: str, count: int) -> Measured:
        if tool != "ours" and not find_spec(tool):
            return Measured(tool, count, skipped=f"{tool} is not installed: pip install -e '.[parity-grading]'")
        with tempfile.TemporaryDirectory(prefix="course-bench-") as folder:
            return RUNNERS[tool](count, Path(folder))

    for count in sizes:
        for tool in [each for each in RUNNERS if each != "ours"]:
            beside = run("ours", count)
            yield beside
            yield replace(run(tool, count), ours=0.0 if beside.skipped else beside.seconds)
    for count in ours_only:
        yield run("ours", count)


def line(one: Measured) -> str:
    """One measurement in words; "times ours" is its time as a multiple of what ours took just before."""
    if one.skipped:
        return f"{one.tool}, {one.submissions} submissions: not measured: {one.skipped}"
    times = f", {one.seconds / one.ours:.1f} times ours" if one.ours else ""
    took = f"{one.seconds:.1f} s, {one.per_submission:.3f} s each, {one.megabytes:.0f} MB at the peak"
    return f"{one.tool}, {one.submissions} submissions: {took}{times}"
