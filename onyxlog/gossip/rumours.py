"""The thesis' own ways of spreading events, for comparison: each peer draws its own streams.

No peer knows the streams of others. `BlindCounter` is listing 6.4 over the pool of listing 6.3, with or
without the proposed history of visited streams; `Feedback` is listing 6.1. If there are too few groups for
the thesis' number of streams, it is 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

from onyxlog.gossip.messages import Event, Known, RumourEvent, Send, Spread
from onyxlog.gossip.pacing import about
from onyxlog.gossip.spreading import SpreadingSettings
from onyxlog.gossip.streams import View
from onyxlog.ids import GroupId, Position

QUEUED_MAX: Final = 1024


class BlindCounter:
    """Spreading by publishing every reception on the group's own stream, known or not, until its hops are used up.

    With `history`, an event carries the streams it was on, and is not published on them again.
    """

    def __init__(self, me: GroupId, settings: SpreadingSettings, view: View, *, history: bool) -> None:
        self._me = me
        self._settings = settings
        self._history = history
        self._streams = view.current.drawn()

    def membership(self, view: View, now: int) -> Iterable[Send]:
        """Take this group's streams from a new deal of the pool."""
        self._streams = view.current.drawn()
        return ()

    def publish(self, event: Event, now: int) -> Iterator[Send]:
        """Publish this group's own event, and return what to send."""
        yield from self._published(RumourEvent(event, 0, self._settings.ttl))

    def receive(self, sender: GroupId, message: Spread, first: bool, now: int) -> Iterator[Send]:
        """Publish a received event again while it has hops left, whether it was known or not.

        Return what to send.
        """
        # The thesis asks for hops that are left, but not whether the event is new: copies multiply with every hop.
        if isinstance(message, RumourEvent) and message.ttl > 1:
            yield from self._published(
                RumourEvent(message.event, 0, message.ttl - 1, message.visited, message.hops + 1)
            )

    def learn(self, event: Event, now: int) -> Iterable[Send]:
        """Send nothing: events that came otherwise are not published."""
        return ()

    def knows(self, sender: GroupId, newest: Position, now: int) -> None:
        """Do nothing: others' positions are not used."""

    def tick(self, now: int) -> Iterable[Send]:
        """Send nothing: there are no timers."""
        return ()

    def deadline(self) -> int | None:
        """Return None: there are no timers."""
        return None

    def _published(self, copy: RumourEvent) -> Iterator[Send]:
        arc = self._streams.arc(self._me)
        if arc is None or (self._history and arc.publishes in copy.visited):
            return
        visited = (*copy.visited, arc.publishes) if self._history else ()
        to = self._streams.listeners(arc.publishes)
        if to:
            sent = RumourEvent(copy.event, arc.publishes, copy.ttl, visited, copy.hops)
            yield Send(to, sent, arc.publishes)


class Feedback:
    """Spreading by sending the earliest event in the queue to a random group, each round.

    A group that knew it says so, and enough of them end it.
    """

    def __init__(self, me: GroupId, settings: SpreadingSettings, random: Random, view: View) -> None:
        self._me = me
        self._settings = settings
        self._random = random
        self._queue: dict[Position, tuple[Event, int, int]] = {}
        """The event, how many groups knew it, and its hops."""
        self._round_at: int | None = None
        self._others: tuple[GroupId, ...] = ()
        self.membership(view, 0)

    def membership(self, view: View, now: int) -> Iterable[Send]:
        """Take the other groups from a new deal of the pool."""
        self._others = tuple(group for group in view.current.groups() if group != self._me)
        return ()

    def publish(self, event: Event, now: int) -> Iterable[Send]:
        """Put this group's own event into the queue."""
        self._enqueue(event, 0, now)
        return ()

    def receive(self, sender: GroupId, message: Spread, first: bool, now: int) -> Iterator[Send]:
        """Queue a new event, or count one that the sender need not have sent; return the answer."""
        match message:
            case RumourEvent(event, hops=hops):
                if first:
                    self._enqueue(event, hops + 1, now)
                else:
                    yield Send((sender,), Known(event.position))
            case Known(position):
                if position in self._queue:
                    event, known, hops = self._queue[position]
                    self._queue[position] = (event, known + 1, hops)
                    if known + 1 > self._settings.feedback_max:
                        del self._queue[position]
            case _:
                pass

    def learn(self, event: Event, now: int) -> Iterable[Send]:
        """Send nothing: events that came otherwise are not queued."""
        return ()

    def knows(self, sender: GroupId, newest: Position, now: int) -> None:
        """Do nothing: others' positions are not used."""

    def tick(self, now: int) -> Iterator[Send]:
        """Send the earliest event of the queue, if a round is due. Return what to send."""
        if self._round_at is None or self._round_at > now:
            return
        self._round_at = None
        if self._queue and self._others:
            position = min(self._queue)
            event, _, hops = self._queue[position]
            target = self._random.choice(self._others)
            yield Send((target,), RumourEvent(event, 0, 1, (), hops))
            self._round_at = now + about(self._settings.round_ms, self._random)

    def deadline(self) -> int | None:
        """Return the time of the next round, or None if the queue is empty."""
        return self._round_at

    def _enqueue(self, event: Event, hops: int, now: int) -> None:
        if len(self._queue) < QUEUED_MAX:
            self._queue[event.position] = (event, 0, hops)
            if self._round_at is None:
                self._round_at = now + about(self._settings.round_ms, self._random)
