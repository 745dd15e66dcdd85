"""Answers probes before the admin HTTP server is loaded, and keeps whoever asks for more until it is.

Loading it takes a third of a second of CPU, and longer on a busy machine, in which a server that serves would not be
known to be ready. So `/readyz` and `/livez` in their plain form, as orchestrators ask, are answered without it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from zraft.admin.status import AdminReports, readiness

EARLY_CONNECTIONS_MAX: Final = 64
"""Further ones are closed at once."""

EARLY_BYTES_MAX: Final = 8_192
"""Of one connection that waits; a longer request is none of a probe or a browser."""

_PROBE: Final = re.compile(rb"GET /(readyz|livez) HTTP/1\.[01]\r\n(?:[^\r\n]+\r\n)*\r\n")


class EarlyConnections:
    """Those of one listener, from its start until `hand_over`."""

    def __init__(self, reports: AdminReports) -> None:
        self.reports = reports
        self.waiting: dict[EarlyConnection, None] = {}
        self.successor: Callable[[], asyncio.BaseProtocol] | None = None
        """Makes what answers from now on; None until `hand_over`."""

    def connection(self) -> asyncio.BaseProtocol:
        """For one that was accepted."""
        return EarlyConnection(self)

    def hand_over(self, successor: Callable[[], asyncio.BaseProtocol]) -> None:
        """All that wait go to what `successor` makes for each, and so does one that was accepted and is not here yet."""
        self.successor = successor
        for one in list(self.waiting):
            one.hand_over(successor())

    def close(self) -> None:
        """End those that wait."""
        for one in list(self.waiting):
            one.close()


class EarlyConnection(asyncio.Protocol):
    """Bytes in until it is known what is asked."""

    def __init__(self, early: EarlyConnections) -> None:
        self._early = early
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclasses
        if self._early.successor is not None:
            # The loop tells us of it one iteration after it accepted it.
            self.hand_over(self._early.successor())
        elif len(self._early.waiting) >= EARLY_CONNECTIONS_MAX:
            self.close()
        else:
            self._early.waiting[self] = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        probe = _PROBE.fullmatch(self._received)
        if probe is not None and b"application/json" not in self._received:
            self._answer(
                *((200, "ok\n") if probe[1] == b"livez" else readiness(self._early.reports.status()))
            )
        elif len(self._received) > EARLY_BYTES_MAX:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._early.waiting.pop(self, None)

    def close(self) -> None:
        self._early.waiting.pop(self, None)
        if self._transport is not None:
            self._transport.close()

    def hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        """What came so far, and all that follows, is `protocol`'s."""
        transport = self._transport
        assert transport is not None, "it waits, so it is connected"
        self._early.waiting.pop(self, None)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(self._received)

    def _answer(self, code: int, body: str) -> None:
        assert self._transport is not None, "it asked"
        data = body.encode()
        head = (
            f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(data)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + data)
        self.close()
