"""The process that forks: it has imported torch and the exercises (without their answers), and waits for work.

Started by `fork.HostProcess`, which tells it in a line of JSON what to become:

    the process itself ── a kernel to be, if one is wanted: torch without a sandbox, for the key (see `kernel.Seat`)
                       └─ the first process of new namespaces ── a *lane* for each core ── a child for each answer

Over its socket a lane gets a line of JSON for each answer, and sends a line of JSON for each result. It has a single
thread and never ran a multi-threaded operation of torch, because the children of such a process hang. A child is done
when it has written its record to a pipe; then all that it has started is killed. Nothing here knows a key.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from course_utils.grading.sandbox import linux
from course_utils.grading.sandbox.tasks import KILLED, MEBIBYTE, TOO_LONG, TOO_MUCH, Limits, Ran, Task
from course_utils.grading.sandbox.walls import Isolation, close_root, confine, enter_namespaces, make_scratch

MAX_RECORD = 32 * MEBIBYTE
_leave = os._exit  # before an answer could change it
LOOK = 0.25  # seconds between two looks at what a child uses


def main() -> int:
    """Become what the first line of the standard input says, until nobody listens any more."""
    setup = json.loads(sys.stdin.buffer.readline())
    lanes, kernel = setup["lanes"], setup["kernel"]
    sockets = lanes if kernel is None else [*lanes, kernel]
    for fd in sockets:
        os.set_inheritable(fd, False)  # no program that is started may hold them open
    import resource  # noqa: F401

    import torch
    import torch.nested._internal.nested_tensor  # else each answer's first backward imports it

    from course_utils.exercises import engine  # noqa: F401
    from course_utils.grading.sandbox import driver  # noqa: F401

    torch.set_num_threads(1)
    nowhere = os.open(os.devnull, os.O_RDWR)  # what a library prints goes there, and no child has the standard input
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)
    if kernel is not None:
        _become_kernel(kernel, but=lanes)
    isolation = enter_namespaces()
    _become_first_process(sockets)
    if kernel is not None:
        os.close(kernel)
    hidden = [Path(path) for path in setup["hidden"]]
    _load()
    close_root(isolation, hidden)
    for number, lane in enumerate(lanes):
        if os.fork() == 0:
            user = isolation.user and isolation.user + number  # one that no other lane gives to its children
            _leave(_serve(lane, replace(isolation, user=user), hidden, [other for other in lanes if other != lane]))
    for lane in lanes:
        os.close(lane)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return 0


def _become_kernel(fd: int, but: list[int]) -> None:
    if os.fork() == 0:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        for lane in but:
            os.close(lane)
        code = 70
        try:
            from course_utils.grading.sandbox.kernel import wait_and_become_kernel

            code = wait_and_become_kernel(fd)
        finally:
            _leave(code)


def _become_first_process(fds: list[int]) -> None:
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        status = os.waitpid(pid, 0)[1]
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)


def _load() -> None:
    import gc

    from course_utils.exercises import engine
    from course_utils.exercises.bare import load_bare_lessons
    from course_utils.grading.sandbox.driver import observe_answer

    load_bare_lessons()
    first = engine.exercises_of()[0].name
    observe_answer(first, "", f"def {first}(*_):\n    raise ValueError('to have seen one traceback')\n", 0)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise RuntimeError(f"the process that forks has {threads} threads; its children would hang")
    gc.collect()
    gc.freeze()
    linux.join_pages()


def _serve(lane: int, isolation: Isolation, hidden: list[Path], others: list[int]) -> int:
    for other in others:
        os.close(other)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)  # no process of the same user may look into this one's memory
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)  # it takes in what children leave behind
    host = Host(isolation, hidden, lane)
    _write(lane, json.dumps({"isolation": isolation.words}) + "\n")
    with open(lane, "rb", closefd=False) as requests:
        for line in requests:
            request = json.loads(line)
            ran = host.run(Task(**request["task"]), Limits(**request["limits"]))
            _write(lane, json.dumps(asdict(ran)) + "\n")
    return 0


def _write(fd: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(fd, data) :]


class Host:
    """Runs answers, one at a time, in children of this process."""

    def __init__(self, isolation: Isolation, hidden: list[Path], alarm: int) -> None:
        self._isolation = isolation
        self._hidden = hidden
        self._alarm = alarm  # if this socket ends, nobody waits for a result any more
        self._keeper = shutil.which("sleep")
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._baseline = _anonymous_bytes("self")

    def run(self, task: Task, limits: Limits) -> Ran:
        """Run one answer in a child of its own; nothing of it is left afterwards."""
        start = time.monotonic()
        with make_scratch(self._isolation) as scratch:
            read, write = os.pipe()
            with self._process_namespace() as first:
                pid = os.fork()
                if pid == 0:
                    self._be_child(task, limits, scratch, write)
            os.close(write)
            try:
                text, ended = self._receive(read, pid, limits, start, scratch)
            finally:
                os.close(read)
                status = self._end(pid, first)
        if not ended and (status or not text):
            ended = KILLED
        return Ran("" if ended else text.decode(errors="replace"), ended, round(time.monotonic() - start, 4))

    def _be_child(self, task: Task, limits: Limits, scratch: str, write: int) -> None:
        code = 70
        try:
            from course_utils.exercises.bare import forget
            from course_utils.grading.sandbox.driver import observe_answer, write_record

            os.setsid()
            os.dup2(write, 3)
            os.closerange(4, 4096)
            os.environ.update(HOME=scratch, TMPDIR=scratch)
            confine(self._isolation, limits, scratch, self._hidden)
            forget(task.exercise)
            _write(3, write_record(observe_answer(task.exercise, task.support, task.answer, task.seed)))
            code = 0
        finally:
            _leave(code)

    # In the block, new children are in a namespace of their own; gives the process that keeps it, or 0. The keeper is
    # its first process. Nothing inside can end it, and with it all others end.
    @contextlib.contextmanager
    def _process_namespace(self) -> Iterator[int]:
        if not self._isolation.root:
            yield 0
            return
        linux.unshare(linux.CLONE_NEWPID)
        try:
            yield os.posix_spawn(self._keeper, ["sleep", "100000"], {}, setsid=True)
        finally:
            linux.setns(self._own_namespace, linux.CLONE_NEWPID)

    def _receive(self, read: int, pid: int, limits: Limits, start: float, scratch: str) -> tuple[bytes, str]:
        os.set_blocking(read, False)
        chunks: list[bytes] = []
        size = 0
        child = os.pidfd_open(pid)
        poll = select.poll()
        for fd in (read, child, self._alarm):
            poll.register(fd, select.POLLIN)
        looked = start
        try:
            while True:
                now = time.monotonic()
                if now - start >= limits.exercise:
                    return b"", TOO_LONG
                if now - looked >= LOOK:
                    looked = now
                    if self._uses_too_much(limits, scratch):
                        return b"", TOO_MUCH
                ready = dict(poll.poll(1000 * min(LOOK, limits.exercise - (now - start))))
                if self._alarm in ready:  # nothing is sent while a child runs, so it is the end
                    raise SystemExit("nobody waits for the result")
                for chunk in _chunks(read) if ready else ():
                    size += len(chunk)
                    if size > MAX_RECORD:
                        return b"", TOO_MUCH
                    chunks.append(chunk)
                if child in ready:
                    return b"".join([*chunks, *_chunks(read)]), ""
                if ready.get(read, 0) & select.POLLHUP:
                    poll.unregister(read)
        finally:
            os.close(child)

    def _uses_too_much(self, limits: Limits, scratch: str) -> bool:
        others = _descendants()
        if len(others) > limits.processes + 1:  # one of them may be the keeper of the namespace
            return True
        if sum(max(0, _anonymous_bytes(pid) - self._baseline) for pid in others.values()) > limits.memory:
            return True
        return not self._isolation.root and _folder_bytes(scratch) > limits.disk

    def _end(self, pid: int, first: int) -> int:
        os.kill(first or pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        if first:
            os.waitpid(first, 0)
        while others := _descendants():
            for other in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        return status


def _chunks(fd: int) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(fd, MEBIBYTE):
            yield chunk


# All processes that this one, or one of its children, has started: the number to signal it by -> that in /proc. The two
# differ where the platform gave a namespace of processes, but no /proc that belongs to it.
def _descendants() -> dict[int, int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path("/proc", name, "stat").read_bytes()
                parents[int(name)] = int(stat[stat.rindex(b")") + 2 :].split()[1])
    me = int(os.readlink("/proc/self"))
    found = {me}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    depth = len(_status(me, "NSpid")) - 1
    numbers = {pid: _status(pid, "NSpid") for pid in sorted(found - {me})}
    return {int(each[depth]): pid for pid, each in numbers.items() if len(each) > depth}


def _status(pid: int | str, name: str) -> list[str]:
    with contextlib.suppress(OSError):
        lines = Path("/proc", str(pid), "status").read_text().splitlines()
        return next((line.split()[1:] for line in lines if line.startswith(f"{name}:")), [])
    return []


def _anonymous_bytes(pid: int | str) -> int:
    return sum(int(found[0]) * 1024 for name in ("RssAnon", "RssShmem") if (found := _status(pid, name)))


def _folder_bytes(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


if __name__ == "__main__":
    sys.exit(main())
