"""Counts what real servers do, in one process: how often each is woken, takes a turn, and calls a function."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

from tests.unit.server.nodes import Nodes
from zraft.server.process.client_protocol import ClientProtocol
from zraft.server.process.node import Node
from zraft.transport.udp import UdpEndpoint
from zraft_core.ids import ServerId

WAKES: Final = frozenset(
    {
        ClientProtocol.buffer_updated.__code__,
        UdpEndpoint._on_readable.__code__,
        Node._on_alarm.__code__,
        Node._on_written.__code__,
    }
)
"""With what the loop calls a server after it slept."""

CALLED: Final = Node._turn.__code__
"""What the loop calls for the turns that were asked for."""

TURN: Final = Node._batch.__code__


class NodeCounts:
    """How often each server was woken, took a turn and called a function, Python's or C's, since `counted` began."""

    def __init__(self, nodes: Nodes) -> None:
        self.wakes: Counter[ServerId] = Counter()
        self.turns: Counter[ServerId] = Counter()
        self.calls: Counter[ServerId] = Counter()
        self._owners: dict[int, ServerId] = {}
        for server, node in nodes.nodes.items():
            self._owners[id(node)] = self._owners[id(node._peers._endpoint)] = server
        self._inside: ServerId | None = None
        self._outermost: FrameType | None = None

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code: CodeType = frame.f_code
        if self._inside is None:
            if event == "call" and (code in WAKES or code is CALLED):
                self._inside = server = self._owner(frame.f_locals["self"])
                self._outermost = frame
                self.wakes[server] += code in WAKES
                self.calls[server] += 1
        elif event == "return":
            if frame is self._outermost:
                self._inside = self._outermost = None
        elif event in ("call", "c_call"):
            self.calls[self._inside] += 1
        if event == "call" and code is TURN and self._inside is not None:
            self.turns[self._inside] += 1

    def _owner(self, called: object) -> ServerId:
        return self._owners[id(called._node if isinstance(called, ClientProtocol) else called)]
