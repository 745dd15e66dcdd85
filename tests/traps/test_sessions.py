"""Sessions: how they begin, resume, move and end."""

from __future__ import annotations

import pytest

from tests.traps.ensemble import EXPIRY_MS, SESSION_MS, Ensemble
from tests.traps.one import Server
from tests.traps.peer import Peer, connect_bytes
from tests.traps.protocol import (
    CLOSE,
    DELETED,
    EPHEMERAL,
    NO_NODE,
    OK,
    PING_REQUEST,
    Answer,
    Event,
    create,
    exists,
    get_data,
    get_ephemerals,
    set_data,
    sync,
)


def test_client_that_has_seen_more_than_this_server_is_closed_without_a_word(
    server: Server, client: Peer
) -> None:
    """Trap 16: it tries another server; so a cluster that replaces a ZooKeeper must begin above its last zxid."""
    (last,) = server.done(client, create("/a"))
    for session, password in ((0, bytes(16)), (client.session, client.password)):
        ahead = server.peer(connect_bytes(session=session, password=password, last_zxid=last.zxid + 1))
        assert ahead.closed
        assert ahead.greeting is None
    assert not client.closed, "an attempt that is sent elsewhere takes nobody's connection"
    level = server.peer(connect_bytes(last_zxid=last.zxid))
    assert level.greeting is not None
    assert server.one(level, exists("/a")).err == OK
    # What a client of a ZooKeeper brings along: the epoch of its last leader above our term.
    assert last.zxid >> 32 == 1, "the high half follows the term"
    assert server.peer(connect_bytes(last_zxid=0x2_0000_0001)).greeting is None


@pytest.mark.parametrize("why", ["expired", "closed", "never was", "wrong password"])
def test_session_that_is_gone_is_answered_with_zeros_then_closed(
    server: Server, client: Peer, why: str
) -> None:
    """Trap 17: timeout 0, id 0, 16 zero bytes; clients read it as expired and do not try elsewhere."""
    session, password = client.session, client.password
    if why == "expired":
        server.expire(client)
    elif why == "closed":
        server.done(client, CLOSE)
    elif why == "never was":
        session += 1
    else:
        password = b"x" * 16
    again = server.peer(connect_bytes(session=session, password=password))
    assert again.closed
    assert again.greeting is not None
    assert (again.greeting.protocol, again.greeting.timeout_ms) == (0, 0)
    assert (again.session, again.password, again.greeting.rest) == (0, bytes(16), b"\0")
    assert again.take() == []
    assert client.closed == (why in ("expired", "closed")), "a wrong password takes nobody's connection"


def test_session_and_its_ephemerals_move_to_another_server(ensemble: Ensemble) -> None:
    """Trap 19: same id and password, ephemerals untouched; the older connection ends and hears no error."""
    first, second = ensemble.followers
    older = ensemble.connect(first)
    (made,) = ensemble.ask(older, create("/mine", flags=EPHEMERAL))
    watcher = ensemble.connect(second)
    ensemble.ask(watcher, sync("/"), exists("/mine", watch=True))

    newer = ensemble.dial(second, session=older.session, password=older.password, last_zxid=made.zxid)
    older.take()
    older.say(set_data("/mine", b"in flight"))  # its server cannot know yet
    ensemble.until(lambda: newer.greeting and older.closed, "the move")
    assert (newer.session, newer.password) == (older.session, older.password)
    assert [a.err for a in older.answers()] in ([], [OK]), "done before the move, or a connection loss"
    assert ensemble.one(newer, get_ephemerals("/")).names() == ["/mine"]
    _, stat = ensemble.one(newer, get_data("/mine")).data()
    assert stat.ephemeral_owner == newer.session
    assert stat.czxid == made.zxid
    assert (DELETED, "/mine") not in watcher.events()

    ensemble.pass_alive(2 * EXPIRY_MS, newer, watcher)
    assert ensemble.one(newer, exists("/mine")).err == OK, (
        "nor do they go later, when the older one would expire"
    )
    ensemble.ask(newer, CLOSE)
    assert ensemble.ask(watcher, sync("/"), exists("/mine"))[1].err == NO_NODE


def test_zxids_of_one_session_never_go_back_whatever_server_answers(ensemble: Ensemble) -> None:
    """Trap 29: replies, pings and events; a server that is behind sends the client on to the next one."""
    leader = ensemble.wait_leader()
    ahead, behind = ensemble.followers
    peer = ensemble.connect(ahead)
    zxids: list[int] = []

    def note(*heard: Answer | Event) -> None:
        zxids.extend(one.zxid for one in heard)

    note(*ensemble.ask(peer, create("/a"), exists("/a"), PING_REQUEST, sync("/"), exists("/none")))
    ensemble.cut(leader, behind)
    note(*ensemble.ask(peer, set_data("/a"), PING_REQUEST, get_data("/a", watch=True), set_data("/none")))
    assert zxids[-1] > zxids[0]
    again = ensemble.dial(behind, session=peer.session, password=peer.password, last_zxid=zxids[-1])
    ensemble.until(lambda: again.closed, "being sent on")
    assert again.greeting is None
    assert not peer.closed

    again = ensemble.dial(leader, session=peer.session, password=peer.password, last_zxid=zxids[-1])
    ensemble.until(lambda: again.greeting, "a greeting")
    note(*ensemble.ask(again, PING_REQUEST, exists("/a"), set_data("/a"), exists("/a")))
    ensemble.join(leader, behind)
    ensemble.until(lambda: ensemble.position(behind) == ensemble.position(leader), "the other to catch up")
    last = ensemble.dial(behind, session=peer.session, password=peer.password, last_zxid=zxids[-1])
    ensemble.until(lambda: last.greeting, "a greeting")
    note(*ensemble.ask(last, exists("/a"), create("/b"), exists("/b"), PING_REQUEST))
    # And through a change of leader, whose first zxids are of a new term.
    ensemble.servers[leader].crash()
    ensemble.wait_leader(other_than=leader)
    again = last
    if last.closed:
        again = ensemble.dial(behind, session=peer.session, password=peer.password, last_zxid=zxids[-1])
        ensemble.until(lambda: again.greeting, "a greeting")
    note(*ensemble.ask(again, exists("/a"), create("/c"), exists("/c")))
    assert zxids == sorted(zxids)
    assert zxids[-1] >> 32 > zxids[0] >> 32, "a new leader's zxids are all greater"


@pytest.mark.parametrize("trouble", ["leader lost", "leader paused", "all paused"])
def test_session_timers_begin_anew_with_a_leader_and_do_not_run_while_it_stands_still(
    ensemble: Ensemble, trouble: str
) -> None:
    """Trap 31: a new leader gives every session its full timeout; who wakes up expires nobody for the lost time."""
    leader = ensemble.wait_leader()
    home, _ = ensemble.followers
    quiet, watcher = ensemble.connect(home), ensemble.connect(home)
    ensemble.ask(quiet, create("/quiet", flags=EPHEMERAL))

    def is_there() -> bool:
        return ensemble.ask(watcher, sync("/"), exists("/quiet"))[1].err == OK

    # The last that is heard of the quiet one; from now on only the watcher pings.
    ensemble.pass_alive(SESSION_MS - 200, watcher)
    assert is_there()
    if trouble == "leader lost":
        ensemble.servers[leader].crash()
        ensemble.wait_leader(other_than=leader)
        elected = ensemble.now_ms
        ensemble.pass_alive(SESSION_MS - 100, watcher)
        assert is_there(), "the old leader would have ended it long ago"
        ensemble.pass_alive(elected + EXPIRY_MS - ensemble.now_ms, watcher)
        assert not is_there(), "its full timeout, and not more"
    elif trouble == "leader paused":
        ensemble.servers[leader].stop(ensemble.now_ms + 20 * SESSION_MS)
        ensemble.wait_leader(other_than=leader)
        for _ in range(20):
            ensemble.pass_alive(SESSION_MS // 5, quiet, watcher)
        ensemble.servers[leader].resume()
        ensemble.pass_alive(EXPIRY_MS, quiet, watcher)
        assert is_there(), "the sleeper heard of nobody for four timeouts, and expires nobody"
    else:
        for process in ensemble.servers.values():
            process.stop(ensemble.now_ms + 10 * SESSION_MS)
        ensemble.pass_ms(10 * SESSION_MS)
        ensemble.pass_alive(EXPIRY_MS, quiet, watcher)
        assert is_there(), "nobody could be heard while all stood still"
    assert not watcher.closed


def test_close_is_answered_when_the_ephemerals_are_gone(server: Server, client: Peer) -> None:
    """Trap 32: own watches are told, then the reply comes at the zxid of the deletes, then the connection ends."""
    server.done(client, create("/e", flags=EPHEMERAL), create("/f", flags=EPHEMERAL), create("/stays"))
    server.done(client, exists("/e", watch=True), exists("/stays", watch=True))
    watcher = server.peer()
    server.done(watcher, exists("/f", watch=True))
    client.say(CLOSE, create("/never"))
    server.settle()
    event, reply = client.take()
    assert isinstance(event, Event)
    assert isinstance(reply, Answer)
    assert (event.kind, event.path) == (DELETED, "/e")
    assert (reply.err, reply.body) == (OK, b"")
    assert event.zxid == reply.zxid
    assert client.closed
    (told,) = watcher.take()
    assert isinstance(told, Event)
    assert (told.kind, told.path, told.zxid) == (DELETED, "/f", reply.zxid)
    asked = [exists("/e"), exists("/f"), exists("/never"), exists("/stays")]
    assert [a.err for a in server.ask(watcher, *asked)] == [NO_NODE, NO_NODE, NO_NODE, OK]
