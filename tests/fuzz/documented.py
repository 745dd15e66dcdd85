"""The answer that docs/reference/protocol-zookeeper.md promises to a client's bytes, judged without the server's code.

Slow and literal on purpose: it walks the tables of that page, and shares no decoder with `zraft_core.wire`.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

from attrs import frozen

from tests.simulation import jute

WORDS: Final = frozenset(
    b"conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk wchc wchp wchs".split()
)
_READS: Final = (jute.EXISTS, jute.GET_DATA, jute.GET_CHILDREN, jute.GET_CHILDREN2)
_CONTAINER: Final = 19
_TTL: Final = 21
_CREATES: Final = (jute.CREATE, jute.CREATE2, _CONTAINER, _TTL)
_PATH_ONLY: Final = (jute.SYNC, 6, 20, 104)
"""sync, getACL, deleteContainer, getAllChildrenNumber."""
_WATCHER_TYPES: Final = {17: range(1, 6), 18: range(1, 6), 106: range(2)}
"""Types of checkWatches and removeWatches, modes of addWatch."""


class Answer(Enum):
    """What happens to one frame."""

    VALUE = "answered"
    BAD_ARGUMENTS = "answered with -8"
    MALFORMED = "answered with -5"
    AUTH_FAILED = "answered with -115 and closed"
    UNKNOWN = "answered with -6 and closed"
    PONG = "pong"
    END = "session closed"
    DROPPED = "closed without an answer"


ENDS: Final = frozenset({Answer.UNKNOWN, Answer.AUTH_FAILED, Answer.END, Answer.DROPPED})


@frozen
class Expected:
    """What one request's reply must look like."""

    xid: int
    answer: Answer


class _MalformedError(Exception):
    pass


class _Cursor:
    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise _MalformedError
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self) -> int:
        return int.from_bytes(self.take(4), signed=True)

    def buffer(self) -> bytes | None:
        length = self.integer()
        return None if length == -1 else self.take(length)

    def text(self, *, null: bool = False) -> str:
        raw = self.buffer()
        if raw is None:
            if null:
                return ""
            raise _MalformedError
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise _MalformedError from None

    def texts(self) -> None:
        for _ in range(self.count()):
            self.text()

    def acl(self) -> None:
        for _ in range(self.count()):
            self.integer()
            self.text()
            self.text(null=True)

    def count(self) -> int:
        count = self.integer()
        if count < -1 or count > len(self.data):
            raise _MalformedError
        return max(0, count)


def _create(opcode: int, cursor: _Cursor) -> Answer:
    cursor.text()
    cursor.buffer()
    cursor.acl()
    flags = cursor.integer()
    if opcode == _TTL:
        ttl_ms = int.from_bytes(cursor.take(8), signed=True)
        if 0 <= flags <= 4 and ttl_ms < 0:
            return Answer.VALUE
        return Answer.VALUE if flags in (5, 6) and 0 < ttl_ms < 2**40 else Answer.BAD_ARGUMENTS
    return Answer.VALUE if 0 <= flags <= 4 else Answer.BAD_ARGUMENTS


def _multi(cursor: _Cursor) -> None:
    while True:
        opcode, done, _ = cursor.integer(), cursor.take(1) != b"\0", cursor.integer()
        if done:
            return
        if opcode in _CREATES:
            _create(opcode, cursor)
        elif opcode in (jute.DELETE, jute.CHECK):
            cursor.text()
            cursor.integer()
        elif opcode == jute.SET_DATA:
            cursor.text()
            cursor.buffer()
            cursor.integer()
        else:
            raise _MalformedError


def _multi_read(cursor: _Cursor) -> None:
    while True:
        opcode, done, _ = cursor.integer(), cursor.take(1) != b"\0", cursor.integer()
        if done:
            return
        if opcode not in (jute.GET_DATA, jute.GET_CHILDREN):
            raise _MalformedError
        cursor.text()
        cursor.take(1)


def _body(opcode: int, cursor: _Cursor) -> Answer:
    if opcode in _CREATES:
        return _create(opcode, cursor)
    if opcode in _PATH_ONLY:
        cursor.text()
    elif opcode == jute.DELETE:
        cursor.text()
        cursor.integer()
    elif opcode == jute.SET_DATA:
        cursor.text()
        cursor.buffer()
        cursor.integer()
    elif opcode == 103:  # getEphemerals: a null prefix asks for all
        raw = cursor.buffer()
        if raw is not None:
            _Cursor(struct.pack(">i", len(raw)) + raw, 0).text()
    elif opcode == 7:  # setACL
        cursor.text()
        cursor.acl()
        cursor.integer()
    elif opcode == jute.MULTI:
        _multi(cursor)
    elif opcode == 22:
        _multi_read(cursor)
    elif opcode in _READS:
        cursor.text()
        cursor.take(1)
    elif opcode in _WATCHER_TYPES:
        cursor.text()
        if cursor.integer() not in _WATCHER_TYPES[opcode]:
            raise _MalformedError
    elif opcode == 16:  # reconfig
        for _ in range(3):
            raw = cursor.buffer()
            if raw is not None:
                _Cursor(struct.pack(">i", len(raw)) + raw, 0).text()
        cursor.take(8)
    elif opcode == jute.PING:
        return Answer.PONG
    elif opcode in (jute.SET_WATCHES, 105):
        cursor.take(8)
        for _ in range(3 if opcode == jute.SET_WATCHES else 5):
            cursor.texts()
    elif opcode == 100:
        cursor.integer()
        scheme = cursor.text()
        cursor.buffer()
        return Answer.VALUE if scheme in ("digest", "ip") else Answer.AUTH_FAILED
    elif opcode == 102:
        cursor.buffer()
        return Answer.AUTH_FAILED
    elif opcode == jute.CLOSE:
        return Answer.END
    elif opcode != 107:
        return Answer.UNKNOWN
    return Answer.VALUE


def expected_answer(frame: bytes) -> Expected:
    """What a frame of an attached session is answered with."""
    if len(frame) < 8:
        return Expected(0, Answer.DROPPED)
    xid, opcode = struct.unpack_from(">ii", frame)
    try:
        answer = _body(opcode, _Cursor(frame, 8))
    except _MalformedError:
        answer = Answer.MALFORMED
    return Expected(xid, answer)


def connect_is_malformed(frame: bytes) -> bool:
    """Whether a connection's first frame is no ConnectRequest."""
    cursor = _Cursor(frame, 0)
    try:
        cursor.take(24)
        cursor.buffer()
    except _MalformedError:
        return True
    return False


def frames_of(stream: bytes, frame_bytes_max: int) -> tuple[list[bytes], bool]:
    """(complete frames up to the first impossible length, whether there is one)."""
    frames: list[bytes] = []
    at = 0
    while at + 4 <= len(stream):
        length = int.from_bytes(stream[at : at + 4], signed=True)
        if not 0 <= length <= frame_bytes_max:
            return frames, True
        if at + 4 + length > len(stream):
            break
        frames.append(stream[at + 4 : at + 4 + length])
        at += 4 + length
    return frames, False
