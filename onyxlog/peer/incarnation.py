"""One life of a peer group: from an open log until it left or has to begin again, with everything that runs in it.

Everything happens on one event loop and every decision is the core's; this module carries it out. Whatever
fails ends the incarnation, and the group begins again under a new id (`onyxlog.peer.group`), so that nothing
half done is relied upon.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Coroutine, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, assert_never

import structlog

from onyxlog.errors import OnyxlogError, OvertakenError
from onyxlog.gossip.outputs import GossipCounters
from onyxlog.ids import GroupId, PeerId, Position
from onyxlog.peer.backoff import PROVEN_S, join_again_ms, restart_ms
from onyxlog.peer.core import GroupCore
from onyxlog.peer.entry_source import EntrySource, MakeSource
from onyxlog.peer.log.port import LogPort
from onyxlog.peer.metrics import PeerMetrics
from onyxlog.peer.outbox import Outbox
from onyxlog.peer.publishing import DigestPublisher, path_of
from onyxlog.peer.recording import Recorder
from onyxlog.peer.reporting import Counted, JobTimes, Reporter, report_of
from onyxlog.peer.settings import GroupSettings
from onyxlog.peer.task_runner import MakeRunner, PlaneStatistics, TaskRunner, WorkerStatistics
from onyxlog.peer.turns import Act, Append, Truncate, Turn
from onyxlog.peer.watching import Watching
from onyxlog.peer.workers import Workers
from onyxlog.replica.codec import name_of
from onyxlog.replica.commands import Command, Entry, GroupLeave, Record
from onyxlog.replica.effects import (
    DetectFailure,
    ForgetJob,
    JoinLater,
    LeaveIfGone,
    RestartGroup,
    RestartPeer,
    StartTask,
    StopDetecting,
    StopTask,
    StoreOrigin,
    UnwatchJoiner,
    WatchJoiner,
    WatchNobody,
    WatchPulse,
)
from onyxlog.replica.replica import JoinMode, Replica
from zraft_client.errors import ClientError
from zraft_core.fleets import GroupReport, report_path

SLICE_S: Final = 0.01
"""The time for which entries are played before others on the loop have a turn, above all the session's
heartbeats.
"""
OVERTAKEN_PAUSE_S: Final = 0.2

log = structlog.get_logger()


class Ending(StrEnum):
    """Ends of an incarnation."""

    LEFT = "left"
    """It left as it was asked to."""
    OUT = "out"
    """The log says that this group has left; it lives and has to join anew."""


class Incarnation:
    """One incarnation; run it once. It is the TaskHost of its runner."""

    def __init__(
        self,
        settings: GroupSettings,
        group: GroupId,
        port: LogPort,
        *,
        make_runner: MakeRunner,
        make_source: MakeSource,
        metrics: PeerMetrics,
        rng: random.Random,
        recorder: Recorder | None = None,
    ) -> None:
        self._settings = settings
        self._group = group
        self._port = port
        self._make_runner = make_runner
        self._make_source = make_source
        self._metrics = metrics
        self._rng = rng
        self._recorder = recorder
        self._tasks: set[asyncio.Task[None]] = set()
        self._end: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when more entries were applied, or when the incarnation is over; another future is here then."""
        self._peer_failures = 0
        self._peer_failed_at = float("-inf")
        self._began = 0.0
        self._joined = False
        self._runner: TaskRunner | None = None
        self._source: EntrySource | None = None
        self._core: GroupCore | None = None
        self._watching = Watching(port, self._pulse_gone, self._spawn)
        self._outbox = Outbox(port, self._accepted)
        self._publisher = DigestPublisher(
            port, group, every=settings.digests_every, quiet_s=settings.digest_after_quiet_s
        )
        self._reporter = Reporter(port, group, every_s=settings.report_every_s, look=self._report)
        self._counted = Counted(_now_ms(), {})
        self._job_times = JobTimes()
        self._workers: Workers | None = None

    # -- what its tasks may use

    @property
    def group(self) -> GroupId:
        """The group's id."""
        return self._group

    @property
    def port(self) -> LogPort:
        """The log's port, with the group's session."""
        return self._port

    @property
    def replica(self) -> Replica:
        """The replica after the entry that was applied last."""
        return self.core.replica

    def append(self, command: Command) -> None:
        """Append a command to the log; do nothing if the incarnation has ended."""
        if not self._end.done():
            self._carry_out(self.core.say(command, _now_ms()))

    def failed(self, peer: PeerId, error: BaseException) -> None:
        """Report that a virtual peer's task failed, so that the peer leaves."""
        log.warning("virtual peer failed", peer=peer, error=repr(error))
        if not self._end.done():
            self._carry_out(self.core.peer_failed(peer, _now_ms()))

    # -- what others look at

    @property
    def core(self) -> GroupCore:
        """The group's core. Valid once the incarnation has begun."""
        assert self._core is not None, "the incarnation has not begun"
        return self._core

    @property
    def begun(self) -> bool:
        """True once the log's origin was read."""
        return self._core is not None

    @property
    def running(self) -> dict[PeerId, StartTask]:
        """The tasks that run here."""
        return {} if self._workers is None else self._workers.running

    @property
    def watched(self) -> GroupId | None:
        """The group whose pulse this one watches for the ring."""
        return self._watching.watched

    def worker_statistics(self) -> Mapping[PeerId, WorkerStatistics]:
        """Return the statistics of the tasks that run now."""
        return {} if self._runner is None else self._runner.statistics()

    def plane_statistics(self) -> PlaneStatistics:
        """Return the statistics of the group's channels."""
        return PlaneStatistics() if self._runner is None else self._runner.plane_statistics()

    def gossip_counters(self) -> GossipCounters | None:
        """Return what gossip did; None without gossip."""
        return None if self._source is None else self._source.counters

    # -- its life

    async def run(self) -> Ending:
        """Live until the group left, or is out. What anything in it failed with is raised."""
        try:
            self._spawn(self._begin())
            return await self._end
        finally:
            await self._stop_all()

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        origin = await self._port.begin(self._settings.parameters)
        core = GroupCore(
            self._group, origin, offers=self._settings.offers, join_once=self._settings.join_once
        )
        self._core = core
        self._record_origin(core)
        self._runner = await self._make_runner(self)
        self._workers = Workers(self._runner, self.failed, self._spawn)
        self._source = await self._make_source(self._port, self._group)
        await self._show_life(core)
        self._spawn(self._outbox.run())
        self._spawn(self._publisher.run())
        self._spawn(self._reporter.run())
        self._spawn(self._read(self._source))
        self._carry_out(core.begin(self._runner.site, _now_ms()))
        log.info("group begins", group=self._group, origin=origin.position)

    async def _show_life(self, core: GroupCore) -> None:
        """Make the pulse or the will, which tells others when this group is gone, before anybody hears that it exists."""
        if core.replica.parameters.join is JoinMode.DIRECT:
            await self._port.set_will(Record(GroupLeave(self._group), self._group, None, _now_ms()))
        # With the ring, the session's end is the group's. In any case it shows others when the group was last
        # heard.
        await self._port.show_pulse(self._group)

    async def leave(self) -> None:
        """Leave on purpose: stop the tasks, tell the log, end.

        This is bounded by `leave_timeout_s`; after that the group's watcher tells the log.
        """
        if self._end.done():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.leave_timeout_s):
                if self._runner is not None:
                    await self._runner.close()
                if self.begun:
                    self._carry_out(self.core.leave(_now_ms()))
                    drained = self._spawn(self._outbox.drained())
                    # An end of the incarnation meanwhile ends the outbox, too.
                    await asyncio.wait((drained, self._end), return_when=asyncio.FIRST_COMPLETED)
        self._finish(Ending.LEFT)

    async def _stop_all(self) -> None:
        if not self._end.done():
            self._end.cancel()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tell()
        self._metrics.forget(self._group)
        for closing in (self._runner, self._source):
            if closing is not None:
                try:
                    await closing.close()
                except Exception:
                    log.exception("close failed", group=self._group)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside; its failure is the incarnation's."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self._end.done():
            self._end.set_exception(error)

    def _finish(self, how: Ending) -> None:
        if not self._end.done():
            self._end.set_result(how)

    # -- the log

    async def _read(self, source: EntrySource) -> None:
        while True:
            core = self.core
            try:
                async for batch in source.entries(core.version + 1, core.chain):
                    await self._play(batch)
                    if core.over:
                        # Nothing is applied any more, so a source that waits for what was applied would yield
                        # this for ever.
                        return
            except OvertakenError:
                await self._jump()
                continue
            raise OnyxlogError(
                f"group {self._group}: the log's tail ended at {core.version}, expected no end"
            )

    async def _jump(self) -> None:
        assert self._source is not None
        origin = await self._port.origin()
        behind = origin.position - self.core.version
        log.info("entries were truncated before they were read", group=self._group, entries=behind)
        self._metrics.jumps.inc()
        turn = self.core.jump(origin, _now_ms())
        self._record_origin(self.core)
        self._publisher.applied(self.core.version, self.core.chain)
        self._source.jumped(self.core.replica)
        self._show()
        self._carry_out(turn)
        if behind <= 0:
            await asyncio.sleep(OVERTAKEN_PAUSE_S)

    async def _play(self, batch: Sequence[Entry]) -> None:
        clock = time.perf_counter
        done = 0
        while done < len(batch):
            began = last = clock()
            turn = Turn()
            while done < len(batch) and last - began < SLICE_S:
                entry = batch[done]
                turn += self._take(entry)
                done += 1
                now = clock()
                self._metrics.apply_seconds.observe(now - last)
                last = now
            assert self._source is not None
            self._source.applied(self.core.replica, self.core.chain)
            self._show()
            self._carry_out(turn)
            if self.core.over:
                return
            await asyncio.sleep(0)

    def _take(self, entry: Entry) -> Turn:
        now_ms = _now_ms()
        before = self.core.replica
        turn = self.core.take(entry, now_ms)
        self._job_times.note(before, self.core.replica, entry.record.at_ms)
        if self._recorder is not None and self.core.version == entry.position:
            self._recorder.applied(entry, self.core.replica, self.core.chain)
        self._publisher.applied(self.core.version, self.core.chain)
        self._metrics.read.labels(name_of(entry.command)).inc()
        if entry.record.at_ms:
            self._metrics.scheduler_lag.observe(max(0, now_ms - entry.record.at_ms) / 1000)
        return turn

    def _record_origin(self, core: GroupCore) -> None:
        if self._recorder is not None:
            self._recorder.origin(core.replica, core.chain)
            self._recorder.flush()

    def _report(self) -> GroupReport | None:
        """Return what the group reports of itself now; None until it is a member."""
        if not self.core.joined:
            return None
        before, self._counted = self._counted, Counted(_now_ms(), dict(self.worker_statistics()))
        return report_of(
            self._group,
            self.replica,
            self.running,
            self._counted,
            before,
            self.gossip_counters(),
            self._job_times,
        )

    def _show(self) -> None:
        """Tell everybody who looks at the replica."""
        core = self.core
        replica = core.replica
        if core.joined and not self._joined:
            self._joined = True
            took_s = asyncio.get_running_loop().time() - self._began
            self._metrics.join_seconds.observe(took_s)
            log.info("group joined", group=self._group, position=core.version, took_s=round(took_s, 3))
        self._metrics.replica_version.labels(self._group).set(core.version)
        self._metrics.groups.set(len(replica.groups))
        self._metrics.peers.set(len(replica.peers))
        self._metrics.jobs.set(len(replica.jobs))
        self._metrics.allocated.set(sum(map(len, replica.allocations.values())))
        self._metrics.unseen.labels(self._group).set(len(core.unseen))
        assert self._runner is not None
        self._runner.replica_changed(replica)
        if self._recorder is not None:
            self._recorder.flush()
        self._tell()

    def _tell(self) -> None:
        changed, self.changed = self.changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    def _accepted(self, append: Append, position: Position, took_s: float) -> None:
        self._carry_out(self.core.accepted(append.number, position, _now_ms()))
        self._metrics.written.labels(name_of(append.record.command)).inc()
        self._metrics.write_log_entry.observe(took_s)
        assert self._source is not None
        self._source.appended(Entry(position, append.record))

    # -- carrying out

    def _carry_out(self, turn: Turn) -> None:
        for act in turn.acts:
            self._act(act)
        for append in turn.appends:
            self._outbox.put(append)

    def _act(self, act: Act) -> None:
        match act.what:
            case WatchPulse(subject):
                self._watching.watch(subject)
            case WatchNobody():
                self._watching.watch(None)
            case WatchJoiner(joiner):
                self._watching.watch_joiner(joiner)
            case UnwatchJoiner():
                self._watching.watch_joiner(None)
            case LeaveIfGone(subject):
                self._watching.look_once(subject)
            case DetectFailure(subject):
                self._watching.detect(subject)
            case StopDetecting():
                self._watching.stop_detecting()
            case JoinLater(ahead):
                self._later(join_again_ms(ahead, self._rng.random()), self._join_again())
            case RestartGroup():
                log.info("group is out", group=self._group, position=act.position)
                self._finish(Ending.OUT)
            case RestartPeer(peer):
                self._restart_peer(peer, act.position)
            case StartTask() | StopTask():
                assert self._workers is not None
                self._workers.want(act.position, act.what)
            case Truncate():
                self._spawn(self._truncate(act.what))
            case ForgetJob(job):
                self._spawn(self._port.forget_job(job))
            case StoreOrigin():
                raise AssertionError("the core hands out origins as Truncate")
            case _:
                assert_never(act.what)

    def _later(self, after_ms: float, then: Coroutine[Any, Any, None]) -> None:
        async def wait() -> None:
            try:
                await asyncio.sleep(after_ms / 1000)
            except asyncio.CancelledError:
                then.close()
                raise
            await then

        self._spawn(wait())

    async def _join_again(self) -> None:
        self._carry_out(self.core.join_again(_now_ms()))

    def _restart_peer(self, peer: PeerId, position: Position) -> None:
        assert self._workers is not None
        self._workers.forget(peer, position)
        now = asyncio.get_running_loop().time()
        if now - self._peer_failed_at > PROVEN_S:
            self._peer_failures = 0
        self._peer_failures += 1
        self._peer_failed_at = now
        self._metrics.peer_restarts.inc()
        self._later(restart_ms(self._peer_failures, self._rng.random()), self._peer_again(peer))

    async def _peer_again(self, peer: PeerId) -> None:
        self._carry_out(self.core.peer_again(peer, _now_ms()))

    def _pulse_gone(self, subject: GroupId) -> None:
        if not self._end.done():
            log.info("pulse gone", group=self._group, subject=subject)
            self._carry_out(self.core.pulse_gone(subject, _now_ms()))

    async def _truncate(self, truncate: Truncate) -> None:
        try:
            with self._metrics.write_origin.time():
                stored = await self._port.store_origin(truncate.origin)
        except ClientError as error:
            # The log is longer than it has to be; the next collection makes up for it.
            log.warning("origin not stored", group=self._group, error=f"{type(error).__name__}: {error}")
            stored = False
        if not stored:
            self._metrics.origin_refused.inc()
            return
        log.info("origin stored", group=self._group, position=truncate.origin.position)
        for group in truncate.forgotten:
            await self._port.remove_state(path_of(group))
            await self._port.remove_state(report_path(group))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
