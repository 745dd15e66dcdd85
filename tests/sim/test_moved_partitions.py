"""A partition that is being moved stays readable: whoever reads at a replica that leaves is sent on, without a gap."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

import pytest

from tests.simulation.partitions.programs import Producing
from tests.simulation.partitions.simulation import PartitionsSimulation
from tests.simulation.topic_clients import Deaf
from zraft.groups.replica import HostedReplica
from zraft.server.partitions.hosted_partition import HostedPartition
from zraft.server.partitions.partitions import Partitions
from zraft.server.partitions.settings import LEADERLESS_MS
from zraft.topics.service import Fetched, TopicRefusal
from zraft_core.ids import ServerId
from zraft_core.topics.codec import decode_message
from zraft_core.topics.producer import ProducerCore

WAIT_MS: Final = 500
AGAIN_MS: Final = 50
"""A reader pauses so long after it was sent on."""
SETTLE_MS: Final = 4_000
STILL_MS_MAX: Final = 2 * (WAIT_MS + LEADERLESS_MS)
"""A reader may get nothing for so long: it waits in vain at one replica, and perhaps at a second one."""


class Reading(Deaf):
    """Reads a partition as the client does: at one replica, until that one sends it on."""

    def __init__(self, moving: Moving, server: ServerId) -> None:
        self._moving = moving
        self.server = server
        self.payloads: list[bytes] = []
        self.offset = 0
        self.sent_on: list[ServerId] = []
        self.got_ms = moving.now_ms
        self.still_ms = 0
        self._number = 0
        self._asked = False
        self._not_before_ms = 0

    def work(self) -> None:
        now_ms = self._moving.now_ms
        self.still_ms = max(self.still_ms, now_ms - self.got_ms)
        if not self._asked and now_ms >= self._not_before_ms:
            self._asked = True
            self._number += 1
            topics = self._moving.partitions(self.server).topics
            topics.fetch(self, self._number, self._moving.group, self.offset, 2_000, WAIT_MS)

    def on_fetched(self, id: int, fetched: Fetched) -> None:
        self._asked = False
        for offset, _, message in fetched.deliveries:
            assert offset == self.offset, f"S{self.server} gives offset {offset}, {self.offset} is next"
            self.payloads.append(decode_message(message).payload)
            self.offset += decode_message(message).span
            self.got_ms = self._moving.now_ms

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        assert refusal.kind in ("no_group", "not_leader", "busy"), refusal
        self._asked = False
        self._not_before_ms = self._moving.now_ms + AGAIN_MS
        self.sent_on.append(self.server)
        ring = self._moving.holders()
        self.server = ring[(ring.index(self.server) + 1) % len(ring)] if self.server in ring else ring[0]


class Moving:
    """Five servers, one partition on the first three that it got, a producer that never stops, and readers."""

    def __init__(self) -> None:
        seed = next(seed for seed in range(100) if len(PartitionsSimulation(seed, groups=1).processes) == 5)
        self.simulation = simulation = PartitionsSimulation(seed, groups=1)
        simulation.faults.heal()
        for process in simulation.processes.values():
            process.boot()
        simulation.create_group()
        (self.group,) = simulation.table
        self.run_until(self.leader, "a leader")
        producer = ProducerCore(simulation.register(), simulation.registry.table(), window=1_024)
        self.producing = Producing(
            producer, random.Random(7), simulation._service_of_leader, lambda: self.now_ms
        )
        simulation._publish()
        self.readings: list[Reading] = []
        self.sending = True
        self._work()

    @property
    def now_ms(self) -> int:
        return self.simulation.schedule.now_ms

    def partitions(self, server: ServerId) -> Partitions:
        return self.simulation.processes[server].partitions  # type: ignore[attr-defined, no-any-return]

    def hosted(self, server: ServerId) -> HostedPartition | None:
        return self.partitions(server).hosted.get(self.group)

    def holders(self) -> list[ServerId]:
        """Where clients are told that the partition is."""
        return sorted(self.simulation.table[self.group].wanted)

    def leader(self) -> ServerId | None:
        for server in self.simulation.processes:
            hosted = self.hosted(server)
            if hosted is not None and hosted.leadership is not None:
                return server
        return None

    def read_at(self, servers: Iterable[ServerId]) -> list[Reading]:
        found = [Reading(self, server) for server in servers]
        self.readings += found
        return found

    def _work(self) -> None:
        if self.sending and self.now_ms % 20 < 5:
            self.producing.send([self.group])
        self.producing.work(self.simulation.registry.table())
        for reading in self.readings:
            reading.work()
        for process in self.simulation._servers():
            if process.partitions.wants_turn:
                process.wake()
        self.simulation.schedule.after(5, self._work)

    def run(self, ms: int) -> None:
        self.simulation.schedule.run_until(self.now_ms + ms)

    def run_until(self, holds: object, what: str, ms: int = 20_000) -> None:
        end = self.now_ms + ms
        while not holds():  # type: ignore[operator]
            assert self.now_ms < end, f"no {what} after {ms} ms"
            self.run(10)

    def move_to(self, *servers: ServerId) -> None:
        simulation = self.simulation
        row = simulation.table[self.group]
        row.wanted = {server: simulation.disks[server] for server in servers}
        row.placed = False
        if row.preferred not in servers:
            row.preferred = servers[0]
        simulation.spread(self.group)

    def finish(self) -> list[bytes]:
        """Send no more, and return what the partition delivered once all readers had time to get it."""
        self.sending = False
        self.run_until(lambda: self.producing.is_done, "end of what was sent")
        self.run(SETTLE_MS)
        return [one.message.payload for one in self.simulation._deliveries(self.group)]


def left_out(moving: Moving) -> list[ServerId]:
    return sorted(set(moving.simulation.processes) - set(moving.holders()))


@pytest.mark.parametrize("led", [True, False])
def test_a_moved_partition_stays_readable(*, led: bool) -> None:
    """From servers {1, 2, 3} to {2, 3, 4}; the one that leaves leads it, or follows."""
    moving = Moving()
    first = moving.holders()
    readings = moving.read_at(first)
    moving.run(500)
    gone = next(server for server in first if (server == moving.leader()) is led)
    new = left_out(moving)[0]
    moving.move_to(*sorted({*first, new} - {gone}))
    moving.run_until(lambda: moving.simulation.table[moving.group].placed, "end of the move")
    moving.run(3_000)
    delivered = moving.finish()
    assert len(delivered) > 100
    for reading in readings:
        assert reading.payloads == delivered
        assert reading.still_ms - SETTLE_MS <= STILL_MS_MAX
    assert {one for reading in readings for one in reading.sent_on} == {gone}
    assert all(reading.server != gone for reading in readings)


def test_the_last_old_replica_sends_its_readers_to_those_that_have_everything() -> None:
    """All three replicas go to other servers but one; then that one goes, too."""
    moving = Moving()
    first = moving.holders()
    readings = moving.read_at(first)
    others = left_out(moving)
    moving.run(500)
    moving.move_to(first[0], *others)
    moving.run_until(lambda: moving.simulation.table[moving.group].placed, "end of the first move")
    moving.run(500)
    moving.move_to(*others)
    moving.run_until(lambda: moving.simulation.table[moving.group].placed, "end of the second move")
    moving.run(2_000)
    delivered = moving.finish()
    assert all(reading.payloads == delivered for reading in readings)
    assert all(reading.server in others for reading in readings)
    assert max(reading.still_ms for reading in readings) - SETTLE_MS <= STILL_MS_MAX


def test_who_has_not_read_everything_at_a_replica_that_left_reads_the_rest_there() -> None:
    moving = Moving()
    first = moving.holders()
    moving.run(1_000)
    gone = next(server for server in first if server != moving.leader())
    moving.move_to(*sorted({*first, left_out(moving)[0]} - {gone}))
    moving.run_until(lambda: moving.simulation.table[moving.group].placed, "end of the move")
    moving.run(500)
    hosted = moving.hosted(gone)
    assert hosted is not None
    assert hosted.left
    (reading,) = moving.read_at([gone])
    moving.run_until(lambda: reading.sent_on, "refusal")
    assert len(reading.payloads) > 10
    assert reading.payloads == moving.finish()


def test_a_replica_that_hears_no_leader_sends_readers_on_when_they_waited_in_vain() -> None:
    moving = Moving()
    first = moving.holders()
    moving.run(500)
    alone = next(server for server in first if server != moving.leader())
    (reading,) = moving.read_at([alone])
    moving.run(200)
    for other in moving.simulation.processes:
        if other != alone:
            moving.simulation.network.cuts.update(dict.fromkeys(((alone, other), (other, alone)), 1))
    moving.run(3_000)
    assert reading.sent_on[:1] == [alone]
    assert reading.server != alone
    assert reading.payloads == moving.finish()


def test_a_replica_that_left_and_keeps_its_readers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is removed: replicas that left answer for ever that there is nothing new."""
    follow = Partitions._follow

    def keeps_readers(self: Partitions, hosted: HostedPartition, replica: HostedReplica) -> None:
        follow(self, hosted, replica)
        hosted.left = False

    monkeypatch.setattr(Partitions, "_follow", keeps_readers)
    monkeypatch.setattr(Partitions, "_keeps_up", lambda self, group: True)
    with pytest.raises(AssertionError):
        test_a_moved_partition_stays_readable(led=False)
