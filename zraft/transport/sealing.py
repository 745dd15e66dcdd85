"""Sealed datagrams and hellos as bytes: layouts, key derivation, replay window. Pure: no entropy drawn.

Rule D-6: a key that was used once is never used again, whatever became of the disk. So no counter is stored
anywhere. Each run of a server draws a salt; from it, the cluster key and the names of both ends comes the key
of one direction between two servers, and the nonce counts up from 0. The receiver's own salt is in the
associated data, so that nothing recorded can be played to the receiver's next run.

Hellos, which introduce the salts, carry nothing secret and are authenticated by HMAC-SHA256: a MAC needs no
nonce, so there is none to repeat. The exchange of hellos is `zraft.transport.handshake`.
Layouts: docs/reference/protocol-peers.md. HKDF is RFC 5869, AES-GCM is NIST SP 800-38D.
"""

from __future__ import annotations

import hmac
import struct
from enum import Enum
from typing import Final, Protocol

from attrs import frozen
from crc32c import crc32c
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from zraft.transport.keys import KEY_BYTES, PLAIN_KEY_ID, ClusterKey
from zraft.transport.messages import Sender
from zraft_core.errors import ProtocolError
from zraft_core.ids import INSTANCE_BYTES, Instance, ServerId

MAGIC: Final = 0x7A
FORMAT: Final = 1
HELLO: Final = 1
DATA: Final = 2

SALT_BYTES: Final = 32
CHALLENGE_BYTES: Final = 16
NO_CHALLENGE: Final = bytes(CHALLENGE_BYTES)

_TAG_BYTES: Final = 16
_NO_TAG: Final = bytes(_TAG_BYTES - 4)
"""In front of a checksum, in plain mode."""

_MAC_BYTES: Final = 32
_SALT_TAG_BYTES: Final = 4
_COUNTER_MAX: Final = 2**64 - 1

_PREFIX: Final = struct.Struct(">BBBBB4s")  # magic, format, kind, sender, receiver, key id
_DATA_HEADER: Final = struct.Struct(
    ">BBBBB4s4s4sQ"
)  # prefix, sender's salt tag, receiver's salt tag, counter
_HELLO: Final = struct.Struct(f">BBBBB4s{SALT_BYTES}s{INSTANCE_BYTES}sQ{CHALLENGE_BYTES}s{CHALLENGE_BYTES}s")
_NONCE_HEAD: Final = bytes(4)
"""A nonce is this and the counter, as the datagram has it."""

HELLO_BYTES: Final = _HELLO.size + _MAC_BYTES
_HEADER_BYTES: Final = _DATA_HEADER.size
_COUNTER_AT: Final = _HEADER_BYTES - 8

SENDER_AT: Final = 3
"""Where a datagram names the server that sent it."""

SEAL_BYTES: Final = _HEADER_BYTES + _TAG_BYTES
"""The bytes that sealing adds to a body: header and tag."""

WINDOW: Final = 4096
"""Datagrams that may overtake each other: more than a receive buffer of 4 MB holds at 1,400 bytes."""


class Rejection(Enum):
    """Reasons for which a datagram was dropped; the values are names of counters."""

    MALFORMED = "malformed"
    UNKNOWN_SENDER = "unknown_sender"
    MISADDRESSED = "misaddressed"
    UNKNOWN_KEY = "unknown_key"
    STALE = "stale"
    UNAUTHENTIC = "unauthentic"
    REPLAYED = "replayed"


class RejectedError(ProtocolError):
    """A datagram that is dropped."""

    def __init__(self, rejection: Rejection, text: str) -> None:
        super().__init__(text)
        self.rejection = rejection


@frozen
class HelloDatagram:
    """A server introduces the salt of its run.

    `challenge` asks the receiver to prove its own salt (NO_CHALLENGE: it need not); `echo` repeats the
    receiver's challenge, which proves that this hello is not a recording.
    """

    me: Sender
    salt: bytes
    challenge: bytes
    echo: bytes


class Cipher(Protocol):
    """Interface of what seals bodies: AES-256-GCM, or a checksum in plain mode."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """Return the data encrypted, with its tag."""

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """Return the decrypted data.

        Raises:
            InvalidTag: the data or what belongs to it was changed.
        """


class Checksum:
    """Plain mode: the body as it is, and a CRC-32C in the place of the tag. Keeps accidents out, not people.

    The salts are under the checksum too, so that stale and doubled datagrams are dropped as in sealed mode.
    """

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """Return the data with its checksum."""
        return data + _NO_TAG + crc32c(nonce + associated_data + data).to_bytes(4)

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """Return the data without its checksum.

        Raises:
            InvalidTag: the checksum differs.
        """
        body = data[:-_TAG_BYTES]
        if data[-_TAG_BYTES:] != _NO_TAG + crc32c(nonce + associated_data + body).to_bytes(4):
            raise InvalidTag
        return body


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return a key that is derived from a secret."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(secret)


def cipher_for(key: ClusterKey | None, *, sender: Sender, receiver: ServerId, salt: bytes) -> Cipher:
    """Return the cipher of one direction: of `sender`'s run with this `salt`, towards `receiver`.

    None: plain mode.

    Instance and boot are in the derivation: that a datagram opens proves them.
    """
    if key is None:
        return Checksum()
    info = b"zraft datagram 1" + struct.pack(">BBQ", sender.server, receiver, sender.boot) + sender.instance
    return AESGCM(hkdf(key.secret, salt, info))


def mac_key_for(key: ClusterKey | None) -> bytes:
    """Return the key that authenticates hellos. In plain mode a constant: the MAC is a checksum then."""
    return bytes(KEY_BYTES) if key is None else hkdf(key.secret, b"", b"zraft hello 1")


def read_prefix(datagram: bytes) -> tuple[int, ServerId, ServerId, bytes]:
    """Return what every datagram starts with, as claimed: (kind, sender, receiver, key id).

    Not authenticated yet.

    Raises:
        RejectedError: too short, or not a datagram of this format.
    """
    if len(datagram) < _PREFIX.size:
        raise RejectedError(
            Rejection.MALFORMED, f"datagram: expected at least {_PREFIX.size} bytes, found {len(datagram)}"
        )
    magic, form, kind, sender, receiver, key_id = _PREFIX.unpack_from(datagram)
    if magic != MAGIC or form != FORMAT or kind not in (HELLO, DATA):
        raise RejectedError(
            Rejection.MALFORMED,
            f"datagram: expected magic {MAGIC:#04x}, format {FORMAT}, kind {HELLO} or {DATA}; "
            f"found {magic:#04x}, {form}, {kind}",
        )
    return kind, ServerId(sender), ServerId(receiver), key_id


def encode_hello(hello: HelloDatagram, *, receiver: ServerId, key_id: bytes, mac_key: bytes) -> bytes:
    """Return a hello for `receiver`, of HELLO_BYTES bytes."""
    me = hello.me
    fields = _HELLO.pack(
        MAGIC,
        FORMAT,
        HELLO,
        me.server,
        receiver,
        key_id,
        hello.salt,
        me.instance,
        me.boot,
        hello.challenge,
        hello.echo,
    )
    return fields + hmac.digest(mac_key, fields, "sha256")


def decode_hello(datagram: bytes, *, mac_key: bytes) -> HelloDatagram:
    """Read a hello and check its MAC.

    Raises:
        RejectedError: of the wrong length, or not made with this key.
    """
    if len(datagram) != HELLO_BYTES:
        raise RejectedError(
            Rejection.MALFORMED, f"hello: expected {HELLO_BYTES} bytes, found {len(datagram)}"
        )
    expected = hmac.digest(mac_key, datagram[: _HELLO.size], "sha256")
    if not hmac.compare_digest(expected, datagram[_HELLO.size :]):
        raise RejectedError(
            Rejection.UNAUTHENTIC, f"hello that claims to be of server {datagram[3]}: its MAC is wrong"
        )
    _, _, _, server, _, _, salt, instance, boot, challenge, echo = _HELLO.unpack_from(datagram)
    return HelloDatagram(Sender(ServerId(server), Instance(instance), boot), salt, challenge, echo)


class ReplayWindow:
    """Window of counters that were seen: one bit for each of the last WINDOW counters (RFC 4303, 3.4.3).

    Attributes:
        next: one above the highest counter seen. Who opened the datagram of exactly this counter may count it up by one,
            which marks it as seen.
    """

    __slots__ = ("_bits", "_bits_end", "next")

    _MASK: Final = (1 << WINDOW) - 1

    def __init__(self) -> None:
        self.next = 0
        self._bits = 0  # bit n: counter _bits_end - 1 - n was seen
        self._bits_end = 0
        """All counters from this one up to `next` were seen and are no bits yet, because moving all bits takes long."""

    def is_new(self, counter: int) -> bool:
        """Return whether the counter is within the window and unseen.

        It is marked only if the datagram opens.
        """
        self._fold()
        behind = self.next - 1 - counter
        return behind < 0 or (behind < WINDOW and not self._bits >> behind & 1)

    def mark(self, counter: int) -> None:
        """Remember the counter of a datagram that opened."""
        if counter == self.next:
            self.next = counter + 1
            return
        self._fold()
        ahead = counter + 1 - self.next
        if ahead > WINDOW:
            self._bits = 1
        elif ahead > 0:
            self._bits = (self._bits << ahead | 1) & self._MASK
        else:
            self._bits |= 1 << -ahead
        self.next = self._bits_end = max(self.next, counter + 1)

    def _fold(self) -> None:
        """Make bits of the counters that came in order."""
        count = min(self.next - self._bits_end, WINDOW)
        if count:
            self._bits_end = self.next
            self._bits = (self._bits << count | (1 << count) - 1) & self._MASK


class Outgoing:
    """Seals of one direction of this run.

    The counter lives as long as the salt: no nonce comes twice.

    It goes on through a change of the cluster key, so that a key which comes back does not meet a nonce again, and the
    receiver's one replay window covers them all.
    """

    __slots__ = (
        "_cipher",
        "_counter",
        "_head",
        "_head_to",
        "_key_id",
        "_me",
        "_receiver",
        "_salt",
        "_salt_tag",
        "_sender",
    )

    def __init__(self, key: ClusterKey | None, *, me: Sender, receiver: ServerId, salt: bytes) -> None:
        self._sender = me
        self._me = me.server
        self._receiver = receiver
        self._salt = salt
        self._salt_tag = salt[:_SALT_TAG_BYTES]
        self._counter = 0
        self._head = b""  # of datagrams to the run with the salt `_head_to`, up to their counters
        self._head_to = b""
        self.set_key(key)

    def set_key(self, key: ClusterKey | None) -> None:
        """Seal under this key from now on."""
        self._cipher = cipher_for(key, sender=self._sender, receiver=self._receiver, salt=self._salt)
        self._key_id = PLAIN_KEY_ID if key is None else key.key_id
        self._head_to = b""

    def seal(self, body: bytes, receiver_salt: bytes) -> bytes:
        """Return a datagram that only `receiver`'s run with this salt will open."""
        counter = self._counter
        assert counter < _COUNTER_MAX
        # Counted before it is used: an exception in between may skip a nonce, never repeat one.
        self._counter = counter + 1
        if receiver_salt != self._head_to:
            self._begin_heads(receiver_salt)
        number = counter.to_bytes(8)
        header = self._head + number
        return header + self._cipher.encrypt(_NONCE_HEAD + number, body, header + receiver_salt)

    def _begin_heads(self, receiver_salt: bytes) -> None:
        """Let datagrams go to the run with this salt: they differ by their counters only."""
        head = _DATA_HEADER.pack(
            MAGIC,
            FORMAT,
            DATA,
            self._me,
            self._receiver,
            self._key_id,
            self._salt_tag,
            receiver_salt[:_SALT_TAG_BYTES],
            0,
        )
        self._head, self._head_to = head[:_COUNTER_AT], receiver_salt


class Incoming:
    """Opener of what one run of a peer sends, under whichever valid cluster key it is sealed.

    Attributes:
        proved: ids of the keys under which this run proved itself: by a hello that echoed a challenge, or by a
            datagram that opened, which is as fresh (the receiver's salt is in it).
        opened: datagrams that opened, since this run was installed.
    """

    __slots__ = (
        "_cipher",
        "_ciphers",
        "_my_salt",
        "_next_header",
        "_receiver",
        "_salt_tag",
        "_window",
        "opened",
        "proved",
        "salt",
        "sender",
    )

    def __init__(self, *, sender: Sender, receiver: ServerId, salt: bytes) -> None:
        self.sender = sender
        self.salt = salt
        self._receiver = receiver
        self._salt_tag = salt[:_SALT_TAG_BYTES]
        self._ciphers: dict[bytes, Cipher] = {}
        self._next_header = (
            b""  # of the next datagram, if it is sealed as the newest one was; empty if none was opened
        )
        self._cipher: Cipher = Checksum()  # that opened the newest one
        self._my_salt = b""
        self._window = ReplayWindow()
        self.proved: set[bytes] = set()
        self.opened = 0

    @property
    def next_counter(self) -> int:
        """One above the highest counter that opened."""
        return self._window.next

    def forget_key(self, key_id: bytes) -> None:
        """Forget a key that is worth nothing any more. The replay window stays."""
        self._ciphers.pop(key_id, None)
        self._next_header = b""
        self.proved.discard(key_id)

    def open_next(self, datagram: bytes) -> bytes | None:
        """Return the body of the datagram that follows the newest one and is sealed alike, as nearly all are.

        None if it is another one: `open` takes it, or says what is wrong with it. Nothing has changed then.
        """
        header = self._next_header
        if datagram[:_HEADER_BYTES] != header or not header:
            return None
        try:
            body = self._cipher.decrypt(
                _NONCE_HEAD + header[_COUNTER_AT:], datagram[_HEADER_BYTES:], header + self._my_salt
            )
        except InvalidTag:
            return None
        window = self._window
        window.next += 1
        self._next_header = (
            header[:_COUNTER_AT] + window.next.to_bytes(8) if window.next <= _COUNTER_MAX else b""
        )
        self.opened += 1
        return body

    def open(self, datagram: bytes, key_id: bytes, key: ClusterKey | None, my_salt: bytes) -> bytes:
        """Return the body of a datagram whose prefix was read already.

        Raises:
            RejectedError: STALE if it was sealed by or for another run than the ones known here; UNAUTHENTIC
                or REPLAYED if it is not what the peer sent, or not the first copy.
        """
        if len(datagram) < SEAL_BYTES:
            raise RejectedError(
                Rejection.MALFORMED, f"datagram: expected at least {SEAL_BYTES} bytes, found {len(datagram)}"
            )
        header = datagram[:_HEADER_BYTES]
        *_, salt_tag, my_salt_tag, counter = _DATA_HEADER.unpack(header)
        if salt_tag != self._salt_tag or my_salt_tag != my_salt[:_SALT_TAG_BYTES]:
            raise RejectedError(
                Rejection.STALE,
                f"datagram of server {self.sender.server}: sealed by or for another run than "
                f"the ones known here",
            )
        if not self._window.is_new(counter):
            raise RejectedError(
                Rejection.REPLAYED,
                f"datagram {counter} of server {self.sender.server}: a repetition, or over {WINDOW} behind",
            )
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            cipher = cipher_for(key, sender=self.sender, receiver=self._receiver, salt=self.salt)
            self._ciphers[key_id] = cipher
        try:
            body = cipher.decrypt(
                _NONCE_HEAD + header[_COUNTER_AT:], datagram[_HEADER_BYTES:], header + my_salt
            )
        except InvalidTag as error:
            raise RejectedError(
                Rejection.UNAUTHENTIC,
                f"datagram {counter} that claims to be of server {self.sender.server}: it does not open",
            ) from error
        self._window.mark(counter)
        self.opened += 1
        self.proved.add(key_id)
        self._cipher, self._my_salt = cipher, my_salt
        number = self._window.next
        self._next_header = header[:_COUNTER_AT] + number.to_bytes(8) if number <= _COUNTER_MAX else b""
        return body
