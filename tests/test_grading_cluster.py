"""Grading on a Dask cluster: a real one of two workers, one of which is killed while it grades."""

import contextlib
import re
import sys
from unittest.mock import MagicMock

import psutil
import pytest
from grading_samples import START, give

from course_utils.grading.batch import grade
from course_utils.grading.grade import run
from course_utils.grading.report import read_scores
from course_utils.grading.sandbox.fork import DaskCrew
from course_utils.grading.submissions import find_submissions
from course_utils.root import CourseError

dask = pytest.importorskip("dask", reason="Dask is missing: pip install 'course-utils[cluster]'")
distributed = pytest.importorskip("distributed", reason="Dask is missing: pip install 'course-utils[cluster]'")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the fork engine needs Linux")]
SLOW = "import time\ndef largest(tensor):\n    time.sleep(0.3)\n    return tensor.max().item()\n"


@pytest.fixture(scope="module")
def cluster():
    """Two workers with a process each, and no nanny's promises: who is killed, in the last test, is gone for good."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(processes=True, **options) as made:
        yield made


def write_class(folder, students):
    give(folder, **{f"s{number:02}": SLOW for number in range(students)})
    return find_submissions(folder, {START.name: START})


def test_the_command_grades_on_a_cluster_and_a_lost_task_costs_nobody_else(cluster, tmp_path, monkeypatch, capsys):
    submit, asked = distributed.Client.submit, []

    def break_second(self, function, tasks, *arguments, **options):
        asked.append(tasks)
        return submit(self, (lambda *_: 1 / 0) if len(asked) == 2 else function, tasks, *arguments, **options)

    monkeypatch.setattr(distributed.Client, "submit", break_second)
    write_class(tmp_path / "class", 2)
    assert run(tmp_path / "class", tmp_path / "report", scheduler=cluster.scheduler_address) == 1
    assert re.search(r"s0\d +1 of 1", capsys.readouterr().out)
    second, first = sorted(read_scores(tmp_path / "report"), key=lambda row: row["points"])
    assert (first["points"], first["look_by_hand"]) == (1, False)
    found = [second[name] for name in ("stage", "look_by_hand", "reason")]
    assert found == ["not graded", True, "no worker could run it: division by zero"]
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}), pytest.raises(CourseError):
        run(tmp_path / "class", tmp_path / "report", scheduler="tcp://127.0.0.1:9")


def test_a_lost_workers_submissions_run_again(cluster, tmp_path):
    hosts, bar = [], MagicMock()

    def kill_a_worker():
        if bar.update.call_count == 3:
            worker = psutil.Process(next(iter(cluster.workers.values())).pid)
            below = worker.children(recursive=True)
            hosts.extend(one for one in below if "course_utils.grading.sandbox.host" in one.cmdline())
            worker.kill()

    bar.update.side_effect = kill_a_worker
    found = write_class(tmp_path, 16)
    with DaskCrew(cluster.scheduler_address, "auto") as crew:
        graded = grade(found, crew=crew, progress=lambda total: contextlib.nullcontext(bar))
    rows = [(row.student, row.points, row.look_by_hand) for row in graded.scores]
    assert rows == [(f"s{number:02}", 1, False) for number in range(16)]
    assert any("isolation: a process for each exercise" in line for line in graded.isolation)
    assert hosts
    assert psutil.wait_procs(hosts, timeout=30)[1] == [], "a host goes with its worker"
