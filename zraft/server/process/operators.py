"""The server's end of operators' commands: requests come off a stream, answers go back, now or later.

What a request does is decided by who is handed it; here is only that each gets one answer, that an operator cannot
have too many under way, and that the log tells who asked for what. Whoever comes here has proved the cluster key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from zraft import __version__
from zraft.operator.protocol import UnknownOperationError, decode_request, encode_reply
from zraft.operator.requests import READ_ONLY, OperatorReply, OperatorRequest, Refused
from zraft.transport.sealing import RejectedError
from zraft.transport.stream import Stream
from zraft_core.errors import ProtocolError

OUTSTANDING_MAX: Final = 8
"""Requests of one operator that wait for their answer; a tool asks one after the other."""

Reply = Callable[[OperatorReply], None]
Handle = Callable[[OperatorRequest, Reply], OperatorReply | None]
"""Answers a request, or returns None and calls `Reply` later, once, from the loop's thread."""

log = structlog.get_logger()


class OperatorStreams:
    """The operators that are connected to this server; `BulkStreams` bounds how many."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._outstanding: dict[Stream, set[int]] = {}

    def __len__(self) -> int:
        return len(self._outstanding)

    def on_established(self, stream: Stream) -> None:
        """Note that an operator connected."""
        self._outstanding[stream] = set()
        log.info("operator connected", address=stream.address)

    def on_message(self, stream: Stream, message: bytes) -> None:
        """Decode a request and carry it out; its answer may come later."""
        outstanding = self._outstanding[stream]
        try:
            numbered = decode_request(message)
        except UnknownOperationError as error:
            self._send(stream, error.number, Refused(f"{error} (server: zraft {__version__})"))
            return
        except ProtocolError as error:
            log.warning("operator disconnected, it sent no request", address=stream.address, error=str(error))
            stream.abort()
            return
        number, request = numbered.number, numbered.value
        if number in outstanding or len(outstanding) >= OUTSTANDING_MAX:
            self._send(
                stream,
                number,
                Refused(f"expected at most {OUTSTANDING_MAX} requests at once", retriable=True),
            )
            return
        if not isinstance(request, READ_ONLY):
            log.info("operator request", request=str(request), address=stream.address)
        outstanding.add(number)

        def reply(value: OperatorReply) -> None:
            if number not in outstanding:
                return  # answered already, or its stream is gone
            outstanding.discard(number)
            if isinstance(value, Refused) and not isinstance(request, READ_ONLY):
                log.info("operator request refused", reason=value.text, address=stream.address)
            self._send(stream, number, value)

        answer = self._handle(request, reply)
        if answer is not None:
            reply(answer)

    def on_rejected(self, stream: Stream, error: RejectedError) -> None:
        """Do nothing: `BulkStreams` counts these; it owns the stream until it is established."""

    def on_lost(self, stream: Stream) -> None:
        """Forget an operator's stream and the answers that it waits for."""
        self._outstanding.pop(stream, set()).clear()

    def _send(self, stream: Stream, number: int, reply: OperatorReply) -> None:
        if not stream.closed:
            stream.send(encode_reply(number, reply))
