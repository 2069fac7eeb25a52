"""The fork engine: a child process for each exercise, in a sandbox, in milliseconds. Linux only; see `host`."""

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.process import ProcessEngine
from course_utils.grading.sandbox.tasks import START_SECONDS, Engine, Limits, Task, start
from course_utils.root import CourseError


class HostProcess:
    """A `host` with a socket for each lane and one for who makes the `key`."""

    command = (sys.executable, "-m", "course_utils.grading.sandbox.host")

    def __init__(self, lanes: int = 1) -> None:
        kinds = [socket.SOCK_SEQPACKET] * lanes + [socket.SOCK_STREAM]
        self._sockets, theirs = zip(*(socket.socketpair(socket.AF_UNIX, kind) for kind in kinds), strict=True)
        *self.lanes, self.key = self._sockets
        self.words = ""  # what keeps answers in, when a lane is ready
        self._folder = OwnFolder()
        self._folder.path.chmod(0o711)  # an answer that runs as another user has its own folder in it
        numbers = [their.fileno() for their in theirs]
        own, self._said, nothing = str(self._folder.path), self._folder.path / "said", subprocess.DEVNULL
        with self._said.open("wb") as said:
            options = {"cwd": "/", "stdin": nothing, "stdout": nothing, "stderr": said, "pass_fds": numbers}
            self.process = start([*self.command, *map(str, numbers)], own, **options)
        for their in theirs:
            their.close()

    def ask(self, lane: socket.socket, limits: Limits, files: Sequence[int]) -> tuple[str, float]:
        """Have a lane run the task in one file and note what it does in the other.

        Returns why it ended before its time, if it did, and the seconds it took; `CourseError` if the lane itself ends.
        """
        why = ""
        try:
            lane.settimeout(START_SECONDS + limits.exercise)
            socket.send_fds(lane, [json.dumps(asdict(limits)).encode()], files)
            while answer := lane.recv(4096):
                if not isinstance(found := json.loads(answer), str):
                    return found
                self.words = found
        except TimeoutError:
            why = "its sandbox does not answer"
        except OSError:
            pass  # closed under our feet
        raise CourseError(f"no answer can be run here: {why or self._last_words()}.")

    def _last_words(self) -> str:
        # Why it, or one of its lanes, has ended: its status, and what was said last on the standard error.
        words = ["it closed a lane"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            words = [f"it ended with the status {self.process.wait(timeout=2)}"]
        with contextlib.suppress(FileNotFoundError):  # it was closed
            words += self._said.read_text(errors="replace").strip().split("\n")[-1:]
        return ": ".join(filter(None, words))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for each in self._sockets:
            each.close()
        self._folder.close()


class ForkEngine(Engine):
    """Runs answers in children of a host, which starts at once: its import of torch is the longest part of a grading.

    A lane that ends costs no answer its points: the answer runs once more, in a new host.
    """

    def __init__(self, lanes: int = 1) -> None:
        self.host = HostProcess(lanes)  # the last one that has been started
        super().__init__(lanes)
        self.key, self._hosts, self._closed = self.host.key, [self.host], False
        self._free: queue.SimpleQueue[tuple[HostProcess, socket.socket]] = queue.SimpleQueue()
        for lane in self.host.lanes:
            self._free.put((self.host, lane))

    @property
    def isolation(self) -> list[str]:
        """What keeps answers in: the lines of the hosts that are ready."""
        return [host.words for host in self._hosts if host.words]

    def run_one(self, task: Task, limits: Limits) -> tuple[bytes, str, float]:
        """Run one answer in a free lane. Raises `CourseError` if no host can be started."""
        host, lane = self._free.get()
        try:
            for is_last in (False, True):
                files = os.memfd_create("task"), os.memfd_create("record")
                with open(files[0], "wb") as given, open(files[1], "rb"):
                    given.write(json.dumps(asdict(task)).encode())
                    given.seek(0)
                    begun = time.monotonic()  # to start is no student's time
                    try:
                        ended, seconds = host.ask(lane, limits, files)
                        return os.pread(files[1], limits.disk, 0), ended, seconds
                    except CourseError as error:
                        if self._closed or (is_last and not host.words):
                            raise
                        ended, seconds = str(error).rstrip("."), round(time.monotonic() - begun, 4)
                lane.close()
                self.host = host = HostProcess()
                self._hosts.append(host)
                (lane,) = host.lanes
            return b"", ended, seconds
        finally:
            self._free.put((host, lane))

    def close(self) -> None:
        self._closed = True
        super().close()
        for host in self._hosts:
            host.close()


def make_engine(name: str, lanes: int = 1) -> Engine:
    """The engine `process`, or with `auto` the fork engine, where this machine can."""
    return (ForkEngine if name == "auto" and sys.platform == "linux" else ProcessEngine)(lanes)
