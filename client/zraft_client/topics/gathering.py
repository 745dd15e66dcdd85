"""Records that wait to be sent together: which of them become one message, and when.

Pure.

Times are seconds of any monotonic clock, handed in. Records that go to the same partitions are gathered in one
batch, until it is as large as a batch may be, or has waited long enough.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from zraft_client.topics.sent import SentMessage
from zraft_core.ids import GroupId
from zraft_core.records import BatchBuilder, Headers
from zraft_core.topics.forms import RECORDS_MAX
from zraft_core.topics.message import Condition

BATCH_BYTES: Final = 16 * 1024
"""The size of a batch before it is compressed. What a message costs servers is small beside 150 records of 100 bytes. A
larger batch would wait longer for its last record, or hold up what is sent behind it.
"""
BATCH_BYTES_MAX: Final = 512 * 1024
"""Servers take requests of a megabyte."""
OPEN_MAX: Final = 1024
"""Batches that are open at a time; one more closes the oldest."""

Groups = tuple[GroupId, ...]
"""The partitions that a record goes to, in their order."""


class Gathering:
    """One message that is not sent yet: a batch of records, or a payload in the form for servers that know no batches."""

    __slots__ = ("after", "builder", "condition", "due", "groups", "payload", "sent", "size")

    def __init__(self, groups: Groups, due: float = 0.0) -> None:
        self.groups = groups
        self.due = due
        self.sent = SentMessage()
        self.builder = BatchBuilder()
        self.payload: bytes | None = None
        self.size = 0
        """The bytes that its records count for in the buffer."""
        self.after: SentMessage | None = None
        self.condition: Condition | None = None


class Gatherer:
    """All records of one producer that are not sent yet.

    Args:
        batch_bytes_max: the size of a batch that is not exceeded, unless by a single record.
        linger_s: how long a batch is open for more records.
        in_order: records to other partitions close the batch that is open, so that messages are in the order of calls.
    """

    def __init__(self, *, batch_bytes_max: int, linger_s: float, in_order: bool) -> None:
        self._batch_bytes_max = min(batch_bytes_max, BATCH_BYTES_MAX)
        self._linger_s = linger_s
        self._in_order = in_order
        self._open: dict[Groups, Gathering] = {}
        """Batches that take more records, the oldest first."""
        self._closed: deque[Gathering] = deque()
        self.size = 0
        """The bytes that all these records count for in the buffer."""

    def __len__(self) -> int:
        return len(self._open) + len(self._closed)

    @property
    def closed(self) -> int:
        """The number of messages that can be sent now."""
        return len(self._closed)

    def add(
        self,
        groups: Groups,
        key: bytes | None,
        value: bytes,
        headers: Headers,
        timestamp: int,
        size: int,
        now: float,
    ) -> tuple[SentMessage, int]:
        """Add a record; return its message, and its place there."""
        one = self._open.get(groups)
        if one is None or one.builder.size + size > self._batch_bytes_max:
            one = self._begin(groups, now)
        place = one.builder.append(key, value, headers, timestamp)
        one.size += size
        self.size += size
        if one.builder.size >= self._batch_bytes_max or place + 1 >= RECORDS_MAX:
            self._closed.append(self._open.pop(groups))
        return one.sent, place

    def takes(self, groups: Groups, size: int) -> bool:
        """Return whether a batch to these partitions is open and has room for a record of `size` bytes."""
        one = self._open.get(groups)
        return one is not None and one.builder.size + size <= self._batch_bytes_max

    def _begin(self, groups: Groups, now: float) -> Gathering:
        if self._in_order:
            self.close()
        elif groups in self._open:
            self._closed.append(self._open.pop(groups))
        elif len(self._open) >= OPEN_MAX:
            self._closed.append(self._open.pop(next(iter(self._open))))
        found = self._open[groups] = Gathering(groups, now + self._linger_s)
        return found

    def add_alone(self, gathering: Gathering, size: int) -> None:
        """Add a message that takes no further record. It comes behind everything that was added before."""
        self.close()
        gathering.size = size
        self.size += size
        self._closed.append(gathering)

    def close(self) -> SentMessage | None:
        """Let no batch wait for more records; return the last message that is not sent yet."""
        self._closed.extend(self._open.values())
        self._open.clear()
        return self._closed[-1].sent if self._closed else None

    @property
    def next_due(self) -> float | None:
        """The time at which the oldest open batch has waited long enough."""
        return next((one.due for one in self._open.values()), None)

    def take(self, now: float, count: int) -> list[Gathering]:
        """Return at most so many messages to be sent now; a batch stays open while there is no room for it."""
        found: list[Gathering] = []
        while len(found) < count:
            if not self._closed:
                if (due := self.next_due) is None or due > now:
                    break
                oldest = next(iter(self._open))
                self._closed.append(self._open.pop(oldest))
            one = self._closed.popleft()
            self.size -= one.size
            found.append(one)
        return found

    def take_all(self) -> list[Gathering]:
        """Return everything, which is not sent any more."""
        self.close()
        found, self._closed, self.size = list(self._closed), deque(), 0
        return found
