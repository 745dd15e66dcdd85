"""What partitions need to know of the coordination group, read from its state on this server, which may lag behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zraft.server.engine.driver import Driver
from zraft.server.partitions.coordination_port import Beginning
from zraft.storage.delivery.settings import DeliveryRetention
from zraft.topics.registry import Registry
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import Reply, Report


class RegistryCoordination:
    """`zraft.server.partitions.coordination_port.Coordination` over a driver, which is made after it."""

    def __init__(self, driver: Callable[[], Driver]) -> None:
        self._driver = driver

    @property
    def _registry(self) -> Registry:
        return self._driver().machine.registry

    @property
    def leader(self) -> ServerId | None:
        """Who leads the coordination group, as far as is known here."""
        return self._driver().leader

    @property
    def destinations_max(self) -> int:
        """How many partitions a producer's message may go to, as far as is known here."""
        return self._registry.settings.destinations_max

    @property
    def features(self) -> int:
        """The feature level in force, as far as is known here."""
        return self._driver().machine.feature_level

    def beginning(self, group: GroupId) -> Beginning | None:
        """What a group begins with; None if it is not known here (yet, or any more)."""
        registry = self._registry
        if group not in registry.groups:
            return None
        birth = registry.birth_of(group)
        return Beginning(birth.view, birth.settings, birth.record.born)

    def replicas(self, group: GroupId) -> Sequence[ServerId]:
        """Where a group is, or should be; the one that should lead it first. Empty if it is not known."""
        record = self._registry.groups.get(group)
        if record is None:
            return ()
        servers = dict.fromkeys(server for server, _ in (*record.wanted, *record.former))
        if record.preferred in servers:
            servers = {record.preferred: None, **servers}
        return tuple(servers)

    def retention(self, group: GroupId) -> DeliveryRetention:
        """How much of its deliveries is kept; all, once its topic is deleted: that is somebody else's matter."""
        registry = self._registry
        record = registry.groups.get(group)
        topic = None if record is None else registry.topics.get(record.topic)
        if topic is None:
            return DeliveryRetention()
        return DeliveryRetention(topic.retention.bytes_min, topic.retention.age_ms_max)

    def hear(self, message: Report | Reply) -> None:
        """What a group says to the coordination group, on the server that leads it; elsewhere it is dropped."""
        leadership = self._driver().leadership
        if leadership is not None:
            leadership.topics.hear(message)
