"""What an operator asks running servers: every word, every endpoint, and that a follower and a leader differ rightly."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from prometheus_client.parser import text_string_to_metric_families

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, free_ports, wait_until
from zraft.admin.commands import COMMAND_NAMES
from zraft_core.wire.framing import FOUR_LETTER_WORDS

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

SETTINGS = {
    "ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*",
    # One leader from the first test to the last, also on a machine that does much else.
    "ZRAFT_RAFT__ELECTION_TIMEOUT_TICKS": "4000",
    "ZRAFT_SESSION_TIMEOUT_MS_MIN": "20000",
}

ONLY_ALLOWED_ON_PURPOSE = ("crst", "srst", "stmk", "dump", "wchc", "wchp")


class AdminCluster(Cluster):
    """Servers with admin addresses."""

    def __init__(self, directory: Path, **how: Any) -> None:
        self.admin_ports: dict[int, int] = {}
        super().__init__(directory, **how)

    def _place(self, count: int) -> None:
        super()._place(count)
        self.admin_ports = dict(enumerate(free_ports(count), 1))

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        return [*super().command(number, data=data), "--admin", f"127.0.0.1:{self.admin_ports[number]}"]

    def get(self, number: int, path: str, accept: str = "*/*") -> tuple[int, str]:
        """Status and body of one request."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin_ports[number]}{path}", headers={"Accept": accept}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def json(self, number: int, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get(number, path)[1])
        return found

    def samples(self, number: int) -> dict[str, float]:
        """Prometheus samples by name and labels, as they stand in the text."""
        found = {}
        for family in text_string_to_metric_families(self.get(number, "/metrics")[1]):
            for sample in family.samples:
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found


@dataclass
class Running:
    """A cluster and a client that has an ephemeral, watches, and done some work."""

    cluster: AdminCluster
    client: KazooClient
    leader: int
    follower: int


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with AdminCluster(tmp_path_factory.mktemp("operators"), env=SETTINGS) as cluster:
        cluster.start_all()
        leader = cluster.leader()
        assert leader is not None
        follower = next(n for n in cluster.servers if n != leader)
        sessions = Sessions(cluster)
        client = sessions.open(first=follower)
        client.create("/operators", b"x" * 100)
        client.create("/operators/e", b"", ephemeral=True)
        for n in range(20):
            client.set("/operators", b"%d" % n)
        client.exists("/operators/none", watch=lambda event: None)
        client.get("/operators", watch=lambda event: None)
        client.get_children("/operators", watch=lambda event: None)
        yield Running(cluster, client, leader, follower)
        sessions.close()


def session_of(client: KazooClient) -> int:
    assert client.client_id is not None
    return int(client.client_id[0])


def test_every_word_is_answered_by_leader_and_followers(running: Running) -> None:
    for number in running.cluster.servers:
        for word in sorted(FOUR_LETTER_WORDS - {"srst", "crst", "stmk"}):
            answer = running.cluster.ask(number, word)
            assert answer is not None
            assert "not executed" not in answer
            assert "not currently serving" not in answer


def test_stmk_takes_its_mask_from_the_bytes_behind_it(running: Running) -> None:
    address = running.cluster.servers[1].address
    with socket.create_connection((address.host, address.port), timeout=10) as connection:
        connection.sendall(b"stmk" + (77).to_bytes(8, "big"))
        assert connection.recv(100) == b"77"
    assert running.cluster.ask(1, "gtmk") == "77"


def test_kazoo_reads_version_and_words_as_from_zookeeper(running: Running) -> None:
    assert running.client.server_version() == (3, 9, 5)
    assert running.client.command(b"ruok") == "imok"
    assert "zk_znode_count" in running.client.command(b"mntr")


def test_zkserver_status_finds_the_mode_and_collectors_their_numbers(running: Running) -> None:
    srvr = running.cluster.ask(running.leader, "srvr") or ""
    assert re.findall(r"^Mode: (\w+)", srvr, re.MULTILINE) == ["leader"]
    mntr = running.cluster.mntr(running.leader)
    assert mntr is not None
    assert (mntr["server_state"], mntr["synced_followers"], mntr["learners"]) == ("leader", "2", "2")
    assert int(mntr["cnt_fsynctime"]) > 0
    follower = running.cluster.mntr(running.follower)
    assert follower is not None
    assert int(follower["cnt_updatelatency"]) >= 23
    assert "synced_followers" not in follower


def test_cons_shows_the_session_with_its_last_request(running: Running) -> None:
    assert running.cluster.ask(running.follower, "crst") == "Connection stats reset.\n"
    for _ in range(3):
        running.client.get("/operators")
    answer = running.cluster.ask(running.follower, "cons") or ""
    [line] = [line for line in answer.splitlines() if f"sid={session_of(running.client):#x}," in line]
    fields = dict(re.findall(r"(\w+)=([^,()]+)", line))
    assert fields["lop"] in ("GETD", "PING")
    assert int(fields["lcxid"], 16) > 20
    assert int(fields["lzxid"], 16) > 0
    assert int(fields["to"]) >= 4_000
    assert 0 <= int(fields["minlat"]) <= int(fields["avglat"]) <= int(fields["maxlat"]) < 10_000
    assert 3 <= int(fields["recved"]) < 20


def test_dump_and_watches_name_the_session(running: Running) -> None:
    session = f"0x{session_of(running.client):x}"
    dump = running.cluster.ask(running.follower, "dump") or ""
    assert f"\n{session}:\n\t/operators/e\n" in dump
    assert "Global Sessions(" in dump
    assert "Session Sets (" in (running.cluster.ask(running.leader, "dump") or "")
    wchc = running.cluster.ask(running.follower, "wchc") or ""
    assert wchc.startswith(f"{session}\n\t")
    assert "\t/operators/none\n" in wchc
    assert f"/operators/none\n\t{session}\n" in (running.cluster.ask(running.follower, "wchp") or "")


def test_every_command_answers_json_with_command_and_error(running: Running) -> None:
    for number in running.cluster.servers:
        for name in COMMAND_NAMES:
            if name in ("stat_reset", "connection_stat_reset"):
                continue
            answer = running.cluster.json(number, f"/commands/{name}")
            assert answer["command"] == name
            assert answer["error"] is None or name == "set_trace_mask"


def test_one_leader_is_known_to_all(running: Running) -> None:
    for number in running.cluster.servers:
        answer = running.cluster.json(number, "/commands/leader")
        assert (answer["leader_id"], answer["is_leader"]) == (running.leader, number == running.leader)
    members = running.cluster.json(running.leader, "/status.json")["members"]
    assert sorted(m["server"] for m in members if m["lag_entries"] is not None) == sorted(
        set(running.cluster.servers) - {running.leader}
    )


def test_metrics_agree_with_mntr_and_tell_of_raft(running: Running) -> None:
    found = running.cluster.samples(running.leader)
    mntr = running.cluster.mntr(running.leader)
    assert mntr is not None
    assert found["znode_count"] == int(mntr["znode_count"])
    assert found["zraft_raft_role{role=leader}"] == 1
    assert found["zraft_raft_commit_index"] >= 24
    assert found[f"zraft_raft_follower_lag_entries{{server={running.follower}}}"] >= 0
    assert found["zraft_fsync_duration_seconds_count"] > 0
    assert found["zraft_entry_commands_sum"] >= 22
    assert found["zraft_peer_datagrams_sent_total"] > 0
    assert found["zraft_peer_datagrams_refused_total{reason=unauthentic}"] == 0
    assert found["process_resident_memory_bytes"] > 1_000_000
    # the bucket without a bound holds them all
    assert found["zraft_loop_lag_seconds_bucket{le=+Inf}"] == found["zraft_loop_lag_seconds_count"] > 0
    follower = running.cluster.samples(running.follower)
    assert follower["zraft_write_duration_seconds_count"] >= 23
    assert follower["zraft_read_duration_seconds_count"] >= 3
    assert follower["zraft_client_sessions"] >= 1


def test_the_page_health_and_list_are_there(running: Running) -> None:
    for number in running.cluster.servers:
        assert running.cluster.get(number, "/livez") == (200, "ok\n")
        assert running.cluster.get(number, "/readyz") == (200, "ok\n")
        assert "<title>zraft</title>" in running.cluster.get(number, "/")[1]
        assert "/commands/monitor" in running.cluster.get(number, "/commands")[1]
        assert running.cluster.json(number, "/status.json")["ready"] is True


def test_without_a_majority_a_server_is_alive_and_not_ready(tmp_path: Path) -> None:
    with AdminCluster(tmp_path) as cluster:
        cluster.start_all()
        cluster.kill(2)
        cluster.kill(3)
        wait_until(lambda: cluster.get(1, "/readyz")[0] == 503, "server 1 to know that it has no quorum")
        status, text = cluster.get(1, "/readyz", accept="application/json")
        assert status == 503
        assert json.loads(text)["reasons"]
        assert cluster.get(1, "/livez") == (200, "ok\n")
        assert cluster.samples(1)["zraft_ready"] == 0
        assert cluster.ask(1, "mntr") == "This ZooKeeper instance is not currently serving requests\n"
        for word in ONLY_ALLOWED_ON_PURPOSE:
            answer = cluster.ask(1, word)
            assert answer == f"{word} is not executed because it is not in the whitelist.\n"
