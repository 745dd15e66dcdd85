"""From what the write-ahead log recovered to what the driver starts with."""

from __future__ import annotations

from collections.abc import Sequence

from zraft.ids import COORDINATION_GROUP
from zraft.raft.log import Log
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.server.driver_types import Stored
from zraft.storage.recovery import Recovered
from zraft.storage.wal import Wal


def stored_group(wal: Wal, recovered: Recovered) -> Stored:
    """The coordination group as recovered: its tail in memory, the rest read from the log when it is needed."""

    def archive(lo: int, hi: int, bytes_max: int) -> Sequence[Entry]:
        return wal.read_entries(COORDINATION_GROUP, lo, hi, bytes_max)

    group = recovered.groups.get(COORDINATION_GROUP)
    if group is None:
        return Stored(HardState(), None, Log(archive=archive))
    if not group.tail:
        return Stored(group.hard_state, group.roster, Log(archive=archive))
    first = group.tail[0].index
    # The roster is the first entry of every log (D-1), and nothing else changes the membership yet.
    older = archive(1, 2, 1) if first > 1 else ()
    log = Log(
        entries=group.tail,
        archive=archive,
        term_runs=[run for run in group.term_runs if run[0] < first],
        memberships=[entry for entry in older if entry.kind is EntryKind.MEMBERSHIP],
    )
    return Stored(group.hard_state, group.roster, log)
