"""Counts what real servers do, in one process: how often each is woken, takes a turn, and calls a function."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.unit.profiled import profiled
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
"""The loop calls one or more of these for a server after it slept."""

CALLED: Final = frozenset(
    {Node._turn.__code__, ClientProtocol.connection_made.__code__, ClientProtocol.connection_lost.__code__}
)
"""The loop calls one of these for what was asked for, or for what it has found out by itself."""

TURN: Final = Node._batch.__code__


TESTS: Final = str(Path(__file__).parents[2])


class NodeCounts:
    """Counters of what each server does inside `counted`: it is woken, takes turns, and calls functions of Python and C.

    A function that a test put in the place of another one counts as one call, whatever it calls itself.

    Attributes:
        wakes, turns, calls: of each server. What the loop calls without sleeping in between is one wake-up: an alarm that
            rings while a datagram is taken wakes nobody.
        alarms: how often all servers were woken by time; part of `wakes`.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.wakes: Counter[ServerId] = Counter()
        self.turns: Counter[ServerId] = Counter()
        self.calls: Counter[ServerId] = Counter()
        self.alarms = 0
        self._awake: set[ServerId] = set()
        self._owners: dict[int, ServerId] = {}
        for server, node in nodes.nodes.items():
            self._owners[id(node)] = self._owners[id(node._peers._endpoint)] = server
        self._inside: ServerId | None = None
        self._outermost: FrameType | None = None

    def counted(self) -> AbstractContextManager[None]:
        """Count everything that is called in the block."""
        return profiled(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code: CodeType = frame.f_code
        if self._inside is None:
            if event == "call" and (code in WAKES or code in CALLED):
                self._inside = server = self._owner(frame.f_locals["self"])
                self._outermost = frame
                if code in WAKES and server not in self._awake:
                    self._wake(server)
                    self.alarms += code is Node._on_alarm.__code__
                self.calls[server] += 1
        elif event == "return":
            if frame is self._outermost:
                self._inside = self._outermost = None
        elif event == "call":
            caller = frame.f_back
            self.calls[self._inside] += caller is not None and not _is_of_tests(caller.f_code)
        elif event == "c_call":
            self.calls[self._inside] += not _is_of_tests(code)
        if event == "call" and code is TURN and self._inside is not None:
            self.turns[self._inside] += 1

    def _wake(self, server: ServerId) -> None:
        self.wakes[server] += 1
        if not self._awake:
            # The loop looks for what has arrived before it calls this.
            asyncio.get_running_loop().call_soon(self._awake.clear)
        self._awake.add(server)

    def _owner(self, called: object) -> ServerId:
        return self._owners[id(called._node if isinstance(called, ClientProtocol) else called)]


def _is_of_tests(code: CodeType) -> bool:
    return code.co_filename.startswith(TESTS)


def datagrams_sent(node: Node) -> int:
    """Return how many datagrams a server has sent since its start."""
    traffic = node._peers.traffic()
    assert traffic is not None
    return traffic[0].datagrams_sent
