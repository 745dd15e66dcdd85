"""Interface of all ways of spreading events to the messenger, and the settings of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from attrs import frozen

from onyxlog.errors import OnyxlogError
from onyxlog.gossip.messages import Event, Send, Spread
from onyxlog.gossip.streams import View
from onyxlog.ids import GroupId, Position


class Mode(StrEnum):
    """Ways of spreading events; the whole tenancy has the same one."""

    POOL = "pool"
    """Streams that the log deals; one group passes an event on over each arc. The default."""
    PLUMTREE = "plumtree"
    """A broadcast tree over HyParView's links."""
    BLIND_COUNTER = "blind-counter"
    """The thesis: every reception is published again until the event's hops are used up (listing 6.4)."""
    VISITED_STREAMS = "visited-streams"
    """The thesis' proposal: the same, without streams that the event has been on."""
    FEEDBACK = "feedback"
    """The thesis' counter with feedback: to random peers, until enough of them knew (listing 6.1)."""


@frozen
class SpreadingSettings:
    """Settings of the ways of spreading. Times are in ms.

    `standby_ms`: how long the second of those who can pass an event on waits for the first, and the third for
    the second; `standbys`: how many of them wait. `graft_ms`: how long an announced event may stay out before
    it is asked for, and `graft_again_ms` before the next group that announced it is asked. `ttl`,
    `feedback_max`, `round_ms`: the thesis' modes.

    `active`, `passive`: sizes of HyParView's views; `active_walk`, `passive_walk`: the lengths of its random
    walks; `shuffle_ms`: between shuffles; `alive_ms`: between signs of life on a link, three of which may be
    missing.
    """

    standby_ms: int = 100
    standbys: int = 2
    ttl: int = 3
    feedback_max: int = 2
    round_ms: int = 50
    graft_ms: int = 80
    graft_again_ms: int = 40
    active: int = 5
    passive: int = 30
    active_walk: int = 6
    passive_walk: int = 3
    shuffle_ms: int = 5000
    alive_ms: int = 1000

    def __attrs_post_init__(self) -> None:
        if (
            min(
                self.standby_ms,
                self.graft_ms,
                self.graft_again_ms,
                self.round_ms,
                self.shuffle_ms,
                self.alive_ms,
            )
            <= 0
        ):
            raise OnyxlogError("gossip.spreading: times are in ms, and above 0")
        if self.ttl < 1 or self.active < 1 or self.passive < self.active or self.standbys < 0:
            raise OnyxlogError(
                f"gossip.spreading: expected ttl >= 1, active >= 1, passive >= active, standbys >= 0; found {self}"
            )


class Spreading(Protocol):
    """One group's state of spreading. Times are in ms of any clock that does not go back; `now` never decreases."""

    def membership(self, view: View, now: int) -> Iterable[Send]:
        """Note that groups came, went, or got other streams."""
        ...

    def publish(self, event: Event, now: int) -> Iterable[Send]:
        """Spread an event that nobody has spread."""
        ...

    def receive(self, sender: GroupId, message: Spread, first: bool, now: int) -> Iterable[Send]:
        """Take a message of this way of spreading. `first`: the event in it was not known here."""
        ...

    def learn(self, event: Event, now: int) -> Iterable[Send]:
        """Note an event that came otherwise: a peer that was asked gave it."""
        ...

    def knows(self, sender: GroupId, newest: Position, now: int) -> None:
        """Note that a group has everything up to a position."""
        ...

    def tick(self, now: int) -> Iterable[Send]:
        """Do what is due, and return what to send."""

    def deadline(self) -> int | None:
        """Return when `tick` has something to do next."""
        ...
