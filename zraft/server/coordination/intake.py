"""The leader's side of origin streams: it takes exactly the next batch of each origin into the log (D-2, D-3).

It starts only when the leader's own first entry is applied: then the rows of the state machine say exactly
what every earlier leader committed, and nothing remembered from an earlier leadership can be stale.

Pure. Source: rules D-2 and D-3 in docs/explanation/rules.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from zraft.transport.messages import OriginBatch
from zraft_core.errors import ProtocolError
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes.txn import command_count, unpack_batch

Origin = tuple[ServerId, Instance]
"""A server that sends batches, and its disk."""

REORDERED_MAX: Final = 8
"""How many batches of one origin are kept while an earlier one is missing; an origin has fewer than this in flight."""

READY_BYTES_MAX: Final = 64 * 1024 * 1024
"""How many bytes of batches may wait for the log. Further ones are dropped, and their origins repeat them."""


def is_well_formed(batch: OriginBatch, server: ServerId, instance: Instance) -> bool:
    """Return whether the packed batch is one, and says of itself what the message and its sender say.

    No server batches for others (D-1), and every server must be able to read what is in the log for ever: a
    faulty origin is stopped here, before its bytes are appended.
    """
    try:
        packed = unpack_batch(batch.blob)
    except ProtocolError:
        return False
    return packed[:4] == (server, instance, batch.boot, batch.seq) and command_count(packed[4]) == batch.count


def is_next(boot: int, seq: int, batch_boot: int, batch_seq: int) -> bool:
    """Return whether a batch is exactly the next one of this boot, or the first one of a later boot (D-2)."""
    return (batch_boot == boot and batch_seq == seq + 1) or (batch_boot > boot and batch_seq == 1)


class BatchIntake:
    """The batches of every origin, as one leadership sees them: the last number taken, and what waits for the next entry.

    Attributes:
        ready: the batches that wait for the next entry, with their servers.
        malformed: batches that a peer should never have sent; an origin that repeats one makes no progress.
    """

    def __init__(self, rows: Mapping[Origin, tuple[int, int]]) -> None:
        self._taken: dict[Origin, tuple[int, int]] = dict(rows)
        self._early: dict[Origin, dict[tuple[int, int], OriginBatch]] = {}
        self.ready: deque[tuple[ServerId, OriginBatch]] = deque()
        self._ready_bytes = 0
        self.malformed = 0

    def set_origins(self, rows: Mapping[Origin, tuple[int, int]]) -> None:
        """Take the rows of a new configuration: rows exist exactly for its members (D-3)."""
        self._taken = {origin: self._taken.get(origin, row) for origin, row in rows.items()}

    def offer(self, server: ServerId, instance: Instance, batch: OriginBatch, *, own: bool = False) -> None:
        """Take `batch` if it is the next one of its origin; keep a few early ones; drop the rest.

        Args:
            own: this process has made it, so it is well formed.
        """
        origin = (server, instance)
        if origin not in self._taken or self._ready_bytes >= READY_BYTES_MAX:
            return
        taken = self._taken[origin]
        number = (batch.boot, batch.seq)
        next_one = is_next(*taken, *number)
        if not next_one and number <= taken:
            return  # most batches that are not the next one are repetitions
        if not (own or is_well_formed(batch, server, instance)):
            self.malformed += 1
            return
        if not next_one:
            early = self._early.setdefault(origin, {})
            if len(early) < REORDERED_MAX:
                early[number] = batch
            return
        self._accept(origin, batch)
        if origin in self._early:
            self._accept_early(origin, batch)

    def _accept_early(self, origin: Origin, batch: OriginBatch) -> None:
        """Take the batches that came before `batch` and follow it."""
        early = self._early.pop(origin)
        while (following := early.pop((batch.boot, batch.seq + 1), None)) is not None:
            batch = following
            self._accept(origin, batch)
        # The early batches that are left belong to an older boot, or are still early.
        early = {n: b for n, b in early.items() if n > self._taken[origin]}
        if early:
            self._early[origin] = early

    def _accept(self, origin: Origin, batch: OriginBatch) -> None:
        self._taken[origin] = (batch.boot, batch.seq)
        self.ready.append((origin[0], batch))
        self._ready_bytes += len(batch.blob)

    def take(self, bytes_max: int) -> tuple[list[bytes], int, frozenset[ServerId]]:
        """Return the batches for one entry: one if there is any, and further ones up to `bytes_max` bytes.

        Returns:
            The packed batches, how many commands they have, and the servers whose clients wait for them.
        """
        ready = self.ready
        if not ready:
            return [], 0, frozenset()
        server, batch = ready.popleft()
        blobs, count, origins = [batch.blob], batch.count, [server]
        size = len(batch.blob)
        while ready and size + len(ready[0][1].blob) <= bytes_max:
            server, batch = ready.popleft()
            blobs.append(batch.blob)
            origins.append(server)
            size += len(batch.blob)
            count += batch.count
        self._ready_bytes -= size
        return blobs, count, frozenset(origins)
