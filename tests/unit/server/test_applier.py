"""The apply loop: whose results go where, who ends sessions, and which boots count (D-1, D-2, D-3, D-11)."""

from __future__ import annotations

import pytest

from tests.unit.server.native import NativeClient, started
from tests.unit.server.one_server import (
    BOOT,
    BOOT_ID,
    INSTANCE,
    ME,
    Client,
    OneServer,
    Reply,
    WatchEvent,
    create,
)
from zraft.groups.identity import CopiedDirectoryError
from zraft.server.clients import table as clients_module
from zraft.server.clients.table import TOLD_PER_PART
from zraft.server.coordination.expiry import SessionExpiry
from zraft.server.engine.applier import MEASURED_BYTES
from zraft.tree.node import Znode
from zraft_core.errors import Code
from zraft_core.wire.client_requests import AddWatch
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.events import AddWatchMode
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import (
    CLOSE_SESSION,
    CREATE_SESSION,
    DELETE,
    MULTI,
    REGISTER,
    SET_DATA,
    Command,
    pack_batch,
)

TIMEOUT_MS = 6_000


def _own(boot: int, seq: int, *commands: Command) -> bytes:
    """A batch of this directory, by whichever process."""
    return pack_batch(ME, INSTANCE, boot, seq, [(0, (), list(commands))])


class Pieces(OneServer):
    """Counts the turns between the pieces of an entry, and writes to clients in each."""

    pieces = 0

    def between_pieces(self) -> None:
        assert self.applier.halfway
        self.pieces += 1
        self.flush()


def test_the_time_of_a_large_entry_is_measured_and_that_of_a_small_one_is_not() -> None:
    server = OneServer()
    client = server.attached()
    server.applied.clear()
    client.send(client.codec.write(create("/small", b"x")))
    server.run()
    client.send(client.codec.write(create("/large", bytes(MEASURED_BYTES))))
    server.run()
    assert [(commands, took_s) for _, _, commands, took_s in server.applied] == [(1, 0), (1, 1)]


def _watching(server: OneServer, path: str, count: int) -> list[Client]:
    watchers = [server.attached() for _ in range(count)]
    for one in watchers:
        one.send(one.codec.ask(AddWatch(path, AddWatchMode.PERSISTENT_RECURSIVE)))
    server.run()
    for one in watchers:
        one.take()
    return watchers


def test_an_entry_of_which_many_are_told_is_applied_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients watch what is written, the loop comes round in between; each is told all, in order."""
    monkeypatch.setattr(clients_module, "TOLD_PER_TURN_MAX", 10)
    server = Pieces()
    watchers = _watching(server, "/", 5)
    writer = server.attached()
    writer.send(*[writer.codec.write(create(f"/{n}")) for n in range(20)])
    server.run()
    assert server.pieces == 20 * 5 // 10
    assert not server.applier.halfway
    paths = [f"/{n}" for n in range(20)]
    assert [reply.value for reply in writer.replies()] == paths
    for one in watchers:
        events = [event for event in one.take() if isinstance(event, WatchEvent)]
        assert [event.path for event in events] == paths
        assert [event.zxid for event in events] == sorted(event.zxid for event in events)


def test_between_pieces_a_client_reads_what_was_applied_and_no_result_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An event precedes the answer that shows its change, also in the middle of an entry (D-15)."""
    monkeypatch.setattr(clients_module, "TOLD_PER_TURN_MAX", 1)
    seen: list[tuple[int, int]] = []

    class Reading(Pieces):
        def between_pieces(self) -> None:
            super().between_pieces()
            (watcher,) = watchers
            watcher.send(watcher.codec.read(Opcode.GET_CHILDREN, "/"))
            self.flush()
            received = watcher.take()
            told.extend(one.path for one in received if isinstance(one, WatchEvent))
            (listed,) = [one.value for one in received if isinstance(one, Reply)]
            assert set(told) == {f"/{name}" for name in listed} - {"/zookeeper"}
            seen.append((len(told), self.machine.position))

    server = Reading()
    told: list[str] = []
    watchers = _watching(server, "/", 1)
    writer, leaver = server.attached(), server.attached()
    writer.send(*[writer.codec.write(create(f"/w{n}")) for n in range(4)])
    leaver.send(*[leaver.codec.write(create(f"/l{n}")) for n in range(4)])
    server.clients.close(leaver.connection)
    server.run()
    assert [count for count, _ in seen] == list(range(1, 9))
    assert [reply.code for reply in writer.replies()] == [Code.OK] * 4
    assert leaver.replies() == []


def test_a_watch_that_is_set_between_two_commands_of_an_entry_is_told_of_the_second() -> None:
    """Nobody watched anything when the entry began; the first command's client reads before the second one is executed."""
    server = OneServer()
    watcher, writer = server.attached(), server.attached()
    watcher.send(watcher.codec.write(create("/a")), watcher.codec.read(Opcode.GET_DATA, "/a", watch=True))
    writer.send(writer.codec.write((SET_DATA, "/a", b"x", -1)))
    before = server.index
    server.run()
    assert server.index == before + 1, "all of it is one entry, or this test shows nothing"
    assert [one.path for one in watcher.take() if isinstance(one, WatchEvent)] == ["/a"]


def test_nobody_is_looked_for_while_nobody_follows_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    server = OneServer()
    writer = server.attached()
    monkeypatch.setattr(server.clients, "publish", lambda *_: pytest.fail("there is nobody to be told"))
    writer.send(writer.codec.write(create("/a")), writer.codec.write((SET_DATA, "/a", b"x", -1)))
    writer.send(writer.codec.write((DELETE, "/a", -1)))
    server.other_server((0, [(REGISTER, b"theirs")]))
    server.run()
    assert [reply.code for reply in writer.replies()] == [Code.OK] * 3


def test_a_later_boot_of_this_directory_ends_this_process() -> None:
    """D-1: it has forgotten what the other one did."""
    server = OneServer()
    server.log.append(_own(BOOT + 1, 1, (REGISTER, b"somebody")))
    with pytest.raises(CopiedDirectoryError, match=f"registered boot {BOOT + 1}"):
        server.apply()


def test_the_same_boot_registered_by_another_process_ends_this_one() -> None:
    """D-1: two processes started from one copy have the same boot number, but not the same random boot id."""
    server = OneServer()
    server.log.append(_own(BOOT, 1, (REGISTER, b"somebody")))
    with pytest.raises(CopiedDirectoryError, match=f"this process is boot {BOOT}"):
        server.apply()


def test_earlier_boots_and_this_one_are_no_reason_to_end() -> None:
    server = OneServer()
    server.log += [_own(BOOT - 1, 1, (REGISTER, b"before")), _own(BOOT, 1, (REGISTER, BOOT_ID))]
    server.apply()
    row = server.machine.rows[ME, INSTANCE]
    assert (row.boot, row.seq, row.boot_id) == (BOOT, 1, BOOT_ID)


def test_a_late_batch_of_an_older_boot_is_skipped_whole() -> None:
    """D-3: server 2, boot 7, sends (7, 12) and restarts as boot 8; the session resumes; then (7, 12) comes."""
    server = OneServer()
    server.log += [
        _own(BOOT - 1, 1, (CREATE_SESSION, TIMEOUT_MS, b"p" * 16)),
        _own(BOOT, 1, (REGISTER, BOOT_ID)),
    ]
    server.apply()
    (session,) = server.machine.sessions
    zxid = server.machine.last_zxid
    late = pack_batch(ME, INSTANCE, BOOT - 1, 2, [(session, (), [create("/late")])])
    server.log.append(late)
    server.apply()
    assert "/late" not in server.machine.nodes
    assert server.machine.last_zxid == zxid, "skipped commands take no zxid (D-15)"


def test_a_batch_committed_twice_is_executed_once() -> None:
    """D-2: repeated to a new leader that had it already; its client is answered once."""
    server = OneServer()
    client = server.attached()
    client.send(client.codec.write(create("/once-", b"")))
    server.propose()
    server.log *= 2
    server.apply()
    server.flush()
    assert [r.value for r in client.replies()] == ["/once-"]
    server.run()
    assert client.take() == []


def test_results_of_a_client_that_left_go_to_nobody_and_the_rest_in_order() -> None:
    server = OneServer()
    gone, stays = server.attached(), server.attached()
    gone.send(gone.codec.write(create("/gone")))
    stays.send(stays.codec.write(create("/stays")))
    gone.connection.connection_lost()
    server.run()
    assert "/gone" in server.machine.nodes
    assert [r.value for r in stays.replies()] == ["/stays"]
    assert gone.take() == []


def test_writes_of_another_server_fire_watches_here() -> None:
    server = OneServer()
    client = server.attached()
    client.send(client.codec.read(Opcode.GET_CHILDREN, "/", watch=True))
    server.other_server((0, [(CREATE_SESSION, TIMEOUT_MS, b"q" * 16)]))
    server.apply()
    other = next(s for s in server.machine.sessions if s != client.session)
    server.other_server((other, [create("/theirs")]))
    server.apply()
    server.flush()
    assert client.take()[-1].path == "/"  # type: ignore[union-attr]


def _leader() -> tuple[OneServer, SessionExpiry]:
    server = OneServer()
    expiry = server.applier.expiry = SessionExpiry(2_000)
    return server, expiry


def _other_session(server: OneServer) -> int:
    before = set(server.machine.sessions)
    server.other_server((0, [(CREATE_SESSION, TIMEOUT_MS, b"q" * 16)]))
    server.apply()
    (session,) = set(server.machine.sessions) - before
    return session


def _aged(expiry: SessionExpiry, server: OneServer) -> bool:
    return expiry.wants_round(server.machine.sessions, 1)


@pytest.mark.parametrize("how", ["own", "other"])
def test_logged_writes_and_attaches_are_touches(how: str) -> None:
    """D-11, wherever the client is connected."""
    server, expiry = _leader()
    if how == "own":
        client = server.attached()
        session = client.session
    else:
        session = _other_session(server)
    assert not _aged(expiry, server)
    expiry.advance(7_000)
    if how == "own":
        client.send(client.codec.write(create("/a")))
        server.run()
    else:
        server.other_server((session, [create("/a")]))
        server.apply()
    expiry.advance(7_000)
    assert not _aged(expiry, server)
    expiry.advance(1_000)
    assert _aged(expiry, server)


@pytest.mark.parametrize("how", ["own", "other"])
def test_the_leader_keeps_nothing_of_a_session_that_was_closed(how: str) -> None:
    server, expiry = _leader()
    if how == "own":
        client = server.attached()
        client.send(client.codec.write((CLOSE_SESSION,)))
        server.run()
    else:
        server.other_server((_other_session(server), [(CLOSE_SESSION,)]))
        server.apply()
    assert server.machine.sessions == {}
    assert expiry._touched == {}


def test_a_write_behind_the_end_of_its_session_is_no_touch() -> None:
    server, expiry = _leader()
    session = _other_session(server)
    server.other_server((session, [(CLOSE_SESSION,)]), (session, [create("/late")]))
    server.apply()
    assert expiry._touched == {}
    assert "/late" not in server.machine.nodes


@pytest.mark.parametrize(("also_log", "pieces"), [(False, 0), (True, 20)])
def test_what_a_client_is_told_before_an_event_counts_for_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, also_log: bool, pieces: int
) -> None:
    """A part of each other subscription before every event: two hundred such clients held up a server for 0.2 s."""
    monkeypatch.setattr(clients_module, "TOLD_PER_TURN_MAX", TOLD_PER_PART)
    server = started()
    client, writer = NativeClient(server), NativeClient(server, 2)
    writer.ask({"type": "create", "path": "/log", "data": b""})
    client.ask({"type": "subscribe", "path": "/log", "recursive": True})
    if also_log:
        client.ask({"type": "subscribe", "log": "/log", "prefix": "e-", "first": 0, "credit": 1 << 20})
    writer.send(*[{"type": "create", "path": "/log/e-", "data": b"", "flags": 2} for _ in range(20)])
    found, told = 0, 0
    while told < 20:
        assert found < 100
        server.turn()
        found += server.driver.applier.halfway
        told += sum(one["type"] == "event" and one["path"] != "/log" for one in client.taken())
    assert found == pieces


def test_results_of_a_multi_are_made_only_for_a_client_of_this_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Znode] = []
    stat = Znode.stat

    def noted(node: Znode) -> Stat:
        made.append(node)
        return stat(node)

    monkeypatch.setattr(Znode, "stat", noted)
    server = OneServer()
    server.other_server((0, [(CREATE_SESSION, TIMEOUT_MS, b"q" * 16)]))
    server.run()
    (other,) = server.machine.sessions
    multi = (MULTI, (create("/a"), (SET_DATA, "/a", b"1", 0)))
    server.other_server((other, [multi]))
    server.run()
    assert "/a" in server.machine.nodes
    assert not made
    client = server.attached()
    client.send(client.codec.write((MULTI, ((DELETE, "/a", -1), create("/b"), create("/b/c")))))
    server.run()
    assert "/b/c" in server.machine.nodes
    assert len(made) == 2, "a created znode each"
