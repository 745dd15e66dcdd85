"""Answers to probes before the admin HTTP server is loaded; other connections are kept until it is.

Loading it takes a third of a second of CPU, and longer on a busy machine, in which a server that serves would
not be known to be ready. So `/readyz` and `/livez` in their plain form, as orchestrators ask, are answered
without it. Who may stay connected is decided as it is afterwards (`zraft.program.http_places`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from zraft.program.http_places import HEAD_S, Places, is_this_machine
from zraft.server.operators.status import AdminReports, readiness

EARLY_BYTES_MAX: Final = 8_192
"""The most bytes of a waiting connection; a longer request is none of a probe or a browser."""

_PROBE: Final = re.compile(rb"GET /(readyz|livez) HTTP/1\.[01]\r\n(?:[^\r\n]+\r\n)*\r\n")


class EarlyConnections:
    """The connections of one listener, from its start until `hand_over`."""

    def __init__(self, reports: AdminReports) -> None:
        self.reports = reports
        self.waiting: dict[EarlyConnection, None] = {}
        self.places: Places[EarlyConnection] = Places()
        self.successor: Callable[[], asyncio.BufferedProtocol] | None = None
        """Makes what answers from now on; None until `hand_over`."""

    def connection(self) -> asyncio.BaseProtocol:
        """Return the protocol for an accepted connection."""
        return EarlyConnection(self)

    def hand_over(self, successor: Callable[[], asyncio.BufferedProtocol]) -> None:
        """Hand all waiting connections to what `successor` makes for each.

        A connection that was accepted and is not here yet is handed over, too.
        """
        self.successor = successor
        for one in list(self.waiting):
            one.hand_over(successor())

    def close(self) -> None:
        """End waiting connections."""
        for one in list(self.waiting):
            one.close()


class EarlyConnection(asyncio.Protocol):
    """A connection that reads until the request is known."""

    def __init__(self, early: EarlyConnections) -> None:
        self._early = early
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and hand over at once if the admin server has been loaded."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclasses
        if self._early.successor is not None:
            # The loop tells us about it one iteration after it accepted it.
            self.hand_over(self._early.successor())
            return
        peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        local = bool(peer) and is_this_machine(peer[0], here[0] if here else "")
        goes = self._early.places.enter(self, local=local)
        if goes is not self:
            self._early.waiting[self] = None
            self._timer = asyncio.get_running_loop().call_later(HEAD_S, self.close)
        if goes is not None:
            goes.close()

    def data_received(self, data: bytes) -> None:
        """Answer a probe, and keep what belongs to any other request."""
        self._received += data
        probe = _PROBE.fullmatch(self._received)
        if probe is not None and b"application/json" not in self._received:
            self._answer(
                *((200, "ok\n") if probe[1] == b"livez" else readiness(self._early.reports.reasons()))
            )
        elif len(self._received) > EARLY_BYTES_MAX:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._leave()

    def _leave(self) -> None:
        self._early.waiting.pop(self, None)
        self._early.places.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._leave()
        if self._transport is not None:
            self._transport.close()

    def hand_over(self, protocol: asyncio.BufferedProtocol) -> None:
        """Hand what came so far, and all that follows, to `protocol`."""
        transport = self._transport
        assert transport is not None, "it waits, so it is connected"
        self._leave()
        transport.pause_reading()  # uvloop asks how a protocol takes bytes only where reading begins
        transport.set_protocol(protocol)
        transport.resume_reading()
        protocol.connection_made(transport)
        received = memoryview(self._received)
        while received:
            buffer = memoryview(protocol.get_buffer(len(received)))
            taken = min(len(buffer), len(received))
            buffer[:taken] = received[:taken]
            protocol.buffer_updated(taken)
            received = received[taken:]

    def _answer(self, code: int, body: str) -> None:
        assert self._transport is not None, "it asked"
        data = body.encode()
        head = (
            f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(data)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + data)
        self.close()
