"""Rows of producers in a group: which of their numbers are decided (D-8a, D-8b).

A row is bounded by the producer's window.
"""

from __future__ import annotations

from zraft.topics.pending import PendingMessage


class ProducerRow:
    """One producer.

    Every number up to `floor` is decided at every destination; `outcomes` has those above it that are decided here: the
    offset of the delivery, or `FAILED`. `last` is the number of the last message to this group alone that was begun (D-17b).
    `queued` counts those of them that could not take the bypass and are pending; it follows from these. `staged` has what is
    durable here and waits for its round, by number; `staged_bytes` counts its payloads.
    """

    __slots__ = ("floor", "last", "outcomes", "queued", "staged", "staged_bytes")

    def __init__(self) -> None:
        self.floor = 0
        self.last = 0
        self.outcomes: dict[int, int] = {}
        self.queued = 0
        self.staged: dict[int, PendingMessage] = {}
        self.staged_bytes = 0

    def stage(self, entry: PendingMessage) -> None:
        """Keep a message that is durable and has no order yet."""
        self.staged[entry.mid.seq] = entry
        self.staged_bytes += len(entry.message.payload)

    def unstaged(self, upto: int) -> list[PendingMessage]:
        """Take out what is staged up to a number, in the order of numbers."""
        found = [self.staged.pop(seq) for seq in sorted(self.staged) if seq <= upto]
        self.staged_bytes -= sum(len(entry.message.payload) for entry in found)
        return found

    def decided(self, seq: int) -> bool:
        """Return whether the message with this number is decided."""
        return seq <= self.floor or seq in self.outcomes

    def raise_floor(self, floor: int) -> None:
        """Forget outcomes up to `floor`, which may jump far: O(what is forgotten) or O(window)."""
        if floor <= self.floor:
            return
        if self.staged:
            self.unstaged(floor)  # decided messages are in their place, or were given up
        if floor - self.floor <= len(self.outcomes):
            for seq in range(self.floor + 1, floor + 1):
                self.outcomes.pop(seq, None)
        else:
            self.outcomes = {seq: offset for seq, offset in self.outcomes.items() if seq > floor}
        self.floor = floor


FAILED = -1
"""Instead of an offset: the condition did not hold."""
