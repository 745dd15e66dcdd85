"""What the coordination group says of a group: who founded it, and who should lead it (D-18)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen

from zraft.raft.membership.value import Membership
from zraft.raft.messages import UNKNOWN_INSTANCE, Member, MemberRole
from zraft_core.errors import ConfigError
from zraft_core.ids import COORDINATION_GROUP, SERVER_ID_MAX, SERVER_ID_MIN, GroupId, Instance, ServerId


def _read_only(founders: Mapping[ServerId, Instance]) -> Mapping[ServerId, Instance]:
    return MappingProxyType({server: founders[server] for server in sorted(founders)})


@frozen(hash=False)
class GroupDescription:
    """A group as it was created. It never changes; who belongs to the group later, its own log says.

    Attributes:
        group: a zxid of the coordination group, so that it never comes back.
        founders: the disk of each server that the entry which created the group names.
        preferred: who should lead it if it can; None if that does not matter.

    Raises:
        ConfigError: it cannot be a group.
    """

    group: GroupId
    founders: Mapping[ServerId, Instance] = field(converter=_read_only)
    preferred: ServerId | None = None

    def __attrs_post_init__(self) -> None:
        if self.group <= COORDINATION_GROUP:
            raise ConfigError(f"group {self.group} cannot be created: ids are zxids, from 1 on")
        if not self.founders:
            raise ConfigError(f"group {self.group} has no founders: it needs at least one")
        for server, instance in self.founders.items():
            if not SERVER_ID_MIN <= server <= SERVER_ID_MAX or instance == UNKNOWN_INSTANCE:
                raise ConfigError(
                    f"group {self.group} cannot be founded by server {server} with disk {instance.hex() or 'unknown'}: "
                    f"expected a server {SERVER_ID_MIN} to {SERVER_ID_MAX} whose disk was seen"
                )

    def founded_by(self, server: ServerId, instance: Instance) -> bool:
        """Was the group created with that disk? Only then may it vote before it has heard of the group (D-18)."""
        return self.founders.get(server) == instance

    def membership_for(self, server: ServerId, instance: Instance) -> Membership:
        """What that disk starts with, while its log names no membership: the founders, or itself as a learner."""
        if self.founded_by(server, instance):
            return Membership({one: Member(disk) for one, disk in self.founders.items()})
        return Membership({server: Member(instance, MemberRole.LEARNER)})
