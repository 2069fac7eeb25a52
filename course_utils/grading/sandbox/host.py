"""The process that forks: it has imported torch and the exercises (without their answers), and waits for work.

Started by `fork.HostProcess`, which tells it on its standard input what to become:

    the process itself ── the process that makes the key, if one is wanted: torch without a sandbox (see `key`)
                       └─ the first process of new namespaces ── a *lane* for each core ── a child for each answer

A lane gets a message for each answer: its limits, and two files in memory. The child that it forks reads its task from
the one and writes its record to the other; the lane itself reads neither, so nothing of an answer is in the memory that
the next child inherits. A lane has a single thread and never ran a multi-threaded operation of torch, because the
children of such a process hang. When a child has ended, all that it has started is killed. Nothing here knows a key.
"""

import contextlib
import json
import marshal
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from course_utils.grading.sandbox import linux
from course_utils.grading.sandbox.cgroup import Group
from course_utils.grading.sandbox.tasks import KILLED, TOO_LONG, TOO_MUCH, Limits, Task
from course_utils.grading.sandbox.walls import (
    Isolation,
    close_root,
    confine,
    enter_namespaces,
    make_groups,
    make_scratch,
)

_leave = os._exit  # before an answer could change it
LOOK = 0.25  # seconds between two looks at what a child uses


def main() -> int:
    """Become what the standard input says, until nobody listens any more."""
    import resource  # noqa: F401

    import torch
    import torch.nested._internal.nested_tensor  # else each answer's first backward imports it

    from course_utils.exercises import engine  # noqa: F401
    from course_utils.grading.sandbox import driver  # noqa: F401

    torch.set_num_threads(1)
    setup = marshal.load(sys.stdin.buffer)
    lanes, key = setup["lanes"], setup["key"]
    sockets = lanes if key is None else [*lanes, key]
    for fd in sockets:
        os.set_inheritable(fd, False)  # no program that is started may hold them open
    nowhere = os.open(os.devnull, os.O_RDWR)  # what a library prints goes there, and no child has the standard input
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)
    if key is not None:
        _become_key_maker(key, but=lanes)
    isolation = enter_namespaces()
    groups = make_groups(isolation, len(lanes))
    _become_first_process(sockets)
    if key is not None:
        os.close(key)
    hidden = [Path(path) for path in setup["hidden"]]
    _load(setup.pop("bare"))
    close_root(isolation, hidden)
    for number, lane in enumerate(lanes):
        if os.fork() == 0:
            user = isolation.user and isolation.user + number  # one that no other lane gives to its children
            host = Host(replace(isolation, user=user), hidden, groups[number], lane)
            _leave(_serve(lane, host, [other for other in lanes if other != lane]))
    for lane in lanes:
        os.close(lane)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return 0


def _become_key_maker(fd: int, but: list[int]) -> None:
    if os.fork() == 0:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        for lane in but:
            os.close(lane)
        code = 70
        try:
            from course_utils.grading.sandbox.key import serve

            code = serve(fd)
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


def _load(lessons: bytes) -> None:
    import gc

    from course_utils.exercises import engine
    from course_utils.exercises.bare import load_bare_lessons
    from course_utils.grading.sandbox.driver import observe_answer

    load_bare_lessons(lessons)
    first = engine.exercises_of()[0].name
    observe_answer(first, "", f"def {first}(*_):\n    raise ValueError('to have seen one traceback')\n", 0)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise RuntimeError(f"the process that forks has {threads} threads; its children would hang")
    gc.collect()
    gc.freeze()
    linux.join_pages()


def _serve(fd: int, host: "Host", others: list[int]) -> int:
    for other in others:
        os.close(other)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)  # no process of the same user may look into this one's memory
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)  # it takes in what children leave behind
    with socket.socket(fileno=fd) as lane:
        lane.send(json.dumps(host.isolation.words).encode())
        while True:
            limits, files, _, _ = socket.recv_fds(lane, 4096, 2)
            if not limits:
                return 0
            try:
                result = host.run(Limits(**json.loads(limits)), *files)
            finally:
                for file in files:
                    os.close(file)
            lane.send(json.dumps(result).encode())


class Host:
    """Runs answers, one at a time, in children of this process."""

    def __init__(self, isolation: Isolation, hidden: list[Path], group: Group | None, alarm: int) -> None:
        self.isolation = isolation
        self._hidden = hidden
        self._group = group
        self._alarm = alarm  # if this socket ends, nobody waits for a result any more
        self._keeper = shutil.which("sleep")
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._baseline = _anonymous_bytes("self")

    def run(self, limits: Limits, task: int, record: int) -> tuple[str, float]:
        """Run the answer in file `task` in a child of its own; nothing of it is left but the file `record`.

        Returns why the child ended before its time, if it did, and the seconds it took.
        """
        start = time.monotonic()
        if self._group:
            self._group.limit(limits.memory + limits.disk, limits.processes)
        with make_scratch(self.isolation) as scratch:
            with self._process_namespace() as first:
                pid = os.fork()
                if pid == 0:
                    self._be_child(limits, scratch, task, record)
            try:
                ended = self._watch(pid, limits, start, scratch)
            finally:
                if self._group and self._group.kill():
                    ended = TOO_MUCH
                status = self._end(pid, first)
        return ended or KILLED * bool(status), round(time.monotonic() - start, 4)

    def _be_child(self, limits: Limits, scratch: str, task: int, record: int) -> None:
        code = 70
        try:
            from course_utils.exercises.bare import forget
            from course_utils.grading.sandbox.driver import observe_answer, write_record

            os.setsid()
            if self._group:
                self._group.join()
            with open(task, "rb", closefd=False) as file:
                given = Task(**json.load(file))
            os.dup2(record, 3)
            os.closerange(4, 4096)
            os.environ.update(HOME=scratch, TMPDIR=scratch)
            confine(self.isolation, limits, scratch, self._hidden)
            forget(given.exercise)
            _write(3, write_record(observe_answer(given.exercise, given.support, given.answer, given.seed)))
            code = 0
        finally:
            _leave(code)

    # In the block, new children are in a namespace of their own; gives the process that keeps it, or 0. The keeper is
    # its first process. Nothing inside can end it, and with it all others end.
    @contextlib.contextmanager
    def _process_namespace(self) -> Iterator[int]:
        if not self.isolation.root:
            yield 0
            return
        linux.unshare(linux.CLONE_NEWPID)
        try:
            yield os.posix_spawn(self._keeper, ["sleep", "100000"], {}, setsid=True)
        finally:
            linux.setns(self._own_namespace, linux.CLONE_NEWPID)

    def _watch(self, pid: int, limits: Limits, start: float, scratch: str) -> str:
        child = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(child, select.POLLIN)
        poll.register(self._alarm, select.POLLIN)
        try:
            while (left := limits.exercise - (time.monotonic() - start)) > 0:
                ready = dict(poll.poll(1000 * min(LOOK, left)))
                if self._alarm in ready:  # nothing is sent while a child runs, so it is the end
                    raise SystemExit("nobody waits for the result")
                if child in ready:
                    return ""
                if self._uses_too_much(limits, scratch):
                    return TOO_MUCH
            return TOO_LONG
        finally:
            os.close(child)

    def _uses_too_much(self, limits: Limits, scratch: str) -> bool:
        others = _descendants()
        if len(others) > limits.processes + 1:  # one of them may be the keeper of the namespace
            return True
        if sum(max(0, _anonymous_bytes(pid) - self._baseline) for pid in others.values()) > limits.memory:
            return True
        return not self.isolation.root and _folder_bytes(scratch) > limits.disk

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


def _write(fd: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(fd, data) :]


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
