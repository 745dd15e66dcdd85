"""Trials on a local cluster: a leader is lost, and another one leads, or serves, after some time.

The leader is lost by SIGKILL, or by SIGSTOP, which is like a machine that hangs. Times are of the clock that
all processes of this machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from attrs import evolve, frozen

from zraft_bench.cluster import LocalCluster, wait_until
from zraft_bench.election.times import LogEvent, elected, log_events, trial_of
from zraft_bench.processes import ServerError
from zraft_bench.results import FAILED, ElectionTrial
from zraft_bench.targets.target import RequestFailedError, Target

ELECTION_TIMEOUT_S: Final = 30.0
PAUSE_S: Final = (0.1, 0.3)
"""Seconds between everybody serving and the next loss, drawn anew each time: losses must not fall in step with
heartbeats.
"""

RETRY_PAUSE_S: Final = 0.005
HOWS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def now_ms() -> float:
    """Return the monotonic clock in milliseconds, as servers log it."""
    return time.monotonic() * 1000


class Logs:
    """Servers' logs since the last call of `mark`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._offsets: dict[int, int] = {}

    def mark(self) -> None:
        """Begin here: `events` returns nothing older."""
        self._offsets = {
            n: process.log.stat().st_size if process.log.exists() else 0
            for n, process in self._cluster.processes.items()
        }

    def events(self, servers: Sequence[int]) -> list[LogEvent]:
        """Return the events that these servers have logged since `mark`."""
        found: list[LogEvent] = []
        for server in servers:
            with self._cluster.processes[server].log.open("rb") as log:
                log.seek(self._offsets[server])
                found += log_events(server, log.read().decode(errors="replace"))
        return found


def lose_leader(
    cluster: LocalCluster, how: signal.Signals, number: int, rng: random.Random
) -> tuple[ElectionTrial, int]:
    """Lose the leader, and watch the election after it; return the trial and the lost server, which stays lost.

    Raises:
        ServerError: the servers did not serve before the loss.
    """
    leader = cluster.wait_serving()
    others = [n for n in cluster.processes if n != leader]
    logs = Logs(cluster)
    time.sleep(rng.uniform(*PAUSE_S))
    logs.mark()
    lost_at = now_ms()
    cluster.processes[leader].signal(how)
    try:
        wait_until(
            lambda: elected(logs.events(others), lost_at), "a server to become leader", ELECTION_TIMEOUT_S
        )
    except ServerError as error:
        return ElectionTrial(number=number, killed=leader, state=FAILED, reason=str(error)), leader
    return evolve(trial_of(number, leader, lost_at, logs.events(others)), lost_at_ms=lost_at), leader


def bring_back(cluster: LocalCluster, lost: int, how: signal.Signals) -> None:
    """Start or continue the lost server, and wait until all serve.

    Raises:
        ServerError: they do not.
    """
    process = cluster.processes[lost]
    if how is signal.SIGSTOP:
        process.signal(signal.SIGCONT)
    else:
        process.kill()
        process.start()
    cluster.wait_serving()


def run_elections(
    cluster: LocalCluster,
    trials: int,
    how: signal.Signals,
    *,
    seed: int,
    on_trial: Callable[[ElectionTrial], None],
) -> list[ElectionTrial]:
    """Run so many trials and keep failed ones; `on_trial` is called after each.

    Raises:
        ServerError: the cluster is gone.
    """
    rng = random.Random(seed)
    found = []
    for number in range(1, trials + 1):
        trial, lost = lose_leader(cluster, how, number, rng)
        found.append(trial)
        on_trial(trial)
        bring_back(cluster, lost, how)
    return found


@frozen
class Outage:
    """Time in which clients could not write, in milliseconds after the loss of the leader."""

    gap_ms: float
    served_ms: float


def outage(acknowledged_ms: Sequence[float], lost_at_ms: float) -> Outage | None:
    """Return the longest time without an acknowledgement since the loss, and when it ended; None if it never did.

    A request that was under way at the loss may still be acknowledged after it, so the first acknowledgement
    alone says nothing.
    """
    times = [lost_at_ms, *sorted(at for at in acknowledged_ms if at >= lost_at_ms)]
    gaps = [(later - earlier, later) for earlier, later in pairwise(times)]
    if not gaps:
        return None
    gap, end = max(gaps)
    return Outage(gap, end - lost_at_ms)


class Writers:
    """Clients that write all the time, one request each, and note when something was acknowledged."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self._tasks: list[asyncio.Task[None]] = []
        self.acknowledged_ms: list[float] = []
        self.failed = 0

    async def start(self) -> None:
        """Begin to write.

        Raises:
            RequestFailedError: a client cannot connect.
        """
        for number, target in enumerate(self._targets):
            await target.open()
            await target.prepare([number], b"x")
        self._tasks = [
            asyncio.get_running_loop().create_task(self._write(number, target))
            for number, target in enumerate(self._targets)
        ]

    async def _write(self, number: int, target: Target) -> None:
        while True:
            try:
                await target.write(number, b"x" * 100)
            except RequestFailedError:
                self.failed += 1
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            self.acknowledged_ms.append(now_ms())

    async def stop(self) -> None:
        """Stop writing and close the connections."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for target in self._targets:
            await target.close()


async def failover_trial(
    cluster: LocalCluster,
    how: signal.Signals,
    number: int,
    targets: Sequence[Target],
    rng: random.Random,
    after_s: float,
) -> ElectionTrial:
    """Run one loss under load; everything serves again afterwards.

    Raises:
        ServerError: the cluster is gone.
    """
    writers = Writers(targets)
    try:
        await writers.start()
        # Wait until every client writes steadily.
        await asyncio.sleep(rng.uniform(0.5, 1.0))
        trial, lost = await asyncio.to_thread(lose_leader, cluster, how, number, rng)
        if trial.led_ms is None:
            await asyncio.to_thread(bring_back, cluster, lost, how)
            return trial
        lost_at = trial.lost_at_ms
        await asyncio.sleep(after_s)
    except RequestFailedError as error:
        return ElectionTrial(number=number, killed=0, state=FAILED, reason=str(error))
    finally:
        await writers.stop()
    found = outage(writers.acknowledged_ms, lost_at)
    await asyncio.to_thread(bring_back, cluster, lost, how)
    if found is None:
        reason = f"no write was acknowledged within {after_s:g} s after the election"
        return evolve(trial, state=FAILED, reason=reason)
    return evolve(trial, served_ms=found.served_ms, gap_ms=found.gap_ms)
