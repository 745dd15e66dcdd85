"""Who owns a session here, what may be said to whom, and when a server falls silent."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tests.so_far import so_far
from tests.unit.server.one_server import OTHER, TIMEOUT_MS, OneServer, create
from zraft.server.clients.connection import LARGE_BYTES, Phase
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.turn_share import REQUESTS_PER_TURN_MAX
from zraft.server.coordination.origin import OriginSettings
from zraft.tree.sessions.session import session_id_for
from zraft_core.ids import zxid_after
from zraft_core.wire.client import Pong, Reply, WatchEvent
from zraft_core.wire.jute import encode_ustring
from zraft_core.wire.opcodes import Opcode
from zraft_core.wire.requests import MULTI_END, MULTI_HEADER
from zraft_core.znodes.txn import SET_DATA

THIRD_MS = TIMEOUT_MS // 3


def test_a_session_is_created_through_the_log() -> None:
    server = OneServer()
    client = server.connect()
    server.flush()
    assert so_far(client.greeting) is None
    server.run()
    assert client.greeting is not None
    assert client.greeting.timeout_ms == TIMEOUT_MS
    assert list(server.machine.sessions) == [client.session]
    assert client.session >> 56 == 1, "the top byte is the server's"


def test_requests_sent_with_the_connect_request_are_answered_after_the_greeting() -> None:
    server = OneServer()
    probe = server.attached()
    client = server.connect(then=[probe.codec.write(create("/early"))[1], probe.codec.ping()])
    client.codec._pending.append(probe.codec._pending[-1])
    server.run()
    assert client.greeting is not None
    assert client.replies()[0].value == "/early"


def test_older_connection_is_closed_before_resume_is_queued() -> None:
    """D-3a: what the old connection still sends must not be applied behind the new one's attach."""
    server = OneServer()
    old = server.attached()
    assert old.greeting is not None
    new = server.connect(session=old.session, password=old.greeting.password)
    assert old.connection.phase is Phase.CLOSED
    old.send(old.codec.write(create("/from-the-past")))
    server.run()
    assert old.closed
    assert "/from-the-past" not in server.machine.nodes
    assert new.greeting is not None
    assert new.session == old.session


def test_writes_taken_before_the_resume_are_applied_before_it() -> None:
    """D-3: one order, the log's; their replies are lost with the old connection."""
    server = OneServer()
    old = server.attached()
    assert old.greeting is not None
    old.send(old.codec.write(create("/sent")))
    new = server.connect(
        session=old.session, password=old.greeting.password, then=[old.codec.read(Opcode.EXISTS, "/sent")[1]]
    )
    new.codec._pending.append(old.codec._pending[-1])
    server.run()
    assert old.take() == []
    assert new.replies()[0].value is not None


def test_two_resumes_of_one_session_leave_the_later_connection() -> None:
    server = OneServer()
    first = server.attached()
    assert first.greeting is not None
    how: dict[str, Any] = {"session": first.session, "password": first.greeting.password}
    second, third = server.connect(**how), server.connect(**how)
    server.run()
    assert second.closed
    assert second.greeting is None
    assert third.greeting is not None


def test_a_session_moved_elsewhere_closes_silently() -> None:
    """The error that says so is never sent: the client is at its new server already."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/behind-the-move")))
    server.moved(client)
    server.propose()
    server.apply()
    server.flush()
    assert client.closed
    assert client.take() == []
    assert "/behind-the-move" not in server.machine.nodes


def test_a_write_overtaken_by_a_move_is_not_applied_even_if_sent_again() -> None:
    """D-3: the owner of a session is a process, and this one is not it any more."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/lost")))
    server.moved(client)
    server.apply()
    server.run()
    assert "/lost" not in server.machine.nodes
    assert client.closed


def test_an_expired_session_is_closed_and_cannot_resume() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/mine", ephemeral=True)))
    server.run()
    client.take()
    server.expired(client)
    server.apply()
    server.flush()
    assert client.closed
    assert "/mine" not in server.machine.nodes
    assert client.greeting is not None
    again = server.connect(session=client.session, password=client.greeting.password)
    server.run()
    assert again.greeting is not None
    assert (again.greeting.session, again.greeting.timeout_ms) == (0, 0)
    assert again.closed


def test_a_wrong_password_does_not_disturb_the_session() -> None:
    server = OneServer()
    client = server.attached()
    thief = server.connect(session=client.session, password=b"x" * 16)
    server.run()
    assert thief.closed
    assert thief.greeting is not None
    assert thief.greeting.session == 0
    assert not client.closed
    client.send(client.codec.read(Opcode.EXISTS, "/"))
    server.flush()
    assert len(client.replies()) == 1


def test_a_wrong_password_for_a_session_not_yet_known_here_is_refused_by_the_log() -> None:
    server = OneServer()
    server.other_server((0, [(-10, TIMEOUT_MS, b"q" * 16)]))
    log, server.log = server.log, []
    unknown = session_id_for(OTHER, zxid_after(server.machine.last_zxid, 1))
    thief = server.connect(session=unknown, password=b"x" * 16)
    server.log = log
    server.run()
    assert unknown in server.machine.sessions
    assert thief.closed
    assert thief.greeting is not None
    assert thief.greeting.session == 0


def test_a_client_that_has_seen_more_than_this_server_is_sent_elsewhere() -> None:
    """It would see time go back; closing without a word makes it try the next server."""
    server = OneServer()
    client = server.connect(last_zxid_seen=server.machine.last_zxid + 1)
    server.run()
    assert client.closed
    assert client.greeting is None
    assert server.machine.sessions == {}


def test_nobody_is_attached_while_there_is_no_contact() -> None:
    """D-14."""
    server = OneServer()
    server.clients.availability.serving = False
    client = server.connect()
    server.run()
    assert client.closed
    assert server.machine.sessions == {}


def test_nothing_is_said_on_a_session_without_fresh_acknowledged_touch() -> None:
    """D-14: reply, ping answer and event alike; else a majority could expire a session just answered."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.read(Opcode.GET_CHILDREN, "/", watch=True))
    server.flush()
    client.take()
    server.advance(THIRD_MS + 1)
    other = server.attached()
    other.send(other.codec.write(create("/a")))
    server.run()
    client.send(client.codec.ping(), client.codec.read(Opcode.EXISTS, "/a"))
    server.flush()
    assert client.take() == []
    server.acknowledge_touches()
    server.flush()
    event, pong, reply = client.take()
    assert event.path == "/"  # type: ignore[union-attr]
    assert isinstance(pong, Pong)
    assert reply.value is not None  # type: ignore[union-attr]


def test_output_is_not_held_at_exactly_a_third_of_the_timeout() -> None:
    """D-14: older than a third, not as old: half a tick of reports must do for the shortest timeout."""
    server = OneServer()
    client = server.attached()
    server.advance(THIRD_MS)
    client.send(client.codec.ping())
    server.flush()
    assert [type(one) for one in client.take()] == [Pong]


def test_held_output_makes_a_report_leave_at_once() -> None:
    """D-14."""
    server = OneServer()
    client = server.attached()
    server.advance(THIRD_MS + 1)
    server.touches.make_reports(server.now)
    before = server.touches.due_at
    client.send(client.codec.ping())
    server.flush()
    assert server.touches.due_at < before


def test_an_applied_write_is_an_acknowledged_touch_of_the_moment_it_was_cut() -> None:
    """D-14: not of the moment it was applied, which may be much later."""
    server = OneServer()
    client = server.attached()
    server.advance(1_500)
    client.send(client.codec.write(create("/a")))
    server.propose()
    server.advance(1_000)
    server.apply()
    assert server.touches.age(client.session, server.now) == 1_000


def test_nothing_is_said_on_any_session_without_contact() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.ping())
    server.clients.availability.serving = False
    server.flush()
    assert client.take() == []
    server.clients.availability.serving = True
    server.flush()
    assert [type(one) for one in client.take()] == [Pong]


def test_giving_up_closes_sessions_but_not_four_letter_words() -> None:
    """D-14: operators ask most when nothing works."""
    server = OneServer()
    client, attaching = server.attached(), server.connect()
    asking = server.clients.connect("127.0.0.1:9", ())
    assert asking is not None
    server.clients.close_all()
    server.flush()
    assert client.closed
    assert attaching.closed
    asking.data_received(b"ruok")
    assert server.clients.flush(server.now) == [(asking, b"ruok", True)]


def test_connections_beyond_the_bound_are_refused() -> None:
    server = OneServer(clients=ClientSettings(connections_max=2))
    first = server.attached()
    server.attached()
    assert server.clients.connect("127.0.0.1:9", ()) is None
    first.connection.connection_lost()
    assert server.clients.connect("127.0.0.1:9", ()) is not None


def test_nothing_is_kept_of_a_client_that_left() -> None:
    server = OneServer()
    client = server.attached()
    client.send(
        client.codec.read(Opcode.EXISTS, "/a", watch=True),
        client.codec.write(create("/a")),
        client.codec.write((SET_DATA, "/a", b"", -1)),
    )
    server.propose()
    reports = server.touches.make_reports(server.now)
    client.connection.connection_lost()
    server.run()
    assert len(reports) == 1
    assert len(server.clients) == 0
    assert server.clients.watches.watch_count() == 0
    assert server.clients.sessions.timeout_ms_min is None
    assert "/a" in server.machine.nodes, "a write that was taken goes its way"
    assert server.touches._acked == {}
    assert server.touches._touched == {}


def test_a_resume_through_another_server_and_back_is_followed() -> None:
    server = OneServer()
    client = server.attached()
    assert client.greeting is not None
    server.moved(client)
    server.apply()
    back = server.attached(session=client.session, password=client.greeting.password)
    assert back.session == client.session
    assert server.machine.sessions[client.session].owner[0] == 1


def test_a_turn_takes_a_bounded_number_of_requests_and_the_rest_waits_in_order() -> None:
    """However many clients send at once, the loop comes round to heartbeats and pings in between."""
    server = OneServer()
    clients = [server.attached() for _ in range(3)]
    server.clients.begin_turn()
    each = REQUESTS_PER_TURN_MAX // 2
    for client in clients:
        client.send(*[client.codec.read(Opcode.EXISTS, "/none") for _ in range(each + 1)])
        client.send(*[client.codec.read(Opcode.EXISTS, "/") for _ in range(300)], client.codec.ping())
    server.flush()
    answered = [[one for one in client.take() if isinstance(one, Reply)] for client in clients]
    assert [len(replies) for replies in answered] == [each + 301, each + 1, 0]
    assert server.clients.wants_turn
    server.clients.begin_turn()
    server.flush()
    assert [len(client.replies()) for client in clients] == [0, 300, each + 301]
    assert not server.clients.wants_turn


def test_a_small_request_of_who_waits_for_nothing_is_answered_in_a_full_turn() -> None:
    """Else whoever asks for much makes everybody wait until all of it is answered."""
    server = OneServer()
    busy, idle = server.attached(), server.attached()
    server.clients.begin_turn()
    busy.send(*[busy.codec.read(Opcode.EXISTS, "/none") for _ in range(REQUESTS_PER_TURN_MAX)])
    assert server.clients.turn.full
    idle.send(idle.codec.read(Opcode.EXISTS, "/"))
    idle.send(idle.codec.write(create("/a")))
    server.propose()
    server.apply()
    server.flush()
    assert len(idle.replies()) == 2


def test_a_small_write_is_taken_although_the_origin_stream_is_full() -> None:
    server = OneServer(origin=OriginSettings(unapplied_bytes_max=1))
    busy, idle = server.attached(), server.attached()
    server.clients.begin_turn()
    busy.send(busy.codec.write(create("/a")), busy.codec.write(create("/b")))
    busy.send(busy.codec.write(create("/c")))
    assert server.clients.turn.full
    idle.send(idle.codec.write(create("/d")))
    server.propose()
    server.apply()
    server.flush()
    assert len(idle.replies()) == 1
    assert len(busy.replies()) == 2, "it waits for its own"


def test_pings_are_answered_although_the_turn_is_full() -> None:
    server = OneServer()
    busy, other = server.attached(), server.attached()
    server.clients.begin_turn()
    busy.send(*[busy.codec.read(Opcode.EXISTS, "/none") for _ in range(REQUESTS_PER_TURN_MAX)])
    other.send(*[other.codec.read(Opcode.EXISTS, "/") for _ in range(300)], other.codec.ping())
    server.flush()
    assert [type(one) for one in other.take()] == [Pong]


def test_a_long_backlog_is_taken_in_portions_without_changing_its_order() -> None:
    """A sync in the middle puts off what is behind it once more: that must come before what was not yet looked at."""
    server = OneServer()
    client = server.attached()
    server.clients.turn.taken = REQUESTS_PER_TURN_MAX
    client.send(
        *[client.codec.read(Opcode.EXISTS, "/none") for _ in range(10)],
        client.codec.sync("/"),
        *[client.codec.read(Opcode.EXISTS, "/none") for _ in range(REQUESTS_PER_TURN_MAX)],
        client.codec.write(create("/last")),
    )
    server.clients.begin_turn()
    for connection in server.clients.take_syncs():
        connection.complete_sync()
    for _ in range(3):
        server.run()
    replies = client.replies()
    assert [r.xid for r in replies] == list(range(1, REQUESTS_PER_TURN_MAX + 13))
    assert replies[-1].value == "/last"


def test_a_turn_is_shared_among_those_who_wait_for_it() -> None:
    """Each took all that it had asked for, so the last of five hundred clients waited for forty turns."""
    server = OneServer()
    greedy, modest = [server.attached() for _ in range(200)], server.attached()
    server.clients.turn.taken = 2 * REQUESTS_PER_TURN_MAX
    for client in greedy:
        client.send(*[client.codec.read(Opcode.EXISTS, f"/{n}") for n in range(100)])
    modest.send(modest.codec.read(Opcode.EXISTS, "/"))
    server.clients.begin_turn()
    server.flush()
    assert len(modest.replies()) == 1
    replies = [client.replies() for client in greedy]
    assert max(map(len, replies)) <= 2 * min(map(len, replies))
    turns = 1
    while min(map(len, replies)) < 100:
        assert server.clients.wants_turn
        server.clients.begin_turn()
        server.flush()
        turns += 1
        for client, seen in zip(greedy, replies, strict=True):
            seen += client.replies()
    assert turns == 5, "each turn is full"
    assert all([reply.xid for reply in seen] == list(range(1, 101)) for seen in replies)


def test_what_a_connection_is_told_in_a_turn_is_one_list_in_the_order_of_zxids() -> None:
    """D-15: events stand before the reply of the same zxid, large answers where they belong."""
    server = OneServer()
    clients = [server.attached() for _ in range(3)]
    clients[0].send(clients[0].codec.write(create("/large", bytes(LARGE_BYTES))))
    server.run()
    for one in clients:
        one.send(*[one.codec.read(Opcode.EXISTS, f"/{n}", watch=True) for n in range(12)])
        server.flush()
        one.take()
    for n, one in enumerate(clients * 4):
        one.send(one.codec.write(create(f"/{n}")), one.codec.read(Opcode.GET_DATA, "/large"))
    server.propose()
    server.apply()
    outputs = server.clients.flush(server.now)
    assert len(outputs) > len(clients), "large data are parts of their own"
    assert len(list(groupby(outputs, key=lambda output: output[0]))) == len(clients)
    for connection, data, close in outputs:
        connection.handle.feed(data, close=close)
    for one in clients:
        received = one.take()
        assert sum(isinstance(part, WatchEvent) for part in received) == 12
        order = [
            (part.zxid, isinstance(part, Reply)) for part in received if isinstance(part, WatchEvent | Reply)
        ]
        assert order == sorted(order)


def test_who_asks_for_little_does_not_wait_for_all_who_ask_for_much() -> None:
    """Sixteen requests of a megabyte took a turn each, and everybody behind them waited for sixteen turns."""
    server = OneServer()
    greedy = [server.attached() for _ in range(16)]
    modest = server.attached()
    part = MULTI_HEADER.pack(Opcode.GET_DATA, 0, -1) + encode_ustring("/none") + b"\x00"
    many = part * 20_000 + MULTI_END
    server.clients.turn.taken = 2 * REQUESTS_PER_TURN_MAX
    for client in greedy:
        client.send(*[client.codec._request(Opcode.MULTI_READ, many, lambda _: None) for _ in range(4)])
    modest.send(modest.codec.read(Opcode.EXISTS, "/"))
    server.clients.begin_turn()
    server.flush()
    assert len(modest.replies()) == 1
    answered = []
    for _ in range(8):
        modest.send(*[modest.codec.read(Opcode.EXISTS, "/none") for _ in range(REQUESTS_PER_TURN_MAX)])
        server.clients.begin_turn()
        server.flush()
        answered.append(sum(len(client.replies()) for client in greedy))
    assert sum(answered) >= 4, "nor does who asks for much wait for ever"
