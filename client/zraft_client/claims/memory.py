"""The service in memory, for tests of programs that consume: real claims, real expiry, no replication.

Positions, log time and expiry are as in a partition's group; the clock is handed in, and nothing happens
between calls: `tick` and every call handle expiry.
"""

from __future__ import annotations

from collections.abc import Callable

from zraft_client.claims.clock import uptime_ms
from zraft_client.claims.errors import PortError
from zraft_client.claims.port import Fetched, Record, Seen
from zraft_core.claims.answers import ClaimAnswer
from zraft_core.claims.commands import ClaimCommand
from zraft_core.claims.expiry import ClaimExpiry
from zraft_core.claims.state import Claims
from zraft_core.claims.values import HEARTBEAT_MS_DEFAULT

STEP_MS_MAX = 1_000
"""Time in which nobody looked ages owners by so much at most, as with a leader."""


class MemoryPartition:
    """One partition: its messages, its claims, and the expiry that its leader would decide."""

    def __init__(self, heartbeat_ms: int, now_ms: int) -> None:
        self.records: list[Record] = []
        self.earliest = 0
        self.claims = Claims(heartbeat_ms, log_time_ms=now_ms)
        self._expiry = ClaimExpiry()
        self._round = 0
        self._looked_ms = now_ms

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self.earliest + len(self.records)

    def apply(self, command: ClaimCommand, now_ms: int) -> ClaimAnswer:
        """Apply a command as the partition's group would, and return its answer."""
        return self.claims.apply(command, self.claims.position + 1, now_ms, self.end)

    def tick(self, now_ms: int) -> None:
        """Let the time pass: expire the claims whose owners were not heard."""
        self._expiry.advance(min(now_ms - self._looked_ms, STEP_MS_MAX))
        self._looked_ms = now_ms
        self._expiry.wants_round(self.claims, self._round + 1)
        self._round += 1
        for command in self._expiry.proposals(self.claims, self._round):
            self.apply(command, now_ms)


class MemoryService:
    """A `ClaimsPort` on topics in memory. `fail_next` makes calls fail, before or after they were carried out."""

    def __init__(
        self, heartbeat_ms: int = HEARTBEAT_MS_DEFAULT, *, clock: Callable[[], int] = uptime_ms
    ) -> None:
        self._clock = clock
        self._heartbeat_ms = heartbeat_ms
        self._topics: dict[str, list[MemoryPartition]] = {}
        self._failures: list[bool] = []

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, or replace the one of that name, with empty partitions."""
        now = self._clock()
        self._topics[topic] = [MemoryPartition(self._heartbeat_ms, now) for _ in range(partitions)]

    def append(self, topic: str, partition: int, value: bytes) -> int:
        """Add a message; return its offset."""
        kept = self._topics[topic][partition]
        offset = kept.end
        kept.records.append(Record(offset, value))
        return offset

    def cut(self, topic: str, partition: int, earliest: int) -> None:
        """Remove the messages below `earliest`, as retention does."""
        kept = self._topics[topic][partition]
        kept.records = kept.records[max(0, earliest - kept.earliest) :]
        kept.earliest = max(kept.earliest, earliest)

    def partition(self, topic: str, partition: int) -> MemoryPartition:
        """Return the partition, to look at or fill in a test.

        Raises:
            KeyError: there is no such topic.
        """
        return self._topics[topic][partition]

    def tick(self) -> None:
        """Let time pass: expire what is stale."""
        now = self._clock()
        for partitions in self._topics.values():
            for partition in partitions:
                partition.tick(now)

    def fail_next(self, *, carried_out: bool) -> None:
        """Make the next command fail with `PortError`, before or after it was carried out."""
        self._failures.append(carried_out)

    # ClaimsPort -------------------------------------------------------------------------------------------------

    async def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has; 0 if there is no such topic."""
        return len(self._topics.get(topic, ()))

    async def look(self, topic: str, partition: int, group: str) -> Seen:
        """Return the group's claims on the partition, and the partition's bounds."""
        self.tick()
        kept = self._topics[topic][partition]
        return Seen(kept.claims.view(group, self._clock()), kept.earliest, kept.end)

    async def submit(self, topic: str, partition: int, command: ClaimCommand) -> ClaimAnswer:
        """Carry out a command and return its answer.

        Raises:
            PortError: `fail_next` asked for it.
        """
        self.tick()
        carried_out = self._failures.pop(0) if self._failures else None
        if carried_out is False:
            raise PortError(f"{topic}/{partition}: told to fail before")
        answer = self._topics[topic][partition].apply(command, self._clock())
        if carried_out:
            raise PortError(f"{topic}/{partition}: told to fail afterwards")
        return answer

    async def fetch(self, topic: str, partition: int, first: int, count: int, bytes_max: int) -> Fetched:
        """Return up to `count` records from `first` on, and at least one if there is one."""
        kept = self._topics[topic][partition]
        records: list[Record] = []
        size = 0
        for record in kept.records[max(0, first - kept.earliest) :][:count]:
            size += len(record.value)
            if records and size > bytes_max:
                break
            records.append(record)
        return Fetched(tuple(records), kept.earliest, kept.end)
