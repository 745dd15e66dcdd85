"""Messages between groups: events, and messages that mend their loss.

All are frozen; `codec` makes bytes of them.
"""

from __future__ import annotations

from attrs import field, frozen

from onyxlog.ids import BEFORE_ALL, GroupId, Position

Stream = int
"""A stream's number. What is published on a stream reaches all groups that listen there."""


@frozen
class Event:
    """An entry that the log has accepted, as gossip carries it.

    `payload`: the entry's bytes as they stand in the log. `previous`: the digest chain's value before it; a
    group with another value at that position must not apply it. `origin`: the newest origin that the
    publisher knew. `publisher`: the group that brought it from the log: its writer, or the one that found
    that nobody had.
    """

    position: Position
    payload: bytes = field(repr=False)
    previous: bytes = field(repr=False)
    origin: Position = BEFORE_ALL
    publisher: GroupId = ""


@frozen
class PoolEvent:
    """An event on a stream of the pool that the log deals.

    `deal`: how many streams there were when it was published, which names the deal; `root`: the stream it was
    published on first, which determines who passes it on; `stream`: the stream of this copy; `hops`: how
    often it was passed on.
    """

    event: Event
    deal: int
    root: Stream
    stream: Stream
    hops: int = 0


@frozen
class Seen:
    """Message to standbys that events have arrived on a stream, so that they need not pass them on there."""

    stream: Stream
    positions: tuple[Position, ...]


@frozen
class RumourEvent:
    """An event as the thesis spreads it: `ttl` hops are left; `visited`: the streams it was on, if they are noted."""

    event: Event
    stream: Stream
    ttl: int
    visited: tuple[Stream, ...] = ()
    hops: int = 0


@frozen
class Known:
    """Feedback that the event at this position had been received before (counter with feedback, listing 6.1)."""

    position: Position


@frozen
class TreeEvent:
    """Plumtree's GOSSIP: `round` is the number of hops."""

    event: Event
    round: int = 0


@frozen
class IHave:
    """Plumtree's IHAVE: (position, round) of events that were received and not sent to this peer."""

    events: tuple[tuple[Position, int], ...]


@frozen
class Graft:
    """Plumtree's GRAFT: asks for this event, and for all later ones."""

    position: Position
    round: int = 0


@frozen
class Prune:
    """Plumtree's PRUNE: asks for announcements only, as events arrive another way."""


@frozen
class Join:
    """HyParView's JOIN, to a contact."""


@frozen
class ForwardJoin:
    """HyParView's FORWARDJOIN, on a random walk of `ttl` more steps."""

    joiner: GroupId
    ttl: int


@frozen
class Neighbour:
    """HyParView's NEIGHBOR: asks to be in the active view.

    A group without any neighbour (`urgent`) cannot be refused.
    """

    urgent: bool


@frozen
class NeighbourReply:
    """Message that tells whether the sender took the asker into its active view."""

    accepted: bool


@frozen
class Disconnect:
    """HyParView's DISCONNECT: both ends give up this link."""


@frozen
class Alive:
    """Message that keeps a link of the active view.

    Unlike TCP, UDP does not tell that the other end is gone.
    """


@frozen
class Shuffle:
    """HyParView's SHUFFLE: some of what `origin` knows, on a random walk of `ttl` more steps."""

    origin: GroupId
    groups: tuple[GroupId, ...]
    ttl: int


@frozen
class ShuffleReply:
    """Answer to a shuffle with some of the groups that the sender knows."""

    groups: tuple[GroupId, ...]


@frozen
class Heartbeat:
    """Message that tells how far a group is: it has applied up to `applied`, where its chain is `chain`.

    Positions that it only knows to exist are not told, so whoever hears of a position can get it from the
    sender. `age_ms`: how long ago the sender, or its informant, knew from the log itself that there is
    nothing newer. `answer`: this answers a heartbeat, and is not answered again.
    """

    applied: Position
    chain: bytes = field(repr=False)
    age_ms: int
    answer: bool = False


@frozen
class Want:
    """Request for events at positions first <= position < end.

    The answer has as many as the receiver has and a few datagrams hold.
    """

    first: Position
    end: Position


@frozen
class Found:
    """Answer with the events that exist; `end`: up to where the sender was asked to look."""

    events: tuple[Event, ...]
    end: Position


Spread = (
    PoolEvent
    | Seen
    | RumourEvent
    | Known
    | TreeEvent
    | IHave
    | Graft
    | Prune
    | Join
    | ForwardJoin
    | Neighbour
    | NeighbourReply
    | Disconnect
    | Alive
    | Shuffle
    | ShuffleReply
)
"""Messages that belong to one way of spreading."""
Carrier = PoolEvent | RumourEvent | TreeEvent
"""Messages that carry an event."""
Mending = Heartbeat | Want | Found
"""Messages that are the same however events spread."""
Message = Spread | Mending


@frozen
class Send:
    """A message that leaves.

    With `stream` it is published there, to all listeners except those that need not have it.
    """

    to: tuple[GroupId, ...]
    message: Message
    stream: Stream | None = None
