"""The fork engine: a child process for each exercise, in a sandbox, in milliseconds. Linux only; see `host`."""

import contextlib
import json
import marshal
import os
import queue
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from multiprocessing.pool import ThreadPool

from course_utils.exercises.bare import bare_lessons
from course_utils.grading.sandbox.cgroup import remove_groups
from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.tasks import START_SECONDS, Engine, Limits, Ran, Task, environment
from course_utils.root import CourseError


class HostProcess:
    """A `host` with a number of lanes, a socket for each; it starts at once and is ready later.

    At the other end of the socket `key` is a process that will make the key. `lessons` are bare.
    """

    command = (sys.executable, "-m", "course_utils.grading.sandbox.host")

    def __init__(self, lessons: bytes, lanes: int = 1) -> None:
        kinds = [socket.SOCK_SEQPACKET] * lanes + [socket.SOCK_STREAM]
        self._sockets, theirs = zip(*(socket.socketpair(socket.AF_UNIX, kind) for kind in kinds), strict=True)
        *self.lanes, self.key = self._sockets
        self.words = ""  # what keeps answers in, when a lane is ready
        self._folder = OwnFolder()
        self._folder.path.chmod(0o711)  # an answer that runs as another user has its own folder in it
        numbers = [their.fileno() for their in theirs]
        with tempfile.TemporaryFile() as told:
            marshal.dump((numbers, lessons), told)
            told.seek(0)
            self._process = subprocess.Popen(
                self.command,
                stdin=told,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment() | {"TMPDIR": str(self._folder.path)},
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the grader: what runs may come to its end
                pass_fds=numbers,
            )
        self.pid = self._process.pid  # of the process that everything else is below
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
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        if self._process.stderr.closed:
            return "it was closed"
        os.set_blocking(self._process.stderr.fileno(), False)
        said = (self._process.stderr.read() or b"").decode(errors="replace").strip()
        status = self._process.returncode
        how = "it closed a lane" if status is None else f"it ended with the status {status}"
        return ": ".join(filter(None, (how, said.rpartition("\n")[2])))

    def close(self) -> None:
        """End it, and with it every process that it has started."""
        self._process.kill()
        with contextlib.suppress(OSError), self._process:
            pass  # its end closes the streams, and waits
        remove_groups()
        for each in self._sockets:
            each.close()
        self._folder.close()


class ForkEngine(Engine):
    """Runs answers in children of a host, which starts at once: its import of torch is the longest part of a grading.

    A lane that ends costs no answer its points: the answer runs once more, in a new host.
    """

    def __init__(self, lanes: int = 1) -> None:
        self._lessons, self._closed = bare_lessons(), False  # read once: Python 3.11 cannot in two threads
        self.host = HostProcess(self._lessons, lanes)  # the last one that has been started
        self.key, self._threads = self.host.key, ThreadPool(lanes)
        self._hosts = [self.host]
        self._free: queue.SimpleQueue[tuple[HostProcess, socket.socket]] = queue.SimpleQueue()
        for lane in self.host.lanes:
            self._free.put((self.host, lane))

    @property
    def isolation(self) -> list[str]:
        """What keeps answers in: the lines of the hosts that are ready."""
        return [host.words for host in self._hosts if host.words]

    def run_all(self, batches: Sequence[Sequence[Task]], limits: Limits) -> Iterator[tuple[int, list[Ran]]]:
        """As `Engine.run_all`, but it starts at once, and runs as many at a time as there are lanes."""
        return self._threads.imap_unordered(lambda each: (each[0], self.run(each[1], limits)), enumerate(batches))

    def run_one(self, task: Task, limits: Limits) -> tuple[bytes, str, float]:
        """Run one answer in a free lane. Raises `CourseError` if no host can be started."""
        host, lane = self._free.get()
        try:
            for is_last in (False, True):
                files = os.memfd_create("task"), os.memfd_create("record")
                with open(files[0], "wb") as given, open(files[1], "rb"):
                    given.write(json.dumps(asdict(task)).encode())
                    given.seek(0)
                    start = time.monotonic()  # to start is no student's time
                    try:
                        ended, seconds = host.ask(lane, limits, files)
                        return os.pread(files[1], limits.disk, 0), ended, seconds
                    except CourseError as error:
                        if self._closed or (is_last and not host.words):
                            raise
                        ended, seconds = str(error).rstrip("."), round(time.monotonic() - start, 4)
                lane.close()
                self.host = host = HostProcess(self._lessons)
                self._hosts.append(host)
                (lane,) = host.lanes
            return b"", ended, seconds
        finally:
            self._free.put((host, lane))

    def close(self) -> None:
        """End every process that it has started."""
        self._closed = True
        self._threads.terminate()
        for host in self._hosts:
            host.close()
