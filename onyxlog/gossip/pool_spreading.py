"""Spreading over the streams that the log deals: for each event and stream one group passes it on, and others stand by.

An event is published on its publisher's stream. From there a tree of arcs leads to every other stream; on
each arc the group with the highest rendezvous hash of (position, group) passes it on at once. The second
group waits, and the third waits twice as long; one listener of the stream tells them that the event came, so
that they need not send it. Without loss that is one publication per stream, and one reception per group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from attrs import evolve, frozen

from onyxlog.gossip.messages import Event, PoolEvent, Seen, Send, Spread, Stream
from onyxlog.gossip.spreading import SpreadingSettings
from onyxlog.gossip.streams import Arc, Streams, View, ranked
from onyxlog.ids import GroupId, Position

STANDING_BY_MAX: Final = 4096
"""The number of events for which a group stands by at a time. Further events are left to repair."""

TELLERS: Final = 2
"""The number of groups that tell the standbys.

If there were one and its datagram were lost, a whole stream would get the event twice.
"""


@frozen
class _StandBy:
    due: int
    copy: PoolEvent


class PoolSpreading:
    """The part of `me` in spreading."""

    def __init__(self, me: GroupId, settings: SpreadingSettings, view: View) -> None:
        self._me = me
        self._settings = settings
        self._view = view
        self._standing_by: dict[Position, _StandBy] = {}
        self._seen: dict[tuple[Stream, GroupId], list[Position]] = {}
        self._seen_due: int | None = None

    def membership(self, view: View, now: int) -> Iterable[Send]:
        """Take a new deal of the pool."""
        self._view = view
        return ()

    def publish(self, event: Event, now: int) -> Iterator[Send]:
        """Publish this group's own event on its stream, and return what to send."""
        streams = self._view.current
        arc = streams.arc(self._me)
        if arc is None:  # a group that has not joined yet; whoever reads the log will find the event
            return
        yield from self._published(PoolEvent(event, streams.count, arc.publishes, arc.publishes), streams)

    def receive(self, sender: GroupId, message: Spread, first: bool, now: int) -> Iterator[Send]:
        """Take an event or a receipt, and return what to send.

        `first`: the event was not known here.
        """
        match message:
            case PoolEvent():
                self._tell_standbys(sender, message, now)
                if first:
                    yield from self._pass_on(message, now)
            case Seen(stream, positions):
                self._stand_down(stream, positions)
            case _:
                pass  # another mode's message; groups of one tenancy must have the same mode

    def learn(self, event: Event, now: int) -> Iterator[Send]:
        """Send nothing: a group that had to ask for an event missed its turn to pass it on."""
        yield from ()

    def knows(self, sender: GroupId, newest: Position, now: int) -> None:
        """Stop standing by for events that the sender's listeners have."""
        arc = self._view.current.arc(sender)
        if arc is not None and self._standing_by:
            self._stand_down(arc.listens, [p for p in self._standing_by if p <= newest])

    def tick(self, now: int) -> Iterator[Send]:
        """Do what is due: send receipts, and pass on events of groups that did not. Return what to send."""
        if self._seen_due is not None and self._seen_due <= now:
            self._seen_due = None
            pending, self._seen = self._seen, {}
            for (stream, group), positions in pending.items():
                yield Send((group,), Seen(stream, tuple(positions)))
        for position in [p for p, standing in self._standing_by.items() if standing.due <= now]:
            copy = self._standing_by.pop(position).copy
            yield from self._published(copy, self._view.of_deal(copy.deal))

    def deadline(self) -> int | None:
        """Return the time at which `tick` must be called next, or None."""
        dues = [standing.due for standing in self._standing_by.values()]
        if self._seen_due is not None:
            dues.append(self._seen_due)
        return min(dues, default=None)

    def _published(self, copy: PoolEvent, streams: Streams) -> Iterator[Send]:
        """Publish on a stream, to all listeners except those that have the event: its publisher, and this group."""
        to = _without(_without(streams.listeners(copy.stream), copy.event.publisher), self._me)
        if to:
            yield Send(to, copy, copy.stream)

    def _pass_on(self, copy: PoolEvent, now: int) -> Iterator[Send]:
        streams = self._view.of_deal(copy.deal)
        arc = streams.arc(self._me)
        if arc is None or arc.listens != copy.stream or not streams.passes_on(copy.root, arc):
            return
        onward = evolve(copy, stream=arc.publishes, hops=copy.hops + 1)
        order = ranked(copy.event.position, streams.on(arc), 1 + self._settings.standbys)
        if self._me not in order:
            return
        rank = order.index(self._me)
        if rank == 0:
            yield from self._published(onward, streams)
        elif len(self._standing_by) < STANDING_BY_MAX:
            self._standing_by[copy.event.position] = _StandBy(now + rank * self._settings.standby_ms, onward)

    def _tell_standbys(self, sender: GroupId, copy: PoolEvent, now: int) -> None:
        """Tell the standbys to pass this event on to this stream that it came, if this group is the one to tell them."""
        if not copy.hops:
            return
        streams = self._view.of_deal(copy.deal)
        from_arc = streams.arc(sender)
        if from_arc is None or from_arc.publishes != copy.stream:
            return
        position = copy.event.position
        # Tell those that publish where the standbys listen, as they are fewer, if there are any.
        backward = streams.on(Arc(copy.stream, from_arc.listens))
        tellers = _without(backward, copy.event.publisher) or _without(
            streams.listeners(copy.stream), copy.event.publisher
        )
        if self._me not in tellers or self._me not in ranked(position, tellers, TELLERS):
            return
        standbys = ranked(position, streams.on(from_arc), 1 + self._settings.standbys)
        for group in standbys:
            if group not in (sender, copy.event.publisher):
                self._seen.setdefault((copy.stream, group), []).append(position)
        if self._seen and self._seen_due is None:
            self._seen_due = now + self._settings.standby_ms // 4

    def _stand_down(self, stream: Stream, positions: Iterable[Position]) -> None:
        for position in positions:
            standing = self._standing_by.get(position)
            if standing is not None and standing.copy.stream == stream:
                del self._standing_by[position]


def _without(groups: tuple[GroupId, ...], publisher: GroupId) -> tuple[GroupId, ...]:
    """Return the groups to send an event to, without its publisher."""
    return tuple(group for group in groups if group != publisher) if publisher in groups else groups
