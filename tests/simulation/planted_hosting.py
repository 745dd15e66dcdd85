"""Bugs planted into whole servers with partitions, each of which `tests.simulation.hosting_simulation` must notice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.simulation.planted_registry import Patch, Plants
from zraft.groups.frame import LogFrame
from zraft.groups.hosted_groups import HostedGroups
from zraft.groups.keeping import Keeping
from zraft.groups.retention import LogRetention
from zraft.groups.snapshots.keeper import SnapshotKeeper
from zraft.groups.snapshots.receiving import SnapshotReceiver
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.snapshot import SnapshotMeta
from zraft.server.coordination.bootstrap import Bootstrap
from zraft.server.coordination.group import CoordinationGroup
from zraft.server.engine.driver import Driver
from zraft.server.partitions.partitions import Partitions
from zraft.storage.records import ForgetRecord
from zraft_core.ids import COORDINATION_GROUP, GroupId

PLANTS: Final = Plants[None]()
plant = PLANTS.plant
planted = PLANTS.planted


@plant("D-13", "an image is written before what its group delivered is durable")
def image_does_not_wait() -> Sequence[Patch]:
    return [(Partitions, "cut_index", lambda self, group: 1 << 60)]


@plant("D-13", "an image from another server is taken over without the deliveries under it")
def image_without_deliveries() -> Sequence[Patch]:
    def skip(self: SnapshotReceiver, transfer: Any, now_ms: int) -> None:
        transfer.delivered_end = 1 << 60
        self._complete(transfer)

    return [(SnapshotReceiver, "_ask_for_list", skip)]


@plant("D-4", "a late offer of an image takes back what a partition committed since")
def old_image_accepted() -> Sequence[Patch]:
    def install(self: Keeping, group: GroupId, meta: SnapshotMeta, image: bytes) -> bool:
        replica = self._state.groups[group]
        self._state.touch(replica)
        adopt = replica.machine.prepare_restore(image)
        replica.raft.restore(meta)
        replica.restored(meta, adopt)
        self.retention.removed(group)
        return True

    return [
        (SnapshotReceiver, "_is_needed", lambda self, offer, commit_index: True),
        (Raft, "_accepts_snapshot", lambda self, meta: True),
        (Keeping, "install", install),
    ]


@plant(
    "D-13",
    "the coordination group is snapshotted for what it writes itself, however long the log is behind it",
)
def coordination_keeps_the_log() -> Sequence[Patch]:
    original = LogRetention.due

    def due(self: LogRetention) -> Iterator[GroupId]:
        return (group for group in original(self) if group != COORDINATION_GROUP)

    return [(LogRetention, "due", due)]


@plant("D-13", "what the coordination group writes does not make the log long behind groups of topics")
def coordination_counts_for_nothing() -> Sequence[Patch]:
    original = SnapshotKeeper.applied

    def applied(self: SnapshotKeeper, index: int, size: int, commands: int) -> None:
        original(self, index, size, commands)
        self._retention.written -= size
        self._retention.coordination -= size

    return [(SnapshotKeeper, "applied", applied)]


@plant(
    "D-1, D-18", "the coordination group is removed, because the registry does not list it among the groups"
)
def coordination_removed() -> Sequence[Patch]:
    follow = HostedGroups._follow_table
    forget = LogFrame.forget

    def follow_table(self: HostedGroups, coordination: Raft, applied: int) -> None:
        before = self._revision
        follow(self, coordination, applied)
        if self._revision != before:
            self._frame.forget(COORDINATION_GROUP)

    def forget_any(self: LogFrame, group: GroupId) -> None:
        # Without the assertion that the release has: this is about what would follow.
        if group != COORDINATION_GROUP:
            forget(self, group)
            return
        self._pending.append(ForgetRecord(group))
        self._forgotten.append(group)

    return [(HostedGroups, "_follow_table", follow_table), (LogFrame, "forget", forget_any)]


@plant("D-1", "a server votes as soon as it knows the roster, before all have it on their disks")
def votes_before_founding() -> Sequence[Patch]:
    conclude = Bootstrap._conclude
    turn = Driver.turn
    start = CoordinationGroup._start

    def found_early(self: Bootstrap) -> None:
        conclude(self)
        self.founded = self.founded or self.roster is not None

    def start_early(self: Driver, now_ms: int, wall_ms: int) -> Any:
        group = self.coordination
        if group.bootstrap.roster is not None:
            group._start(group._founders(group.bootstrap.roster))
        return turn(self, now_ms, wall_ms)

    def start_once(self: CoordinationGroup, membership: Membership) -> None:
        if self.raft is None:
            start(self, membership)

    return [
        (Bootstrap, "_conclude", found_early),
        (Driver, "turn", start_early),
        (CoordinationGroup, "_start", start_once),
    ]
