"""Streams between groups: `zraft.transport.stream`, under a key that is derived from the cluster's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from zraft.transport.bulk import ANY_SERVER, BulkConnection, Ring
from zraft.transport.keys import KEY_BYTES, ClusterKey, key_ring
from zraft.transport.messages import Sender
from zraft.transport.sealing import hkdf
from zraft.transport.stream import Owner, Stream
from zraft_core.ids import Instance, ServerId

HANDSHAKE_S: Final = 10.0

_ACCEPTOR: Final = Sender(ServerId(1), Instance(bytes(16)), 0)
"""Groups have names, not numbers: the other end's first message says its name. The handshake proves the key."""


def ring_of(keys: Sequence[ClusterKey] | None) -> Ring:
    """Return the keys that groups prove to each other.

    They are derived, so that nothing said here opens a server's streams.

    Raises:
        ConfigError: there are none, or more than two.
    """
    if keys is None:
        return key_ring(None, insecure=True)
    derived = [ClusterKey(hkdf(key.secret, b"", b"onyxlog groups 1")[:KEY_BYTES]) for key in keys]
    return key_ring(derived, insecure=False)


def dial(owner: Owner, ring: Ring, entropy: Callable[[int], bytes]) -> Stream:
    """Return the protocol of the end that connects, for `create_connection`."""
    connection, greeting = BulkConnection.dial(me=None, to=ANY_SERVER, ring=ring, entropy=entropy)
    return Stream(connection, owner, greeting=greeting, timeout_s=HANDSHAKE_S)


def accept(owner: Owner, ring: Ring, entropy: Callable[[int], bytes]) -> Stream:
    """Return the protocol of the end that listens."""
    connection = BulkConnection.accept(me=_ACCEPTOR, peers=(), ring=ring, entropy=entropy)
    return Stream(connection, owner, timeout_s=HANDSHAKE_S)
