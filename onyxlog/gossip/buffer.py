"""The ordering buffer: which of the events that arrived may be applied next, and which are missing.

An event is applied in the order of positions, without gaps, once, and only onto the very chain that its
publisher had. Timestamps decide nothing: two entries of one millisecond would be applied in different orders.
(Earlier systems of this kind had none of these rules, and none of their gossiped events was ever applied.)
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from attrs import frozen

from onyxlog.gossip.messages import Event
from onyxlog.ids import GroupId, Position


class Offered(Enum):
    """Results of offering an event to the buffer."""

    NEW = "new"
    KNOWN = "known"
    """The event was applied, or waits already."""
    BEYOND = "beyond"
    """The event is too far ahead to be kept. The buffer remembers that entries exist up to it."""


class Source(Enum):
    """Sources of an entry's bytes."""

    OWN = "own"
    """The log accepted the entry from this group."""
    GOSSIP = "gossip"
    PEER = "peer"
    """A peer gave the entry when it was asked."""
    LOG = "log"
    TAIL = "tail"
    """The log pushed the entry, as this group is a sentinel."""


TRUSTED: Final = frozenset((Source.OWN, Source.LOG, Source.TAIL))
"""Sources whose bytes are the log's own: no chain need agree with them."""


@frozen
class Ready:
    """The entry to be applied next."""

    event: Event
    source: Source


@frozen
class Mismatch:
    """An event whose publisher had another chain before it than this group has: one of the two replicas is wrong."""

    position: Position
    publisher: GroupId


class OrderingBuffer:
    """Entries that wait between what was applied and what is known to exist.

    `window`: how many positions ahead of the applied one are kept. `history`: how many applied events are
    kept for peers that miss them, and `history_bytes` how many bytes these may take.
    """

    def __init__(
        self, applied: Position, chain: bytes, *, window: int, history: int, history_bytes: int
    ) -> None:
        self.applied = applied
        self.chain = chain
        self.newest = applied
        """The highest position at which an entry is known to exist."""
        self._window = window
        self._history_max = history
        self._history_bytes_max = history_bytes
        self._history_bytes = 0
        self._waiting: dict[Position, Ready] = {}
        self._history: deque[Event] = deque()
        self._distrusted: Position | None = None

    def heard_of(self, position: Position) -> None:
        """Note that somebody says that entries exist up to this position."""
        self.newest = max(self.newest, position)

    def offer(self, event: Event, source: Source) -> Offered:
        """Keep an event that arrived. Bytes from the log replace what others said."""
        position = event.position
        self.heard_of(position)
        if position <= self.applied:
            return Offered.KNOWN
        if position > self.applied + self._window:
            return Offered.BEYOND
        waiting = self._waiting.get(position)
        if waiting is not None and (waiting.source in TRUSTED or source not in TRUSTED):
            return Offered.KNOWN
        if position == self._distrusted and source not in TRUSTED:
            return Offered.KNOWN
        self._waiting[position] = Ready(event, source)
        return Offered.NEW if waiting is None else Offered.KNOWN

    def ready(self) -> Ready | Mismatch | None:
        """Return the entry after the applied one if it is here.

        A mismatch is returned once; only the log can mend it.
        """
        ready = self._waiting.get(self.applied + 1)
        if ready is None or ready.source in TRUSTED or ready.event.previous == self.chain:
            return ready
        self.distrust()
        return Mismatch(ready.event.position, ready.event.publisher)

    def distrust(self) -> None:
        """Reject the entry that is ready, as it is not what it should be.

        Only the log's own bytes are accepted for it now.
        """
        self._waiting.pop(self.applied + 1, None)
        self._distrusted = self.applied + 1

    def advance(self, chain: bytes) -> Event:
        """Note that the ready entry is applied and that the chain there is `chain`.

        Return the event as others may have it.
        """
        ready = self._waiting.pop(self.applied + 1)
        event = ready.event
        if event.previous != self.chain:  # an entry from the log does not carry the chain
            event = Event(event.position, event.payload, self.chain, event.origin, event.publisher)
        self.applied += 1
        self.chain = chain
        self._remember(event)
        return event

    def begin(self, applied: Position, chain: bytes) -> None:
        """Continue from an origin: what was before it is gone from the log, and from here."""
        self.applied, self.chain = applied, chain
        self.newest = max(self.newest, applied)
        self._distrusted = None
        self._history.clear()
        self._history_bytes = 0
        self._waiting = {
            position: ready
            for position, ready in self._waiting.items()
            if applied < position <= applied + self._window
        }

    def missing(self) -> tuple[Position, Position] | None:
        """Return the first gap: positions first <= position < end that are known to exist and are not here."""
        first = self.applied + 1
        while first in self._waiting:
            first += 1
        if first > self.newest:
            return None
        end = first + 1
        last = min(self.newest, self.applied + self._window)
        while end <= last and end not in self._waiting:
            end += 1
        return first, end

    def must_come_from_log(self) -> bool:
        """Return whether the next entry was offered with a chain that is not ours."""
        return self._distrusted == self.applied + 1

    def chain_at(self, position: Position) -> bytes | None:
        """Return the chain after the entry at `position`, as far back as events are kept."""
        if position == self.applied:
            return self.chain
        event = self._kept(position + 1)
        return event.previous if event else None

    def kept(self, first: Position, end: Position) -> tuple[Event, ...]:
        """Return the applied events in this range, without gaps from the first that is kept."""
        found = (self._kept(position) for position in range(first, min(end, self.applied + 1)))
        return tuple(event for event in found if event)

    def _kept(self, position: Position) -> Event | None:
        if not self._history or not self._history[0].position <= position <= self.applied:
            return None
        return self._history[position - self._history[0].position]

    def _remember(self, event: Event) -> None:
        self._history.append(event)
        self._history_bytes += len(event.payload)
        while len(self._history) > self._history_max or self._history_bytes > self._history_bytes_max:
            self._history_bytes -= len(self._history.popleft().payload)
