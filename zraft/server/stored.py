"""From what the disk recovered to what the driver starts with: the log, and the state of the newest snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zraft.errors import ProtocolError
from zraft.ids import COORDINATION_GROUP
from zraft.raft.log import Log
from zraft.raft.messages import Entry, HardState
from zraft.server.driver_types import Stored
from zraft.storage.errors import CorruptionError
from zraft.storage.recovery import Recovered
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft.tree.image import ImageReader
from zraft.tree.machine import Machine

ITEMS_PER_STEP = 10_000


def stored_group(
    wal: Wal, recovered: Recovered, snapshot: SnapshotInfo | None = None, machine: Machine | None = None
) -> Stored:
    """The coordination group as recovered: its tail in memory, the rest read from the log when it is needed."""

    def archive(lo: int, hi: int, bytes_max: int) -> Sequence[Entry]:
        return wal.read_entries(COORDINATION_GROUP, lo, hi, bytes_max)

    group = recovered.groups.get(COORDINATION_GROUP)
    if group is None:
        return Stored(HardState(), None, Log(archive=archive), snapshot, machine)
    base = group.base
    first_index = base.index + 1 if base is not None else 1
    tail_index = group.tail[0].index if group.tail else first_index
    log = Log(
        entries=group.tail,
        first_index=first_index,
        base_term=base.term if base is not None else 0,
        base_position=base.next_position if base is not None else 1,
        base_membership=base.membership if base is not None else None,
        archive=archive,
        term_runs=[run for run in group.term_runs if run[0] < tail_index],
        memberships=[entry for entry in group.memberships if entry.index < tail_index],
    )
    return Stored(
        group.hard_state,
        group.roster,
        log,
        snapshot,
        machine,
        lambda index: wal.held_after(COORDINATION_GROUP, index),
    )


def restore_machine(
    store: SnapshotStore,
    info: SnapshotInfo,
    on_progress: Callable[[int, int], None] = lambda done, items: None,
) -> Machine:
    """The state as of a snapshot. Blocks for seconds if it is large; `on_progress` gets (items so far, of how many).

    Raises:
        CorruptionError: the file is not the image that its header says.
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
