"""States from snapshots' files, with which re-execution begins. Reads the file where the task runs."""

from __future__ import annotations

from onyxlog.audits.rules.reexecution import StateRow
from zraft.offline.reading import machine_of
from zraft.storage.filesystem import ReadOnlyFileSystem
from zraft.storage.snapshot_format import SnapshotFileReader
from zraft.tree.machine import Machine
from zraft_core.errors import StorageError


def state_of(row: StateRow) -> Machine | None:
    """Return the state of a snapshot; None if its file is gone (replaced by a newer one) or damaged, which S6 reports."""
    try:
        with SnapshotFileReader(ReadOnlyFileSystem(), row.file) as file:
            return machine_of(file.blocks(), row.file)
    except StorageError:
        return None
