"""One group on this server: its core, its state machine, and how far the one was applied to the other. Pure.

`Replica` is what every group has, the coordination group, too; `HostedReplica` adds what a host of groups
keeps of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from zraft.groups.machine import EntryTaker, StateMachine
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import HardState
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import GroupId, Instance, ServerId

DIGESTS_KEPT: Final = 4
"""How many digests are kept: as many as there may be before the leader has taken them."""


@frozen
class StoredGroup:
    """A group as its server's disk has it.

    Attributes:
        snapshot: the newest good snapshot and its image; the log continues it.
        held_bytes: how much of the common log the group's entries hold back: `Wal.held_after` their first
            one.
    """

    hard_state: HardState
    log: Log
    snapshot: tuple[SnapshotMeta, bytes] | None = None
    held_bytes: int = 0


class Replica:
    """A member of a group. It applies to a state machine what is committed and durable here.

    Args:
        digest: returns the digest of the state, which is noted every `digest_interval` entries; None if none
            is noted here.

    Attributes:
        applied_index, next_position: up to where entries are applied, and the position that the next command
            has.
        reads: (context, index) of reads that wait for their index to be applied.
        digests: the newest (index, digest of the state after that entry) that were noted (D-26).
    """

    __slots__ = (
        "_digest",
        "_in_part",
        "applied_index",
        "digest_interval",
        "digests",
        "group",
        "machine",
        "next_position",
        "raft",
        "reads",
    )

    machine: EntryTaker

    def __init__(
        self,
        group: GroupId,
        raft: Raft,
        machine: EntryTaker,
        *,
        digest: Callable[[], int] | None = None,
        digest_interval: int = 1_024,
    ) -> None:
        self.group = group
        self.raft = raft
        self.machine = machine
        self.applied_index = 0
        self.next_position = 1
        self.reads: list[tuple[int, int]] = []
        self.digest_interval = digest_interval
        self.digests: deque[tuple[int, int]] = deque(maxlen=DIGESTS_KEPT)
        self._digest = digest
        self._in_part = False  # the entry behind `applied_index` was taken in part

    def stands_at(self, meta: SnapshotMeta) -> None:
        """Take note that the state machine has become what a snapshot says."""
        self.applied_index = meta.index
        self.next_position = meta.next_position
        self.digests.clear()
        self._in_part = False

    def apply(self, bytes_max: int) -> bool:
        """Apply what is committed and durable here (D-7), as far as `bytes_max` bytes of payload, roughly.

        If the machine took only a part of an entry, the next call continues that entry and stops after it.
        What has to wait for the end of an entry can be done then, however many entries are left.

        Returns:
            Whether anything was done.
        """
        raft, machine, digest = self.raft, self.machine, self._digest
        applicable = raft.applicable_index
        if self.applied_index >= applicable or machine.stopped:
            return False
        left = bytes_max
        while self.applied_index < applicable and left > 0:
            for entry in raft.log.slice(self.applied_index + 1, applicable + 1, left):
                if not machine.apply(entry):
                    self._in_part = not machine.stopped
                    return True
                self.applied_index = entry.index
                self.next_position = entry.position + entry.count
                if digest is not None and not entry.index % self.digest_interval:
                    self.digests.append((entry.index, digest()))
                if self._in_part:
                    self._in_part = False
                    return True
                if entry.index < applicable:
                    left -= len(entry.payload) + 1
        return True

    @property
    def has_more_to_apply(self) -> bool:
        """True if entries are committed and durable here that were not applied yet, and the machine takes them."""
        return self.applied_index < self.raft.applicable_index and not self.machine.stopped

    def where_applied(self) -> SnapshotMeta:
        """Return where the log stands at the state machine's index, which must not be 0."""
        log, index = self.raft.log, self.applied_index
        membership = log.membership_at(index)
        assert membership is not None, f"group {self.group}: no membership at or before entry {index} (D-1)"
        return SnapshotMeta(index, log.term_at(index), self.next_position, membership)

    def take_reads(self) -> list[int]:
        """Return the contexts of the reads that may be answered from the state machine as it is."""
        applied = self.applied_index
        done = [context for context, index in self.reads if index <= applied]
        if done:
            self.reads = [read for read in self.reads if read[1] > applied]
        return done


class HostedReplica(Replica):
    """A replica of a group that `GroupHost` has.

    Attributes:
        born: tick of the host at which the core's clock stood at 0.
        preferred: the server that should lead the group; None if that does not matter.
        wanted: the disks that should be its voters; None if that is not known here.
        snapshot_index: index up to which the newest durable snapshot covers the log.
        kept_bytes: bytes of the log before the newest snapshot that are kept for slow followers.
        covered: whether shared heartbeats may speak for it. If not, it always has rounds of its own, and
            never sleeps.
        asleep: whether it has nothing to do, and no alarm of its own.
        placed: while leading, whether its owner was told that the members are as wanted.
        retired: whether the group has left this server. The replica then answers requests, and does nothing
            by itself.
        seen: term, role, leader and newest members of the core when a turn looked at it last.
        reconsider: whether the next turn looks at who leads it, whether it may sleep, and who should belong
            to it, even if the core is as it was `seen`.
        heard_at: tick of the host at which the newest shared heartbeat came of which the core was told.
        shown: term (0 unless leading), index of the newest members and number of followers with which the
            covers were last brought into line.
        taken_from: the server in whose cover this server has agreed to follow the group; None if in none.
        leaderless_at: tick of the host since which no leader is known; None while one is.
    """

    __slots__ = (
        "asleep",
        "born",
        "covered",
        "heard_at",
        "kept_bytes",
        "leaderless_at",
        "placed",
        "preferred",
        "reconsider",
        "retired",
        "seen",
        "shown",
        "snapshot_index",
        "taken_from",
        "wanted",
    )

    machine: StateMachine

    def __init__(
        self, group: GroupId, raft: Raft, machine: StateMachine, born: int, digest_interval: int
    ) -> None:
        super().__init__(group, raft, machine, digest=machine.digest, digest_interval=digest_interval)
        self.born = born
        self.preferred: ServerId | None = None
        self.wanted: Mapping[ServerId, Instance] | None = None
        self.snapshot_index = 0
        self.kept_bytes = 0
        self.covered = True
        self.asleep = False
        self.placed = False
        self.retired = False
        self.seen: tuple[int, Role, ServerId | None, Membership | None] = (0, Role.FOLLOWER, None, None)
        self.reconsider = True
        self.heard_at = -1
        self.shown: tuple[int, int, int] = (0, 0, 0)
        self.taken_from: ServerId | None = None
        self.leaderless_at: int | None = None

    def restored(self, meta: SnapshotMeta, adopt: Callable[[], None]) -> None:
        """Take a durable snapshot as the state from now on; `adopt` is what the machine has prepared."""
        adopt()
        self.stands_at(meta)
        self.snapshot_index = meta.index
        self.kept_bytes = 0
