"""One stream between two servers, or between an operator and a server: handshake, sealing and frames. Sans-I/O.

For what datagrams are bad at (D-22): snapshots, a large znode, a lagging follower, a path that loses too many. The
bytes come and go over whatever the shell has; who is at the other end is decided by the cluster key alone.

The dialer speaks first and proves that it knows the key; an acceptor says nothing to who does not, not one byte. Both
ends draw a salt, so that neither side's recording opens anything again (D-6)::

    D -> A   opening: role, key id, who I am, whom I want, salt D, MAC        a recording passes up to here
    A -> D   answer: who I am, salt A, MAC over both                          A is proved: salt D is in it
    D -> A   an empty frame under the keys of this connection                 D is proved: salt A is in them
    ...      frames, both ways

Layouts: docs/reference/protocol-peers.md, "Streams".
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import deque
from collections.abc import Callable, Container, Mapping
from enum import IntEnum
from typing import Final

from attrs import frozen
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zraft.transport.keys import KEY_BYTES, ClusterKey, key_name
from zraft.transport.messages import Sender
from zraft.transport.packing import MESSAGE_BYTES_MAX, UnsendableError
from zraft.transport.sealing import SALT_BYTES, Checksum, Cipher, RejectedError, Rejection, hkdf
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, Instance, ServerId

MAGIC: Final = b"\x7a\xffB\x01"
"""The last byte is the format. As the length of a ZooKeeper frame it is two gigabytes, as a four-letter word it is no
text, and TLS begins with 0x16: no client begins like this."""

FRAME_BYTES_MAX: Final = 128 * 1024
"""The bytes of a message in one frame: sealed in a tenth of a millisecond, and little to hold before it can
be opened.
"""


class DialerRole(IntEnum):
    """Roles of the dialer.

    An answer has a number of its own, so that nothing can be played back to its sender.
    """

    PEER = 1
    OPERATOR = 2


_ANSWER_KIND: Final = 0x80
_OPENING: Final = struct.Struct(f">4sB4sBB{INSTANCE_BYTES}sQ{SALT_BYTES}s")
_ANSWER: Final = struct.Struct(f">4sB4sB{INSTANCE_BYTES}sQ{SALT_BYTES}s")
_MAC_BYTES: Final = 32
_TAG_BYTES: Final = 16
_HEADER: Final = struct.Struct(">I")
_NONCE: Final = struct.Struct(">4xQ")
_LAST: Final = 1 << 31
"""In a frame's header: the message ends here."""

OPENING_BYTES: Final = _OPENING.size + _MAC_BYTES
ANSWER_BYTES: Final = _ANSWER.size + _MAC_BYTES
FRAME_OVERHEAD_BYTES: Final = _HEADER.size + _TAG_BYTES

NOBODY: Final = Sender(ServerId(0), Instance(bytes(INSTANCE_BYTES)), 0)
"""The sender that an operator is: it has the key, and that is all that is known."""

ANY_SERVER: Final = ServerId(0)
"""The server that an operator wants: it knows an address, and learns from the answer whose that is."""

Ring = Mapping[bytes, ClusterKey | None]
"""Keys by id, the one that seals first (`keys.key_ring`)."""


@frozen
class Arrived:
    """Results of received bytes: bytes to send at once, and whole messages in order."""

    output: bytes
    messages: list[bytes]


class BulkConnection:
    """One end of one stream.

    Attributes:
        role: what the dialer is; of an acceptor, None until the opening came.
        peer: who is at the other end, authenticated as soon as `established`; `NOBODY` for an operator.
        key_id: of the cluster key that this connection stands under.
        established: both ends have proved themselves; only now are there messages.
        queued_bytes: of messages that were not made into frames yet.
    """

    def __init__(
        self,
        *,
        me: Sender,
        ring: Ring,
        entropy: Callable[[int], bytes],
        message_bytes_max: int,
    ) -> None:
        self._me = me
        self._ring = ring
        self._message_bytes_max = message_bytes_max
        self._salt = entropy(SALT_BYTES)
        assert len(self._salt) == SALT_BYTES
        self.role: DialerRole | None = None
        self.peer: Sender | None = None
        self.key_id = b""
        self.established = False
        self.queued_bytes = 0
        self._buffer = bytearray()
        self._step: Callable[[], bytes | None] = self._take_opening
        self._wanted: ServerId = me.server
        self._peers: Container[ServerId] = ()
        self._opening = b""
        self._seal: Cipher | None = None
        self._open: Cipher | None = None
        self._sealed = 0
        self._opened = 0
        self._queue: deque[bytes] = deque()
        self._sent_of_first = 0
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._messages: list[bytes] = []

    @classmethod
    def accept(
        cls,
        *,
        me: Sender,
        peers: Container[ServerId],
        ring: Ring,
        entropy: Callable[[int], bytes],
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> BulkConnection:
        """Return the end that was dialed.

        It sends nothing before the dialer has proved that it knows a key of `ring`.
        """
        connection = cls(me=me, ring=ring, entropy=entropy, message_bytes_max=message_bytes_max)
        connection._peers = peers
        return connection

    @classmethod
    def dial(
        cls,
        *,
        me: Sender | None,
        to: ServerId,
        ring: Ring,
        entropy: Callable[[int], bytes],
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> tuple[BulkConnection, bytes]:
        """Return the end that dials server `to`, and its first bytes.

        `me` is None for an operator, `to` then ANY_SERVER.
        """
        connection = cls(me=me or NOBODY, ring=ring, entropy=entropy, message_bytes_max=message_bytes_max)
        connection.role = DialerRole.OPERATOR if me is None else DialerRole.PEER
        connection._wanted = to
        connection._step = connection._take_answer
        connection.key_id, key = next(iter(ring.items()))
        fields = _OPENING.pack(
            MAGIC,
            connection.role,
            connection.key_id,
            connection._me.server,
            to,
            connection._me.instance,
            connection._me.boot,
            connection._salt,
        )
        connection._opening = fields + hmac.digest(_mac_key(key), fields, "sha256")
        return connection, connection._opening

    # -- what arrives

    def receive(self, data: bytes) -> Arrived:
        """Take what arrived.

        Raises:
            RejectedError: it is not what the other end may say, or not from who it claims to be; says why. Nothing
                is to be answered, and the connection is to be closed.
        """
        self._buffer += data
        output = []
        while (step := self._step()) is not None:
            if step:
                output.append(step)
        messages, self._messages = self._messages, []
        return Arrived(b"".join(output), messages)

    def _take(self, size: int) -> bytes | None:
        """Return the next `size` bytes, once they are all here."""
        if len(self._buffer) < size:
            return None
        taken = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return taken

    def _take_opening(self) -> bytes | None:
        """Take a dialer's opening, as acceptor: who is it, and does it know the key? Return the answer, if so."""
        held = len(self._buffer)
        if not MAGIC.startswith(bytes(self._buffer[: len(MAGIC)])):
            raise RejectedError(
                Rejection.MALFORMED,
                f"stream: expected the format {MAGIC.hex()}, found {bytes(self._buffer[: len(MAGIC)]).hex()}",
            )
        if held > OPENING_BYTES:
            raise RejectedError(
                Rejection.MALFORMED,
                f"stream: expected {OPENING_BYTES} bytes, then to be waited for; found {held}",
            )
        opening = self._take(OPENING_BYTES)
        if opening is None:
            return None
        _, role, key_id, server, wanted, instance, boot, salt = _OPENING.unpack_from(opening)
        claimed = Sender(ServerId(server), Instance(instance), boot)
        if role == DialerRole.PEER:
            name = f"stream of server {server}"
            known = SERVER_ID_MIN <= server <= SERVER_ID_MAX and server in self._peers
            meant = wanted == self._me.server
        elif role == DialerRole.OPERATOR:
            name = "stream of an operator"
            known = claimed == NOBODY
            meant = wanted in (ANY_SERVER, self._me.server)
        else:
            raise RejectedError(Rejection.MALFORMED, f"stream: expected role 1 or 2, found {role}")
        if not meant:
            raise RejectedError(
                Rejection.MISADDRESSED,
                f"{name} for server {wanted}, but this is server {self._me.server}; do the addresses agree?",
            )
        if not known:
            raise RejectedError(Rejection.UNKNOWN_SENDER, f"{name}: that is no member known here")
        if key_id not in self._ring:
            raise RejectedError(
                Rejection.UNKNOWN_KEY,
                f"{name}: {key_name(key_id)}; this server has {' and '.join(map(key_name, self._ring))}",
            )
        key = self._ring[key_id]
        mac_key = _mac_key(key)
        if not _is_mac(mac_key, opening[: _OPENING.size], opening[_OPENING.size :]):
            raise RejectedError(Rejection.UNAUTHENTIC, f"{name}: its MAC is wrong")
        self.role = DialerRole(role)
        self.peer = claimed
        self.key_id = key_id
        me = self._me
        fields = _ANSWER.pack(MAGIC, _ANSWER_KIND | role, key_id, me.server, me.instance, me.boot, self._salt)
        answer = fields + hmac.digest(mac_key, opening + fields, "sha256")
        self._derive(key, salt + self._salt, opening + answer, dialer=False)
        self._step = self._take_proof
        return answer

    def _take_proof(self) -> bytes | None:
        """Take a dialer's proof, as acceptor: the empty frame that no recording has."""
        size = FRAME_OVERHEAD_BYTES
        header = bytes(self._buffer[: _HEADER.size])
        if not _HEADER.pack(_LAST | _TAG_BYTES).startswith(header):
            raise RejectedError(
                Rejection.UNAUTHENTIC, f"stream of {self._name}: it did not prove that it knows the key"
            )
        frame = self._take(size)
        if frame is None:
            return None
        self._open_frame(frame[: _HEADER.size], frame[_HEADER.size :])
        self._establish()
        return b""

    def _take_answer(self) -> bytes | None:
        """Take an acceptor's answer, as dialer: is it the one that was dialed? Return the proof, if so."""
        answer = self._take(ANSWER_BYTES)
        if answer is None:
            return None
        assert self.role is not None
        magic, kind, key_id, server, instance, boot, salt = _ANSWER.unpack_from(answer)
        if magic != MAGIC or kind != _ANSWER_KIND | self.role or key_id != self.key_id:
            raise RejectedError(
                Rejection.MALFORMED,
                f"stream: expected an answer of format {MAGIC.hex()}, found {answer[:9].hex()}",
            )
        key = self._ring[self.key_id]
        if not _is_mac(_mac_key(key), self._opening + answer[: _ANSWER.size], answer[_ANSWER.size :]):
            raise RejectedError(Rejection.UNAUTHENTIC, f"stream: the MAC of server {server} is wrong")
        if self._wanted not in (ANY_SERVER, server):
            raise RejectedError(
                Rejection.MISADDRESSED,
                f"stream to server {self._wanted}: server {server} answered; do the addresses agree?",
            )
        self.peer = Sender(ServerId(server), Instance(instance), boot)
        self._derive(key, self._salt + salt, self._opening + answer, dialer=True)
        self._establish()
        return self._seal_frame(b"", last=True)

    def _take_frame(self) -> bytes | None:
        """Take the next frame of the stream, on either end."""
        if len(self._buffer) < _HEADER.size:
            return None
        header = bytes(self._buffer[: _HEADER.size])
        (word,) = _HEADER.unpack(header)
        size, last = word & ~_LAST, bool(word & _LAST)
        if not _TAG_BYTES <= size <= FRAME_BYTES_MAX + _TAG_BYTES:
            raise RejectedError(
                Rejection.MALFORMED,
                f"stream of {self._name}: expected a frame of {_TAG_BYTES} to "
                f"{FRAME_BYTES_MAX + _TAG_BYTES} bytes, found {size}",
            )
        if self._parts_bytes + size - _TAG_BYTES > self._message_bytes_max:
            raise RejectedError(
                Rejection.MALFORMED,
                f"stream of {self._name}: expected messages of at most {self._message_bytes_max} bytes "
                f"(message_bytes_max), found more",
            )
        if len(self._buffer) < _HEADER.size + size:
            return None
        del self._buffer[: _HEADER.size]
        sealed = self._take(size)
        assert sealed is not None
        part = self._open_frame(header, sealed)
        if not part and not last:
            # It would let one hold any number of nothing.
            raise RejectedError(Rejection.MALFORMED, f"stream of {self._name}: a part of a message is empty")
        self._parts.append(part)
        self._parts_bytes += len(part)
        if last:
            parts, self._parts = self._parts, []
            self._parts_bytes = 0
            message = parts[0] if len(parts) == 1 else b"".join(parts)
            if message:  # an empty one says that the connection is alive, and nothing else
                self._messages.append(message)
        return b""

    # -- what is sent

    def enqueue(self, message: bytes) -> None:
        """Send `message` after those before it. Frames are made of it when `next_frame` is called.

        Raises:
            UnsendableError: it is larger than `message_bytes_max`.
        """
        assert message, "there are no empty messages"
        if len(message) > self._message_bytes_max:
            raise UnsendableError(
                f"message for a stream: expected at most {self._message_bytes_max} bytes "
                f"(message_bytes_max), found {len(message)}"
            )
        self._queue.append(message)
        self.queued_bytes += len(message)

    def next_frame(self) -> bytes | None:
        """Return the next frame to put on the wire; None if nothing waits, or nothing may be sent yet."""
        if not self._queue or not self.established:
            return None
        message, begin = self._queue[0], self._sent_of_first
        end = min(len(message), begin + FRAME_BYTES_MAX)
        last = end == len(message)
        frame = self._seal_frame(memoryview(message)[begin:end], last=last)
        self.queued_bytes -= end - begin
        self._sent_of_first = 0 if last else end
        if last:
            self._queue.popleft()
        return frame

    # -- sealing

    @property
    def _name(self) -> str:
        return "an operator" if self.peer == NOBODY or self.peer is None else f"server {self.peer.server}"

    def _establish(self) -> None:
        self.established = True
        self._step = self._take_frame

    def _derive(self, key: ClusterKey | None, salt: bytes, transcript: bytes, *, dialer: bool) -> None:
        """Derive the keys of this connection.

        Whatever was said before is in them, so that it cannot have been changed.
        """
        said = hashlib.sha256(transcript).digest()
        to_acceptor = _cipher(key, salt, b"zraft bulk 1 to acceptor" + said)
        to_dialer = _cipher(key, salt, b"zraft bulk 1 to dialer" + said)
        self._seal, self._open = (to_acceptor, to_dialer) if dialer else (to_dialer, to_acceptor)

    def _seal_frame(self, part: bytes | memoryview, *, last: bool) -> bytes:
        assert self._seal is not None
        counter = self._sealed
        # Counted before it is used: an exception in between may skip a nonce, never repeat one.
        self._sealed = counter + 1
        header = _HEADER.pack((_LAST if last else 0) | (len(part) + _TAG_BYTES))
        return header + self._seal.encrypt(_NONCE.pack(counter), bytes(part), header)

    def _open_frame(self, header: bytes, sealed: bytes) -> bytes:
        assert self._open is not None
        try:
            part = self._open.decrypt(_NONCE.pack(self._opened), sealed, header)
        except InvalidTag as error:
            raise RejectedError(
                Rejection.UNAUTHENTIC, f"stream of {self._name}: frame {self._opened} does not open"
            ) from error
        self._opened += 1
        return part


def _mac_key(key: ClusterKey | None) -> bytes:
    """Return the key of MACs; in plain mode a constant: the MAC is a checksum then."""
    return bytes(KEY_BYTES) if key is None else hkdf(key.secret, b"", b"zraft bulk hello 1")


def _is_mac(mac_key: bytes, said: bytes, mac: bytes) -> bool:
    return hmac.compare_digest(hmac.digest(mac_key, said, "sha256"), mac)


def _cipher(key: ClusterKey | None, salt: bytes, info: bytes) -> Cipher:
    return Checksum() if key is None else AESGCM(hkdf(key.secret, salt, info))
