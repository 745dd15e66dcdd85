"""Releases and configurations roll through a cluster, one server at a time, under load (D-5)."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from tests.processes import old_release
from tests.processes.clients import Sessions
from tests.processes.cluster import wait_until
from tests.processes.members import GrowingCluster
from tests.processes.workload import Workload
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.operator.requests import (
    Done,
    SettingsListing,
    SettingsSet,
    SettingsShow,
    SnapshotFile,
    SnapshotTake,
)

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

StartCluster = Callable[..., GrowingCluster]
OpenSessions = Callable[[GrowingCluster], Sessions]

OLD_RELEASE: Final = Path(old_release.__file__)


class RollingCluster(GrowingCluster):
    """Servers of which each has settings, and a release, of its own."""

    def __init__(self, directory: Path, *, servers: int = 3, env: dict[str, str] | None = None) -> None:
        self.settings: dict[int, tuple[str, ...]] = dict.fromkeys(range(1, servers + 1), ("features_max=1",))
        self.old: set[int] = set()
        super().__init__(directory, servers=servers, env=env)

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = super().command(number, data=data)
        for setting in self.settings[number]:
            command += ["--set", setting]
        if number in self.old:
            command = [sys.executable, str(OLD_RELEASE), *command[command.index("serve") :]]
        return command

    def level(self) -> int:
        """The feature level in force."""
        return self.operate(SettingsShow(), SettingsListing).feature_level

    def setting(self, name: str) -> int:
        listing = self.operate(SettingsShow(), SettingsListing)
        return next(line.value for line in listing.settings if line.name == name)

    def roll(self, number: int, *settings: str) -> None:
        """Stop it as an operator does, and start it with other settings."""
        assert self.kill(number, signal.SIGTERM) == 0
        self.settings[number] = settings
        self.start(number)
        self.wait_ready()


class Pauses:
    """A client that writes all the time, with retries, and notes how long it waited at most."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._stop = threading.Event()
        self.longest = 0.0
        self.failure: BaseException | None = None
        client.ensure_path("/pauses")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._client.retry(self._client.set, "/pauses", b"x")
                self.longest = max(self.longest, time.monotonic() - began)
        except BaseException as error:
            # Raised in the test's own thread by `stop`.
            self.failure = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.failure is not None:
            raise AssertionError("a write failed for good") from self.failure


def test_a_release_and_a_configuration_roll_through_the_cluster_under_load(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """D-5: the level rises by itself when the last server announces it, and replicated settings change meanwhile.

    No request fails beyond a retry (`Workers.failed_twice`), and the states are equal.
    """
    # A machine that is busy with other tests must not cost elections: each closes its clients' connections (D-14).
    cluster = start_cluster(kind=RollingCluster, ZRAFT_RAFT__ELECTION_TIMEOUT_TICKS="1000")
    assert isinstance(cluster, RollingCluster)
    sessions = open_sessions(cluster)
    workload = Workload(cluster, sessions)
    workload.start()
    pauses = Pauses(sessions.open(name="pauses"))
    workload.wait_progress()
    leader = wait_until(cluster.leader, "a leader")
    new = ("features_max=2", "snapshot.commands_min=500", "peer.datagram_bytes=1400")
    assert cluster.level() == 1
    for number in [n for n in cluster.servers if n != leader]:
        cluster.roll(number, *new)
        workload.wait_progress()
        assert cluster.level() == 1, "the level rose although a server does not announce it"
    cluster.operate(SettingsSet("session_timeout_ms_max", 77_000), Done)
    cluster.roll(leader, *new)
    wait_until(lambda: cluster.level() == 2, "the level to rise")
    workload.wait_progress()
    workload.stop_and_check()
    assert not workload.failed_twice, "requests failed beyond a retry"
    pauses.stop()
    assert cluster.setting("session_timeout_ms_max") == 77_000
    taken = [int((cluster.mntr(n) or {})["snapshots_taken_total"]) for n in cluster.servers]
    print(
        f"{workload.acknowledged} steps acknowledged, {workload.uncertain} uncertain; longest pause of writes "
        f"{pauses.longest * 1000:.0f} ms; snapshots {taken}"
    )
    cluster.wait_equal_digests()


def test_an_old_release_stops_with_a_clear_error_where_the_cluster_has_moved_on(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """Before it applies what it does not understand, whether it meets it in the log or in a snapshot."""
    cluster = start_cluster(kind=RollingCluster)
    assert isinstance(cluster, RollingCluster)
    client = open_sessions(cluster).open()
    client.create("/a", b"1")
    behind = next(n for n in cluster.servers if n != cluster.leader())
    cluster.kill(behind, signal.SIGTERM)
    others = [n for n in cluster.servers if n != behind]
    for number in others:
        cluster.kill(number, signal.SIGTERM)
        cluster.settings[number] = ()
        cluster.start(number)
    cluster.settings[behind] = ()
    cluster.start(behind)
    cluster.wait_ready()
    wait_until(lambda: cluster.level() == FEATURE_LEVEL_MAX, "the level to rise")
    cluster.kill(behind, signal.SIGTERM)

    cluster.old.add(behind)
    cluster.settings[behind] = ("features_max=1",)
    for _ in ("from its log", "and again"):
        cluster.start(behind)
        assert cluster.wait_exit(behind) == 1
        text = cluster.servers[behind].log_text()
        assert (
            f"is of feature level {FEATURE_LEVEL_MAX}, this release knows 1 to 1: install the release" in text
        )
        assert "Traceback" not in text

    # From a snapshot: the leader's, on an empty disk.
    leader = cluster.wait_ready(others)
    cluster.operate(SnapshotTake(), SnapshotFile)
    cluster.wipe(behind)
    cluster.start(behind)
    assert cluster.wait_exit(behind) == 1
    assert "install the release" in cluster.servers[behind].log_text()

    # The release that the others run finds all in order.
    cluster.old.clear()
    cluster.wipe(behind)
    cluster.start(behind)
    cluster.wait_ready()
    assert cluster.leader() == leader
    cluster.wait_equal_digests()


def test_a_server_that_announces_less_than_is_in_force_says_that_this_has_no_effect(
    start_cluster: StartCluster,
) -> None:
    """`features_max` holds an upgrade back only until it has happened."""
    cluster = start_cluster(kind=RollingCluster, servers=1)
    assert isinstance(cluster, RollingCluster)
    cluster.roll(1, "features_max=2")
    wait_until(lambda: cluster.level() == 2, "the level to rise")
    cluster.roll(1, "features_max=1")
    cluster.servers[1].wait_says("features_max=1", "level 2")
    assert cluster.level() == 2
