"""A process gives up its rights before it reads a model's response.

There are three boundaries. "limits": memory, no core files, no files, few descriptors. "files" (Landlock): nothing is
written, only Python's own folders are read, no TCP. "system calls" (seccomp): no write, connection, process, or signal
to others, see `filter_calls`. If a kernel lacks one of them, the others still hold.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

Boundary = Literal["limits", "files", "system calls"]
MAX_DESCRIPTORS = 64
"""Files open at the same time, for modules and data that are read late."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE = 38, 4
_SYSTEM_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom")
"""Shared libraries, time zones and random numbers."""


def find_boundaries() -> frozenset[Boundary]:
    """The boundaries that `confine` can set up on this system; this call changes nothing."""
    boundaries: set[Boundary] = {"limits"}
    if read_landlock_version() > 0:
        boundaries.add("files")
    if can_filter_calls():
        boundaries.add("system calls")
    return frozenset(boundaries)


def confine(*, max_memory: int, filters_calls: bool = True) -> frozenset[Boundary]:
    """Give up this process's rights for ever, and return the boundaries that hold. Call it after the imports.

    Without `filters_calls` the process may still start others, which then filter their own system calls.
    """
    sys.dont_write_bytecode = True
    boundaries: set[Boundary] = set()
    if _limit_resources(max_memory):
        boundaries.add("limits")
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # other processes of the same user cannot read its memory
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if lock_files(_list_readable_places()):
            boundaries.add("files")
    if filters_calls and filter_calls():
        boundaries.add("system calls")
    return frozenset(boundaries)


def _limit_resources(max_memory: int) -> bool:
    wanted = {
        resource.RLIMIT_AS: max_memory,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: MAX_DESCRIPTORS,
    }
    all_held = True
    for name, limit in wanted.items():
        _, hard = resource.getrlimit(name)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        try:
            resource.setrlimit(name, (limit, limit))
        except (OSError, ValueError):  # macOS has no limit of the address space
            all_held = False
    return all_held


def _list_readable_places() -> set[Path]:
    """The folders of Python, of installed packages, and of other imported packages."""
    places = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    for name, module in list(sys.modules.items()):
        if "." not in name:
            places |= {Path(os.fspath(folder)) for folder in getattr(module, "__path__", ())}
    return places | {Path(folder) for folder in _SYSTEM_FOLDERS}


# Landlock: the process may read under some folders, and neither write nor connect anywhere.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""The number of file rights by Landlock version, from the first bit on."""
_NETWORK_SINCE, _NETWORK_RIGHTS = 4, 0b11
"""TCP bind and connect."""
_SCOPES_SINCE, _SCOPES = 6, 0b11
"""Abstract sockets and signals of other processes."""


def read_landlock_version() -> int:
    """The kernel's Landlock version; 0 = none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))


def lock_files(readable: Iterable[Path]) -> bool:
    """Give up TCP and all file access except reading under these paths; False if the kernel cannot do it.

    The process must have set `PR_SET_NO_NEW_PRIVS` before.
    """
    version = read_landlock_version()
    if version == 0:
        return False
    rights = (1 << max(count for since, count in _FILE_RIGHTS.items() if since <= version)) - 1
    network = _NETWORK_RIGHTS if version >= _NETWORK_SINCE else 0
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    # A field that an older kernel does not know must be 0.
    handled = ctypes.create_string_buffer(struct.pack("QQQ", rights, network, scopes), 24)
    ruleset = _call(_CREATE_RULESET, handled, ctypes.c_size_t(24), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow_reading(ruleset, path)
        return _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    finally:
        os.close(ruleset)


def _allow_reading(ruleset: int, path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it does not exist
        return
    try:
        rights = _READ_FILE | (_READ_DIR if path.is_dir() else 0)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_uint32(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(number), *arguments))


# A filter of system calls (seccomp) for a process that only reads, computes, answers through its pipe, and ends.
#
# Calls that computing needs are allowed. Calls with an effect outside the process (write a file, connect, start or
# signal another process, change its rights) kill it with SIGSYS, which its parent sees. All others fail with EPERM: a
# library that tries a new call usually continues without it.

# Numbers on x86_64 and on aarch64; None = there is no such call.
Numbers = dict[str, tuple[int | None, int | None]]
# fmt: off
ALLOWED: Numbers = {
    "read": (0, 63), "write": (1, 64), "poll": (7, None), "ppoll": (271, 73), "setitimer": (38, 103),
    "getrusage": (98, 165), "rt_sigreturn": (15, 139), "mmap": (9, 222), "munmap": (11, 215), "brk": (12, 214),
    "futex": (202, 98), "lseek": (8, 62), "close": (3, 57), "fstat": (5, 80), "newfstatat": (262, 79),
    "stat": (4, None), "lstat": (6, None), "statx": (332, 291), "pread64": (17, 67), "readv": (19, 65),
    "writev": (20, 66), "mprotect": (10, 226), "mremap": (25, 216), "madvise": (28, 233), "getdents64": (217, 61),
    "getdents": (78, None), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17), "getpid": (39, 172), "getppid": (110, 173),
    "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getrandom": (318, 278), "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169),
    "time": (201, None), "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "getcpu": (309, 168), "times": (100, 153), "sysinfo": (99, 179),
    "uname": (63, 160), "getrlimit": (97, 163), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "sigaltstack": (131, 132), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "set_tid_address": (218, 96), "rseq": (334, 293), "membarrier": (324, 283), "restart_syscall": (219, 128),
    "exit": (60, 93), "exit_group": (231, 94), "getitimer": (36, 102), "fadvise64": (221, 223), "dup": (32, 23),
    "dup2": (33, None), "dup3": (292, 24), "select": (23, None), "pselect6": (270, 72), "mincore": (27, 232),
}
KILLED: Numbers = {
    # start, stop, watch or change a process
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None), "kill": (62, 129),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145),
    "setregid": (114, 143), "setresuid": (117, 147), "setresgid": (119, 149), "setgroups": (116, 159),
    "capset": (126, 91), "prctl": (157, 167), "seccomp": (317, 277), "setrlimit": (160, 164),
    # change files
    "creat": (85, None), "openat2": (437, 437), "open_by_handle_at": (304, 265), "unlink": (87, None),
    "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "mknod": (133, None), "mknodat": (259, 33), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "utime": (132, None),
    "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "memfd_create": (319, 279), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51),
    # talk to others
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "shmget": (29, 194), "msgget": (68, 186), "mq_open": (240, 180),
    # reach the kernel by other ways
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_setup": (206, 0),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "setns": (308, 268),
    "unshare": (272, 97), "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
}
OPEN, OPENAT, PRLIMIT, IOCTL = (2, None), (257, 56), (302, 261), (16, 29)
FCNTL, TGKILL, CLONE, CLONE3 = (72, 25), (234, 131), (56, 220), (435, 435)
# fmt: on
WRITING_FLAGS = (
    os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY)
    if sys.platform.startswith("linux")
    else 0
)
HARMLESS_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)
"""Whether it is a terminal, its width, the number of waiting bytes, close or keep on exec."""
HARMLESS_FCNTLS = (1, 2, 3, 4, 1030)
"""Flags of a descriptor, and a copy of it, but not the owner of its signals."""
CLONE_THREAD = 0x10000

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the numbers, and the kernel's code of the architecture."""
_X32 = 0x40000000
_SYS_SECCOMP = (317, 277)
_SET_MODE_FILTER, _GET_ACTION_AVAIL, _TSYNC = 1, 2, 1
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16


def can_filter_calls() -> bool:
    if not sys.platform.startswith("linux") or platform.machine() not in _MACHINES:
        return False
    action = ctypes.c_uint32(_KILL)
    return _seccomp(_GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0


def filter_calls() -> bool:
    """Install the filter for all threads of this process, for ever; False if the kernel cannot do it.

    The process must have set `PR_SET_NO_NEW_PRIVS` before.
    """
    if not can_filter_calls():
        return False
    column, architecture = _MACHINES[platform.machine()]
    program = build_filter(column, architecture, own_process=os.getpid())
    code = ctypes.create_string_buffer(b"".join(program))
    # struct sock_fprog: the number of instructions (a short), padding, and their address.
    listed = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    return _seccomp(_SET_MODE_FILTER, _TSYNC, listed) == 0


def build_filter(column: int, architecture: int, *, own_process: int) -> list[bytes]:
    program = [
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_EQUAL, architecture, yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
        _step(_AT_LEAST, _X32, no=1),
        _step(_RETURN, _KILL),
    ]
    for numbers in ALLOWED.values():
        program += _on(numbers[column], [_step(_RETURN, _ALLOW)])
    for flags_at, call in ((1, OPEN), (2, OPENAT)):
        may_open = [_argument(flags_at), _step(_ANY_BIT, WRITING_FLAGS, no=1), _step(_RETURN, _KILL)]
        program += _on(call[column], [*may_open, _step(_RETURN, _ALLOW)])
    program += _on(IOCTL[column], _one_of(1, HARMLESS_IOCTLS, otherwise=_ERRNO | errno.EPERM))
    program += _on(FCNTL[column], _one_of(1, HARMLESS_FCNTLS, otherwise=_ERRNO | errno.EPERM))
    program += _on(TGKILL[column], _one_of(0, (own_process,), otherwise=_KILL))
    program += _on(PRLIMIT[column], _reads_limits())
    # The C library tries clone3 first, whose flags a filter cannot read, and then clone.
    program += _on(CLONE3[column], [_step(_RETURN, _ERRNO | errno.ENOSYS)])
    is_thread = [_argument(0), _step(_ANY_BIT, CLONE_THREAD, yes=1), _step(_RETURN, _KILL)]
    program += _on(CLONE[column], [*is_thread, _step(_RETURN, _ERRNO | errno.EPERM)])
    for numbers in KILLED.values():
        program += _on(numbers[column], [_step(_RETURN, _KILL)])
    return [*program, _step(_RETURN, _ERRNO | errno.EPERM)]


def _reads_limits() -> list[bytes]:
    """Limits may be read, not set: both halves of the address of new ones must be 0."""
    is_zero = [_step(_EQUAL, 0, yes=1), _step(_RETURN, _KILL)]
    return [_argument(2), *is_zero, _argument(2, upper=True), *is_zero, _step(_RETURN, _ALLOW)]


def _one_of(argument: int, values: tuple[int, ...], *, otherwise: int) -> list[bytes]:
    steps = [_argument(argument)]
    for value in values:
        steps += [_step(_EQUAL, value, no=1), _step(_RETURN, _ALLOW)]
    return [*steps, _step(_RETURN, otherwise)]


def _on(number: int | None, steps: list[bytes]) -> list[bytes]:
    """Run these steps for one system call; they end with a return."""
    return [] if number is None else [_step(_EQUAL, number, no=len(steps)), *steps]


def _argument(index: int, *, upper: bool = False) -> bytes:
    return _step(_LOAD, _ARGUMENTS_AT + 8 * index + 4 * upper)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _seccomp(operation: int, flags: int, argument: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    column, _ = _MACHINES[platform.machine()]
    return int(libc.syscall(_SYS_SECCOMP[column], operation, flags, argument))


_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process as soon as its parent dies. Call it first in a child.

    The end of its pipe also tells a child that its parent has died, but only when the child reads; on macOS, which has
    no such call, this must be enough. `parent` is the parent's process id: if it has died before, the child exits. For
    the kernel the *thread* that started the child is its parent, so start children from a long-lived thread.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)
