"""The whole state as bytes: what a replica restarts from, or is sent. No claim is so old that it is left out.

Layout: MessagePack [FORMAT, position, log_time_ms, heartbeat_ms, digest, [group, ...]], groups sorted by name.
"""

from __future__ import annotations

import msgpack

from zraft_core.claims.codec import FORMAT, unpacked_unbounded
from zraft_core.claims.group import Group
from zraft_core.claims.layout import built, plain_group
from zraft_core.claims.state import Claims
from zraft_core.errors import ProtocolError
from zraft_core.messagepack import shown


def encode_snapshot(claims: Claims) -> bytes:
    groups = sorted(claims.groups(), key=lambda group: group.name)
    fields = (
        *(FORMAT, claims.position, claims.log_time_ms, claims.heartbeat_ms),
        claims.digest().to_bytes(16, "big"),
        tuple(map(plain_group, groups)),
    )
    packed: bytes = msgpack.packb(fields)
    return packed


def decode_snapshot(data: bytes) -> Claims:
    """The state that was encoded.

    Raises:
        ProtocolError: the bytes are no snapshot of this format, or its digest is another than what it says.
    """
    values = unpacked_unbounded(data, "a snapshot of claims")
    if len(values) != 6 or not isinstance(values[5], tuple):
        raise ProtocolError(
            f"a snapshot of claims: expected 6 fields, the last an array, found {shown(values)}"
        )
    _, position, log_time_ms, heartbeat_ms, digest, plain = values
    if not all(type(number) is int and number >= 0 for number in (position, log_time_ms, heartbeat_ms)):
        raise ProtocolError(f"a snapshot of claims: numbers expected, found {shown(values[1:4])}")
    groups = [built(Group, fields) for fields in plain]
    claims = Claims(heartbeat_ms, position=position, log_time_ms=log_time_ms, groups=groups)
    if claims.digest().to_bytes(16, "big") != digest:
        raise ProtocolError(
            f"a snapshot of claims at position {position}: the digest of what it holds is not the one in it"
        )
    return claims
