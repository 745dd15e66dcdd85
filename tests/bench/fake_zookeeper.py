"""A server made of bytes, from the description of ZooKeeper's protocol; it shares no code with the clients under test."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

CREATE, DELETE, GET_DATA, SET_DATA, SYNC, CLOSE = 1, 2, 4, 5, 9, -11
NODE_EXISTS, NO_NODE = -110, -101
STAT = bytes(68)


class Server:
    """Answers like ZooKeeper."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.values: dict[str, bytes] = {}
        self.silent = False
        self.hangs_up = False
        self.hangs_up_at = 0
        """The opcode of a request at which the server hangs up."""
        self.connections = 0
        self.together = 1
        """The requests of a session, after it has made its znodes, of which none is answered until all are here."""
        self.further = 0
        """Requests that came although so many were not answered."""
        self.confused = False
        """Answers have a wrong number."""
        self.refuses = False
        """Sessions are not granted."""
        self._made = 0
        self.serving: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await asyncio.gather(*self.serving)  # each ends when its client has hung up

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.serving.append(task)
        try:
            await self._frame(reader)
            granted = 0 if self.refuses else 30_000
            self._send(writer, struct.pack(">iiqi16s?", 0, granted, 7, 16, bytes(16), False))
            while True:
                bodies = [await self._frame(reader)]
                if struct.unpack_from(">i", bodies[0], 4)[0] in (GET_DATA, SET_DATA):
                    bodies += [await self._frame(reader) for _ in range(self.together - 1)]
                    if self.together > 1:
                        await asyncio.sleep(0.01)
                        self.further += len(reader._buffer)  # type: ignore[attr-defined]
                for body in bodies:
                    xid, opcode = struct.unpack_from(">ii", body)
                    self.asked.append(opcode)
                    if self.hangs_up or opcode == self.hangs_up_at:
                        return
                    if not self.silent:
                        code, answer = self._answer(opcode, body[8:])
                        self._send(writer, struct.pack(">iqi", xid + self.confused, 1, code) + answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    def _answer(self, opcode: int, body: bytes) -> tuple[int, bytes]:
        if opcode == CLOSE:
            return 0, b""
        path, rest = self._text(body)
        if opcode == CREATE:
            value, rest = self._text(rest)
            if rest[-1] & 2:
                path = f"{path}{self._made:010}"
                self._made += 1
            if path in self.values:
                return NODE_EXISTS, b""
            self.values[path] = value.encode("latin-1")
            return 0, struct.pack(">i", len(path)) + path.encode()
        if opcode == SYNC:
            return 0, struct.pack(">i", len(path)) + path.encode()
        if path not in self.values:
            return NO_NODE, b""
        if opcode == DELETE:
            del self.values[path]
            return 0, b""
        if opcode == SET_DATA:
            self.values[path] = self._text(rest)[0].encode("latin-1")
            return 0, STAT
        assert opcode == GET_DATA
        return 0, struct.pack(">i", len(self.values[path])) + self.values[path] + STAT

    def _text(self, body: bytes) -> tuple[str, bytes]:
        (size,) = struct.unpack_from(">i", body)
        return body[4 : 4 + size].decode("latin-1"), body[4 + size :]

    async def _frame(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)

    def _send(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(struct.pack(">i", len(body)) + body)
