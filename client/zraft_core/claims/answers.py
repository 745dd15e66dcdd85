"""Results of commands on claims, and the view of a group that readers get."""

from __future__ import annotations

from enum import IntEnum, unique

from attrs import frozen

from zraft_core.claims.progress import Range
from zraft_core.claims.values import Claim


@unique
class Reason(IntEnum):
    """Reasons for which a command changed nothing."""

    HELD = 0
    """Somebody has a live claim; `Refused.holder`."""
    MOVED = 1
    """`after` is not the group's last epoch (or pause): look again."""
    FENCED = 2
    """The epoch has no live claim: it was released, expired, or taken over."""
    PAUSED = 3
    TAKEN = 4
    """Some of the range is done, or somebody else's."""
    BEYOND_END = 5
    """The offset is above the partition's end, above the claim's range, or too far in the future."""
    NOT_CLAIMED = 6
    """At most once: committed above what `CommitBatch` claimed."""
    WRONG_MODE = 7
    NOT_STALE = 8
    """The owner was heard since the leader looked, or not long enough ago."""
    FULL = 9
    """The partition knows too many groups, or the group too many ranges; `Forget` some, or wait."""
    INVALID = 10
    """A name or number out of its bounds."""


@frozen
class Granted:
    """The claim is the sender's. `skips` lie in its range and are done already."""

    claim: Claim
    skips: tuple[Range, ...]
    log_time_ms: int


@frozen
class Accepted:
    """Done. `ended`: the claim is over, because it was released, expired, or everything in its range is processed."""

    epoch: int
    committed: int
    claimed: int
    ended: bool
    paused: bool
    log_time_ms: int


@frozen
class Refused:
    """Answer to a command that changed nothing."""

    reason: Reason
    holder: Claim | None
    last_epoch: int
    log_time_ms: int


ClaimAnswer = Granted | Accepted | Refused


@frozen
class ClaimsView:
    """A group as it stands at one log position. `last` is the claim that ended last, None if none did.

    `floor` and `islands` are done by claims that ended; what live ones have done stands in them.
    """

    group: str
    claims: tuple[Claim, ...]
    last: Claim | None
    last_epoch: int
    floor: int
    islands: tuple[Range, ...]
    unconfirmed: int
    paused_until_ms: int
    paused_at: int
    heartbeat_ms: int
    position: int
    log_time_ms: int

    @property
    def paused(self) -> bool:
        """True while the group is paused, by log time."""
        return self.log_time_ms < self.paused_until_ms

    @property
    def whole(self) -> Claim | None:
        """The live claim of the whole partition."""
        return next((claim for claim in self.claims if claim.upto is None), None)

    @property
    def start(self) -> int:
        """The offset at which consumption would continue if nobody consumed any more.

        All below it is consumed.
        """
        whole = self.whole
        return self.floor if whole is None else max(self.floor, whole.position)

    def free_from(self, offset: int, messages: int) -> Range:
        """Return the first free range at or above `offset`, at most so long."""
        first, taken = max(offset, self.floor), sorted(self._taken())
        for a, b in taken:
            if a > first:
                return first, min(a, first + messages)
            first = max(first, b)
        return first, first + messages

    def _taken(self) -> tuple[Range, ...]:
        return (*self.islands, *((c.first, c.upto) for c in self.claims if c.upto is not None))
