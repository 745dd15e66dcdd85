"""Multi: all or nothing, and what its results look like."""

from __future__ import annotations

import struct

from tests.simulation.jute import (
    CHECK,
    CREATE,
    CREATE2,
    DELETE,
    SET_DATA,
)
from tests.traps.one import Server
from tests.traps.peer import Peer
from tests.traps.protocol import (
    BAD_VERSION,
    EPHEMERAL,
    NO_NODE,
    OK,
    RUNTIME_INCONSISTENCY,
    SEQUENTIAL,
    Answer,
    check,
    create,
    create_container,
    create_ttl,
    delete,
    exists,
    get_children,
    get_data,
    multi,
    multi_results,
    set_data,
)


def test_failed_multi_leaves_no_trace_but_its_zxid(server: Server, client: Peer) -> None:
    """Trap 11: header err 0; results 0 before, the code at, -2 behind the culprit; numbers, watches, data as before."""
    (last,) = server.done(client, create("/p"), create("/p/a", b"old"))[1:]
    watcher = server.peer()
    server.done(watcher, get_children("/p", watch=True), get_data("/p/a", watch=True))
    server.ask(watcher, exists("/p/b", watch=True))
    client.say(
        multi(
            create("/p/s-", flags=SEQUENTIAL),
            create("/p/b", flags=EPHEMERAL),
            set_data("/p/a", b"new"),
            check("/p/a", 7),
            delete("/p/a"),
            create("/p/c"),
        )
    )
    server.settle()
    (answer,) = client.take()
    assert isinstance(answer, Answer)
    assert answer.err == OK
    assert answer.zxid > last.zxid + 1, "it has a zxid, as has the watcher's session"
    expected = [OK, OK, OK, BAD_VERSION, RUNTIME_INCONSISTENCY, RUNTIME_INCONSISTENCY]
    part = b"".join([struct.pack(">ibii", -1, 0, code, code) for code in expected])
    assert answer.body == part + struct.pack(">ibi", -1, 1, -1)

    assert watcher.events() == []
    data, stat = server.one(client, get_data("/p/a")).data()
    assert (data, stat.version, stat.mzxid) == (b"old", 0, last.zxid)
    parent = server.one(client, exists("/p")).stat()
    assert (parent.cversion, parent.num_children, parent.pzxid) == (1, 1, last.zxid)
    (next_one,) = server.done(client, create("/p/s-", flags=SEQUENTIAL))
    assert next_one.path() == "/p/s-0000000001"
    assert next_one.zxid == answer.zxid + 1, "the failed multi took exactly one"
    server.done(client, delete("/p/a"), create("/p/b"))
    assert watcher.events() == [(4, "/p"), (2, "/p/a"), (1, "/p/b")], "its watches were all still armed"
    assert server.one(client, multi(delete("/none"))).body[:13] == struct.pack(
        ">ibii", -1, 0, NO_NODE, NO_NODE
    )


def test_creates_with_a_stat_answer_as_create2_inside_a_multi(server: Server, client: Peer) -> None:
    """Trap 12: create2, createTTL and createContainer are type 15 with path and Stat; create is type 1."""
    answer = server.one(
        client,
        multi(
            create("/plain", b"x"),
            create("/two", b"xy", opcode=CREATE2),
            create_ttl("/ttl", 60_000),
            create_container("/container"),
            create("/plain/below", flags=SEQUENTIAL, opcode=CREATE2),
            set_data("/plain", b"xyz", 0),
            check("/plain", 1),
            delete("/two", 0),
        ),
    )
    results = multi_results(answer)
    assert [(kind, err) for kind, err, _ in results] == [
        (CREATE, OK),
        (CREATE2, OK),
        (CREATE2, OK),
        (CREATE2, OK),
        (CREATE2, OK),
        (SET_DATA, OK),
        (CHECK, OK),
        (DELETE, OK),
    ]
    assert results[0][2] == "/plain"
    for (path, stat), expected_path, length in zip(
        [body for kind, _, body in results if kind == CREATE2],
        ("/two", "/ttl", "/container", "/plain/below0000000000"),
        (2, 0, 0, 0),
        strict=True,
    ):
        assert path == expected_path, "a later part sees an earlier one's znode"
        assert (stat.czxid, stat.mzxid, stat.pzxid) == (answer.zxid,) * 3, "one zxid for all"
        assert (stat.version, stat.cversion, stat.ephemeral_owner, stat.data_length) == (0, 0, 0, length)
    assert results[5][2].version == 1
    (empty,) = server.done(client, multi())
    assert empty.body == struct.pack(">ibi", -1, 1, -1), "an empty one is its terminator"
