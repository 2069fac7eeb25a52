"""The Linux calls that Python lacks (before 3.12), and nothing else: namespaces, mounts, Landlock, seccomp and such.

Each function raises `OSError` with the kernel's own words where the platform refuses. What they are used for is in
`walls`.
"""

import ctypes
import errno
import os
import platform
import struct
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 1 << 17, 1 << 26, 1 << 27
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 1 << 28, 1 << 29, 1 << 30
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38

HUGE_PAGE = 2 << 20  # bytes
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    found = getattr(_libc, name)(*arguments)
    if found == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return found


def unshare(flags: int) -> None:
    """Give this process (or, for `CLONE_NEWPID`, its next children) namespaces of its own."""
    _call("unshare", flags)


def setns(fd: int, kind: int) -> None:
    """Enter the namespace that `fd` stands for."""
    _call("setns", fd, kind)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount `source` of file system `kind` at `target`."""
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    _call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def bind_read_only(source: str, target: str) -> None:
    """Show the file or folder `source`, with what is mounted in it, at `target`, and let nobody write there."""
    mount(source, target, flags=MS_BIND | MS_REC)
    kept = os.statvfs(source).f_flag & (MS_NODEV | MS_NOEXEC)  # a user namespace may not drop what its parent has set
    mount("", target, flags=kept | MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID)


def change_root(new: str) -> None:
    """Make `new`, a mount point, the root of the file system, and let go of everything else."""
    os.chdir(new)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def prctl(option: int, value: int, more: int = 0) -> None:
    """Set an attribute of this process."""
    _call("prctl", option, *map(ctypes.c_ulong, (value, more, 0, 0)))


def drop_capabilities() -> None:
    """Give up every privilege that this process has in its user namespace."""
    header = struct.pack("Ii", 0x2008_0522, 0)
    _call("capset", header, bytes(24))


def join_pages() -> int:
    """Put what this process has written into huge pages, and return how many; for a process that will fork often.

    A fork copies an entry for each page, and the end of the child gives each back: with torch in memory, most of what
    a short child costs. Kernels that cannot (before Linux 6.1) leave the pages as they are, and the answer is 0.
    """
    joined = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, _, *name = line.split()
        if rights != "rw-p" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(address, 16) for address in addresses.split("-"))
        for place in range(-(-start // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
            page = ctypes.c_void_p(place), ctypes.c_size_t(HUGE_PAGE)
            _libc.madvise(*page, _MADV_HUGEPAGE)
            joined += _libc.madvise(*page, _MADV_COLLAPSE) == 0
    return joined


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the numbers are the same on every processor
_FS_ACTIONS = {1: 13, 2: 14, 3: 15, 5: 16}  # by version of Landlock: how many kinds of access to files it knows
READ, WRITE = (1 << 0) | (1 << 2) | (1 << 3), 1 << 1  # execute, read a file, read a folder; write to a file
READ_FOLDER = 1 << 3
_FILE_ONLY = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
_BOTH = 0b11  # TCP: bind and connect; what is outside: abstract sockets and signals


def landlock_version() -> int:
    """The version of Landlock that the kernel offers; 0 for none."""
    found = _libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, found)


def everything(version: int) -> int:
    """All kinds of access to files that this version of Landlock can forbid."""
    return (1 << max(count for since, count in _FS_ACTIONS.items() if since <= version)) - 1


def restrict(rules: dict[str, int], version: int) -> None:
    """Forbid this process, for good, all access to files but `rules` (path: kinds of access), all TCP, and signals

    and abstract sockets to the outside. `PR_SET_NO_NEW_PRIVS` must be set.
    """
    handled = everything(version)
    attributes = [handled] + [_BOTH] * ((version >= 4) + (version >= 6))
    packed = struct.pack(f"{len(attributes)}Q", *attributes)
    ruleset = _call("syscall", ctypes.c_long(_CREATE_RULESET), packed, ctypes.c_size_t(len(packed)), ctypes.c_uint32(0))
    for path, allowed in rules.items():
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:  # somebody has removed it since
            continue
        mask = handled if os.path.isdir(path) else handled & _FILE_ONLY
        rule = struct.pack("=Qi", allowed & mask, fd)
        _call("syscall", ctypes.c_long(_ADD_RULE), ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(fd)
    _call("syscall", ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


# System calls by their numbers, on x86_64 and on aarch64, that no answer needs. Most reach past the namespaces: keys,
# memory that belongs to no process so that no limit counts it, what outlives everybody; or they are ways to them.
_AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_REFUSED = {
    "keys": ("248-250", "217-219"),
    "System V's shared memory, semaphores and messages": ("29-31 64-71 220", "186-197"),
    "message queues": ("240-245", "180-185"),
    "memory without a process": ("319 447", "279 447"),
    "sockets, other than pairs": ("41", "198"),
    "io_uring": ("425-427", "425-427"),
    "mounts": ("155 161 165-166 428-433 442", "39-41 51 428-433 442"),
    "namespaces": ("272 308", "97 268"),
    "other processes": ("101 310-312 438", "117 270-272 438"),
    "files by handle, memory by fault": ("303-304 323", "264-265 282"),
    "programs and counters in the kernel": ("246 298 313 320-321", "104 241 273 280 294"),
    "the machine": ("103 159 163-164 167-169 172-176 179 227 305", "60 89 105-106 112 116 142 170-171 224-225 266"),
}
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000 | errno.EPERM
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_FOREIGN = 0x4000_0000  # x86: system calls of another convention have numbers from here on


def can_forbid_calls() -> bool:
    """Whether `forbid_calls` knows this processor, and the kernel filters system calls."""
    return platform.machine() in _AUDIT_ARCH and Path("/proc/sys/kernel/seccomp/actions_avail").exists()


def forbid_calls() -> None:
    """Refuse this process, for good, the system calls in `_REFUSED`. `PR_SET_NO_NEW_PRIVS` must be set."""
    which = list(_AUDIT_ARCH).index(platform.machine())
    ranges = [each.split("-") for numbers in _REFUSED.values() for each in numbers[which].split()]
    numbers = [number for each in ranges for number in range(int(each[0]), int(each[-1]) + 1)]
    steps = [(_LOAD, 0, 0, 4), (_JUMP_IF_EQUAL, 0, len(numbers) + 3, _AUDIT_ARCH[platform.machine()])]
    steps += [(_LOAD, 0, 0, 0), (_JUMP_IF_AT_LEAST, len(numbers) + 1, 0, _FOREIGN)]
    steps += [(_JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(program)))
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))
