"""The sandbox around an answer, from whatever the platform has; and the line that says what it had.

`enter_namespaces` and `close_root` are steps of the process that will fork (see `host`), `confine` of each child before
it meets an answer. What a platform refuses at first is in the line of the report; what fails in `confine` although it
was promised keeps the answer from running.
"""

import contextlib
import os
import secrets
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.grading.sandbox.own_folder import remove
from course_utils.grading.sandbox.tasks import Limits
from course_utils.root import ROOT

if sys.platform == "linux":
    from course_utils.grading.sandbox import linux

PACKAGE = ROOT / "course_utils"
HIDDEN = ("exercises", "grading", "lessons")  # its rooms that are in memory, and in whose files the answers are
PARTS = ("bin", "lib", "lib32", "lib64")  # of a Python's folder and of the system's
SYSTEM = tuple(folder + part for folder in ("/", "/usr/") for part in PARTS)
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
BUILD_PLACE = "/sys"  # a folder that every Linux has, and of which nothing is needed in the new root
SCRATCH = "/course-scratch"  # where an answer may write, in a root of its own; there, /tmp is a link to it
FIRST_USER, USERS, LANES = 60_001, 5_000, 256  # user ids that no account has; a host takes `LANES` of them


@dataclass
class Isolation:
    """What keeps an answer in: every part is there, or its name is in `lacking` with the platform's reason."""

    root: bool = False  # with namespaces of processes, network, mounts
    landlock: int = 0
    seccomp: bool = False
    user: int = 0  # the user id that children take; 0 if they keep the grader's
    lacking: list[str] = field(default_factory=list)
    limits: str = "memory, disk and processes"

    @property
    def words(self) -> str:
        parts = {
            f"a process for each exercise, deadlines, limits on {self.limits}": True,
            "its own processes, network (none), file system (read-only, without answers)": self.root,
            "a user without rights": self.user,
            f"Landlock {self.landlock}": self.landlock,
            "seccomp (no sockets, keys or memory of nobody)": self.seccomp,
        }
        words = f"isolation: {', '.join(part for part, there in parts.items() if there)}"
        missing = list(self.lacking)
        if not self.root and not self.seccomp:
            missing.append("a closed network (UDP is open)")
        return f"{words}; MISSING: {'; '.join(missing)}" if missing else words


def enter_namespaces() -> Isolation:
    """Take namespaces of one's own, as far as the platform lets; the processes forked from here on are in them.

    The caller must have a single thread, and has to fork once: its child is the first process of the new namespace.
    """
    found = Isolation(True, linux.landlock_version(), linux.can_forbid_calls())
    wanted = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    user, group = os.geteuid(), os.getegid()
    try:
        try:
            linux.call("unshare", wanted)
        except PermissionError:
            linux.call("unshare", wanted | linux.CLONE_NEWUSER)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        found.root = False
        found.lacking.append(f"namespaces ({error.strerror})")
    if not found.landlock:
        found.lacking.append("Landlock")
    if not found.seccomp:
        found.lacking.append("seccomp")
    return found


def process_isolation() -> Isolation:
    """What can be had in a process that has been started for one answer."""
    lacking = ["its own processes, file system and user", "let it run only what you would run yourself"]
    found = Isolation(lacking=lacking, limits="memory and files where there are such")
    if sys.platform == "linux":
        found.landlock, found.seccomp = linux.landlock_version(), linux.can_forbid_calls()
    return found


def close_root(isolation: Isolation) -> None:
    """Leave a root folder in which only Python and the system's libraries are, and find users without rights.

    The course must have been imported before: most of it is not there any more afterwards.
    """
    if isolation.root:
        try:
            linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
            build_root(BUILD_PLACE)
            linux.change_root(BUILD_PLACE)
        except OSError as error:
            isolation.root = False
            isolation.lacking.append(f"a file system of its own ({error.strerror})")
    if os.geteuid() != 0:
        return
    wanted = FIRST_USER + secrets.randbelow(USERS - LANES)
    pythons = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    folders = [folder for python in pythons for folder in (python, *python.parents)]
    mapped = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    if not any(first <= wanted and wanted + LANES <= first + count for first, _, count in mapped):
        isolation.lacking.append("a user without rights (a user namespace has only one)")
    elif not isolation.root and not all(folder.stat().st_mode & 0o005 == 0o005 for folder in folders):
        isolation.lacking.append("a user without rights (Python is in a private folder)")
    else:
        isolation.user = wanted


def readable() -> list[str]:
    """What an answer may read: this Python, its packages, the system's libraries, most of the course's own."""
    pythons = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    pythons = [os.path.join(python, part) for python in pythons for part in PARTS]
    pythons += [sys.executable, *site.getsitepackages(), sysconfig.get_path("stdlib")]
    own = [str(room) for room in PACKAGE.iterdir() if room.name not in HIDDEN]
    wanted = [*SYSTEM, *SYSTEM_FILES, *DEVICES, *map(os.path.realpath, pythons), *pythons, *own]
    found: list[str] = []
    for path in sorted(set(wanted), key=len):
        if os.path.lexists(path) and not any(path == one or path.startswith(one + "/") for one in found):
            found.append(path)
    return found


def build_root(folder: str) -> None:
    linux.mount("tmpfs", folder, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=1m")
    os.chmod(folder, 0o755)
    for path in readable():
        target = folder + path
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
        else:
            os.mkdir(target) if os.path.isdir(path) else Path(target).touch()
            linux.bind_read_only(path, target)
    for path in ("/proc", SCRATCH):
        os.mkdir(folder + path, 0o755)
    if not os.path.exists(folder + "/tmp"):  # a course or a Python may be in it
        os.symlink(SCRATCH, folder + "/tmp")
    linux.mount("proc", f"{folder}/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    linux.mount("", folder, flags=linux.MS_REMOUNT | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV)


def confine(isolation: Isolation, limits: Limits, scratch: str) -> None:
    """Give up, for good, all rights but those that an answer needs; `scratch` is the one folder to write to.

    Raises `OSError` if something that `isolation` promises cannot be had.
    """
    if isolation.root:
        linux.call("unshare", linux.CLONE_NEWNS)
        options = f"size={limits.disk},nr_inodes=4096,mode=777"
        linux.mount("tmpfs", scratch, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    os.chdir(scratch)
    limit_resources(limits, own_user=bool(isolation.user))
    if sys.platform != "linux":
        return
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if isolation.landlock:
        linux.restrict(_rules(isolation, scratch), isolation.landlock)
    if isolation.seccomp:
        linux.forbid_calls()
    if isolation.user:
        os.setgroups([])
        os.setresgid(isolation.user, isolation.user, isolation.user)
        os.setresuid(isolation.user, isolation.user, isolation.user)
    else:
        linux.drop_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 0)


def limit_resources(limits: Limits, own_user: bool = False) -> None:
    """Limit what the platform can: memory, files, and the processes of an `own_user`, who has no others."""
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = {"FSIZE": limits.disk, "NOFILE": 256, "CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0}
    if sys.platform == "linux":
        wanted["AS"] = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + limits.memory
    if own_user:
        wanted["NPROC"] = limits.processes
    for name, value in wanted.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):  # macOS lacks some, and refuses others
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (most, most))


def _rules(isolation: Isolation, scratch: str) -> dict[str, int]:
    own = {"/dev/null": linux.READ | linux.WRITE, scratch: linux.everything(isolation.landlock)}
    if isolation.root:  # nothing else is there
        return {"/": linux.READ, **own}
    shown = [*readable(), os.path.realpath("/proc/self")]
    return {str(PACKAGE): linux.READ_FOLDER, **dict.fromkeys(shown, linux.READ), **own}


@contextlib.contextmanager
def make_scratch(isolation: Isolation) -> Iterator[str]:
    """The folder in which an answer may write; empty, and gone after the block."""
    if isolation.root:
        yield SCRATCH
        return
    folder = tempfile.mkdtemp(prefix="course-scratch-")
    try:
        if isolation.user:
            os.chown(folder, isolation.user, isolation.user)
        yield folder
    finally:
        remove(folder)  # all that ran in it is dead
