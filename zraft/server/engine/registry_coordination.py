"""View of the coordination group for partitions, read from its state on this server, which may lag behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zraft.server.engine.driver import Driver
from zraft.server.partitions.coordination_port import Beginning
from zraft.storage.delivery.settings import DeliveryRetention
from zraft.topics.registry import Registry
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import Reply, Report


class RegistryCoordination:
    """The coordination group as partitions see it: a `coordination_port.Coordination` over a driver that is made later."""

    def __init__(self, driver: Callable[[], Driver]) -> None:
        self._driver = driver

    @property
    def _registry(self) -> Registry:
        return self._driver().machine.registry

    @property
    def leader(self) -> ServerId | None:
        """The leader of the coordination group, as far as this server knows; None if it knows none."""
        return self._driver().leader

    @property
    def destinations_max(self) -> int:
        """The number of partitions to which a producer's message may go, as far as this server knows."""
        return self._registry.settings.destinations_max

    @property
    def features(self) -> int:
        """The feature level in force, as far as this server knows."""
        return self._driver().machine.feature_level

    def beginning(self, group: GroupId) -> Beginning | None:
        """Return what a group begins with; None if it is not known here yet, or any more."""
        registry = self._registry
        if group not in registry.groups:
            return None
        birth = registry.birth_of(group)
        record = birth.record
        return Beginning(birth.view, birth.settings, record.born, record.first_offset, record.first_time)

    def replicas(self, group: GroupId) -> Sequence[ServerId]:
        """Return the servers that have the group or should have it, its preferred leader first; empty if it is not known."""
        record = self._registry.groups.get(group)
        if record is None or group in self._registry.given_up:
            return ()
        servers = dict.fromkeys(server for server, _ in (*record.wanted, *record.former))
        if record.preferred in servers:
            servers = {record.preferred: None, **servers}
        return tuple(servers)

    def retention(self, group: GroupId) -> DeliveryRetention:
        """Return how much of the group's deliveries is kept.

        If its topic is deleted, that is everything: the deliveries then go with the group.
        """
        registry = self._registry
        record = registry.groups.get(group)
        topic = None if record is None else registry.topics.get(record.topic)
        if topic is None:
            return DeliveryRetention()
        return DeliveryRetention(topic.retention.bytes_min, topic.retention.age_ms_max)

    def hear(self, message: Report | Reply) -> None:
        """Give what a group says to the coordination group's leader, if this server is it; else drop it."""
        leadership = self._driver().leadership
        if leadership is not None:
            leadership.topics.hear(message)
