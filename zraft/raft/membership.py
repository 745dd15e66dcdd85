"""Who belongs to a group and who of them votes: a value, and its bytes in a MEMBERSHIP entry.

A member is a (server, disk instance) pair: a wiped or replaced disk is somebody else, whose votes and
acknowledgements count for nothing (D-1). Learners receive the log but never vote and never count.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgpack
from attrs import field, frozen

from zraft.errors import ProtocolError
from zraft.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, Instance, ServerId
from zraft.raft.messages import Member

FORMAT: Final = 1


def _read_only(members: Mapping[ServerId, Member]) -> Mapping[ServerId, Member]:
    return MappingProxyType({server: members[server] for server in sorted(members)})


@frozen(hash=False)
class Membership:
    """One configuration, in order of server ids. Equal configurations have equal bytes."""

    members: Mapping[ServerId, Member] = field(converter=_read_only)
    voters: tuple[ServerId, ...] = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        voters = tuple(server for server, member in self.members.items() if member.voter)
        object.__setattr__(self, "voters", voters)

    def has(self, server: ServerId, instance: Instance) -> bool:
        """Is that disk of that server a member, voting or not?"""
        member = self.members.get(server)
        return member is not None and member.instance == instance

    def has_voter(self, server: ServerId, instance: Instance) -> bool:
        """Is that disk of that server a voter?"""
        member = self.members.get(server)
        return member is not None and member.voter and member.instance == instance

    def encode(self) -> bytes:
        """MessagePack: [FORMAT, [[server, instance, voter], ...]] in order of server ids."""
        rows = [(server, member.instance, member.voter) for server, member in self.members.items()]
        return msgpack.packb((FORMAT, rows), use_bin_type=True)  # type: ignore[no-any-return]

    @classmethod
    def decode(cls, payload: bytes) -> Membership:
        """Read what `encode` wrote.

        Raises:
            ProtocolError: the bytes are no membership, or one of a format that this release does not know.
        """
        try:
            fields = msgpack.unpackb(payload, use_list=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise ProtocolError(f"MEMBERSHIP entry is not MessagePack: {error}") from error
        match fields:
            case (int(version), tuple(rows)) if version == FORMAT:
                members = dict(_decode_row(row) for row in rows)
                if len(members) < len(rows):
                    raise ProtocolError(f"MEMBERSHIP entry names a server twice: {rows!r}")
                return cls(members)
            case (int(version), *_):
                raise ProtocolError(
                    f"MEMBERSHIP entry of format {version}, expected {FORMAT}: upgrade this server"
                )
            case _:
                raise ProtocolError(
                    f"MEMBERSHIP entry holds {type(fields).__name__}, expected (format, rows)"
                )


def _decode_row(row: object) -> tuple[ServerId, Member]:
    match row:
        case (int(server), bytes(instance), bool(voter)) if (
            SERVER_ID_MIN <= server <= SERVER_ID_MAX and len(instance) == INSTANCE_BYTES
        ):
            return ServerId(server), Member(Instance(instance), voter)
        case _:
            raise ProtocolError(
                f"MEMBERSHIP row {row!r}, expected (server {SERVER_ID_MIN}..{SERVER_ID_MAX}, "
                f"instance of {INSTANCE_BYTES} bytes, voter)"
            )
