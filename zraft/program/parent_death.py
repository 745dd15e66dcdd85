"""Child processes that the kernel ends when their parent dies, however it dies: SIGKILL cannot be caught.

Only Linux has this (`PR_SET_PDEATHSIG`); elsewhere a child outlives a parent that is killed.
Source: PR_SET_PDEATHSIG(2const).
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def dies_with_parent() -> Callable[[], None] | None:
    """Return what a child process must call before it becomes its program; None where the kernel cannot do it.

    The child gets SIGKILL when the *thread* that started it ends, so call this in the thread that starts the child, and let
    that thread live as long as the process. The child's own children do not get the signal. A program with more rights
    than its parent, such as one that is setuid, is not ended either.
    """
    prctl = getattr(ctypes.PyDLL(None), "prctl", None)
    if prctl is None:
        return None
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)
    parent = os.getpid()

    # This runs between fork and exec, where a lock that another thread held is never released. Therefore everything is
    # looked up before, `PyDLL` keeps the interpreter's lock, and there are two system calls and nothing else.
    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the kernel was told
            os.kill(os.getpid(), signal.SIGKILL)

    return in_child
