"""Bugs planted into whole servers with partitions, each of which `tests.simulation.hosting_simulation` must notice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.simulation.planted_registry import Patch, Plants
from zraft.groups.retention import Retention
from zraft.groups.snapshots.keeper import SnapshotKeeper
from zraft.groups.snapshots.receiving import GroupReceiver
from zraft.server.partitions.partitions import Partitions
from zraft_core.ids import COORDINATION_GROUP, GroupId

PLANTS: Final = Plants[None]()
plant = PLANTS.plant
planted = PLANTS.planted


@plant("D-13", "an image is written before what its group delivered is durable")
def image_does_not_wait() -> Sequence[Patch]:
    return [(Partitions, "cut_index", lambda self, group: 1 << 60)]


@plant("D-13", "an image from another server is taken over without the deliveries under it")
def image_without_deliveries() -> Sequence[Patch]:
    def skip(self: GroupReceiver, transfer: Any, now_ms: int) -> None:
        transfer.delivered_end = 1 << 60
        self._complete(transfer)

    return [(GroupReceiver, "_ask_for_list", skip)]


@plant(
    "D-13",
    "the coordination group is snapshotted for what it writes itself, however long the log is behind it",
)
def coordination_keeps_the_log() -> Sequence[Patch]:
    original = Retention.due

    def due(self: Retention) -> Iterator[GroupId]:
        return (group for group in original(self) if group != COORDINATION_GROUP)

    return [(Retention, "due", due)]


@plant("D-13", "what the coordination group writes does not make the log long behind groups of topics")
def coordination_counts_for_nothing() -> Sequence[Patch]:
    original = SnapshotKeeper.applied

    def applied(self: SnapshotKeeper, index: int, size: int, commands: int) -> None:
        original(self, index, size, commands)
        self._retention.written -= size
        self._retention.coordination -= size

    return [(SnapshotKeeper, "applied", applied)]
