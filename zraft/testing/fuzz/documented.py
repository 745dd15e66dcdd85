"""The answer that docs/PROTOCOL-ZOOKEEPER.md promises to a client's bytes, judged without the server's code.

Slow and literal on purpose: it walks the tables of that page, and shares no decoder with `zraft.wire`.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

from attrs import frozen

from zraft.testing import jute

WORDS: Final = frozenset(
    b"conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk wchc wchp wchs".split()
)
_READS: Final = (jute.EXISTS, jute.GET_DATA, jute.GET_CHILDREN, jute.GET_CHILDREN2)
_TTL_AND_CONTAINER: Final = (19, 21)


class Answer(Enum):
    """What happens to one frame."""

    VALUE = "answered"
    BAD_ARGUMENTS = "answered with -8"
    MALFORMED = "answered with -5"
    UNSUPPORTED = "answered with -6"
    UNKNOWN = "answered with -6 and closed"
    PONG = "pong"
    END = "session closed"
    DROPPED = "closed without an answer"


ENDS: Final = frozenset({Answer.UNKNOWN, Answer.END, Answer.DROPPED})


@frozen
class Expected:
    """What one request's reply must look like."""

    xid: int
    answer: Answer


class _MalformedError(Exception):
    pass


class _UnsupportedError(Exception):
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

    def text(self) -> None:
        raw = self.buffer()
        if raw is None:
            raise _MalformedError
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise _MalformedError from None

    def count(self) -> int:
        count = self.integer()
        if count < -1 or count > len(self.data):
            raise _MalformedError
        return max(0, count)


def _create(cursor: _Cursor) -> int:
    cursor.text()
    cursor.buffer()
    for _ in range(cursor.count()):
        cursor.integer()
        cursor.text()
        cursor.text()
    flags = cursor.integer()
    if flags in (5, 6):
        raise _UnsupportedError
    return flags


def _multi(cursor: _Cursor) -> None:
    while True:
        opcode, done, _ = cursor.integer(), cursor.take(1) != b"\0", cursor.integer()
        if done:
            return
        if opcode in _TTL_AND_CONTAINER:
            raise _UnsupportedError
        if opcode in (jute.CREATE, jute.CREATE2):
            _create(cursor)
        elif opcode in (jute.DELETE, jute.CHECK):
            cursor.text()
            cursor.integer()
        elif opcode == jute.SET_DATA:
            cursor.text()
            cursor.buffer()
            cursor.integer()
        else:
            raise _MalformedError


def _body(opcode: int, cursor: _Cursor) -> Answer:
    if opcode in (jute.CREATE, jute.CREATE2):
        return Answer.VALUE if 0 <= _create(cursor) <= 6 else Answer.BAD_ARGUMENTS
    if opcode == jute.DELETE:
        cursor.text()
        cursor.integer()
    elif opcode == jute.SET_DATA:
        cursor.text()
        cursor.buffer()
        cursor.integer()
    elif opcode == jute.MULTI:
        _multi(cursor)
    elif opcode in _READS:
        cursor.text()
        cursor.take(1)
    elif opcode == jute.SYNC:
        cursor.text()
    elif opcode == jute.PING:
        return Answer.PONG
    elif opcode == jute.SET_WATCHES:
        cursor.take(8)
        for _ in range(3):
            for _ in range(cursor.count()):
                cursor.text()
    elif opcode == jute.CLOSE:
        return Answer.END
    else:
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
    except _UnsupportedError:
        answer = Answer.UNSUPPORTED
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
