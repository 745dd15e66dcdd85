"""Reading of an input's partitions by a worker, and its memory of segments that are under way.

There are three ways, by the job's delivery: positions only, which go into checkpoints (exactly-once-state);
segments under way, by their roots, and the positions below which all is done (at-least-once); positions as
they are read (best-effort).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from onyxlog.jobs.acking import Frontier, Roots
from onyxlog.plugins.plugin import Chunk, Input, Reader, extent_of
from onyxlog.tasks.items import Batch

Token = tuple[int, int]
"""A partition and a position."""


class Partitions:
    """The partitions of a source that one worker reads, in turn."""

    def __init__(self, readers: Mapping[int, Reader], positions: Mapping[int, int]) -> None:
        self.positions = {partition: positions.get(partition, 0) for partition in readers}
        """Positions from which to continue."""
        self._readers = dict(readers)
        self._turns = deque(sorted(readers))

    @classmethod
    async def open(cls, source: Input, mine: Iterable[int], positions: Mapping[int, int]) -> Partitions:
        """Open a reader for each partition, at its position or at the beginning."""
        readers = {
            partition: await source.reader(partition, positions.get(partition, 0)) for partition in mine
        }
        return cls(readers, positions)

    @property
    def exhausted(self) -> bool:
        """True when all partitions were read to their end."""
        return not self._turns

    def progress(self) -> tuple[int, int] | None:
        """Return how many positions were read, and how many there are; None unless every reader knows its extent."""
        done = total = 0
        for partition, reader in self._readers.items():
            extent = extent_of(reader)
            if extent is None:
                return None
            first, end = extent
            total += end - first
            done += min(max(self.positions[partition], first), end) - first
        return done, total

    async def read(self, count: int) -> tuple[int, Chunk] | None:
        """Return (partition, chunk) of the next partition that has anything; None if none has now."""
        for _ in range(len(self._turns)):
            partition = self._turns[0]
            reader = self._readers[partition]
            chunk = await reader.read(count)
            self.positions[partition] = chunk.next_position
            if reader.exhausted:
                self._turns.popleft()
            else:
                self._turns.rotate(-1)
            if chunk.segments:
                return partition, chunk
        return None

    async def close(self) -> None:
        """Close all readers."""
        for reader in self._readers.values():
            await reader.close()


class Pending:
    """The segments of an input that are under way; for at-least-once."""

    def __init__(self, number: int, rng: Random, *, timeout_ms: int, pending_max: int) -> None:
        """Begin with nothing under way. `number` is this worker's, in its job."""
        self._roots: Roots[Token] = Roots(number, rng, timeout_ticks=timeout_ms, pending_max=pending_max)
        self._segments: dict[Token, Any] = {}
        self._frontiers: dict[int, Frontier] = {}
        self._late: deque[tuple[Token, int]] = deque()
        """Segments to be sent again, and how often they were sent."""
        self.replayed = 0

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def is_full(self) -> bool:
        """True if as many segments are under way as may be."""
        return self._roots.is_full

    @property
    def has_late(self) -> bool:
        """True if segments wait to be sent again."""
        return bool(self._late)

    def begin(self, partition: int, chunk: Chunk, now_ms: int) -> Batch:
        """Return a chunk as a batch whose trees are tracked from now on."""
        frontier = self._frontiers.get(partition)
        if frontier is None:
            frontier = self._frontiers[partition] = Frontier()
        batch = Batch(chunk.segments, [], [])
        for segment, position in zip(chunk.segments, chunk.positions, strict=True):
            frontier.begin(position)
            token = (partition, position)
            self._segments[token] = segment
            self._send(batch, token, 1, now_ms)
        frontier.go_on_from(chunk.next_position)
        return batch

    def again(self, count: int, now_ms: int) -> Batch:
        """Return the late ones as another batch; they were not tracked since they were found late."""
        batch = Batch([], [], [])
        while self._late and len(batch.segments) < count:
            token, attempt = self._late.popleft()
            batch.segments.append(self._segments[token])
            self.replayed += 1
            self._send(batch, token, attempt + 1, now_ms)
        return batch

    def find_late(self, now_ms: int) -> None:
        """Queue the segments whose time is over, to be sent again."""
        for overdue in self._roots.overdue(now_ms):
            self._late.append((overdue.token, overdue.attempt))

    def retry(self, roots: Iterable[int]) -> None:
        """Note that a worker asked for these again."""
        for root in roots:
            overdue = self._roots.retry(root)
            if overdue is not None:
                self._late.append((overdue.token, overdue.attempt))

    def settle(self, values: Iterable[tuple[int, int]]) -> list[Any]:
        """Take what workers acked; return the segments that are done everywhere by that."""
        done = []
        for token in self._roots.settle(values):
            partition, position = token
            self._frontiers[partition].done(position)
            done.append(self._segments.pop(token))
        return done

    def positions(self) -> dict[int, int]:
        """Return, by partition, the first position that has to be read again after a failure."""
        return {partition: frontier.position for partition, frontier in self._frontiers.items()}

    def _send(self, batch: Batch, token: Token, attempt: int, now_ms: int) -> None:
        root, ack = self._roots.begin(token, now_ms, attempt)
        assert batch.roots is not None
        assert batch.values is not None
        batch.roots.append(root)
        batch.values.append(ack)
