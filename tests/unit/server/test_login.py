"""SASL on a connection, and connections that serve nobody who has not said who he is."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from tests.unit.server.one_server import Client, OneServer, create
from tests.unit.server.test_sasl import response_to
from zraft.server.clients.authentication.proofs import IDS_MAX, AuthSettings, digest_id, logged_in_ids
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft_core.errors import Code
from zraft_core.wire.client_requests import Auth, Request, WhoAmI
from zraft_core.wire.jute import JuteReader, encode_buffer
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import CLOSE_SESSION

USERS = {"bob": "secret", "root": "toor"}
IP = ("ip", "127.0.0.1")


@frozen
class Sasl(Request[bytes]):
    """A token of the login; answered with the server's."""

    token: bytes

    @property
    def opcode(self) -> Opcode:
        return Opcode.SASL

    def body(self) -> bytes:
        return encode_buffer(self.token)

    def value(self, reader: JuteReader) -> bytes:
        return reader.read_buffer() or b""


def server(**auth: object) -> OneServer:
    settings = AuthSettings(**{"users": lambda: USERS} | auth)  # type: ignore[arg-type]
    return OneServer(clients=ClientSettings(auth=settings))


def ask(one: OneServer, client: Client, request: Request[Any]) -> Any:
    client.send(client.codec.ask(request))
    one.run()
    (reply,) = client.replies()
    return reply.value if reply.code is Code.OK else reply.code


def log_in(one: OneServer, client: Client, user: str = "bob", password: str = "secret") -> object:
    challenge = ask(one, client, Sasl(b""))
    assert isinstance(challenge, bytes)
    return ask(one, client, Sasl(response_to(challenge, user, password)))


def test_a_login_gives_the_id_that_acls_of_scheme_sasl_name() -> None:
    one = server()
    client = one.attached()
    proof = log_in(one, client)
    assert isinstance(proof, bytes)
    assert proof.startswith(b"rspauth=")
    assert client.connection.ids == (IP, ("sasl", "bob"))
    assert ("sasl", "bob") in ask(one, client, WhoAmI())
    assert not client.closed


def test_the_super_user_logs_in_as_one() -> None:
    one = server(super_user="root")
    client = one.attached()
    log_in(one, client, "root", "toor")
    assert client.connection.ids == (IP, ("sasl", "root"), ("super", ""))
    other = one.attached()
    log_in(one, other)
    assert ("super", "") not in other.connection.ids


def test_a_connection_may_log_in_again_with_a_new_challenge() -> None:
    one = server()
    client = one.attached()
    log_in(one, client)
    log_in(one, client, "root", "toor")
    assert client.connection.ids == (IP, ("sasl", "bob"), ("sasl", "root"))


def test_users_are_those_of_the_moment_of_the_login() -> None:
    users = {"bob": "old"}
    one = server(users=lambda: users)
    users = {"bob": "secret"}
    client = one.attached()
    assert isinstance(log_in(one, client), bytes)


def test_a_failed_login_is_answered_in_its_turn_and_ends_the_connection() -> None:
    """Trap 20: the reply has its place in the order, and nothing behind it is looked at."""
    one = server()
    client = one.attached()
    challenge = ask(one, client, Sasl(b""))
    assert isinstance(challenge, bytes)
    write, _ = created = client.codec.write(create("/before"))
    wrong, _ = last = client.codec.ask(Sasl(response_to(challenge, password="wrong")))
    client.send(created, last, client.codec.write(create("/after")))
    one.flush()
    assert client.replies() == [], "the write in front is not applied yet"
    one.run()
    assert [(reply.xid, reply.code) for reply in client.replies()] == [
        (write, Code.OK),
        (wrong, Code.AUTH_FAILED),
    ]
    assert client.closed
    assert "/after" not in one.machine.nodes
    assert "wrong user or password" in one.clients.notices[0][1]


def test_writes_before_the_login_go_with_the_ids_of_before() -> None:
    one = server()
    client = one.attached()
    challenge = ask(one, client, Sasl(b""))
    assert isinstance(challenge, bytes)
    mine = (31, "auth", "")

    def guarded(path: str) -> tuple[int, bytes]:
        command = list(create(path))
        command[3] = (mine,)
        return client.codec.write(tuple(command))

    client.send(guarded("/early"), client.codec.ask(Sasl(response_to(challenge))), guarded("/late"))
    one.run()
    assert [reply.code for reply in client.replies()] == [Code.INVALID_ACL, Code.OK, Code.OK]


def test_without_users_sasl_fails_and_says_what_to_configure() -> None:
    one = server(users=None)
    client = one.attached()
    assert ask(one, client, Sasl(b"")) is Code.AUTH_FAILED
    assert client.closed
    assert "auth.sasl_users_file" in one.clients.notices[0][1]


def test_ids_do_not_grow_without_end() -> None:
    many = tuple(("digest", str(n)) for n in range(IDS_MAX))
    assert logged_in_ids("bob", many, AuthSettings()) is None


# -- auth.required_schemes


@pytest.mark.parametrize("request_", [create("/x"), None], ids=["write", "read"])
def test_nothing_is_served_before_authentication_where_it_is_required(request_: object) -> None:
    one = server(required_schemes=frozenset({"sasl"}))
    client = one.attached()
    client.send(
        client.codec.write(create("/x")) if request_ else client.codec.read(Opcode.GET_DATA, "/"),
        client.codec.write(create("/y")),
    )
    one.run()
    assert [reply.code for reply in client.replies()] == [Code.SESSION_CLOSED_REQUIRE_SASL_AUTH]
    assert client.closed
    assert "/x" not in one.machine.nodes
    assert "/y" not in one.machine.nodes
    assert "auth.required_schemes" in one.clients.notices[0][1]


def test_pings_and_closing_are_answered_to_anybody() -> None:
    one = server(required_schemes=frozenset({"sasl"}))
    client = one.attached()
    client.send(client.codec.ping(), client.codec.write((CLOSE_SESSION,)))
    one.run()
    _pong, reply = client.take()
    assert reply.code is Code.OK  # type: ignore[union-attr]
    assert client.closed


def test_after_authentication_everything_is_served_also_in_the_same_read() -> None:
    one = server(required_schemes=frozenset({"sasl", "digest"}))
    client = one.attached()
    assert isinstance(log_in(one, client), bytes)
    client.send(client.codec.write(create("/x")), client.codec.read(Opcode.GET_DATA, "/x"))
    one.run()
    assert [reply.code for reply in client.replies()] == [Code.OK, Code.OK]
    other = one.connect(then=[])
    other.send(other.codec.ask(Auth("digest", b"eve:pw")), other.codec.write(create("/y")))
    one.run()
    assert [reply.code for reply in other.replies()] == [Code.OK, Code.OK]


def test_another_scheme_than_the_required_does_not_do() -> None:
    one = server(required_schemes=frozenset({"sasl"}))
    client = one.attached()
    assert ask(one, client, Auth("digest", b"eve:pw")) is None
    client.send(client.codec.read(Opcode.GET_DATA, "/"))
    one.run()
    assert [reply.code for reply in client.replies()] == [Code.SESSION_CLOSED_REQUIRE_SASL_AUTH]


def test_a_certificate_and_the_super_user_are_let_in() -> None:
    one = server(required_schemes=frozenset({"x509"}), super_digest=digest_id(b"super:pw"))
    connection = one.clients.connect("127.0.0.1:1", (IP,))
    assert connection is not None
    connection.identify((("x509", "CN=client"),))
    client = Client(one, connection)
    client.send(client.codec.connect(timeout_ms=6_000))
    one.run()
    client.send(client.codec.read(Opcode.GET_DATA, "/"))
    one.run()
    assert [reply.code for reply in client.replies()] == [Code.OK]
    superior = one.attached()
    assert ask(one, superior, Auth("digest", b"super:pw")) is None
    superior.send(superior.codec.read(Opcode.GET_DATA, "/"))
    one.run()
    assert [reply.code for reply in superior.replies()] == [Code.OK]


def test_without_a_quorum_authentication_is_required_no_less() -> None:
    auth = AuthSettings(users=lambda: USERS, required_schemes=frozenset({"sasl"}))
    one = OneServer(clients=ClientSettings(auth=auth, read_only_mode_enabled=True))
    one.attached().connection.connection_lost()  # it has something to show
    one.clients.availability.serving = False
    stranger, bob = one.connect(read_only=True), one.connect(read_only=True)
    one.flush()
    stranger.send(stranger.codec.read(Opcode.GET_DATA, "/"))
    one.flush()
    assert [reply.code for reply in stranger.replies()] == [Code.SESSION_CLOSED_REQUIRE_SASL_AUTH]
    assert stranger.closed
    assert isinstance(log_in(one, bob), bytes)
    bob.send(bob.codec.read(Opcode.GET_DATA, "/"))
    one.flush()
    assert [reply.code for reply in bob.replies()] == [Code.OK]


def test_a_server_that_asks_for_nothing_has_no_check() -> None:
    assert type(server().connect().connection) is ZooKeeperConnection
