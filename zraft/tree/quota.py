"""Quotas on subtrees: which paths have one, what their text says, and what a change does to the count.

A quota on `/a` is two znodes: `/zookeeper/quota/a/zookeeper_limits`, written by a client, and `zookeeper_stats` beside
it, kept by apply. Both hold text: "count=N,bytes=M", then "=;byteHardLimit=B;countHardLimit=C" if there are hard
limits. A soft limit is only reported; a hard one refuses, if the cluster enforces quotas. Of several quotas above a
znode the deepest counts. Source: ZooKeeper's `Quotas`, `StatsTrack`, and `DataTree`.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

QUOTA_ROOT: Final = "/zookeeper/quota"
LIMITS: Final = "zookeeper_limits"
STATS: Final = "zookeeper_stats"
QUOTA_NAMES: Final = frozenset({LIMITS, STATS})

EXCEEDED_KEPT_MAX: Final = 1_000
"""Paths over a soft limit that are remembered until the shell has logged them."""

_SEPARATORS: Final = re.compile("[,;]")
_NONE: Final = -1
_INT64_MAX: Final = 2**63 - 1


@frozen
class Quota:
    """Limits, or what is used of them; -1 is no limit. `size` is bytes of data, `count` includes the top znode."""

    count: int = _NONE
    size: int = _NONE
    count_hard: int = _NONE
    size_hard: int = _NONE

    @staticmethod
    def parse(text: bytes | None) -> Quota:
        """Return the quota of a text; anything in it that cannot be understood counts as not said."""
        found: dict[str, int] = {}
        for part in _SEPARATORS.split((text or b"").decode(errors="replace")):
            key, _, value = part.partition("=")
            # An old client ends the first two with "=", so that older servers still read them.
            value = value.rstrip("=")
            if re.fullmatch(r"-?[0-9]{1,19}", value):
                found[key] = min(int(value), _INT64_MAX)
        return Quota(
            found.get("count", _NONE),
            found.get("bytes", _NONE),
            found.get("countHardLimit", _NONE),
            found.get("byteHardLimit", _NONE),
        )


def usage_text(count: int, size: int) -> bytes:
    """Return the text of `zookeeper_stats`."""
    return b"count=%d,bytes=%d" % (count, size)


class Quotas:
    """The paths that have limits. The texts stay in the tree; this only finds them fast."""

    __slots__ = ("exceeded", "limited")

    def __init__(self) -> None:
        self.limited: set[str] = set()
        """Paths with a quota; while there is none, a change costs one look here."""
        self.exceeded: set[str] = set()
        """Paths found over a soft limit; whoever logs them clears it. No part of the state."""

    def above(self, path: str) -> str | None:
        """Return the deepest path with a quota that is `path` or above it. The root has none."""
        limited = self.limited
        while path not in limited:
            slash = path.rfind("/")
            if slash <= 0:
                return None
            path = path[:slash]
        return path

    def report(self, path: str) -> None:
        """Note that a soft limit is exceeded."""
        if len(self.exceeded) < EXCEEDED_KEPT_MAX:
            self.exceeded.add(path)


def limited_path(quota_path: str) -> str | None:
    """Return `/a` for `/zookeeper/quota/a`, None for what is not below the quota's root."""
    if not quota_path.startswith(QUOTA_ROOT + "/"):
        return None
    return quota_path[len(QUOTA_ROOT) :]


def is_over(used: int, more: int, soft: int, hard: int) -> tuple[bool, bool]:
    """Return (over the limit that counts, is that limit a hard one).

    A hard limit takes the place of a soft one.
    """
    if more == 0 or (soft < 0 and hard < 0):
        return False, False
    is_hard = hard >= 0
    return used + more > (hard if is_hard else soft), is_hard
