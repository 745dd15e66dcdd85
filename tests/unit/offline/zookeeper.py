"""A ZooKeeper's answers, made of a state machine; and a server of them on a real socket."""

from __future__ import annotations

import socket
import threading
from typing import Any

from zraft.tree.children import names_of
from zraft.tree.machine import Machine
from zraft_core.address import Address
from zraft_core.errors import Code
from zraft_core.wire.client import Reply
from zraft_core.wire.client_requests import GetAcl, GetChildren, GetData, Request
from zraft_core.znodes.acl import ADMIN, READ, Ids, permits


class Answering:
    """What `machine` shows to whom has `ids`; `changes` are applied before the n-th request is answered."""

    def __init__(self, machine: Machine, ids: Ids = (), changes: dict[int, Any] | None = None) -> None:
        self.machine = machine
        self.ids = ids
        self.changes = changes or {}
        self.asked: list[Request[Any]] = []

    def answer(self, request: Request[Any]) -> Reply:
        self.asked.append(request)
        change = self.changes.pop(len(self.asked), None)
        if change is not None:
            change()
        code, value = self._value(request)
        return Reply(len(self.asked), self.machine.last_zxid, code, value if code is Code.OK else None)

    def _value(self, request: Request[Any]) -> tuple[Code, Any]:
        assert isinstance(request, GetData | GetAcl | GetChildren)
        node = self.machine.nodes.get(request.path)
        if node is None:
            return Code.NO_NODE, None
        may_read, may_administer = permits(node.acl, READ, self.ids), permits(node.acl, ADMIN, self.ids)
        if not may_read and not (may_administer and isinstance(request, GetAcl)):
            return Code.NO_AUTH, None
        match request:
            case GetData():
                return Code.OK, (node.data, node.stat())
            case GetChildren():
                return Code.OK, tuple(sorted(names_of(request.path, node.children)))
            case GetAcl():
                acl = node.acl
                if not may_administer:
                    acl = tuple(
                        (bits, scheme, id_.partition(":")[0] + ":x" if scheme == "digest" else id_)
                        for bits, scheme, id_ in acl
                    )
                return Code.OK, (acl, node.stat())


class Mute:
    """Accepts connections, says `said` once, and closes them."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(self._said)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
