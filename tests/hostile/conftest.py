"""One cluster for all attacks, and the ends of its logs when one succeeds."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile.besieged import Besieged
from tests.hostile.siege import Siege

_CLUSTER = pytest.StashKey[Besieged]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    cluster = item.session.stash.get(_CLUSTER, None)
    if report.failed and cluster is not None:
        for server in cluster.servers.values():
            report.sections.append((f"end of {server.log}", server.log_tail()))
    return report


@pytest.fixture(scope="session")
def siege(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    """The attacked cluster; what was measured is shown once more at the end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (hard, hard)
    )  # attackers' connections are this process's files
    with Besieged(tmp_path_factory.mktemp("hostile")) as cluster:
        request.session.stash[_CLUSTER] = cluster
        cluster.start_all()
        cluster.furnish()
        with Siege(cluster) as siege:
            yield siege
        print("", *siege.reports, sep="\n")
