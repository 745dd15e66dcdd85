"""Watches: which fire, what is told, and in which order with the answers."""

from __future__ import annotations

import pytest

from tests.simulation.jute import (
    ADD_WATCH,
    PERSISTENT,
    RECURSIVE,
    XID_SET_WATCHES,
)
from tests.traps.one import Server
from tests.traps.peer import Peer, connect_bytes
from tests.traps.protocol import (
    ANY_WATCH,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    NO_NODE,
    OK,
    Answer,
    Ask,
    Event,
    R,
    add_watch,
    auth,
    create,
    delete,
    exists,
    get_children,
    get_data,
    multi,
    remove_watches,
    set_acl,
    set_data,
    set_watches,
    set_watches2,
)

SYNC_CONNECTED = 3


@pytest.mark.parametrize(
    ("watch", "write", "kind", "path"),
    [
        (exists("/new", watch=True), create("/new"), CREATED, "/new"),
        (get_data("/a", watch=True), set_data("/a", b"2"), CHANGED, "/a"),
        (get_data("/a", watch=True), delete("/a"), DELETED, "/a"),
        (get_children("/", watch=True), create("/new"), CHILDREN, "/"),
        (add_watch("/", RECURSIVE), multi(create("/new")), CREATED, "/new"),
    ],
)
def test_notification_is_written_before_the_reply_of_the_write_that_caused_it(
    server: Server, client: Peer, watch: Ask, write: Ask, kind: int, path: str
) -> None:
    """Trap 5: event first, then the writer's own reply, then what shows the new data; one zxid for both."""
    server.done(client, create("/a", b"1"))
    server.ask(client, watch)
    client.say(write, exists("/"))
    server.settle()
    event, reply, later = client.take()
    assert isinstance(event, Event)
    assert isinstance(reply, Answer)
    assert isinstance(later, Answer)
    assert (event.kind, event.state, event.path) == (kind, SYNC_CONNECTED, path)
    assert event.zxid == reply.zxid
    assert reply.xid + 1 == later.xid


def test_deletion_is_told_once_to_data_and_child_watch_and_spends_both(server: Server, client: Peer) -> None:
    """Trap 6: one NodeDeleted per connection, however many of its watches are on the path."""
    server.done(client, create("/a"))
    server.done(client, get_data("/a", watch=True), exists("/a", watch=True), get_children("/a", watch=True))
    other = server.peer()
    server.done(other, get_children("/a", watch=True))
    client.say(delete("/a"))
    server.settle()
    assert client.events() == [(DELETED, "/a")]
    assert other.events() == [(DELETED, "/a")], "a child watch alone is told, too"
    client.say(create("/a"), create("/a/b"), set_data("/a"), delete("/a/b"), delete("/a"))
    server.settle()
    assert client.events() == [], "the child watch is spent although it told nothing"
    assert other.events() == []


def test_exists_watches_what_is_not_there_and_other_reads_do_not(server: Server, client: Peer) -> None:
    """Trap 7: exists on a missing znode answers -101 and is armed; getData and getChildren only answer -101."""
    asked = [exists("/a", watch=True), get_data("/b", watch=True), get_children("/c", watch=True)]
    assert [(answer.err, answer.body) for answer in server.ask(client, *asked)] == [(NO_NODE, b"")] * 3
    other = server.peer()
    server.done(other, *[create(path) for path in ("/a", "/b", "/c", "/c/d")], set_data("/b"))
    assert client.events() == [(CREATED, "/a")]


def test_setwatches_tells_what_was_missed_before_its_reply(server: Server, client: Peer) -> None:
    """Trap 8: mzxid and pzxid are compared with relativeZxid; every event comes before the reply with xid -8."""
    paths = ("/same", "/changed", "/gone", "/family", "/quiet", "/lost")
    server.done(client, *[create(path) for path in paths])
    (seen,) = server.done(client, exists("/"))
    server.done(
        client,
        set_data("/changed"),
        delete("/gone"),
        create("/born"),
        create("/family/child"),
        set_data("/quiet"),
        delete("/lost"),
    )
    again = server.peer(connect_bytes(session=client.session, password=client.password, last_zxid=seen.zxid))
    again.say(
        set_watches(
            seen.zxid,
            data=["/same", "/changed", "/gone", "/family"],
            exist=["/born", "/unborn"],
            child=["/family", "/quiet", "/lost"],
        )
    )
    server.settle()
    *events, reply = again.take()
    assert isinstance(reply, Answer)
    assert (reply.xid, reply.err, reply.body) == (XID_SET_WATCHES, OK, b"")
    assert [(e.kind, e.path) for e in events if isinstance(e, Event)] == [
        (CHANGED, "/changed"),
        (DELETED, "/gone"),
        (CREATED, "/born"),
        (CHILDREN, "/family"),
        (DELETED, "/lost"),
    ], "a new child is no change of data, and new data no change of children"
    assert {(e.state, e.zxid) for e in events if isinstance(e, Event)} == {(SYNC_CONNECTED, -1)}, (
        "no zxid is known"
    )
    again.say(
        set_data("/same"),
        set_data("/changed"),
        create("/unborn"),
        create("/quiet/child"),
        set_data("/family"),
        delete("/family/child"),
    )
    server.settle()
    assert again.events() == [
        (CHANGED, "/same"),
        (CREATED, "/unborn"),
        (CHILDREN, "/quiet"),
        (CHANGED, "/family"),
    ], "what was not missed is armed, what was told is spent"


def test_persistent_watches_are_armed_again_without_catching_up(server: Server, client: Peer) -> None:
    """Trap 9: setWatches2 tells nothing of the past to watches that last; from then on they are told."""
    (seen,) = server.done(client, create("/a"))
    server.done(client, set_data("/a"), create("/a/b"), create("/b"))
    again = server.peer(connect_bytes(session=client.session, password=client.password, last_zxid=seen.zxid))
    again.say(set_watches2(seen.zxid, data=["/b"], persistent=["/a", "/none"], recursive=["/a", "/b"]))
    server.settle()
    *events, reply = again.take()
    assert [(e.kind, e.path) for e in events if isinstance(e, Event)] == [(CHANGED, "/b")], (
        "a plain one is told"
    )
    assert isinstance(reply, Answer)
    assert (reply.xid, reply.err) == (XID_SET_WATCHES, OK)
    again.say(set_data("/a"), set_data("/a"), create("/none"), delete("/a/b"))
    server.settle()
    assert again.events() == [
        (CHANGED, "/a"),
        (CHANGED, "/a"),
        (CREATED, "/none"),
        (DELETED, "/a/b"),
        (CHILDREN, "/a"),
    ]


def test_recursive_watch_hears_of_all_descendants_and_never_of_children(server: Server, client: Peer) -> None:
    """Trap 10: created, deleted and changed at and below the path, also what did not exist yet; no type 4."""
    server.done(client, add_watch("/a", RECURSIVE))
    client.say(create("/a"), create("/a/b"), create("/a/b/c"), set_data("/a/b/c"), delete("/a/b/c"))
    client.say(create("/ab"), set_data("/a"), delete("/a/b"), delete("/a"))
    server.settle()
    assert client.events() == [
        (CREATED, "/a"),
        (CREATED, "/a/b"),
        (CREATED, "/a/b/c"),
        (CHANGED, "/a/b/c"),
        (DELETED, "/a/b/c"),
        (CHANGED, "/a"),
        (DELETED, "/a/b"),
        (DELETED, "/a"),
    ], "and /ab is no descendant of /a"


def test_addwatch_answers_4_bytes_and_removewatches_none(server: Server, client: Peer) -> None:
    """Trap 13: the body of addWatch is an error code of 0; a reply header has 16 bytes."""
    answers = server.ask(client, add_watch("/none", PERSISTENT), add_watch("/none", RECURSIVE))
    assert [(a.err, a.body) for a in answers] == [(OK, b"\0\0\0\0")] * 2, "the znode need not exist"
    (removed,) = server.ask(client, remove_watches("/none", ANY_WATCH))
    assert (removed.err, removed.body) == (OK, b"")
    assert client.frame_sizes == [20, 20, 16]
    (nothing_left,) = server.ask(client, remove_watches("/none", ANY_WATCH))
    assert (nothing_left.err, nothing_left.body) == (-121, b"")
    server.ask(client, create("/none"))
    assert client.events() == []
    assert server.one(client, Ask(ADD_WATCH, add_watch("/a", 2).body)).err == -5, "there are two modes"


def test_events_are_kept_from_who_may_not_read(server: Server, client: Peer) -> None:
    """Trap 15: READ is looked at when the event happens, on the znode's ACL, and on the parent's for children."""
    owner = server.peer()
    server.done(owner, auth("digest", b"bob:secret"))
    hidden = ((31, "auth", ""),)
    open_to_read = (*hidden, (R, "world", "anyone"))
    server.done(owner, create("/dir", acl=open_to_read), create("/dir/a", acl=open_to_read))
    server.done(client, get_data("/dir/a", watch=True), get_children("/dir", watch=True))
    server.done(client, add_watch("/dir", RECURSIVE))

    server.done(owner, set_acl("/dir/a", hidden), set_data("/dir/a"))
    assert client.events() == [], "it may not read any more"
    server.done(owner, set_acl("/dir/a", open_to_read), set_data("/dir/a"))
    assert client.events() == [(CHANGED, "/dir/a")], "the lasting watch was only silent"
    server.done(owner, create("/dir/b", acl=hidden))
    assert client.events() == [(CHILDREN, "/dir")], "the parent's ACL decides, so the name's existence shows"
    server.done(client, get_children("/dir", watch=True))
    server.done(owner, set_acl("/dir", hidden), set_acl("/dir/a", hidden), delete("/dir/a"), delete("/dir/b"))
    assert client.events() == []
    server.done(client, auth("digest", b"bob:secret"))
    server.done(owner, set_data("/dir"))
    assert client.events() == [(CHANGED, "/dir")], "whoever proves the right is told from then on"
