"""Attempts to get out of the sandbox, made from inside it, and what the report says where it is not complete."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from course_utils.exercises.engine import exercises_of
from course_utils.grading.grade import run
from course_utils.grading.sandbox import host, linux, walls
from course_utils.grading.sandbox.fork import ForkEngine, HostProcess
from course_utils.grading.sandbox.tasks import BLAMED, MEBIBYTE, NOT_BEGUN, Limits, Task
from course_utils.grading.sandbox.walls import Isolation
from course_utils.root import ROOT, CourseError

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the fork engine needs Linux")
pytestmark = [pytest.mark.slow, linux_only]
SECRET = "the-key-of-this-test"
SEED = 271_828_182_845
LIMITS = Limits(exercise=30, memory=512 * MEBIBYTE, disk=16 * MEBIBYTE)
PARTS = Path(__file__).with_name("hostile").joinpath("escapes.txt").read_text().split("## ")[1:]
ESCAPES = dict(part.split("\n", 1) for part in PARTS)
REFUSING = """
from course_utils.grading.sandbox import host, linux, walls
call = linux.call
def refuse(name, *arguments):
    if name in ("unshare", walls.BUILD_PLACE):
        raise PermissionError(1, "Operation not permitted")
    return call(name, *arguments)
{} = refuse
host.main()
"""
WHOLE = "all that this platform has"
COMMANDS = {
    WHOLE: HostProcess.command,
    "a user who is not root, with rights in a user namespace only": ("unshare", "-Ur", *HostProcess.command),
    "a container that forbids namespaces": (sys.executable, "-c", REFUSING.format("linux.call")),
    "namespaces, but no file system and /proc of theirs": (sys.executable, "-c", REFUSING.format("walls.build_root")),
}


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


@pytest.fixture(scope="module", params=COMMANDS)
def engine(request, outside):
    """What this platform has, and less."""
    command = COMMANDS[request.param]
    if "unshare" in command and subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        pytest.skip("there are no user namespaces here")
    if request.param != WHOLE and not linux.landlock_version():
        pytest.skip("this kernel has no Landlock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostProcess, "command", command)
        with ForkEngine() as made:
            yield made


TRY = """
found = []
def attempt(what, *arguments, **options):
    try:
        found.append(str(what(*arguments, **options)))
    except Exception:
        pass
"""


def run_inside(engine, body, **names):
    """What code returns that runs in the sandbox, in the place of an answer: any JSON value, or its `attempt`s."""
    source = "import ctypes, gc, glob, json, os, signal, socket, stat, subprocess, sys, time\n"
    source += "".join(f"{name} = {value!r}\n" for name, value in names.items())
    source += f"def inside():\n{textwrap.indent(TRY + textwrap.dedent(body), '    ')}\n    return found\n"
    source += "def largest(tensor, told=[]):\n    told or told.append(json.dumps(inside()))\n    return told[0]\n"
    (ran,) = engine.run([Task({"largest": SEED}, (), source)], LIMITS)
    assert not ran.ended, ran.ended
    record = json.loads(ran.record)
    assert (record["raised"], record["cases"][0]["raised"]) == (None, None)
    return json.loads(record["cases"][0]["returned"]["value"])


EARLIER = "the answer that was handed in before this one"


def secret_pieces():
    """What no memory may hold: by its first letters, its length and its digest, so that who looks does not hold it.

    Of each answer of the course the longest line that stands nowhere else in the package, and some of the hints and
    mistakes.
    """
    public = [*walls.PACKAGE.rglob("*.py"), *walls.PACKAGE.glob("assets/sealed_*.json")]
    known = "".join(path.read_text() for path in public)
    secrets = [EARLIER]
    for exercise in exercises_of()[::3]:
        lines = [line.strip() for line in exercise.page.answers[0].splitlines()[1:]]
        secrets += [max(lines, key=lambda line: (line not in known) * len(line))]
        secrets += [exercise.all_hints[-1], exercise.mistakes[0].message] if exercise.lesson == 0 else []
    for secret in (each.encode() for each in secrets if len(each) > 24 and each not in known):
        yield secret[:20].decode(errors="ignore"), len(secret), hashlib.sha256(secret).hexdigest()


@pytest.fixture(scope="module")
def known(outside):
    """What an answer may know of the place that it is kept in: the names that `escapes.txt` uses."""
    rooms = [walls.PACKAGE / room for room in ("exercises", "grading", "lessons")]
    answers = [path for room in rooms for ending in ("py", "pyc", "md") for path in room.rglob(f"*.{ending}")]
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield {
            "answers": [str(path) for path in (*answers, *(walls.PACKAGE.parent / "notebooks").rglob("*.py"))],
            "grader": os.getpid(),
            "pieces": list(secret_pieces()),
            "mistakes": [mistake.message for exercise in exercises_of(1) for mistake in exercise.mistakes][1:],
            "names": [exercise.name for exercise in exercises_of()],
            "paths": [str(path) for path in [outside, *outside.rglob("*")]],
            "port": server.getsockname()[1],
            "secret": SECRET,
            "seed": str(SEED),
        }


@pytest.mark.parametrize("name", ESCAPES)
def test_no_answer(name, engine, known):
    engine.run([Task({"largest": SEED}, (), f"def largest(tensor):\n    return {EARLIER!r}\n")], LIMITS)
    assert run_inside(engine, ESCAPES[name], **known, whole="its own processes" in engine.host.words) == []


def test_the_scratch_folder_is_new_for_each_answer_and_has_a_size(engine, outside):
    assert (outside / "report" / "run.json").read_text() == SECRET
    home = "open('mine', 'w').write('x')\nreturn [open('mine').read(), os.getcwd() == os.environ['HOME']]"
    assert run_inside(engine, home) == ["x", True]
    assert run_inside(engine, "return os.listdir('.')") == []
    fill = "for n in range(99): attempt(lambda: open(str(n), 'wb').write(bytes(10**6)))\nreturn sum(map(int, found))"
    if "its own processes" in engine.host.words:
        assert 1_000_000 <= run_inside(engine, fill) <= LIMITS.disk


def test_nothing_outlives_its_answer(engine):
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
    below = psutil.Process(engine.host.process.pid).children(recursive=True)
    assert len(below) == 3, "the first process of the namespaces, the lane, and who makes the key"


def test_further_processes_of_an_answer_give_way_to_the_neighbours(engine):
    """Each says its own priority after the host has looked at least once."""
    body = """
    reader, writer = os.pipe()
    for _ in range(5):
        if os.fork() == 0:
            time.sleep(1)
            os.write(writer, f"{os.nice(0)} ".encode())
            os._exit(0)
    for _ in range(5):
        os.wait()
    return [os.nice(0), os.read(reader, 100).decode()]
    """
    assert run_inside(engine, body) == [os.nice(0), "19 " * 5]


def test_what_processes_took_of_the_processor_is_counted():
    begun = time.process_time()
    while time.process_time() < begun + 0.3:
        pass
    assert host._processor_seconds(host._status("self")) == pytest.approx(sum(os.times()[:4]), abs=1.0)
    assert host._processor_seconds({"Pid": ["0"]}) == 0.0, "one that has ended"


DYING = "import os, sys\nfrom course_utils.grading.sandbox import host\ndef die(*_):\n    {1}\n{0} = die\nhost.main()"
RIGHT = Task({"largest": SEED}, (), "def largest(tensor):\n    return tensor.max().item()\n")


@pytest.mark.parametrize(
    ("place", "how", "words"),
    [
        ("sys.stdin", "pass\nos.kill(os.getpid(), 9)", "it ended with the status -9"),
        ("host.close_root", "raise RuntimeError('in the first process')", "in the first process"),
        ("host.Host.run", "os.kill(os.getpid(), 9)", "signal 9 ended a process of it"),
        ("host.confine", "raise OSError('No space left on device')", NOT_BEGUN),
    ],
)
def test_a_host_that_dies_says_why_and_no_answer_is_blamed(place, how, words, monkeypatch):
    monkeypatch.setattr(HostProcess, "command", (sys.executable, "-c", DYING.format(place, how)))
    with ForkEngine() as engine:
        try:
            said = engine.run([RIGHT])[0].ended
        except CourseError as error:
            said = str(error)
    assert (words in said, said in BLAMED) == (True, False), said


def test_a_host_that_dies_at_its_start_is_started_again_and_goes_with_the_grader_and_its_huge_pages(monkeypatch):
    """None hangs on the thread that started it. What children cost hangs on pages; some kernels cannot join them."""
    probe = "from course_utils.grading.sandbox import linux\nkept = bytearray(64 << 20)\nlinux.join_pages()\n"
    probe += "print(open('/proc/self/smaps_rollup').read())"
    joined = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(HostProcess, "command", COMMANDS[WHOLE])
    with ThreadPoolExecutor(1) as pool:
        engine = pool.submit(ForkEngine, lanes=2).result()
    with engine:
        os.kill(first := engine.host.process.pid, signal.SIGKILL)
        with ThreadPoolExecutor(2) as pool:
            found = [ran for each in [pool.submit(engine.run, [RIGHT]) for _ in range(2)] for ran in each.result()]
        processes = psutil.Process(engine.host.process.pid).children(recursive=True)
        texts = [Path("/proc", str(one.pid), "smaps_rollup").read_text() for one in processes]
    assert engine.host.process.pid != first
    assert [(ran.ended, json.loads(ran.record)["raised"]) for ran in found] == [("", None)] * 2
    assert psutil.wait_procs(processes, timeout=10)[1] == []
    can_join, *huge = (int(text.partition("AnonHugePages:")[2].split()[0]) >> 10 for text in [joined, *texts])
    assert can_join == 0 or sorted(huge)[1] > 40, "all but who makes the key, which is forked before; in MiB"


def test_torchs_own_steps_are_no_answer_to_the_exercise_that_asks_for_them(engine):
    """Lesson 04's `MiniSteps` does five steps that are exercises too; where one is graded, it is not there."""
    support = "from course_utils.lessons.lesson_04 import MiniSteps\n"
    borrowed = "def run_pre_hooks(module, hooks, args):\n    return MiniSteps.run_pre_hooks(module, hooks, args)\n"
    call = "class MiniModule(MiniSteps):\n    def __call__(self, *args):\n        return self.run_pre_hooks({}, args)\n"
    tasks = [Task({"run_pre_hooks": 5}, [support], borrowed), Task({"MiniModule": 5}, [support], call)]
    first, second = (json.loads(ran.record)["cases"] for ran in engine.run(tasks, LIMITS))
    assert {case["raised"]["type"] for case in first} == {"NotImplementedError"}
    assert "NotImplementedError" not in {case["raised"]["type"] for case in second if case["raised"]}


def test_an_answer_may_use_what_its_lesson_imports_from_the_lessons_room(engine):
    text = "".join(path.read_text() for path in (ROOT / "notebooks" / "source").glob("*.py"))
    found = {*re.findall(r"^from (course_utils\.lessons\.(?!lesson_)\w+) import", text, re.M)}
    support = "".join(f"import {name}\n" for name in found - {"course_utils.lessons.side_by_side"})
    answer = "def scale_gradient(tensor, factor):\n    return tensor.register_hook(lambda grad: grad * factor)\n"
    (ran,) = engine.run([Task({"scale_gradient": 5}, [support], answer)], LIMITS)
    record = json.loads(ran.record)
    assert ("patient" in support, record["lost"], record["raised"]) == (True, [], None)


def test_what_is_missing_is_said():
    whole = Isolation(root=True, landlock=7, user=60_001)
    assert "MISSING" not in whole.words
    less = replace(whole, root=False, lacking=["namespaces (Operation not permitted)"])
    assert less.words.endswith("MISSING: namespaces (Operation not permitted); a closed network (UDP is open)")
    assert replace(less, seccomp=True).words.endswith("MISSING: namespaces (Operation not permitted)")
    assert "MISSING" in walls.process_isolation().words


INSIDE = """
import os, sys
from course_utils.grading.sandbox import walls
shown = [path for path in walls.readable() if not path.startswith("/tmp/")] + sys.argv[1:]  # this clone may be there
walls.readable = lambda: shown
isolation = walls.enter_namespaces()
if os.fork() == 0:
    walls.close_root(isolation)
    print(isolation.root and [os.path.realpath("/tmp"), *map(os.listdir, sys.argv[1:])], flush=True)
    os._exit(0)
os.wait()
"""


def test_files_that_vanish_meanwhile_cost_no_wall():
    code = "from course_utils.grading.sandbox import linux\nlinux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)\n"
    code += "linux.restrict({'/': linux.READ, '/gone': linux.READ}, linux.landlock_version())\nopen('/dev/null', 'w')"
    ran = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert not linux.landlock_version() or "PermissionError" in ran.stderr


def test_a_course_in_the_folder_for_temporary_files_is_seen_from_inside():
    """Where none is, that folder is the one that an answer may write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as course:
        Path(course, "mine").touch()
        for given, wanted in (([course], ["/tmp", ["mine"]]), ([], [walls.SCRATCH])):
            command = [sys.executable, "-c", INSIDE, *given]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            if said == "False\n":
                pytest.skip("there are no namespaces here")
            assert said == f"{wanted}\n"


def test_a_course_below_the_systems_folders_is_not_graded_there(monkeypatch, tmp_path):
    assert {"/", "/usr", "/usr/local", str(ROOT), str(walls.PACKAGE)}.isdisjoint(walls.readable())
    monkeypatch.setattr(walls, "SYSTEM", (str(ROOT),))
    with pytest.raises(CourseError, match=f"{ROOT} is in a library's folder"):
        run(tmp_path, tmp_path / "report")


def test_a_scratch_folder_goes_with_all_that_is_in_it_and_no_link_is_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o500)
    with walls.make_scratch(Isolation()) as scratch:
        Path(scratch, "link").symlink_to(kept)
        Path(scratch, "closed", "inside").mkdir(parents=True)
        Path(scratch, "closed").chmod(0)
    assert not Path(scratch).exists()
    assert kept.stat().st_mode & 0o777 == 0o500
