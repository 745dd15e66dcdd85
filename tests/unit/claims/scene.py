"""A partition's claims with a log in front of them: positions count up, log time and end are set by the test."""

from __future__ import annotations

from zraft_core.claims.answers import Accepted, ClaimAnswer, ClaimsView, Granted, Reason, Refused
from zraft_core.claims.commands import (
    ClaimCommand,
    ClaimMessages,
    ClaimPartition,
    Commit,
    CommitBatch,
    Expire,
    Heartbeat,
    Release,
)
from zraft_core.claims.state import Claims
from zraft_core.claims.values import Claim, Mode

HB = 60_000
G = "billing"
ONCE, LEAST = Mode.AT_MOST_ONCE, Mode.AT_LEAST_ONCE


class Scene:
    """Each method applies one command at the next position; those named after what is expected assert it."""

    def __init__(self, end: int = 1_000, heartbeat_ms: int = HB) -> None:
        self.claims = Claims(heartbeat_ms)
        self.now_ms = 0
        self.end = end
        self._attempts = 0

    def apply(self, command: ClaimCommand) -> ClaimAnswer:
        return self.claims.apply(command, self.claims.position + 1, self.now_ms, self.end)

    def view(self) -> ClaimsView:
        return self.claims.view(G, self.now_ms)

    def accepted(self, command: ClaimCommand) -> Accepted:
        answer = self.apply(command)
        assert isinstance(answer, Accepted), answer
        return answer

    def refused(self, command: ClaimCommand) -> Reason:
        before = self.claims.view(G)
        answer = self.apply(command)
        assert isinstance(answer, Refused), answer
        after = self.claims.view(G)
        assert (before.claims, before.floor, before.islands) == (after.claims, after.floor, after.islands)
        return answer.reason

    def granted(self, command: ClaimCommand) -> Claim:
        answer = self.apply(command)
        assert isinstance(answer, Granted), answer
        return answer.claim

    def claiming(
        self,
        client: str,
        mode: Mode = LEAST,
        *,
        instance: str = "i",
        after: int | None = None,
        start: int = 0,
        attempt: int | None = None,
    ) -> ClaimPartition:
        """A claim of what the sender sees now, or with `after` saw before."""
        self._attempts += 1
        after = self.view().last_epoch if after is None else after
        return ClaimPartition(G, client, instance, attempt or self._attempts, after, mode, start)

    def owner(self, client: str, mode: Mode = LEAST) -> Claim:
        return self.granted(self.claiming(client, mode))

    def claiming_range(
        self,
        client: str,
        first: int,
        upto: int,
        mode: Mode = LEAST,
        *,
        instance: str = "i",
        after: int = 0,
        seen: int | None = None,
        start: int = 0,
    ) -> ClaimMessages:
        self._attempts += 1
        seen = self.claims.position if seen is None else seen
        return ClaimMessages(G, client, instance, self._attempts, after, mode, first, upto, seen, start)

    def beat(self, claim: Claim, number: int, committed: int = 0) -> Heartbeat:
        return Heartbeat(G, claim.epoch, number, committed)

    def commit(self, claim: Claim, committed: int) -> Commit:
        return Commit(G, claim.epoch, committed)

    def batch(self, claim: Claim, upto: int) -> CommitBatch:
        return CommitBatch(G, claim.epoch, upto)

    def release(self, claim: Claim, committed: int = 0) -> Release:
        return Release(G, claim.epoch, committed)

    def expire(self, claim: Claim) -> Expire:
        """The leader's proposal, of the claim as it stands now."""
        live = next(one for one in self.claims.view(G).claims if one.epoch == claim.epoch)
        return Expire(G, live.epoch, live.heard_ms)

    def fall_silent(self, claim: Claim) -> None:
        """Time passes until the owner counts as dead, and its claim is expired."""
        self.now_ms += 2 * HB
        assert self.accepted(self.expire(claim)).ended
