"""A job that cannot run is refused where it is submitted, before anything of it is written."""

from __future__ import annotations

import pytest
from attrs import evolve

from onyxlog.api import Client
from onyxlog.errors import WorkflowError
from onyxlog.jobs.specification import Plugin
from onyxlog.replica.replica import JoinMode
from tests.onyxlog.jobs.samples import HERE, word_count
from tests.onyxlog.peer.fleets import Scene

pytestmark = pytest.mark.loops("virtual")


async def test_a_job_that_cannot_run_is_refused_before_anything_is_written() -> None:
    good = word_count()
    lines, split, *others = good.catalog
    wrong = [
        (evolve(good, pending_max=0), "pending_max: expected at least 1"),
        (
            evolve(good, catalog=(evolve(lines, plugin=Plugin("seqence")), split, *others)),
            "no input 'seqence'",
        ),
        (
            evolve(good, catalog=(lines, evolve(split, function=f"{HERE}:splt"), *others)),
            "did you mean 'split'",
        ),
    ]

    scene = Scene(JoinMode.DIRECT)
    scene.start(1)
    await scene.settled()
    async with Client(scene.log.open()) as client:
        await client.start()
        before = await client.caught_up()
        for job, message in wrong:
            with pytest.raises(WorkflowError, match=message):
                await client.submit_job(job)
        assert await client.caught_up() == before
        assert await client.submit_job(wrong[2][0], importing=False) > before.version
    await scene.fleet.stop()
