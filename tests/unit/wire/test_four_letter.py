"""The texts of the four-letter words, exactly: they are parsed by tools that nobody will change for us."""

from __future__ import annotations

import datetime
import re

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wire.reports import (
    AT,
    CONFIGURATION,
    DUMP,
    FOLLOWER,
    LEADER,
    STANDALONE,
    FakeReports,
    distribution,
)
from zraft import __version__
from zraft.config.sections import FOUR_LETTER_WORDS_DEFAULT
from zraft.monitoring.four_letter import HARMLESS_WORDS, _date, allowed_words, answer
from zraft.monitoring.monitor import summary_values
from zraft.monitoring.statistics import LISTED_MAX, Listing, ServerMode, SessionExpiries
from zraft_core.wire.framing import FOUR_LETTER_WORDS

VERSION = f"3.9.5-zraft-{__version__}, built on unknown"

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


def text(word: str, reports: FakeReports | None = None, argument: bytes = b"") -> str:
    return answer(word, reports or FakeReports(), FOUR_LETTER_WORDS, argument).decode()


NOT_SERVING = FakeReports(statistics=None)


def test_ruok_has_no_newline_and_needs_no_leader() -> None:
    assert text("ruok") == text("ruok", NOT_SERVING) == "imok"


def test_srvr_text() -> None:
    assert text("srvr") == f"Zookeeper version: {VERSION}\n{TAIL}"


def test_stat_text_lists_the_clients() -> None:
    assert text("stat") == (
        f"Zookeeper version: {VERSION}\n"
        "Clients:\n"
        " /127.0.0.1:40001[1](queued=0,recved=9,sent=9)\n"
        " /[::1]:40002[0](queued=3,recved=20,sent=19)\n"
        "\n" + TAIL
    )


def test_srvr_of_a_leader_ends_with_the_proposal_sizes() -> None:
    expected = TAIL.replace("follower", "leader") + "Proposal sizes last/min/max: 92/32/4096\n"
    assert text("srvr", FakeReports(LEADER)) == f"Zookeeper version: {VERSION}\n{expected}"


def test_stat_of_a_server_without_clients() -> None:
    found = text("stat", FakeReports(STANDALONE, listed=Listing((), 0)))
    assert "Clients:\n\nLatency min/avg/max: 0/0.0/17\n" in found
    assert "Connections: 0\n" in found
    assert "Mode: standalone\n" in found


def test_cons_text() -> None:
    assert text("cons") == (
        " /127.0.0.1:40001[1](queued=0,recved=9,sent=9,sid=0x100000a8e6b0000,lop=GETC,est=1795294429807,to=10000,"
        "lcxid=0x8,lzxid=0x3,lresp=698540,llat=2,minlat=0,avglat=4,maxlat=12)\n"
        " /[::1]:40002[0](queued=3,recved=20,sent=19)\n"
        "\n"
    )


def test_numbers_below_zero_are_hexadecimal_as_java_prints_them() -> None:
    one = FakeReports().listed.items[0]
    assert one.session is not None
    fresh = evolve(one, session=evolve(one.session, session=-2, last_zxid=-1))
    found = text("cons", FakeReports(listed=Listing((fresh,), 1)))
    assert "sid=0xfffffffffffffffe," in found
    assert "lzxid=0xffffffffffffffff," in found


def test_conf_text_of_one_server_of_three() -> None:
    assert text("conf") == (
        "clientPort=2181\nsecureClientPort=-1\n"
        "dataDir=/var/lib/zraft\ndataDirSize=67109337\ndataLogDir=/var/lib/zraft\ndataLogSize=67108864\n"
        "tickTime=2000\nmaxClientCnxns=0\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n"
        "clientPortListenBacklog=4096\nserverId=2\n"
        "electionPort=0\nquorumPort=2181\npeerType=0\n"
        "membership: \n"
        "server.1=10.0.0.1:2181:0:participant;10.0.0.1:2181\n"
        "server.2=10.0.0.2:2181:0:participant;10.0.0.2:2181\n"
        "server.3=[::1]:2183:0:participant;[::1]:2183\n"
        "version=0"
    )


def test_conf_of_a_standalone_server_has_no_membership() -> None:
    alone = evolve(CONFIGURATION, members=CONFIGURATION.members[:1])
    assert text("conf", FakeReports(configured=alone)).endswith("serverId=2\n")


def test_dirs_text() -> None:
    assert text("dirs") == "datadir_size: 67109337\nlogdir_size: 67108864\n"


def test_hash_text_is_empty_while_the_digest_is_not_known() -> None:
    assert text("hash") == "100000004: 258f96\n"
    assert text("hash", FakeReports(digested=None)) == ""


DUMP_END = (
    "ephemeral nodes dump:\nSessions with Ephemerals (1):\n0x100000a8e6b0000:\n\t/a/e\n"
    "Connections dump:\nConnections Sets (1)/(2):\n2 expire at Sat Nov 21 20:53:52 UTC 2026:\n"
    "\tip: /127.0.0.1:40001 sessionId: 0x100000a8e6b0000\n\tip: /[::1]:40002 sessionId: 0x0\n"
)


def test_dump_text_of_a_leader_has_the_times_of_expiry() -> None:
    assert text("dump") == (
        "SessionTracker dump:\nSession Sets (1)/(1):\n"
        "1 expire at Sat Nov 21 20:53:52 UTC 2026:\n\t0x100000a8e6b0000\n" + DUMP_END
    )


def test_dump_text_of_a_follower_has_the_timeouts() -> None:
    assert text("dump", FakeReports(dumped=evolve(DUMP, expiries=None))) == (
        "SessionTracker dump:\nGlobal Sessions(1):\n0x100000a8e6b0000\t10000ms\n" + DUMP_END
    )


def test_watches_texts() -> None:
    assert text("wchs") == "1 connections watching 2 paths\nTotal watches:3\n"
    assert text("wchc") == "0x1\n\t/a/none\n\t/a\n\n"
    assert text("wchp") == "/a/none\n\t0x1\n/a\n\t0x1\n\n"
    nobody = FakeReports(by_session=Listing((), 0), by_path=Listing((), 0))
    assert text("wchc", nobody) == text("wchp", nobody) == "\n"


def test_resets_are_done_and_confirmed() -> None:
    reports = FakeReports()
    assert text("srst", reports) == "Server stats reset.\n"
    assert text("crst", reports) == "Connection stats reset.\n"
    assert reports.changes == ["server", "connections"]


def test_the_trace_mask_is_kept_and_told_without_a_newline() -> None:
    reports = FakeReports()
    assert text("gtmk", reports) == "306"
    assert text("stmk", reports, (-3).to_bytes(8, "big", signed=True)) == "-3"
    assert text("gtmk", reports) == "-3"
    assert text("stmk", reports, b"\0" * 7) == ""
    assert reports.mask == -3


def test_envi_begins_with_the_version_as_kazoo_parses_it() -> None:
    lines = text("envi").splitlines()
    assert lines[0] == "Environment:"
    assert lines[1:] == [f"zookeeper.version={VERSION}", "host.name=here", "os.name=Linux"]
    # kazoo.client.KazooClient.server_version
    match = re.match(r"zookeeper.version=([\d.]+)", lines[1])
    assert match is not None
    assert tuple(map(int, match[1].rstrip(".").split("."))) == (3, 9, 5)


def test_isro_says_whether_writes_are_served() -> None:
    assert text("isro") == "rw"
    assert text("isro", NOT_SERVING) == "null"
    assert text("isro", FakeReports(evolve(FOLLOWER, mode=ServerMode.READ_ONLY), read_only=True)) == "ro"


def test_a_read_only_server_is_its_own_mode() -> None:
    reports = FakeReports(evolve(FOLLOWER, mode=ServerMode.READ_ONLY), read_only=True)
    assert "\nMode: read-only\n" in text("srvr", reports)
    assert "zk_server_state\tread-only\nzk_avg_latency" in text("mntr", reports)


# -- what is bounded says so


def test_lists_that_were_cut_short_say_what_is_missing() -> None:
    full = FakeReports()
    cut = FakeReports(
        listed=Listing(full.listed.items, 12),
        by_session=Listing(full.by_session.items, 7),
        by_path=Listing(full.by_path.items, 7),
        dumped=evolve(
            DUMP,
            expiries=SessionExpiries(((AT, (1,)),), 3),
            ephemerals=Listing(DUMP.ephemerals.items, 4),
            connection_count=6,
        ),
    )
    for word in ("cons", "stat"):
        assert f"\n... and 10 more connections; at most {LISTED_MAX} are listed\n\n" in text(word, cut)
    assert "\n... and 5 more watched paths;" in text("wchc", cut)
    assert "\n... and 5 more watchers;" in text("wchp", cut)
    assert [int(n) for n in re.findall(r"and (\d+) more", text("dump", cut))] == [2, 3, 4]


# -- mntr

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


def test_mntr_text() -> None:
    """Trap 37: one tab between name and value."""
    assert text("mntr") == MNTR_FOLLOWER


def test_mntr_of_a_leader_adds_what_only_leaders_know() -> None:
    found = text("mntr", FakeReports(LEADER))
    assert "zk_server_state\tleader\nzk_peer_state\tleading - broadcast\n" in found
    assert found.endswith(
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


def test_mntr_of_a_standalone_server_has_no_peer_state() -> None:
    found = text("mntr", FakeReports(STANDALONE))
    assert "zk_server_state\tstandalone\nzk_avg_latency\t0.0\n" in found
    assert "peer_state" not in found


def test_mntr_appends_other_metrics_with_integers_plain() -> None:
    extra = evolve(FOLLOWER, metrics={"commit_count": 3, "avg_fsynctime": 2.0})
    assert text("mntr", FakeReports(extra)) == MNTR_FOLLOWER + "zk_commit_count\t3\nzk_avg_fsynctime\t2.0\n"


def test_every_line_of_mntr_is_read_by_a_collector_like_telegraf() -> None:
    extra = evolve(LEADER, metrics=summary_values("fsynctime", distribution(3, 2, 1)))
    lines = text("mntr", FakeReports(extra)).splitlines()
    read = [re.fullmatch(r"zk_(\w[\w.\-]*)\s+([\w.\- ,]+)", line.partition(":")[0]) for line in lines]
    assert all(read)
    assert len({match[1] for match in read if match}) == len(lines)


def test_summaries_are_a_prefix_and_whole_milliseconds_but_for_the_mean() -> None:
    values = summary_values("fsynctime", distribution(3, 2, 1))
    assert list(values) == [
        *("avg_fsynctime", "min_fsynctime", "max_fsynctime", "cnt_fsynctime", "sum_fsynctime"),
        *("p50_fsynctime", "p95_fsynctime", "p99_fsynctime", "p999_fsynctime"),
    ]
    assert {name for name, value in values.items() if not isinstance(value, int)} == {"avg_fsynctime"}
    assert (values["cnt_fsynctime"], values["sum_fsynctime"], values["max_fsynctime"]) == (6, 500, 250)


def test_an_extra_metric_must_not_hide_one_of_zookeepers() -> None:
    with pytest.raises(AssertionError):
        text("mntr", FakeReports(evolve(FOLLOWER, metrics={"uptime": 1})))


def test_leader_statistics_belong_to_leaders_and_to_them_only() -> None:
    with pytest.raises(AssertionError):
        evolve(LEADER, leader=None)
    with pytest.raises(AssertionError):
        evolve(FOLLOWER, leader=LEADER.leader)


# -- who is answered what

ALWAYS = ("envi", "gtmk", "isro", "ruok")


@pytest.mark.parametrize("word", sorted(FOUR_LETTER_WORDS - {*ALWAYS, "stmk"}))
def test_a_server_that_does_not_serve_says_so(word: str) -> None:
    assert text(word, NOT_SERVING) == "This ZooKeeper instance is not currently serving requests\n"


@pytest.mark.parametrize("word", ALWAYS)
def test_some_words_are_answered_without_a_leader(word: str) -> None:
    assert "not currently serving" not in text(word, NOT_SERVING)


@pytest.mark.parametrize("word", sorted(FOUR_LETTER_WORDS))
def test_the_whitelist_is_obeyed_with_zookeepers_sentence(word: str) -> None:
    reports = FakeReports()
    refusal = f"{word} is not executed because it is not in the whitelist.\n".encode()
    assert answer(word, reports, FOUR_LETTER_WORDS - {word}, b"\0" * 8) == refusal
    assert answer(word, NOT_SERVING, (), b"\0" * 8) == refusal
    assert answer(word, reports, {word}, b"\0" * 8) != refusal


def test_what_changes_something_or_shows_paths_must_be_allowed_on_purpose() -> None:
    assert {"crst", "srst", "stmk", "dump", "wchc", "wchp"} == FOUR_LETTER_WORDS - HARMLESS_WORDS
    assert frozenset(FOUR_LETTER_WORDS_DEFAULT) == HARMLESS_WORDS


def test_a_star_allows_all_words() -> None:
    assert allowed_words(["ruok", "*"]) == FOUR_LETTER_WORDS
    assert allowed_words(["ruok", "nope"]) & FOUR_LETTER_WORDS == {"ruok"}
    assert allowed_words([]) == frozenset()


def test_what_is_no_word_never_gets_here() -> None:
    """`FrameReader` has closed the connection: for it the four letters are a length, and too large."""
    with pytest.raises(AssertionError):
        text("abcd")


@given(st.integers(0, 4_102_444_800_000))
def test_dates_are_those_of_the_calendar(wall_ms: int) -> None:
    at = datetime.datetime.fromtimestamp(wall_ms // 1000, datetime.UTC)
    assert _date(wall_ms) == at.strftime("%a %b %d %H:%M:%S UTC %Y")
