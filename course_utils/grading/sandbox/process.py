"""The process engine: a fresh Python process for each answer. Slow, for each imports torch, but it works everywhere.

Run as a program, it is that process: it is told the task, writes a line when it begins, and the record at its end.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.tasks import START_SECONDS, TOO_LONG, Engine, Limits, Task, start, why_it_ended
from course_utils.grading.sandbox.walls import confine, process_isolation

COMMAND = (sys.executable, "-m", "course_utils.grading.sandbox.process")


class ProcessEngine(Engine):
    """Runs each answer in a process of its own."""

    def __init__(self, lanes: int = 1) -> None:
        super().__init__(lanes)
        self.isolation = [process_isolation().words]

    def run_one(self, task: Task, limits: Limits) -> tuple[bytes, str, float]:
        with OwnFolder() as own:
            scratch, given, path = own.path / "scratch", own.path / "task", own.path / "record"
            scratch.mkdir()
            given.write_text(json.dumps([asdict(task), asdict(limits)]))
            with given.open("rb") as file, path.open("wb") as record:
                files = {"stdin": file, "stdout": record, "stderr": subprocess.DEVNULL}
                process = start((*COMMAND, str(os.getpid())), str(scratch), cwd=scratch, **files)
            ended, begun = "", time.monotonic()
            try:
                while process.poll() is None and not path.stat().st_size and time.monotonic() < begun + START_SECONDS:
                    time.sleep(0.02)
                begun = time.monotonic()  # to start is no student's time
                process.wait(limits.exercise)
            except subprocess.TimeoutExpired:
                ended = TOO_LONG
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
                process.wait()
            seconds = round(time.monotonic() - begun, 4)
            with path.open("rb") as record:
                text = record.read(limits.disk)
        return text, ended or why_it_ended(process.returncode), seconds


def main() -> None:
    if sys.platform == "linux":
        from course_utils.grading.sandbox import linux

        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(sys.argv[1]):  # it has ended before it could take this process with it
            return
    task, limits = json.load(sys.stdin.buffer)
    told, nowhere = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    from course_utils.grading.sandbox.driver import load_room, record_answers

    load_room()

    leave = os._exit  # before the answer could change it
    confine(process_isolation(), Limits(**limits), os.getcwd())
    record_answers(told, **task)
    leave(0)


if __name__ == "__main__":
    main()
