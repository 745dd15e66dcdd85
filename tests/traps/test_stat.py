"""What a Stat says, and what moves each of its fields."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.simulation.jute import (
    CREATE2,
    CREATE_CONTAINER,
    Stat,
)
from tests.traps.one import Server
from tests.traps.peer import Peer
from tests.traps.protocol import (
    BAD_VERSION,
    CLOSE,
    EPHEMERAL,
    NODE_EXISTS,
    OK,
    SEQUENTIAL,
    WORLD,
    Event,
    create,
    create_container,
    create_ttl,
    delete,
    exists,
    get_acl,
    get_children,
    get_data,
    multi,
    multi_results,
    set_acl,
    set_data,
)


def _stat(server: Server, client: Peer, path: str) -> Stat:
    return server.one(client, exists(path)).stat()


def test_cversion_counts_creates_and_deletes_and_the_suffix_counts_creates(
    server: Server, client: Peer
) -> None:
    """Trap 1: cversion is creates plus deletes of children; a sequential name is numbered by all creates ever."""
    assert [_stat(server, client, path).cversion for path in ("/", "/zookeeper")] == [-1, -2], (
        "born with children"
    )
    server.done(client, create("/p"))
    assert [_stat(server, client, path).cversion for path in ("/", "/p")] == [0, 0]
    server.done(client, create("/p/a"), create("/p/b"), create("/p/c"))
    assert _stat(server, client, "/p").cversion == 3
    server.done(client, delete("/p/a"))
    assert (_stat(server, client, "/p").cversion, _stat(server, client, "/p").num_children) == (4, 2)
    first, second = server.done(
        client, create("/p/s-", flags=SEQUENTIAL), create("/p/s-", flags=SEQUENTIAL | EPHEMERAL)
    )
    assert (first.path(), second.path()) == ("/p/s-0000000003", "/p/s-0000000004"), (
        "after three plain creates"
    )
    assert server.one(client, create("/p/b")).err == NODE_EXISTS
    server.done(client, delete("/p/s-0000000003"))
    (third,) = server.done(client, create("/p/s-", flags=SEQUENTIAL))
    assert third.path() == "/p/s-0000000005", "neither a delete nor a failed create is counted"
    # Creates: a b c s3 s4 s5; deletes: a s3.
    stat = _stat(server, client, "/p")
    assert (stat.cversion, stat.num_children, stat.version) == (8, 4, 0)
    ((_, _, shown),) = multi_results(server.one(client, multi(set_data("/p"))))
    assert isinstance(shown, Stat)
    assert (shown.cversion, shown.num_children) == (8, 4), "inside a multi, too"


def test_pzxid_moves_with_every_child_that_comes_or_goes_and_with_no_data(
    server: Server, client: Peer
) -> None:
    """Trap 2: pzxid is the zxid of the last create or delete of a child, a session's end included."""
    (made,) = server.done(client, create("/p"))
    assert _stat(server, client, "/p").pzxid == made.zxid
    (child,) = server.done(client, create("/p/a"))
    assert _stat(server, client, "/p").pzxid == child.zxid
    server.done(client, set_data("/p/a", b"1"), set_data("/p", b"1"), create("/p/a/deep"))
    assert _stat(server, client, "/p").pzxid == child.zxid, "neither data nor grandchildren"
    server.done(client, delete("/p/a/deep"))
    (gone,) = server.done(client, delete("/p/a"))
    assert _stat(server, client, "/p").pzxid == gone.zxid
    other = server.peer()
    (ephemeral,) = server.done(other, create("/p/e", flags=EPHEMERAL))
    assert _stat(server, client, "/p").pzxid == ephemeral.zxid
    (closed,) = server.done(other, CLOSE)
    assert closed.zxid > ephemeral.zxid
    stat = _stat(server, client, "/p")
    assert (stat.pzxid, stat.cversion, stat.num_children) == (closed.zxid, 4, 0)
    assert stat.czxid == made.zxid


@pytest.mark.parametrize("kind", ["container", "ttl"])
def test_ephemeral_owner_of_containers_and_ttl_znodes_reads_0(
    server: Server, client: Peer, kind: str
) -> None:
    """Trap 3: what ZooKeeper keeps in that field on disk is not shown; in every reply that has a Stat."""
    ask = create_container("/n") if kind == "container" else create_ttl("/n", 60_000)
    path, born = server.one(client, ask).path_and_stat()
    assert (path, born.ephemeral_owner) == ("/n", 0)
    assert server.one(client, exists("/n")).stat().ephemeral_owner == 0
    assert server.one(client, get_data("/n")).data()[1].ephemeral_owner == 0
    assert server.one(client, set_data("/n", b"x")).stat().ephemeral_owner == 0
    (plain,) = server.done(client, create("/e", flags=EPHEMERAL, opcode=CREATE2))
    assert plain.path_and_stat()[1].ephemeral_owner == client.session, "an ephemeral shows its session"


@pytest.mark.parametrize("opcode", [1, 15])
def test_flag_4_makes_no_container_unless_the_opcode_says_so(opcode: int) -> None:
    """Trap 4: create and create2 with flag 4 make a persistent znode, which no round of the leader removes."""
    server = Server()
    client = server.peer()
    server.done(
        client, create("/plain", flags=4, opcode=opcode), create("/plain/child"), delete("/plain/child")
    )
    server.done(client, create("/container", flags=0, opcode=CREATE_CONTAINER))
    server.done(client, create("/container/child"), delete("/container/child"))
    assert list(server.machine.mortal) == ["/container"], "what the leader's rounds look at"
    server.reap("/plain", "/container")
    assert server.one(client, get_children("/")).names() == ["plain", "zookeeper"]


def test_version_skips_minus_1_and_minus_1_means_any(server: Server, client: Peer) -> None:
    """Trap 24: -1 as an argument is any version, so no znode may ever have it; after -2 comes 0."""
    server.done(client, create("/a"), set_data("/a", b"1", 0), set_data("/a", b"2", -1))
    assert [a.err for a in server.ask(client, set_data("/a", b"3", 1), set_data("/a", b"3", 2))] == [
        BAD_VERSION,
        OK,
    ]
    node = server.machine.nodes.get("/a")
    assert node is not None
    node.version = 2**31 - 2  # stands for two thousand million sets
    told = [a.stat().version for a in server.done(client, set_data("/a"), set_data("/a"), set_data("/a"))]
    assert told == [2**31 - 1, -(2**31), -(2**31) + 1]
    node.version = -3
    told = [a.stat().version for a in server.done(client, set_data("/a", b"", -3), set_data("/a", b"", -2))]
    assert told == [-2, 0]
    assert server.one(client, delete("/a", 7)).err == BAD_VERSION
    assert server.one(client, delete("/a", -1)).err == OK


def test_setacl_compares_aversion_and_moves_nothing_else(server: Server, client: Peer) -> None:
    """Trap 25: the version of setACL is that of the ACL; no watch fires, mzxid, mtime and version stay."""
    server.done(client, create("/a"), set_data("/a", b"x"), set_data("/a", b"y"))
    before = _stat(server, client, "/a")
    assert (before.version, before.aversion) == (2, 0)
    server.done(client, get_data("/a", watch=True), get_children("/a", watch=True))
    acl = ((31, "ip", "10.0.0.0/8"),)
    assert server.one(client, set_acl("/a", acl, 2)).err == BAD_VERSION, "2 is the version of the data"
    client.say(set_acl("/a", acl, 0))
    server.settle()
    (answer,) = client.take()
    assert not isinstance(answer, Event)
    assert answer.stat() == evolve(before, aversion=1)
    assert server.one(client, get_acl("/a")).acl() == [(31, "ip", "10.0.0.0/8")]
    assert server.one(client, set_acl("/a", WORLD, 0)).err == BAD_VERSION
    server.done(client, set_acl("/a", WORLD, -1))
    assert _stat(server, client, "/a") == evolve(before, aversion=2)
    client.say(set_data("/a", b"z"))
    server.settle()
    assert client.events() == [(3, "/a")], "the watches were armed all the while"
