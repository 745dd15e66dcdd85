"""Owns the disk of one server of a simulated cluster, its snapshots, and what may go wrong with these."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

from tests.simulation.disk import Trouble
from tests.simulation.server_disk import DEATHS, PATH, ServerDisk
from zraft.groups.identity import Identity
from zraft.groups.recovery import Recovery, Stored, recover
from zraft.groups.snapshots.tasks import Result, SnapshotDisk, Task
from zraft.storage.directory import DataDirectory
from zraft.storage.settings import WalSettings
from zraft_core.ids import COORDINATION_GROUP, ServerId


class DiskImage(ServerDisk):
    """One disk through all boots of its server, until it is replaced."""

    SETTINGS: ClassVar[WalSettings] = WalSettings(
        segment_bytes_max=32 * 1024, tail_bytes_max=48 * 1024, index_stride_bytes=2 * 1024
    )
    """Small enough that a run of a few seconds begins several segments and reads old entries back from them."""

    def __init__(self, server: ServerId, rng: random.Random) -> None:
        super().__init__(server, rng)
        self._snapshots: SnapshotDisk | None = None
        self.opened = False

    def open(self, entropy: Callable[[int], bytes]) -> tuple[Identity, Stored]:
        """Open the data directory and recover the log, as a starting server does."""
        self.opened = True
        directory = self._open_directory(entropy)
        recovery = recover(self.disk, directory, self.SETTINGS)
        self._wal = recovery.wal
        self._snapshots = self._open_snapshots(directory, recovery)
        identity = Identity(
            self._server, directory.instance, directory.boot, directory.boot_id, directory.cluster
        )
        return identity, recovery.coordination

    def _open_snapshots(self, directory: DataDirectory, recovery: Recovery) -> SnapshotDisk:
        return SnapshotDisk(self.disk, directory, recovery.stores)

    @property
    def joined(self) -> bool:
        return self.directory is None or self.directory.cluster is not None

    def join(self, cluster: bytes) -> None:
        """What the shell does when the cluster is founded: remember it beside the log."""
        assert self.directory is not None
        self.directory.set_cluster(cluster)

    def perform(self, task: Task) -> Result:
        """A task of the snapshot disk."""
        assert self._snapshots is not None
        return self._snapshots.perform(task)

    def _death(self) -> tuple[int, Trouble]:
        # Appending takes two steps, or about a dozen when it begins a segment; a snapshot's end takes as many.
        step = self._rng.choice((1, 2, 2, 2, 3, 5, 8, 12))
        return step, self._rng.choice(DEATHS)

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
        super().crash(power)
        self._snapshots = None
