"""The texts of the four-letter words, exactly: they are parsed by tools that nobody will change for us."""

from __future__ import annotations

import pytest
from attrs import evolve

from zraft import __version__
from zraft.wire.four_letter import (
    ANSWERED_WORDS,
    ConnectionStatistics,
    LeaderStatistics,
    Mode,
    ServerStatistics,
    answer,
)
from zraft.wire.framing import FOUR_LETTER_WORDS

VERSION = f"3.9.5-zraft-{__version__}, built on 2026-08-01 12:00 UTC"

FOLLOWER = ServerStatistics(
    built_on="2026-08-01 12:00 UTC",
    mode=Mode.FOLLOWER,
    latency_min_ms=0,
    latency_avg_ms=0.123456,
    latency_max_ms=17,
    received=101,
    sent=102,
    connections=(
        ConnectionStatistics("127.0.0.1:40001", queued=0, received=1, sent=0),
        ConnectionStatistics("[::1]:40002", queued=3, received=20, sent=19),
    ),
    outstanding=4,
    zxid=0x500000002,
    node_count=5,
    watch_count=6,
    ephemerals_count=7,
    approximate_data_size=44,
    global_sessions=2,
    open_file_descriptors=63,
    max_file_descriptors=1048576,
    uptime_ms=9000,
)
LEADER = evolve(
    FOLLOWER,
    mode=Mode.LEADER,
    leader=LeaderStatistics(
        learners=2,
        synced_followers=1,
        pending_syncs=0,
        quorum_size=3,
        leader_uptime_ms=8000,
        last_proposal_size=92,
        min_proposal_size=32,
        max_proposal_size=4096,
    ),
)
STANDALONE = evolve(FOLLOWER, mode=Mode.STANDALONE, latency_avg_ms=0, connections=())

TAIL = """\
Latency min/avg/max: 0/0.1235/17
Received: 101
Sent: 102
Connections: 2
Outstanding: 4
Zxid: 0x500000002
Mode: follower
Node count: 5
"""


def test_ruok_has_no_newline_and_needs_no_leader():
    assert answer("ruok", FOLLOWER) == answer("ruok", None) == b"imok"


def test_srvr_text():
    assert answer("srvr", FOLLOWER).decode() == f"Zookeeper version: {VERSION}\n{TAIL}"


def test_stat_text_lists_the_clients():
    assert answer("stat", FOLLOWER).decode() == (
        f"Zookeeper version: {VERSION}\n"
        "Clients:\n"
        " /127.0.0.1:40001[1](queued=0,recved=1,sent=0)\n"
        " /[::1]:40002[1](queued=3,recved=20,sent=19)\n"
        "\n" + TAIL
    )


def test_srvr_of_a_leader_ends_with_the_proposal_sizes():
    expected = TAIL.replace("follower", "leader") + "Proposal sizes last/min/max: 92/32/4096\n"
    assert answer("srvr", LEADER).decode() == f"Zookeeper version: {VERSION}\n{expected}"


def test_srvr_of_a_server_without_clients():
    text = answer("stat", STANDALONE).decode()
    assert "Clients:\n\nLatency min/avg/max: 0/0.0/17\n" in text
    assert "Connections: 0\n" in text
    assert "Mode: standalone\n" in text


MNTR_FOLLOWER = f"""\
zk_version\t{VERSION}
zk_server_state\tfollower
zk_peer_state\tfollowing - broadcast
zk_avg_latency\t0.1235
zk_max_latency\t17
zk_min_latency\t0
zk_packets_received\t101
zk_packets_sent\t102
zk_num_alive_connections\t2
zk_outstanding_requests\t4
zk_znode_count\t5
zk_watch_count\t6
zk_ephemerals_count\t7
zk_approximate_data_size\t44
zk_global_sessions\t2
zk_local_sessions\t0
zk_open_file_descriptor_count\t63
zk_max_file_descriptor_count\t1048576
zk_uptime\t9000
"""


def test_mntr_text():
    """Trap 37: one tab between name and value."""
    assert answer("mntr", FOLLOWER).decode() == MNTR_FOLLOWER


def test_mntr_of_a_leader_adds_what_only_leaders_know():
    text = answer("mntr", LEADER).decode()
    assert "zk_server_state\tleader\nzk_peer_state\tleading - broadcast\n" in text
    assert text.endswith(
        "zk_uptime\t9000\n"
        "zk_learners\t2\n"
        "zk_synced_followers\t1\n"
        "zk_synced_non_voting_followers\t0\n"
        "zk_synced_observers\t0\n"
        "zk_pending_syncs\t0\n"
        "zk_quorum_size\t3\n"
        "zk_leader_uptime\t8000\n"
        "zk_last_proposal_size\t92\n"
        "zk_max_proposal_size\t4096\n"
        "zk_min_proposal_size\t32\n"
    )


def test_mntr_of_a_standalone_server_has_no_peer_state():
    text = answer("mntr", STANDALONE).decode()
    assert "zk_server_state\tstandalone\nzk_avg_latency\t0.0\n" in text
    assert "peer_state" not in text


def test_mntr_appends_other_metrics_with_integers_plain():
    extra = evolve(FOLLOWER, metrics={"fsync_count": 3, "p99_fsynctime": 1.5, "avg_fsynctime": 2.0})
    text = answer("mntr", extra).decode()
    assert text == MNTR_FOLLOWER + "zk_fsync_count\t3\nzk_p99_fsynctime\t1.5\nzk_avg_fsynctime\t2.0\n"


def test_an_extra_metric_must_not_hide_one_of_zookeepers():
    with pytest.raises(AssertionError):
        answer("mntr", evolve(FOLLOWER, metrics={"uptime": 1}))


def test_leader_statistics_belong_to_leaders_and_to_them_only():
    for wrong in ({"mode": Mode.LEADER}, {"leader": LEADER.leader}):
        with pytest.raises(AssertionError):
            evolve(FOLLOWER, **wrong)


def test_envi_tells_the_version_as_kazoo_parses_it():
    lines = answer("envi", FOLLOWER).decode().splitlines()
    assert lines == ["Environment:", f"zookeeper.version=3.9.5-zraft-{__version__}"]


def test_isro_says_whether_writes_are_served():
    assert answer("isro", FOLLOWER) == b"rw"
    assert answer("isro", None) == b"null"


@pytest.mark.parametrize("word", ["srvr", "stat", "mntr"])
def test_a_server_that_does_not_serve_says_so(word):
    assert answer(word, None) == b"This ZooKeeper instance is not currently serving requests\n"


@pytest.mark.parametrize("word", sorted(FOUR_LETTER_WORDS - ANSWERED_WORDS))
def test_a_word_without_a_text_counts_as_not_whitelisted(word):
    expected = f"{word} is not executed because it is not in the whitelist.\n".encode()
    assert answer(word, FOLLOWER) == answer(word, None, FOUR_LETTER_WORDS) == expected


@pytest.mark.parametrize("word", sorted(ANSWERED_WORDS))
def test_the_whitelist_is_obeyed(word):
    expected = f"{word} is not executed because it is not in the whitelist.\n".encode()
    assert answer(word, FOLLOWER, whitelist=ANSWERED_WORDS - {word}) == expected
    assert answer(word, FOLLOWER, whitelist={word}) != expected


def test_what_is_no_word_never_gets_here():
    """`FrameReader` has closed the connection: for it the four letters are a length, and too large."""
    with pytest.raises(AssertionError):
        answer("abcd", FOLLOWER)
