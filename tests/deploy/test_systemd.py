"""The unit of systemd: systemd understands it, its settings are ours, and a server works in its sandbox."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.sandbox import settings
from tests.processes.clients import Sessions
from tests.processes.cluster import ROOT, Cluster, free_ports
from tests.prometheus_tools import find_tool
from zraft.config.knobs import load_config

UNIT: Final = ROOT / "deploy" / "systemd" / "zraft.service"
DOCUMENT: Final = ROOT / "docs" / "how-to" / "deployment.md"


def chosen(name: str) -> str:
    """Return the value that the unit gives to `name`; the last one counts."""
    return dict(settings(UNIT.read_text(encoding="utf-8")))[name]


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/zraft/bin/zraft", sys.executable))
    return path


def analyze(*words: str) -> str:
    done = subprocess.run(
        [find_tool("systemd-analyze", "systemd"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_finds_nothing_wrong_with_the_unit(unit: Path) -> None:
    assert analyze("verify", "--man=no", "--recursive-errors=no", str(unit)) == ""


def test_a_setting_that_systemd_does_not_know_is_noticed(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("ProtectSystem=", "ProtectSistem="))
    with pytest.raises(AssertionError, match="ProtectSistem"):
        assert analyze("verify", "--man=no", "--recursive-errors=no", str(unit)) == ""


def test_the_exposure_is_what_the_document_says(unit: Path) -> None:
    shown = re.search(r"exposure level for \S+: ([\d.]+)", analyze("security", "--offline=true", str(unit)))
    said = re.search(r"exposure\s+level\s+of\s+([\d.]+)", DOCUMENT.read_text(encoding="utf-8"))
    assert shown is not None
    assert said is not None
    # Newer systemd looks at more.
    assert float(shown[1]) <= float(said[1]) + 0.2


def test_the_settings_beside_the_unit_are_those_of_a_server_of_three() -> None:
    words = chosen("ExecStart").split()
    assert words[1:3] == ["serve", "--config"]
    file = UNIT.with_name(Path(words[3]).name)
    config = load_config(flags={"log_format": words[5]}, environ={"ZRAFT_ID": "2"}, file=file)
    assert (config.id, sorted(config.cluster), config.log_format) == (2, [1, 2, 3], "json")
    assert str(config.data) == f"/var/lib/{chosen('StateDirectory')}"
    assert [path.name for path in config.key_files] == ["cluster.key"]


class Sandboxed(Cluster):
    """Servers that run under the unit's filter."""

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        return [
            *(sys.executable, "-m", "tests.deploy.sandbox", str(UNIT)),
            *super().command(number, data=data),
            *("--set", f"audit.file={self.directory / 'audit'}"),
            *("--admin", f"{self.host}:{free_ports(1)[0]}"),
        ]


@pytest.fixture
def told() -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(f"{directory}/notify")
        one.settimeout(60)
        yield one


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_a_server_works_where_only_the_system_calls_of_the_unit_are_allowed(
    tmp_path: Path, told: socket.socket
) -> None:
    find_tool("systemd-analyze", "systemd")
    with Sandboxed(tmp_path, servers=1, env={"NOTIFY_SOCKET": told.getsockname()}) as cluster:
        cluster.start_all()
        messages = [told.recv(4_096)]
        assert messages[0].startswith(b"READY=1\nSTATUS=")
        # A server says so within a second of its election.
        while b"STATUS=serving, as the leader\n" not in messages[-1]:
            messages.append(told.recv(4_096))
        sessions = Sessions(cluster)
        client = sessions.open()
        client.create("/a", b"x" * 100_000)
        assert client.get("/a")[0] == b"x" * 100_000
        sessions.close()
        server = cluster.servers[1].process
        assert server is not None
        assert "Seccomp:\t2\n" in Path(f"/proc/{server.pid}/status").read_text()
        server.terminate()
        assert server.wait(60) == 0
        while b"STOPPING=1" not in messages[-1]:
            messages.append(told.recv(4_096))
    assert "Traceback" not in cluster.servers[1].log_tail()
    assert "ermitted" not in cluster.servers[1].log_tail()
