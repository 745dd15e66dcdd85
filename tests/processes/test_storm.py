"""Ten thousand idle sessions, and a thousand whose server dies: nobody's session ends, and others hardly feel it.

Figures are printed (`-s`); on a busy machine they say less than on an idle one, so only the bounds that
clients depend on decide.
"""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import uvloop

from tests.processes.cluster import Cluster
from tests.processes.storm import Latencies, Sample, SteadyProcess, Storm

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(300)]

IDLE: Final = 10_000
STORM: Final = 1_000
TIMEOUT_MS: Final = 30_000
"""What a Java client gets at most with the default tickTime is 40 s, kazoo asks for 10 s."""

WARM_S: Final = 2.0
QUIET_S: Final = 5.0
BEFORE_ENDS_S: Final = 0.1
"""What was asked for so shortly before the kill may have been answered after it."""

STORM_S: Final = 1.0
AFTER_S: Final = 5.0
BACK_S_MAX: Final = 10.0
"""A third of the timeout: what a client library gives one attempt to connect."""

SPARE_FILES: Final = 500


def raise_file_limit() -> None:
    """Clients of this process are its files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = IDLE + SPARE_FILES
    if hard < needed:
        pytest.fail(
            f"RLIMIT_NOFILE: the hard limit is {hard}, {IDLE} clients need {needed}; raise it (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


@pytest.mark.parametrize("victim", ["follower", "leader"])
def test_sessions_of_a_killed_server_reconnect_at_once_and_none_expires(
    tmp_path: Path, victim: str, seed: int
) -> None:
    raise_file_limit()
    with Cluster(tmp_path) as cluster:
        cluster.start_all()
        leader = cluster.leader()
        assert leader is not None
        others = [number for number in cluster.servers if number != leader]
        killed = leader if victim == "leader" else others[0]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_storm(cluster, killed, random.Random(seed)))
        cluster.start(killed)
        cluster.wait_ready()
        cluster.wait_equal_digests()


async def _storm(cluster: Cluster, killed: int, rng: random.Random) -> None:
    loop = asyncio.get_running_loop()
    survivors = [number for number in cluster.servers if number != killed]
    storm = Storm({n: s.address for n, s in cluster.servers.items()}, TIMEOUT_MS, rng)
    steady: dict[int, SteadyProcess] = {}
    beside = [loop.create_task(storm.keep_alive())]
    before = {n: cluster.resident_bytes(n) for n in cluster.servers}
    try:
        began = time.monotonic()
        await storm.attach(STORM, killed)
        for place, number in enumerate(survivors):
            await storm.attach((IDLE - STORM + place) // len(survivors), number)
        print(f"\n{len(storm.sessions)} sessions begun in {time.monotonic() - began:.1f} s")
        for number in cluster.servers:
            here = sum(session.server == number for session in storm.sessions)
            grown = cluster.resident_bytes(number) - before[number]
            print(
                f"server {number}: {here} connections, {cluster.resident_bytes(number) / 1e6:.0f} MB resident, "
                f"{grown / here / 1e3:.1f} kB per connection with its share of {len(storm.sessions)} sessions"
            )
        steady = {n: SteadyProcess(cluster.servers[n].address, f"/steady-{n}") for n in survivors}
        await asyncio.sleep(WARM_S + QUIET_S)

        killed_at = time.monotonic()
        cluster.kill(killed, signal.SIGKILL)
        victims = [session for session in storm.sessions if session.server == killed]
        assert len(victims) == STORM
        await _wait(
            lambda: (
                all(session.attached and session.server != killed for session in victims)
                or any(session.expired for session in victims)
            ),
            BACK_S_MAX,
        )
        back = [session.back_after_s for session in victims]
        waits = [seconds for seconds in back if seconds is not None]
        print(f"back after the kill: {Latencies.of(waits)}; attempts: {sum(s.attempts - 1 for s in victims)}")
        await asyncio.sleep(AFTER_S)
        for number, process in steady.items():
            samples = await asyncio.to_thread(process.finish)
            print(f"steady client of server {number}:")
            _show("before", samples, killed_at - QUIET_S, killed_at - BEFORE_ENDS_S)
            _show("in the second of the storm", samples, killed_at - BEFORE_ENDS_S, killed_at + STORM_S)
            _show("after", samples, killed_at + STORM_S, killed_at + 1e9)

        # Longer than a timeout: an expiry that the storm caused has happened by then.
        await asyncio.sleep(TIMEOUT_MS / 1_000 + 5 - AFTER_S)
        for task in beside:
            if task.done():
                task.result()
        assert not [session for session in storm.sessions if session.expired]
        assert all(session.attached for session in storm.sessions)
        late = [session.pings_unanswered for session in storm.sessions if session.pings_unanswered > 1]
        assert not late, f"{len(late)} sessions have pings unanswered"
        assert not [s for s in storm.sessions if s not in victims and s.lost_at is not None], (
            "sessions of the other servers lost their connections"
        )
        mntr = await asyncio.to_thread(cluster.mntr, survivors[0])
        assert mntr is not None
        assert int(mntr["global_sessions"]) >= len(storm.sessions)
    finally:
        for process in steady.values():
            process.kill()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await storm.stop()


def _show(period: str, samples: list[Sample], begin: float, end: float) -> None:
    for kind in ("write", "read"):
        seconds = [took for one, at, took in samples if one == kind and begin <= at < end]
        print(f"  {period}, {kind}s: {Latencies.of(seconds)}")


async def _wait(condition: Callable[[], bool], deadline_s: float) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  (of sessions' states, which nobody announces)
            await asyncio.sleep(0.01)
