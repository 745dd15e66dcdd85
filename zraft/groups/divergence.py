"""Digests of the state, compared between servers: who differs from the majority, and what follows (D-26).

Every server notes its digest at the same indexes and reports it to the leader, which tells everybody what the
majority has. Whoever differs must not serve another reply.

Pure. Source: rule D-26 in docs/RULES.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from zraft.raft.membership.quorum import majority
from zraft_core.errors import ZraftError
from zraft_core.ids import ServerId

POINTS_KEPT_MAX: Final = 8
"""Indexes compared at once; older ones have been decided, or never will be."""


class DivergedError(ZraftError):
    """This server's state is not the one the majority has: it must stop, and begin anew from another's."""


class DigestComparison:
    """The leader's table: index -> server -> digest."""

    def __init__(self) -> None:
        self._reported: dict[int, dict[ServerId, int]] = {}
        self._decided: dict[int, int] = {}
        self.disagreements: list[str] = []
        """For the log: points without a majority. Nobody stops for them."""
        self.alarms_total = 0

    def report(self, server: ServerId, digests: Iterable[tuple[int, int]]) -> None:
        """What a server's state was."""
        for index, digest in digests:
            if index in self._decided or index in self._reported or self._is_new(index):
                self._reported.setdefault(index, {})[server] = digest
        while len(self._reported) > POINTS_KEPT_MAX:
            oldest = min(self._reported)
            del self._reported[oldest]
            self._decided.pop(oldest, None)

    def _is_new(self, index: int) -> bool:
        return len(self._reported) < POINTS_KEPT_MAX or index > min(self._reported)

    def decide(self, voters: Collection[ServerId]) -> list[tuple[int, int]]:
        """(index, digest) that a majority of the voters has, for every point decided so far."""
        needed = majority(len(voters))
        for index, reported in self._reported.items():
            if index in self._decided:
                continue
            counts = Counter(digest for server, digest in reported.items() if server in voters)
            if not counts:
                continue
            digest, count = counts.most_common(1)[0]
            if count >= needed:
                self._decided[index] = digest
            elif sum(counts.values()) == len(voters):
                self._decided[index] = -1
                self.alarms_total += 1
                shown = ", ".join(f"server {s}: {d:032x}" for s, d in sorted(reported.items()))
                self.disagreements.append(
                    f"no two of a majority agree on the state at entry {index} ({shown}): nobody stops, compare "
                    "the data directories with `zraft log verify`"
                )
        return [(index, digest) for index, digest in sorted(self._decided.items()) if digest >= 0]


def check_verdict(own: Mapping[int, int], verdict: Iterable[tuple[int, int]]) -> None:
    """Compare what the majority has with our own digests.

    Raises:
        DivergedError: they differ at some index.
    """
    for index, digest in verdict:
        mine = own.get(index)
        if mine is not None and mine != digest:
            raise DivergedError(
                f"the state of this server differs from the majority's since entry {index} at the latest (digest "
                f"{mine:032x}, the majority has {digest:032x}): it serves no longer. Its directory is kept aside "
                "for examination, and it joins again with an empty one"
            )
