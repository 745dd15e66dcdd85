"""A group as the coordination group describes it: its founders, and which server should lead it (D-18)."""

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
    """A group as it was created. It never changes; the group's own log says who belongs to it later.

    Attributes:
        group: the zxid of the coordination group's entry that created it, so that no later group has the same
            number.
        founders: the disk of each server that this entry names.
        preferred: the server that should lead it if it can; None if that does not matter.

    Raises:
        ConfigError: the number is not above 0, there are no founders, or one of them cannot be a server.
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
        """Return whether that disk is a founder's. Only then may it vote before it has heard of the group (D-18)."""
        return self.founders.get(server) == instance

    def membership_for(self, server: ServerId, instance: Instance) -> Membership:
        """Return the members that this disk assumes until its log names some.

        A founder assumes the founders; any other disk assumes only itself, as a learner.
        """
        if self.founded_by(server, instance):
            return Membership({one: Member(disk) for one, disk in self.founders.items()})
        return Membership({server: Member(instance, MemberRole.LEARNER)})
