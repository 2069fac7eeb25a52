"""The sandbox around an answer, from whatever the platform has; and the line that says what it had.

Two steps. `enter` is taken once, by the process that will fork (see `host`): namespaces, and a root folder in which
nothing is but Python, its packages without the course's answers, and the system's libraries, all read-only. `confine`
is taken by each child before it meets an answer: a scratch folder with a size cap, resource limits, a user without
rights, Landlock, seccomp. What a platform refuses to `enter` is in the line of the report; what fails in `confine`
although it was promised keeps the answer from running.
"""

import contextlib
import functools
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.grading.sandbox.tasks import Limits
from course_utils.root import ROOT

if sys.platform == "linux":
    from course_utils.grading.sandbox import linux

PACKAGE = ROOT / "course_utils"
HIDDEN = tuple(PACKAGE / room for room in ("exercises", "grading", "lessons"))  # in memory; in files are the answers
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
BUILD_PLACE = "/sys"  # a folder that every Linux has, and of which nothing is needed in the new root
SCRATCH = ("/tmp", "/scratch")  # where an answer may write, in a root of its own: the first that nothing else is in
FIRST_USER, USERS, LANES = 60_001, 5_000, 256  # user ids that no account has; a lane has one of its own


@dataclass
class Isolation:
    """What keeps an answer in: every part is there, or its name is in `lacking` with the platform's reason."""

    namespaces: bool = False
    landlock: int = 0
    seccomp: bool = False
    user: int = 0  # the user id that children take; 0 if they keep the grader's
    root: bool = False
    lacking: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        """The line of the report."""
        parts = {
            "a process for each exercise, deadlines, limits on memory, disk and processes": True,
            "its own processes, network (none), file system (read-only, without answers)": self.namespaces,
            "a user without rights": self.user,
            f"Landlock {self.landlock}": self.landlock,
            "seccomp": self.seccomp,
        }
        lacking = f"; MISSING: {'; '.join(self.lacking)}" if self.lacking else ""
        return f"isolation: {', '.join(part for part, there in parts.items() if there)}{lacking}"


def enter_namespaces() -> Isolation:
    """Take namespaces of one's own, as far as the platform lets; the processes forked from here on are in them.

    The caller must have a single thread, and has to fork once: its child is the first process of the new namespace.
    """
    found = Isolation()
    wanted = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    user, group = os.geteuid(), os.getegid()
    try:
        try:
            linux.unshare(wanted)
        except PermissionError:
            linux.unshare(wanted | linux.CLONE_NEWUSER)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        found.namespaces = True
    except OSError as error:
        found.lacking.append(f"namespaces ({error.strerror})")
    found.landlock = linux.landlock_version()
    if not found.landlock:
        found.lacking.append("Landlock")
    found.seccomp = linux.can_forbid_calls()
    if not found.seccomp:
        found.lacking.append("seccomp")
    return found


def close_root(isolation: Isolation, hidden: Sequence[Path]) -> None:
    """Leave a root folder in which only Python and the system's libraries are.

    The course must have been imported before: `HIDDEN` and `hidden` are not there any more afterwards.
    """
    if isolation.namespaces:
        try:
            linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
            build_root(BUILD_PLACE, [*HIDDEN, *hidden])
            linux.change_root(BUILD_PLACE)
            isolation.root = True
        except OSError as error:
            isolation.namespaces = False
            isolation.lacking.append(f"a file system of its own ({error.strerror})")
    if os.geteuid() == 0:
        isolation.user = _free_user(isolation)


def _free_user(isolation: Isolation) -> int:
    # The first of `LANES` user ids that no other sandbox here has; 0 if this process may not give them to children.
    wanted = FIRST_USER + int.from_bytes(os.urandom(4), "big") % (USERS - LANES)
    pythons = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    folders = [folder for python in pythons for folder in (python, *python.parents)]
    mapped = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    if not any(first <= wanted and wanted + LANES <= first + count for first, _, count in mapped):
        isolation.lacking.append("a user without rights (a user namespace has only one)")
    elif not isolation.root and not all(folder.stat().st_mode & 0o005 == 0o005 for folder in folders):
        isolation.lacking.append("a user without rights (Python is in a private folder)")
    else:
        return wanted
    return 0


def readable() -> list[str]:
    """What an answer may read: this Python, its packages, the system's libraries, devices without memory."""
    pythons = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), sysconfig.get_path("stdlib")]
    wanted = [*SYSTEM, *SYSTEM_FILES, *DEVICES, *map(os.path.realpath, pythons), *pythons, str(PACKAGE)]
    found: list[str] = []
    for path in sorted(set(wanted), key=len):
        if os.path.lexists(path) and not any(path == one or path.startswith(one + "/") for one in found):
            found.append(path)
    return found


def build_root(folder: str, hidden: Sequence[Path]) -> None:
    linux.mount("tmpfs", folder, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=1m")
    os.chmod(folder, 0o755)
    for path in readable():
        target = folder + path
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            continue
        os.mkdir(target) if os.path.isdir(path) else Path(target).touch()
        if path in DEVICES:
            linux.mount(path, target, flags=linux.MS_BIND)
        else:
            linux.bind_read_only(path, target)
    for path in hidden:
        target = folder + os.path.realpath(path)
        if os.path.isdir(target):
            linux.mount("tmpfs", target, "tmpfs", linux.MS_RDONLY, "size=4k,mode=755")
        elif os.path.exists(target):
            linux.mount("/dev/null", target, flags=linux.MS_BIND)
    for path in ("/proc", choose_scratch()):
        os.mkdir(folder + path, 0o755)
    linux.mount("proc", f"{folder}/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    linux.mount("", folder, flags=linux.MS_REMOUNT | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV)


def confine(isolation: Isolation, limits: Limits, scratch: str, hidden: Sequence[Path] = ()) -> None:
    """Give up, for good, all rights but those that an answer needs; `scratch` is the one folder to write to.

    Raises `OSError` if something that `isolation` promises cannot be had.
    """
    if isolation.root:
        linux.unshare(linux.CLONE_NEWNS)
        options = f"size={limits.disk},nr_inodes=4096,mode=777"
        linux.mount("tmpfs", scratch, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    os.chdir(scratch)
    limit_resources(limits, own_user=bool(isolation.user))
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if isolation.landlock:
        linux.restrict(_rules(isolation, scratch, hidden), isolation.landlock)
    if isolation.seccomp:
        linux.forbid_calls()
    if isolation.user:
        os.setgroups([])
        os.setresgid(isolation.user, isolation.user, isolation.user)
        os.setresuid(isolation.user, isolation.user, isolation.user)
    else:
        linux.drop_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 0)


def confine_kernel(folders: Sequence[Path], limits: Limits) -> None:
    """What can be had in a kernel that runs already: limits and, for the thread that runs the cells, Landlock."""
    limit_resources(limits)
    if sys.platform != "linux":
        return
    if version := linux.landlock_version():
        isolation = Isolation(landlock=version)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        everything = linux.everything(version)
        linux.restrict(_rules(isolation, os.getcwd(), ()) | {str(one): everything for one in folders}, version)


def kernel_words() -> str:
    """The line of the report for the kernel engine."""
    version = linux.landlock_version() if sys.platform == "linux" else 0
    files = f", Landlock {version} for the thread that runs the cells" if version else ""
    return (
        f"isolation: a kernel for each exercise, deadlines, limits on memory and files where there are such{files}; "
        "MISSING: its own processes, network, file system and user; let it run only what you would run yourself"
    )


def limit_resources(limits: Limits, own_user: bool = False) -> None:
    """Limit memory, the size of files and open files, where the platform knows such limits.

    Processes only for an `own_user`: the limit counts all that the user has.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    now = None
    if sys.platform == "linux":
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    wanted = {
        "RLIMIT_AS": now and now + limits.memory,
        "RLIMIT_FSIZE": limits.disk,
        "RLIMIT_NOFILE": 256,
        "RLIMIT_NPROC": limits.processes if own_user else None,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    for name, value in wanted.items():
        kind = getattr(resource, name, None)
        if kind is not None and value is not None:
            hard = resource.getrlimit(kind)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            with contextlib.suppress(ValueError, OSError):  # macOS refuses some limits
                resource.setrlimit(kind, (most, most))


def _rules(isolation: Isolation, scratch: str, hidden: Sequence[Path]) -> dict[str, int]:
    write_null = linux.READ | (1 << 1)
    everything = linux.everything(isolation.landlock)
    if isolation.root:  # nothing else is there
        return {"/": linux.READ, "/dev/null": write_null, scratch: everything}
    rules = dict.fromkeys(_spare([*HIDDEN, *hidden]), linux.READ)
    above = {str(parent) for path in HIDDEN for parent in path.parents} & set(readable())
    folders = dict.fromkeys(sorted(above), linux.READ_FOLDER)
    own = {os.path.realpath("/proc/self"): linux.READ, "/dev/null": write_null, scratch: everything}
    return folders | rules | own


def _spare(hidden: Sequence[Path]) -> Iterator[str]:
    secret = [os.path.realpath(path) for path in hidden]

    def walk(path: str) -> Iterator[str]:
        real = os.path.realpath(path)
        if any(real == one or real.startswith(one + "/") for one in secret) or not os.path.exists(path):
            return
        if not any(one.startswith(real + "/") for one in secret):
            yield path
        else:
            for name in os.listdir(path):
                yield from walk(os.path.join(path, name))

    for path in readable():
        yield from walk(path)


@contextlib.contextmanager
def make_scratch(isolation: Isolation) -> Iterator[str]:
    """The folder in which an answer may write; empty, and gone after the block."""
    if isolation.root:
        yield choose_scratch()
        return
    with tempfile.TemporaryDirectory(prefix="course-scratch-", ignore_cleanup_errors=True) as folder:
        if isolation.user:
            os.chown(folder, isolation.user, isolation.user)
        yield folder


@functools.cache
def choose_scratch() -> str:
    """Where the scratch folder is in a root of its own: not where it would hide a course or a Python."""
    needed = readable()
    return next(place for place in SCRATCH if not any(path.startswith(place + "/") for path in needed))
