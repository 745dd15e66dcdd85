"""Group 0 where it is not simulated itself: a registry that everybody sees at once, and its leader.

What group 0 commits is abstracted to atomic steps; every command goes through the shipped codec.
"""

from __future__ import annotations

from typing import Final

from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.server.partitions.coordination_port import Beginning
from zraft.topics.registry import Registry
from zraft.topics.registry_image import read_registry, registry_image
from zraft.topics.registry_leader import RegistryLeader
from zraft_core.ids import GroupId, Instance, ProducerId, ServerId
from zraft_core.topics.codec import decode_registry, encode_registry
from zraft_core.topics.messages import Reply, Report
from zraft_core.topics.registry_commands import CreateGroup, RegisterProducer, RegistryCommand
from zraft_core.topics.registry_values import Disks, PartitionSettings, Result

FOUNDERS: Final = ((ServerId(1), Instance(bytes(16))),)


class SimulatedRegistry:
    """What group 0 has committed.

    Attributes:
        zxid: of the last command.
        gone: the groups that were removed.
    """

    def __init__(self, settings: PartitionSettings | None = None) -> None:
        self.registry = Registry() if settings is None else Registry(group_settings=settings)
        self.keeper = RegistryLeader(self.registry)
        self.zxid = 0
        self.gone: set[GroupId] = set()

    def log(self, command: RegistryCommand) -> Result:
        """Commit a command."""
        self.zxid += 1
        result = self.registry.apply(decode_registry(encode_registry(command)), self.zxid)
        self.gone.update(result.removed)
        return result

    def hear(self, message: Report | Reply) -> None:
        """A group tells the leader something, of which a command may come."""
        keeper = self.keeper
        command = keeper.on_report(message) if isinstance(message, Report) else keeper.on_reply(message)
        if command is not None:
            self.log(command)

    def change_leader(self) -> None:
        """The new one starts from a snapshot."""
        self.registry = read_registry(list(registry_image(self.registry)))
        self.keeper = RegistryLeader(self.registry)

    def found_group(
        self, topic: int, founders: Disks = FOUNDERS, preferred: ServerId | None = None
    ) -> GroupId:
        """Create a topic's next group."""
        created = self.log(CreateGroup(topic, founders, preferred)).created
        assert created is not None
        return GroupId(created)

    def register(self) -> ProducerId:
        """Register a producer."""
        created = self.log(RegisterProducer(owner=1)).created
        assert created is not None
        return ProducerId(created)


class SimulatedCoordination(SimulatedRegistry):
    """The same, for servers' partitions."""

    features = FEATURE_LEVEL_MAX

    @property
    def destinations_max(self) -> int:
        return self.registry.settings.destinations_max

    def beginning(self, group: GroupId) -> Beginning | None:
        if group not in self.registry.groups:
            return None
        birth = self.registry.birth_of(group)
        record = birth.record
        return Beginning(birth.view, birth.settings, record.born, record.first_offset, record.first_time)
