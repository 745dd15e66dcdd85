"""What a server that does not lead may answer, and when."""

from __future__ import annotations

import pytest

from tests.simulation.jute import (
    XID_PING,
)
from tests.traps.ensemble import Ensemble
from tests.traps.one import Server
from tests.traps.protocol import (
    OK,
    PING_REQUEST,
    Answer,
    create,
    exists,
    get_all_children_number,
    get_children,
    get_data,
    set_data,
    sync,
)
from zraft.groups.snapshots import writing as snapshot_writing
from zraft.raft.messages import AppendEntries


def test_sync_brings_a_server_up_to_what_was_committed_and_repeats_its_path(ensemble: Ensemble) -> None:
    """Trap 33: what is behind a sync sees all that was acknowledged before it, on a server that lags, too."""
    leader = ensemble.wait_leader()
    lagging = ensemble.followers[1]
    writer, reader = ensemble.connect(leader), ensemble.connect(lagging)
    ensemble.ask(writer, create("/a", b"old"))
    assert ensemble.ask(reader, sync("/"), get_data("/a"))[1].data()[0] == b"old"
    ensemble.withhold(AppendEntries, lagging)  # it hears of its leader, and of read indices, all the while
    ensemble.ask(writer, set_data("/a", b"new"))
    assert ensemble.one(reader, get_data("/a")).data()[0] == b"old", "a read alone may be old"
    reader.say(sync("/no/such//path"), get_data("/a"))
    ensemble.pass_ms(40)
    assert reader.answers() == [], "it has not yet what was committed"
    ensemble.release(AppendEntries, lagging)
    ensemble.until(lambda: len(reader.heard) == 2, "the answers")
    synced, read = reader.answers()
    assert (synced.err, synced.path()) == (OK, "/no/such//path"), "any path will do, and is not looked at"
    assert read.data()[0] == b"new"
    assert synced.zxid >= read.data()[1].mzxid


def test_reads_wait_behind_the_writes_of_their_session_on_a_follower(ensemble: Ensemble) -> None:
    """Trap 35: who writes and reads without waiting reads what it wrote; others are not held up."""
    follower = ensemble.followers[0]
    peer, other = ensemble.connect(follower), ensemble.connect(follower)
    ensemble.ask(peer, create("/a", b"0"))
    leader = ensemble.wait_leader()
    ensemble.cut(follower, leader)  # the write cannot get through for now
    peer.say(set_data("/a", b"1"), get_data("/a"), get_children("/"), exists("/b"))
    peer.say(create("/b"), exists("/b"))
    assert ensemble.one(other, get_data("/a")).data()[0] == b"0"
    ensemble.pass_ms(20)
    assert peer.answers() == [], "nothing overtakes the write"
    ensemble.join(follower, leader)
    ensemble.until(lambda: len(peer.heard) == 6, "the answers")
    wrote, read, children, missing, made, found = peer.answers()
    assert [a.xid for a in (wrote, read, children, missing, made, found)] == [2, 3, 4, 5, 6, 7]
    assert read.data()[0] == b"1"
    assert (children.names(), missing.err) == (["a", "zookeeper"], -101), (
        "and not what was written behind them"
    )
    assert (made.err, found.err) == (OK, OK)


def test_pings_are_answered_while_everything_else_waits(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 30: at once, past a write without a quorum, a sync, a long count and a snapshot."""

    server = Server()
    peer = server.peer()

    def answered_at_once() -> None:
        assert peer.take() == [], "nothing waits that a ping could pass"
        peer.say(PING_REQUEST)
        server.flush()
        (pong,) = peer.answers()
        assert (pong.xid, pong.err, pong.body) == (XID_PING, OK, b"")

    peer.say(create("/a"), create("/a/b"), get_data("/a"))
    server.propose()  # not applied: no quorum yet
    answered_at_once()
    server.settle()
    assert len(peer.take()) == 3
    peer.say(sync("/"), get_data("/a"))
    server.run()
    answered_at_once()
    server.clients.take_syncs()[0].complete_sync()
    server.settle()
    assert len(peer.take()) == 2
    peer.say(get_all_children_number("/a"), get_data("/a"))
    server.clients.take_step()
    server.run()
    answered_at_once()
    server.settle()
    assert len(peer.take()) == 2

    # With real drivers: while a snapshot is written, one item in each of many turns.
    monkeypatch.setattr(snapshot_writing, "SLICE_ITEMS", 1)
    leader = ensemble.wait_leader()
    client = ensemble.connect(leader)
    for n in range(40):
        ensemble.one(client, create(f"/s{n}"))
    driver = ensemble.servers[leader].driver
    assert driver is not None
    keeper = driver.snapshots.keeper
    keeper.request()
    ensemble.until(lambda: keeper.writing, "a snapshot to begin")
    pongs = 0
    while keeper.writing:
        asked = ensemble.now_ms
        client.say(PING_REQUEST)
        ensemble.until(lambda: client.heard, "a pong")
        (pong,) = client.take()
        assert isinstance(pong, Answer)
        assert pong.xid == XID_PING
        assert ensemble.now_ms - asked <= 10
        pongs += keeper.writing
    assert pongs >= 10, "the snapshot was over before the pings"
    assert keeper.newest is not None

    # A leader whose followers are all gone cannot commit, and pongs as long as it may speak.
    for follower in ensemble.followers:
        ensemble.cut(leader, follower)
    client.say(create("/held"))
    asked = ensemble.now_ms
    client.say(PING_REQUEST)
    ensemble.until(lambda: client.heard, "a pong")
    (pong,) = client.take()
    assert isinstance(pong, Answer)
    assert pong.xid == XID_PING
    assert ensemble.now_ms - asked <= 10
