"""A client that is nothing but bytes: it sends what it is told and keeps all that it hears, in order.

What carries the bytes is handed in: a server in memory, one of a simulated ensemble, or a real socket.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from attrs import frozen

from tests.simulation.jute import Reader, blob, frame
from tests.traps.protocol import Answer, Ask, Event, Heard, parsed

TIMEOUT_MS: Final = 6_000
NO_PASSWORD: Final = bytes(16)


def connect_bytes(
    *,
    session: int = 0,
    password: bytes = NO_PASSWORD,
    last_zxid: int = 0,
    timeout_ms: int = TIMEOUT_MS,
    read_only: bytes = b"\0",
) -> bytes:
    """A connect request; `read_only` is its trailing byte, empty as from clients before ZooKeeper 3.4."""
    return frame(struct.pack(">iqiq", 0, last_zxid, timeout_ms, session) + blob(password) + read_only)


@frozen
class Greeting:
    """A connect response; `rest` is what follows the password."""

    protocol: int
    timeout_ms: int
    session: int
    password: bytes
    rest: bytes


class Peer:
    """One connection of one client."""

    def __init__(self) -> None:
        self.carry: Callable[[bytes], None] | None = None
        self.heard: list[Heard] = []
        self.frame_sizes: list[int] = []
        """Of every frame but the greeting, without its length."""
        self.closed = False
        self.greeting: Greeting | None = None
        self._buffer = bytearray()
        self._xid = 0

    @property
    def session(self) -> int:
        assert self.greeting is not None, "the client was not greeted"
        return self.greeting.session

    @property
    def password(self) -> bytes:
        assert self.greeting is not None, "the client was not greeted"
        return self.greeting.password

    # -- saying

    def encoded(self, *asks: Ask) -> bytes:
        """The frames of `asks`, with xids 1, 2, … unless they have their own."""
        frames = []
        for ask in asks:
            xid = ask.xid
            if xid is None:
                self._xid += 1
                xid = self._xid
            frames.append(frame(struct.pack(">ii", xid, ask.opcode) + ask.body))
        return b"".join(frames)

    def say(self, *asks: Ask) -> None:
        """One read of the server's socket brings all of them."""
        self.say_bytes(self.encoded(*asks))

    def say_bytes(self, data: bytes) -> None:
        assert self.carry is not None, "nothing carries this client's bytes"
        self.carry(data)

    # -- hearing

    def feed(self, data: bytes, *, close: bool = False) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[4:end])
            del self._buffer[:end]
            if self.greeting is None:
                self.greeting = _greeting(body)
            else:
                self.frame_sizes.append(len(body))
                self.heard.append(parsed(body))
        self.closed = self.closed or close

    def take(self) -> list[Heard]:
        """What was heard since the last call."""
        taken, self.heard = self.heard, []
        return taken

    def answers(self) -> list[Answer]:
        """The same, without events."""
        return [one for one in self.take() if isinstance(one, Answer)]

    def events(self) -> list[tuple[int, str]]:
        """(type, path) of the events since the last call; answers are dropped."""
        return [(one.kind, one.path) for one in self.take() if isinstance(one, Event)]


def _greeting(body: bytes) -> Greeting:
    protocol, timeout_ms, session = struct.unpack_from(">iiq", body)
    password = Reader(body[16:]).blob()
    assert password is not None, "a greeting with a null password"
    return Greeting(protocol, timeout_ms, session, password, body[20 + len(password) :])
