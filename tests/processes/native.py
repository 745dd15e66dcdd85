"""A native client of real servers: a blocking socket and MessagePack, with nothing of ours in between."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import msgpack

from tests.processes.cluster import Cluster

TIMEOUT_S = 20.0
CHUNK_BYTES = 65_536
Map = dict[Any, Any]


class ConnectionEndedError(OSError):
    """The server closed the connection, or it broke."""


class RawClient:
    """One connection to one server."""

    def __init__(self, cluster: Cluster, number: int, context: ssl.SSLContext | None = None) -> None:
        address = cluster.servers[number].address
        self._socket = socket.create_connection((address.host, address.port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
        self._unpacker = msgpack.Unpacker(strict_map_key=False)
        self.number = 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, *messages: Map) -> None:
        """As they are, in one go."""
        try:
            self._socket.sendall(b"".join(map(msgpack.packb, messages)))
        except OSError as error:
            raise ConnectionEndedError(str(error)) from error

    def receive(self) -> Map:
        """The next message of the server. Raises ConnectionEndedError."""
        while True:
            for message in self._unpacker:
                found: Map = message
                return found
            try:
                data = self._socket.recv(CHUNK_BYTES)
            except OSError as error:
                raise ConnectionEndedError(str(error)) from error
            if not data:
                raise ConnectionEndedError("closed by the server")
            self._unpacker.feed(data)

    def ask(self, kind: str, **fields: Any) -> Map:
        """One request, and its answer; nothing else is under way."""
        self.number += 1
        self.send({"type": kind, "id": self.number, **fields})
        answer = self.receive()
        assert answer["id"] == self.number
        return answer

    def ask_all(self, *requests: Map) -> list[Map]:
        """Many requests at once; their answers in the order of the requests."""
        numbered = []
        for request in requests:
            self.number += 1
            numbered.append({"id": self.number, **request})
        self.send(*numbered)
        answers: dict[int, Map] = {}
        while len(answers) < len(numbered):
            answer = self.receive()
            answers[answer["id"]] = answer
        return [answers[request["id"]] for request in numbered]


def zatt(cluster: Cluster, number: int, message: Map) -> Any:
    """One of Zatt's messages as Zatt's client sends it: a connection for it, one answer, the end.

    None if the server closes without an answer.
    """
    with RawClient(cluster, number) as client:
        client.send(message)
        try:
            answer = client.receive()
        except ConnectionEndedError:
            return None
        try:
            more = client.receive()
        except ConnectionEndedError:
            return answer
        raise AssertionError(f"after {answer} came {more}")
