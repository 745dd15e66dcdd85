"""Measures three servers of etcd under the loads of README's table, to set its figures beside those of zraft.

    python -m tests.bench.etcd                     five seconds per cell, medians of three
    python -m tests.bench.etcd --seconds 10 --repeat 5

It needs the programs `etcd` and `h2load` (Debian's packages etcd-server and nghttp2-client). The load generator is no client
library: `h2load` sends ready-made gRPC calls over HTTP/2, so it costs less of the machine than any client would. "64x16" is
64 connections with 16 calls each under way, spread over all servers; a single connection goes to the leader. Each write sets
the same key; a check of etcd's revision says how many were done. Reads are serializable ones, which a server answers from
its own state, as a server of ZooKeeper or zraft does. CPU is that of all servers per call.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen
from rich.console import Console
from rich.table import Table

from zraft_bench.processes import ServerError, ServerProcess, end_all, free_ports, total_cpu_s

SERVERS: Final = 3
PATIENCE_S: Final = 30.0
KEY: Final = b"key"
VALUE: Final = bytes(100)
PUT: Final = "etcdserverpb.KV/Put"
RANGE: Final = "etcdserverpb.KV/Range"


@frozen
class Cell:
    """A load: `connections` with `under_way` calls each."""

    method: str
    connections: int
    under_way: int

    @property
    def name(self) -> str:
        return f"{'write' if self.method == PUT else 'read'} {self.connections}x{self.under_way}"


CELLS: Final = (Cell(PUT, 1, 1), Cell(PUT, 8, 1), Cell(PUT, 64, 1), Cell(PUT, 64, 16), Cell(RANGE, 64, 16))


@frozen
class Found:
    """Result of a run of a cell: latencies in ms, CPU in us per call."""

    rate: float
    median_ms: float
    p99_ms: float
    cpu_us: float


def _field(number: int, data: bytes) -> bytes:
    """Return a length-delimited field of a protobuf message, of less than 128 bytes."""
    assert len(data) < 128
    return bytes(((number << 3) | 2, len(data))) + data


def _call(message: bytes) -> bytes:
    """Return a message of gRPC: not compressed, its length, itself."""
    return b"\0" + len(message).to_bytes(4) + message


BODIES: Final = {
    PUT: _call(_field(1, KEY) + _field(2, VALUE)),
    # Field 7, serializable: true.
    RANGE: _call(_field(1, KEY) + bytes((7 << 3, 1))),
}


class Etcd:
    """Three running servers. `ports` are those of clients, the leader's first."""

    def __init__(self, processes: Sequence[ServerProcess], ports: Sequence[int]) -> None:
        self._processes = processes
        self.ports = sorted(ports, key=lambda port: not self._leads(port))

    def _leads(self, port: int) -> bool:
        status = _ask(port, "maintenance/status")
        return bool(status["leader"] == status["header"]["member_id"])

    @property
    def cpu_s(self) -> float:
        """The CPU time of all servers so far."""
        return total_cpu_s(self._processes)

    @property
    def revision(self) -> int:
        """The number of changes that were made."""
        return int(_ask(self.ports[0], "maintenance/status")["header"]["revision"])


def _ask(port: int, what: str) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/{what}", data=b"{}")
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


@contextmanager
def running(directory: Path) -> Iterator[Etcd]:
    """Run three servers, and end them."""
    clients, peers = free_ports(SERVERS), free_ports(SERVERS)
    cluster = ",".join(f"e{n}=http://127.0.0.1:{port}" for n, port in enumerate(peers))
    processes: list[ServerProcess] = []
    try:
        for n, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            at, by = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
            command = [
                *("etcd", "--name", f"e{n}", "--data-dir", str(directory / f"e{n}"), "--log-level", "error"),
                *("--listen-client-urls", at, "--advertise-client-urls", at),
                *("--listen-peer-urls", by, "--initial-advertise-peer-urls", by),
                *("--initial-cluster", cluster, "--quota-backend-bytes", str(4 << 30)),
            ]
            processes.append(ServerProcess(command, directory / f"e{n}.log"))
            processes[-1].start()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if all(_ask(port, "maintenance/status").get("leader") for port in clients):
                    break
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise ServerError(f"no leader within {PATIENCE_S:.0f} s:\n{processes[0].log_tail()}")
            time.sleep(0.2)
        yield Etcd(processes, clients)
    finally:
        end_all(processes)


def measure(etcd: Etcd, cell: Cell, seconds: int, directory: Path) -> Found:
    """Run a cell once.

    Raises:
        click.ClickException: a call failed, or fewer changes were made than answered.
    """
    body = directory / "body"
    body.write_bytes(BODIES[cell.method])
    ports = etcd.ports[: min(cell.connections, SERVERS)]
    shares = [len(range(at, cell.connections, len(ports))) for at in range(len(ports))]
    before, cpu, rate = etcd.revision, etcd.cpu_s, 0.0
    loads = []
    for port, share in zip(ports, shares, strict=True):
        log = directory / f"calls-{port}"
        log.unlink(missing_ok=True)
        command = [
            *("h2load", "-c", str(share), "-m", str(cell.under_way), "-D", str(seconds), "-d", str(body)),
            *("-H", "content-type: application/grpc", "-H", "te: trailers", f"--log-file={log}"),
            f"http://127.0.0.1:{port}/{cell.method}",
        ]
        loads.append((log, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
    for _, load in loads:
        shown, _ = load.communicate()
        found = re.search(r"finished in \S+, (\S+) req/s", shown)
        if load.returncode or found is None or " 0 failed, 0 errored" not in shown:
            raise click.ClickException(f"h2load, {cell.name}:\n{shown}")
        rate += float(found[1])
    cpu = etcd.cpu_s - cpu
    micros = sorted(int(line.split("\t")[2]) for log, _ in loads for line in log.read_text().splitlines())
    if cell.method == PUT and etcd.revision - before < len(micros):
        raise click.ClickException(f"{len(micros)} writes answered, {etcd.revision - before} made")
    return Found(
        rate,
        statistics.median(micros) / 1_000,
        micros[len(micros) * 99 // 100] / 1_000,
        1e6 * cpu / len(micros),
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", type=click.IntRange(1), default=5, show_default=True, help="Of each cell.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Medians of so many.")
def main(seconds: int, repeat: int) -> None:
    """Measure three servers of etcd under the loads of README's table."""
    for program in ("etcd", "h2load"):
        if shutil.which(program) is None:
            raise click.ClickException(
                f"{program} not found; install Debian's packages etcd-server and nghttp2-client"
            )
    version = subprocess.check_output(("etcd", "--version"), text=True).splitlines()[0]
    table = Table("cell", "calls/s", "p50 ms", "p99 ms", "CPU us/call", title=version)
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch)) as etcd:
        measure(etcd, Cell(PUT, 64, 16), seconds, Path(scratch))  # to warm up
        for cell in CELLS:
            found = [measure(etcd, cell, seconds, Path(scratch)) for _ in range(repeat)]
            rates = sorted(one.rate for one in found)
            table.add_row(
                cell.name,
                f"{statistics.median(rates):,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f})",
                f"{statistics.median(one.median_ms for one in found):.2f}",
                f"{statistics.median(one.p99_ms for one in found):.2f}",
                f"{statistics.median(one.cpu_us for one in found):,.0f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
