"""Recovery: the state that each group of a server starts with, computed from the data directory by one function, `recover`.

All snapshots are found first; then the log is opened with the positions where they stand (D-13). The images
of topics' groups are read at the start as well. Later, when the coordination group's state has said that a
group still exists, the loop has no time for files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from attrs import frozen

from zraft.groups.replica import StoredGroup
from zraft.groups.roster import Roster
from zraft.raft.log import Archive, Log
from zraft.raft.messages import Entry, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import reading, remove_if_hollow
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.recovery import GroupRecovered, Recovered
from zraft.storage.settings import WalSettings
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft.tree.image.reader import ImageReader
from zraft.tree.machine import Machine
from zraft_core.errors import ProtocolError
from zraft_core.ids import COORDINATION_GROUP, GroupId

ITEMS_PER_STEP: Final = 500
"""Items of an image that are restored between two reports of progress. What so many take stays in the processor's caches."""


@frozen
class Stored:
    """The coordination group as the disk holds it, in the form that a start needs.

    Attributes:
        snapshot: the newest snapshot; None before the first.
        machine: the state as restored from it; None before the first.
        held_after: `Wal.held_after` of this group.
    """

    hard_state: HardState
    roster: Roster | None
    log: Log
    snapshot: SnapshotInfo | None = None
    machine: Machine | None = None
    held_after: Callable[[int], int] = lambda _: 0


class StoredGroups(Protocol):
    """The groups as the disk held them when this process started."""

    @property
    def present(self) -> frozenset[GroupId]:
        """The groups of which the disk knows something and which were not taken yet."""

    def holds(self, group: GroupId) -> bool:
        """Return whether the group is one of `present`."""

    def newest(self, group: GroupId) -> SnapshotInfo | None:
        """Return the group's newest snapshot; None if there is none, or the group was taken."""

    def take(self, group: GroupId) -> StoredGroup:
        """Return what the disk holds of the group, which may be nothing. It is given out once."""

    def drop(self, group: GroupId) -> None:
        """Drop what the disk held of a group that is gone for good."""


class RecoveredGroups:
    """The topics' groups as a start found them. It holds images and tails of the log in memory until they are taken."""

    def __init__(
        self, recovered: Recovered, snapshots: Mapping[GroupId, tuple[SnapshotInfo, bytes]], wal: Wal
    ) -> None:
        self._groups = {group: log for group, log in recovered.groups.items() if group != COORDINATION_GROUP}
        self._snapshots = dict(snapshots)
        self._wal = wal

    @property
    def present(self) -> frozenset[GroupId]:
        """The groups of which the disk knows something and which were not taken yet."""
        return frozenset(self._groups) | frozenset(self._snapshots)

    def holds(self, group: GroupId) -> bool:
        """Return whether the group is one of `present`."""
        return group in self._groups or group in self._snapshots

    def newest(self, group: GroupId) -> SnapshotInfo | None:
        """Return the group's newest snapshot; None if there is none, or the group was taken."""
        found = self._snapshots.get(group)
        return None if found is None else found[0]

    def take(self, group: GroupId) -> StoredGroup:
        """Return what the disk holds of the group, which may be nothing. It is given out once."""
        found = self._snapshots.pop(group, None)
        snapshot: tuple[SnapshotMeta, bytes] | None = None
        if found is not None:
            snapshot = (found[0].meta, found[1])
        return stored_group(self._wal, group, self._groups.pop(group, None), snapshot)

    def drop(self, group: GroupId) -> None:
        """Drop what the disk held of a group that is gone for good."""
        self._groups.pop(group, None)
        self._snapshots.pop(group, None)


@frozen
class Recovery:
    """Result of reading a data directory at the start.

    Attributes:
        wal: the open log of all groups.
        recovered: what the log holds.
        stores: the snapshots of each group that has some; the coordination group is always among them.
        coordination: what the coordination group starts with.
        groups: what the topics' groups start with.
    """

    wal: Wal
    recovered: Recovered
    stores: dict[GroupId, SnapshotStore]
    coordination: Stored
    groups: RecoveredGroups


def restore_machine(
    store: SnapshotStore,
    info: SnapshotInfo,
    on_progress: Callable[[int, int], None] = lambda _done, _items: None,
) -> Machine:
    """Restore the coordination group's state from a snapshot. A large one blocks for seconds.

    Args:
        on_progress: gets the number of items restored so far, and of all items.

    Raises:
        CorruptionError: the file is not the image that its header names.
        StorageError: the file cannot be read.
    """
    reader = ImageReader()
    machine = Machine()
    try:
        for block in store.blocks(info):
            reader.feed(block)
            while reader.step(ITEMS_PER_STEP):
                on_progress(reader.items, info.items)
        machine.adopt(reader.finish())
    except ProtocolError as error:
        raise CorruptionError(
            info.path,
            0,
            str(error),
            advice="move the data directory aside and let the server join again with an empty one",
        ) from error
    return machine


Restore = Callable[[SnapshotStore, SnapshotInfo], Machine]
"""A function that restores the coordination group's state, such as `restore_machine`."""
"""A function that restores the coordination group's state, such as `restore_machine`."""


def recover(
    fs: FileSystem, directory: DataDirectory, settings: WalSettings, restore: Restore = restore_machine
) -> Recovery:
    """Open the snapshots and the log, and return what every group starts with. Files of forgotten groups are still there.

    Raises:
        StorageError: a directory cannot be read or written.
        CorruptionError: a file is damaged.
    """
    coordination_store = SnapshotStore.open(fs, directory, COORDINATION_GROUP)
    stores = {COORDINATION_GROUP: coordination_store, **open_stores(fs, directory)}
    newest = {group: store.newest for group, store in stores.items() if store.newest is not None}
    wal, recovered = Wal.open(
        fs, directory, settings=settings, snapshots={group: info.meta for group, info in newest.items()}
    )
    info = newest.pop(COORDINATION_GROUP, None)
    machine = restore(coordination_store, info) if info is not None else None
    images = {
        group: (one, b"".join(stores[group].blocks(one)))
        for group, one in newest.items()
        if group not in recovered.forgotten
    }
    found = recovered.groups.get(COORDINATION_GROUP)
    coordination = Stored(
        found.hard_state if found is not None else HardState(),
        found.roster if found is not None else None,
        log_of(wal, COORDINATION_GROUP, found),
        info,
        machine,
        lambda index: wal.held_after(COORDINATION_GROUP, index),
    )
    return Recovery(wal, recovered, stores, coordination, RecoveredGroups(recovered, images, wal))


def open_stores(fs: FileSystem, directory: DataDirectory) -> dict[GroupId, SnapshotStore]:
    """Open the snapshots of every group of which this disk has some, except the coordination group's.

    Raises:
        StorageError: a directory cannot be read or written.
    """
    with reading(directory.path):
        if "groups" not in fs.listdir(directory.path):
            return {}
        names = fs.listdir(f"{directory.path}/groups")
    groups = sorted(GroupId(int(name)) for name in names if name.isascii() and name.isdigit())
    return {
        group: SnapshotStore.open(fs, directory, group)
        for group in groups
        # An empty directory holds nothing of a living group; earlier releases left such directories of removed groups.
        if group != COORDINATION_GROUP and not remove_if_hollow(fs, f"{directory.path}/groups/{group}")
    }


def stored_group(
    wal: Wal,
    group: GroupId,
    recovered: GroupRecovered | None,
    snapshot: tuple[SnapshotMeta, bytes] | None = None,
) -> StoredGroup:
    """Return one group as recovered.

    Args:
        recovered: what the log holds of it; None if the log has no record of it.
        snapshot: the newest good one, with which the log was opened.
    """
    log = log_of(wal, group, recovered)
    if recovered is None:
        return StoredGroup(HardState(), log, snapshot)
    return StoredGroup(recovered.hard_state, log, snapshot, wal.held_after(group, log.first_index - 1))


def log_of(wal: Wal, group: GroupId, recovered: GroupRecovered | None) -> Log:
    """Return a group's log as recovered: its tail is in memory, and the rest is read from the disk when it is needed."""
    archive = archive_of(wal, group)
    if recovered is None:
        return Log(archive=archive)
    base = recovered.base
    first_index = base.index + 1 if base is not None else 1
    tail_index = recovered.tail[0].index if recovered.tail else first_index
    return Log(
        entries=recovered.tail,
        first_index=first_index,
        base_term=base.term if base is not None else 0,
        base_position=base.next_position if base is not None else 1,
        base_membership=base.membership if base is not None else None,
        archive=archive,
        term_runs=[run for run in recovered.term_runs if run[0] < tail_index],
        memberships=[entry for entry in recovered.memberships if entry.index < tail_index],
    )


def archive_of(wal: Wal, group: GroupId) -> Archive:
    """Return a function that reads entries of the group which are not in memory."""

    def read(lo: int, hi: int, bytes_max: int) -> Sequence[Entry]:
        return wal.read_entries(group, lo, hi, bytes_max)

    return read
