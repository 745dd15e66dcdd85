"""Encoded messages to and from datagram bodies: several to a body, or one over many bodies. Pure.

A body starts with its kind. WHOLE: an array of messages. FRAGMENT: a part of one message too large for a
datagram. A message that loses a fragment is dropped, as if its only datagram had been lost; Raft repeats it.
Layouts: docs/reference/protocol-peers.md, "Bodies".
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from zraft.transport import codec
from zraft_core.errors import ProtocolError
from zraft_core.ids import ServerId

WHOLE: Final = 1
FRAGMENT: Final = 2
REPORT: Final = 3

_WHOLE_PREFIX: Final = bytes([WHOLE])
ONE: Final = _WHOLE_PREFIX + codec.encode_sequence([b""])
"""What stands in front of the message in a body with exactly one, as nearly all have."""
ONE_BYTES: Final = len(ONE)

FEW: Final = 16
"""Messages that fit one body together need not be counted into several."""

_FRAGMENT_HEADER: Final = struct.Struct(">BIHH")  # kind, message number, fragment number, fragment count
_MESSAGE_NUMBER_MAX: Final = 2**32 - 1

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Default bound of one encoded message: four times ZooKeeper's largest znode, so that every batch which
callers bound by this constant can be sent, and far below what a receiver sets aside for reassembly."""

FRAGMENTS_MAX: Final = 2**14
"""Fragments of one message: enough for `MESSAGE_BYTES_MAX` in the smallest datagrams allowed."""


def message_bytes_max(body_bytes_max: int) -> int:
    """Return the largest message that bodies of this size can carry."""
    return FRAGMENTS_MAX * (body_bytes_max - _FRAGMENT_HEADER.size)


class UnsendableError(ProtocolError):
    """A message is larger than `message_bytes_max`: its sender's batch bound is wrong."""


class Packer:
    """Packer of the messages for one peer into bodies of at most `body_bytes_max` bytes each.

    Attributes:
        single_bytes_max: the largest message that fits a body: `ONE` and the message are one, without being packed.
    """

    __slots__ = ("_body_bytes_max", "_message_bytes_max", "_message_number", "single_bytes_max")

    def __init__(self, *, body_bytes_max: int, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._message_number = 0
        self.resize(body_bytes_max)

    def resize(self, body_bytes_max: int) -> None:
        """Make bodies of another size from now on. Message numbers go on: the receiver knows them."""
        assert body_bytes_max > _FRAGMENT_HEADER.size
        assert message_bytes_max(body_bytes_max) >= self._message_bytes_max
        self._body_bytes_max = body_bytes_max
        self.single_bytes_max = min(self.capacity(1), self._message_bytes_max)

    def capacity(self, bodies: int) -> int:
        """Return the largest message that takes at most so many bodies."""
        if bodies == 1:
            return self._body_bytes_max - 1 - codec.SEQUENCE_BYTES
        return bodies * (self._body_bytes_max - _FRAGMENT_HEADER.size)

    def pack(self, encoded: Sequence[bytes]) -> list[bytes]:
        """Return bodies that carry these messages, in order.

        Raises:
            UnsendableError: a message is above `message_bytes_max`; nothing is packed then.
        """
        if encoded and len(encoded) <= FEW and sum(map(len, encoded)) <= self.single_bytes_max:
            return [_WHOLE_PREFIX + codec.encode_sequence(encoded)]
        for message in encoded:
            if len(message) > self._message_bytes_max:
                raise UnsendableError(
                    f"peer message: expected at most {self._message_bytes_max} bytes (message_bytes_max), "
                    f"found {len(message)}; bound what goes into one message before encoding it"
                )
        bodies: list[bytes] = []
        group: list[bytes] = []
        room = self._body_bytes_max - 1 - codec.SEQUENCE_BYTES
        room_left = room
        for message in encoded:
            size = len(message)
            if (size > room_left or len(group) == codec.SEQUENCE_MAX) and group:
                bodies.append(_WHOLE_PREFIX + codec.encode_sequence(group))
                group, room_left = [], room
            if size > room:
                bodies.extend(self._fragments(message))
            else:
                group.append(message)
                room_left -= size
        if group:
            bodies.append(_WHOLE_PREFIX + codec.encode_sequence(group))
        return bodies

    def _fragments(self, message: bytes) -> list[bytes]:
        number = self._message_number
        self._message_number = number + 1 if number < _MESSAGE_NUMBER_MAX else 0
        step = self._body_bytes_max - _FRAGMENT_HEADER.size
        count = -(-len(message) // step)
        assert 2 <= count <= FRAGMENTS_MAX, f"{count} fragments of {step} bytes for {len(message)}"
        return [
            _FRAGMENT_HEADER.pack(FRAGMENT, number, at, count) + message[at * step : (at + 1) * step]
            for at in range(count)
        ]


_REPORT: Final = struct.Struct(">BQQ")


@frozen
class LossReport:
    """Report about a run's datagrams to their sender, so that it learns how many are lost.

    Cumulative, so that a lost report costs nothing: `next_counter` is one above the highest counter that opened,
    `opened` how many opened, since the receiver knows the run.
    """

    next_counter: int
    opened: int


def pack_report(report: LossReport) -> bytes:
    """Return a body of kind REPORT."""
    return _REPORT.pack(REPORT, report.next_counter, report.opened)


def unpack_report(body: bytes) -> LossReport:
    """Read a body of kind REPORT.

    Raises:
        ProtocolError: it has another size, or counts more datagrams than there can be.
    """
    if len(body) != _REPORT.size:
        raise ProtocolError(f"report: expected {_REPORT.size} bytes, found {len(body)}")
    _, next_counter, opened = _REPORT.unpack(body)
    if opened > next_counter:
        raise ProtocolError(f"report: expected at most {next_counter} datagrams opened, found {opened}")
    return LossReport(next_counter, opened)


@frozen
class Fragment:
    """One part of a message: the `at`-th (from 0) of `count`."""

    number: int
    at: int
    count: int
    part: bytes


def unpack_fragment(body: bytes) -> Fragment:
    """Read a body of kind FRAGMENT.

    Raises:
        ProtocolError: it is cut short, empty, or its numbers are impossible.
    """
    if len(body) <= _FRAGMENT_HEADER.size:
        raise ProtocolError(
            f"fragment: expected more than {_FRAGMENT_HEADER.size} bytes (its header), found {len(body)}"
        )
    _, number, at, count = _FRAGMENT_HEADER.unpack_from(body)
    if not 2 <= count <= FRAGMENTS_MAX or at >= count:
        raise ProtocolError(
            f"fragment: expected a number below a count of 2 to {FRAGMENTS_MAX}, found {at} of {count}"
        )
    return Fragment(number, at, count, body[_FRAGMENT_HEADER.size :])


class _Partial:
    """A message of which some fragments are here."""

    __slots__ = ("count", "deadline_ms", "held_bytes", "parts")

    def __init__(self, count: int, deadline_ms: int) -> None:
        self.count = count
        self.deadline_ms = deadline_ms
        self.held_bytes = 0
        self.parts: dict[int, bytes] = {}


PARTIALS_PER_PEER_MAX: Final = 64
"""Messages in reassembly per peer: one sender sends its fragments in sequence, so more means losses."""

_PART_OVERHEAD_BYTES: Final = 128
"""Counted per held fragment for the object and the dict slot, so that tiny fragments cannot cheat."""


class Reassembly:
    """Fragments of all peers on their way to being messages, bounded in bytes and in time.

    At a bound the oldest incomplete message goes first: it is the one most likely to have lost a fragment.
    """

    __slots__ = (
        "_bytes_per_peer_max",
        "_bytes_total_max",
        "_held_by_peer",
        "_held_total",
        "_message_bytes_max",
        "_partials",
        "_timeout_ms",
        "dropped",
    )

    def __init__(
        self, *, message_bytes_max: int, bytes_per_peer_max: int, bytes_total_max: int, timeout_ms: int
    ) -> None:
        self._message_bytes_max = message_bytes_max
        self._bytes_per_peer_max = bytes_per_peer_max
        self._bytes_total_max = bytes_total_max
        self._timeout_ms = timeout_ms
        # In order of arrival of the first fragment, which is also the order of the deadlines.
        self._partials: OrderedDict[tuple[ServerId, int], _Partial] = OrderedDict()
        self._held_by_peer: dict[ServerId, int] = {}
        self._held_total = 0
        self.dropped = 0
        """Incomplete messages given up, for whatever reason."""

    @property
    def held_bytes(self) -> int:
        """The bytes that the incomplete messages occupy, with an allowance for each fragment."""
        return self._held_total

    def add(self, sender: ServerId, fragment: Fragment, now_ms: int) -> bytes | None:
        """Take one fragment; the whole message when this completes it. A repeated fragment changes nothing.

        Raises:
            ProtocolError: it contradicts the fragments before it, or the message grows above the bound;
                the message is dropped.
        """
        self.expire(now_ms)
        key = (sender, fragment.number)
        partial = self._partials.get(key)
        if partial is None:
            self._make_room_for_partial(sender)
            partial = self._partials[key] = _Partial(fragment.count, now_ms + self._timeout_ms)
        elif partial.count != fragment.count:
            self._drop(key)
            raise ProtocolError(
                f"fragment of message {fragment.number} of server {sender}: expected a count of "
                f"{partial.count} as before, found {fragment.count}"
            )
        if fragment.at in partial.parts:
            return None
        partial.parts[fragment.at] = fragment.part
        size = len(fragment.part)
        partial.held_bytes += size
        self._account(sender, size + _PART_OVERHEAD_BYTES)
        if partial.held_bytes > self._message_bytes_max:
            self._drop(key)
            raise ProtocolError(
                f"fragments of message {fragment.number} of server {sender}: expected at most "
                f"{self._message_bytes_max} bytes together (message_bytes_max), found more"
            )
        if len(partial.parts) == partial.count:
            parts = partial.parts
            self._forget(key)
            return b"".join([parts[at] for at in range(fragment.count)])
        self._make_room(sender)
        return None

    def expire(self, now_ms: int) -> None:
        """Drop the messages whose first fragment came longer ago than the timeout."""
        while self._partials:
            key, partial = next(iter(self._partials.items()))
            if partial.deadline_ms > now_ms:
                return
            self._drop(key)

    def forget_sender(self, sender: ServerId) -> None:
        """Drop what a peer's earlier run left behind: its message numbers start again."""
        for key in [key for key in self._partials if key[0] == sender]:
            self._drop(key)

    def _make_room_for_partial(self, sender: ServerId) -> None:
        mine = [key for key in self._partials if key[0] == sender]
        if len(mine) >= PARTIALS_PER_PEER_MAX:
            self._drop(mine[0])

    def _make_room(self, sender: ServerId) -> None:
        while self._held_by_peer.get(sender, 0) > self._bytes_per_peer_max:
            self._drop(next(key for key in self._partials if key[0] == sender))
        while self._held_total > self._bytes_total_max:
            self._drop(next(iter(self._partials)))

    def _drop(self, key: tuple[ServerId, int]) -> None:
        self.dropped += 1
        self._forget(key)

    def _forget(self, key: tuple[ServerId, int]) -> None:
        partial = self._partials.pop(key)
        self._account(key[0], -partial.held_bytes - _PART_OVERHEAD_BYTES * len(partial.parts))

    def _account(self, sender: ServerId, change: int) -> None:
        self._held_total += change
        held = self._held_by_peer.get(sender, 0) + change
        assert held >= 0
        assert self._held_total >= held
        if held:
            self._held_by_peer[sender] = held
        else:
            self._held_by_peer.pop(sender, None)
