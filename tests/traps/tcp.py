"""A client in raw bytes at the end of a real socket, for what only a whole process shows."""

from __future__ import annotations

import socket
import time

from tests.processes.cluster import DEADLINE_S
from tests.simulation.jute import (
    XID_PING,
)
from tests.traps.peer import Peer, connect_bytes
from tests.traps.protocol import (
    PING_REQUEST,
    Answer,
    Ask,
)
from zraft_core.address import Address

TIMEOUT_MS = 30_000
"""Long, since these clients ping only when told to."""


class TcpPeer(Peer):
    """A connection with a session of its own, unless `connect` names another; leaving the context closes the socket only."""

    def __init__(self, address: Address, connect: bytes = connect_bytes(timeout_ms=TIMEOUT_MS)) -> None:
        super().__init__()
        self._socket = socket.create_connection((address.host, address.port), timeout=DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.carry = self._socket.sendall
        self.say_bytes(connect)
        while self.greeting is None:
            self._hear()

    def __enter__(self) -> TcpPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _hear(self) -> None:
        data = self._socket.recv(65_536)
        assert data, "the server closed the connection"
        self.feed(data)

    def ask(self, *asks: Ask) -> list[Answer]:
        """The answers to `asks`; events are dropped."""
        self.take()
        self.say(*asks)
        return self.hear_answers(len(asks))

    def hear_answers(self, count: int) -> list[Answer]:
        """The next `count` answers."""
        while sum(isinstance(one, Answer) for one in self.heard) < count:
            self._hear()
        return self.answers()

    def ping_s(self) -> float:
        """Seconds until a ping is answered."""
        began = time.monotonic()
        (pong,) = self.ask(PING_REQUEST)
        assert pong.xid == XID_PING
        return time.monotonic() - began


def four_letter_word(address: Address, word: bytes) -> bytes:
    """All that the server says to `word` before it closes."""
    with socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as connection:
        connection.sendall(word)
        told = b""
        while data := connection.recv(65_536):
            told += data
        return told
