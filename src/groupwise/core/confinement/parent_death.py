"""A child process that cannot outlive its parent, whatever the child does.

The end of a pipe tells a child that its parent is gone, but only once the child reads. On Linux the kernel kills it
itself; elsewhere the pipe has to do.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process as soon as its parent dies; call it first thing in a child.

    `parent` is the process id that the child was started by: a parent that is already gone is noticed too. The kernel
    counts the *thread* that started the child as its parent, so start children from a thread that lives as long as
    they should. Where the kernel has no such call (macOS) nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)
