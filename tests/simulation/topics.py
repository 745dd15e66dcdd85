"""Owns what stands for partitions in the servers' simulation: groups that log what group 0 tells them, and report.

No server hosts them here. What is true of group 0's share of topics whatever groups do is checked: each view that a group
gets is what the history says of that position (`views`), whatever was lost or late before; each server's registry is the
history's at its zxid (`registry`); in the end every topic has its partitions on disks of members, and nothing is left of
what was closed or deleted (`progress`). Whether groups do right with it is `tests.simulation.multicast`'s matter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.model import History
from tests.simulation.process import Process
from tests.simulation.schedule import Schedule
from tests.simulation.topic_model import LEVEL, state_of
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.messages import Answer, Reply, Report, StartRequest, ViewUpdate
from zraft_core.topics.registry_commands import Placed, RegistryCommand
from zraft_core.topics.stamps import MessageId
from zraft_core.topics.view import LoggedView, View
from zraft_core.znodes import txn

KINDS: Final = (
    "topic view",
    "topic view delta",
    "topic report",
    "topic placed",
    "topic change",
    "topics read",
)
"""What a long range of seeds must have seen, each at least once."""
LOSS: Final = 0.3
"""Of what group 0's leader and groups say to each other; what arrives is up to `LATE_MS` late."""
LATE_MS: Final = 400


class TopicGroups:
    """All groups of a run."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        processes: Sequence[Process],
        history: History,
        *,
        replication: int,
    ) -> None:
        self.schedule = schedule
        self.history = history
        self.kinds: Counter[str] = Counter()
        self._rng = rng
        self._processes = processes
        self._replication = replication
        self._logged: dict[int, LoggedView] = {}
        self._lossless = False
        schedule.at(500, self._step)

    def heal(self) -> None:
        """Nothing is lost from now on."""
        self._lossless = True

    def _step(self) -> None:
        rng = self._rng
        self.schedule.after(rng.randint(10, 60), self._step)
        if self.history.feature_level < LEVEL:
            return
        for process in self._processes:
            self._listen(process)
        now = self.history.topics.now
        self._logged = {group: view for group, view in self._logged.items() if group in now.groups}
        for group in now.groups:
            if rng.random() < 0.3:
                self._report(group)
        for group, record in now.groups.items():
            if record.former and rng.random() < (0.5 if self._lossless else 0.1):
                self._log(Placed(GroupId(group), record.wanted))  # type: ignore[arg-type]
                self.kinds["topic placed"] += 1
        one = self._running()
        if one is not None:
            self.look_at(one)

    def _running(self) -> Process | None:
        running = [p for p in self._processes if p.driver is not None and p.driver.raft is not None]
        return self._rng.choice(running) if running else None

    def _late(self, what: Any, *arguments: Any) -> None:
        """On a bad network, until it heals."""
        if self._lossless or self._rng.random() >= LOSS:
            self.schedule.after(self._rng.randint(0, LATE_MS), what, *arguments)

    # -- what group 0 says
    def _listen(self, process: Process) -> None:
        """Whoever believes to lead may say something, also who leads no more."""
        leadership = process.driver.leadership if process.driver is not None else None
        if leadership is None:
            return
        for group, message in leadership.topics.take_outgoing():
            if isinstance(message, ViewUpdate):
                self._late(self._told, group, message)
            elif isinstance(message, StartRequest):
                self._late(self._started, group, message)

    def _told(self, group: int, message: ViewUpdate) -> None:
        history = self.history.topics
        if group not in history.now.groups:
            return
        logged = self._born(group)
        if logged.adopt(message.view) is None:
            return
        self.kinds["topic view" if isinstance(message.view, View) else "topic view delta"] += 1
        has = (
            logged.position,
            logged.epoch,
            set(logged.producers),
            set(logged.closed),
            set(logged.groups),
            set(logged.deleting),
        )
        expected = history.at(logged.position).view()
        if has != expected:
            self._fail("views", f"group {group} is told that the view is {has}, the history has {expected}")

    def _born(self, group: int) -> LoggedView:
        """What a group has logged; at first what whoever leads it knew when it was born.

        It is born also if nobody tells it anything: the newest one lacks nothing that has happened since.
        """
        logged = self._logged.get(group)
        if logged is None:
            history = self.history.topics
            zxid = self._rng.choice((group, max(group, history.now.position)))
            position, epoch, *tables = history.at(zxid).view()
            logged = self._logged[group] = LoggedView(View(position, epoch, *map(frozenset, tables)))
        return logged

    def _started(self, group: int, message: StartRequest) -> None:
        """A change of a topic is as good as delivered."""
        self.kinds["topic change"] += 1
        reply = Reply(MessageId(ProducerId(0), message.message.mid.seq), GroupId(group), Answer.DELIVERED)
        self._late(self._hear, reply)

    # -- what groups say
    def _report(self, group: int) -> None:
        logged = self._born(group)
        report = Report(
            GroupId(group), logged.position, tuple(sorted(logged.closed)), tuple(sorted(logged.deleting))
        )
        self._late(self._hear, report)

    def _hear(self, message: Report | Reply) -> None:
        self.kinds["topic report"] += isinstance(message, Report)
        for process in self._processes:
            leadership = process.driver.leadership if process.driver is not None else None
            if leadership is not None:
                leadership.topics.hear(message)
                process.wake()

    def _log(self, command: RegistryCommand) -> None:
        """As a server does that leads a group."""
        process = self._running()
        if process is not None and process.driver is not None and not process.driver.origin.full:
            process.driver.submit((txn.TOPICS, encode_registry(command)), lambda result: None)
            process.wake()

    # -- what servers have
    def look_at(self, process: Process) -> None:
        """A server's registry is the history's at its zxid."""
        assert process.driver is not None
        machine = process.driver.machine
        if machine.last_zxid > self.history.zxid:
            return  # in the middle of a turn: what it applied is not told yet
        self.kinds["topics read"] += 1
        found, expected = state_of(machine.registry), self.history.topics.at(machine.last_zxid)
        if found != expected:
            self._fail(
                "registry",
                f"S{process.server} at {machine.last_zxid:x} has {found}, the history has {expected}",
            )
        if set(machine.registry.owned) != set(found.producers.values()):
            self._fail(
                "registry", f"S{process.server}: owners {set(machine.registry.owned)} of {found.producers}"
            )

    def final(self, process: Process, disks: dict[int, bytes]) -> None:
        """Long after healing: `disks` are those of the voters."""
        self.look_at(process)
        state = self.history.topics.now
        if self.history.feature_level < LEVEL:
            return
        count = min(self._replication, len(disks))
        for topic in state.topics.values():
            if len(topic.partitions) != topic.wanted:
                self._fail("progress", f"{topic} lacks partitions long after healing")
        for group, record in state.groups.items():
            there = {server: disk for server, disk in record.wanted if disks.get(server) == disk}
            if len(there) != count or len(record.wanted) != count or record.former:
                self._fail("progress", f"group {group} is {record} long after healing, there are {disks}")
        if state.closed or state.deleting or state.changes:
            self._fail(
                "progress", f"{state.closed}, {state.deleting}, {state.changes} are left long after healing"
            )
        dead = {p for p, owner in state.producers.items() if owner not in self.history.sessions}
        if dead:
            self._fail("progress", f"producers {dead} outlive their sessions")

    def _fail(self, checker: str, found: str) -> None:
        raise BrokenPromiseError(checker, found)
