"""Measures what idle servers cost: `python -m tests.processes.idle [--partitions 500] [--seconds 20]`.

Three servers as they come, sealed, without a client. Prints for each of them the share of a core that its process takes and
how often its threads were woken in a second. A thread that waits is woken once per voluntary switch of context, as the
kernel counts it. Run it on a quiet machine: beside other work a wake-up costs more.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

import click
from attrs import frozen

from tests.processes.cluster import wait_until
from tests.processes.members import GrowingCluster

SETTLE_S: Final = 5.0
"""After the start, or once the partitions are there: what follows from these has ended."""

PARTITIONS_WITHIN_S: Final = 300.0


@frozen
class _Counted:
    """What one process has taken since its start: seconds of CPU, and wake-ups of each of its threads, by name."""

    cpu_s: float
    wakes: dict[str, int]


def _count(process: int) -> _Counted:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    wakes: dict[str, int] = {}
    for number, thread in enumerate(
        sorted(Path(f"/proc/{process}/task").iterdir(), key=lambda one: int(one.name))
    ):
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                wakes["loop" if not number else f"thread {number}"] = int(line.split()[1])
    return _Counted((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), wakes)


def measure(directory: Path, partitions: int, seconds: float) -> None:
    """Start the servers, leave them alone, and say what they did."""
    with GrowingCluster(directory) as cluster:
        cluster.start_all()
        if partitions:
            made = cluster.zraft(
                *(
                    "topic",
                    "create",
                    "idle",
                    "--partitions",
                    str(partitions),
                    "--timeout",
                    str(PARTITIONS_WITHIN_S),
                ),
                timeout_s=PARTITIONS_WITHIN_S,
            )
            assert made.returncode == 0, made.stdout + made.stderr
        time.sleep(SETTLE_S)
        leader = wait_until(cluster.leader, "a leader")
        time.sleep(SETTLE_S)
        pids = {n: s.process.pid for n, s in cluster.servers.items() if s.process is not None}
        before = {n: _count(pid) for n, pid in pids.items()}
        began = time.monotonic()
        time.sleep(seconds)
        after = {n: _count(pid) for n, pid in pids.items()}
        took = time.monotonic() - began
        for n, then in before.items():
            wakes = {
                thread: (count - then.wakes.get(thread, 0)) / took for thread, count in after[n].wakes.items()
            }
            woken = ", ".join(f"{thread} {rate:.1f}" for thread, rate in wakes.items() if rate >= 0.1)
            share = 100 * (after[n].cpu_s - then.cpu_s) / took
            who = f"server {n} (leads)" if n == leader else f"server {n}"
            print(f"{who}: {share:.2f} % of a core; wake-ups a second: {woken}")


@click.command()
@click.option("--partitions", default=0, show_default=True, type=click.IntRange(0), help="Of one topic.")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(min=1.0))
def main(partitions: int, seconds: float) -> None:
    """Measure what idle servers cost."""
    with tempfile.TemporaryDirectory(prefix="zraft-idle-") as directory:
        measure(Path(directory), partitions, seconds)


if __name__ == "__main__":
    main()
