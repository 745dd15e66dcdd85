"""Digests: of a message, and the chain over all deliveries of a partition by which replicas are compared (D-26)."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

from zraft_core.ids import GroupId
from zraft_core.topics.codec import encode_message
from zraft_core.topics.message import DIGEST_BYTES, Message
from zraft_core.topics.stamps import Stamp

_LINK: Final = Struct(">16sQQQQQ16s")


def message_digest(message: Message) -> bytes:
    """Return the digest of everything that the producer said.

    It tells whether two groups mean the same message by one id.
    """
    return encoded_digest(encode_message(message))


def encoded_digest(encoded: bytes) -> bytes:
    """Return the digest of a message from its bytes, those of `encode_message`."""
    return blake2b(encoded, digest_size=DIGEST_BYTES).digest()


def first_link(group: GroupId) -> bytes:
    """Return the chain of a partition without deliveries: no two partitions share one."""
    return blake2b(b"zraft deliveries of group %d" % group, digest_size=DIGEST_BYTES).digest()


def next_link(link: bytes, offset: int, stamp: Stamp, digest: bytes) -> bytes:
    """Return the chain with one more delivery. Whoever has the records can recompute it."""
    return blake2b(_LINK.pack(link, offset, *stamp, digest), digest_size=DIGEST_BYTES).digest()
