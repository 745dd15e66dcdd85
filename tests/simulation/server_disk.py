"""Owns what every simulated server does with its disk: the shipped data directory and write-ahead log on a `SimulatedDisk`.

Power can fail inside any write: `tear` lets the log begin to write a frame and ends the process at one of
its steps, so that the crash that follows finds every kind of half-written frame.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from zraft.storage.directory import DataDirectory
from zraft.storage.records import Record
from zraft.storage.wal import Wal
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP, GroupId, ServerId

PATH: Final = "/data"
DEATHS: Final = (Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER)


class ServerDisk(ABC):
    """One disk through all boots of its server, until it is replaced."""

    def __init__(self, server: ServerId, rng: random.Random) -> None:
        self._server = server
        self._rng = rng
        self.disk = SimulatedDisk()
        self.directory: DataDirectory | None = None
        """Of the start that runs."""
        self._wal: Wal | None = None

    def _open_directory(self, entropy: Callable[[int], bytes]) -> DataDirectory:
        self.directory = DataDirectory.open(self.disk, PATH, server=self._server, entropy=entropy)
        return self.directory

    @property
    def wal(self) -> Wal:
        assert self._wal is not None
        return self._wal

    def append(self, records: Sequence[Record]) -> None:
        """Durable on return."""
        self.wal.append(records)

    def compact(self, index: int, group: GroupId = COORDINATION_GROUP) -> None:
        """Give back what a durable snapshot covers."""
        self.wal.compact(group, index)

    @abstractmethod
    def perform(self, task: Any) -> Any:
        """A task of the snapshot disk."""

    @abstractmethod
    def _death(self) -> tuple[int, Trouble]:
        """Roll at which of the next steps the power fails, and when in it."""

    def tear(
        self, records: Sequence[Record] | None, task: object | None = None, compact_to: int | None = None
    ) -> None:
        """The power fails while this is being done: nothing of it, a part, or all of it may survive."""
        if self._rng.random() < 0.25:
            return
        self.disk.fail_at(*self._death(), self._rng)
        try:
            if records is not None:
                self.append(records)
            if compact_to is not None:
                self.compact(compact_to)
            if task is not None:
                self.perform(task)
        except (ProcessDied, StorageError):
            pass

    def crash(self, power: bool | None = None) -> None:
        """The machine loses its power, or, less often, only the process dies and the page cache survives.

        `power`: which of the two it was, which is rolled unless given.
        """
        rolled = self._rng.random() < 0.75
        if rolled if power is None else power:
            self.disk.crash(self._rng)
        else:
            self.disk.kill()
        self._wal = self.directory = None
