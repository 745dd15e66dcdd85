"""What one client is told, in which order, and what closes its connection."""

from __future__ import annotations

import struct

import pytest

from tests.so_far import so_far
from tests.unit.server.one_server import OneServer, create
from zraft.server.clients.connection import BACKLOG_BYTES_MAX, SUBMIT_BYTES_MAX
from zraft.server.coordination.origin import OriginSettings
from zraft_core.errors import Code
from zraft_core.wire.client import Pong, Reply, WatchEvent
from zraft_core.wire.connect import ConnectResponse
from zraft_core.wire.events import EventType
from zraft_core.wire.framing import frame
from zraft_core.wire.opcodes import Opcode
from zraft_core.wire.requests import SetWatches
from zraft_core.znodes.txn import CLOSE_SESSION, DELETE, MULTI, SET_DATA


def test_a_write_is_answered_when_it_is_applied_and_not_before() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/a")))
    server.propose()
    server.flush()
    assert client.take() == []
    server.apply()
    server.flush()
    assert [(r.code, r.value) for r in client.replies()] == [(Code.OK, "/a")]


def test_reads_wait_for_own_writes() -> None:
    """A client reads its own writes, also on a follower, because what stands behind a write waits with it."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/a", b"1")), client.codec.read(Opcode.GET_DATA, "/a"))
    server.flush()
    assert client.take() == []
    server.run()
    first, second = client.replies()
    assert second.value[0] == b"1"
    assert (first.xid, second.xid) == (1, 2)


def test_a_read_between_two_writes_sees_the_first_and_not_the_second() -> None:
    """Both writes are in one entry; the answer is made between them."""
    server = OneServer()
    client = server.attached()
    client.send(
        client.codec.write(create("/a", b"1")),
        client.codec.read(Opcode.GET_DATA, "/a"),
        client.codec.write((SET_DATA, "/a", b"2", -1)),
        client.codec.read(Opcode.GET_DATA, "/a"),
    )
    server.run()
    assert [r.value[0] for r in client.replies()[1::2]] == [b"1", b"2"]


def test_a_read_with_nothing_before_it_is_answered_at_once() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.read(Opcode.EXISTS, "/none"))
    server.flush()
    assert [r.code for r in client.replies()] == [Code.NO_NODE]


def test_event_leaves_before_the_reply_of_the_write_that_caused_it() -> None:
    """D-15: who can read the new data must not still believe that its watch is unfired."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/a")), client.codec.read(Opcode.GET_DATA, "/a", watch=True))
    server.run()
    client.take()
    client.send(client.codec.write((SET_DATA, "/a", b"2", -1)))
    server.run()
    event, reply = client.take()
    assert isinstance(event, WatchEvent)
    assert isinstance(reply, Reply)
    assert (event.type, event.path, event.zxid) == (EventType.NODE_DATA_CHANGED, "/a", reply.zxid)


def test_replies_and_events_of_one_entry_leave_in_zxid_order() -> None:
    """D-15, with the writes of two clients and their watches in one entry."""
    server = OneServer()
    watcher, writer = server.attached(), server.attached()
    writer.send(writer.codec.write(create("/a")))
    server.run()
    watcher.send(watcher.codec.read(Opcode.GET_DATA, "/a", watch=True))
    writer.send(writer.codec.write((SET_DATA, "/a", b"1", -1)))
    watcher.send(watcher.codec.write(create("/b")))
    writer.send(writer.codec.write((SET_DATA, "/a", b"2", -1)))
    server.run()
    received = watcher.take()
    zxids = [one.zxid for one in received if not isinstance(one, ConnectResponse)]
    assert len(zxids) == len(received) == 3
    assert zxids == sorted(zxids)


def test_a_write_of_another_client_is_seen_by_a_watch_with_its_own_zxid() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.read(Opcode.EXISTS, "/later", watch=True))
    server.other_server((0, [(-10, 6_000, b"q" * 16)]))
    server.apply()
    other = next(s for s in server.machine.sessions if s != client.session)
    server.other_server((other, [create("/later")]))
    server.apply()
    server.flush()
    event = client.take()[-1]
    assert isinstance(event, WatchEvent)
    assert (event.type, event.zxid) == (EventType.NODE_CREATED, server.machine.last_zxid)


def test_ping_is_answered_while_the_origin_is_full() -> None:
    """D-2: at the bound requests are not taken, but the session must stay alive."""
    server = OneServer(origin=OriginSettings(unapplied_bytes_max=100))
    client = server.attached()
    client.send(client.codec.write(create("/a", bytes(200))))
    assert server.clients.turn.full
    client.send(client.codec.write(create("/b")), client.codec.ping())
    server.flush()
    assert [type(one) for one in client.take()] == [Pong]
    server.run()
    assert [r.value for r in client.replies()] == ["/a", "/b"]


def test_a_client_that_sends_on_while_the_origin_is_full_is_not_read_beyond_a_bound() -> None:
    server = OneServer(origin=OriginSettings(unapplied_bytes_max=100))
    client = server.attached()
    client.send(client.codec.write(create("/a", bytes(200))))
    sent = 0
    while so_far(client.connection.wants_read):
        assert sent < 2 * BACKLOG_BYTES_MAX, "the connection wants to read for ever"
        request = client.codec.write((SET_DATA, "/a", bytes(100_000), -1))
        client.send(request)
        sent += len(request[1])
    server.run()
    assert client.connection.wants_read
    assert {r.code for r in client.replies()} == {Code.OK}


def test_what_one_read_of_the_socket_brings_goes_to_the_origin_in_parts() -> None:
    """D-2: a run is never cut, so a part must be smaller than what one batch may carry."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/a")))
    server.run()
    requests = [client.codec.write((SET_DATA, "/a", bytes(60_000), -1)) for _ in range(20)]
    client.send(*requests)
    server.propose()
    assert server.log
    for _ in range(20):
        assert all(len(blob) <= 2 * SUBMIT_BYTES_MAX for blob in server.log)
        server.apply()
        server.propose()
    server.flush()
    assert [r.value.version for r in client.replies()[1:]] == list(range(1, 21))


def test_an_unknown_operation_is_answered_then_closed() -> None:
    """As ZooKeeper does; what the client sent behind it is not looked at."""
    server = OneServer()
    client = server.attached()
    unknown = frame(struct.pack(">ii", 1, 999))
    client.codec._pending.append((1, None))
    client.send(unknown, frame(struct.pack(">ii", 2, 5) + b"whatever"))
    server.run()
    assert [r.code for r in client.replies()] == [Code.UNIMPLEMENTED]
    assert client.closed
    assert server.origin.idle


def test_an_unknown_operation_behind_a_write_is_answered_in_its_turn() -> None:
    server = OneServer()
    client = server.attached()
    write = client.codec.write(create("/a"))
    client.codec._pending.append((2, None))
    client.send(write, frame(struct.pack(">ii", 2, 999)))
    server.run()
    assert [r.code for r in client.replies()] == [Code.OK, Code.UNIMPLEMENTED]
    assert client.closed


def test_a_body_that_does_not_follow_the_protocol_is_answered_in_its_turn() -> None:
    server = OneServer()
    client = server.attached()
    write = client.codec.write(create("/a"))
    malformed = client.codec._request(SET_DATA, struct.pack(">i", 1_000))
    client.send(write, malformed, client.codec.read(Opcode.EXISTS, "/a"))
    server.flush()
    assert client.take() == []
    server.run()
    assert [r.code for r in client.replies()] == [Code.OK, Code.MARSHALLING_ERROR, Code.OK]


def test_a_request_shorter_than_its_header_closes_the_connection() -> None:
    server = OneServer()
    client = server.attached()
    client.send(frame(b"1234567"))
    server.flush()
    assert client.closed
    assert client.take() == []
    assert "a request header has 8" in server.clients.refusals[0][1]


def test_a_frame_that_is_too_large_closes_the_connection_without_a_word() -> None:
    server = OneServer()
    client = server.attached()
    client.send(struct.pack(">i", 1 << 30))
    server.flush()
    assert client.closed
    assert client.take() == []


def test_bytes_that_are_no_connect_request_close_the_connection() -> None:
    server = OneServer()
    connection = server.clients.connect("127.0.0.1:9", ())
    assert connection is not None
    connection.data_received(frame(b"GET / HTTP/1.1"))
    assert [(c, close) for c, _, close in server.clients.flush(0)] == [(connection, True)]
    assert len(server.clients) == 0


def test_a_four_letter_word_is_answered_and_the_connection_closed() -> None:
    server = OneServer()
    connection = server.clients.connect("127.0.0.1:9", ())
    assert connection is not None
    connection.data_received(b"ru")
    connection.data_received(b"ok")
    assert server.clients.flush(0) == [(connection, b"ruok", True)]


def test_close_session_is_answered_then_the_connection_is_closed() -> None:
    server = OneServer()
    client = server.attached()
    client.send(
        client.codec.write(create("/mine", ephemeral=True)),
        client.codec.write((CLOSE_SESSION,)),
        client.codec.write(create("/too-late")),
    )
    server.run()
    assert [r.code for r in client.replies()] == [Code.OK, Code.OK]
    assert client.closed
    assert server.machine.sessions == {}
    assert "/mine" not in server.machine.nodes
    assert "/too-late" not in server.machine.nodes


def test_sync_waits_for_its_answer_and_what_stands_behind_it_waits_too() -> None:
    """Nothing behind a sync is even proposed before its answer, or the client would see zxids go back."""
    server = OneServer()
    client = server.attached()
    client.send(
        client.codec.sync("/"), client.codec.write(create("/a")), client.codec.read(Opcode.EXISTS, "/a")
    )
    server.run()
    assert client.take() == []
    assert server.clients.take_syncs() == [client.connection]
    client.connection.complete_sync()
    server.run()
    assert [(r.xid, r.code) for r in client.replies()] == [(1, Code.OK), (2, Code.OK), (3, Code.OK)]


def test_a_sync_behind_a_write_is_asked_for_at_once_and_answered_in_its_turn() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/a")), client.codec.sync("/a"), client.codec.write(create("/b")))
    (asking,) = server.clients.take_syncs()
    asking.complete_sync()
    server.flush()
    assert client.replies() == []
    server.run()
    server.run()
    first, sync, last = client.replies()
    assert [first.value, sync.value, last.value] == ["/a", "/a", "/b"]
    assert first.zxid == sync.zxid < last.zxid


def test_writes_and_syncs_of_a_pipeline_are_on_their_way_together() -> None:
    """They take two rounds: one for the first sync, one for all the writes, whose syncs wait for nothing else."""
    server = OneServer()
    client = server.attached()
    pairs = [(client.codec.sync("/"), client.codec.write(create(f"/n{number}"))) for number in range(10)]
    client.send(*(one for pair in pairs for one in pair))
    (asking,) = server.clients.take_syncs()
    asking.complete_sync()
    server.run()
    replies = client.replies()
    assert [r.xid for r in replies] == list(range(1, 21))
    assert [r.zxid for r in replies] == sorted(r.zxid for r in replies)


def test_syncs_among_large_reads_wait_until_the_client_takes_what_it_asked_for() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/large", data=bytes(900_000))))
    server.run()
    client.take()
    client.send(
        client.codec.sync("/"),
        client.codec.write(create("/a")),
        *(
            one
            for _ in range(20)
            for one in (client.codec.read(Opcode.GET_DATA, "/large"), client.codec.sync("/"))
        ),
    )
    (asking,) = server.clients.take_syncs()
    asking.complete_sync()
    xids: list[int] = []
    for _ in range(30):
        server.run()
        assert client.connection.out_bytes < 2_000_000
        xids += [r.xid for r in client.replies()]
    assert xids == list(range(2, 44))
    assert server.clients.take_syncs() == []


def test_one_question_to_the_leader_answers_all_syncs_that_had_come_by_then() -> None:
    """A pipeline of syncs and reads takes one round, not one for each sync."""
    server = OneServer()
    client = server.attached()
    client.send(
        *(client.codec.sync("/"), client.codec.read(Opcode.EXISTS, "/")),
        *(client.codec.sync("/"), client.codec.write(create("/a")), client.codec.sync("/a")),
    )
    (asking,) = server.clients.take_syncs()
    asking.complete_sync()
    server.run()
    assert server.clients.take_syncs() == []
    replies = client.replies()
    assert [r.xid for r in replies] == [1, 2, 3, 4, 5]
    assert [r.zxid for r in replies] == sorted(r.zxid for r in replies)
    assert replies[-1].zxid > replies[0].zxid, "the sync behind the write shows it"


def test_a_sync_that_came_after_the_question_to_the_leader_needs_one_of_its_own() -> None:
    """What another server acknowledged between the two would be missing from its answer."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.sync("/"), client.codec.sync("/"))
    (asking,) = server.clients.take_syncs()
    client.send(client.codec.read(Opcode.EXISTS, "/"), client.codec.sync("/"))
    asking.complete_sync()
    server.run()
    assert [r.xid for r in client.replies()] == [1, 2, 3]
    (asking,) = server.clients.take_syncs()
    asking.complete_sync()
    server.run()
    assert [r.xid for r in client.replies()] == [4]


def test_set_watches_tells_at_once_what_happened_meanwhile_and_arms_the_rest() -> None:
    """A client that reconnects names the last zxid it saw; events come before the answer."""
    server = OneServer()
    client = server.attached()
    client.send(*(client.codec.write(create(path)) for path in ("/changed", "/same", "/gone")))
    server.run()
    seen = client.replies()[-1].zxid
    client.send(
        client.codec.write((SET_DATA, "/changed", b"", -1)), client.codec.write((DELETE, "/gone", -1))
    )
    server.run()
    assert client.greeting is not None
    again = server.attached(session=client.session, password=client.greeting.password, last_zxid_seen=seen)
    again.send(again.codec.set_watches(SetWatches(seen, ("/changed", "/same", "/gone"), (), ())))
    server.flush()
    *events, reply = again.take()
    assert [(e.type, e.path) for e in events if isinstance(e, WatchEvent)] == [
        (EventType.NODE_DATA_CHANGED, "/changed"),
        (EventType.NODE_DELETED, "/gone"),
    ]
    assert isinstance(reply, Reply)
    assert reply.xid == -8
    again.send(again.codec.write((SET_DATA, "/same", b"", -1)))
    server.run()
    event = again.take()[0]
    assert isinstance(event, WatchEvent)
    assert event.path == "/same"


def test_a_failed_multi_is_answered_part_by_part() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write((MULTI, (create("/a"), (DELETE, "/none", -1), create("/b")))))
    server.run()
    (reply,) = client.replies()
    assert reply.value == (Code.OK, Code.NO_NODE, Code.RUNTIME_INCONSISTENCY)
    assert "/a" not in server.machine.nodes


def test_any_cut_of_the_stream_gives_the_same_answers() -> None:
    answers = []
    for step in (1, 7, 1_000):
        server = OneServer()
        client = server.attached()
        stream = b"".join(
            request[1]
            for request in (
                client.codec.write(create("/a", b"data")),
                client.codec.read(Opcode.GET_CHILDREN2, "/"),
                client.codec.write((SET_DATA, "/a", b"more", 0)),
                client.codec.read(Opcode.GET_DATA, "/a"),
            )
        )
        for start in range(0, len(stream), step):
            client.send(stream[start : start + step])
        server.run()
        answers.append([(r.xid, r.code) for r in client.replies()])
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 4


@pytest.mark.parametrize("opcode", [*(1 << bit for bit in range(10, 31)), 2**31 - 1, -(2**31)])
def test_no_opcode_of_a_client_passes_for_a_mark_of_the_servers_own_queue(opcode: int) -> None:
    """Found by fuzzing a live server: behind a write, opcode 2^20 was taken for one, and ended the process."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/a")), frame(struct.pack(">ii", 9, opcode) + b"body"))
    server.propose()
    server.apply()
    (output,) = [data for connection, data, _ in server.clients.flush(0) if connection is client.connection]
    assert output.endswith(struct.pack(">iiqi", 16, 9, -1, Code.UNIMPLEMENTED))
    assert client.connection.closing
