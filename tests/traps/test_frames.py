"""Frames, their order, and what ends a connection."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import pytest

from tests.simulation.jute import (
    CHECK,
    CREATE_CONTAINER,
    CREATE_TTL,
    MULTI,
    SYNC,
    XID_AUTH,
)
from tests.traps.one import Server
from tests.traps.peer import TIMEOUT_MS, Peer, connect_bytes
from tests.traps.protocol import (
    AUTH_FAILED,
    MARSHALLING_ERROR,
    OK,
    PING_REQUEST,
    RECONFIG,
    UNIMPLEMENTED,
    Ask,
    add_watch,
    auth,
    check,
    create,
    create_ttl,
    delete,
    exists,
    get_acl,
    get_children,
    get_data,
    get_ephemerals,
    multi,
    multi_results,
    remove_watches,
    set_acl,
    set_data,
)
from zraft.server.clients.settings import ClientSettings

ZOOKEEPERS_CODES = frozenset(
    {
        0,
        *range(-8, 0),
        -12,
        -13,
        -14,
        -100,
        -101,
        -102,
        -103,
        -108,
        *range(-115, -109),
        *range(-125, -117),
        -127,
    }
)
"""Every error code of ZooKeeper 3.9; clients fail on others, in ways of their own."""

OPERATIONS = (*range(1, 10), 11, *range(12, 23), *range(100, 108), -10, -11)


@pytest.mark.parametrize("flag", [b"", b"\0", b"\1"])
def test_missing_read_only_byte_is_missing_in_the_answer_too(flag: bytes) -> None:
    """Trap 18: a client from before ZooKeeper 3.4 sends 44 bytes and could not read a 37th."""
    server = Server()
    peer = server.peer(connect_bytes(read_only=flag))
    assert peer.greeting is not None
    assert (peer.greeting.protocol, peer.greeting.timeout_ms) == (0, TIMEOUT_MS)
    assert len(peer.password) == 16
    assert peer.greeting.rest == (b"\0" if flag else b""), "this server is not read-only, whatever was asked"
    refused = server.peer(connect_bytes(session=77, password=bytes(16), read_only=flag))
    assert refused.greeting is not None
    assert (refused.session, refused.greeting.rest) == (0, b"\0" if flag else b"")


def test_auth_is_answered_in_its_turn_and_a_failed_one_closes(server: Server, client: Peer) -> None:
    """Trap 20: xid -4, behind what was sent before it; clients pop their queue of requests for it."""
    client.say(
        create("/a"), auth("digest", b"bob:secret"), create("/b", acl=[(31, "auth", "")]), exists("/a")
    )
    server.flush()
    assert client.take() == [], "nothing overtakes the write"
    server.settle()
    assert [(a.xid, a.err, a.body[:0]) for a in client.answers()] == [
        (1, OK, b""),
        (XID_AUTH, OK, b""),
        (2, OK, b""),
        (3, OK, b""),
    ]
    client.say(set_data("/a"), auth("nonsense", b"x"), create("/never"))
    server.settle()
    assert [(a.xid, a.err) for a in client.answers()] == [(4, OK), (XID_AUTH, AUTH_FAILED)]
    assert client.closed
    assert server.one(server.peer(), exists("/never")).err == -101


@pytest.mark.parametrize(("scheme", "credentials"), [(None, b"a:b"), (None, None), ("digest", None)])
def test_auth_without_a_scheme_or_without_credentials_fails_and_closes(
    server: Server, client: Peer, scheme: str | None, credentials: bytes | None
) -> None:
    """Java clients send null for what their caller left out, and wait for a failure that they know."""
    answer = server.one(client, auth(scheme, credentials))
    assert (answer.xid, answer.err) == (XID_AUTH, AUTH_FAILED)
    assert client.closed


@pytest.mark.parametrize("opcode", [0, 10, CHECK, 23, 99, 108, 500, -1, -12, 2**31 - 1])
@pytest.mark.parametrize("behind_a_write", [False, True])
def test_unknown_operation_is_unimplemented_then_the_connection_ends(
    server: Server, client: Peer, opcode: int, behind_a_write: bool
) -> None:
    """Trap 21: -6 in its turn, and nothing behind it is looked at; a check outside a multi is one of them."""
    before = [create("/a")] if behind_a_write else []
    body = check("/", -1).body if opcode == CHECK else b""
    client.say(*before, Ask(opcode, body), create("/never"))
    server.settle()
    *earlier, last = client.answers()
    assert [a.err for a in earlier] == [OK] * len(before)
    assert (last.xid, last.err, last.body) == (len(before) + 1, UNIMPLEMENTED, b"")
    assert client.closed
    assert server.one(server.peer(), exists("/never")).err == -101


def test_frame_beyond_the_limit_closes_without_a_word(server: Server, client: Peer) -> None:
    """Trap 22: 1,048,575 bytes pass, one more does not, nor does a negative length."""
    empty = client.encoded(create("/big", b""))
    fitting = client.encoded(create("/big", bytes(1_048_575 - (len(empty) - 4))))
    assert struct.unpack_from(">i", fitting) == (1_048_575,)
    client.say_bytes(fitting)
    server.settle()
    assert [a.err for a in client.answers()] == [OK]
    for length in (1_048_576, 2**31 - 1, -1):
        peer = server.peer()
        peer.say_bytes(struct.pack(">i", length) + bytes(16))
        server.settle()
        assert peer.closed
        assert peer.take() == []
    stranger = server.peer(struct.pack(">i", 1_048_576) + bytes(64))
    assert stranger.closed
    assert stranger.greeting is None


@pytest.mark.parametrize(("data", "on_the_wire"), [(None, b"\xff\xff\xff\xff"), (b"", b"\0\0\0\0")])
def test_null_and_empty_data_are_different_and_come_back_as_they_went(
    server: Server, client: Peer, data: bytes | None, on_the_wire: bytes
) -> None:
    """Trap 23: a buffer of length -1 is null, one of length 0 is empty; both have dataLength 0."""
    server.done(client, create("/made", data), create("/set", b"x"), set_data("/set", data))
    server.done(client, multi(create("/many", data), create("/many-set", b"x"), set_data("/many-set", data)))
    for path in ("/made", "/set", "/many", "/many-set"):
        answer = server.one(client, get_data(path))
        assert answer.body[:4] == on_the_wire
        assert answer.data()[0] == data
        assert answer.data()[1].data_length == 0


def test_no_error_code_is_sent_that_zookeeper_does_not_have() -> None:
    """Trap 36: thousands of requests, right and wrong, and each error is one that clients know."""
    rng = random.Random(36)
    table = Path(__file__).parents[2] / "client" / "zraft_core" / "errors.py"
    declared = {int(code) for code in re.findall(r"^    [A-Z_]+ = (-?\d+)$", table.read_text(), re.MULTILINE)}
    assert declared == ZOOKEEPERS_CODES, "the table in the code is ZooKeeper's"

    server = Server(ClientSettings(reply_bytes_max=200, watches_per_connection_max=500))
    maker = server.peer()
    server.done(maker, create("/n"), create("/n/e", flags=1), create("/shut", acl=[(0, "world", "anyone")]))
    server.done(maker, *[create(f"/n/{number:03}") for number in range(80)])
    paths = [
        "/",
        "",
        "/n",
        "/n/",
        "/n/e",
        "/n/e/x",
        "/shut",
        "/shut/x",
        "/none/x",
        "a",
        "/a\0b",
        "/a//b",
        "/.",
        "//",
    ]
    paths += ["/zookeeper/config", "/zookeeper/quota/n", "/é", "/\ud7ff\uf900", "/x" * 400]

    def request() -> Ask:
        path = rng.choice(paths)
        flags, version = rng.choice((-1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 2**31 - 1)), rng.choice((-2, -1, 0, 1, 9))
        world = [(31, "world", "anyone")]
        acl = rng.choice((world, world, [], [(31, "auth", "")], [(31, "digest", "a:b:c")], [(31, "zzz", "")]))
        made = create(path, rng.choice((None, b"", b"x")), flags=flags, acl=acl)
        ask = rng.choice(
            (
                made,
                Ask(CREATE_CONTAINER, made.body),
                Ask(CREATE_TTL, made.body + struct.pack(">q", rng.choice((-1, 0, 1, 2**40, 2**62)))),
                delete(path, version),
                set_data(path, b"x", version),
                set_acl(path, acl, version),
                get_acl(path),
                get_data(path, watch=True),
                exists(path, watch=True),
                get_children(path, watch=True),
                add_watch(path, rng.randrange(-1, 3)),
                remove_watches(path, rng.randrange(7)),
                multi(create(path), check(path, version), delete(path, version), create_ttl(path, 5)),
                multi(Ask(rng.choice(OPERATIONS), made.body)),
                auth(rng.choice(("digest", "ip", "sasl", "x509", "zzz")), b"a:b"),
                Ask(RECONFIG, bytes(12) + struct.pack(">q", -1)),
                get_ephemerals(path),
            )
        )
        opcode, raw = ask.opcode, ask.body
        if rng.random() < 0.2:
            opcode = rng.choice(OPERATIONS) if rng.random() < 0.8 else rng.randrange(-20, 600)
        if rng.random() < 0.1:
            raw = raw[: rng.randrange(len(raw) + 1)] + rng.randbytes(rng.randrange(20))
        # A sync would wait for a leader's answer, which a server in memory does not have.
        return Ask(opcode, raw) if opcode != SYNC else PING_REQUEST

    seen: set[int] = set()
    peer = server.peer()
    for _ in range(4_000):
        if peer.closed:
            peer = server.peer()
        ask = request()
        for answer in server.ask(peer, ask):
            seen.add(answer.err)
            assert not answer.err or not answer.body, "an error has no body"
            if ask.opcode == MULTI and not answer.err:
                seen.update(err for _, err, _ in multi_results(answer))
    assert set(seen) <= ZOOKEEPERS_CODES, (
        f"codes that clients do not know: {sorted(set(seen) - ZOOKEEPERS_CODES)}"
    )
    expected = {OK, -2, MARSHALLING_ERROR, UNIMPLEMENTED, -8, AUTH_FAILED, -121, -123}
    expected |= {-101, -102, -103, -108, -110, -111, -114}
    assert expected <= set(seen), f"not seen: {sorted(expected - set(seen))}; the requests are too tame"
