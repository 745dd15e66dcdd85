"""Messages between their start and the moment when every destination is known to have them, in order, at O(log n) each.

Only dictionaries and queues; what may be delivered or forgotten is decided by `zraft.topics.partition`. The queues follow
from the entries, and a snapshot holds only these.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush, heapreplace
from typing import TypeVar

from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.message import Message
from zraft_core.topics.stamps import BEGINNING, FinalTime, MessageId


class PendingMessage:
    """One message that this group has begun.

    `time` is this group's proposal, `proposals` has it and those of the others. `void` is None until the condition's home
    has spoken. `waiting`, once delivered: destinations whose floor may still be below `final`. `began_ms`: log time.
    `testified`: by destination, the epoch as of which it has told what it knows of groups that are given up.
    """

    __slots__ = (
        *("began_ms", "digest", "final", "message", "mid", "proposals", "testified", "time", "void"),
        "waiting",
    )

    def __init__(self, message: Message, digest: bytes, time: int, void: bool | None, began_ms: int) -> None:
        self.message = message
        self.mid = message.mid
        self.digest = digest
        self.time = time
        self.proposals: dict[GroupId, int] = {}
        self.testified: dict[GroupId, int] | None = None
        self.void = void
        self.final: FinalTime | None = None
        self.waiting: set[GroupId] = set()
        self.began_ms = began_ms


class Pending:
    """Started, not delivered. Ordered by final time, or as long as that is unknown by this group's own proposal."""

    __slots__ = ("_group", "_heap", "_started", "awaited", "entries", "payload_bytes")

    def __init__(self, group: GroupId) -> None:
        self._group = group
        self.entries: dict[MessageId, PendingMessage] = {}
        self._heap: list[tuple[int, GroupId, MessageId]] = []
        self._started: deque[PendingMessage] = deque()
        self.payload_bytes = 0
        self.awaited: Counter[GroupId] = Counter()
        """The number of messages that wait for the proposal of each other group."""

    def add(self, entry: PendingMessage) -> None:
        """Add a started message.

        Proposals of this group ascend, so the order of adding is the order of `time`.
        """
        message, awaited = entry.message, self.awaited
        assert not self._started or entry.time > self._started[-1].time, f"{entry.time} is not a new time"
        self.entries[entry.mid] = entry
        self._started.append(entry)
        heappush(self._heap, (entry.time, self._group, entry.mid))
        self.payload_bytes += len(message.payload)
        if entry.final is not None:
            return  # from a snapshot: whoever has not proposed is given up
        for group in message.destinations:
            if group not in entry.proposals:
                awaited[group] = awaited.get(group, 0) + 1

    def proposed(self, entry: PendingMessage, sender: GroupId, time: int) -> None:
        """Note the proposal of another destination."""
        entry.proposals[sender] = time
        _less(self.awaited, (sender,))

    def forgo(self, entry: PendingMessage) -> None:
        """Note that the proposals which the entry lacks will never come."""
        _less(self.awaited, [group for group in entry.message.destinations if group not in entry.proposals])

    def pop_deliverable(self) -> PendingMessage | None:
        """Take out the first in order, if its final time is known."""
        heap = self._heap
        while heap:
            time, group, mid = heap[0]
            entry = self.entries[mid]
            if entry.final is None:
                return None
            if (time, group) != entry.final:
                # Final times are never below the own proposal, so it can only move back in the queue, and once.
                heapreplace(heap, (*entry.final, mid))
                continue
            heappop(heap)
            del self.entries[mid]
            self.payload_bytes -= len(entry.message.payload)
            return entry
        return None

    def oldest(self) -> PendingMessage | None:
        """Return the one with the smallest proposal of this group."""
        started = self._started
        while started and started[0].mid not in self.entries:
            started.popleft()
        return started[0] if started else None

    @property
    def newest_time(self) -> int:
        """The proposal of the one that was added last and may still be pending."""
        return self._started[-1].time if self._started else 0

    def __contains__(self, mid: MessageId) -> bool:
        return mid in self.entries

    def __len__(self) -> int:
        return len(self.entries)


class SettledEntries:
    """Delivered here, perhaps not yet everywhere: kept to answer those who still lack this group's proposal (D-8c)."""

    __slots__ = ("_owed", "entries", "newest_final")

    def __init__(self) -> None:
        self.entries: dict[MessageId, PendingMessage] = {}
        self.newest_final = BEGINNING
        self._owed: dict[GroupId, deque[PendingMessage]] = {}

    def keep(self, entry: PendingMessage, floors: Mapping[GroupId, FinalTime]) -> None:
        """Keep `entry` for those of `entry.waiting` whose floor is below it.

        Final times of what is delivered ascend, so each group's queue is in order.
        """
        final = entry.final
        assert final is not None
        if floors:
            entry.waiting = {group for group in entry.waiting if floors.get(group, BEGINNING) < final}
        if not entry.waiting:
            return
        self.newest_final = final
        self.entries[entry.mid] = entry
        for group in entry.waiting:
            owed = self._owed.get(group)
            if owed is None:
                owed = self._owed[group] = deque()
            owed.append(entry)

    def reached(self, group: GroupId, floor: FinalTime) -> Iterator[PendingMessage]:
        """Note that `group` has delivered everything up to `floor`; yield what is everywhere by that."""
        owed = self._owed.get(group)
        while owed:
            entry = owed[0]
            assert entry.final is not None
            if entry.final > floor:
                return
            owed.popleft()
            if self._has(entry, group):
                yield entry
        self._owed.pop(group, None)

    def removed(self, group: GroupId) -> Iterator[PendingMessage]:
        """Note that `group` is removed; yield what is everywhere by that.

        The removal waited until the group had delivered everything.
        """
        for entry in self._owed.pop(group, ()):
            if self._has(entry, group):
                yield entry

    def _has(self, entry: PendingMessage, group: GroupId) -> bool:
        entry.waiting.discard(group)
        if entry.waiting or entry.mid not in self.entries:
            return False
        del self.entries[entry.mid]
        return True

    def first_owed(self, group: GroupId) -> FinalTime | None:
        """Return the final time of the first message that is kept for `group`."""
        owed = self._owed.get(group)
        return owed[0].final if owed else None

    def awaited(self) -> Iterable[GroupId]:
        """Return the groups for whose answer a message is kept."""
        return self._owed.keys()

    def __contains__(self, mid: MessageId) -> bool:
        return mid in self.entries

    def __len__(self) -> int:
        return len(self.entries)


class Involved:
    """Counts of pending and settled messages of each producer, and to each group: "clear" is read from them."""

    __slots__ = ("of_producer", "to_group")

    def __init__(self) -> None:
        self.of_producer: Counter[ProducerId] = Counter()
        self.to_group: Counter[GroupId] = Counter()

    def began(self, message: Message) -> None:
        """Count a message that began."""
        self.of_producer[message.mid.producer] += 1
        to_group = self.to_group
        for group in message.destinations:
            # `Counter.update` takes longer than this for as many as a message has destinations.
            to_group[group] = to_group.get(group, 0) + 1

    def ended(self, message: Message) -> None:
        """Stop counting a message that is over."""
        _less(self.of_producer, (message.mid.producer,))
        _less(self.to_group, message.destinations)


_Key = TypeVar("_Key")


def _less(counter: Counter[_Key], keys: Iterable[_Key]) -> None:
    """Count one less of each.

    Counters keep what fell to zero, and groups and producers come and go for ever.
    """
    for key in keys:
        left = counter[key] - 1
        if left:
            counter[key] = left
        else:
            del counter[key]
