"""Jobs on whole peer groups: submitted to the log, scheduled, run, lost and run again, completed, collected."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from onyxlog.api import JobState, connect, start_peers
from onyxlog.jobs.specification import Delivery
from onyxlog.peer.settings import GroupSettings
from onyxlog.plugins.collecting import collected, forget
from onyxlog.replica.replica import PeerState
from onyxlog.tasks.runner import RunnerSettings, runner_of
from tests.onyxlog.simulation.memory_log import MemoryLog
from tests.onyxlog.tasks import gates
from tests.onyxlog.tasks.functions import counts
from tests.onyxlog.tasks.gates import Gate
from tests.onyxlog.tasks.test_jobs_run import gated, result_of, word_count

LINES = 3_000


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Any:
    name = request.node.name
    yield gates.gate(name)
    gates.forget(name)


@pytest.fixture
def out(request: pytest.FixtureRequest) -> Any:
    name = request.node.name
    forget(name)
    yield collected(name)
    forget(name)


@pytest.mark.parametrize("dies", [False, True])
async def test_a_word_count_is_exact_on_peers_that_the_log_made_workers(
    out: list[Any], gate: Gate, dies: bool, request: Any
) -> None:
    name = request.node.name
    gate.limit = LINES // 8 if dies else None  # of a quarter of them in each partition
    job = gated(word_count(name, LINES, Delivery.EXACTLY_ONCE_STATE), name)
    job = attrs.evolve(job, catalog=tuple(attrs.evolve(task, max_peers=2) for task in job.catalog))

    log = MemoryLog()
    make = runner_of(RunnerSettings(threads=False))
    async with start_peers(log.opened, make, GroupSettings(offers=((), ())), groups=4):
        await until(lambda: log.end >= 12)
        async with await connect(log.opened) as client:
            await client.submit_job(job)
            if dies:
                await until(lambda: ("words", "count") in client.replica.allocations)
                worker = client.replica.allocations["words", "count"][0]
                victim = client.replica.peers[worker].group
                await until(lambda: any("latest" in path and data for path, data in log.states.items()))
                log.expire(next(port for port in log.ports if port.will and port.will.author == victim))
                await until(lambda: worker not in client.replica.peers)
                gate.open()
            async with asyncio.timeout(40):
                assert await client.await_job_completion("words") is JobState.COMPLETED, client.reason_of(
                    "words"
                )
                while any(state is not PeerState.IDLE for state in client.replica.peer_states.values()):
                    await client.changed()
            assert (await client.gc()).jobs == ("words",)
            await client.clear_job_data("words")
            assert not [path for path in log.states if "words" in path]
    assert result_of(out) == counts(LINES)


async def until(holds: Any) -> None:
    """For what tells nobody."""
    async with asyncio.timeout(40):
        while True:
            if holds():
                return
            await asyncio.sleep(0.002)
