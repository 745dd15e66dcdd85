"""Tasks, channels and gossip in the metrics of a peer process: as long as what is counted lives."""

from __future__ import annotations

from typing import Final

import attrs
import pytest
from prometheus_client import CollectorRegistry

from onyxlog.api import Client
from onyxlog.gossip.outputs import GossipCounters
from onyxlog.ids import PeerId
from onyxlog.peer.fleet import Fleet
from onyxlog.peer.idle_runner import IdleRunner
from onyxlog.peer.live_metrics import (
    CHANNEL_COUNTERS,
    GOSSIP_BY,
    GOSSIP_COUNTERS,
    TASK_COUNTERS,
    counter_field,
)
from onyxlog.peer.settings import GroupSettings
from onyxlog.peer.task_runner import PlaneStatistics, TaskHost, TaskRunner, WorkerStatistics
from onyxlog.replica.replica import JoinMode
from tests.onyxlog.peer.fleets import Scene
from tests.onyxlog.peer.jobs import a_job
from tests.onyxlog.peer.test_messenger import Gossiping, note_all
from tests.onyxlog.simulation.memory_log import MemoryLog

pytestmark = pytest.mark.loops("virtual")

REPORTED: Final = {"began_ms", "done", "total"}
"""People see in `onyxlog status` when a worker began as a time, and positions in the units of their source."""


class CountingRunner(IdleRunner):
    """Every worker has taken seven segments, two of which wait."""

    def statistics(self) -> dict[PeerId, WorkerStatistics]:
        return {peer: WorkerStatistics(batches=1, segments=7, pending=2) for peer in self.running}

    def plane_statistics(self) -> PlaneStatistics:
        return PlaneStatistics(items_sent=3)


async def counting(host: TaskHost) -> TaskRunner:
    return CountingRunner(host)


def shown(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """The samples of this name, by the values of their labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_everything_that_is_counted_is_a_metric() -> None:
    def names(kind: type) -> set[str]:
        return {field.name for field in attrs.fields(kind)}

    def counted(*metrics: str) -> set[str]:
        return set(map(counter_field, metrics))

    assert names(WorkerStatistics) == counted(*TASK_COUNTERS) | {"pending"} | REPORTED
    assert names(PlaneStatistics) == counted(*CHANNEL_COUNTERS)
    assert names(GossipCounters) == counted(*GOSSIP_COUNTERS, *GOSSIP_BY)


async def test_a_worker_has_series_as_long_as_it_runs_and_a_group_as_long_as_it_lives() -> None:
    log = MemoryLog()
    async with Fleet(log.opened, counting) as fleet, Client(await log.opened()) as client:
        registry = fleet.metrics.registry
        group = fleet.start(GroupSettings(offers=((), ())))
        assert shown(registry, "onyxlog_channels_items_sent_total") == {}
        await fleet.joined()
        await client.start()
        await client.submit_job(a_job("job", tasks=2))
        await fleet.until(lambda one: len(one.running) == 2)
        workers = {("job", "task-0", "0"), ("job", "task-1", "0")}
        assert shown(registry, "onyxlog_task_segments_total") == dict.fromkeys(workers, 7)
        assert shown(registry, "onyxlog_task_pending_segments") == dict.fromkeys(workers, 2)
        assert shown(registry, "onyxlog_channels_items_sent_total") == {(group.id,): 3}
        assert shown(registry, "onyxlog_gossip_published_total") == {}, "there is no gossip"
        await client.kill_job("job")
        await fleet.until(lambda one: not one.running)
        assert shown(registry, "onyxlog_task_segments_total") == {}
        await group.stop()
        assert shown(registry, "onyxlog_channels_items_sent_total") == {}


async def test_what_gossip_saves_is_shown_per_group() -> None:
    world = Gossiping(Scene(JoinMode.DIRECT))
    groups = world.scene.start(9)
    await world.scene.settled()
    await note_all(world, groups, 20)
    await world.scene.settled()
    registry = world.scene.fleet.metrics.registry
    applied = shown(registry, "onyxlog_gossip_applied_total")
    assert {group for group, _ in applied} == {group.id for group in groups}
    assert sum(count for (_, source), count in applied.items() if source == "gossip") > 0
    published = shown(registry, "onyxlog_gossip_published_total")
    assert sum(published.values()) >= 20
    await world.scene.fleet.stop()
