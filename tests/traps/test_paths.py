"""Paths and the znodes that every cluster has."""

from __future__ import annotations

import pytest

from tests.simulation.jute import Stat
from tests.traps.one import Server
from tests.traps.peer import Peer
from tests.traps.protocol import (
    BAD_ARGUMENTS,
    EPHEMERAL,
    NO_AUTH,
    NO_CHILDREN_FOR_EPHEMERALS,
    NO_NODE,
    NODE_EXISTS,
    OK,
    SEQUENTIAL,
    R,
    create,
    create_container,
    delete,
    get_acl,
    get_all_children_number,
    get_children,
    get_data,
    get_ephemerals,
    multi,
    multi_results,
)


def test_configuration_znode_exists_from_birth_and_is_empty(server: Server, client: Peer) -> None:
    """Trap 26: Curator reads /zookeeper/config and takes its servers from it, unless it is empty."""
    data, stat = server.one(client, get_data("/zookeeper/config", watch=True)).data()
    assert data == b""
    # All zero, as of a znode older than every zxid, but for the two versions, which ensembles set past the count.
    assert stat == Stat(0, 0, 0, 0, -1, 0, -1, 0, 0, 0, 0)
    assert server.one(client, get_acl("/zookeeper/config")).acl() == [(R, "world", "anyone")]
    assert server.one(client, get_children("/zookeeper")).names() == ["config", "quota"]
    undeletable = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"]
    assert [a.err for a in server.ask(client, *map(delete, undeletable))] == [BAD_ARGUMENTS] * 4


def test_ephemerals_have_no_children_and_this_is_checked_last(server: Server, client: Peer) -> None:
    """Trap 27: -108 only if nothing else is wrong: the parent is there, the right too, the path valid and free."""
    server.done(
        client, create("/e", flags=EPHEMERAL), create("/shut", flags=EPHEMERAL, acl=[(R, "world", "anyone")])
    )
    for ask, code in (
        (create("/e/x"), NO_CHILDREN_FOR_EPHEMERALS),
        (create("/e/x", flags=EPHEMERAL), NO_CHILDREN_FOR_EPHEMERALS),
        (create("/e/x-", flags=SEQUENTIAL), NO_CHILDREN_FOR_EPHEMERALS),
        (create_container("/e/x"), NO_CHILDREN_FOR_EPHEMERALS),
        (create("/e/x/y"), NO_NODE),
        (create("/shut/x"), NO_AUTH),
        (create("/e/"), BAD_ARGUMENTS),
        (create("/e"), NODE_EXISTS),
    ):
        assert server.one(client, ask).err == code
    answer = server.one(client, multi(create("/f", flags=EPHEMERAL), create("/f/x")))
    assert [err for _, err, _ in multi_results(answer)] == [OK, NO_CHILDREN_FOR_EPHEMERALS]
    assert server.one(client, get_children("/")).names() == ["e", "shut", "zookeeper"]


@pytest.mark.parametrize(
    ("path", "flags", "made"),
    [
        ("/a/", SEQUENTIAL, "/a/0000000000"),
        ("/", SEQUENTIAL, "/0000000001"),
        ("/a/.", SEQUENTIAL, "/a/.0000000000"),
        ("/a/..", SEQUENTIAL | EPHEMERAL, "/a/..0000000000"),
        ("/a/\u00e9-", SEQUENTIAL, "/a/\u00e9-0000000000"),
        ("/a/", 0, None),
        ("/a/.", 0, None),
        ("/a/..", EPHEMERAL, None),
        ("/a//", SEQUENTIAL, None),
        ("/a/\x01", SEQUENTIAL, None),
        ("/a/\x7f", 0, None),
        ("/a/\uf8ff", 0, None),
        ("/a/\ufff0", SEQUENTIAL, None),
    ],
)
def test_path_is_checked_with_its_suffix(
    server: Server, client: Peer, path: str, flags: int, made: str | None
) -> None:
    """Trap 28: what is no path becomes one by its number; what the number cannot mend stays wrong."""
    server.done(client, create("/a"))
    answer = server.one(client, create(path, flags=flags))
    if made is not None:
        assert (answer.err, answer.path()) == (OK, made)
    else:
        # "//" ends in an empty name whose parent "/a/" is no znode.
        assert answer.err == (NO_NODE if path == "/a//" else BAD_ARGUMENTS)


def test_ephemerals_are_listed_by_a_prefix_that_is_text(server: Server, client: Peer) -> None:
    """Trap 34: "/a" finds "/ab" as well; of the own session only; "" and "/" find all."""
    server.done(client, create("/a", flags=EPHEMERAL), create("/ab", flags=EPHEMERAL), create("/d"))
    server.done(client, create("/d/a", flags=EPHEMERAL), create("/a-plain"), create("/b", flags=EPHEMERAL))
    server.done(server.peer(), create("/a-of-another", flags=EPHEMERAL))
    asked = ["/a", "/ab", "/d", "/d/", "/none", "", "/"]
    found = [answer.names() for answer in server.done(client, *map(get_ephemerals, asked))]
    every = ["/a", "/ab", "/b", "/d/a"]
    assert found == [["/a", "/ab"], ["/ab"], ["/d/a"], ["/d/a"], [], every, every]


def test_all_children_of_the_root_are_counted_without_the_root(server: Server, client: Peer) -> None:
    """Trap 40: of all znodes, ZooKeeper's two names of the root are left out; elsewhere the znode itself is."""

    def count(path: str) -> int:
        return server.one(client, get_all_children_number(path)).number()

    assert count("/") == 3, "/zookeeper, its config and its quota"
    server.done(client, *[create(path) for path in ("/a", "/a/b", "/a/b/c", "/ab", "/a/d")])
    assert [count(path) for path in ("/", "/a", "/a/b", "/ab", "/zookeeper")] == [8, 3, 1, 0, 2]
    assert server.one(client, get_all_children_number("/none")).err == NO_NODE
