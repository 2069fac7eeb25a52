"""The fork engine: a child process for each exercise, in a sandbox, in milliseconds. Linux only; see `host`."""

import contextlib
import json
import marshal
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from course_utils.exercises.bare import bare_lessons
from course_utils.grading.sandbox.cgroup import remove_groups
from course_utils.grading.sandbox.own_folder import OwnFolder
from course_utils.grading.sandbox.tasks import START_SECONDS, Engine, Limits, Task, environment
from course_utils.root import CourseError


class HostProcess:
    """A `host` with a number of lanes, a socket for each; it starts at once and is ready later.

    With `key`, it has a process that will make the key, at the other end of the socket `key`. `hidden` are files and
    folders that no answer may read.
    """

    command = (sys.executable, "-m", "course_utils.grading.sandbox.host")

    def __init__(self, hidden: Sequence[Path], lanes: int = 1, *, key: bool = False) -> None:
        kinds = [socket.SOCK_SEQPACKET] * lanes + [socket.SOCK_STREAM] * key
        self._sockets, theirs = zip(*(socket.socketpair(socket.AF_UNIX, kind) for kind in kinds), strict=True)
        self.lanes, self.key = self._sockets[:lanes], self._sockets[-1] if key else None
        self._problem = ""
        self._folder = OwnFolder()
        self._folder.path.chmod(0o711)  # an answer that runs as another user has its own folder in it
        numbers = [their.fileno() for their in theirs]
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment() | {"TMPDIR": str(self._folder.path)},
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the grader: what runs may come to its end
            pass_fds=numbers,
        )
        self.pid = self._process.pid  # of the process that everything else is below
        setup = [str(Path(path).absolute()) for path in hidden], numbers[:lanes], numbers[lanes:]
        threading.Thread(target=self._tell, args=setup, daemon=True).start()  # it listens when torch is there
        for their in theirs:
            their.close()

    def _tell(self, *setup: list) -> None:
        with contextlib.suppress(OSError, ValueError), self._process.stdin as pipe:  # else its lanes end
            try:
                lessons = bare_lessons()
            except Exception as error:  # somebody may edit them now
                self._problem = f"the lessons cannot be read: {type(error).__name__}: {error}"
                return
            marshal.dump((*setup, lessons), pipe)

    def last_words(self) -> str:
        """Why it, or one of its lanes, has ended: its status, and what was said last on the standard error."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        os.set_blocking(self._process.stderr.fileno(), False)
        said = (self._process.stderr.read() or b"").decode(errors="replace").strip()
        status = self._process.returncode
        how = "it closed a lane" if status is None else f"it ended with the status {status}"
        return ": ".join(filter(None, (how, self._problem or said.rpartition("\n")[2])))

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
    """Runs answers in children of a host; as many threads as it has `lanes` may call `run` at once.

    `hidden` are files and folders that no answer may read; with `key`, the socket `key` is the host's. A lane that ends
    costs no answer its points: the answer runs once more, in a new host.
    """

    def __init__(self, hidden: Sequence[Path] = (), lanes: int = 1, *, key: bool = False) -> None:
        self._hidden = hidden
        self._closed = False
        self.host = HostProcess(hidden, lanes, key=key)
        self._hosts = [self.host]  # all that have been started
        self.key = self.host.key
        self._lanes = [(self.host, lane) for lane in self.host.lanes]
        self._words = [""] * lanes
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(lanes):
            self._free.put(number)

    @property
    def isolation(self) -> str:
        """What keeps answers in: the lines of the lanes that are ready, each once."""
        return "\n".join(filter(None, dict.fromkeys(self._words)))

    def wait_until_ready(self) -> None:
        """Come back when a lane can fork; then `isolation` has its line."""
        with self._take_lane():
            pass

    def run_one(self, task: Task, limits: Limits) -> tuple[bytes, str, float]:
        """Run one answer in a free lane."""
        with self._take_lane() as number:
            for _ in range(2):
                files = os.memfd_create("task"), os.memfd_create("record")
                with open(files[0], "wb") as given, open(files[1], "rb"):
                    given.write(json.dumps(asdict(task)).encode())
                    given.seek(0)
                    start = time.monotonic()  # to start is no student's time
                    try:
                        ended, seconds = self._ask(number, limits, files)
                        return os.pread(files[1], limits.disk, 0), ended, seconds
                    except CourseError as error:
                        ended, seconds = str(error).rstrip("."), round(time.monotonic() - start, 4)
                        self._renew(number, error)
            return b"", ended, seconds

    def close(self) -> None:
        """End every process that it has started."""
        self._closed = True
        for host in self._hosts:
            host.close()

    @contextlib.contextmanager
    def _take_lane(self) -> Iterator[int]:
        number = self._free.get()
        try:
            if not self._words[number]:
                try:
                    self._words[number] = self._ask(number)
                except CourseError as error:
                    self._renew(number, error)
            yield number
        finally:
            self._free.put(number)

    def _renew(self, number: int, error: CourseError) -> None:
        # In place of a lane that has ended, that of another host; if this cannot start either, nothing can be run.
        if self._closed:
            raise error
        self._words[number] = ""
        self._lanes[number][1].close()
        self.host = host = HostProcess(self._hidden)
        self._hosts.append(host)
        self._lanes[number] = host, host.lanes[0]
        self._words[number] = self._ask(number)

    def _ask(self, number: int, limits: Limits | None = None, files: Sequence[int] = ()) -> Any:
        host, lane = self._lanes[number]
        why = ""
        try:
            lane.settimeout(START_SECONDS + (limits.exercise if limits else 0))
            if limits:
                socket.send_fds(lane, [json.dumps(asdict(limits)).encode()], files)
            if answer := lane.recv(4096):
                return json.loads(answer)
        except TimeoutError:
            why = "its sandbox does not answer"
        except OSError:
            pass  # closed under our feet
        why = why or ("it was closed" if self._closed else host.last_words())
        raise CourseError(f"no answer can be run here: {why}.")
