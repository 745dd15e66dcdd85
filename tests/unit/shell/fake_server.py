"""A ZooKeeper server for one client at a time that does as a test tells it, on loopback, in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from attrs import frozen

from tests.unit.wire.samples import SampleZnode
from zraft_core.address import Address
from zraft_core.wire import replies
from zraft_core.wire.connect import (
    ConnectRequest,
    ConnectResponse,
    decode_connect_request,
    encode_connect_response,
    encode_session_refusal,
)
from zraft_core.wire.framing import FrameReader
from zraft_core.wire.opcodes import XID_PING, Opcode
from zraft_core.wire.requests import decode_header

SESSION: Final = 0x100
PASSWORD: Final = b"p" * 16
NODE: Final = SampleZnode()


@frozen
class Asked:
    """One request as it arrived."""

    xid: int
    opcode: Opcode
    body: bytes


Answer = Callable[[Asked, int], "bytes | None"]
"""From a request and the number of the connection to what is written; None closes the connection."""


def sensible(asked: Asked, _: int) -> bytes | None:
    """Every znode exists and is the same; every watch is set."""
    match asked.opcode:
        case Opcode.EXISTS:
            return replies.encode_exists_reply(asked.xid, 9, NODE)
        case Opcode.GET_DATA:
            return replies.encode_get_data_reply(asked.xid, 9, NODE)
        case Opcode.GET_CHILDREN:
            return replies.encode_children_reply(asked.xid, 9, ["x", "y z"])
        case Opcode.CREATE:
            return replies.encode_create_reply(asked.xid, 9, "/app/made")
        case _:
            return replies.encode_empty_reply(asked.xid, 0 if asked.opcode == Opcode.AUTH else 9)


class FakeServer:
    """Use as an async context manager. `connects` and `asked` hold what clients sent, pings aside."""

    def __init__(self, answer: Answer = sensible, *, timeout_ms: int = 30_000, pongs: bool = True) -> None:
        self.connects: list[ConnectRequest] = []
        self.asked: list[Asked] = []
        self.pings = 0
        self.expired = False
        """Whether the next session that is resumed is refused."""
        self._answer = answer
        self._timeout_ms = timeout_ms
        self._pongs = pongs
        self._writers: list[asyncio.StreamWriter] = []
        self._something = asyncio.Event()

    async def __aenter__(self) -> FakeServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.drop()
        await self._server.wait_closed()

    def drop(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def refuse_connections(self) -> None:
        self._server.close()
        self.drop()

    def push(self, raw: bytes) -> None:
        """Say something unasked on the newest connection."""
        self._writers[-1].write(raw)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._something.clear()
                await self._something.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        number = len(self._writers)
        frames = FrameReader(words=True)
        connected = False
        try:
            while chunk := await reader.read(65_536):
                for frame in frames.feed(chunk):
                    if connected:
                        if not self._request(frame, writer, number):
                            return
                    else:
                        connected = True
                        if not self._connect(frame, writer):
                            return
                    self._something.set()
                if frames.word is not None:
                    writer.write(f"{frames.word} answered\n".encode())
                    return
        except OSError:
            pass
        finally:
            writer.close()
            self._something.set()

    def _connect(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        request = decode_connect_request(frame)
        self.connects.append(request)
        if request.session and self.expired:
            self.expired = False
            writer.write(encode_session_refusal(request))
            return False
        session = request.session or SESSION + len(self.connects)
        writer.write(encode_connect_response(ConnectResponse(0, self._timeout_ms, session, PASSWORD, False)))
        return True

    def _request(self, frame: bytes, writer: asyncio.StreamWriter, number: int) -> bool:
        xid, opcode = decode_header(frame)
        if opcode == Opcode.PING:
            self.pings += 1
            if self._pongs:
                writer.write(replies.encode_empty_reply(XID_PING, 9))
            return True
        asked = Asked(xid, Opcode(opcode), frame[8:])
        self.asked.append(asked)
        raw = self._answer(asked, number)
        if raw is None:
            return False
        writer.write(raw)
        return True
