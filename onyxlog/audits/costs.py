"""Meter of an audit's CPU time and memory: this process and its descendants.

Linux only.

Spark's JVM is our child and its Python workers are the JVM's, so the tree below this process is all of a
local audit; of a cluster it is the driver alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from attrs import frozen

SAMPLE_S: Final = 0.2
_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@frozen
class Cost:
    """The cost of a part. `peak_mb`: the most that was resident at once, of all processes together, every SAMPLE_S.

    Pages that processes share are counted in each of them.
    """

    cpu_s: float
    peak_mb: float


class Meter(Protocol):
    """Interface of a meter of what a part of an audit costs."""

    def measured(self) -> Callable[[], Cost]:
        """Begin to measure; calling the result ends it and returns the cost."""


@frozen
class _Process:
    pid: int
    parent: int
    cpu_ticks: int
    """Ticks of the process, and of children that have ended."""
    resident_pages: int


def processes(proc: Path = _PROC) -> Iterator[_Process]:
    """Return all processes that can be seen; those that end meanwhile are left out."""
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            # The name may hold anything; what follows the last bracket are numbers, from field 3 on.
            fields = text.rpartition(")")[2].split()
            yield _Process(int(entry.name), int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]))


def tree(root: int, proc: Path = _PROC) -> list[_Process]:
    """Return a process and all below it."""
    found = list(processes(proc))
    below = {root}
    while True:
        more = {one.pid for one in found if one.parent in below} - below
        if not more:
            return [one for one in found if one.pid in below]
        below |= more


class ProcessMeter:
    """Meter of this process and its descendants."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc

    def measured(self) -> Callable[[], Cost]:
        """Begin to measure, and return a function that ends it and returns the cost."""
        root = os.getpid()
        begun = sum(one.cpu_ticks for one in tree(root, self._proc))
        peak = 0
        stop = threading.Event()

        def sample() -> None:
            nonlocal peak
            while True:
                peak = max(peak, sum(one.resident_pages for one in tree(root, self._proc)))
                if stop.wait(SAMPLE_S):
                    return

        thread = threading.Thread(target=sample, name="audit costs", daemon=True)
        thread.start()

        def end() -> Cost:
            stop.set()
            thread.join()
            ticks = sum(one.cpu_ticks for one in tree(root, self._proc)) - begun
            return Cost(max(0, ticks) / _TICKS, peak * _PAGE / 1e6)

        return end
