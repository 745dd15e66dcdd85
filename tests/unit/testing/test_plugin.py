"""The pytest plugin, as a project uses it that has zraft installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint

import pytest

from tests.packaging.distributions import setup_cfg
from tests.packaging.test_package import import_path
from zraft.testing import plugin

# Runs in this process find the server imported, and take no second to begin.
import_module("zraft.testing.servers")

pytest_plugins = ("pytester",)

# This checkout's plugin, and not the one that may be installed.
OPTIONS = ("-p", "no:zraft", "-p", "no:cacheprovider", "--strict-markers")

INI = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose interpreter finds this checkout."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, import_path())))
    pytester.makeini(INI)
    return pytester


def run(project: pytest.Pytester) -> pytest.RunResult:
    return project.runpytest_inprocess(*OPTIONS, plugins=[plugin])


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    (line,) = setup_cfg("zraft")["options.entry_points"]["pytest11"].strip().split("\n")
    name, _, value = line.partition(" = ")
    assert name == "zraft"
    assert hasattr(EntryPoint(name, value, "pytest11").load(), "zraft_server")


@pytest.mark.usefixtures("project")
def test_a_project_that_uses_no_fixture_pays_for_nothing() -> None:
    """Pytest imports the plugin wherever zraft is installed."""
    program = "import sys, pytest; before = set(sys.modules); import zraft.testing.plugin; print(*set(sys.modules) - before)"
    imported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert set(imported.split()) <= {"zraft", "zraft.testing", "zraft.testing.plugin"}


def test_tests_share_a_server_and_each_has_a_chroot_and_a_prefix(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from kazoo.client import KazooClient

        seen = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_share(zraft_server, number):
            client = KazooClient(hosts=zraft_server.hosts)
            client.start()
            assert client.get_children("/") == []
            client.create("/here", ephemeral=True)
            client.stop()
            client.close()
            seen.append(zraft_server)

        def test_after():
            one, two = seen
            assert one.addresses == two.addresses
            assert one.chroot != two.chroot
            assert not two.prefix.startswith(one.prefix)
        """
    )
    run(project).assert_outcomes(passed=3)


def test_a_test_may_have_a_server_alone_and_a_killed_one_is_replaced(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        seen = []

        def test_first(zraft_server):
            seen.append(zraft_server.addresses)

        @pytest.mark.zraft(own_server=True)
        def test_alone(zraft_server):
            assert zraft_server.addresses != seen[0]
            zraft_server.servers.kill()

        @pytest.mark.zraft(settings={"tick_time_ms": 200})
        def test_settings(zraft_server):
            assert zraft_server.addresses != seen[0]

        def test_shared(zraft_server):
            assert zraft_server.addresses == seen[0]
            zraft_server.servers.kill()

        def test_replaced(zraft_server):
            assert zraft_server.addresses != seen[0]
        """
    )
    run(project).assert_outcomes(passed=5)


def test_a_cluster_is_of_one_test_with_as_many_servers_as_it_asks_for(project: pytest.Pytester) -> None:
    project.makeini(INI + "zraft_cluster_servers = 2\nzraft_server_scope = function\n")
    project.makepyfile(
        """
        import pytest

        seen = []

        def test_two(zraft_cluster):
            assert zraft_cluster.servers == (1, 2)
            zraft_cluster.kill(1)

        @pytest.mark.zraft(servers=3)
        def test_three(zraft_cluster):
            assert zraft_cluster.servers == (1, 2, 3)
            assert zraft_cluster.leader in (1, 2, 3)

        def test_first(zraft_server):
            seen.append(zraft_server.addresses)

        def test_second(zraft_server):
            assert zraft_server.addresses != seen[0]
        """
    )
    run(project).assert_outcomes(passed=4)


def test_a_fixture_serves_coroutines(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from zraft_client import Client

        @pytest.mark.asyncio
        async def test_coroutine(zraft_server):
            async with Client(zraft_server.addresses) as client:
                await client.put("a", 1, dictionary=zraft_server.prefix + "d")
        """
    )
    run(project).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("ini", "marker", "said"),
    [
        (
            "zraft_server_scope = module",
            "",
            "zraft_server_scope: found 'module', expected session or function",
        ),
        ("zraft_cluster_servers = many", "", "zraft_cluster_servers: found 'many', expected a number"),
        (
            "",
            "@pytest.mark.zraft(size=3)",
            "marker zraft: found size, expected servers, own_server or settings",
        ),
        ("", "@pytest.mark.zraft(3)", "marker zraft: found (3,), expected names such as servers=3"),
        ("", "@pytest.mark.zraft(settings={'no': 1})", "no (in settings): there is no such knob"),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_expected(
    project: pytest.Pytester, ini: str, marker: str, said: str
) -> None:
    project.makeini(f"{INI}{ini}\n")
    project.makepyfile(f"import pytest\n\n{marker}\ndef test_it(zraft_server): pass\n")
    result = run(project)
    result.assert_outcomes(errors=1)
    assert said in result.stdout.str()


def test_every_worker_of_xdist_has_a_server_of_its_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pathlib, pytest

        @pytest.mark.parametrize("number", range(4))
        def test_share(zraft_server, number, worker_id):
            pathlib.Path(f"{worker_id}-{zraft_server.servers.port}").touch()
        """
    )
    project.runpytest_subprocess(*OPTIONS, "-p", "zraft.testing.plugin", "-n", "2").assert_outcomes(passed=4)
    servers = [path.name.split("-") for path in project.path.glob("gw*-*")]
    assert len({worker for worker, _ in servers}) == len({port for _, port in servers}) == len(servers) == 2
