"""Reconfig of ZooKeeper's clients: switched off by default, and otherwise a write like others, in its turn."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.one_server import Client, OneServer
from zraft.server.clients.authentication.proofs import AuthSettings, digest_id
from zraft.server.clients.settings import ClientSettings
from zraft.tree.node import CONFIG
from zraft_core.errors import Code
from zraft_core.ids import Instance, ServerId
from zraft_core.wire.client import Reply, WatchEvent
from zraft_core.wire.client_requests import Auth, Create, GetData, Reconfig, Request
from zraft_core.znodes.events import NODE_DATA_CHANGED
from zraft_core.znodes.member_roles import PARTICIPANT
from zraft_core.znodes.txn import FEATURE, MEMBERS, pack_batch

FOUR = "server.4=10.0.0.4:2888:3888;2181"


def ask(server: OneServer, client: Client, *requests: Request[Any]) -> list[Reply]:
    """The replies to requests that one read of the socket brings."""
    client.send(*[client.codec.ask(request) for request in requests])
    server.run()
    return client.replies()


@pytest.fixture
def server() -> OneServer:
    """One whose clients may change its members, written down as servers 1 to 3."""
    return _server(reconfig_enabled=True)


def _server(*, reconfig_enabled: bool) -> OneServer:
    settings = ClientSettings(
        reconfig_enabled=reconfig_enabled, auth=AuthSettings(super_digest=digest_id(b"super:pw"))
    )
    server = OneServer(clients=settings)
    founders = tuple((n, PARTICIPANT, f"10.0.0.{n}:2181") for n in (1, 2, 3))
    server.log.append(
        pack_batch(ServerId(0), Instance(b""), 0, 0, [(0, (), [(FEATURE, 2), (MEMBERS, True, -1, founders)])])
    )
    server.apply()
    return server


def superuser(server: OneServer) -> Client:
    client = server.attached()
    (reply,) = ask(server, client, Auth("digest", b"super:pw"))
    assert reply.code is Code.OK
    return client


def members(server: OneServer) -> list[int]:
    return list(server.machine.members)


def test_it_is_switched_off_by_default_as_in_zookeeper() -> None:
    server = _server(reconfig_enabled=ClientSettings().reconfig_enabled)
    (reply,) = ask(server, superuser(server), Reconfig(joining=FOUR))
    assert reply.code is Code.RECONFIG_DISABLED
    assert members(server) == [1, 2, 3]


def test_a_cluster_in_its_first_seconds_asks_to_try_again() -> None:
    """Not UNIMPLEMENTED, by which clients would conclude that they need not try."""
    server = OneServer(clients=ClientSettings(reconfig_enabled=True))
    created, changed = ask(server, server.attached(), Create("/before", b""), Reconfig(joining=FOUR))
    assert created.code is Code.OK
    assert changed.code is Code.RECONFIG_IN_PROGRESS


def test_it_is_answered_with_the_new_configuration_between_its_neighbours(server: OneServer) -> None:
    """FIFO of the session: the reads behind it see it, the write before it is done."""
    client = superuser(server)
    created, changed, read = ask(
        server, client, Create("/before", b""), Reconfig(joining=FOUR, leaving="2"), GetData(CONFIG)
    )
    assert (created.code, changed.code, read.code) == (Code.OK, Code.OK, Code.OK)
    data, stat = changed.value
    assert data.decode().splitlines() == [
        "server.1=10.0.0.1:2181:2181:participant;10.0.0.1:2181",
        "server.3=10.0.0.3:2181:2181:participant;10.0.0.3:2181",
        "server.4=10.0.0.4:2181:2181:participant;10.0.0.4:2181",
        f"version={changed.zxid:x}",
    ]
    assert (stat.version, stat.mzxid) == (-1, changed.zxid)
    assert read.value == changed.value
    assert created.zxid < changed.zxid
    assert members(server) == [1, 3, 4]


def test_a_member_that_joins_from_another_address_has_moved_as_in_zookeeper(server: OneServer) -> None:
    """ZooKeeper's clients have no other verb for it; operators have one (`zraft member move`)."""
    (reply,) = ask(server, superuser(server), Reconfig(joining="server.2=10.0.0.9:2888:3888;2181"))
    assert reply.code is Code.OK
    assert server.machine.members[ServerId(2)].address == "10.0.0.9:2181"


def test_who_watches_the_configuration_is_told_before_the_reply(server: OneServer) -> None:
    """Trap 26: Curator follows the ensemble by this watch."""
    client = superuser(server)
    ask(server, client, GetData(CONFIG, True))
    client.send(client.codec.ask(Reconfig(joining=FOUR)))
    server.run()
    event, reply = client.take()
    assert isinstance(event, WatchEvent)
    assert (event.type, event.path) == (NODE_DATA_CHANGED, CONFIG)
    assert isinstance(reply, Reply)
    assert reply.code is Code.OK


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (Reconfig(joining="some thing"), Code.BAD_ARGUMENTS),
        (Reconfig(joining="server.4=10.0.0.1:1:2;2181"), Code.BAD_ARGUMENTS),
        (Reconfig(joining="server.4=0.0.0.0:1:2;2181"), Code.BAD_ARGUMENTS),
        (Reconfig(joining="server.999=10.0.0.1:1:2;2181"), Code.BAD_ARGUMENTS),
        (Reconfig(members="server.1=10.0.0.1:1:2:observer;2181"), Code.NEW_CONFIG_NO_QUORUM),
        (Reconfig(leaving="1,2,3"), Code.NEW_CONFIG_NO_QUORUM),
        (Reconfig(joining=FOUR, config=7), Code.BAD_VERSION),
    ],
)
def test_what_cannot_be_done_changes_nothing(server: OneServer, request_: Request[Any], code: Code) -> None:
    (reply,) = ask(server, superuser(server), request_)
    assert reply.code is code
    assert members(server) == [1, 2, 3]


def test_only_who_may_write_the_configuration_may_do_it(server: OneServer) -> None:
    """And, as in ZooKeeper, that is judged last."""
    client = server.attached()
    codes = [
        reply.code
        for reply in ask(
            server,
            client,
            Reconfig(joining=FOUR),
            Reconfig(joining=FOUR, config=7),
            Reconfig(joining="some thing"),
            # A number that only ZooKeeper has room for: who may not write is told that, as there.
            Reconfig(joining="server.999=10.0.0.1:1234:2345:observer;3456"),
            Reconfig(joining="server.9=0.0.0.0:1234:2345:observer;3456"),
        )
    ]
    assert codes == [Code.NO_AUTH, Code.BAD_VERSION, Code.BAD_ARGUMENTS, Code.NO_AUTH, Code.NO_AUTH]
    assert members(server) == [1, 2, 3]
