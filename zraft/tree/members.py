"""Members of the cluster that operators want, as state, and as ZooKeeper's clients read it.

The wish is replicated like everything else; the leader brings the consensus group's membership in line with it,
step by step, whatever happens in between. A disk that is replaced changes no wish.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from zraft.config.features import FEATURE_LEVEL_MAX, LEVEL_OF_ONE_PORT
from zraft_core.errors import Code
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, ServerId
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT, REMOVE

EVERYWHERE: Final = ("0.0.0.0:", "[::]:")
"""The beginnings of an address that only says where a server listens: its own entry of `--cluster` may be
one.
"""

ADDRESS_CHARACTERS_MAX: Final = 300
"""A host name has at most 253."""


@frozen
class WantedMember:
    """One server: whether it is to vote once it has caught up, and its "HOST:PORT"."""

    voter: bool
    address: str


ELECTION_PORT: Final = 0
"""The number that a server line names as the port of elections, since there is none."""


Wanted = Mapping[ServerId, WantedMember]


def changed_members(present: Wanted, replace: object, changes: object) -> dict[ServerId, WantedMember] | Code:
    """Return the wish after a MEMBERS command; a `Code` below 0 if it is not one that can be carried out.

    `changes` are (server, REMOVE | PARTICIPANT | OBSERVER, address); with `replace` they are the whole wish.
    """
    if replace.__class__ is not bool or changes.__class__ is not tuple:
        return Code.MARSHALLING_ERROR
    wanted: dict[ServerId, WantedMember] = {} if replace else dict(present)
    assert isinstance(changes, tuple)
    for change in changes:
        if not is_change(change):
            return Code.BAD_ARGUMENTS
        server, role, address = change
        if role == REMOVE:
            wanted.pop(ServerId(server), None)  # one that is no member: as wanted already, as in ZooKeeper
        elif address and any(
            other != server and member.address == address for other, member in wanted.items()
        ):
            return Code.BAD_ARGUMENTS  # one address is one server
        else:
            wanted[ServerId(server)] = WantedMember(role == PARTICIPANT, address)
    if not any(member.voter for member in wanted.values()):
        return Code.NEW_CONFIG_NO_QUORUM
    return {server: wanted[server] for server in sorted(wanted)}


def is_change(change: Any) -> bool:
    """Return whether the value is (server, part, address) within bounds."""
    if change.__class__ is not tuple or len(change) != 3:
        return False
    server, role, address = change
    return (
        server.__class__ is int
        and SERVER_ID_MIN <= server <= SERVER_ID_MAX
        and role.__class__ is int
        and role in (REMOVE, PARTICIPANT, OBSERVER)
        and address.__class__ is str
        and len(address) <= ADDRESS_CHARACTERS_MAX
        and address.isprintable()
        and (":" in address or role == REMOVE or not address)
    )


def config_text(wanted: Wanted, version: int, level: int) -> bytes:
    """Return the data of /zookeeper/config: a line for each server, and the version.

    There is one line per server as in ZooKeeper's dynamic configuration.

    `level` is the feature level in force: what is replicated is equal on all releases of a cluster (D-5).
    Empty while an address is unknown, or one that nobody can connect to: clients take that for a server without dynamic
    configuration, and choke on half an address.
    """
    if not all(member.address and not member.address.startswith(EVERYWHERE) for member in wanted.values()):
        return b""
    lines = [
        server_line(server, member.address, voter=member.voter, level=level)
        for server, member in sorted(wanted.items())
    ]
    return "\n".join([*lines, f"version={version:x}"]).encode()


def server_line(server: int, address: str, *, voter: bool, level: int = FEATURE_LEVEL_MAX) -> str:
    """Return `server.N=host:port:0:role;host:port` of a server at "HOST:PORT", as in ZooKeeper's configuration.

    A server has one port, for clients and servers alike. Below feature level 5 it stands in the place of the election
    port, too; ZooKeeper's Java classes refuse such a line.
    """
    election_port = ELECTION_PORT if level >= LEVEL_OF_ONE_PORT else address.rpartition(":")[2]
    role = "participant" if voter else "observer"
    return f"server.{server}={address}:{election_port}:{role};{address}"
