"""The rarer requests through a connection: what is answered, in which order, with which ids."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.simulation import jute
from tests.unit.server.one_server import Client, OneServer, create
from zraft.server.clients.authentication.proofs import IDS_MAX, AuthSettings, digest_id
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.zookeeper.queries import WATCHES_PER_STEP
from zraft_core.errors import Code
from zraft_core.wire.client import Reply, WatchEvent
from zraft_core.wire.client_requests import (
    AddWatch,
    Auth,
    CheckWatches,
    Create,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    RemoveWatches,
    Request,
    RestoreWatches,
    WhoAmI,
)
from zraft_core.wire.events import EventType
from zraft_core.wire.framing import frame
from zraft_core.wire.jute import JuteReader
from zraft_core.wire.opcodes import XID_SET_WATCHES, Opcode
from zraft_core.znodes.acl import ADMIN, ALL, READ
from zraft_core.znodes.events import AddWatchMode, WatcherType
from zraft_core.znodes.txn import CREATE, DELETE, SET_ACL, SET_DATA

BOB = b"bob:secret"
BOB_ID = ("digest", digest_id(BOB))


def ask(server: OneServer, client: Client, *requests: Request[Any]) -> list[Reply]:
    """The replies to requests that one read of the socket brings."""
    client.send(*[client.codec.ask(request) for request in requests])
    for _ in range(40):
        server.clients.take_step()
        server.run()
    return client.replies()


def events_of(client: Client) -> list[WatchEvent]:
    """All that the client was told since the last time, which is events and nothing else."""
    return [one for one in client.take() if isinstance(one, WatchEvent)]


def only(replies: list[Reply]) -> Reply:
    (reply,) = replies
    return reply


@pytest.fixture
def server() -> OneServer:
    return OneServer()


# -- auth


def test_digest_id_is_zookeepers() -> None:
    """What its `DigestAuthenticationProvider` prints for super:test."""
    assert digest_id(b"super:test") == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


def test_ids_accumulate_and_govern_what_follows(server: OneServer) -> None:
    client = server.attached()
    acl = ((ALL, *BOB_ID),)
    replies = ask(
        server,
        client,
        Create("/a", b"x", acl),
        GetData("/a"),
        Auth("digest", BOB),
        GetData("/a"),
        WhoAmI(),
    )
    assert [r.code for r in replies] == [Code.OK, Code.NO_AUTH, Code.OK, Code.OK, Code.OK]
    assert replies[-1].value == (("ip", "127.0.0.1"), ("digest", "bob"))
    client.send(client.codec.write((SET_DATA, "/a", b"y", -1)))
    server.run()
    assert only(client.replies()).code is Code.OK


def test_auth_is_answered_in_its_turn_and_writes_keep_the_ids_they_were_sent_with(server: OneServer) -> None:
    """Trap 20. The write in front of it goes without the new id, the one behind it with it."""
    client = server.attached()
    client.send(
        client.codec.write((CREATE, "/a", b"", ((ALL, "auth", ""),), 0, 0)),
        client.codec.ask(Auth("digest", BOB)),
        client.codec.write((CREATE, "/a", b"", ((ALL, "auth", ""),), 0, 0)),
    )
    server.flush()
    assert client.take() == [], "nothing overtakes the write"
    server.run()
    assert [(r.xid, r.code) for r in client.replies()] == [
        (1, Code.INVALID_ACL),
        (-4, Code.OK),
        (2, Code.OK),
    ]
    assert only(ask(server, client, GetAcl("/a"))).value[0] == ((ALL, *BOB_ID),)


def test_reply_to_auth_has_zxid_0(server: OneServer) -> None:
    client = server.attached()
    assert only(ask(server, client, Auth("digest", BOB))).zxid == 0


@pytest.mark.parametrize("scheme", ["x509", "super", "world", "auth", "sasl", "nonsense", ""])
def test_unknown_scheme_is_auth_failed_and_ends_the_connection(server: OneServer, scheme: str) -> None:
    client = server.attached()
    client.send(
        client.codec.write(create("/a")),
        client.codec.ask(Auth(scheme, b"x")),
        client.codec.write(create("/never")),
    )
    server.run()
    assert [r.code for r in client.replies()] == [Code.OK, Code.AUTH_FAILED]
    assert client.closed
    assert "/never" not in server.machine.nodes


def test_ids_of_one_connection_are_bounded(server: OneServer) -> None:
    client = server.attached()
    replies = ask(server, client, *[Auth("digest", b"u%d:p" % n) for n in range(IDS_MAX)])
    assert [r.code for r in replies] == [Code.OK] * (IDS_MAX - 1) + [Code.AUTH_FAILED]
    assert client.closed


def test_super_passes_every_acl() -> None:
    """Trap 38."""
    server = OneServer(clients=ClientSettings(auth=AuthSettings(super_digest=digest_id(b"super:pw"))))
    owner, admin = server.attached(), server.attached()
    assert only(ask(server, owner, Create("/a", b"", ((READ, "ip", "10.0.0.1"),)))).code is Code.OK
    assert only(ask(server, owner, GetData("/a"))).code is Code.NO_AUTH
    assert [r.code for r in ask(server, admin, Auth("digest", b"super:pw"), GetData("/a"))] == [
        Code.OK,
        Code.OK,
    ]
    admin.send(admin.codec.write((SET_ACL, "/a", None, -1)))
    server.run()
    assert only(admin.replies()).code is Code.OK
    assert only(ask(server, admin, WhoAmI())).value == (("ip", "127.0.0.1"), ("digest", "super"))


# -- ACLs


def test_setacl_compares_the_version_of_the_acl_and_moves_nothing_else(server: OneServer) -> None:
    """Trap 25."""
    client = server.attached()
    ask(server, client, Create("/a", b"x"), GetData("/a", watch=True))
    before = server.machine.nodes.get("/a")
    assert before is not None
    stat = before.stat()
    client.send(
        client.codec.write((SET_ACL, "/a", ((ALL, "ip", "127.0.0.1"),), 0)),
        client.codec.write((SET_ACL, "/a", None, 0)),
    )
    server.run()
    received = client.take()
    assert not [one for one in received if isinstance(one, WatchEvent)]
    first, second = received
    assert isinstance(first, Reply)
    assert isinstance(second, Reply)
    assert first.code is Code.OK
    assert second.code is Code.BAD_VERSION
    assert before.stat() == stat._replace(aversion=1)


def test_setacl_checks_in_zookeepers_order(server: OneServer) -> None:
    client = server.attached()
    ask(server, client, Create("/a", b"", ((ALL & ~ADMIN, "world", "anyone"),)))
    bad, good = (), ((ALL, "world", "anyone"),)
    for path, acl, version, expected in (
        ("/a//b", bad, 0, Code.BAD_ARGUMENTS),
        ("/none", bad, 0, Code.INVALID_ACL),
        ("/none", good, 0, Code.NO_NODE),
        ("/a", good, 7, Code.NO_AUTH),
    ):
        client.send(client.codec.write((SET_ACL, path, acl, version)))
        server.run()
        assert only(client.replies()).code is expected


# -- watches


def test_addwatch_answers_four_bytes_and_removewatches_none(server: OneServer) -> None:
    """Trap 13."""
    client = server.attached()
    sizes: list[int] = []

    def measure(data: bytes, *, close: bool) -> None:
        sizes.append(len(data))

    client.feed = measure  # type: ignore[method-assign]
    client.send(client.codec.ask(AddWatch("/a", AddWatchMode.PERSISTENT)))
    server.flush()
    client.send(client.codec.ask(RemoveWatches("/a", WatcherType.ANY)))
    server.flush()
    assert sizes == [4 + 16 + 4, 4 + 16]


def test_recursive_watch_is_told_of_every_descendant(server: OneServer) -> None:
    client = server.attached()
    ask(server, client, AddWatch("/a", AddWatchMode.PERSISTENT_RECURSIVE))
    client.send(*[client.codec.write(create(path)) for path in ("/a", "/a/b", "/a/b/c")])
    client.send(client.codec.write((DELETE, "/a/b/c", -1)))
    server.run()
    events = [(e.type.name, e.path) for e in client.take() if isinstance(e, WatchEvent)]
    assert events == [
        ("NODE_CREATED", "/a"),
        ("NODE_CREATED", "/a/b"),
        ("NODE_CREATED", "/a/b/c"),
        ("NODE_DELETED", "/a/b/c"),
    ]


def test_events_are_filtered_by_the_acl_at_that_moment(server: OneServer) -> None:
    """Trap 15: the recursive watch stays, and says nothing of what its owner may not read."""
    watcher, owner = server.attached(), server.attached()
    ask(server, watcher, AddWatch("/", AddWatchMode.PERSISTENT_RECURSIVE))
    ask(server, owner, Auth("digest", BOB), Create("/hidden", b"", ((ALL, "auth", ""),)), Create("/open"))
    assert [e.path for e in watcher.take() if isinstance(e, WatchEvent)] == ["/open"]
    ask(server, watcher, Auth("digest", BOB))
    owner.send(owner.codec.write((SET_DATA, "/hidden", b"x", -1)))
    server.run()
    assert [e.path for e in watcher.take() if isinstance(e, WatchEvent)] == ["/hidden"]


def test_checkwatches_and_removewatches_know_what_is_watched(server: OneServer) -> None:
    client = server.attached()
    check, remove = CheckWatches("/a", WatcherType.PERSISTENT), RemoveWatches("/a", WatcherType.PERSISTENT)
    codes = [
        r.code
        for r in ask(server, client, check, AddWatch("/a", AddWatchMode.PERSISTENT), check, remove, remove)
    ]
    assert codes == [Code.NO_WATCHER, Code.OK, Code.OK, Code.OK, Code.NO_WATCHER]


def test_setwatches2_catches_up_only_for_watches_that_fire_once(server: OneServer) -> None:
    """Traps 8 and 9: what was missed is told before the reply, and lasting watches are told nothing."""
    client = server.attached()
    ask(server, client, Create("/a"))
    client.send(client.codec.ask(RestoreWatches(0, data=("/a",), persistent=("/a",), recursive=("/",))))
    server.flush()
    event, reply = client.take()
    assert isinstance(event, WatchEvent)
    assert isinstance(reply, Reply)
    assert (event.path, reply.xid, reply.code) == ("/a", -8, Code.OK)
    client.send(client.codec.write((SET_DATA, "/a", b"", -1)))
    server.run()
    assert [e.path for e in client.take() if isinstance(e, WatchEvent)] == ["/a"], "once, for all its watches"


@pytest.mark.parametrize(("opcode", "numbers"), [(106, (-1, 2)), (17, (0, 6)), (18, (0, 6))])
def test_unknown_modes_and_types_of_watches_are_malformed(
    server: OneServer, opcode: int, numbers: tuple[int, int]
) -> None:
    client = server.attached()
    for number in numbers:
        client.send(client.codec._request(opcode, jute.text("/a") + struct.pack(">i", number)))
        server.flush()
        assert only(client.replies()).code is Code.MARSHALLING_ERROR


# -- other reads


def test_ephemerals_of_the_own_session_are_listed_by_prefix(server: OneServer) -> None:
    """Trap 34."""
    client, other = server.attached(), server.attached()
    for path in ("/a", "/ab", "/b"):
        client.send(client.codec.write(create(path, ephemeral=True)))
    other.send(other.codec.write(create("/a-other", ephemeral=True)))
    server.run()
    client.take()
    found = [r.value for r in ask(server, client, GetEphemerals("/a"), GetEphemerals("/"), GetEphemerals(""))]
    assert found == [("/a", "/ab"), ("/a", "/ab", "/b"), ("/a", "/ab", "/b")]
    for null_or_blank in (jute.blob(None), jute.text(" ")):
        client.send(client.codec._request(Opcode.GET_EPHEMERALS, null_or_blank, JuteReader.read_texts))
        server.run()
        assert only(client.replies()).value == ("/a", "/ab", "/b")


def test_counting_a_subtree_holds_what_is_behind_it(server: OneServer) -> None:
    """It takes several turns, and every reply still comes in the order of the requests."""
    client = server.attached()
    client.send(*[client.codec.write(create(path)) for path in ("/a", "/a/b", "/a/c", "/d")])
    server.run()
    client.take()
    client.send(
        client.codec.ask(GetAllChildrenNumber("/a")),
        client.codec.ask(GetChildren("/a")),
        client.codec.write(create("/e")),
    )
    server.clients.take_step()
    server.run()
    assert client.replies() == [], "256 shards are not counted in one turn"
    for _ in range(40):
        server.clients.take_step()
        server.run()
    replies = client.replies()
    assert [r.xid for r in replies] == [5, 6, 7]
    assert replies[0].value == 2
    assert set(replies[1].value) == {"b", "c"}
    # Trap 40: ZooKeeper's "/" leaves out its two names of the root: /zookeeper and its two, and five of ours.
    assert only(ask(server, client, GetAllChildrenNumber("/"))).value == 3 + 5
    assert only(ask(server, client, GetAllChildrenNumber("/none"))).code is Code.NO_NODE


def test_counting_ends_with_its_connection(server: OneServer) -> None:
    client = server.attached()
    ask(server, client, Create("/a"), Create("/a/b"))
    client.send(client.codec.ask(GetAllChildrenNumber("/a")))
    client.connection.connection_lost()
    server.clients.take_step()
    assert not server.clients.wants_turn


def test_multiread_answers_each_part_by_itself(server: OneServer) -> None:
    client = server.attached()
    ask(server, client, Create("/a", b"x"), Create("/a/b"))
    parts = [
        (jute.GET_DATA, jute.watch_body("/a", True)),
        (jute.GET_DATA, jute.watch_body("/none", False)),
        (jute.GET_CHILDREN, jute.watch_body("/a", False)),
    ]
    told: list[bytes] = []

    def hear(data: bytes, *, close: bool) -> None:
        told.append(data)

    client.feed = hear  # type: ignore[method-assign]
    client.send(frame(struct.pack(">ii", 9, Opcode.MULTI_READ) + jute.multi_body(parts)))
    server.flush()
    node = server.machine.nodes.get("/a")
    assert node is not None
    body = (
        struct.pack(">iBi", 4, 0, 0) + jute.blob(b"x") + jute.STAT.pack(*node.stat())
        + struct.pack(">iBi", -1, 0, -101) + struct.pack(">i", -101)
        + struct.pack(">iBi", 8, 0, 0) + struct.pack(">i", 1) + jute.text("b")
        + struct.pack(">iBi", -1, 1, -1)
    )  # fmt: skip
    assert b"".join(told) == frame(struct.pack(">iqi", 9, server.machine.last_zxid, 0) + body)
    assert not server.clients.watches, "multiRead sets no watches"


def test_configuration_znode_exists_and_is_empty(server: OneServer) -> None:
    """Trap 26: Curator reads it, and keeps its own connection string if it is empty."""
    client = server.attached()
    data, stat = only(ask(server, client, GetData("/zookeeper/config"))).value
    assert (data, stat.version) == (b"", -1)


# -- listings that clients could not read


@pytest.mark.parametrize("many", [False, True])
def test_listing_beyond_the_limit_is_refused_by_an_error_and_not_by_a_reconnect_loop(many: bool) -> None:
    server = OneServer(clients=ClientSettings(reply_bytes_max=100_000 if many else 60))
    client = server.attached()
    ask(server, client, Create("/d"), *[Create(f"/d/{n:04}") for n in range(17_000 if many else 20)])
    refused, next_one = ask(server, client, GetChildren("/d", watch=True), WhoAmI())
    assert (refused.code, next_one.code) == (Code.MARSHALLING_ERROR, Code.OK)
    ((connection, notice),) = server.clients.notices
    assert connection is client.connection
    assert "client.reply_bytes_max" in notice
    assert "/d" in notice
    assert not server.clients.watches


def test_connection_with_too_many_watches_is_closed_and_its_watches_are_forgotten() -> None:
    server = OneServer(clients=ClientSettings(watches_per_connection_max=10))
    client = server.attached()
    ask(server, client, RestoreWatches(2**62, child=("/",) * 5, exist=tuple(f"/{n}" for n in range(9))))
    assert server.clients.watches.count_of(client.connection) == 10
    assert only(ask(server, client, Exists("/more", watch=True))).code is Code.NO_NODE
    assert ask(server, client, WhoAmI()) == []
    assert client.closed
    assert not server.clients.watches
    ((_, why),) = server.clients.refusals
    assert "client.watches_per_connection_max" in why


def test_many_restored_watches_are_looked_at_over_several_turns(server: OneServer) -> None:
    """20,000 of them in one request took a turn of 100 ms; what is missed is still told first, and once."""
    client = server.attached()
    other = server.attached()
    ask(server, client, Create("/a"), Create("/b"))
    seen = server.machine.last_zxid
    client.send(*[client.codec.write(command) for command in (create("/z"), (SET_DATA, "/a", b"", -1))])
    server.run()
    gone = tuple(f"/gone-{number:06}" for number in range(3 * WATCHES_PER_STEP))
    client.take()
    client.send(
        client.codec.ask(RestoreWatches(seen, data=("/b", "/a", *gone), exist=("/z",))),
        client.codec.ask(Exists("/a")),
        client.codec.write(create("/behind")),
    )
    assert client.connection.held
    server.clients.take_step()
    server.flush()
    told = events_of(client)
    assert len(told) == WATCHES_PER_STEP - 1, "one is not missed: it is watched"
    other.send(*[other.codec.write(command) for command in ((SET_DATA, "/b", b"", -1), create(gone[-1]))])
    server.run()
    told += events_of(client)
    assert (EventType.NODE_DATA_CHANGED, "/b") in [(one.type, one.path) for one in told]
    assert "/behind" not in server.machine.nodes
    while server.clients.wants_turn:
        server.clients.take_step()
        server.run()
    server.run()
    *events, restored, exists, written = client.take()
    missed = [(one.type, one.path) for one in (*told, *events) if isinstance(one, WatchEvent)]
    assert len(missed) == len(told) + len(events), "events come before the reply"
    assert missed.count((EventType.NODE_DATA_CHANGED, "/a")) == 1
    assert missed[-2:] == [(EventType.NODE_DATA_CHANGED, gone[-1]), (EventType.NODE_CREATED, "/z")]
    replies = [one for one in (restored, exists, written) if isinstance(one, Reply)]
    assert [one.xid for one in replies] == [XID_SET_WATCHES, 5, 6]
    assert "/behind" in server.machine.nodes


def test_restoring_watches_ends_with_its_connection(server: OneServer) -> None:
    client = server.attached()
    paths = tuple(f"/{number:06}" for number in range(3 * WATCHES_PER_STEP))
    client.send(client.codec.ask(RestoreWatches(0, exist=paths)))
    server.clients.take_step()
    assert server.clients.watches.watch_count() == WATCHES_PER_STEP
    client.connection.connection_lost()
    server.clients.take_step()
    assert server.clients.watches.watch_count() == 0
    assert server.clients.wants_turn, "their memory is given back in turns"
    server.clients.begin_turn()
    assert server.clients.watches.path_count() == 0
    assert not server.clients.wants_turn


def test_a_turn_decodes_one_request_that_restores_many_watches(server: OneServer) -> None:
    """One of 20,000 watches takes 30 ms to decode; those of a hundred clients came between two turns."""
    clients = [server.attached() for _ in range(5)]
    paths = tuple(f"/{number:036}" for number in range(20 * WATCHES_PER_STEP))
    server.clients.begin_turn()
    for client in clients:
        client.send(client.codec.ask(RestoreWatches(0, exist=paths)))
    assert [client.connection.held for client in clients] == [True, False, False, False, False]
    server.clients.begin_turn()
    assert [client.connection.held for client in clients] == [True, True, False, False, False]
