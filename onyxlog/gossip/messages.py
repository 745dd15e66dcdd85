"""What groups send each other: events, and what mends their loss. All frozen; bytes are made of them in `codec`."""

from __future__ import annotations

from attrs import field, frozen

from onyxlog.ids import BEFORE_ALL, GroupId, Position

Stream = int
"""What is published on a stream reaches all that listen there."""


@frozen
class Event:
    """An entry that the log has accepted, as gossip carries it.

    `payload`: the entry's bytes as they stand in the log. `previous`: the digest chain's value before it: who has
    another one at that position must not apply it. `origin`: the newest origin that who published it knew.
    `publisher`: who brought it from the log: its writer, or who found that nobody had.
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
    published on first, from which follows who passes it on; `stream`: the one that this copy is on; `hops`: how often
    it was passed on.
    """

    event: Event
    deal: int
    root: Stream
    stream: Stream
    hops: int = 0


@frozen
class Seen:
    """Events have arrived on a stream: who stands by to pass them on there need not."""

    stream: Stream
    positions: tuple[Position, ...]


@frozen
class RumourEvent:
    """An event as the thesis spreads it: `ttl` hops are left; `visited`: streams it was on, if they are noted."""

    event: Event
    stream: Stream
    ttl: int
    visited: tuple[Stream, ...] = ()
    hops: int = 0


@frozen
class Known:
    """Feedback: the event at this position had been received before (counter with feedback, listing 6.1)."""

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
    """Plumtree's GRAFT: send me this event, and what comes from now on."""

    position: Position
    round: int = 0


@frozen
class Prune:
    """Plumtree's PRUNE: I get events otherwise; announce them only."""


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
    """HyParView's NEIGHBOR: take me into the active view; one who has nobody (`urgent`) cannot be refused."""

    urgent: bool


@frozen
class NeighbourReply:
    accepted: bool


@frozen
class Disconnect:
    """HyParView's DISCONNECT: this link is given up at both ends."""


@frozen
class Alive:
    """A link of the active view is still wanted. UDP does not tell that the other end is gone, as TCP does."""


@frozen
class Shuffle:
    """HyParView's SHUFFLE: some of what `origin` knows, on a random walk of `ttl` more steps."""

    origin: GroupId
    groups: tuple[GroupId, ...]
    ttl: int


@frozen
class ShuffleReply:
    groups: tuple[GroupId, ...]


@frozen
class Heartbeat:
    """How far a group is: it has applied up to `applied`, where its chain is `chain`.

    What it only knows to exist is not told: who hears of a position can have it from who told. `age_ms`: how long ago
    it or who told it knew from the log itself that there is nothing newer. `answer`: it answers a heartbeat, and is
    not answered again.
    """

    applied: Position
    chain: bytes = field(repr=False)
    age_ms: int
    answer: bool = False


@frozen
class Want:
    """Send me the events at positions first <= position < end, as many as you have and a few datagrams hold."""

    first: Position
    end: Position


@frozen
class Found:
    """What of it there is; `end`: up to where the sender was asked to look."""

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
"""What belongs to one way of spreading or another."""
Carrier = PoolEvent | RumourEvent | TreeEvent
"""What has an event in it."""
Mending = Heartbeat | Want | Found
"""What is the same however events spread."""
Message = Spread | Mending


@frozen
class Send:
    """A message that leaves. `stream`: it is published there, to all of its listeners but those that need it not."""

    to: tuple[GroupId, ...]
    message: Message
    stream: Stream | None = None
