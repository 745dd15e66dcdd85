"""Fixtures that start real servers and end them, and show the ends of their logs when a test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster
from tests.processes.java import java_classes

StartCluster = Callable[..., Cluster]

_CLUSTERS = pytest.StashKey[list[Cluster]]()


def _clusters_of(item: pytest.Item) -> list[Cluster]:
    """Those that the test started, and those that it shares with others of its module."""
    given = getattr(item, "funcargs", {}).values()
    started = item.stash.get(_CLUSTERS, [])
    return [*started, *(one for one in given if isinstance(one, Cluster) and one not in started)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.failed:
        for cluster in _clusters_of(item):
            for server in cluster.servers.values():
                report.sections.append((f"end of {server.log}", server.log_tail()))
    return report


@pytest.fixture
def start_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartCluster]:
    """A function that starts a cluster and waits until it serves; keywords are environment variables."""
    clusters: list[Cluster] = []
    request.node.stash[_CLUSTERS] = clusters
    with ExitStack() as stack:

        def start(*, servers: int = 3, kind: type[Cluster] = Cluster, **env: str) -> Cluster:
            cluster = stack.enter_context(kind(tmp_path, servers=servers, env=env))
            clusters.append(cluster)
            cluster.start_all()
            return cluster

        yield start


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """ZooKeeper's and Curator's own classes, in one JVM for all tests."""
    with java_classes(tmp_path_factory.mktemp("java") / "log") as jvm:
        yield jvm


@pytest.fixture
def cluster(start_cluster: StartCluster) -> Cluster:
    """Three servers with default settings."""
    return start_cluster()


@pytest.fixture
def open_sessions() -> Iterator[Callable[[Cluster], Sessions]]:
    """A function that gives the clients of a cluster; they are closed before the servers are ended."""
    opened: list[Sessions] = []

    def sessions(cluster: Cluster) -> Sessions:
        opened.append(Sessions(cluster))
        return opened[-1]

    yield sessions
    for one in opened:
        one.close()


@pytest.fixture
def sessions(cluster: Cluster) -> Iterator[Sessions]:
    """Clients of `cluster`."""
    opened = Sessions(cluster)
    yield opened
    opened.close()
