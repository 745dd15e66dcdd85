"""The leader's side of expiry: which claims to propose the end of. It proposes; applying the command decides.

As with sessions (D-11): the clock here advances only while the leader runs, a bounded step per turn, after the
sockets were drained, so time in which it was stopped ages nobody. A new leadership gives every owner its whole time
again. A stale claim becomes a suspect; after a quorum round that *began later* it is looked at again, and only then
its end is proposed, with the log time at which its owner was heard: applied, it counts only if that still stands and
log time itself says that it is stale.
"""

from __future__ import annotations

from typing import Final

from attrs import define

from zraft_core.claims.commands import Expire
from zraft_core.claims.state import Claims
from zraft_core.claims.values import Claim

SCAN_INTERVAL_MS: Final = 200
"""The interval at which all claims are looked at; expiry is late by at most this, and a quorum round."""
PROPOSALS_MAX: Final = 256
"""The most proposals of one turn; the rest is found in the next scan."""
PROPOSED_AGAIN_MS: Final = 5_000
"""A proposal that came to nothing is repeated."""

_Key = tuple[str, int]


@define
class _Watched:
    """One live claim as this leadership knows it: its record's `heard_ms`, and since when on this clock."""

    heard_ms: int
    since: int
    suspected_in: int | None = None
    proposed_at: int | None = None


class ClaimExpiry:
    """One leadership's watch over the claims of one partition, begun once its own first entry is applied."""

    def __init__(self) -> None:
        self._clock = 0
        self._next_scan = 0
        self._watched: dict[_Key, _Watched] = {}
        self._awaited: int | None = None

    def advance(self, elapsed_ms: int) -> None:
        """Add the time in which this leader ran; the caller bounds the step."""
        self._clock += elapsed_ms

    def wants_round(self, claims: Claims, next_round: int) -> bool:
        """Look for suspects if that is due; True if there are new ones, which wait for quorum round `next_round`."""
        if self._clock < self._next_scan:
            return False
        self._next_scan = self._clock + SCAN_INTERVAL_MS
        live = self._take_notice(claims)
        found = False
        for key, claim in live.items():
            watched = self._watched[key]
            if watched.suspected_in is None and self._is_due(watched, claim):
                watched.suspected_in = next_round
                self._awaited = next_round if self._awaited is None else min(self._awaited, next_round)
                found = True
        return found

    def proposals(self, claims: Claims, quorum_round: int) -> tuple[Expire, ...]:
        """Return the claims to expire: those whose owners are still silent at this round."""
        if self._awaited is None or quorum_round < self._awaited:
            return ()
        self._awaited = None
        live = self._take_notice(claims)
        found: list[Expire] = []
        for key, claim in live.items():
            watched = self._watched[key]
            if watched.suspected_in is None:
                continue
            if quorum_round < watched.suspected_in:
                later = watched.suspected_in
                self._awaited = later if self._awaited is None else min(self._awaited, later)
                continue
            watched.suspected_in = None
            if self._is_due(watched, claim) and len(found) < PROPOSALS_MAX:
                watched.proposed_at = self._clock
                found.append(Expire(key[0], key[1], claim.heard_ms))
        return tuple(found)

    def _is_due(self, watched: _Watched, claim: Claim) -> bool:
        if self._clock - watched.since < 2 * claim.heartbeat_ms:
            return False
        return watched.proposed_at is None or self._clock - watched.proposed_at >= PROPOSED_AGAIN_MS

    def _take_notice(self, claims: Claims) -> dict[_Key, Claim]:
        """Bring the watch up to date with the state; the live claims."""
        live = {(group.name, claim.epoch): claim for group in claims.groups() for claim in group.claims}
        for key in self._watched.keys() - live.keys():
            del self._watched[key]
        for key, claim in live.items():
            watched = self._watched.get(key)
            if watched is None or watched.heard_ms != claim.heard_ms:
                self._watched[key] = _Watched(claim.heard_ms, self._clock)
        return live
