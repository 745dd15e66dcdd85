"""What a driver starts from, and what it asks of its shell: identity, settings, stored group, effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field, frozen

from zraft.groups.settings import GroupSettings
from zraft.ids import GroupId, ServerId
from zraft.raft.log import Log
from zraft.raft.messages import HardState
from zraft.raft.settings import RaftSettings
from zraft.server import delivery_tasks
from zraft.server.bootstrap import Roster
from zraft.server.clients import ClientSettings, Output
from zraft.server.group_tasks import GroupTask
from zraft.server.identity import Identity as Identity
from zraft.server.origin import OriginSettings
from zraft.server.snapshot_keeper import SnapshotSettings
from zraft.server.snapshot_tasks import Task
from zraft.storage.records import Record
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import PeerMessage
from zraft.tree.features import FEATURE_LEVEL_MAX
from zraft.tree.machine import Machine
from zraft.tree.settings import Settings


@frozen
class DriverSettings:
    """Everything a server decides by; `tree` seeds the replicated settings when a cluster is founded (D-5)."""

    raft: RaftSettings = field(factory=RaftSettings)
    origin: OriginSettings = field(factory=OriginSettings)
    clients: ClientSettings = field(factory=ClientSettings)
    tree: Settings = field(factory=Settings)
    configured: frozenset[str] = frozenset()
    """Names of those of `tree` that the operator gave a value; nobody misses a default that is not in force."""
    entry_bytes_max: int = 512 * 1024
    entries_in_flight_max: int = 1
    """Uncommitted entries of a leader at which it lets commands gather: fuller entries cost less per command."""
    log_memory_bytes_max: int = 32 * 1024 * 1024
    reap_interval_ms: int = 60_000
    """How often a leader looks for containers and znodes with a time to live that are due."""
    snapshots: SnapshotSettings = field(factory=SnapshotSettings)
    slow_fsync_ms: int = 1_000
    """A leader whose writes take this long, while the others' do not, hands its leadership on; 0: it does not."""
    observers: Mapping[ServerId, str] = field(factory=dict)
    """Listed servers that do not found the cluster, by address: they are taken in as soon as it is founded."""
    founds: bool = True
    """Whether this server, if it is listed and empty, founds a cluster with the others, or only joins one."""
    groups: GroupSettings = field(factory=GroupSettings)
    features: int = FEATURE_LEVEL_MAX
    """The highest feature level this server announces: what it can apply, or less, so that a release can be taken back."""


@frozen
class Stored:
    """What the disk holds of the coordination group, in the form that a start needs.

    `machine` is the state as restored from `snapshot`, the newest one; both are None before the first. `held_after` is
    `Wal.held_after` of this group.
    """

    hard_state: HardState
    roster: Roster | None
    log: Log
    snapshot: SnapshotInfo | None = None
    machine: Machine | None = None
    held_after: Callable[[int], int] = lambda index: 0


@define
class Effects:
    """What the shell does after a turn, in any order.

    `write` is one frame to make durable; `Driver.persisted` is called when it is, and no further frame comes
    before that. `tasks` are for the snapshot disk, in order; `Driver.performed` is told of each. `compact_to`: the
    write-ahead log no longer needs the entries up to it. `wake_at` is when the next turn is due even if nothing
    arrives.

    Of the other groups: `group_tasks` are for the snapshot disk, too; `deliveries` for the disk of deliveries, of which
    `HostedGroups.refused` is told those that it does not take; `group_compactions` are (group, index), as `compact_to`.
    """

    sends: list[tuple[ServerId, list[PeerMessage]]]
    write: list[Record] | None
    outputs: list[Output]
    wake_at: int
    tasks: Sequence[Task] = ()
    compact_to: int | None = None
    group_tasks: Sequence[GroupTask] = ()
    deliveries: Sequence[delivery_tasks.Task] = ()
    group_compactions: Sequence[tuple[GroupId, int]] = ()
