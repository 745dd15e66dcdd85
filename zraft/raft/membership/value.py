"""Membership of a group and its voters: a value, and its bytes in a MEMBERSHIP entry.

A member is a (server, disk instance) pair: a wiped or replaced disk is somebody else, whose votes and
acknowledgements count for nothing (D-1). Learners and observers receive the log but never vote and never
count. While a configuration is joint (Ongaro's dissertation, section 4.3), every decision needs two
majorities: one of the voters, one of the outgoing voters. `zraft.raft.membership.quorum` counts them,
`zraft.raft.membership.change` says which configuration may follow which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgpack
from attrs import evolve, field, frozen

from zraft.compatibility import memberships
from zraft.raft.messages import UNKNOWN_INSTANCE, Member, MemberRole
from zraft_core import layout
from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, Instance, ServerId

FORMAT: Final = 2

MEMBERS_MAX: Final = SERVER_ID_MAX - SERVER_ID_MIN + 1

ADDRESS_BYTES_MAX: Final = 300
"""The longest "HOST:PORT" that a configuration may hold: a DNS name has 253 bytes at most."""


_SERVER: Final = layout.integer(SERVER_ID_MIN, SERVER_ID_MAX)
_ROWS: Final = layout.listed(
    layout.row(
        server=_SERVER,
        instance=layout.ruled(
            layout.binary(0, INSTANCE_BYTES),
            lambda instance: len(instance) in (0, INSTANCE_BYTES),
            f"0 or {INSTANCE_BYTES} bytes",
        ),
        role=layout.member(MemberRole),
        address=layout.ruled(
            layout.any_string,
            lambda address: len(address.encode()) <= ADDRESS_BYTES_MAX,
            f"a string of at most {ADDRESS_BYTES_MAX} bytes",
        ),
    ),
    MEMBERS_MAX,
)
_OUTGOING: Final = layout.ruled(
    layout.listed(_SERVER, MEMBERS_MAX), lambda servers: len({*servers}) == len(servers), "each server once"
)


def _read_only(members: Mapping[ServerId, Member]) -> Mapping[ServerId, Member]:
    return MappingProxyType({server: members[server] for server in sorted(members)})


def _ordered(servers: Iterable[ServerId]) -> tuple[ServerId, ...]:
    return tuple(sorted(servers))


@frozen(hash=False)
class Membership:
    """One configuration, in order of server ids. Equal configurations have equal bytes.

    Attributes:
        members: everybody who gets the log, the LEAVING ones of a joint configuration among them.
        outgoing: the voters before it while it is joint, else empty.
        voters: those with role VOTER.
        electorate: whose vote is asked for: the voters and the outgoing ones.
        joint: whether every decision needs a majority of the outgoing voters, too.
    """

    members: Mapping[ServerId, Member] = field(converter=_read_only)
    outgoing: tuple[ServerId, ...] = field(default=(), converter=_ordered)
    voters: tuple[ServerId, ...] = field(init=False, eq=False, repr=False)
    electorate: tuple[ServerId, ...] = field(init=False, eq=False, repr=False)
    joint: bool = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        voters = tuple(server for server, member in self.members.items() if member.voter)
        object.__setattr__(self, "voters", voters)
        object.__setattr__(self, "electorate", _ordered({*voters, *self.outgoing}))
        object.__setattr__(self, "joint", bool(self.outgoing))

    def final(self) -> Membership:
        """Return the configuration that a joint one leads to; itself if it is not joint."""
        if not self.joint:
            return self
        return Membership(
            {
                server: member
                for server, member in self.members.items()
                if member.role is not MemberRole.LEAVING
            }
        )

    def has(self, server: ServerId, instance: Instance) -> bool:
        """Return whether that disk of that server is a member, voting or not."""
        members = self.members
        return server in members and members[server].instance == instance != UNKNOWN_INSTANCE

    def has_voter(self, server: ServerId, instance: Instance) -> bool:
        """Return whether that disk of that server votes, now or, while joint, still."""
        return server in self.electorate and self.has(server, instance)

    def with_member(self, server: ServerId, member: Member) -> Mapping[ServerId, Member]:
        """Return the members with one added or replaced: a target for `Raft.change_membership`."""
        return {**self.members, server: member}

    def with_role(self, server: ServerId, role: MemberRole) -> Mapping[ServerId, Member]:
        """Return the members with one in another role: a target for `Raft.change_membership`."""
        return {**self.members, server: evolve(self.members[server], role=role)}

    def without(self, server: ServerId) -> Mapping[ServerId, Member]:
        """Return the members without one: a target for `Raft.change_membership`."""
        return {other: member for other, member in self.members.items() if other != server}

    def encode(self) -> bytes:
        """Return MessagePack: [FORMAT, [[server, instance, role, address], ...], [outgoing voter, ...]].

        Rows are in order of server ids.
        """
        rows = [
            (server, member.instance, int(member.role), member.address)
            for server, member in self.members.items()
        ]
        return msgpack.packb((FORMAT, rows, self.outgoing), use_bin_type=True)  # type: ignore[no-any-return]

    @classmethod
    def decode(cls, payload: bytes) -> Membership:
        """Read what `encode` wrote, or an older release (`zraft.compatibility.memberships`).

        Raises:
            ProtocolError: the bytes are no membership, or one of a format that this release does not know.
        """
        try:
            fields = msgpack.unpackb(payload, use_list=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise ProtocolError(f"MEMBERSHIP entry is not MessagePack: {error}") from error
        match fields:
            case (int(version), rows, outgoing) if version == FORMAT:
                membership = cls(_members(rows), _OUTGOING.unpack(outgoing, "MEMBERSHIP outgoing voters"))
                _check(membership)
                return membership
            case (int(version), rows) if version == memberships.FORMAT:
                roles = int(MemberRole.VOTER), int(MemberRole.LEARNER)
                return cls(_members(memberships.rows_with_roles(rows, *roles)))
            case (int(version), *_) if version not in (FORMAT, memberships.FORMAT):
                raise ProtocolError(
                    f"MEMBERSHIP entry of format {version}, expected {memberships.FORMAT} or {FORMAT}: "
                    "upgrade this server"
                )
            case _:
                raise ProtocolError(
                    f"MEMBERSHIP entry holds {type(fields).__name__}, expected (format, rows, outgoing)"
                )


def _check(membership: Membership) -> None:
    """Check what holds between the fields of every configuration."""
    for server in membership.outgoing:
        if server not in membership.members:
            raise ProtocolError(f"MEMBERSHIP entry names outgoing voter {server}, who is no member")
    for server, member in membership.members.items():
        if member.voter and member.instance == UNKNOWN_INSTANCE:
            raise ProtocolError(f"MEMBERSHIP entry names voter {server} without an instance")
        if member.role is MemberRole.LEAVING and server not in membership.outgoing:
            raise ProtocolError(f"MEMBERSHIP entry names {server} as leaving, who is no outgoing voter")


def _members(rows: object) -> dict[ServerId, Member]:
    members: dict[ServerId, Member] = {}
    for server, *its_fields in _ROWS.unpack(rows, "MEMBERSHIP rows"):
        if server in members:
            raise ProtocolError(f"MEMBERSHIP entry names server {server} twice")
        members[server] = Member(*its_fields)
    return members
