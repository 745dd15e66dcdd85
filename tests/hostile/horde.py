"""Many connections of one attacker: raw sockets that send what they are told, and read only if they are told to."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from zraft_core.address import Address

RECEIVE_BUFFER_BYTES: Final = 4_096
"""Small, so that what an attacker does not read stays with the server."""

CHUNK_BYTES: Final = 256 * 1024
CONNECT_S_MAX: Final = 30.0
POLL_S: Final = 0.05

Wrap = Callable[[socket.socket], socket.socket]


class Horde:
    """Connections to one address. Use as a context manager; leaving it closes them."""

    def __init__(self, address: Address, count: int, *, kind: int = socket.SOCK_STREAM) -> None:
        self._address = (address.host, address.port)
        self._kind = kind
        self._selector = selectors.DefaultSelector()
        self._unsent: dict[socket.socket, memoryview] = {}
        self.sockets: list[socket.socket] = []
        self.closed = 0
        """Connections that the server has ended."""
        self.received = 0
        """Bytes that were read."""
        for _ in range(count):
            self.connect()

    def __enter__(self) -> Horde:
        return self

    def __exit__(self, *_: object) -> None:
        for one in list(self.sockets):
            self._drop(one)
        self._selector.close()

    def connect(self) -> socket.socket | None:
        """One connection more; None if the server does not take it."""
        one = socket.socket(socket.AF_INET, self._kind)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        one.settimeout(CONNECT_S_MAX)
        try:
            one.connect(self._address)
        except OSError:
            one.close()
            return None
        one.setblocking(False)
        self.sockets.append(one)
        return one

    def send(self, data: bytes | Callable[[int], bytes], to: Iterable[socket.socket] | None = None) -> None:
        """Have each connection (or those in `to`) send this after what it has to send already; see `push`."""
        for number, one in enumerate(list(self.sockets if to is None else to)):
            more = data(number) if callable(data) else data
            waiting = self._unsent.get(one)
            self._unsent[one] = memoryview(more if waiting is None else bytes(waiting) + more)

    @property
    def unsent(self) -> int:
        """Bytes that the server has not taken."""
        return sum(map(len, self._unsent.values()))

    def push(
        self,
        seconds: float,
        *,
        reading: bool = False,
        again: bytes | None = None,
        chunk: int = CHUNK_BYTES,
        pause_s: float = 0.0,
    ) -> None:
        """Send as much as the server takes, for so long.

        Args:
            seconds: how long.
            reading: read and forget what the server says.
            again: what a connection that has sent everything sends next; None: nothing.
            chunk: the most that is sent at a time.
            pause_s: what each round over all connections waits.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._select(reading=reading)
            if not self._selector.get_map():
                time.sleep(min(left, POLL_S))
                continue
            for key, events in self._selector.select(min(left, POLL_S)):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    self._step(key.fileobj, events, again, chunk)
                except OSError:
                    self.closed += 1
                    self._drop(key.fileobj)
            if pause_s:
                time.sleep(pause_s)

    def _select(self, *, reading: bool) -> None:
        """Watch for what each connection wants."""
        known = self._selector.get_map()
        for one in self.sockets:
            wanted = selectors.EVENT_READ if reading else 0
            if self._unsent.get(one):
                wanted |= selectors.EVENT_WRITE
            key = known.get(one)
            if key is None:
                if wanted:
                    self._selector.register(one, wanted)
            elif not wanted:
                self._selector.unregister(one)
            elif key.events != wanted:
                self._selector.modify(one, wanted)

    def _step(self, one: socket.socket, events: int, again: bytes | None, chunk: int) -> None:
        if events & selectors.EVENT_READ:
            got = one.recv(CHUNK_BYTES)
            if not got:
                raise ConnectionAbortedError("the server has closed")
            self.received += len(got)
        if events & selectors.EVENT_WRITE:
            left = self._unsent[one]
            with suppress(BlockingIOError):
                left = left[one.send(left[:chunk]) :]
            if not left and again is not None:
                left = memoryview(again)
            self._unsent[one] = left

    def _drop(self, one: socket.socket) -> None:
        if one in self._selector.get_map():
            self._selector.unregister(one)
        self._unsent.pop(one, None)
        self.sockets.remove(one)
        one.close()
