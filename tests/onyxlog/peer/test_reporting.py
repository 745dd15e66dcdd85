"""Groups report about themselves for people: in which words, when that is written, and when it is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from attrs import evolve

from onyxlog.api import Client, publish_audit
from onyxlog.gossip.outputs import GossipCounters
from onyxlog.ids import PeerId
from onyxlog.peer.fleet import Fleet
from onyxlog.peer.idle_runner import IdleRunner
from onyxlog.peer.log.port import first_origin
from onyxlog.peer.reporting import QUIET_FACTOR, Counted, JobTimes, Reporter, report_of
from onyxlog.peer.settings import GroupSettings
from onyxlog.peer.task_runner import TaskHost, TaskRunner, WorkerStatistics
from onyxlog.replica.effects import StartTask
from onyxlog.replica.replica import Parameters, Replica, VirtualPeer
from onyxlog.replica.table import Table
from tests.onyxlog.peer.jobs import a_job
from tests.onyxlog.simulation.memory_log import MemoryLog
from zraft_core.fleets import (
    AuditReport,
    GossipReport,
    GroupReport,
    JobReport,
    WorkerReport,
    decode_report,
    encode_report,
    inline_data,
)

pytestmark = pytest.mark.loops("virtual")

REPLICA = Replica(
    version=9,
    groups=Table({"a": 0, "b": 1}),
    peers=Table({"a.0": VirtualPeer("a", "x"), "a.1": VirtualPeer("a", "x"), "b.0": VirtualPeer("b", "y")}),
    completed=Table({"first": 5}),
    killed=Table({"second": 7}),
)
RUNNING = {"a.0": StartTask("a.0", "words", "lines", 3, 8)}


def report(
    now: Counted, before: Counted, *, group: str = "a", gossip: GossipCounters | None = None
) -> GroupReport:
    return report_of(group, REPLICA, RUNNING, now, before, gossip, JobTimes())


def test_a_worker_is_reported_with_what_it_did_in_the_last_interval() -> None:
    began = WorkerStatistics(segments=100, began_ms=900, done=5_000, total=9_000)
    now = evolve(began, segments=150, done=6_000)
    found = report(Counted(6_000, {"a.0": now}), Counted(1_000, {"a.0": began}))
    assert (found.interval_ms, found.peers, found.position) == (5_000, 2, 9)
    assert found.workers == (WorkerReport("a.0", "words", "lines", 3, 900, 150, 50, 6_000, 9_000, 1_000),)


def test_a_worker_that_began_again_has_not_read_in_this_interval_what_its_checkpoint_had() -> None:
    before = WorkerStatistics(segments=100, began_ms=900, done=5_000, total=9_000)
    again = WorkerStatistics(segments=3, began_ms=4_000, done=4_500, total=9_000)
    (worker,) = report(Counted(6_000, {"a.0": again}), Counted(1_000, {"a.0": before})).workers
    assert (worker.recent, worker.recent_done) == (3, 0)


def test_only_the_group_with_the_lowest_id_tells_the_jobs() -> None:
    nothing = Counted(1, {})
    assert report(nothing, nothing, group="b").jobs is None
    assert report(nothing, nothing).jobs == (
        JobReport("first", "completed", 5, None),
        JobReport("second", "killed", 7, None),
    )


def test_times_of_jobs_are_those_of_their_writers_and_others_are_forgotten() -> None:
    times = JobTimes()
    before = evolve(REPLICA, version=6, killed=Table({}))
    times.note(before, evolve(before, version=7), 70)
    times.note(before, REPLICA, 90)
    assert times.at(7) is None, "no job changed"
    assert times.at(9) == 90
    replica = REPLICA
    for version in range(10, 3_000):
        changed = evolve(replica, version=version, killed=Table({"second": version}))
        times.note(replica, changed, version)
        replica = changed
    assert times.at(2_999) == 2_999
    assert times.at(9) is None


def test_gossip_is_reported_as_what_it_saved() -> None:
    counted = GossipCounters(
        applied=Counter(gossip=20, peer=3, own=4, log=5, tail=6),
        reads=Counter(gap=2, poll=1),
        looks=7,
        offered=Counter(new=23, known=11),
        received_bytes=1_000,
        sent_bytes=2_000,
    )
    nothing = Counted(1, {})
    assert report(nothing, nothing, gossip=counted).gossip == GossipReport(23, 4, 11, 11, 10, 1_000, 2_000)


async def test_a_report_is_written_when_tasks_or_jobs_changed_and_otherwise_rarely() -> None:
    log = MemoryLog(newest_origin=first_origin(Parameters()))
    worker = WorkerReport("a.0", "words", "lines", 0, 1)
    seen = [GroupReport("a", 1, 0, 1, workers=(worker,))]
    reporter = Reporter(log.open(), "a", every_s=5, look=lambda: seen[-1])
    task = asyncio.get_running_loop().create_task(reporter.run())
    await asyncio.sleep(1)
    assert decode_report(log.states["reports/a"], "") == seen[-1]
    await asyncio.sleep(500)
    assert reporter.writes == 1, "nothing changed"
    seen.append(evolve(seen[-1], at_ms=2, position=1))
    await asyncio.sleep(5 * QUIET_FACTOR)
    assert reporter.writes == 2, "the position alone is not worth more"
    for segments in range(1, 4):
        seen.append(evolve(seen[-1], workers=(evolve(worker, segments=segments),)))
        await asyncio.sleep(5)
    assert reporter.writes == 5
    task.cancel()


async def test_a_group_reports_soon_after_it_is_a_member_however_long_the_intervals_are() -> None:
    log = MemoryLog(newest_origin=first_origin(Parameters()))
    seen: list[GroupReport | None] = [None]
    reporter = Reporter(log.open(), "a", every_s=3_600, look=lambda: seen[-1])
    task = asyncio.get_running_loop().create_task(reporter.run())
    await asyncio.sleep(2.5)
    assert log.states == {}
    seen.append(GroupReport("a", 1, 0, 1))
    await asyncio.sleep(1)
    assert list(log.states) == ["reports/a"]
    task.cancel()


class CountingRunner(IdleRunner):
    """Every worker has read a fourth of what there is."""

    def statistics(self) -> dict[PeerId, WorkerStatistics]:
        return {peer: WorkerStatistics(segments=7, began_ms=5, done=1, total=4) for peer in self.running}


async def counting(host: TaskHost) -> TaskRunner:
    return CountingRunner(host)


async def test_groups_report_what_they_run_and_collection_forgets_the_reports_of_those_that_left() -> None:
    log = MemoryLog()
    async with Fleet(log.opened, counting) as fleet, Client(await log.opened()) as client:
        groups = [fleet.start(GroupSettings(name=name, offers=((), ()))) for name in ("a", "b")]
        await fleet.joined()
        await client.start()
        await client.submit_job(a_job("job", tasks=3))
        await fleet.until(lambda one: bool(one.running))
        await asyncio.sleep(6)
        reports = await client.reports()
        assert [one.group for one in reports] == [group.id for group in groups]
        assert sum(len(one.workers) for one in reports) == 4
        assert {(one.job, one.done, one.total) for each in reports for one in each.workers} == {("job", 1, 4)}
        (job,) = reports[0].jobs or ()
        assert (job.job, job.state) == ("job", "running")
        assert job.since_ms is not None
        assert reports[1].jobs is None
        gone = groups[1].id
        log.states["reports/of-an-earlier-release"] = encode_report(reports[0])
        await groups[1].stop()
        assert f"reports/{gone}" in log.states
        await client.gc()
        assert sorted(path for path in log.states if path.startswith("reports/")) == [
            f"reports/{groups[0].id}"
        ]


async def test_a_report_that_cannot_be_read_is_left_out() -> None:
    log = MemoryLog()
    async with Fleet(log.opened, counting) as fleet, Client(await log.opened()) as client:
        group = fleet.start(GroupSettings())
        await fleet.joined()
        await client.start()
        log.states[f"reports/{group.id}"] = b"\xc1"
        assert await client.reports() == ()
        log.states["audit"] = b"\xc1"
        assert await client.last_audit() is None


async def test_an_audit_is_published_where_no_peer_has_begun_a_log_and_the_next_one_takes_its_place() -> None:
    log = MemoryLog()
    for seconds in (1, 2):
        await publish_audit(log.opened, AuditReport(5, "servers", "1", seconds))
    assert list(log.states) == ["audit"]
    assert not log.ports, "its session is over"
    async with Fleet(log.opened, counting) as fleet, Client(await log.opened()) as client:
        fleet.start(GroupSettings())
        await fleet.joined()
        await client.start()
        assert await client.last_audit() == AuditReport(5, "servers", "1", 2)


async def test_a_server_reads_what_a_group_wrote_from_its_znode() -> None:
    from onyxlog.peer.log.parts import encode_head, head_of

    written = GroupReport("a", 1, 0, 1)
    znode = encode_head(head_of(3, encode_report(written)))
    assert decode_report(inline_data(znode, "reports/a"), "reports/a") == written
