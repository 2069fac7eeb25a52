"""Attempts to get out of the sandbox, made from inside it, and what the report says where it is not complete."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from course_utils.exercises import bare
from course_utils.exercises.declaration import LESSONS
from course_utils.exercises.engine import exercises_of, find
from course_utils.grading.sandbox import linux, walls
from course_utils.grading.sandbox.fork import ForkEngine, HostProcess
from course_utils.grading.sandbox.kernel import KernelEngine
from course_utils.grading.sandbox.tasks import MEBIBYTE, Limits, Task
from course_utils.grading.sandbox.walls import Isolation

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the fork engine needs Linux")
pytestmark = [pytest.mark.slow, linux_only]
SECRET = "the-key-of-this-test"
SEED = 271_828_182_845
LIMITS = Limits(exercise=10, memory=512 * MEBIBYTE, disk=16 * MEBIBYTE)


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A folder as the grader has one: submissions, a report with a key, another student's file."""
    folder = tmp_path_factory.mktemp("grader")
    for place in ("submissions/neighbour/lesson.ipynb", "report/run.json"):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).write_text(SECRET)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777)
    for parent in folder.parents:
        if os.stat(parent).st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    return folder


class InUserNamespace(ForkEngine):
    """As a user who is not root: rights in a user namespace only."""

    command = ("unshare", "--user", "--map-root-user", *HostProcess.command)


REFUSING = """
from course_utils.grading.sandbox import host, linux, walls
def refuse(*_):
    raise PermissionError(1, "Operation not permitted")
{} = refuse
host.main()
"""


class WithoutNamespaces(ForkEngine):
    """As in a container that forbids namespaces."""

    command = (sys.executable, "-c", REFUSING.format("linux.unshare"))


class WithoutARoot(ForkEngine):
    """As in a container that gives namespaces, but no file system and no /proc that belongs to them."""

    command = (sys.executable, "-c", REFUSING.format("walls.build_root"))


@pytest.fixture(
    scope="module",
    params=[ForkEngine, InUserNamespace, WithoutNamespaces, WithoutARoot],
    ids=lambda kind: kind.__name__,
)
def engine(request, outside):
    """What this platform has, and less."""
    if request.param is InUserNamespace and subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        pytest.skip("there are no user namespaces here")
    if request.param is not ForkEngine and not linux.landlock_version():
        pytest.skip("this kernel has no Landlock")
    with request.param([outside]) as made:
        made.wait_until_ready()
        yield made


def is_whole(engine):
    """Whether the engine has namespaces; the report's line says so."""
    return "its own processes" in engine.isolation


def run_inside(engine, body, **names):
    """What code returns that runs in the sandbox, in the place of an answer: any JSON value."""
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    source = (
        "import ctypes, gc, glob, json, os, signal, socket, stat, subprocess, sys, time\n"
        f"{given}def inside():\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
        "def largest(tensor):\n    return json.dumps(inside())\n"
    )
    (ran,) = engine.run([Task("largest", "", source, SEED)], LIMITS)
    assert not ran.ended, ran.ended
    record = json.loads(ran.record)
    assert record["raised"] is None, record["raised"]
    assert record["cases"][0]["raised"] is None, record["cases"][0]["raised"]
    return json.loads(record["cases"][0]["returned"]["value"])


TRY = """
found = []
def attempt(what, *arguments, **options):
    try:
        found.append(str(what(*arguments, **options)))
    except Exception:
        pass
"""


def attempts(engine, body, **names):
    """What succeeded of the `attempt`s in `body`."""
    return run_inside(engine, TRY + textwrap.dedent(body) + "\nreturn found", **names)


def test_no_file_of_the_grader_can_be_read(engine, outside):
    """Not by its path, not through another process, not by what is open, not through a link."""
    body = """
    attempt(open, "/dev/null")
    assert found, "code runs inside"
    for place in paths:
        attempt(os.listdir, place)
        attempt(lambda: open(place).read())
        os.symlink(place, "link" + str(len(place)))
        attempt(lambda: open("link" + str(len(place))).read())
        for way in ("/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/proc/self/cwd/../.."):
            attempt(lambda: open(way + place).read())
    for fd in os.listdir("/proc/self/fd"):
        attempt(lambda: os.listdir("/proc/self/fd/" + fd + "/.."))
    return [text for text in found if secret in text or "run.json" in text or "neighbour" in text]
    """
    paths = [str(path) for path in [outside, *outside.rglob("*")]]
    assert attempts(engine, body, paths=paths, secret=SECRET) == []


def test_the_answers_source_and_the_learners_notebooks_cannot_be_read(engine):
    body = "for place in paths:\n    attempt(lambda: open(place).read(100))"
    rooms = [walls.PACKAGE / room for room in ("exercises", "grading", "lessons")]
    secret = [path for room in rooms for path in (*room.rglob("*.py"), *room.rglob("*.pyc"))]
    secret += (walls.PACKAGE.parent / "notebooks").rglob("*.py")
    assert len(secret) > 40
    assert attempts(engine, body, paths=[str(path) for path in secret]) == []


def test_no_answer_is_in_the_memory_of_the_process(engine):
    """Neither as a function nor as its constants: the words of the mistakes, the code of the references."""
    body = """
    from course_utils.exercises.engine import exercises_of
    found = [each.name for each in exercises_of() if each.accepted or each.mistakes]
    texts = [one for one in gc.get_objects() if isinstance(one, (list, tuple, dict))]
    code = [constant for one in gc.get_objects() if hasattr(one, "__code__") for constant in one.__code__.co_consts]
    whole = repr(code) + repr([one for one in texts if len(one) < 50 and all(isinstance(part, str) for part in one)])
    return [len(exercises_of()), found, [text for text in wanted if text in whole]]
    """
    wanted = [mistake.message for exercise in exercises_of(1) for mistake in exercise.mistakes]
    assert run_inside(engine, body, wanted=wanted[1:]) == [len(exercises_of()), [], []]


def test_the_secret_of_the_seeds_is_nowhere(engine):
    """An answer can find the number that its own inputs come from; it is made for this exercise only."""
    body = """
    places = ["/proc/self/environ", "/proc/self/cmdline", "/proc/1/environ", "/proc/1/cmdline", "/proc/self/maps"]
    for place in places:
        attempt(lambda: open(place, "rb").read())
    return [text for text in [*found, *os.environ.values()] if secret in text or "--report" in text]
    """
    assert attempts(engine, body, secret=str(SEED)) == []


def test_nothing_can_be_written_but_the_scratch_folder(engine, outside):
    body = """
    known = ["/", "/usr", "/etc", "/proc", "/dev", "/var/tmp", "/dev/shm", "/proc/self"]
    for place in [*known, *paths, *filter(None, sys.path)]:
        attempt(lambda: open(os.path.join(place, "left-behind"), "w").close() or place)
        attempt(lambda: os.mkdir(os.path.join(place, "left-behind")) or place)
    for place in [*paths, sys.executable, os.__file__]:
        attempt(lambda: open(place, "a").close() or place)
        attempt(lambda: os.remove(place) or place)
        if whole:  # Landlock has no rule for permissions
            attempt(lambda: os.chmod(place, 0o777) or place)
    return found
    """
    written = attempts(engine, body, paths=[str(path) for path in outside.rglob("*")], whole=is_whole(engine))
    assert written == []
    assert (outside / "report" / "run.json").read_text() == SECRET
    home = "open('mine', 'w').write('x')\nreturn [open('mine').read(), os.getcwd() == os.environ['HOME']]"
    assert run_inside(engine, home) == ["x", True]
    assert run_inside(engine, "return os.listdir('.')") == [], "it is new for each answer"
    fill = """
    written = 0
    try:
        for number in range(100):
            with open("file" + str(number), "wb") as file:
                written += file.write(bytes(1_000_000))
    except OSError:
        pass
    return written
    """
    if is_whole(engine):
        assert 1_000_000 <= run_inside(engine, fill) <= LIMITS.disk


def test_nobody_answers_on_any_network(engine):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        body = """
        attempt(socket.create_connection, ("127.0.0.1", port), 2)
        attempt(socket.create_connection, ("1.1.1.1", 53), 2)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if whole:  # Landlock has no rule for UDP
            attempt(sender.sendto, b"hello", ("127.0.0.1", port))
            attempt(sender.sendto, b"hello", ("8.8.8.8", 53))
        attempt(socket.getaddrinfo, "example.org", 80)
        own = socket.socket()
        attempt(lambda: own.bind(("127.0.0.1", 0)) or own.listen())
        """
        assert attempts(engine, body, port=server.getsockname()[1], whole=is_whole(engine)) == []


def test_no_process_outside_can_be_seen_or_signalled(engine):
    body = """
    pids = []
    attempt(lambda: pids.extend(int(name) for name in os.listdir("/proc") if name.isdigit()))
    found.clear()
    for pid in [*range(2, 400), grader, os.getppid()]:
        if pid not in (0, os.getpid()):
            attempt(lambda: os.kill(pid, 0) or pid)
    return [pids, os.getpid(), found]
    """
    pids, own, signalled = run_inside(engine, TRY + textwrap.dedent(body), grader=os.getpid())
    assert signalled == []
    assert set(pids) == ({1, own} if is_whole(engine) else set()), "itself, and the first process of its namespace"


def test_no_right_can_be_had_back(engine):
    body = """
    libc = ctypes.CDLL(None)
    if os.getuid():
        attempt(os.setuid, 0)
        attempt(os.setgid, 0)
    attempt(os.chroot, "/")
    attempt(os.nice, -10)
    attempt(os.mknod, "device", stat.S_IFBLK | 0o666, os.makedev(254, 0))
    for flags in (0x10000000, 0x10020000, 0x20000000):
        if libc.unshare(flags) == 0 and libc.mount(b"tmpfs", b"/usr", b"tmpfs", 0, None) == 0:
            found.append("mounted after unshare " + hex(flags))
    if libc.ptrace(16, 1, None, None) == 0:
        found.append("ptrace")
    return found
    """
    assert attempts(engine, body) == []
    status = run_inside(engine, "return open('/proc/self/status').read()")
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status


def test_nothing_outlives_its_answer_and_a_host_that_dies_is_started_again(engine):
    body = """
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while True:
                    time.sleep(0.1)
            os._exit(0)
    time.sleep(0.2)
    """
    run_inside(engine, body)
    before = engine.host.pid
    below = psutil.Process(before).children(recursive=True)
    assert len(below) == 2, "the first process of the namespaces, and the lane"
    os.kill(before, signal.SIGKILL)
    time.sleep(0.1)
    (ran,) = engine.run([Task("largest", "", "def largest(t): return 1", 1)], LIMITS)
    assert "ended" in ran.ended
    assert engine.host.pid != before
    assert run_inside(engine, "return 1") == 1


def test_bare_exercises_have_the_same_cases(engine):
    """Each exercise, tried with an answer that does nothing, sees in the host what it sees here."""
    exercises = exercises_of()
    texts = {each.name: f"def {each.name}(*_, **__):\n    x = 1\n" for each in exercises}
    tasks = [Task(name, "", text, 5) for name, text in texts.items()]
    for each, ran in zip(exercises, engine.run(tasks, LIMITS), strict=True):
        namespace = {}
        exec(texts[each.name], namespace)
        given = [case["given"] for case in find(each.name).observe(namespace[each.name], 5)]
        assert [case["given"] for case in json.loads(ran.record)["cases"]] == given, each.name


def test_torchs_own_steps_are_no_answer_to_the_exercise_that_asks_for_them(engine):
    """Lesson 04's `MiniSteps` does five steps that are exercises too; where one is graded, it is not there."""
    support = "from course_utils.lessons.lesson_04 import MiniSteps\n"
    borrowed = "def run_pre_hooks(module, hooks, args):\n    return MiniSteps.run_pre_hooks(module, hooks, args)\n"
    call = "class MiniModule(MiniSteps):\n    def __call__(self, *args):\n        return self.run_pre_hooks({}, args)\n"
    tasks = [Task("run_pre_hooks", support, borrowed, 5), Task("MiniModule", support, call, 5)]
    first, second = (json.loads(ran.record)["cases"] for ran in engine.run(tasks, LIMITS))
    assert {case["raised"]["type"] for case in first} == {"NotImplementedError"}
    assert "NotImplementedError" not in {case["raised"]["type"] for case in second if case["raised"]}


# ------------------------------------------------------------------------------------------ less than everything


def test_what_is_missing_is_said():
    whole = Isolation(namespaces=True, root=True, landlock=7, user=60_001)
    assert "MISSING" not in whole.words
    less = replace(whole, namespaces=False, root=False, lacking=["namespaces (Operation not permitted)"])
    assert less.words.endswith("MISSING: namespaces (Operation not permitted)")
    assert "network" not in less.words
    assert "MISSING" in KernelEngine().isolation


def test_without_namespaces_landlock_hides_the_answers(outside):
    """What the kernel engine and a platform without namespaces rely on; in a child, because it cannot be undone."""
    if not linux.landlock_version():
        pytest.skip("this kernel has no Landlock")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        found = []
        try:
            scratch = outside / "scratch"
            scratch.mkdir()
            walls.confine(Isolation(landlock=linux.landlock_version()), LIMITS, str(scratch), [outside / "report"])
            for path in (LESSONS / "lesson_01.py", outside / "report" / "run.json", outside / "new"):
                try:
                    path.open("w" if path.name == "new" else "r").close()
                    found.append(path.name)
                except OSError:
                    pass
            import colorsys  # of the standard library: readable

            found.append(colorsys.__name__)
            (scratch / "mine").write_text("x")
            found.append("scratch")
        finally:
            os.write(write, json.dumps(found).encode())
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    assert json.loads(os.read(read, 10_000)) == ["colorsys", "scratch"]
    os.close(read)


def test_a_bare_lesson_has_its_exercises_and_no_answers():
    paths = sorted(LESSONS.glob("lesson_[0-9][0-9].py"))
    texts = {int(path.stem[-2:]): ast.unparse(bare.strip(path.read_text(encoding="utf-8"))) for path in paths}
    for exercise in exercises_of():
        text = texts[exercise.lesson]
        assert f"{exercise.name}(" in text or f"class {exercise.name}" in text
        assert not [mistake for mistake in exercise.mistakes if repr(mistake.message) in text]
        assert ".mistake(" not in text
        assert ".accept" not in text


def test_a_course_in_the_folder_for_temporary_files_is_seen_from_inside(monkeypatch):
    """There the scratch folder would hide it."""
    first, second = walls.SCRATCH
    for place, wanted in ((f"{first}/course/course_utils", second), (f"{first}orary", first)):
        monkeypatch.setattr(walls, "readable", lambda place=place: ["/usr", place])
        walls.choose_scratch.cache_clear()
        with walls.make_scratch(Isolation(root=True)) as scratch:
            assert scratch == wanted
    walls.choose_scratch.cache_clear()


def test_the_process_that_forks_has_huge_pages_and_goes_with_the_grader(outside):
    """What its children cost hangs on them; only a kernel that cannot join pages is an excuse."""
    probe = "from course_utils.grading.sandbox import linux\nkept = bytearray(64 << 20)\nprint(linux.join_pages())"
    joined = int(subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout)
    engine = ForkEngine([outside])
    engine.wait_until_ready()
    processes = psutil.Process(engine.host.pid).children(recursive=True)
    lines = [Path("/proc", str(one.pid), "smaps_rollup").read_text().splitlines() for one in processes]
    engine.close()
    assert psutil.wait_procs(processes, timeout=10)[1] == []
    if joined == 0:
        pytest.skip("this kernel joins no pages")
    for text in lines:
        (huge,) = [int(line.split()[1]) * 1024 for line in text if line.startswith("AnonHugePages:")]
        assert huge > 20 * linux.HUGE_PAGE
