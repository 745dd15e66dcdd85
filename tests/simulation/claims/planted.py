"""Bugs planted into claims, each of which the simulation must notice.

First Marshal's own, by their numbers in docs/explanation/claims.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import evolve

from tests.simulation.claims.partition import Entry, Replica, SimulatedPartition
from tests.simulation.planted_registry import Patch, Plants
from zraft_client.claims.consumption import Consumption
from zraft_client.claims.lease import Lease
from zraft_client.claims.tracking import Tracking
from zraft_core.claims import commands as c
from zraft_core.claims import snapshot, values
from zraft_core.claims.answers import Accepted, ClaimAnswer, ClaimsView, Reason, Refused
from zraft_core.claims.expiry import ClaimExpiry
from zraft_core.claims.group import Group
from zraft_core.claims.progress import Range
from zraft_core.claims.state import Claims
from zraft_core.claims.values import Claim, Freshness

PLANTS: Final = Plants[None]()
"""`rule` is the number of the flaw of Marshal's that it puts back, or the rule that it breaks."""

plant = PLANTS.plant
planted = PLANTS.planted


# Marshal's flaws ------------------------------------------------------------------------------------------------


def _robbing(stale: Callable[[Claim, int], bool]) -> Sequence[Patch]:
    """As Marshal: a claim that looks stale to a reader does not exist, and is ended by the next claim."""
    original, original_view = Claims._claim_partition, Claims.view

    def claim(self: Claims, command: c.ClaimPartition, end: int) -> ClaimAnswer:
        group = self._groups.get(command.group)
        held = group.claims[0] if group is not None and group.claims else None
        if group is not None and held is not None and held.upto is None and stale(held, self.log_time_ms):
            self._groups[command.group] = group.with_end_of(held, self.position)
        return original(self, command, end)

    def view(self: Claims, name: str, now_ms: int = 0) -> ClaimsView:
        seen = original_view(self, name, now_ms)
        return evolve(seen, claims=tuple(one for one in seen.claims if not stale(one, seen.log_time_ms)))

    return (Claims, "_claim_partition", claim), (Claims, "view", view)


@plant("1", "each replica judges staleness by its own clock when it applies a claim")
def readers_clock() -> Sequence[Patch]:
    def log_time(self: Replica, entry: Entry, now_ms: int) -> int:
        # Everybody's clock is about right, as clocks are.
        return now_ms + 1_500 * self.server.number

    def stale(held: Claim, now_ms: int) -> bool:
        return values.freshness(held.heard_ms, now_ms, held.heartbeat_ms) is Freshness.STALE

    return (Replica, "log_time", log_time), *_robbing(stale)


@plant("2", "an owner heard in the future counts as stale, and a new leader's time is its own clock's")
def future_is_stale() -> Sequence[Patch]:
    def first_log_time(self: SimulatedPartition, last_ms: int) -> int:
        assert self.leader is not None
        # Clocks that differ by up to two seconds.
        return self._schedule.now_ms + 1_000 * self.leader.server.number

    def apply(
        self: Claims, command: c.ClaimCommand, position: int, log_time_ms: int, end: int
    ) -> ClaimAnswer:
        self.log_time_ms = log_time_ms
        return original(self, command, position, log_time_ms, end)

    original = Claims.apply
    return (
        (SimulatedPartition, "first_log_time", first_log_time),
        (Claims, "apply", apply),
        *_robbing(lambda held, now_ms: now_ms < held.heard_ms),
    )


@plant("3", "a heartbeat makes its sender the owner, whoever owns the claim by now")
def heartbeat_overwrites() -> Sequence[Patch]:
    original = Claims._heartbeat

    def heartbeat(self: Claims, command: c.Heartbeat, end: int) -> ClaimAnswer:
        group = self._groups.get(command.group)
        last = None if group is None else group.last
        if group is not None and last is not None and last.epoch == command.epoch and not last.is_complete:
            others = tuple(one for one in group.claims if not one.covers(last.first, last.upto))
            claims = sorted((*others, last), key=lambda one: one.first)
            self._put(evolve(group, claims=tuple(claims), last=None))
        return original(self, command, end)

    return ((Claims, "_heartbeat", heartbeat),)


@plant("4", "a successor starts where processing was confirmed, whatever was claimed")
def successor_at_committed() -> Sequence[Patch]:
    return ((Claim, "position", property(lambda self: self.committed)),)


@plant("4", "a batch is accepted from whoever owned the partition at some time")
def batch_without_epoch() -> Sequence[Patch]:
    original = Claims._commit_batch

    def commit_batch(self: Claims, command: c.CommitBatch, end: int) -> ClaimAnswer:
        answer = original(self, command, end)
        if isinstance(answer, Refused):
            return Accepted(command.epoch, 0, command.upto, False, False, self.log_time_ms)
        return answer

    return ((Claims, "_commit_batch", commit_batch),)


@plant("4", "messages are processed while the batch that claims them is under way")
def processed_before_claimed() -> Sequence[Patch]:
    original = Consumption._send_batch

    def send_batch(self: Consumption, now_ms: int) -> None:
        is_new = self._batch is None
        original(self, now_ms)
        if is_new and self._batch is not None:
            self._ready.extend(self._batch)
            for record in self._batch:
                self._tracking.add(record.offset)
            self._batch = ()

    return ((Consumption, "_send_batch", send_batch),)


@plant("5", "an owner goes on with what it has fetched, however long it was not heard")
def no_self_fencing() -> Sequence[Patch]:
    return ((Lease, "holds", lambda self, now_ms: True),)


@plant("6", "an owner stops after two intervals, when others may have claimed")
def fenced_at_two_intervals() -> Sequence[Patch]:
    return ((Lease, "lapses_ms", property(lambda self: self._confirmed_ms + 2 * self.heartbeat_ms)),)


@plant("6", "the lease counts from the answer instead of from what was sent")
def lease_from_answer() -> Sequence[Patch]:
    original = Consumption._on_heartbeat

    def on_heartbeat(self: Consumption, beat: int, answer: ClaimAnswer | None, now_ms: int) -> None:
        if answer is not None:
            self.lease._sent[beat] = now_ms
        original(self, beat, answer, now_ms)

    return ((Consumption, "_on_heartbeat", on_heartbeat),)


@plant("6", "a claim may be expired while it is unknown, after one interval")
def expired_while_unknown() -> Sequence[Patch]:
    def freshness(self: Claim, log_time_ms: int) -> Freshness:
        silent = log_time_ms - self.heard_ms
        return Freshness.FRESH if silent < self.heartbeat_ms else Freshness.STALE

    original = ClaimExpiry._is_due

    def is_due(self: ClaimExpiry, watched: Any, claim: Claim) -> bool:
        return original(self, watched, evolve(claim, heartbeat_ms=claim.heartbeat_ms // 2))

    return (Claim, "freshness", freshness), (ClaimExpiry, "_is_due", is_due)


@plant("7", "a late copy of a claim counts, although others had the partition since")
def late_claim_counts() -> Sequence[Patch]:
    original = Claims._claim_partition

    def claim(self: Claims, command: c.ClaimPartition, end: int) -> ClaimAnswer:
        group = self._groups.get(command.group)
        if group is not None and not group.claims:
            command = evolve(command, after=group.last_epoch)
        return original(self, command, end)

    return ((Claims, "_claim_partition", claim),)


@plant("7", "a late copy of a claim of a range counts, although the range was claimed and given back")
def late_range_counts() -> Sequence[Patch]:
    original = Claims._claim_messages

    def claim(self: Claims, command: c.ClaimMessages, end: int) -> ClaimAnswer:
        return original(self, evolve(command, seen=2**62), end)

    return ((Claims, "_claim_messages", claim),)


@plant("7", "the instance is not looked at: two processes with one client id share a claim")
def instance_not_checked() -> Sequence[Patch]:
    def repeated(self: Group, client: str, instance: str, attempt: int) -> Claim | None:
        return next((one for one in self.claims if one.owner.client == client), None)

    return ((Group, "repeated", repeated),)


@plant("8", "a snapshot leaves out claims that are older than a while")
def old_claims_left_out() -> Sequence[Patch]:
    original = snapshot.encode_snapshot

    def encode(claims: Claims) -> bytes:
        def recent(claim: Claim) -> bool:
            return claims.log_time_ms - claim.claimed_ms < 10_000

        groups = [evolve(group, claims=tuple(filter(recent, group.claims))) for group in claims.groups()]
        return original(
            Claims(
                claims.heartbeat_ms,
                position=claims.position,
                log_time_ms=claims.log_time_ms,
                groups=groups,
            )
        )

    return ((snapshot, "encode_snapshot", encode),)


# Rules of ours --------------------------------------------------------------------------------------------------


@plant("D-11", "a leader that was stopped, or was just elected, expires by log time alone")
def expiry_on_waking() -> Sequence[Patch]:
    def is_due(self: ClaimExpiry, watched: Any, claim: Claim) -> bool:
        return True

    return ((ClaimExpiry, "_is_due", is_due),)


@plant("D-11", "an expiry is applied without looking whether the owner was heard since")
def expiry_applied_blindly() -> Sequence[Patch]:
    def expire(self: Claims, command: c.Expire) -> ClaimAnswer:
        group = self._groups.get(command.group)
        claim = None if group is None else group.live(command.epoch)
        if group is None or claim is None:
            return self._refused(Reason.FENCED, group)
        return self._end(group, claim)

    return ((Claims, "_expire", expire),)


@plant("liveness", "nobody's end is ever proposed")
def nobody_expires() -> Sequence[Patch]:
    return ((ClaimExpiry, "proposals", lambda self, claims, quorum_round: ()),)


@plant("M-8", "heartbeats do not tell how far processing is")
def heartbeat_without_offset() -> Sequence[Patch]:
    return ((Consumption, "current", property(lambda self: self.claim.first)),)


@plant("M-8", "a commit counts as durable when it is sent")
def durable_when_sent() -> Sequence[Patch]:
    original = Consumption._send_commit

    def send(self: Consumption, now_ms: int) -> None:
        committed, ranges = self.told_by_flush()
        original(self, now_ms)
        self.committed, self._durable = max(self.committed, committed), ranges

    return ((Consumption, "_send_commit", send),)


@plant("M-8", "what was committed out of order is not kept")
def ranges_not_kept() -> Sequence[Patch]:
    original = Claims._commit_ranges

    def commit(self: Claims, command: c.CommitRanges, end: int) -> ClaimAnswer:
        return original(self, evolve(command, ranges=()), end)

    return ((Claims, "_commit_ranges", commit),)


@plant("M-8", "a successor does not pass over what was committed out of order")
def skips_not_told() -> Sequence[Patch]:
    return ((Group, "skips", lambda self, claim: ()),)


@plant("M-8", "commits out of order are told as one range from the first to the last")
def ranges_without_gaps() -> Sequence[Patch]:
    original = Tracking.committed_ranges

    def ranges(self: Tracking, limit: int) -> tuple[Range, ...]:
        found = original(self, limit)
        return ((found[0][0], found[-1][1]),) if found else ()

    return ((Tracking, "committed_ranges", ranges),)


@plant("M-10", "the current offset is behind the highest commit, not at the first message without one")
def current_behind_last_commit() -> Sequence[Patch]:
    def current(self: Tracking) -> int:
        if self._committed:
            return max(self._committed) + 1
        return self._outstanding[0] if self._outstanding else self._next

    return ((Tracking, "current", property(current)),)


@plant("M-7", "what is fetched counts as processed")
def fetched_is_processed() -> Sequence[Patch]:
    return ((Tracking, "current", property(lambda self: self._next)),)
