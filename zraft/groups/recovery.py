"""From what the common log recovered to what each group starts with: its tail in memory, the rest on the disk."""

from __future__ import annotations

from collections.abc import Callable

from zraft.groups.replica import StoredGroup
from zraft.raft.log import Archive, Log
from zraft.raft.messages import HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.recovery import GroupRecovered


def stored_group(
    recovered: GroupRecovered | None,
    archive: Archive,
    snapshot: tuple[SnapshotMeta, bytes] | None = None,
    held_after: Callable[[int], int] = lambda index: 0,
) -> StoredGroup:
    """One group as recovered; `recovered` is None if the log has no record of it.

    Args:
        archive: reads entries of this group that are not in memory.
        snapshot: the newest good one, with which the log was opened.
        held_after: bytes of the common log that the group's entries after an index hold back.
    """
    if recovered is None:
        return StoredGroup(HardState(), Log(archive=archive), snapshot)
    base = recovered.base
    first_index = base.index + 1 if base is not None else 1
    tail_index = recovered.tail[0].index if recovered.tail else first_index
    log = Log(
        entries=recovered.tail,
        first_index=first_index,
        base_term=base.term if base is not None else 0,
        base_position=base.next_position if base is not None else 1,
        base_membership=base.membership if base is not None else None,
        archive=archive,
        term_runs=[run for run in recovered.term_runs if run[0] < tail_index],
        memberships=[entry for entry in recovered.memberships if entry.index < tail_index],
    )
    return StoredGroup(recovered.hard_state, log, snapshot, held_after(first_index - 1))
