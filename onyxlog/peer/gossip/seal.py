"""Seals of gossip's datagrams: AES-256-GCM with a key of each run of each group, the same for all receivers.

As an event goes to many groups it is sealed once. A run draws a salt; its key is derived from the salt and
the cluster key, and the nonce counts up from 0, so that a key which was used once is never used again (D-6).
The salt is in every datagram, so nothing is agreed upon first. A recording that is played to a later run of a
receiver opens, unlike between servers: what it says is old, and gossip does nothing with what is old. Without
a key a checksum takes the place of the tag.

Layout, big-endian: u8 magic, u8 format, 4 bytes key id, 16 bytes salt, u64 counter, sealed body. Body: u8
length of the sender's id, the id, the message.
"""

from __future__ import annotations

import itertools
import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from onyxlog.gossip.codec import DatagramError, tenancy_tag
from onyxlog.ids import GroupId
from zraft.transport.keys import ClusterKey, key_name, key_ring
from zraft.transport.sealing import Checksum, Cipher, ReplayWindow, hkdf

MAGIC: Final = 0x6F
FORMAT: Final = 1
SALT_BYTES: Final = 16
SENDERS_MAX: Final = 8192
"""The number of runs whose keys and windows are kept; the one that was heard of least recently is dropped
first.
"""

_HEADER: Final = struct.Struct(f">BB4s{SALT_BYTES}sQ")
_NONCE: Final = struct.Struct(">4xQ")


class Sealer:
    """Sealer for one run of a group.

    `salt`: SALT_BYTES from the system's generator, drawn for this run. `keys` None: no secrecy.
    """

    def __init__(self, keys: Sequence[ClusterKey] | None, tenancy: str, me: GroupId, salt: bytes) -> None:
        self._ring = key_ring(keys, insecure=keys is None)
        self._tag = tenancy_tag(tenancy)
        self._salt = salt
        self._counter = itertools.count()
        self._key_id, key = next(iter(self._ring.items()))
        self._cipher = self._cipher_of(key, salt)
        self._me = bytes((len(me.encode()),)) + me.encode()
        self._senders: OrderedDict[tuple[bytes, bytes], tuple[Cipher, ReplayWindow]] = OrderedDict()

    def seal(self, message: bytes) -> bytes:
        """Return a message as a sealed datagram."""
        counter = next(self._counter)
        header = _HEADER.pack(MAGIC, FORMAT, self._key_id, self._salt, counter)
        return header + self._cipher.encrypt(_NONCE.pack(counter), self._me + message, header)

    def open(self, datagram: bytes) -> tuple[GroupId, bytes]:
        """Return the sender and the message.

        Raises:
            DatagramError: the datagram was not sealed with a key of ours, or came before.
        """
        if len(datagram) < _HEADER.size:
            raise DatagramError(f"datagram of {len(datagram)} bytes: expected at least {_HEADER.size}")
        magic, form, key_id, salt, counter = _HEADER.unpack_from(datagram)
        if magic != MAGIC or form != FORMAT:
            raise DatagramError(f"datagram of format {magic:#x}, {form}: expected {MAGIC:#x}, {FORMAT}")
        if key_id not in self._ring:
            raise DatagramError(f"datagram sealed with {key_name(key_id)}: give all groups the same --key")
        known = self._senders.get((key_id, salt))
        cipher, window = known or (self._cipher_of(self._ring[key_id], salt), ReplayWindow())
        if not window.is_new(counter):
            raise DatagramError("datagram that came before")
        header = datagram[: _HEADER.size]
        try:
            body = cipher.decrypt(_NONCE.pack(counter), datagram[_HEADER.size :], header)
        except InvalidTag:
            raise DatagramError("datagram whose seal is broken") from None
        # This is not done earlier: nobody without the key may push others out of the memory.
        window.mark(counter)
        self._senders[key_id, salt] = (cipher, window)
        self._senders.move_to_end((key_id, salt))
        if len(self._senders) > SENDERS_MAX:
            self._senders.popitem(last=False)
        return self._split(body)

    def _cipher_of(self, key: ClusterKey | None, salt: bytes) -> Cipher:
        if key is None:
            return Checksum()
        return AESGCM(hkdf(key.secret, salt, b"onyxlog gossip 1" + self._tag))

    @staticmethod
    def _split(body: bytes) -> tuple[GroupId, bytes]:
        if not body or len(body) < 1 + body[0]:
            raise DatagramError("datagram without its sender's id")
        try:
            return body[1 : 1 + body[0]].decode(), body[1 + body[0] :]
        except UnicodeDecodeError as error:
            raise DatagramError("datagram whose sender's id is not UTF-8") from error
