"""What a running driver's values look like to operators."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from attrs import evolve

from tests.unit.server.test_driver import Client, Place
from zraft.admin.commands import COMMAND_NAMES, run_command
from zraft.admin.metrics import families
from zraft.admin.summary import summary
from zraft.config.server import ServerConfig
from zraft.groups.server_statistics import ProcessStatistics
from zraft.monitoring.four_letter import answer
from zraft.monitoring.statistics import ServerMode
from zraft.raft.messages import AppendEntriesReply, HeartbeatReply, PreVoteReply, RequestVoteReply
from zraft.raft.role import Role
from zraft.server.operators.report import ServerReport
from zraft.server.operators.status import PartitionsStatus
from zraft_core.address import Address
from zraft_core.ids import COORDINATION_GROUP, ServerId
from zraft_core.wire.framing import FOUR_LETTER_WORDS
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import CREATE, FLAG_EPHEMERAL, SET_DATA

WALL = 1_795_294_432_000


class Watched:
    """A server that is alone, one client with an ephemeral and watches, and the report on both."""

    def __init__(self, data: Path, *peers: int) -> None:
        self.place = Place(*peers)
        self.process = ProcessStatistics()
        here = Address("127.0.0.1", 2181)
        self.report = ServerReport(
            driver=self.place.driver,
            config=ServerConfig(
                id=ServerId(1),
                data=data,
                address=here,
                cluster={ServerId(n): Address("127.0.0.1", 2180 + n) for n in peers},
                insecure_peers=len(peers) > 1,
            ),
            process=self.process,
            started_ms=0,
            listen_backlog=9,
            now=lambda: self.place.now,
            wall_now=lambda: WALL + self.place.now,
            traffic=lambda: None,
            further_metrics=dict,
            certificate_ends_s=lambda: None,
            partitions=PartitionsStatus,
        )

    def lead(self) -> Client:
        self.place.turns(2_000)
        client = Client(self.place)
        for request in (
            client.codec.write((CREATE, "/e", b"x", None, FLAG_EPHEMERAL, 0)),
            client.codec.write((CREATE, "/p", b"", None, 0, 0)),
        ):
            client.connection.data_received(request[1])
            self.place.turns(50)
        for opcode, path in (
            (Opcode.EXISTS, "/none"),
            (Opcode.GET_DATA, "/p"),
            (Opcode.GET_CHILDREN, "/p"),
        ):
            client.connection.data_received(client.codec.read(opcode, path, watch=True)[1])
        self.place.turns(50)
        return client


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    (tmp_path / "meta").write_bytes(b"m" * 10)
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal" / "segment").write_bytes(b"s" * 90)
    return Watched(tmp_path, 1)


def test_before_it_serves_a_server_has_no_numbers_but_reasons(watched: Watched) -> None:
    report = watched.report
    assert report.server() is None
    status = report.status()
    assert not status.ready
    assert status.raft is None
    assert status.reasons == ("the cluster is not founded yet: more of its servers must be reachable",)
    watched.lead()
    assert report.status().ready
    assert report.status().reasons == ()


def test_a_server_without_its_peers_says_what_it_misses(tmp_path: Path) -> None:
    one_of_three = Watched(tmp_path, 1, 2, 3)
    one_of_three.place.turns(1_000)
    status = one_of_three.report.status()
    assert status.reasons == ("no leader is known: a majority of the servers must be reachable",)
    assert status.raft is not None
    assert status.raft.campaigns_total > 0 or status.raft.role == "pre-candidate"
    assert [(m.server, m.is_me, m.leads) for m in status.members] == [
        *((1, True, False), (2, False, False), (3, False, False))
    ]


def test_a_leader_tells_how_long_it_has_heard_nothing_of_each_follower(tmp_path: Path) -> None:
    """By the answers of this leadership; of who gave none yet since it began."""
    one_of_three = Watched(tmp_path, 1, 2, 3)
    place = one_of_three.place
    while place.driver.role is not Role.LEADER:
        assert place.now < 10_000
        place.turn(10)
        term = place.driver.raft.term if place.driver.raft is not None else 0
        place.hear(2, PreVoteReply(COORDINATION_GROUP, term + 1, True))
        place.hear(2, RequestVoteReply(COORDINATION_GROUP, term, True))
    raft = place.driver.raft
    assert raft is not None
    place.turn()
    place.hear(2, AppendEntriesReply(COORDINATION_GROUP, raft.term, True, raft.log.last_index))
    place.turn()
    silent = {m.server: m.silent_ms for m in one_of_three.report.status().members}
    assert silent == {1: None, 2: 0, 3: 0}
    place.turns(200)
    place.hear(2, HeartbeatReply(COORDINATION_GROUP, raft.term, 1, raft.log.last_index))
    place.turns(100)
    silent = {m.server: m.silent_ms for m in one_of_three.report.status().members}
    assert silent == {1: None, 2: 100, 3: place.driver.coordination.leader_uptime_ms}
    assert place.driver.coordination.leader_uptime_ms > 200


def test_a_full_disk_makes_a_server_unready(watched: Watched) -> None:
    watched.lead()
    watched.process.disk_full = True
    assert watched.report.status().reasons == (
        "the disk is full: no write is acknowledged until there is room",
    )


def test_a_server_that_was_asked_to_stop_is_not_ready_for_new_clients(watched: Watched) -> None:
    """While it hands its leadership over and its clients go: balancers must not send it others."""
    watched.lead()
    watched.process.leaving = True
    [reason] = watched.report.status().reasons
    assert reason.startswith("this server was asked to stop")


def test_a_server_that_lost_contact_says_so(watched: Watched) -> None:
    watched.lead()
    watched.place.driver.coordination.contact._touches.contact = -(10**9)
    [reason] = watched.report.status().reasons
    assert reason == "no contact with a quorum through leader 1 for too long"


def test_the_numbers_are_those_of_the_tree_and_the_clients(watched: Watched) -> None:
    watched.lead()
    statistics = watched.report.server()
    assert statistics is not None
    assert statistics.mode is ServerMode.STANDALONE
    assert (statistics.node_count, statistics.ephemerals_count, statistics.watch_count) == (7, 1, 3)
    assert (statistics.connection_count, statistics.global_sessions, statistics.received) == (1, 1, 5)
    assert (
        statistics.metrics["cnt_updatelatency"] == 3
    )  # the session and two creates, not the server's own register
    assert statistics.metrics["cnt_readlatency"] == 3
    watched.report.reset_server()
    again = watched.report.server()
    assert again is not None
    assert (again.received, again.sent, again.latency_max_ms) == (0, 0, 0)
    assert again.metrics["cnt_updatelatency"] == 0


def test_a_connection_is_shown_with_its_session(watched: Watched) -> None:
    client = watched.lead()
    [shown] = watched.report.connections().items
    assert (shown.address, shown.received, shown.sent, shown.queued) == ("127.0.0.1:1", 5, 6, 0)
    assert shown.session is not None
    assert shown.session.session == client.connection.session
    assert (shown.session.last_operation, shown.session.last_cxid) == ("GETC", 5)
    assert shown.session.last_zxid == watched.place.driver.machine.last_zxid
    assert shown.session.established_ms == WALL + 2_000
    watched.report.reset_connections()
    [reset] = watched.report.connections().items
    assert (reset.received, reset.sent) == (0, 0)


def test_dump_shows_when_a_silent_session_ends(watched: Watched) -> None:
    client = watched.lead()
    session = client.connection.session
    dump = watched.report.dump()
    assert dump.expiries is not None
    [(at, sessions)] = dump.expiries.by_time
    timeout_ms, tick_ms = 6_000, 2_000
    silent_at = WALL + watched.place.now + timeout_ms + tick_ms
    assert sessions == (session,)
    assert at % tick_ms == 0
    assert silent_at - 500 <= at <= silent_at + tick_ms
    assert dump.ephemerals.items == ((session, ("/e",)),)
    [(_, connections)] = dump.connections
    assert connections == (("127.0.0.1:1", session),)


def test_watches_are_shown_by_session_and_by_path(watched: Watched) -> None:
    session = watched.lead().connection.session
    summary_ = watched.report.watch_summary()
    assert (summary_.connections, summary_.paths, summary_.watches) == (1, 2, 3)
    [(found, paths)] = watched.report.watches_by_session().items
    assert (found, sorted(paths)) == (session, ["/none", "/p"])
    assert dict(watched.report.watches_by_path().items) == {"/none": (session,), "/p": (session,)}


def test_lists_end_at_their_bound_and_know_how_many_there_are(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = watched.lead()
    monkeypatch.setattr("zraft.server.operators.report.LISTED_MAX", 1)
    Client(watched.place)
    report = watched.report
    assert (len(report.connections().items), report.connections().total) == (1, 2)
    assert sum(len(paths) for _, paths in report.watches_by_session().items) == 1
    assert report.watches_by_session().left_out > 0
    assert report.watches_by_path().left_out > 0
    client.connection.data_received(client.codec.write((CREATE, "/e2", b"", None, FLAG_EPHEMERAL, 0))[1])
    watched.place.turns(50)
    dump = report.dump()
    assert dump.ephemerals.total - sum(len(paths) for _, paths in dump.ephemerals.items) == 1
    assert dump.expiries is not None
    assert (sum(len(ids) for _, ids in dump.expiries.by_time), dump.expiries.total) == (1, 2)
    assert dump.connection_count == 2


def test_the_room_is_that_of_the_data_directorys_file_system(watched: Watched, tmp_path: Path) -> None:
    status = watched.report.status()
    found = shutil.disk_usage(tmp_path)
    assert status.data_size_bytes == found.total
    assert 0 < status.data_free_bytes < found.total


def test_sizes_are_those_of_the_files(watched: Watched) -> None:
    configuration = watched.report.configuration()
    assert (configuration.data_size, configuration.log_size) == (100, 90)


def test_a_digest_that_would_stop_the_loop_is_not_computed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.lead()
    found = watched.report.digest()
    assert found is not None
    assert found == (watched.place.driver.machine.last_zxid, f"{watched.place.driver.machine.digest():032x}")
    monkeypatch.setattr("zraft.server.operators.report.DIGEST_ITEMS_MAX", -1)
    assert watched.report.digest() is None
    statistics = watched.report.server()
    assert statistics is not None
    assert "state_digest_pending" in statistics.metrics


@pytest.mark.parametrize("leading", [True, False])
def test_every_word_command_metric_and_the_page_have_an_answer(watched: Watched, leading: bool) -> None:
    if leading:
        client = watched.lead()
        client.connection.data_received(client.codec.write((SET_DATA, "/p", b"y", -1))[1])
        watched.place.turns(50)
    for word in FOUR_LETTER_WORDS:
        answer(word, watched.report, FOUR_LETTER_WORDS, b"\0" * 8)
    for name in COMMAND_NAMES:
        assert run_command(name, watched.report, {})["command"] == name
    status = watched.report.status()
    assert len(list(families(status))) > (70 if leading else 30)
    assert summary(status)["ready"] is leading
    assert list(families(evolve(status, statistics=None)))
