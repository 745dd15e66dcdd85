"""One order over all partitions of a topic, whichever way reads of them fall (D-17d). Pure: what is read is handed in.

A message comes out when no partition can deliver anything with a smaller stamp any more. An idle partition would hold all
others up for ever; `needed` says how far it has to be asked to advance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from attrs import frozen

from zraft_core.errors import ZraftError
from zraft_core.ids import GroupId
from zraft_core.topics.message import Delivery
from zraft_core.topics.stamps import TIME_MAX, Stamp

NOWHERE = Stamp(0, GroupId(0), 0, GroupId(0))
_NEVER = Stamp(2 * TIME_MAX, GroupId(0), 0, GroupId(0))
"""The frontier of a partition that delivers nothing any more."""


class MergeError(ZraftError):
    """Error of a read that does not continue the reads before it."""


@frozen
class MergePosition:
    """Position of a merged consumer: the next offset of each partition, and the last stamp that it saw.

    `seen`: how many records of the next message it saw, too.
    """

    offsets: Mapping[GroupId, int]
    last: Stamp = NOWHERE
    seen: int = 0


class Merger:
    """Merger of partitions: reads of them go in, deliveries in the order of stamps come out.

    Everything up to `position` is taken as seen. Who reads keeps to `room`, so that buffers stay bounded.

    Args:
        position: where to begin; its `seen` is for who takes records out of messages.
        buffered_max: deliveries of one partition.
        buffered_bytes_max: bytes of their payloads; a read that was begun before may exceed it.
    """

    def __init__(
        self,
        position: MergePosition,
        *,
        buffered_max: int = 4096,
        buffered_bytes_max: int = 8 * 1024 * 1024,
    ) -> None:
        self._buffers: dict[GroupId, deque[Delivery]] = {group: deque() for group in position.offsets}
        self._read = dict(position.offsets)
        self._frontiers: dict[GroupId, Stamp] = {}
        self._heads: list[tuple[Stamp, GroupId]] = []
        self._last = position.last
        self._buffered_max = buffered_max
        self._bound: Stamp | None = None
        self._bound_is_known = False
        self._bytes = dict.fromkeys(position.offsets, 0)
        self._buffered_bytes_max = buffered_bytes_max
        self._lost: set[GroupId] = set()

    def groups(self) -> tuple[GroupId, ...]:
        """Return the partitions that are to be read; a change of the topic adds to them as it comes out."""
        return tuple([group for group in self._buffers if group not in self._lost])

    def next_offset(self, group: GroupId) -> int:
        """Return the offset of a partition that is to be read next."""
        return self._read[group]

    def room(self, group: GroupId) -> int:
        """Return how many deliveries of a partition may be handed in now."""
        if self._bytes[group] >= self._buffered_bytes_max:
            return 0
        return self._buffered_max - len(self._buffers[group])

    def position(self) -> MergePosition:
        """Return the position behind the deliveries that were taken so far."""
        return MergePosition(
            {
                group: buffer[0].offset if buffer else self._read[group]
                for group, buffer in self._buffers.items()
                if group not in self._lost
            },
            self._last,
        )

    def feed(self, group: GroupId, deliveries: Sequence[Delivery], frontier: Stamp) -> None:
        """Take a read of `group`: its next deliveries, and a stamp that everything after them is above.

        Raises:
            MergeError: offsets are not the next ones, or stamps do not ascend.
        """
        buffer = self._buffers[group]
        before = buffer[-1].stamp if buffer else None
        for delivery in deliveries:
            if delivery.offset != self._read[group]:
                raise MergeError(
                    f"partition {group}: expected offset {self._read[group]}, found {delivery.offset}"
                )
            if before is not None and delivery.stamp <= before:
                raise MergeError(
                    f"partition {group}, offset {delivery.offset}: stamp {tuple(delivery.stamp)} is not above "
                    f"{tuple(before)}, the one before"
                )
            before = delivery.stamp
            if not buffer:
                heappush(self._heads, (delivery.stamp, group))
            buffer.append(delivery)
            self._bytes[group] += len(delivery.message.payload)
            self._read[group] = delivery.end
        self._frontiers[group] = max(frontier, self._frontiers.get(group, NOWHERE))
        self._bound_is_known = False

    def take(self, limit: int) -> list[Delivery]:
        """Take at most `limit` deliveries that are next in the merged order.

        A message to several partitions comes once.

        Raises:
            MergeError: a partition delivered behind its frontier.
        """
        found: list[Delivery] = []
        while len(found) < limit and (delivery := self.next()) is not None:
            self._pop()
            self._last = delivery.stamp
            found.append(delivery)
            if delivery.message.partitions is not None:
                self.add(delivery.message.partitions)
        return found

    def next(self) -> Delivery | None:
        """Return the delivery that `take` would take next, and leave it where it is; None if there is none yet.

        Raises:
            MergeError: a partition delivered behind its frontier.
        """
        while self._heads and self._heads[0][0] == self._last:
            # The same message at another partition; one that was added to the topic begins with the change again.
            self._pop()
        if not self._heads:
            return None
        stamp, group = self._heads[0]
        reached = self._reached()
        if reached is not None and reached < stamp:
            return None
        delivery = self._buffers[group][0]
        if stamp < self._last:
            raise MergeError(
                f"partition {group}, offset {delivery.offset}: stamp {tuple(stamp)} is behind {tuple(self._last)}, "
                "which another partition made certain; the frontier of a read was too high"
            )
        return delivery

    def _pop(self) -> None:
        """Remove the buffered delivery with the smallest stamp."""
        group = heappop(self._heads)[1]
        buffer = self._buffers[group]
        self._bytes[group] -= len(buffer.popleft().message.payload)
        if buffer:
            heappush(self._heads, (buffer[0].stamp, group))
        elif self._bound_is_known:
            frontier = self._frontiers[group]
            self._bound = frontier if self._bound is None else min(self._bound, frontier)

    def _reached(self) -> Stamp | None:
        """Return the stamp up to which no partition without a buffered delivery will deliver; None if each has one."""
        if not self._bound_is_known:
            empty = (
                self._frontiers.get(group, NOWHERE) for group, buffer in self._buffers.items() if not buffer
            )
            self._bound = min(empty, default=None)
            self._bound_is_known = True
        return self._bound

    def begin(self, group: GroupId, offset: int) -> None:
        """Note that a partition of which nothing was read begins at `offset`."""
        if not self._buffers[group] and not self._read[group]:
            self._read[group] = offset

    def lose(self, group: GroupId) -> None:
        """Wait for a partition no more, whose group was given up. What was read of it comes out at its place.

        The group that takes its place is added by the change that says so, which the other partitions deliver.
        """
        self._lost.add(group)
        self._frontiers[group] = _NEVER
        self._bound_is_known = False

    def add(self, partitions: Sequence[GroupId]) -> None:
        """Read more partitions, from their beginning on."""
        for group in partitions:
            if group not in self._buffers:
                self._buffers[group] = deque()
                self._read[group] = self._bytes[group] = 0
                self._bound_is_known = False

    def needed(self) -> dict[GroupId, int]:
        """Return the partitions that hold the next message up, and the time that each has to pass."""
        if not self._heads:
            return {}
        stamp = self._heads[0][0]
        return {
            group: self.time_needed(stamp)
            for group, buffer in self._buffers.items()
            if not buffer and self._frontiers.get(group, NOWHERE) < stamp
        }

    def time_needed(self, stamp: Stamp) -> int:
        """Return the time that a partition must pass before the stamp can be taken.

        It is one more than the stamp's: at the time itself a partition might still be below what
        took the bypass (D-17b).
        """
        return stamp.time + 1
