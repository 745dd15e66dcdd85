"""Every fault that the alert rules are for is caused on real servers, scraped by a real Prometheus that loads the rules.

What cannot be caused from outside is in docs/TESTING.md, "Alerts"; `tests/alerts/rules.yml` has every rule.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from click.testing import CliRunner

from tests.processes.clients import Sessions
from tests.processes.cluster import wait_until
from tests.processes.conftest import StartCluster
from tests.processes.prometheus import ScrapedCluster, watch
from zraft.main import main
from zraft.transport.keys import create_key_file

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

Open = Callable[[ScrapedCluster], Sessions]
PIECE: Final = bytes(20_000)


def scraped(start_cluster: StartCluster, *, servers: int = 3, **env: str) -> ScrapedCluster:
    cluster = start_cluster(kind=ScrapedCluster, servers=servers, **env)
    assert isinstance(cluster, ScrapedCluster)
    return cluster


def restart(cluster: ScrapedCluster, number: int, *more: str) -> None:
    """Stop it as an operator does, and start it with other flags."""
    cluster.kill(number, signal.SIGTERM)
    cluster.more[number] = list(more)
    cluster.start(number)
    cluster.wait_ready()


def command(cluster: ScrapedCluster, *arguments: str) -> None:
    where = ["--connect", cluster.hosts(), "--key", str(cluster.directory / "cluster.key")]
    done = CliRunner().invoke(main, [*arguments, *where])
    assert done.exit_code == 0, done.output


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


def test_a_killed_server_one_with_another_key_and_a_lost_quorum_raise_alerts(
    start_cluster: StartCluster,
) -> None:
    cluster = scraped(start_cluster)
    leader = wait_until(cluster.leader, "a leader")
    gone, other = (n for n in cluster.servers if n != leader)
    with watch(cluster, cluster.targets) as prometheus:
        prometheus.wait_calm()
        cluster.kill(gone)
        prometheus.wait_firing(("ZraftServerMissing", gone))
        strange = cluster.directory / "strange.key"
        create_key_file(strange)
        cluster.keys[gone] = strange
        cluster.start(gone)
        prometheus.wait_firing(
            ("ZraftServerNotReady", gone),
            ("ZraftMemberSilent", gone),
            ("ZraftWrongKey", gone),
            ("ZraftWrongKey", leader),
        )
        cluster.kill(other)
        prometheus.wait_firing(("ZraftNoLeader", ""), ("ZraftServerMissing", other))
