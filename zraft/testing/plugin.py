"""The pytest plugin: fixtures `zraft_server` and `zraft_cluster`, for every project where zraft is installed.

Nothing of the server is imported before a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from zraft.testing.servers import ServerShare, TestCluster, TestServer

SCOPES: Final = ("session", "function")

_MARKER: Final = (
    "zraft(servers=3, own_server=False, settings=None): how many servers zraft_cluster has, whether zraft_server is for "
    "this test alone, and settings by the names of zraft's docs/reference/configuration.md, which make it so, too"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of the ini file."""
    parser.addini(
        "zraft_server_scope",
        "how long a server of the fixture zraft_server lives: 'session' (the default), or 'function' for one per test",
        default="session",
    )
    parser.addini(
        "zraft_cluster_servers", "how many servers the fixture zraft_cluster has (3 by default)", default="3"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", _MARKER)


class _Wishes:
    """What a test asks for by its marker, or else the ini file does."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        marker = request.node.get_closest_marker("zraft")
        given: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
        if marker is not None and marker.args:
            raise pytest.UsageError(f"marker zraft: found {marker.args!r}, expected names such as servers=3")
        scope = request.config.getini("zraft_server_scope")
        if scope not in SCOPES:
            raise pytest.UsageError(f"zraft_server_scope: found {scope!r}, expected {' or '.join(SCOPES)}")
        servers = str(given.pop("servers", request.config.getini("zraft_cluster_servers")))
        if not servers.isdecimal():
            raise pytest.UsageError(f"zraft_cluster_servers: found {servers!r}, expected a number of servers")
        self.servers = int(servers)
        self.settings: dict[str, object] | None = given.pop("settings", None)
        self.own_server = bool(given.pop("own_server", scope == "function")) or self.settings is not None
        if given:
            raise pytest.UsageError(
                f"marker zraft: found {', '.join(sorted(given))}, expected servers, own_server or settings"
            )


class _SharedServer:
    """The server that tests of a session share, from its first use on. One that a test killed is replaced."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server: TestServer | None = None

    def get(self) -> TestServer:
        from zraft.testing.servers import TestServer

        if self._server is None or not self._server.serves:
            self.close()
            self._server = self._stack.enter_context(TestServer())
        return self._server

    def close(self) -> None:
        self._server = None
        self._stack.close()


@pytest.fixture(scope="session")
def _zraft_shared_server() -> Iterator[_SharedServer]:
    shared = _SharedServer()
    yield shared
    shared.close()


@pytest.fixture
def zraft_server(
    request: pytest.FixtureRequest, _zraft_shared_server: _SharedServer
) -> Iterator[ServerShare[TestServer]]:
    """Return this test's part of a running server: `hosts` with a chroot, and a `prefix` for topics and dictionaries."""
    wishes = _Wishes(request)
    with ExitStack() as stack:
        if wishes.own_server:
            from zraft.testing.servers import TestServer

            server = stack.enter_context(TestServer(settings=wishes.settings))
        else:
            server = _zraft_shared_server.get()
        yield stack.enter_context(server.share(request.node.name))


@pytest.fixture
def zraft_cluster(request: pytest.FixtureRequest) -> Iterator[TestCluster]:
    """Return a cluster of this test alone, whose servers the test may kill, pause and cut off from each other."""
    from zraft.testing.servers import TestCluster

    wishes = _Wishes(request)
    with TestCluster(wishes.servers, settings=wishes.settings) as cluster:
        yield cluster
