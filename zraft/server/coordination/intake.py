"""The leader's side of origin streams: takes exactly the next batch of each origin into the log (D-2, D-3).

Starts only when the leader's own first entry is applied: then the rows of the state machine say exactly what
every earlier leader committed, and nothing remembered from an earlier leadership can be stale.

Pure. Source: rules D-2 and D-3 in docs/RULES.md.
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

REORDERED_MAX: Final = 8
"""Batches of one origin kept while an earlier one is missing; an origin has fewer than this in flight."""

READY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Batches waiting for the log; beyond this new ones are left to their origin, which repeats them."""


def is_well_formed(batch: OriginBatch, server: ServerId, instance: Instance) -> bool:
    """Whether the packed batch is one, and says of itself what the message and its sender say.

    Nobody batches for others (D-1), and what is in the log must be walkable on every server for ever: a faulty
    origin is stopped here, before its bytes are appended.
    """
    try:
        packed = unpack_batch(batch.blob)
    except ProtocolError:
        return False
    return packed[:4] == (server, instance, batch.boot, batch.seq) and command_count(packed[4]) == batch.count


def is_next(boot: int, seq: int, batch_boot: int, batch_seq: int) -> bool:
    """D-2: exactly the next number of this boot, or the first of a later boot."""
    return (batch_boot == boot and batch_seq == seq + 1) or (batch_boot > boot and batch_seq == 1)


class BatchIntake:
    """One leadership's view of every origin: the last number taken, and what waits for the next entry."""

    def __init__(self, rows: Mapping[Origin, tuple[int, int]]) -> None:
        self._taken: dict[Origin, tuple[int, int]] = dict(rows)
        self._early: dict[Origin, dict[tuple[int, int], OriginBatch]] = {}
        self._ready: deque[OriginBatch] = deque()
        self._ready_bytes = 0
        self.malformed = 0
        """Batches that a peer should never have sent; an origin that repeats one makes no progress."""

    def __bool__(self) -> bool:
        return bool(self._ready)

    def set_origins(self, rows: Mapping[Origin, tuple[int, int]]) -> None:
        """The configuration changed: rows exist exactly for its members (D-3)."""
        self._taken = {origin: self._taken.get(origin, row) for origin, row in rows.items()}

    def offer(self, server: ServerId, instance: Instance, batch: OriginBatch) -> None:
        """Take `batch` if it is the next one of its origin; keep a few early ones; drop the rest."""
        origin = (server, instance)
        taken = self._taken.get(origin)
        if taken is None or self._ready_bytes >= READY_BYTES_MAX:
            return
        number = (batch.boot, batch.seq)
        next_one = is_next(*taken, *number)
        if not next_one and number <= taken:
            return  # a repetition: most of what is not next
        if not is_well_formed(batch, server, instance):
            self.malformed += 1
            return
        if not next_one:
            early = self._early.setdefault(origin, {})
            if len(early) < REORDERED_MAX:
                early[number] = batch
            return
        self._accept(origin, batch)
        early = self._early.pop(origin, {})
        while (following := early.pop((batch.boot, batch.seq + 1), None)) is not None:
            batch = following
            self._accept(origin, batch)
        # What is left is older than the boot now in force, or still early.
        early = {n: b for n, b in early.items() if n > self._taken[origin]}
        if early:
            self._early[origin] = early

    def _accept(self, origin: Origin, batch: OriginBatch) -> None:
        self._taken[origin] = (batch.boot, batch.seq)
        self._ready.append(batch)
        self._ready_bytes += len(batch.blob)

    def take(self, bytes_max: int) -> tuple[list[bytes], int]:
        """(blobs, number of commands) for one entry: at least one batch, else up to `bytes_max`."""
        blobs: list[bytes] = []
        size = count = 0
        while self._ready and (not blobs or size + len(self._ready[0].blob) <= bytes_max):
            batch = self._ready.popleft()
            blobs.append(batch.blob)
            size += len(batch.blob)
            count += batch.count
        self._ready_bytes -= size
        return blobs, count
