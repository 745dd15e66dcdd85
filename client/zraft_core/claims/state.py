"""The claims of one partition: replicated state that changes only by applying commands, each at a position and a log time.

Equal commands at equal positions and log times give equal states and answers on every replica. No rule asks when the
command was sent, or what time the reader thinks it is. A claim ends by a command only: a release, a takeover by its
own client, the last message of its range, or an `Expire` that the leader logged and that is still right when applied.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from zraft_core.claims import commands as c
from zraft_core.claims.answers import Accepted, ClaimAnswer, ClaimsView, Granted, Reason, Refused
from zraft_core.claims.digest import ClaimsDigest
from zraft_core.claims.group import Group
from zraft_core.claims.progress import NOTHING, Progress
from zraft_core.claims.values import (
    FUTURE_MESSAGES_MAX,
    GROUPS_MAX,
    HEARTBEAT_MS_DEFAULT,
    HEARTBEAT_MS_MAX,
    HEARTBEAT_MS_MIN,
    PARTITION_RANGES_MAX,
    PAUSE_MS_MAX,
    RANGE_MESSAGES_MAX,
    RANGES_MAX,
    Claim,
    Freshness,
    Mode,
    Owner,
    is_name,
)


class Claims:
    """All groups of one partition. `position` and `log_time_ms` are those of the last command applied."""

    __slots__ = ("_digest", "_groups", "_size", "heartbeat_ms", "log_time_ms", "position")

    def __init__(
        self,
        heartbeat_ms: int = HEARTBEAT_MS_DEFAULT,
        *,
        position: int = 0,
        log_time_ms: int = 0,
        groups: Iterable[Group] = (),
    ) -> None:
        self.heartbeat_ms = heartbeat_ms
        self.position = position
        self.log_time_ms = log_time_ms
        self._groups = {group.name: group for group in groups}
        self._size = sum(group.size for group in self._groups.values())
        self._digest = ClaimsDigest(self._groups)

    def apply(self, command: c.ClaimCommand, position: int, log_time_ms: int, end: int) -> ClaimAnswer:
        """Carry out the command at `position` of the group's log.

        Args:
            position: Above that of every command before it (D-16); a claim's epoch.
            log_time_ms: Of its entry. One that goes back is taken as standing still.
            end: The partition's end at this position: the offset after its last message.
        """
        assert position > self.position, f"{position=} after {self.position=}"
        self.position = position
        self.log_time_ms = max(self.log_time_ms, log_time_ms)
        match command:
            case c.ClaimPartition():
                return self._claim_partition(command, end)
            case c.ClaimMessages():
                return self._claim_messages(command, end)
            case c.Heartbeat():
                return self._heartbeat(command, end)
            case c.Commit():
                return self._commit(command, end)
            case c.CommitRanges():
                return self._commit_ranges(command, end)
            case c.CommitBatch():
                return self._commit_batch(command, end)
            case c.Release():
                return self._release(command, end)
            case c.Expire():
                return self._expire(command)
            case c.Pause():
                return self._pause(command)
            case c.Forget():
                return self._forget(command)
            case c.Configure():
                return self._configure(command)

    def group(self, name: str) -> Group | None:
        """Return the group's record, or None if it has none."""
        return self._groups.get(name)

    def groups(self) -> Iterable[Group]:
        """Return the records of all groups."""
        return self._groups.values()

    def view(self, name: str, now_ms: int = 0) -> ClaimsView:
        """Return the group as it stands; a group that is not known stands at the beginning.

        `now_ms` is the leader's log time, where a leader is asked. The time of the last command stands still while
        nothing is logged, and by it a pause of an idle partition would never be over.
        """
        group = self._groups.get(name) or Group(name)
        return ClaimsView(
            group=name,
            claims=group.claims,
            last=group.last,
            last_epoch=group.last_epoch,
            floor=group.progress.floor,
            islands=group.progress.islands,
            unconfirmed=group.unconfirmed,
            paused_until_ms=group.paused_until_ms,
            paused_at=group.paused_at,
            heartbeat_ms=self.heartbeat_ms,
            position=self.position,
            log_time_ms=max(self.log_time_ms, now_ms),
        )

    def digest(self) -> int:
        """Return the digest: 128 bits, equal on all replicas at equal positions (D-26)."""
        return self._digest.total(self.position, self.log_time_ms, self.heartbeat_ms)

    # Claiming ---------------------------------------------------------------------------------------------------

    def _claim_partition(self, command: c.ClaimPartition, end: int) -> ClaimAnswer:
        found = self._claimant(command)
        if not isinstance(found, Group):
            return found
        group = found
        held = group.claims[0] if group.claims else None
        if held is not None:
            if not self._is_takeover(command, held) or held.upto is not None:
                return self._refused(Reason.HELD, group, held)
            group = group.with_end_of(held, self.position)
        elif command.after != group.last_epoch:
            # Somebody had it since the sender looked: of two that both saw it free, the first in the log wins.
            return self._refused(Reason.MOVED, group)
        group = self._begun(group, command.start, end)
        return self._grant(group, command, group.progress.floor, None, command.entire_topic)

    def _claim_messages(self, command: c.ClaimMessages, end: int) -> ClaimAnswer:
        found = self._claimant(command)
        if not isinstance(found, Group):
            return found
        group, first, upto = found, command.first, command.upto
        if not 0 <= first < upto or upto - first > RANGE_MESSAGES_MAX:
            return self._refused(Reason.INVALID, group)
        if upto > end + FUTURE_MESSAGES_MAX:
            return self._refused(Reason.BEYOND_END, group)
        group = self._begun(group, command.start, end)
        held = group.holder(first, upto)
        if held is not None:
            if not self._is_takeover(command, held) or (held.first, held.upto) != (first, upto):
                return self._refused(Reason.TAKEN, group, held)
            group, first = group.with_end_of(held, self.position), held.position
        elif command.seen < group.freed_at:
            return self._refused(Reason.MOVED, group)
        elif group.progress.touches(first, upto):
            return self._refused(Reason.TAKEN, group)
        if group.is_full:
            return self._refused(Reason.FULL, group)
        return self._grant(group, command, first, upto, entire_topic=False)

    def _claimant(self, command: c.ClaimPartition | c.ClaimMessages) -> Group | Granted | Refused:
        """Return the group in which the sender may claim, or the answer."""
        if not (is_name(command.group) and is_name(command.client) and is_name(command.instance)):
            return self._refused(Reason.INVALID)
        if command.heartbeat_ms and not HEARTBEAT_MS_MIN <= command.heartbeat_ms <= HEARTBEAT_MS_MAX:
            return self._refused(Reason.INVALID)
        group = self._groups.get(command.group)
        if group is None:
            return self._refused(Reason.FULL) if len(self._groups) >= GROUPS_MAX else Group(command.group)
        repeated = group.repeated(command.client, command.instance, command.attempt)
        if repeated is not None:
            # The owner is not heard anew by this: it counts from when it first sent this.
            return Granted(repeated, group.skips(repeated), self.log_time_ms)
        if self.log_time_ms < group.paused_until_ms:
            return self._refused(Reason.PAUSED, group)
        return self._refused(Reason.FULL, group) if self._size >= PARTITION_RANGES_MAX else group

    @staticmethod
    def _begun(group: Group, start: int, end: int) -> Group:
        """Return the group, with its beginning if it had no claim before."""
        if group.last_epoch == 0 and group.progress == NOTHING:
            return evolve(group, progress=Progress(min(start, end)))
        return group

    @staticmethod
    def _is_takeover(command: c.ClaimPartition | c.ClaimMessages, held: Claim) -> bool:
        """Return whether this is another process, or attempt, of the client that holds the claim.

        It must know whose place it takes.
        """
        return held.owner.client == command.client and held.epoch == command.after

    def _grant(
        self,
        group: Group,
        command: c.ClaimPartition | c.ClaimMessages,
        first: int,
        upto: int | None,
        entire_topic: bool,
    ) -> Granted:
        claim = Claim(
            epoch=self.position,
            owner=Owner(command.client, command.instance),
            attempt=command.attempt,
            mode=command.mode,
            first=first,
            upto=upto,
            entire_topic=entire_topic,
            heartbeat_ms=command.heartbeat_ms or self.heartbeat_ms,
            claimed_ms=self.log_time_ms,
            heard_ms=self.log_time_ms,
            beat=0,
            committed=first,
            claimed=first,
        )
        group = group.with_claim(claim)
        self._put(group)
        return Granted(claim, group.skips(claim), self.log_time_ms)

    # Owning -----------------------------------------------------------------------------------------------------

    def _heartbeat(self, command: c.Heartbeat, end: int) -> ClaimAnswer:
        found = self._owned(command)
        if not isinstance(found, Claim):
            return found
        claim = self._committed(found, command.committed, end)
        if isinstance(claim, Reason):
            return self._refused(claim, self._groups[command.group], found)
        if command.beat > claim.beat:
            # A repeated heartbeat of a dead owner does not keep its claim alive.
            claim = evolve(claim, beat=command.beat, heard_ms=self.log_time_ms)
        return self._kept(command.group, claim)

    def _commit(self, command: c.Commit, end: int) -> ClaimAnswer:
        found = self._owned(command)
        if not isinstance(found, Claim):
            return found
        claim = self._committed(found, command.committed, end)
        if isinstance(claim, Reason):
            return self._refused(claim, self._groups[command.group], found)
        return self._kept(command.group, claim)

    def _commit_ranges(self, command: c.CommitRanges, end: int) -> ClaimAnswer:
        """Commit ranges.

        What is done above `committed` is an island of the group at once, so that a successor passes
        over it.
        """
        found = self._owned(command)
        if not isinstance(found, Claim):
            return found
        group = self._groups[command.group]
        claim = self._committed(found, command.committed, end)
        if isinstance(claim, Reason):
            return self._refused(claim, group, found)
        upto = end if claim.upto is None else min(end, claim.upto)
        if any(not claim.first <= a < b <= upto for a, b in command.ranges):
            return self._refused(Reason.BEYOND_END, group, found)
        if claim.mode is Mode.AT_MOST_ONCE and any(b > claim.claimed for _, b in command.ranges):
            return self._refused(Reason.NOT_CLAIMED, group, found)
        below = () if claim.committed == claim.first else ((claim.first, claim.committed),)
        grown = evolve(group, progress=group.progress.after_all((*below, *command.ranges)))
        more = grown.size - group.size
        if more > 0 and (grown.size > RANGES_MAX or self._size + more > PARTITION_RANGES_MAX):
            return self._refused(Reason.FULL, group, found)
        self._put(grown)
        return self._kept(command.group, claim)

    def _commit_batch(self, command: c.CommitBatch, end: int) -> ClaimAnswer:
        found = self._owned(command)
        if not isinstance(found, Claim):
            return found
        group = self._groups[command.group]
        if found.mode is not Mode.AT_MOST_ONCE:
            return self._refused(Reason.WRONG_MODE, group, found)
        if command.upto > end or (found.upto is not None and command.upto > found.upto):
            return self._refused(Reason.BEYOND_END, group, found)
        return self._kept(command.group, evolve(found, claimed=max(found.claimed, command.upto)))

    def _release(self, command: c.Release, end: int) -> ClaimAnswer:
        found = self._owned(command)
        if not isinstance(found, Claim):
            return found
        group = self._groups[command.group]
        claim = self._committed(found, command.committed, end)
        if isinstance(claim, Reason):
            return self._refused(claim, group, found)
        return self._end(group, claim)

    def _owned(
        self, command: c.Heartbeat | c.Commit | c.CommitRanges | c.CommitBatch | c.Release
    ) -> Claim | Refused:
        """Return the live claim of that epoch. Whoever names another one was fenced."""
        group = self._groups.get(command.group)
        if group is None:
            return self._refused(Reason.FENCED)
        claim = group.live(command.epoch)
        return self._refused(Reason.FENCED, group) if claim is None else claim

    @staticmethod
    def _committed(claim: Claim, committed: int, end: int) -> Claim | Reason:
        """Return the claim with everything below `committed` processed; never less than was."""
        if committed <= claim.committed:
            return claim
        if committed > end or (claim.upto is not None and committed > claim.upto):
            return Reason.BEYOND_END
        if claim.mode is Mode.AT_MOST_ONCE and committed > claim.claimed:
            return Reason.NOT_CLAIMED
        return evolve(claim, committed=committed)

    def _kept(self, name: str, claim: Claim) -> Accepted:
        group = self._groups[name]
        if claim.is_complete:
            return self._end(group, claim)
        self._put(group.with_changed(claim))
        return self._accepted(group, claim, ended=False)

    # Ending -----------------------------------------------------------------------------------------------------

    def _expire(self, command: c.Expire) -> ClaimAnswer:
        group = self._groups.get(command.group)
        claim = None if group is None else group.live(command.epoch)
        if group is None or claim is None:
            return self._refused(Reason.FENCED, group)
        if claim.heard_ms != command.heard_ms or claim.freshness(self.log_time_ms) is not Freshness.STALE:
            return self._refused(Reason.NOT_STALE, group, claim)
        return self._end(group, claim)

    def _end(self, group: Group, claim: Claim) -> Accepted:
        self._put(group.with_end_of(claim, self.position))
        return self._accepted(group, claim, ended=True)

    # Administration ---------------------------------------------------------------------------------------------

    def _pause(self, command: c.Pause) -> ClaimAnswer:
        if not is_name(command.group) or not 0 <= command.until_ms <= self.log_time_ms + PAUSE_MS_MAX:
            return self._refused(Reason.INVALID)
        group = self._groups.get(command.group)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                return self._refused(Reason.FULL)
            group = Group(command.group)
        if command.after != group.paused_at:
            return self._refused(Reason.MOVED, group)
        group = evolve(group, paused_until_ms=command.until_ms, paused_at=self.position)
        self._put(group)
        return self._accepted(group, None, ended=False)

    def _forget(self, command: c.Forget) -> ClaimAnswer:
        group = self._groups.get(command.group)
        if group is None:
            return self._refused(Reason.MOVED)
        if group.claims:
            return self._refused(Reason.HELD, group, group.claims[0])
        if command.after != group.last_epoch:
            return self._refused(Reason.MOVED, group)
        del self._groups[group.name]
        self._size -= group.size
        self._digest.mark(group.name)
        return self._accepted(group, None, ended=False)

    def _configure(self, command: c.Configure) -> ClaimAnswer:
        if not HEARTBEAT_MS_MIN <= command.heartbeat_ms <= HEARTBEAT_MS_MAX:
            return self._refused(Reason.INVALID)
        self.heartbeat_ms = command.heartbeat_ms
        return Accepted(0, 0, 0, ended=False, paused=False, log_time_ms=self.log_time_ms)

    # Answers ----------------------------------------------------------------------------------------------------

    def _put(self, group: Group) -> None:
        before = self._groups.get(group.name)
        self._size += group.size - (0 if before is None else before.size)
        self._groups[group.name] = group
        self._digest.mark(group.name)

    def _accepted(self, group: Group, claim: Claim | None, *, ended: bool) -> Accepted:
        return Accepted(
            epoch=0 if claim is None else claim.epoch,
            committed=group.progress.floor if claim is None else claim.committed,
            claimed=group.progress.floor if claim is None else claim.claimed,
            ended=ended,
            paused=self.log_time_ms < group.paused_until_ms,
            log_time_ms=self.log_time_ms,
        )

    def _refused(self, reason: Reason, group: Group | None = None, holder: Claim | None = None) -> Refused:
        if holder is None and group is not None and group.claims:
            holder = group.claims[0]
        return Refused(reason, holder, 0 if group is None else group.last_epoch, self.log_time_ms)
