"""The whole state as bytes: what a replica restarts from, or is sent. No claim is so old that it is left out.

Layout: MessagePack [FORMAT, position, log_time_ms, heartbeat_ms, digest, [group, ...]], groups sorted by name.
"""

from __future__ import annotations

from typing import Final

from zraft_core.claims.codec import FORMAT, unpacked_unbounded
from zraft_core.claims.layout import GROUP
from zraft_core.claims.state import Claims
from zraft_core.errors import ProtocolError
from zraft_core.layout import NUMBER_MAX, big_integer, listed, number, row, to_bytes

_DIGEST_BYTES: Final = 16
_FIELDS: Final = row(
    format=number,
    position=number,
    log_time_ms=number,
    heartbeat_ms=number,
    digest=big_integer(_DIGEST_BYTES),
    groups=listed(GROUP.form, NUMBER_MAX),
)


def encode_snapshot(claims: Claims) -> bytes:
    """Return the bytes of the whole state."""
    groups = sorted(claims.groups(), key=lambda group: group.name)
    numbers = (claims.position, claims.log_time_ms, claims.heartbeat_ms)
    packed = [GROUP.pack(group) for group in groups]
    return to_bytes((FORMAT, *numbers, claims.digest().to_bytes(_DIGEST_BYTES), packed))


def decode_snapshot(data: bytes) -> Claims:
    """Return the state that was encoded.

    Raises:
        ProtocolError: the bytes are no snapshot of this format, or its digest is another than what it says.
    """
    values = unpacked_unbounded(data, "a snapshot of claims")
    _, position, log_time_ms, heartbeat_ms, digest, groups = _FIELDS.unpack(values, "a snapshot of claims")
    claims = Claims(heartbeat_ms, position=position, log_time_ms=log_time_ms, groups=groups)
    if claims.digest() != digest:
        raise ProtocolError(
            f"a snapshot of claims at position {position}: the digest of what it holds is not the one in it"
        )
    return claims
