"""Changes of a configuration (Ongaro's dissertation, chapter 4): by one entry, or by a joint one first.

Values in, a value out. That only one change is under way at a time, and that the leader committed an entry of
its own term before it, is for who leads (without the latter, two leaders may commit configurations whose
majorities do not overlap: the bug of single-server changes that was found in 2015).
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from zraft.raft.membership.value import ADDRESS_BYTES_MAX, Membership
from zraft.raft.messages import UNKNOWN_INSTANCE, Member, MemberRole
from zraft_core.errors import ConfigError
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, Instance, ServerId


def next_membership(present: Membership, target: Mapping[ServerId, Member]) -> Membership:
    """Return the configuration to append so that `target` holds in the end; joint if other servers vote then.

    Raises:
        ConfigError: the change would not be safe, or leaves nobody to decide; says what to do instead.
    """
    assert not present.joint, "a change is under way"
    _check_values(target)
    voters = [server for server, member in target.items() if member.voter]
    if not voters:
        raise ConfigError(
            f"the change leaves no voter (present voters: {_names(present.voters)}): "
            "a cluster needs at least one; add another server and promote it first"
        )
    for server in present.voters:
        member = target.get(server)
        if member is not None and member.instance != present.members[server].instance:
            raise ConfigError(
                f"server {server} votes with another disk than the one it would be given: "
                "remove it first, then add it again as a learner"
            )
    for server in voters:
        before = present.members.get(server)
        if before is None or before.instance != target[server].instance:
            raise ConfigError(
                f"server {server} is to vote but was no member before: add it as a learner first, "
                "and promote it when it has caught up"
            )
    if tuple(sorted(voters)) == present.voters:
        return Membership(target)
    leaving = {
        server: evolve(present.members[server], role=MemberRole.LEAVING)
        for server in present.voters
        if server not in target
    }
    return Membership({**target, **leaving}, outgoing=present.voters)


def _check_values(target: Mapping[ServerId, Member]) -> None:
    owners: dict[Instance, ServerId] = {}
    for server, member in sorted(target.items()):
        if not SERVER_ID_MIN <= server <= SERVER_ID_MAX:
            raise ConfigError(
                f"server {server} cannot be a member: ids are {SERVER_ID_MIN} to {SERVER_ID_MAX}"
            )
        if member.role is MemberRole.LEAVING:
            raise ConfigError(f"server {server} cannot be made LEAVING: leave it out of the members")
        if len(member.address.encode()) > ADDRESS_BYTES_MAX:
            raise ConfigError(
                f"the address of server {server} has more than {ADDRESS_BYTES_MAX} bytes: expected HOST:PORT"
            )
        if member.instance == UNKNOWN_INSTANCE:
            if member.voter:
                raise ConfigError(
                    f"server {server} is to vote but its disk was never seen: start it, "
                    "and promote it when it has caught up"
                )
            continue
        other = owners.setdefault(member.instance, server)
        if other != server:
            raise ConfigError(
                f"servers {other} and {server} have the same disk instance: one of their directories is a copy"
            )


def _names(servers: tuple[ServerId, ...]) -> str:
    return ", ".join(map(str, servers)) or "none"
