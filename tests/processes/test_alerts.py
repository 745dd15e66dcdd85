"""Every fault that the alert rules are for is caused on real servers, scraped by a real Prometheus that loads the rules.

`tests/alerts/rules.yml` has series for every rule; test_alerts_of_topics.py has the faults of partitions.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from tests.certificates import Authority
from tests.processes.clients import Sessions
from tests.processes.cluster import wait_until
from tests.processes.conftest import StartCluster
from tests.processes.disks import SmallDisk
from tests.processes.impostor import Impostor
from tests.processes.prometheus import Prometheus, ScrapedCluster, command, erring, scraped, watch
from zraft.raft.messages import Heartbeat
from zraft.transport.keys import create_key_file
from zraft_core.ids import COORDINATION_GROUP
from zraft_core.wire.client import ZkClientCodec
from zraft_core.wire.jute import INT

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

Open = Callable[[ScrapedCluster], Sessions]
PIECE: Final = bytes(20_000)
PATIENT_S: Final = 300
SYNCS: Final = 500


def restart(cluster: ScrapedCluster, number: int, *more: str) -> None:
    """Stop it as an operator does, and start it with other flags."""
    cluster.kill(number, signal.SIGTERM)
    cluster.more[number] = list(more)
    cluster.start(number)
    cluster.wait_ready()


@contextmanager
def written_to(cluster: ScrapedCluster, sessions: Sessions) -> Iterator[None]:
    """Somebody writes all the time, through whatever happens."""
    stop = threading.Event()
    client = sessions.open(name="writer")
    client.retry(client.ensure_path, "/written")

    def write() -> None:
        while not stop.is_set():
            client.set_async("/written", PIECE).wait(1.0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def write_until_firing(
    prometheus: Prometheus, client: KazooClient, path: str, data: bytes, alert: tuple[str, int]
) -> None:
    """Write again and again, each an entry of its own, until an alert fires."""
    name, server = alert

    def fires() -> bool:
        for _ in range(200):
            client.set(path, data)
        return (name, str(server)) in prometheus.firing()

    wait_until(fires, f"{name} of server {server}", PATIENT_S)


def test_a_killed_server_one_with_another_key_and_a_lost_quorum_raise_alerts(
    start_cluster: StartCluster,
) -> None:
    cluster = scraped(start_cluster)
    leader = wait_until(cluster.leader, "a leader")
    gone, other = (n for n in cluster.servers if n != leader)
    with watch(cluster) as prometheus:
        prometheus.wait_calm()
        cluster.kill(gone)
        prometheus.wait_firing(("ZraftServerMissing", gone))
        cluster.keys[gone] = cluster.directory / "strange.key"
        create_key_file(cluster.keys[gone])
        cluster.start(gone)
        prometheus.wait_firing(
            ("ZraftServerNotReady", gone),
            ("ZraftMemberSilent", gone),
            ("ZraftWrongKey", gone),
            ("ZraftWrongKey", leader),
        )
        assert not [alert for alert, _ in prometheus.firing() if alert == "ZraftForgedDatagrams"]
        cluster.kill(other)
        prometheus.wait_firing(("ZraftNoLeader", ""), ("ZraftServerMissing", other))


@pytest.mark.long
def test_no_server_that_answers_raises_an_alert_of_its_own(start_cluster: StartCluster) -> None:
    cluster = scraped(start_cluster, servers=1)
    with watch(cluster) as prometheus:
        prometheus.wait_calm()
        cluster.kill(1)
        prometheus.wait_firing(("ZraftNotScraped", ""), ("ZraftServerMissing", 1))


@pytest.mark.long
def test_certificates_that_end_and_files_that_cannot_be_used_raise_alerts_until_they_are_replaced(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = scraped(start_cluster)
    authority = Authority()
    own_key = cluster.give_key(2)
    for number, days in ((1, 10), (2, 2), (3, 30)):
        certificate, key = authority.issue(days=days).write(tmp_path, f"server-{number}")
        settings = (f"tls.certificate={certificate}", f"tls.key={key}")
        restart(cluster, number, *(word for setting in settings for word in ("--set", setting)))
    ends = (("ZraftCertificateEnds", 1), ("ZraftCertificateEnds", 2), ("ZraftCertificateEndsSoon", 2))
    with watch(cluster) as prometheus:
        prometheus.wait_firing(*ends)
        prometheus.wait_calm(*ends)
        for number in (1, 2):
            authority.issue(days=30).write(tmp_path, f"server-{number}")
        prometheus.wait_calm()
        (tmp_path / "server-3.crt").write_text("no certificate")
        own_key.write_text("no key")
        prometheus.wait_firing(("ZraftReloadFailed", 3), ("ZraftReloadFailed", 2))


@pytest.mark.long
def test_only_a_setting_that_a_configuration_names_raises_an_alert(
    start_cluster: StartCluster, open_sessions: Open
) -> None:
    cluster = scraped(start_cluster)
    with watch(cluster) as prometheus:
        command(cluster, "settings", "set", "session_timeout_ms_max", "60000")
        command(cluster, "settings", "set", "session_ephemerals_max", "500")
        prometheus.wait_calm()
        restart(cluster, 2, "--set", "session_timeout_ms_max=50000")
        prometheus.wait_firing(("ZraftSettingsDiffer", 2))
        command(cluster, "settings", "set", "session_timeout_ms_max", "50000")
        # After few syncs, a single late one on a busy disk would be the 99th percentile for minutes.
        client = open_sessions(cluster).open()
        client.create("/synced")
        for _ in range(SYNCS):
            client.set("/synced", b"")
        prometheus.wait_calm()


@pytest.mark.long
def test_a_disk_that_is_slow_or_full_raises_alerts(start_cluster: StartCluster, open_sessions: Open) -> None:
    env: dict[str, Any] = {
        "ZRAFT_WAL__SEGMENT_BYTES_MAX": "131072",
        "ZRAFT_WAL__SLOW_FSYNC_MS": "200",
    }
    cluster = scraped(start_cluster, **env)
    with watch(cluster) as prometheus, ExitStack() as writing:
        prometheus.wait_calm()
        slow = wait_until(cluster.leader, "a leader")
        cluster.order(slow, "slow 400")
        writing.enter_context(written_to(cluster, open_sessions(cluster)))
        prometheus.wait_firing(("ZraftFsyncSlow", slow), ("ZraftLeadershipHandedOn", slow))
        cluster.order(slow, "")
        full = next(n for n in cluster.servers if n != slow)
        cluster.order(full, "full")
        prometheus.wait_firing(("ZraftDiskFull", full), ("ZraftServerNotReady", full))
        cluster.order(full, "")


@pytest.mark.long
def test_writes_that_wait_for_slow_disks_raise_an_alert_before_they_reach_their_bound(
    start_cluster: StartCluster, open_sessions: Open
) -> None:
    bounds = {"ZRAFT_CLIENT__OUTSTANDING_BYTES_MAX": "65536", "ZRAFT_CLIENT__JUTE_MAXBUFFER": "32768"}
    cluster = scraped(start_cluster, servers=1, **bounds)
    client = open_sessions(cluster).open(timeout_s=40.0)
    client.create("/written", b"")
    with watch(cluster) as prometheus:
        prometheus.wait_calm()
        cluster.order(1, "slow 8000")
        pending = [client.set_async("/written", PIECE) for _ in range(12)]
        prometheus.wait_firing(("ZraftClientsWait", 1))
        cluster.order(1, "")
        for one in pending:
            one.get(timeout=60.0)


@pytest.mark.long
def test_a_disk_with_little_room_left_raises_an_alert(tmp_path: Path) -> None:
    env = {"ZRAFT_WAL__SEGMENT_BYTES_MAX": "131072"}
    with (
        ScrapedCluster(tmp_path, servers=1, env=env) as cluster,
        SmallDisk(cluster.servers[1].data, 24) as disk,
    ):
        if not disk.mounted:
            pytest.skip("needs the right to mount a file system")
        cluster.start_all()
        with watch(cluster) as prometheus:
            prometheus.wait_calm()
            disk.fill(leave=2_000_000)
            prometheus.wait_firing(("ZraftDiskNearlyFull", 1))
            disk.free()
            prometheus.wait_calm()


@pytest.mark.long
def test_clients_that_are_refused_too_many_files_and_lost_audit_lines_raise_alerts(
    start_cluster: StartCluster, open_sessions: Open
) -> None:
    cluster = scraped(start_cluster)
    cluster.before[1] = ["prlimit", "--nofile=120:120"]
    restart(cluster, 1)
    restart(cluster, 2, "--set", "client.connections_max=3")
    restart(cluster, 3, "--set", "audit.file=/dev/full", "--set", "audit.pending_bytes_max=65536")
    with watch(cluster) as prometheus, ExitStack() as connections:
        prometheus.wait_calm()
        client = open_sessions(cluster).open(only=3)
        client.create("/written", b"")
        for _ in range(2_000):
            client.set_async("/written", b"")
        client.set("/written", b"")
        for number, count in ((1, 80), (2, 10)):
            address = cluster.servers[number].address
            for _ in range(count):
                one = socket.create_connection((address.host, address.port), timeout=10)
                connections.enter_context(one)
                one.sendall(ZkClientCodec().connect(timeout_ms=40_000))
        prometheus.wait_firing(
            ("ZraftFilesNearlyUsedUp", 1), ("ZraftClientsRefused", 2), ("ZraftAuditLinesLost", 3)
        )


@pytest.mark.long
def test_sessions_that_expire_together_raise_an_alert(start_cluster: StartCluster) -> None:
    cluster = scraped(start_cluster, servers=1, ZRAFT_TICK_TIME_MS="1000")
    address = cluster.servers[1].address
    with watch(cluster) as prometheus, ExitStack() as connections:
        prometheus.wait_calm()
        for _ in range(40):
            one = connections.enter_context(
                socket.create_connection((address.host, address.port), timeout=10)
            )
            one.sendall(ZkClientCodec().connect(timeout_ms=2_000))
        prometheus.wait_firing(("ZraftSessionsExpire", ""))


@pytest.mark.long
def test_a_leadership_that_moves_and_a_loop_that_stalls_raise_alerts(start_cluster: StartCluster) -> None:
    cluster = scraped(start_cluster)

    def one_leads(others: set[int]) -> bool:
        return any("Mode: leader" in (cluster.ask(n, "srvr") or "") for n in others)

    with watch(cluster) as prometheus:
        prometheus.wait_calm()
        for _ in range(5):
            leader = wait_until(cluster.leader, "a leader")
            cluster.stop(leader)
            wait_until(partial(one_leads, others={*cluster.servers} - {leader}), "another leader")
            cluster.cont(leader)
            cluster.wait_ready()
        prometheus.wait_firing(("ZraftLeaderMoves", ""), ("ZraftLoopSlow", leader))


@pytest.mark.long
def test_two_clusters_scraped_as_one_raise_an_alert(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = scraped(start_cluster, servers=1)
    (tmp_path / "another").mkdir()
    with ScrapedCluster(tmp_path / "another", servers=1) as another:
        another.start_all()
        with watch(cluster, {another.admin(1): "another"}) as prometheus:
            prometheus.wait_firing(("ZraftSeveralLeaders", ""))


@pytest.mark.long
def test_datagrams_that_are_forged_or_that_no_correct_server_sends_raise_alerts(
    start_cluster: StartCluster,
) -> None:
    cluster = scraped(start_cluster)
    leader = wait_until(cluster.leader, "a leader")
    gone, other = (n for n in cluster.servers if n != leader)
    cluster.kill(gone)
    with (
        watch(cluster) as prometheus,
        Impostor(cluster.servers[gone], cluster.directory / "cluster.key") as impostor,
    ):
        still = (("ZraftServerMissing", gone), ("ZraftMemberSilent", gone))
        prometheus.wait_firing(*still)
        term = int(float(prometheus.query("zraft_raft_term")[str(leader)]))

        def fires(alert: str, number: int) -> bool:
            return (alert, str(number)) in prometheus.firing()

        def forged() -> bool:
            impostor.forge(cluster.servers[other])
            return fires("ZraftForgedDatagrams", other)

        wait_until(forged, "forged datagrams to raise an alert")

        def mistaken() -> bool:
            impostor.say(cluster.servers[leader], Heartbeat(COORDINATION_GROUP, term, 1, 0))
            return fires("ZraftPeerMistakes", leader)

        wait_until(mistaken, "a second leader of one term to raise an alert")
        cluster.servers[leader].wait_says("two servers share an identity")


@pytest.mark.long
def test_clients_that_hold_too_much_memory_raise_an_alert(start_cluster: StartCluster) -> None:
    """Ten requests that are never finished, 20 kB of each."""
    bounds = {
        "ZRAFT_CLIENT__JUTE_MAXBUFFER": "32768",
        "ZRAFT_CLIENT__UNFINISHED_BYTES_PER_ADDRESS_MAX": "65536",
        "ZRAFT_CLIENT__UNFINISHED_BYTES_SUM_MAX": "65536",
    }
    cluster = scraped(start_cluster, servers=1, **bounds)
    address = cluster.servers[1].address
    with watch(cluster) as prometheus, ExitStack() as connections:
        prometheus.wait_calm()
        for _ in range(10):
            one = connections.enter_context(
                socket.create_connection((address.host, address.port), timeout=10)
            )
            one.sendall(ZkClientCodec().connect(timeout_ms=40_000) + INT.pack(30_000) + PIECE)
        prometheus.wait_firing(("ZraftClientsEvicted", 1))


@pytest.mark.long
def test_a_server_that_applies_more_slowly_than_others_commit_raises_an_alert(
    start_cluster: StartCluster, open_sessions: Open
) -> None:
    cluster = erring(start_cluster)
    leader = wait_until(cluster.leader, "a leader")
    slow = next(n for n in cluster.servers if n != leader)
    client = open_sessions(cluster).open(only=leader)
    client.create("/slow", b"")
    with watch(cluster) as prometheus:
        prometheus.wait_calm()
        cluster.err(slow)

        # A turn applies few entries of this size.
        write_until_firing(prometheus, client, "/slow", PIECE, ("ZraftApplyBehind", slow))
        cluster.err_no_more(slow)
        wait_until(
            lambda: ("ZraftApplyBehind", str(slow)) not in prometheus.firing(), "the alert to end", PATIENT_S
        )


@pytest.mark.long
def test_three_servers_with_three_states_raise_an_alert(
    start_cluster: StartCluster, open_sessions: Open
) -> None:
    cluster = erring(start_cluster)
    leader = wait_until(cluster.leader, "a leader")
    client = open_sessions(cluster).open(only=leader)
    client.create("/wrong", b"")
    client.create("/load", b"")
    with watch(cluster) as prometheus:
        prometheus.wait_calm()
        for number in cluster.servers:
            cluster.err(number, b"the state of server %d" % number)
        client.set("/wrong", b"right")
        write_until_firing(prometheus, client, "/load", b"", ("ZraftStatesDiffer", leader))
        cluster.servers[leader].wait_says("no two of a majority agree")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_follower_that_does_not_keep_up_raises_an_alert(
    start_cluster: StartCluster, open_sessions: Open
) -> None:
    """Ten thousand entries, each of which was answered before the next one was written."""
    cluster = scraped(start_cluster)
    leader = wait_until(cluster.leader, "a leader")
    behind = next(n for n in cluster.servers if n != leader)
    client = open_sessions(cluster).open(only=leader)
    client.create("/written", b"")
    with watch(cluster) as prometheus:
        prometheus.wait_calm()
        cluster.stop(behind)
        write_until_firing(prometheus, client, "/written", b"", ("ZraftFollowerBehind", behind))
        cluster.cont(behind)


@pytest.mark.long
def test_a_snapshot_for_which_the_disk_has_no_room_raises_an_alert(
    tmp_path: Path, open_sessions: Open
) -> None:
    env = {
        "ZRAFT_WAL__SEGMENT_BYTES_MAX": "131072",
        "ZRAFT_SNAPSHOT__COMMANDS_MIN": "300",
        "ZRAFT_SNAPSHOT__LOG_BYTES_MIN": str(1 << 30),
    }
    with (
        ScrapedCluster(tmp_path, servers=1, env=env) as cluster,
        SmallDisk(cluster.servers[1].data, 24) as disk,
    ):
        if not disk.mounted:
            pytest.skip("needs the right to mount a file system")
        cluster.start_all()
        client = open_sessions(cluster).open()
        for n in range(100):
            client.create(f"/n{n}", os.urandom(30_000))
        with watch(cluster) as prometheus:
            disk.fill(leave=1_500_000)
            pending = [client.set_async("/n0", b"%d" % n) for n in range(900)]
            prometheus.wait_firing(("ZraftSnapshotsFail", 1))
            disk.free()
            for one in pending:
                one.get(timeout=60.0)
