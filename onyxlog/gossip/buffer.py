"""The ordering buffer: what of the events that arrive may be applied next, and what is missing.

Rules (systems of this kind had none of them, and none of their gossiped events was ever applied): position order,
without gaps, each once; and only onto the very chain that the publisher had. Never by timestamp: two entries of one
millisecond would be applied in different orders.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from attrs import frozen

from onyxlog.gossip.messages import Event
from onyxlog.ids import GroupId, Position


class Offered(Enum):
    """What became of an event that arrived."""

    NEW = "new"
    KNOWN = "known"
    """It was applied, or waits already."""
    BEYOND = "beyond"
    """So far ahead that it is not kept; that there are entries up to it is."""


class Source(Enum):
    """Where the bytes of an entry came from."""

    OWN = "own"
    """The log accepted it from this group."""
    GOSSIP = "gossip"
    PEER = "peer"
    """A peer was asked for it."""
    LOG = "log"
    TAIL = "tail"
    """The log pushed it: this group stands sentinel."""


TRUSTED: Final = frozenset((Source.OWN, Source.LOG, Source.TAIL))
"""Their bytes are the log's own: no chain need agree with them."""


@frozen
class Ready:
    """The entry to be applied next."""

    event: Event
    source: Source


@frozen
class Mismatch:
    """An event whose publisher had another chain before it than there is here: one of the two has a wrong replica."""

    position: Position
    publisher: GroupId


class OrderingBuffer:
    """Entries that wait between what was applied and what is known to exist.

    `window`: how many positions ahead of the applied one are kept. `history`: how many applied events are kept, to
    give to peers that miss them, and `history_bytes` how much they may take.
    """

    def __init__(
        self, applied: Position, chain: bytes, *, window: int, history: int, history_bytes: int
    ) -> None:
        self.applied = applied
        self.chain = chain
        self.newest = applied
        """The highest position at which there is known to be an entry."""
        self._window = window
        self._history_max = history
        self._history_bytes_max = history_bytes
        self._history_bytes = 0
        self._waiting: dict[Position, Ready] = {}
        self._history: deque[Event] = deque()
        self._distrusted: Position | None = None

    def heard_of(self, position: Position) -> None:
        """Somebody says that there are entries up to this one."""
        self.newest = max(self.newest, position)

    def offer(self, event: Event, source: Source) -> Offered:
        """Keep an event that arrived; what comes from the log replaces what others said."""
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
        """The entry after the applied one, if it is here; a mismatch is told once, and only the log can mend it."""
        ready = self._waiting.get(self.applied + 1)
        if ready is None or ready.source in TRUSTED or ready.event.previous == self.chain:
            return ready
        self.distrust()
        return Mismatch(ready.event.position, ready.event.publisher)

    def distrust(self) -> None:
        """The entry that is ready is not what it should be: only the log's own will do."""
        self._waiting.pop(self.applied + 1, None)
        self._distrusted = self.applied + 1

    def advance(self, chain: bytes) -> Event:
        """The entry that was ready is applied, and the chain there is `chain`; the event as others may have it."""
        ready = self._waiting.pop(self.applied + 1)
        event = ready.event
        if event.previous != self.chain:  # from the log: it does not know the chain
            event = Event(event.position, event.payload, self.chain, event.origin, event.publisher)
        self.applied += 1
        self.chain = chain
        self._remember(event)
        return event

    def begin(self, applied: Position, chain: bytes) -> None:
        """Go on from an origin: what was before it is gone from the log, and from here."""
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
        """The first gap: positions first <= position < end that are known to exist and not here."""
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
        """Whether the next entry was offered with a chain that is not ours."""
        return self._distrusted == self.applied + 1

    def chain_at(self, position: Position) -> bytes | None:
        """The chain after the entry at `position`, as far back as events are kept."""
        if position == self.applied:
            return self.chain
        event = self._kept(position + 1)
        return event.previous if event else None

    def kept(self, first: Position, end: Position) -> tuple[Event, ...]:
        """Applied events in this range, without gaps from the first that is kept on."""
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
