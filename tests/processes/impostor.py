"""A process in the place of a killed server: it has the key and the identity of that disk, and sends what it is told to."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.processes.cluster import Server
from zraft.storage.directory import read_meta
from zraft.storage.filesystem import RealFileSystem
from zraft.transport.keys import read_keys
from zraft.transport.link import DATAGRAM_BYTES_DEFAULT, PeerLinks
from zraft.transport.messages import Hello, PeerMessage, Sender
from zraft_core.ids import ServerId

ANSWER_S: Final = 0.3
"""Time in which a server on this machine answers a handshake."""


class Impostor:
    """Use as a context manager; the server in whose place it is must not run."""

    def __init__(self, server: Server, key: Path) -> None:
        meta = read_meta(RealFileSystem(), str(server.data))
        self._me = Sender(ServerId(server.number), meta.instance, meta.boot + 1)
        self._keys = read_keys([key])
        self._address = (server.address.host, server.address.port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> Self:
        self._socket.bind(self._address)
        self._socket.settimeout(ANSWER_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _links(self, to: Server) -> PeerLinks:
        peers = {ServerId(to.number): DATAGRAM_BYTES_DEFAULT}
        return PeerLinks(me=self._me, peers=peers, keys=self._keys, entropy=os.urandom)

    def _send(self, to: Server, datagrams: Sequence[bytes]) -> None:
        for datagram in datagrams:
            self._socket.sendto(datagram, (to.address.host, to.address.port))

    def say(self, to: Server, message: PeerMessage) -> None:
        """Send a message that opens, after a handshake."""
        links = self._links(to)
        self._send(to, links.send(ServerId(to.number), [message]))
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            try:
                answer = self._socket.recv(65_536)
            except TimeoutError:
                return
            _, _, beside = links.receive(answer, int(time.monotonic() * 1000))
            if beside is not None:
                self._send(to, [reply for _, reply in beside.replies])

    def forge(self, to: Server) -> None:
        """Send the beginning of a handshake that names the right key and is not made with it."""
        (hello,) = self._links(to).send(ServerId(to.number), [Hello(None, None, False)])
        self._send(to, [hello[:-1] + bytes([hello[-1] ^ 1])])
