"""The ZooKeeper side of comparisons: the connection against a server made of bytes, and one run beside the real one."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from zraft_bench.main import main
from zraft_bench.result_files import load_run
from zraft_bench.targets.target import TARGETS, RequestFailedError, in_turn, maker
from zraft_bench.targets.zookeeper import ZooKeeperTarget

CREATE, GET_DATA, SET_DATA, SYNC, CLOSE = 1, 4, 5, 9, -11
NODE_EXISTS, NO_NODE = -110, -101
STAT = bytes(68)


class Server:
    """Answers like ZooKeeper, from its protocol's description; shares no code with the client under test."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.values: dict[str, bytes] = {}
        self.silent = False
        self.hangs_up = False
        self.connections = 0
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
            self._send(writer, struct.pack(">iiqi16s?", 0, 30_000, 7, 16, bytes(16), False))
            while True:
                body = await self._frame(reader)
                xid, opcode = struct.unpack_from(">ii", body)
                self.asked.append(opcode)
                if self.hangs_up:
                    return
                if not self.silent:
                    code, answer = self._answer(opcode, body[8:])
                    self._send(writer, struct.pack(">iqi", xid, 1, code) + answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    def _answer(self, opcode: int, body: bytes) -> tuple[int, bytes]:
        if opcode == CLOSE:
            return 0, b""
        path, rest = self._text(body)
        if opcode == CREATE:
            if path in self.values:
                return NODE_EXISTS, b""
            self.values[path] = self._text(rest)[0].encode("latin-1")
            return 0, struct.pack(">i", len(path)) + path.encode()
        if opcode == SYNC:
            return 0, struct.pack(">i", len(path)) + path.encode()
        if path not in self.values:
            return NO_NODE, b""
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


async def test_keys_are_made_written_and_read() -> None:
    server = Server()
    async with server as hosts:
        target = ZooKeeperTarget(hosts, "place", True, 5.0)
        await target.open()
        await target.prepare([3, 4], b"old")
        await target.prepare([4], b"other")  # already there: fine
        await target.write(3, b"new")
        await target.read(3)
        assert server.values == {"/place": b"", "/place/3": b"new", "/place/4": b"old"}
        assert server.asked[-2:] == [SYNC, GET_DATA]
        with pytest.raises(RequestFailedError, match="NO_NODE"):
            await target.write(5, b"")
        await target.close()
        assert server.asked[-1] == CLOSE


async def test_local_reads_ask_once() -> None:
    server = Server()
    async with server as hosts:
        target = ZooKeeperTarget(hosts, "p", False, 5.0)
        await target.open()
        await target.prepare([1], b"x")
        await target.read(1)
        assert SYNC not in server.asked
        await target.close()


async def test_a_write_without_an_answer_is_unknown_and_a_lost_connection_is_made_again() -> None:
    server = Server()
    async with server as hosts:
        target = ZooKeeperTarget(hosts, "p", False, 0.2)
        await target.open()
        await target.prepare([1], b"x")
        server.silent = True
        with pytest.raises(RequestFailedError, match="no answer within") as late:
            await target.write(1, b"y")
        assert late.value.unknown
        server.silent, server.hangs_up = False, True
        with pytest.raises(RequestFailedError, match="lost") as lost:
            await target.write(1, b"y")
        assert lost.value.unknown
        server.hangs_up = False
        await target.write(1, b"z")
        assert server.values["/p/1"] == b"z"
        assert server.connections == 2
        await target.close()


async def test_a_cluster_that_is_not_there_is_told_with_every_address() -> None:
    server = Server()
    async with server as hosts:
        pass
    with pytest.raises(RequestFailedError, match=f"cannot connect: {hosts}"):
        await ZooKeeperTarget(hosts, "p", False, 1.0).open()


def test_connections_begin_at_different_servers() -> None:
    assert [in_turn("a:1,b:2,c:3", n) for n in range(4)] == [
        "a:1,b:2,c:3",
        "b:2,c:3,a:1",
        "c:3,a:1,b:2",
        "a:1,b:2,c:3",
    ]


@pytest.mark.parametrize("name", list(TARGETS))
async def test_every_target_can_be_made_without_what_it_measures(name: str) -> None:
    maker(name)("127.0.0.1:1", "place", True, 1.0)


@pytest.mark.compat
@pytest.mark.timeout(300)
def test_zraft_and_zookeeper_take_the_same_load_in_one_run(tmp_path: Path) -> None:
    arguments = [
        "compare",
        "-s",
        "3",
        "-c",
        "4",
        "-e",
        "40",
        "--seconds",
        "0",
        "--warm-up",
        "0",
        "--warm-zookeeper",
        "0",
    ]
    for system in ("zraft", "zraft-zookeeper", "zookeeper"):
        arguments += ["--system", system]
    answer = CliRunner().invoke(main, [*arguments, "--operation", "mixed", "--out", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    (path,) = tmp_path.glob("*.json")
    found = load_run(path).tests
    assert [(one.target, one.state, one.acknowledged) for one in found] == [
        ("zraft", "ok", 40),
        ("zraft-zookeeper", "ok", 40),
        ("zookeeper", "ok", 40),
    ]
    assert all(one.servers_us is not None for one in found)
