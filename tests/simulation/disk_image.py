"""Owns the disk of one simulated server: the shipped data directory and write-ahead log on a `SimulatedDisk`.

Power can fail inside any write: `tear` lets the log begin to write a frame and ends the process at one of
its steps, so that the crash that follows finds every kind of half-written frame.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from zraft.groups.identity import Identity
from zraft.groups.recovery import Stored, recover
from zraft.groups.snapshots.tasks import Result, SnapshotDisk, Task
from zraft.storage.directory import DataDirectory
from zraft.storage.records import Record
from zraft.storage.settings import WalSettings
from zraft.storage.wal import Wal
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP, ServerId

PATH: Final = "/data"

WAL_SETTINGS: Final = WalSettings(
    segment_bytes_max=32 * 1024, tail_bytes_max=48 * 1024, index_stride_bytes=2 * 1024
)
"""Small enough that a run of a few seconds begins several segments and reads old entries back from them."""


class DiskImage:
    """One disk through all boots of its server, until it is replaced."""

    def __init__(self, server: ServerId, rng: random.Random) -> None:
        self._server = server
        self._rng = rng
        self.disk = SimulatedDisk()
        self._wal: Wal | None = None
        self._snapshots: SnapshotDisk | None = None
        self.directory: DataDirectory | None = None
        self.opened = False

    def open(self, entropy: Callable[[int], bytes]) -> tuple[Identity, Stored]:
        """Open the data directory and recover the log, as a starting server does."""
        fs = self.disk
        self.opened = True
        self.directory = directory = DataDirectory.open(fs, PATH, server=self._server, entropy=entropy)
        recovery = recover(fs, directory, WAL_SETTINGS)
        self._wal = recovery.wal
        self._snapshots = SnapshotDisk(fs, directory, recovery.stores)
        identity = Identity(
            self._server, directory.instance, directory.boot, directory.boot_id, directory.cluster
        )
        return identity, recovery.coordination

    @property
    def joined(self) -> bool:
        return self.directory is None or self.directory.cluster is not None

    def join(self, cluster: bytes) -> None:
        """What the shell does when the cluster is founded: remember it beside the log."""
        assert self.directory is not None
        self.directory.set_cluster(cluster)

    def append(self, records: Sequence[Record]) -> None:
        """Durable on return."""
        assert self._wal is not None
        self._wal.append(records)

    def compact(self, index: int) -> None:
        """Give back what a durable snapshot covers."""
        assert self._wal is not None
        self._wal.compact(COORDINATION_GROUP, index)

    def perform(self, task: Task) -> Result:
        """A task of the snapshot disk."""
        assert self._snapshots is not None
        return self._snapshots.perform(task)

    def tear(
        self, records: Sequence[Record] | None, task: Task | None = None, compact_to: int | None = None
    ) -> None:
        """The power fails while this is being done: nothing of it, a part, or all of it may survive."""
        rng = self._rng
        if rng.random() < 0.25:
            return
        # Appending takes two steps, or about a dozen when it begins a segment; a snapshot's end takes as many.
        step = rng.choice((1, 2, 2, 2, 3, 5, 8, 12))
        self.disk.fail_at(step, rng.choice((Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER)), rng)
        try:
            if records is not None:
                self.append(records)
            if compact_to is not None:
                self.compact(compact_to)
            if task is not None:
                self.perform(task)
        except (ProcessDied, StorageError):
            pass

    def trouble(self, trouble: Trouble, within: int) -> None:
        """One of the next so many calls that change something fails."""
        self.disk.fail_at(self._rng.randint(1, within), trouble, self._rng)

    def rot(self) -> tuple[int, int] | None:
        """A bit of the newest snapshot turns; (index, term) of it, None if there is none."""
        path = f"{PATH}/groups/{COORDINATION_GROUP}/snap"
        try:
            names = [name for name in self.disk.listdir(path) if name.endswith(".snap")]
        except OSError:
            return None
        if not names:
            return None
        name = max(names)
        data = bytearray(self.disk.contents(f"{path}/{name}"))
        data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        self.disk.replace(f"{path}/{name}", bytes(data))
        index, term = name.removesuffix(".snap").split("-")
        return int(index, 16), int(term, 16)

    def crash(self, power: bool | None = None) -> None:
        """The machine loses its power, or, less often, only the process dies and the page cache survives.

        `power`: which of the two it was, which is rolled unless given.
        """
        rolled = self._rng.random() < 0.75
        if rolled if power is None else power:
            self.disk.crash(self._rng)
        else:
            self.disk.kill()
        self._wal = self._snapshots = self.directory = None
