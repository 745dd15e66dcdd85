"""What a server imports: as much as it needs to serve, and nothing while it serves.

Three servers of `zraft dev` start on two cores, and nearly all of their start is imports. So modules are counted, which
tells the same on every machine; seconds do not.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster
from tests.processes.conftest import StartCluster

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

OURS_MAX = 412
"""A few more than there are. What a server may do without until somebody asks for it is imported then."""
OTHERS_MAX = 340
"""Those of libraries and of Python, whose number differs a little between versions."""
IN_VAIN = {
    "aiohttp",
    "cryptography.x509",
    "prometheus_client",
    "rich.console",
    "zraft.admin.http",
    "zraft.cli.dev",
    "zraft.cli.operator_options",
}
"""Modules that take many others with them: a server loads them later, or with TLS only, or never."""


def imported(log: str) -> list[str]:
    """The modules in the lines of Python's `-X importtime`, in order. Those that were not found are among them."""
    lines = [line for line in log.splitlines() if line.startswith("import time:")]
    return [line.rpartition("|")[2].strip() for line in lines[1:]]


def test_a_server_imports_what_it_needs_to_serve_and_nothing_while_it_serves(
    start_cluster: StartCluster, open_sessions: Callable[[Cluster], Sessions]
) -> None:
    cluster = start_cluster(PYTHONPROFILEIMPORTTIME="1")
    client = open_sessions(cluster).open(first=1)
    client.create("/first", b"value")
    client.set("/first", b"other")
    assert "first" in client.get_children("/", watch=lambda _event: None)
    client.delete("/first")
    for server in cluster.servers.values():
        before, listening, after = server.log_text().partition("event=listening")
        assert listening
        modules = set(imported(before))
        ours = {name for name in modules if name.startswith("zraft")}
        assert "zraft.server.process.node" in ours
        assert not modules & IN_VAIN
        assert len(ours) <= OURS_MAX
        assert len(modules - ours) <= OTHERS_MAX
        assert imported(after) == []
