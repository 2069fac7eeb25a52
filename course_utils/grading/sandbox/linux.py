"""The Linux calls that Python lacks (before 3.12), and nothing else: namespaces, mounts, Landlock, seccomp and such.

Each function raises `OSError` with the kernel's own words where the platform refuses. `walls` uses them.
"""

import ctypes
import errno
import json
import os
import platform
import struct
from pathlib import Path

from course_utils.root import ASSETS

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 1 << 17, 1 << 26, 1 << 27
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 1 << 28, 1 << 29, 1 << 30
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38

_MADV_COLLAPSE = 25

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library, such as `unshare`."""
    found = getattr(_libc, name)(*arguments)
    if found == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return found


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount `source` of file system `kind` at `target`."""
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def bind_read_only(source: str, target: str) -> None:
    """Show the file or folder `source`, with what is mounted in it, at `target`, and let nobody write there."""
    mount(source, target, flags=MS_BIND | MS_REC)
    kept = os.statvfs(source).f_flag & (MS_NODEV | MS_NOEXEC)  # a user namespace may not drop what its parent has set
    mount("", target, flags=kept | MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID)


def change_root(new: str) -> None:
    """Make `new`, a mount point, the root of the file system, and let go of everything else."""
    os.chdir(new)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def prctl(option: int, value: int, more: int = 0) -> None:
    call("prctl", option, *map(ctypes.c_ulong, (value, more, 0, 0)))


def drop_capabilities() -> None:
    """Give up every privilege that this process has in its user namespace."""
    header = struct.pack("Ii", 0x2008_0522, 0)
    call("capset", header, bytes(24))


def join_pages() -> None:
    """Put what this process has written into huge pages, if the kernel can (since Linux 6.1).

    A fork copies an entry for each page, and its end gives each back: most of what a short child of torch costs.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, _, *name = line.split()
        if rights == "rw-p" and name in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in addresses.split("-"))
            _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_COLLAPSE)


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the numbers are the same on every processor
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
    return (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1


def restrict(rules: dict[str, int], version: int) -> None:
    """Forbid this process, for good, access to files but for `rules` (path: kinds), TCP, signals, abstract sockets.

    `PR_SET_NO_NEW_PRIVS` must be set.
    """
    handled = everything(version)
    attributes = [handled]
    if version >= 4:
        attributes.append(_BOTH)
    if version >= 6:
        attributes.append(_BOTH)
    packed = struct.pack(f"{len(attributes)}Q", *attributes)
    ruleset = call("syscall", ctypes.c_long(_CREATE_RULESET), packed, ctypes.c_size_t(len(packed)), ctypes.c_uint32(0))
    for path, allowed in rules.items():
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:  # somebody has removed it since
            continue
        mask = handled if os.path.isdir(path) else handled & _FILE_ONLY
        rule = struct.pack("=Qi", allowed & mask, fd)
        call("syscall", ctypes.c_long(_ADD_RULE), ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(fd)
    call("syscall", ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


_SECCOMP = json.loads((ASSETS / "seccomp.json").read_text(encoding="utf-8"))  # what no answer needs, by machine
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000 | errno.EPERM
_NOT_THERE = 0x0005_0000 | errno.ENOSYS
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_MACHINE, _NUMBER, _FIRST_ARGUMENT = 4, 0, 16  # where they are in what a filter is given
_CLONE3 = 435  # on every processor; its flags are in memory, where no filter can look
_CLONE_NEWCGROUP = 1 << 25
_NEW_NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
_NEW_NAMESPACES |= _CLONE_NEWCGROUP
_FOREIGN = 0x4000_0000  # x86: system calls of another convention have numbers from here on


def can_forbid_calls() -> bool:
    """Whether `forbid_calls` knows this processor, and the kernel filters system calls."""
    return platform.machine() in _SECCOMP and Path("/proc/sys/kernel/seccomp/actions_avail").exists()


def forbid_calls() -> None:
    """Refuse this process, for good, the calls in `assets/seccomp.json`, and new namespaces to its children.

    `clone3` is told to be missing, as in an old kernel, so that the C library uses `clone`, whose flags can be seen.
    `PR_SET_NO_NEW_PRIVS` must be set.
    """
    here = _SECCOMP[platform.machine()]
    numbers = [number for group in here["refused"].values() for number in group]
    count = len(numbers)
    # A step says by how many others to go on if a condition is true, and if it is not. The last three are the ends.
    steps = [(_LOAD, 0, 0, _MACHINE), (_JUMP_IF_EQUAL, 0, count + 7, here["audit_arch"])]
    steps += [(_LOAD, 0, 0, _NUMBER), (_JUMP_IF_AT_LEAST, count + 5, 0, _FOREIGN)]
    steps += [(_JUMP_IF_EQUAL, count - place + 4, 0, number) for place, number in enumerate(numbers)]
    steps += [(_JUMP_IF_EQUAL, 5, 0, _CLONE3), (_JUMP_IF_EQUAL, 0, 2, here["clone"])]
    steps += [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_JUMP_IF_ANY_BIT, 1, 0, _NEW_NAMESPACES)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _NOT_THERE)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(program)))
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))
