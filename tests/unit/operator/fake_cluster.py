"""Servers of a test that operators can ask: the real channel on loopback, with answers that the test decides."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from zraft.operator.requests import OperatorReply, OperatorRequest, Refused
from zraft.server.process.bulk import BulkSettings, BulkStreams
from zraft.server.process.operators import OperatorStreams, Reply
from zraft.transport.bulk import MAGIC
from zraft.transport.keys import ClusterKey, key_ring
from zraft.transport.messages import Sender
from zraft.transport.stream import RECEIVE_BYTES
from zraft_core.ids import Instance, ServerId

KEY = ClusterKey(bytes(range(32)))
OTHER_KEY = ClusterKey(bytes(range(1, 33)))

Answer = Callable[[OperatorRequest], OperatorReply | None]


class FakeServer:
    """One server in a thread of its own. `answer` is called there; None ends the connection instead of answering."""

    def __init__(
        self,
        answer: Answer,
        *,
        server: int = 1,
        keys: Sequence[ClusterKey] = (KEY,),
        late: bool = False,
        said: bytes = b"Zookeeper version: 3.9.4-zraft-0.1, built on today\n",
        settings: BulkSettings | None = None,
    ) -> None:
        self.asked: list[OperatorRequest] = []
        self.port = 0
        self.error: BaseException | None = None
        self._answer = answer
        self._server = ServerId(server)
        self._keys = keys
        self._late = late
        self._said = said
        self._settings = settings
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._streams: BulkStreams | None = None
        self._thread = threading.Thread(target=self._run)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.error = error
            self._ready.set()
            raise

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._streams = BulkStreams(
            me=Sender(self._server, Instance(bytes([self._server]) * 16), 1),
            ring=key_ring(self._keys, False) if self._keys else key_ring(None, True),
            peers=(),
            address_of=lambda _: None,
            on_messages=lambda _, __: None,
            on_ended=lambda _: None,
            operators=OperatorStreams(self._handle),
            entropy=os.urandom,
            settings=self._settings,
        )
        listener = await self._loop.create_server(lambda: _Port(self), "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        self._streams.close()
        listener.close()
        await asyncio.sleep(0.01)

    def _handle(self, request: OperatorRequest, reply: Reply) -> OperatorReply | None:
        assert self._loop is not None
        self.asked.append(request)
        answer = self._answer(request)
        if answer is None:
            assert self._streams is not None
            self._streams.close()
            return None
        if self._late:
            self._loop.call_later(0.02, reply, answer)
            self._loop.call_later(0.03, reply, Refused("a second answer, which must not be sent"))
            return None
        return answer

    def first_bytes(self, transport: Any, data: bytes) -> None:
        """Like the port of clients: a stream, a four-letter word, or nothing it knows."""
        assert self._streams is not None
        if data.startswith(MAGIC):
            self._streams.accept(transport, data)
        else:
            if data == b"srvr":
                transport.write(self._said)
            transport.close()


class _Port(asyncio.BufferedProtocol):
    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.buffer = bytearray(RECEIVE_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.server.first_bytes(self.transport, bytes(self.buffer[:nbytes]))
