"""A real Prometheus that scrapes real servers and evaluates the alert rules that zraft ships."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from tests.processes.cluster import DEADLINE_S, HOST, Cluster, free_ports, wait_until
from tests.processes.disks import FaultyCluster
from tests.processes.erring import ErringCluster
from tests.prometheus_tools import RULES, find_tool
from zraft.cli.main import main
from zraft_core.address import Address

SCRAPE_S: Final = 1
HOLD_S: Final = 3
"""How long a condition must hold here; minutes in the rules as they are shipped."""


class ScrapedCluster(FaultyCluster):
    """Servers with admin addresses, whose disks take orders, and each with flags of its own.

    Attributes:
        keys: key files of servers that have another one than the cluster's.
        more: flags of a server beyond the usual ones, from its next start on.
        before: what stands in front of a server's command, such as `prlimit`.
    """

    def __init__(self, directory: Path, *, servers: int = 3, env: Mapping[str, str] | None = None) -> None:
        self._admin_ports: dict[int, int] = {}
        self.keys: dict[int, Path] = {}
        self.more: dict[int, list[str]] = {}
        self.before: dict[int, list[str]] = {}
        super().__init__(directory, servers=servers, env=env)

    def _place(self, count: int) -> None:
        super()._place(count)
        self._admin_ports = dict(zip(self.servers, free_ports(count, self.host), strict=True))

    def admin(self, number: int) -> Address:
        return Address(self.host, self._admin_ports[number])

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = [*super().command(number, data=data), "--admin", str(self.admin(number))]
        if number in self.keys:
            command[command.index("--key") + 1] = str(self.keys[number])
        return [*self.before.get(number, ()), *command, *self.more.get(number, ())]

    def give_key(self, number: int) -> Path:
        """From its next start on, server `number` has a copy of the cluster's key, as on a machine of its own."""
        self.keys[number] = copy = self.directory / f"cluster-{number}.key"
        copy.touch(0o600)
        copy.write_bytes(self.key.read_bytes())
        return copy

    @property
    def targets(self) -> dict[Address, str]:
        """Whom Prometheus scrapes, by the names that `Prometheus.firing` gives them."""
        return {self.admin(number): str(number) for number in self.servers}


class ErringScrapedCluster(ErringCluster, ScrapedCluster):
    """Servers that err when told to, and are scraped."""


class Prometheus:
    """Scrapes `targets` (address: name) as one job, every second. Use as a context manager.

    The shipped rules are in force but for `for`, which is seconds: expressions, windows and thresholds are as they are.
    """

    def __init__(self, directory: Path, targets: Mapping[Address, str]) -> None:
        self._program = find_tool("prometheus")
        self._directory = directory
        self._names = {str(address): name for address, name in targets.items()}
        self._log = directory / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""

    def __enter__(self) -> Prometheus:
        directory = self._directory
        directory.mkdir()
        rules = re.sub(r"^( +for:) \w+$", rf"\1 {HOLD_S}s", RULES.read_text(), flags=re.MULTILINE)
        (directory / "rules.yml").write_text(rules)
        scraped = {
            "job_name": "zraft",
            "static_configs": [{"targets": list(self._names)}],
        }
        every = {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"}
        configuration = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": [scraped]}
        (directory / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
        [port] = free_ports(1)
        self._url = f"http://{HOST}:{port}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(self._program, f"--config.file={directory / 'prometheus.yml'}"),
                    *(f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={HOST}:{port}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(self._ready, "Prometheus to be ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-4_000:]
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def _get(self, path: str, **query: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> dict[str, float]:
        """The value at the moment of `expression`, by the name of the server (or its label `server`)."""
        return {
            self._whose(one["metric"]): float(one["value"][1])
            for one in self._get("query", query=expression)["result"]
        }

    def answers(self, expression: str) -> int:
        """The number of series in the answer to `expression`."""
        return len(self._get("query", query=expression)["result"])

    def _whose(self, labels: Mapping[str, str]) -> str:
        if "instance" in labels:
            return self._names[labels["instance"]]
        return labels.get("server", "")

    def firing(self) -> set[tuple[str, str]]:
        """(alert, server) of every alert that fires; server "" if it is of the whole cluster."""
        return {
            (alert["labels"]["alertname"], self._whose(alert["labels"]))
            for alert in self._get("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def wait_firing(self, *alerts: tuple[str, int | str]) -> None:
        """Until all of them fire."""
        wanted = {(alert, str(server)) for alert, server in alerts}

        def missing() -> set[tuple[str, str]]:
            return wanted - self.firing()

        wait_until(lambda: not missing(), f"{sorted(wanted)} to fire", 2 * DEADLINE_S)

    def wait_calm(self, *still: tuple[str, int | str]) -> None:
        """Until nothing fires but `still`, after all servers were scraped, and for longer than an alert waits."""
        allowed = {(alert, str(server)) for alert, server in still}
        seen = f"min_over_time(up[{HOLD_S + 2}s]) == 1 and count_over_time(up[{HOLD_S + 2}s]) > {HOLD_S}"
        try:
            wait_until(
                lambda: len(self.query(seen)) == len(self._names) and self.firing() <= allowed,
                f"nothing to fire but {sorted(allowed)}",
                2 * DEADLINE_S,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; {sorted(self.firing())} fire") from error


def watch(cluster: ScrapedCluster, more: Mapping[Address, str] | None = None) -> Prometheus:
    """A Prometheus that scrapes all servers of `cluster`, and `more`."""
    return Prometheus(cluster.directory / "prometheus", cluster.targets | dict(more or {}))


def scraped(start_cluster: Callable[..., Cluster], *, servers: int = 3, **env: str) -> ScrapedCluster:
    """Start servers that are scraped."""
    cluster = start_cluster(kind=ScrapedCluster, servers=servers, **env)
    assert isinstance(cluster, ScrapedCluster)
    return cluster


def erring(start_cluster: Callable[..., Cluster]) -> ErringScrapedCluster:
    """Start three servers that err when told to, and are scraped."""
    cluster = start_cluster(kind=ErringScrapedCluster)
    assert isinstance(cluster, ErringScrapedCluster)
    return cluster


def command(cluster: ScrapedCluster, *arguments: str, code: int = 0) -> None:
    """Run `zraft` as an operator of the cluster does, and expect this exit code."""
    where = ["--connect", cluster.hosts(), "--key", str(cluster.directory / "cluster.key")]
    done = CliRunner().invoke(main, [*arguments, *where])
    assert done.exit_code == code, done.output
