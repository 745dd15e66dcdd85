"""The servers of a new cluster, and which of them creates it alone."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from zraft.raft.membership.value import Membership
from zraft.raft.messages import UNKNOWN_INSTANCE, Member, MemberRole
from zraft.tree.members import WantedMember
from zraft_core.errors import ConfigError
from zraft_core.ids import Instance, ServerId


@frozen
class Founders:
    """Server `server` begins the cluster; the others of `addresses` ("HOST:PORT" by server) join it with empty disks.

    `observers` are those of them that never vote.
    """

    server: ServerId
    addresses: Mapping[ServerId, str]
    observers: frozenset[ServerId] = frozenset()

    def __attrs_post_init__(self) -> None:
        if self.server not in self.addresses:
            listed = ", ".join(map(str, sorted(self.addresses)))
            raise ConfigError(
                f"--cluster: lists servers {listed}, but not this one, --id {self.server}; give the list that all "
                f"servers of the new cluster are started with"
            )
        if self.server in self.observers:
            raise ConfigError(
                f"--cluster: server {self.server} is an observer, and --id {self.server} begins the cluster, which only a "
                "server that votes can; begin with another one"
            )

    def wanted(self) -> dict[ServerId, WantedMember]:
        """Return which servers should vote, and which should not."""
        return {
            server: WantedMember(server not in self.observers, address)
            for server, address in self.addresses.items()
        }

    def membership(self, instance: Instance) -> Membership:
        """Return the configuration in which the founder votes alone at first, with the disk `instance`.

        So it needs nobody. No disk is known of the others: the leader lets in the empty ones that show up,
        and promotes them when they have caught up. A server that is left over from an earlier cluster has a
        disk that was never let in (D-1).
        """
        return Membership(
            {
                server: Member(instance, MemberRole.VOTER, address)
                if server == self.server
                else Member(
                    UNKNOWN_INSTANCE,
                    MemberRole.OBSERVER if server in self.observers else MemberRole.LEARNER,
                    address,
                )
                for server, address in self.addresses.items()
            }
        )
