"""What partitions need to know of the coordination group, and say to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from zraft.storage.delivery.settings import Retention
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import Reply, Report
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.view import View


@frozen
class Beginning:
    """What a new partition begins with. `born` as in `zraft.topics.partition.Partition`."""

    view: View
    settings: PartitionSettings
    born: bool


class Coordination(Protocol):
    """Group 0 as it is known on this server, which may lag behind."""

    @property
    def leader(self) -> ServerId | None:
        """Who leads group 0, as far as is known here."""

    @property
    def destinations_max(self) -> int:
        """How many partitions a producer's message may go to, as far as is known here."""

    @property
    def features(self) -> int:
        """The feature level in force, as far as is known here: what partitions may log goes by it (D-5)."""

    def beginning(self, group: GroupId) -> Beginning | None:
        """What a group begins with; None if it is not known here (yet, or any more)."""

    def replicas(self, group: GroupId) -> Sequence[ServerId]:
        """Where a group is, or should be; the one that should lead it first. Empty if it is not known."""

    def retention(self, group: GroupId) -> Retention:
        """How much of its deliveries is kept."""

    def hear(self, message: Report | Reply) -> None:
        """What a group says to group 0, on the server that leads it; elsewhere it is to be dropped."""
