"""Interface of the coordination group to partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from zraft.storage.delivery.settings import DeliveryRetention
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import Reply, Report
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.view import View


@frozen
class Beginning:
    """Values that a new partition begins with, as in `zraft.topics.partition.Partition`."""

    view: View
    settings: PartitionSettings
    born: bool
    first_offset: int = 0
    first_time: int = 0


class Coordination(Protocol):
    """Group 0 as it is known on this server, which may lag behind."""

    @property
    def leader(self) -> ServerId | None:
        """The leader of group 0, as far as it is known here."""

    @property
    def destinations_max(self) -> int:
        """The number of partitions that a producer's message may go to, as far as it is known here."""

    @property
    def features(self) -> int:
        """The feature level in force, as far as is known here: what partitions may log goes by it (D-5)."""

    def beginning(self, group: GroupId) -> Beginning | None:
        """Return what a group begins with; None if it is not known here (yet, or any more)."""

    def replicas(self, group: GroupId) -> Sequence[ServerId]:
        """Return the servers of a group, the preferred leader first; empty if the group is not known."""

    def retention(self, group: GroupId) -> DeliveryRetention:
        """Return how much of a group's deliveries is kept."""

    def hear(self, message: Report | Reply) -> None:
        """Take a message of a group to group 0, on the server that leads it; elsewhere it is dropped."""
