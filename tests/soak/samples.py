"""Samples of what servers use, and whether that grows. All is pure but `used_by` and `disk_bytes`, which ask Linux."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from attrs import frozen

WARM_UP_PART: Final = 4
"""The first quarter is not judged: logs, snapshots and topics grow up to their bounds in it."""

GROWTH_MAX: Final = 1.25
"""How much larger the median of the last quarter may be than that of the second one."""

SAMPLES_MIN: Final = 40
"""With fewer samples a growth says nothing."""


@frozen
class Used:
    """What one server used: bytes of memory, open files, and bytes of its data directory."""

    memory_bytes: int
    files: int
    disk_bytes: int


@frozen
class Sample:
    """One moment of a soak.

    Attributes:
        at_s: seconds of load so far, in all pieces.
        piece: which piece it was.
        servers: what each server that ran used.
        write_ms: how long each write took since the sample before, of one client with one request at a time.
    """

    at_s: float
    piece: int
    servers: tuple[Used, ...]
    write_ms: tuple[float, ...]


MEASURES: Final[dict[str, Callable[[Used], float]]] = {
    "memory, MB": lambda used: used.memory_bytes / 1e6,
    "open files": lambda used: used.files,
    "disk, MB": lambda used: used.disk_bytes / 1e6,
}


def series(samples: Sequence[Sample], measure: str) -> list[tuple[float, float]]:
    """Return (hours, mean of all servers) of each sample that has servers."""
    of = MEASURES[measure]
    return [(one.at_s / 3600, sum(map(of, one.servers)) / len(one.servers)) for one in samples if one.servers]


def latencies(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return (hours, median of the writes in ms) of each sample that has writes."""
    return [(one.at_s / 3600, median(one.write_ms)) for one in samples if one.write_ms]


def growth(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the median of the last quarter over that of the second one; None if there are too few points."""
    if len(points) < SAMPLES_MIN:
        return None
    quarter = len(points) // WARM_UP_PART
    before = median(value for _, value in points[quarter : 2 * quarter])
    after = median(value for _, value in points[-quarter:])
    return after / before


def growing(samples: Sequence[Sample]) -> list[str]:
    """Return what grows too much, in words."""
    found = []
    for measure in MEASURES:
        by = growth(series(samples, measure))
        if by is not None and by > GROWTH_MAX:
            found.append(f"{measure}: {by:.2f} times as much in the last quarter as in the second one")
    return found


def used_by(pid: int, data: Path) -> Used | None:
    """Return what a server's process uses now; None if it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    (resident,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")] or ["0"]
    return Used(int(resident) * 1024, files, disk_bytes(data))


def disk_bytes(directory: Path) -> int:
    """Return the bytes of all files below a directory, without those that go meanwhile."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total
