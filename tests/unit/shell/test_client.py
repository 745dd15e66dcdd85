"""The client keeps its session over connections, and says so when it cannot."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.unit.shell.fake_server import NODE, PASSWORD, SESSION, Asked, FakeServer, sensible
from zraft.shell.client import Client, ClientNotice, State, StateNotice, four_letter
from zraft.shell.errors import NotConnectedError
from zraft.shell.target import Target
from zraft.shell.watches import Notice, WatchNotice
from zraft_core.address import Address
from zraft_core.errors import Code
from zraft_core.wire import replies
from zraft_core.wire.client_requests import (
    AddWatch,
    Auth,
    Create,
    Exists,
    GetChildren,
    GetData,
    RemoveWatches,
    RestoreWatches,
)
from zraft_core.wire.events import EventType, encode_watch_event
from zraft_core.wire.opcodes import XID_AUTH, Opcode
from zraft_core.znodes.events import AddWatchMode, WatcherType


class Started:
    """A client and the notices it gave; `waits_s` for a connection."""

    def __init__(
        self,
        *servers: FakeServer | Address,
        chroot: str = "",
        wait_s: float = 20.0,
        patient: bool = False,
    ) -> None:
        addresses = tuple(one if isinstance(one, Address) else one.address for one in servers)
        self.notices: list[ClientNotice] = []
        self._changed = asyncio.Event()
        self.client = Client(
            Target(addresses, chroot),
            session_timeout_ms=30_000,
            wait_s=wait_s,
            notify=self._noticed,
            patient=patient,
        )

    def _noticed(self, notice: ClientNotice) -> None:
        self.notices.append(notice)
        self._changed.set()

    async def wait_for_notices(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.notices) < count:
                self._changed.clear()
                await self._changed.wait()

    async def __aenter__(self) -> Started:
        self.client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    @property
    def watch_notices(self) -> list[WatchNotice]:
        return [notice for notice in self.notices if isinstance(notice, WatchNotice)]


async def test_answers_come_in_the_order_of_the_questions() -> None:
    async with FakeServer() as server, Started(server) as started:
        data, children, exists = await started.client.ask([GetData("/a"), GetChildren("/a"), Exists("/a")])
        assert data.value[0] == NODE.data
        assert children.value == ("x", "y z")
        assert exists.value.czxid == NODE.czxid
        assert started.client.state == State.CONNECTED
        assert started.client.session == SESSION + 1


async def test_a_session_goes_on_at_the_next_server_with_its_watches_and_identities() -> None:
    async with FakeServer() as first, FakeServer() as second, Started(first, second) as started:
        client = started.client
        await client.ask([Auth("digest", b"bob:secret"), Exists("/a", watch=True)])
        await client.ask([AddWatch("/r", AddWatchMode.PERSISTENT_RECURSIVE)])
        await first.refuse_connections()
        await second.wait_for(lambda: len(second.asked) >= 2)
        [resumed] = second.connects
        assert (resumed.session, resumed.password, resumed.last_zxid_seen) == (SESSION + 1, PASSWORD, 9)
        assert [(one.opcode, one.body) for one in second.asked[:2]] == [
            (Opcode.AUTH, Auth("digest", b"bob:secret").body()),
            (Opcode.SET_WATCHES2, RestoreWatches(9, data=("/a",), recursive=("/r",)).body()),
        ]
        await client.ask([GetData("/a")])
        states = [notice.state for notice in started.notices if isinstance(notice, StateNotice)]
        assert states == [State.CONNECTED, State.CONNECTING, State.CONNECTED]


async def test_a_session_that_expired_is_said_to_be_gone_and_a_new_one_has_no_watches() -> None:
    async with FakeServer() as server, Started(server) as started:
        await started.client.ask([Exists("/a", watch=True)])
        server.expired = True
        server.drop()
        await started.wait_for_notices(4)
        texts = [notice.text for notice in started.notices if isinstance(notice, StateNotice)]
        assert texts[2].startswith("session 0x101 expired: its ephemeral znodes and watches are gone")
        assert [connect.session for connect in server.connects] == [0, SESSION + 1, 0]
        await started.client.ask([GetData("/a")])
        assert [one.opcode for one in server.asked] == [Opcode.EXISTS, Opcode.GET_DATA]


async def test_what_was_asked_when_the_connection_broke_fails_and_names_what() -> None:
    def closes_at_set(asked: Asked, _: int) -> bytes | None:
        return None if asked.opcode == Opcode.CREATE else sensible(asked, 1)

    async with FakeServer(closes_at_set) as server, Started(server) as started:
        with pytest.raises(
            NotConnectedError, match=r"ConnectionLoss for /a \(.*it may have been done or not\)"
        ):
            await started.client.ask([Create("/a"), Exists("/b")])
        (reply,) = await started.client.ask([Exists("/b")])
        assert reply.code == Code.OK


async def test_without_any_server_a_question_fails_in_time_and_says_what_every_server_said() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = Address(*bound.getsockname())
        async with Started(address, wait_s=0.1, patient=True) as started:
            with pytest.raises(NotConnectedError) as raised:
                await started.client.ask([Exists("/a")])
    assert str(raised.value).startswith(f"Not connected: waited 0.1 s for {address} ({address}: ")
    assert "--connect names the servers, --timeout how long to wait" in str(raised.value)


async def test_an_idle_session_is_kept_alive_by_pings() -> None:
    async with FakeServer(timeout_ms=150) as server, Started(server) as started:
        await server.wait_for(lambda: server.pings >= 4)
        assert started.client.state == State.CONNECTED
        assert len(server.connects) == 1


async def test_a_server_that_falls_silent_is_left() -> None:
    async with FakeServer(timeout_ms=150, pongs=False) as server, Started(server) as started:
        await server.wait_for(lambda: len(server.connects) >= 2)
        assert server.connects[1].session == SESSION + 1
        assert isinstance(started.notices[1], StateNotice)


async def test_auth_may_be_answered_ahead_of_what_was_asked_before_it() -> None:
    waiting: list[Asked] = []

    def auth_first(asked: Asked, _: int) -> bytes | None:
        if asked.opcode == Opcode.EXISTS:
            waiting.append(asked)
            return b""
        answer = replies.encode_error_reply(XID_AUTH, 0, Code.OK)
        return answer + b"".join(sensible(one, 1) or b"" for one in waiting)

    async with FakeServer(auth_first) as server, Started(server) as started:
        first, auth = await started.client.ask([Exists("/a"), Auth("digest", b"x:y")])
        assert first.value.czxid == NODE.czxid
        assert (auth.xid, auth.code) == (XID_AUTH, Code.OK)


async def test_an_identity_that_was_refused_is_not_tried_again() -> None:
    def refuses_auth(asked: Asked, number: int) -> bytes | None:
        if asked.opcode == Opcode.AUTH:
            assert number == 1
            return replies.encode_error_reply(asked.xid, 0, Code.AUTH_FAILED)
        return sensible(asked, number)

    async with FakeServer(refuses_auth) as server, Started(server) as started:
        (reply,) = await started.client.ask([Auth("foo", b"")])
        assert reply.code == Code.AUTH_FAILED
        server.drop()
        await started.wait_for_notices(3)
        await started.client.ask([Exists("/a")])
        assert [one.opcode for one in server.asked] == [Opcode.AUTH, Opcode.EXISTS]


async def test_events_are_told_before_the_answer_that_follows_them() -> None:
    def event_first(asked: Asked, number: int) -> bytes | None:
        event = encode_watch_event(8, EventType.NODE_DATA_CHANGED, "/app/a")
        return (event if asked.opcode == Opcode.GET_CHILDREN else b"") + (sensible(asked, number) or b"")

    async with FakeServer(event_first) as server, Started(server, chroot="/app") as started:
        await started.client.ask([GetData("/a", watch=True)])
        await started.client.ask([GetChildren("/")])
        assert started.watch_notices == [WatchNotice(Notice.NodeDataChanged, "/a", 8)]
        assert server.asked[1].body == GetChildren("/app").body()
        (made,) = await started.client.ask([Create("/made")])
        assert made.value == "/made"


async def test_watches_that_are_not_there_are_not_removed_at_the_server_either() -> None:
    """A server may take removewatches -d for a persistent watch on the same znode, too."""
    async with FakeServer() as server, Started(server) as started:
        await started.client.ask([AddWatch("/a", AddWatchMode.PERSISTENT)])
        (reply,) = await started.client.ask([RemoveWatches("/a", WatcherType.DATA)])
        assert reply.code == Code.NO_WATCHER
        assert [one.opcode for one in server.asked] == [Opcode.ADD_WATCH]
        (reply,) = await started.client.ask([RemoveWatches("/a", WatcherType.ANY)])
        assert reply.code == Code.OK
        assert started.watch_notices == [WatchNotice(Notice.PersistentWatchRemoved, "/a")]


async def test_a_question_given_up_leaves_the_others_their_answers() -> None:
    held: list[Asked] = []

    def late(asked: Asked, number: int) -> bytes | None:
        if asked.opcode == Opcode.GET_DATA:
            held.append(asked)
            return b""
        return b"".join(sensible(one, number) or b"" for one in held) + (sensible(asked, number) or b"")

    async with FakeServer(late) as server, Started(server) as started:
        given_up = asyncio.create_task(started.client.ask([GetData("/a", watch=True)]))
        await server.wait_for(lambda: len(server.asked) == 1)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        (reply,) = await started.client.ask([GetChildren("/a")])
        assert reply.value == ("x", "y z")


async def test_closing_ends_the_session_at_the_server() -> None:
    async with FakeServer() as server:
        async with Started(server) as started:
            await started.client.wait_connected()
        assert [one.opcode for one in server.asked] == [Opcode.CLOSE_SESSION]
        assert started.client.state == State.CLOSED
        assert len(server.connects) == 1


async def test_bytes_that_are_no_zookeeper_are_a_reason_and_no_crash() -> None:
    async def talk_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk_http, "127.0.0.1", 0)
    address = Address(*server.sockets[0].getsockname()[:2])
    async with Started(address, wait_s=0.2) as started:
        with pytest.raises(NotConnectedError, match=r"frame of 1213486160 bytes"):
            await started.client.wait_connected()
    server.close()
    await server.wait_closed()


async def test_a_four_letter_word_is_asked_on_a_connection_of_its_own() -> None:
    async with FakeServer() as server:
        assert await four_letter(server.address, "srvr", 20.0) == "srvr answered\n"
    with pytest.raises(NotConnectedError, match="no answer to ruok"):
        await four_letter(server.address, "ruok", 20.0)


class Dialing:
    """Counts the connections that are tried, of which those to a closed port fail; the pause between rounds is short."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.tried = 0
        self._more = asyncio.Event()
        dial = asyncio.open_connection

        async def counting(*where: Any, **how: Any) -> Any:
            self.tried += 1
            self._more.set()
            return await dial(*where, **how)

        patch.setattr(asyncio, "open_connection", counting)
        patch.setattr("zraft.shell.client.RETRY_S", 0.001)

    async def times(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.tried < count:
                self._more.clear()
                await self._more.wait()


def _closed() -> tuple[socket.socket, Address]:
    """An address that refuses as long as the socket is kept, which is bound and does not listen."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock, Address(*sock.getsockname())


async def test_a_refused_connection_is_said_after_one_round_and_again_for_each_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = [_closed(), _closed()]
    with closed[0][0], closed[1][0]:
        dialing = Dialing(monkeypatch)
        monkeypatch.setattr("zraft.shell.client.RETRY_S", 3600)
        async with Started(*(address for _, address in closed), wait_s=3600) as started:
            for _ in range(2):
                with pytest.raises(NotConnectedError) as raised:
                    await started.client.ask([Exists("/a")])
                assert str(raised.value).startswith(
                    f"Not connected: {closed[0][1]}, {closed[1][1]}: Connection refused; --connect names the servers"
                )
            assert dialing.tried == 2


@pytest.mark.parametrize("why", ["asked to", "another server may serve", "was connected"])
async def test_a_refused_connection_is_waited_out(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """By who asked for it, next to a server that is there and does not serve yet, and by a session that goes on."""
    monkeypatch.setattr("zraft.shell.client.CONNECT_TIMEOUT_S", 0.01)
    closed, address = _closed()
    with closed, socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        silent = Address(*listening.getsockname())
        async with FakeServer() as server:
            where: list[FakeServer | Address] = [address]
            if why == "was connected":
                where = [server]
            elif why != "asked to":
                where.append(silent)
            async with Started(*where, wait_s=3600, patient=why == "asked to") as started:
                if why == "was connected":
                    await started.client.ask([Exists("/a")])
                    await server.refuse_connections()
                    await started.wait_for_notices(2)
                dialing = Dialing(monkeypatch)
                asking = asyncio.create_task(started.client.ask([Exists("/a")]))
                await dialing.times(6)
                assert not asking.done()
                asking.cancel()


async def test_a_server_that_comes_later_is_found_although_its_absence_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed, address = _closed()
    with closed:
        Dialing(monkeypatch)
        async with FakeServer() as server, Started(address) as started:
            with pytest.raises(NotConnectedError):
                await started.client.wait_connected()
            started.client.target = Target((server.address,))  # as if it listened there now
            await started.wait_for_notices(1)
            await started.client.ask([Exists("/a")])
