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
from zraft_core.topics.stamps import Stamp

NOWHERE = Stamp(0, GroupId(0), 0, GroupId(0))


class MergeError(ZraftError):
    """Error of a read that does not continue the reads before it."""


@frozen
class MergePosition:
    """Position of a merged consumer: the next offset of each partition, and the last stamp that it saw."""

    offsets: Mapping[GroupId, int]
    last: Stamp = NOWHERE


class Merger:
    """Merger of partitions: reads of them go in, deliveries in the order of stamps come out.

    Everything up to `position` is taken as seen. Who reads keeps to `room`, so that buffers stay bounded.
    """

    def __init__(self, position: MergePosition, *, buffered_max: int = 4096) -> None:
        self._buffers: dict[GroupId, deque[Delivery]] = {group: deque() for group in position.offsets}
        self._read = dict(position.offsets)
        self._frontiers: dict[GroupId, Stamp] = {}
        self._heads: list[tuple[Stamp, GroupId]] = []
        self._last = position.last
        self._buffered_max = buffered_max

    def groups(self) -> tuple[GroupId, ...]:
        """Return the partitions that are to be read; a change of the topic adds to them as it comes out."""
        return tuple(self._buffers)

    def next_offset(self, group: GroupId) -> int:
        """Return the offset of a partition that is to be read next."""
        return self._read[group]

    def room(self, group: GroupId) -> int:
        """Return how many deliveries of a partition may be handed in now."""
        return self._buffered_max - len(self._buffers[group])

    def position(self) -> MergePosition:
        """Return the position behind the deliveries that were taken so far."""
        return MergePosition(
            {
                group: buffer[0].offset if buffer else self._read[group]
                for group, buffer in self._buffers.items()
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
            self._read[group] = delivery.end
        self._frontiers[group] = max(frontier, self._frontiers.get(group, NOWHERE))

    def take(self, limit: int) -> list[Delivery]:
        """Take at most `limit` deliveries that are next in the merged order.

        A message to several partitions comes once.

        Raises:
            MergeError: a partition delivered behind its frontier.
        """
        found: list[Delivery] = []
        reached = self._reached()
        while self._heads and len(found) < limit:
            stamp, group = self._heads[0]
            if reached is not None and reached < stamp:
                break
            heappop(self._heads)
            buffer = self._buffers[group]
            delivery = buffer.popleft()
            if buffer:
                heappush(self._heads, (buffer[0].stamp, group))
            else:
                frontier = self._frontiers[group]
                reached = frontier if reached is None else min(reached, frontier)
            if stamp == self._last:
                # The same message at another partition; one that was added to the topic begins with the change again.
                continue
            if stamp < self._last:
                raise MergeError(
                    f"partition {group}, offset {delivery.offset}: stamp {tuple(stamp)} is behind {tuple(self._last)}, "
                    "which another partition made certain; the frontier of a read was too high"
                )
            self._last = stamp
            found.append(delivery)
            if delivery.message.partitions is not None and self._add(delivery.message.partitions):
                reached = NOWHERE
        return found

    def _reached(self) -> Stamp | None:
        """Return the stamp up to which no partition without a buffered delivery will deliver; None if each has one."""
        empty = (self._frontiers.get(group, NOWHERE) for group, buffer in self._buffers.items() if not buffer)
        return min(empty, default=None)

    def _add(self, partitions: Sequence[GroupId]) -> bool:
        new = [group for group in partitions if group not in self._buffers]
        for group in new:
            self._buffers[group] = deque()
            self._read[group] = 0
        return bool(new)

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
