"""Properties of the process and its machine for `envi`, in ZooKeeper's form, those of a JVM replaced."""

from __future__ import annotations

import getpass
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Final

from zraft import __version__
from zraft.monitoring.statistics import VERSION_LINE

MEGABYTE: Final = 1024 * 1024


def environment() -> tuple[tuple[str, str], ...]:
    """Return (name, value); the version first, because clients read it.

    Looks at the machine, so ask once per start.
    """
    return (
        ("zookeeper.version", VERSION_LINE),
        ("host.name", socket.gethostname()),
        ("zraft.version", __version__),
        ("python.version", platform.python_version()),
        ("python.implementation", platform.python_implementation()),
        ("python.executable", sys.executable),
        ("os.name", platform.system()),
        ("os.arch", platform.machine()),
        ("os.version", platform.release()),
        ("os.processors", str(_processors())),
        ("user.name", _user()),
        ("user.home", str(Path("~").expanduser())),
        ("user.dir", str(Path.cwd())),
    )


def memory() -> tuple[tuple[str, str], ...]:
    """Return the machine's memory as of now: in ZooKeeper these are the JVM's, which has a share of its own."""
    pages = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * pages // MEGABYTE
    # macOS does not say how much is free.
    free = (
        os.sysconf("SC_AVPHYS_PAGES") * pages // MEGABYTE if "SC_AVPHYS_PAGES" in os.sysconf_names else None
    )
    return (
        *((("os.memory.free", f"{free}MB"),) if free is not None else ()),
        ("os.memory.max", f"{total}MB"),
        ("os.memory.total", f"{total}MB"),
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # containers run under ids that have no name


def _processors() -> int:
    """Return how many processors this process may use; on macOS, how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
