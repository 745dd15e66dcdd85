"""Quotas as they stand in znodes below /zookeeper/quota: their text and where it is. Pure."""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from zraft.shell.errors import ShellError

ROOT: Final = "/zookeeper/quota"
LIMITS: Final = "zookeeper_limits"
STATS: Final = "zookeeper_stats"
NO_LIMIT: Final = -1

_TEXT: Final = re.compile(
    r"count=(-?\d{1,19}),bytes=(-?\d{1,19})"
    r"(?:=;byteHardLimit=(-?\d{1,19});countHardLimit=(-?\d{1,19}))?\s*"
)


@frozen
class Quota:
    """Limits, or what is used; -1 is no limit. Servers may enforce the hard limits."""

    count: int = NO_LIMIT
    bytes: int = NO_LIMIT
    byte_hard_limit: int = NO_LIMIT
    count_hard_limit: int = NO_LIMIT

    def __str__(self) -> str:
        return (
            f"count={self.count},bytes={self.bytes}"
            f"=;byteHardLimit={self.byte_hard_limit};countHardLimit={self.count_hard_limit}"
        )


NOTHING_USED: Final = b"count=0,bytes=0"


def parse_quota(data: bytes | None, path: str) -> Quota:
    """Parse a quota; releases before 3.6 wrote no hard limits.

    Raises:
        ShellError: the znode holds something else.
    """
    found = _TEXT.fullmatch((data or b"").decode(errors="replace"))
    if found is None:
        raise ShellError(f"{path}: found {data!r}, expected count=N,bytes=N and maybe =;byteHardLimit=…")
    return Quota(*(NO_LIMIT if number is None else int(number) for number in found.groups()))


def quota_path(path: str) -> str:
    """Return where the quota of `path` is kept; for "/" the root of all quotas."""
    return ROOT if path == "/" else ROOT + path


def limits_path(path: str) -> str:
    """Return the znode of a path's limits."""
    return f"{quota_path(path)}/{LIMITS}"


def stats_path(path: str) -> str:
    """Return the znode of a path's counts."""
    return f"{quota_path(path)}/{STATS}"
