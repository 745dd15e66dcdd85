"""One partition on this server: its state, its deliveries in memory and on the disk, and who waits for new ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define

from zraft.groups.snapshots import delivery_tasks
from zraft.server.partitions.delivery_tail import DeliveryTail
from zraft.server.partitions.leadership import PartitionLeadership
from zraft.server.partitions.machine import AppliedEntry, PartitionMachine
from zraft.server.partitions.statistics import Delivered
from zraft.server.partitions.topic_answers import Asker
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.values import StoredDelivery
from zraft.topics.service import Fetched
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.stamps import Stamp

NOWHERE = Stamp(0, GroupId(0), 0, GroupId(0))


@define(eq=False)
class FetchWaiter:
    """A fetch that waits at `offset` for something new until `deadline_ms`. `over`: it was answered, or nobody waits."""

    asker: Asker
    group: GroupId
    offset: int
    bytes_max: int
    deadline_ms: int
    over: bool = False


class HostedPartition:
    """Partition on this server.

    Attributes:
        log: the deliveries on the disk, once they are open.
        failure: why the deliveries cannot be used; "" while they can.
        leadership: set while this server leads the partition, and it is born.
        birth_term: the term in which this server proposed a birth.
        stop_noticed: whether it was reported that the partition stopped.
        counted_bytes: what the tail counts for among all of the server.
        left: whether the partition has left this server, which gets no further deliveries. Those that are here can
            still be read.
    """

    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.machine = PartitionMachine(group)
        self.tail = DeliveryTail()
        self.log: DeliveryLog | None = None
        self.failure = ""
        self.leadership: PartitionLeadership | None = None
        self.birth_term = 0
        self.waiters: list[FetchWaiter] = []
        self._restored = 0
        self._frontier = NOWHERE
        self._appended_index = 0
        self._durable_index = 0
        self._cut_index = 0
        self.counted_bytes = 0
        self.stop_noticed = False
        self.left = False
        self._led = self._led_from = Delivered()

    # -- who leads it

    def begin_leadership(self, leadership: PartitionLeadership) -> None:
        """Let this server lead the partition from here on."""
        self.leadership = leadership
        self._led_from = self.tail.appended()

    def end_leadership(self, leader: ServerId | None, entries: Sequence[AppliedEntry] = ()) -> None:
        """End the leadership, and tell who waits that somebody else leads.

        Args:
            leader: who leads now, as far as is known.
            entries: what was applied since this server was last seen to lead; the next leader counts it.
        """
        assert self.leadership is not None
        later = [one for entry in entries for one in entry.deliveries]
        records, size = sum(one.span for one in later), sum(len(one.payload) for one in later)
        self._led = self.delivered_leading - Delivered(len(later), records, size)
        self.leadership.end(leader)
        self.leadership = None

    @property
    def delivered_leading(self) -> Delivered:
        """Count of deliveries made here while this server led the partition, since the server's start."""
        return self._led if self.leadership is None else self._led + self.tail.appended() - self._led_from

    # -- what is delivered

    def take_applied(self, tasks: list[delivery_tasks.Task]) -> list[AppliedEntry]:
        """Return what was applied since the last call, and add the writing of its deliveries to `tasks`."""
        machine = self.machine
        if machine.restored_total != self._restored:
            self._restored = machine.restored_total
            # There may have been deliveries since.
            self.tail.restart(machine.restored_offset)
        entries = machine.take_fresh()
        delivered: list[StoredDelivery] = []
        for entry in entries:
            if entry.deliveries:
                delivered += entry.deliveries
                self.tail.append(entry.deliveries, entry.index)
        if delivered:
            self._appended_index = delivered[-1].index
            tasks.append(delivery_tasks.AppendDeliveries(self.group, delivered, self._appended_index))
        return entries

    def opened(self, log: DeliveryLog) -> None:
        """Take note that the partition's deliveries can be read, and appended to."""
        self.log = log
        self.failure = ""
        self._durable_index = max(self._durable_index, log.durable_index)

    def wrote(self, index: int) -> None:
        """Take note that the deliveries of entries up to `index` are on the disk, durable or not."""
        self.tail.wrote(index)

    def durable(self, index: int) -> None:
        """Take note that the deliveries of entries up to `index` survive a power failure."""
        self._durable_index = max(self._durable_index, index)

    def cut_index(self, applied_index: int) -> int:
        """Return up to where the group's log is not needed for its deliveries any more; never less than it was."""
        cut = applied_index if self._durable_index >= self._appended_index else 0
        self._cut_index = max(self._cut_index, self._durable_index, cut)
        return self._cut_index

    # -- what is read

    @property
    def end(self) -> int:
        """The offset behind the last delivery."""
        return self.machine.next_offset

    @property
    def first(self) -> int:
        """The offset at which the deliveries on this server begin."""
        return self.tail.first if self.log is None else min(self.log.base.offset, self.tail.first)

    def frontier(self) -> Stamp:
        """Return a stamp that every later delivery is above."""
        partition = self.machine.partition
        return NOWHERE if partition is None else partition.frontier()

    def frontier_moved(self) -> bool:
        """Return whether the frontier has moved since the last call."""
        frontier = self.frontier()
        moved, self._frontier = frontier != self._frontier, frontier
        return moved

    def fetched(self, offset: int, found: Sequence[StoredDelivery]) -> Fetched:
        """Return the answer to a fetch at `offset`.

        What is not applied here is not given, though it may be on the disk.
        """
        end = self.end
        given = [one for one in found if one.offset < end]
        following = given[-1].end if given else offset
        if following >= end:
            frontier = self.frontier()
        else:
            # Without any, a state came from another server, and up to the next turn nobody reads what lies behind the tail.
            frontier = _stamp(given[-1]) if given else NOWHERE
        return Fetched(
            self.group,
            [(one.offset, _stamp(one), one.payload) for one in given],
            self.first,
            following,
            end,
            frontier,
        )


def _stamp(one: StoredDelivery) -> Stamp:
    time, group, sub, single = one.stamp
    return Stamp(time, GroupId(group), sub, GroupId(single))
