"""A client that speaks only when told to: no pings, no reconnects. For what well-behaved clients do not do."""

from __future__ import annotations

import socket

from tests.processes.cluster import DEADLINE_S
from zraft_core.address import Address
from zraft_core.errors import Code
from zraft_core.wire.client import Received, Reply, ZkClientCodec
from zraft_core.wire.connect import NO_PASSWORD, ConnectResponse
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import Command


class QuietClient:
    """One blocking connection with a session of its own; leaving the context closes the socket only."""

    def __init__(
        self, address: Address, *, timeout_ms: int, session: int = 0, password: bytes = NO_PASSWORD
    ) -> None:
        self.socket = socket.create_connection((address.host, address.port), timeout=DEADLINE_S)
        self._codec = ZkClientCodec()
        self._received: list[Received] = []
        self.socket.sendall(self._codec.connect(timeout_ms=timeout_ms, session=session, password=password))
        greeting = self._next()
        assert isinstance(greeting, ConnectResponse), f"expected a greeting, got {greeting}"
        self.session = greeting.session
        self.password = greeting.password

    def __enter__(self) -> QuietClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def write(self, command: Command) -> Reply:
        """Send one write and wait for its reply, which must be a success."""
        _, request = self._codec.write(command)
        return self._answer(request, command)

    def read(self, opcode: Opcode, path: str) -> Reply:
        """Send one read and wait for its reply, which must be a success."""
        _, request = self._codec.read(opcode, path)
        return self._answer(request, (opcode, path))

    def _answer(self, request: bytes, asked: Command) -> Reply:
        self.socket.sendall(request)
        reply = self._next()
        assert isinstance(reply, Reply), f"expected a reply, got {reply}"
        assert reply.code == Code.OK, f"{asked} was answered with {reply}"
        return reply

    def _next(self) -> Received:
        while not self._received:
            chunk = self.socket.recv(65_536)
            assert chunk, "the server closed the connection"
            self._received = self._codec.receive(chunk)
        return self._received.pop(0)
