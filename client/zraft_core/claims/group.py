"""One consumer group's record in a partition: its claims, what it is done with, and whether it is paused."""

from __future__ import annotations

from attrs import evolve, frozen

from zraft_core.claims.progress import NOTHING, Progress, Range
from zraft_core.claims.values import RANGES_MAX, Claim, Mode


@frozen
class Group:
    """`claims` are live and cover nothing twice, sorted by their first offset. A record is replaced, never changed.

    `last_epoch` is the highest epoch granted, `freed_at` the position at which a claim last ended unfinished.
    `unconfirmed` counts messages that at-most-once claims took and had not confirmed when they ended: so many at
    most are lost.
    """

    name: str
    progress: Progress = NOTHING
    claims: tuple[Claim, ...] = ()
    last: Claim | None = None
    last_epoch: int = 0
    freed_at: int = 0
    unconfirmed: int = 0
    paused_until_ms: int = 0
    paused_at: int = 0

    def live(self, epoch: int) -> Claim | None:
        """Return the live claim with this epoch, or None."""
        return next((claim for claim in self.claims if claim.epoch == epoch), None)

    def repeated(self, client: str, instance: str, attempt: int) -> Claim | None:
        """Return the live claim that this very attempt was granted."""
        for claim in self.claims:
            if (claim.owner.client, claim.owner.instance, claim.attempt) == (client, instance, attempt):
                return claim
        return None

    def holder(self, first: int, upto: int | None) -> Claim | None:
        """Return a live claim of some of [first, upto)."""
        return next((claim for claim in self.claims if claim.covers(first, upto)), None)

    @property
    def size(self) -> int:
        """The number of ranges, which bounds the memory.

        A claim that ends leaves at most one more island, so only a grant makes it more.
        """
        return len(self.claims) + len(self.progress.islands)

    @property
    def is_full(self) -> bool:
        """True if the record can hold no further claim."""
        return self.size >= RANGES_MAX

    def skips(self, claim: Claim) -> tuple[Range, ...]:
        """Return the ranges inside the claim that are consumed already."""
        return tuple(island for island in self.progress.islands if claim.covers(*island))

    def with_claim(self, claim: Claim) -> Group:
        """Return the group with a claim that was granted just now."""
        claims = sorted((*self.claims, claim), key=lambda one: one.first)
        return evolve(self, claims=tuple(claims), last_epoch=claim.epoch)

    def with_changed(self, claim: Claim) -> Group:
        """Return the group with a claim in a later condition."""
        return evolve(self, claims=tuple(claim if c.epoch == claim.epoch else c for c in self.claims))

    def with_end_of(self, claim: Claim, position: int) -> Group:
        """Return the record with a claim ended at log position `position`; what it consumed is kept."""
        lost = claim.position - claim.committed if claim.mode is Mode.AT_MOST_ONCE else 0
        return evolve(
            self,
            claims=tuple(one for one in self.claims if one.epoch != claim.epoch),
            progress=self.progress.after(claim.first, claim.position),
            last=claim,
            freed_at=self.freed_at if claim.is_complete else position,
            unconfirmed=self.unconfirmed + lost,
        )
