"""One messenger, with a replica whose chain is simple, and a clock that the test moves."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from onyxlog.gossip.messages import Event, Message, PoolEvent, Send
from onyxlog.gossip.messenger import Messenger
from onyxlog.gossip.modes import spreading_for
from onyxlog.gossip.outputs import Output
from onyxlog.gossip.settings import GossipSettings
from onyxlog.gossip.simulation import digest
from onyxlog.gossip.streams import View, view_of
from onyxlog.ids import BEFORE_ALL, GroupId, Position
from onyxlog.replica.pool import STREAMS_MIN, Pool, joined

T = TypeVar("T")


def pool_of(groups: int) -> Pool:
    pool = Pool(STREAMS_MIN, {})
    for number in range(groups):
        pool = joined(pool, f"g{number:03d}")
    return pool


def fresh(pool: Pool) -> View:
    """Of a group that begins with this pool."""
    return view_of(pool.streams, pool.arcs, None)


def payload(position: Position) -> bytes:
    return b"entry %d" % position


def chain(position: Position) -> bytes:
    """Of the log in which every entry is `payload(position)`."""
    value = bytes(16)
    for before in range(position + 1):
        value = digest(value, payload(before))
    return value


def event(position: Position, publisher: GroupId = "g001") -> Event:
    return Event(position, payload(position), chain(position - 1), BEFORE_ALL, publisher)


def on_stream(what: Event, view: View, sender: GroupId = "g001") -> PoolEvent:
    """As its publisher sends it."""
    arc = view.current.arc(sender)
    assert arc is not None
    return PoolEvent(what, view.current.count, arc.publishes, arc.publishes)


class Harness:
    """Group `me` of `groups`; nothing is applied yet."""

    def __init__(
        self,
        me: GroupId = "g000",
        groups: int = 8,
        settings: GossipSettings | None = None,
        seed: int = 1,
    ) -> None:
        self.settings = settings or GossipSettings(sentinels=0)
        self.view = fresh(pool_of(groups))
        self.now = 0
        self.applied: list[Position] = []
        self.payloads: list[bytes] = []
        random = Random(seed)
        self.messenger = Messenger(
            me,
            self.settings,
            spreading_for(me, self.settings, self.view, random),
            random,
            applied=BEFORE_ALL,
            chain=bytes(16),
            view=self.view,
            now=0,
        )
        self.outputs: list[Output] = []
        self.play()

    def play(self) -> None:
        while ready := self.messenger.ready(self.now):
            self.applied.append(ready.event.position)
            self.payloads.append(ready.event.payload)
            self.messenger.applied(digest(self.messenger.chain, ready.event.payload), None, self.now)
        self.outputs += self.messenger.outputs()

    def receive(self, message: Message, sender: GroupId = "g001") -> None:
        self.messenger.receive(sender, message, self.now)
        self.play()

    def hear(self, *positions: Position, sender: GroupId = "g001") -> None:
        for position in positions:
            self.receive(on_stream(event(position, sender), self.view, sender), sender)

    def wrote(self, position: Position) -> None:
        self.messenger.wrote(position, payload(position), self.now)
        self.play()

    def answer(self, *positions: Position) -> None:
        self.messenger.log_answered([(position, payload(position)) for position in positions], self.now)
        self.play()

    def end(self, end: Position) -> None:
        """The log answers a look."""
        self.messenger.end_found(end, self.now)
        self.play()

    def wait(self, ms: int) -> None:
        """Time passes, and what is due is done when it is."""
        end = self.now + ms
        while (due := self.messenger.deadline()) <= end:
            self.now = max(self.now + 1, due)
            self.messenger.tick(self.now)
            self.play()
        self.now = max(self.now, end)

    def wait_for(self, kind: type[T], ms: int = 60_000) -> T:
        """The first output of this kind, or the first sent message of it."""
        end = self.now + ms
        while self.now < end:
            for output in self.taken():
                if isinstance(output, kind):
                    return output
                if isinstance(output, Send) and isinstance(output.message, kind):
                    return output.message
            self.wait(1)
        raise AssertionError(f"no {kind.__name__} in {ms} ms")

    def taken(self) -> list[Output]:
        taken, self.outputs = self.outputs, []
        return taken

    def published(self) -> list[Position]:
        """The positions of events that left since the last look."""
        return [
            output.message.event.position
            for output in self.taken()
            if isinstance(output, Send) and isinstance(output.message, PoolEvent)
        ]
