"""Grading on a Dask cluster: a real one of two workers, one of which is killed while it grades."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import psutil
import pytest
from grading_samples import START, hand_in, notebook_with

from course_utils.grading.batch import grade
from course_utils.grading.grade import run
from course_utils.grading.sandbox.crew import DaskCrew
from course_utils.grading.submissions import find_submissions

dask = pytest.importorskip("dask", reason="Dask is missing: pip install 'course-utils[cluster]'")
distributed = pytest.importorskip("distributed", reason="Dask is missing: pip install 'course-utils[cluster]'")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the fork engine needs Linux")]
STUDENTS = 16
SLOW = "import time\ndef largest(tensor):\n    time.sleep(0.3)\n    return tensor.max().item()\n"


@pytest.fixture
def cluster():
    """Two workers with a process each, and no nanny's promises: who is killed is gone for good."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as made:
        yield made


@pytest.fixture
def folder(tmp_path):
    for number in range(STUDENTS):
        hand_in(tmp_path / "class", f"s{number:02}", START, notebook_with(START, {"largest": SLOW}))
    return tmp_path / "class"


def hosts_below(pid):
    """The processes that fork, which a worker has started."""
    found = psutil.Process(pid).children(recursive=True)
    return [one.pid for one in found if "course_utils.grading.sandbox.host" in one.cmdline()]


def test_a_lost_workers_submissions_run_again(cluster, folder):
    killed = []

    class Bar:
        """Kills a worker when the first results are there."""

        done = 0

        def update(self):
            self.done += 1
            if self.done == 3:
                pid = next(iter(cluster.workers.values())).pid
                killed.append((pid, hosts_below(pid)))
                os.kill(pid, signal.SIGKILL)

    with DaskCrew(cluster.scheduler_address, "fork") as crew:
        found = find_submissions(folder, {START.name: START})
        graded = grade(found, crew=crew, progress=lambda total: contextlib.nullcontext(Bar()))
    assert {row.student: (row.points, row.look_by_hand) for row in graded.scores} == {
        f"s{number:02}": (1, False) for number in range(STUDENTS)
    }
    assert len(graded.scores) == STUDENTS
    assert any("isolation: a process for each exercise" in line for line in graded.isolation)
    ((_, hosts),) = killed
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(one) for one in hosts) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [one for one in hosts if psutil.pid_exists(one)], "a host goes with its worker"


def test_the_flag_gives_the_same_scores_and_no_scheduler_one_sentence(cluster, folder, tmp_path, capsys):
    assert run(folder, tmp_path / "report", scheduler=cluster.scheduler_address) == 0
    assert "s00      1 of 1" in capsys.readouterr().out
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        assert run(folder, tmp_path / "report", scheduler="tcp://127.0.0.1:9") == 2
    assert "grading: " in capsys.readouterr().err


def test_a_submission_that_no_worker_survives_is_looked_at_by_hand(cluster, folder, monkeypatch):
    """It costs nobody else."""
    find = find_submissions(folder, {START.name: START})[:2]
    submit = distributed.Client.submit

    def break_second(self, function, tasks, *arguments, **options):
        asked.append(tasks)
        return submit(self, (lambda *_: 1 / 0) if len(asked) == 2 else function, tasks, *arguments, **options)

    asked = []
    monkeypatch.setattr(distributed.Client, "submit", break_second)
    with DaskCrew(cluster.scheduler_address, "fork") as crew:
        first, second = grade(find, crew=crew).scores
    assert (first.points, first.look_by_hand) == (1, False)
    assert (second.stage, second.look_by_hand) == ("not graded", True)
    assert second.reason == "no worker could run it: division by zero"
