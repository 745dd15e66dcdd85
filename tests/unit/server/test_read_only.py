"""Read-only mode: what a server without a quorum does for clients that ask for it (ZooKeeper's readonlymode)."""

from __future__ import annotations

import pytest

from tests.unit.server.one_server import Client, OneServer, create
from zraft.server.clients.settings import ClientSettings
from zraft_core.errors import Code
from zraft_core.wire.client import Pong, Reply, WatchEvent
from zraft_core.wire.client_requests import (
    Exists,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    Reconfig,
    Sync,
    WhoAmI,
)
from zraft_core.znodes.acl import OPEN_ACL
from zraft_core.znodes.txn import CLOSE_SESSION, MULTI, SET_DATA


@pytest.fixture
def server() -> OneServer:
    """A server that has applied something and lost its quorum."""
    server = OneServer(clients=ClientSettings(read_only_mode_enabled=True))
    client = server.attached()
    client.send(client.codec.write(create("/a", b"x")))
    server.run()
    client.connection.connection_lost()
    server.clients.availability.serving = False
    return server


def reading(server: OneServer) -> Client:
    client = server.connect(read_only=True)
    server.flush()
    assert client.greeting is not None, "the client was not greeted"
    return client


def test_client_that_asks_for_it_reads_and_is_told_that_it_may_only_read(server: OneServer) -> None:
    client = reading(server)
    assert client.greeting is not None
    assert client.greeting.read_only is True
    assert client.greeting.session not in (0, *server.machine.sessions)
    client.send(*[client.codec.ask(r) for r in (GetData("/a"), GetChildren("/"), Exists("/none"), WhoAmI())])
    client.send(client.codec.ask(GetAllChildrenNumber("/")), client.codec.ping())
    server.flush()
    *replies, pong = client.take()
    assert [r.code for r in replies] == [Code.OK, Code.OK, Code.NO_NODE, Code.OK, Code.OK]  # type: ignore[union-attr]
    assert replies[-1].value == 4  # type: ignore[union-attr]
    assert isinstance(pong, Pong)


def test_everything_that_needs_a_quorum_is_refused(server: OneServer) -> None:
    client = reading(server)
    for command in (create("/b"), (SET_DATA, "/a", b"", -1), (MULTI, ())):
        client.send(client.codec.write(command))
    client.send(client.codec.ask(Sync("/")), client.codec.ask(Reconfig()), client.codec.ask(GetData("/a")))
    server.flush()
    assert [r.code for r in client.replies()] == [Code.NOT_READ_ONLY] * 5 + [Code.OK]
    assert not server.log


@pytest.mark.parametrize("flag", [False, None])
def test_other_clients_are_sent_elsewhere(server: OneServer, flag: bool | None) -> None:
    client = server.connect(read_only=flag)
    server.flush()
    assert client.closed
    assert client.greeting is None


def test_global_session_cannot_be_resumed_without_a_quorum(server: OneServer) -> None:
    session = next(iter(server.machine.sessions.values()))
    client = server.connect(session=session.id, password=session.password, read_only=True)
    server.flush()
    assert client.closed
    assert client.greeting is None


def test_client_that_is_ahead_is_sent_elsewhere(server: OneServer) -> None:
    """Trap 16 holds here, too."""
    client = server.connect(last_zxid_seen=server.machine.last_zxid + 1, read_only=True)
    server.flush()
    assert client.closed


def test_server_that_has_applied_nothing_since_its_start_has_nothing_to_show() -> None:
    """What its log holds may never have been committed."""
    server = OneServer(clients=ClientSettings(read_only_mode_enabled=True))
    server.clients.availability.serving = False
    client = server.connect(read_only=True)
    server.flush()
    assert client.closed


def test_mode_is_off_unless_it_is_switched_on(server: OneServer) -> None:
    plain = OneServer()
    plain.attached()
    plain.clients.availability.serving = False
    client = plain.connect(read_only=True)
    plain.flush()
    assert client.closed


def test_client_that_may_only_read_gets_a_session_when_there_is_a_quorum_again(server: OneServer) -> None:
    client = reading(server)
    server.clients.availability.serving = True
    server.clients.end_read_only()
    server.flush()
    assert client.closed
    again = server.attached(read_only=True)
    assert again.greeting is not None
    assert again.greeting.read_only is False
    assert again.session in server.machine.sessions


def test_close_of_a_read_only_session_is_answered_and_closes(server: OneServer) -> None:
    client = reading(server)
    client.send(client.codec.write((CLOSE_SESSION,)), client.codec.ask(GetData("/a")))
    server.flush()
    assert [r.code for r in client.replies()] == [Code.OK]
    assert client.closed


def test_pipelined_reads_without_a_quorum_stay_bounded() -> None:
    server = OneServer(clients=ClientSettings(read_only_mode_enabled=True))
    writer = server.attached()
    writer.send(writer.codec.write(create("/big", bytes(900_000))))
    server.run()
    server.clients.availability.serving = False
    client = reading(server)
    client.send(*[client.codec.ask(GetData("/big")) for _ in range(20)])
    held = client.connection.out_bytes
    assert held < 2 * 1024 * 1024
    while client.connection.dirty:
        server.flush()
        server.clients.begin_turn()
    server.flush()
    assert len(client.replies()) == 20


def test_reader_is_told_of_what_is_applied_meanwhile_before_it_can_read_it(server: OneServer) -> None:
    """A leader that this server hears, but that does not hear it, goes on: events come first here, too (D-15)."""
    client = reading(server)
    client.send(client.codec.ask(GetData("/a", watch=True)))
    server.flush()
    client.take()
    server.clients.publish([(3, "/a", OPEN_ACL), (3, "/a", OPEN_ACL)], 77)
    client.send(client.codec.ask(GetData("/a")))
    server.flush()
    event, reply = client.take()
    assert isinstance(event, WatchEvent)
    assert (event.zxid, event.path) == (77, "/a")
    assert isinstance(reply, Reply)
