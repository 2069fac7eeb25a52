"""The process that forks: it has imported torch and the exercises (without their answers), and waits for work.

    the process itself ── the process that makes the key, when it is asked: torch without a sandbox (see `key`)
                       └─ the first process of new namespaces ── a *lane* for each core ── a child for each answer

A lane gets a message for each answer: its limits, and two files in memory. The child that it forks reads its task from
the one and writes its record to the other; the lane itself reads neither, so nothing of an answer is in the memory that
the next child inherits. A lane has a single thread and never ran a multi-threaded operation of torch, because the
children of such a process hang. Nothing here knows a key.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from course_utils.grading.sandbox import linux
from course_utils.grading.sandbox.tasks import TOO_LONG, TOO_MUCH, Limits, why_it_ended
from course_utils.grading.sandbox.walls import Isolation, close_root, confine, enter_namespaces, make_scratch

_leave = os._exit  # before an answer could change it
LOOK = 0.25  # seconds between two looks at what a child uses
LEAST_PRIORITY = 19


def main() -> int:
    """Become the processes above, for the sockets of the lanes and of the key, until nobody listens any more."""
    gc.disable()  # else the import of torch takes a sixth more
    import resource  # noqa: F401

    import torch
    import torch.nested._internal.nested_tensor  # else each answer's first backward imports it

    from course_utils.grading.sandbox import driver  # noqa: F401
    from course_utils.grading.sandbox.key import serve

    gc.enable()
    torch.set_num_threads(1)
    *lanes, key = map(int, sys.argv[1:])
    for fd in (*lanes, key):
        os.set_inheritable(fd, False)  # no program that is started may hold them open
    nowhere = os.open(os.devnull, os.O_RDWR)  # what a library prints goes there; the standard error is for last words
    for fd in (0, 1):
        os.dup2(nowhere, fd)
    _fork(lanes, serve, key)
    isolation = enter_namespaces()
    first = _fork([key], _become_first_process, isolation, lanes)
    for fd in (*lanes, key):
        os.close(fd)
    _note_end(os.waitpid(first, 0)[1])
    return 0


def _note_end(status: int) -> None:
    if os.WIFSIGNALED(status):  # else it has said itself why
        print(f"signal {os.WTERMSIG(status)} ended a process of it", file=sys.stderr)


def _fork(close: Sequence[int], work: Callable[..., object], *arguments: object) -> int:
    # A child that does the work without the files `close`, and ends with this process; its exit status is 0 if it can.
    if pid := os.fork():
        return pid
    code = 70
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        for fd in close:
            os.close(fd)
        work(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _become_first_process(isolation: Isolation, lanes: list[int]) -> None:
    from course_utils.exercises import engine
    from course_utils.grading.sandbox.driver import load_room, observe_answers

    load_room()
    first = engine.exercises_of()[0].name
    answer = f"def {first}(*_):\n    raise ValueError('to have seen one traceback')\n"
    list(observe_answers({first: 0}, (), answer))
    assert len(os.listdir("/proc/self/task")) == 1, "the children of a process with threads would hang"
    gc.freeze()
    linux.join_pages()
    close_root(isolation)
    for number, lane in enumerate(lanes):
        user = isolation.user and isolation.user + number  # one that no other lane gives to its children
        others = [other for other in lanes if other != lane]
        _fork(others, lambda *own: Host(*own).serve(), replace(isolation, user=user), lane)
    for lane in lanes:
        os.close(lane)
    with contextlib.suppress(ChildProcessError):
        while True:
            _note_end(os.wait()[1])


@dataclass
class Host:
    """Runs answers, one at a time, in children of this process, for who is at the other end of the socket `lane`."""

    isolation: Isolation
    lane: int

    def serve(self) -> None:
        """Run what is asked for, until nobody asks any more."""
        self._namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._baseline = _own_memory(_status("self"))
        linux.prctl(linux.PR_SET_DUMPABLE, 0)  # no process of the same user may look into this one's memory
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)  # it takes in what children leave behind
        with socket.socket(fileno=self.lane) as lane:
            lane.send(json.dumps(self.isolation.words).encode())
            while (asked := socket.recv_fds(lane, 4096, 2))[0]:
                limits, files, _, _ = asked
                lane.send(json.dumps(self.run(Limits(**json.loads(limits)), *files)).encode())
                for file in files:
                    os.close(file)

    def run(self, limits: Limits, task: int, record: int) -> tuple[str, float]:
        """Run the answer in file `task` in a child of its own; nothing of it is left but the file `record`.

        Returns why the child ended before its time, if it did, and the seconds it took.
        """
        start = time.monotonic()
        with make_scratch(self.isolation) as scratch:
            keeper = 0
            if self.isolation.root:  # the first process of a new namespace: no other can end it, and all end with it
                linux.call("unshare", linux.CLONE_NEWPID)
                quiet = [(os.POSIX_SPAWN_DUP2, 1, 2)]
                keeper = os.posix_spawnp("sleep", ["sleep", "100000"], {}, setsid=True, file_actions=quiet)
            pid = _fork((), self._be_child, limits, scratch, task, record)
            if keeper:
                linux.call("setns", self._namespace, linux.CLONE_NEWPID)
            try:
                ended = self._watch(pid, limits, start, scratch)
            finally:
                status = self._end(pid, keeper)
        return ended or why_it_ended(os.waitstatus_to_exitcode(status)), round(time.monotonic() - start, 4)

    def _be_child(self, limits: Limits, scratch: str, task: int, record: int) -> None:
        from course_utils.grading.sandbox.driver import record_answers

        os.setsid()
        with open(task, "rb", closefd=False) as file:
            given = json.load(file)
        os.dup2(1, 2)  # last words are not for answers
        os.dup2(record, 3)
        os.closerange(4, 4096)
        os.environ.update(HOME=scratch, TMPDIR=scratch)
        confine(self.isolation, limits, scratch)
        record_answers(3, **given)

    def _watch(self, pid: int, limits: Limits, start: float, scratch: str) -> str:
        child = os.pidfd_open(pid)
        try:
            while (left := limits.exercise - (time.monotonic() - start)) > 0:
                ready = select.select([child, self.lane], [], [], min(LOOK, left))[0]
                if child in ready:
                    return ""
                if ready:  # nothing is sent while a child runs, so it is the end
                    raise SystemExit("nobody waits for the result")
                others = _descendants()
                memory = sum(max(0, _own_memory(other) - self._baseline) for other in others)
                disk = 0 if self.isolation.root else _folder_bytes(scratch)
                processes = len(others) - self.isolation.root  # one of them is the keeper of the namespace
                if memory > limits.memory or disk > limits.disk or processes > limits.processes:
                    return TOO_MUCH
                self._make_way(pid, others)
                if sum(map(_processor_seconds, others)) > limits.exercise:
                    return TOO_LONG
            return TOO_LONG
        finally:
            os.close(child)

    @staticmethod
    def _make_way(pid: int, running: Sequence[dict[str, list[str]]]) -> None:
        """Let the neighbours' answers go before the processes that the answer in process `pid` has started."""
        depth = _namespace_depth()
        for other in [int(each["NSpid"][depth]) for each in running]:
            if other != pid:
                with contextlib.suppress(OSError):  # it has ended, or is another user's
                    os.setpriority(os.PRIO_PROCESS, other, LEAST_PRIORITY)

    def _end(self, pid: int, keeper: int) -> int:
        os.kill(keeper or pid, signal.SIGKILL)
        ended: dict[int, int] = {}
        while not ended.keys() >= {pid, keeper or pid}:  # a namespace ends when all in it are taken in, also those
            child, status = os.waitpid(-1, 0)  # that an answer has made children of this process
            ended[child] = status
        depth = _namespace_depth()
        while others := _descendants():
            for other in others:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(int(other["NSpid"][depth]), signal.SIGKILL)
                    os.waitpid(-1, os.WNOHANG)
        return ended[pid]


# The status of all processes that this one, or one of its children, has started.
def _descendants() -> list[dict[str, list[str]]]:
    running = [status for name in os.listdir("/proc") if name.isdigit() and (status := _status(name))]
    found = [_status("self")]
    for one in found:
        found += [each for each in running if each["PPid"] == one["Pid"]]
    return found[1:]


def _status(pid: str) -> dict[str, list[str]]:
    with contextlib.suppress(OSError):
        lines = Path("/proc", pid, "status").read_text(errors="replace").split("\n")
        return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    return {}


def _namespace_depth() -> int:
    # In which column of `NSpid` this process's own numbers are: the platform may give a namespace, but no /proc of it.
    return len(_status("self")["NSpid"]) - 1


def _processor_seconds(status: dict[str, list[str]]) -> float:
    # What a process and those of its children that have ended took of the processor.
    with contextlib.suppress(OSError):
        ticks = Path("/proc", *status["Pid"], "stat").read_text(errors="replace").rpartition(")")[2].split()[11:15]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _own_memory(status: dict[str, list[str]]) -> int:
    return sum(int(status[name][0]) * 1024 for name in ("RssAnon", "RssShmem") if name in status)


def _folder_bytes(folder: str) -> int:
    total = 0
    for path in [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]:
        with contextlib.suppress(OSError):
            total += os.lstat(path).st_blocks * 512
    return total


if __name__ == "__main__":
    sys.exit(main())
