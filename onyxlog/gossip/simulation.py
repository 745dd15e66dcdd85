"""A simulated fleet of messengers around one log, from a seed.

It has loss, delay, doubles, deaths, joins, partitions and collection. The log, the network and the replica
are simulated (the replica knows joins and leaves, as they deal the streams); the messengers are the real
ones. The simulation asserts at once what must never happen: an entry that is applied twice, out of order or
with other bytes than the log has.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import Final

import msgpack
from attrs import define, field, frozen

from onyxlog.gossip.messages import Carrier, Message, Send, TreeEvent
from onyxlog.gossip.messenger import Messenger
from onyxlog.gossip.modes import spreading_for
from onyxlog.gossip.outputs import BeginAgain, LookAtEnd, Output, ReadLog, Tail
from onyxlog.gossip.settings import GossipSettings
from onyxlog.gossip.streams import View, view_of
from onyxlog.ids import BEFORE_ALL, GroupId, Position
from onyxlog.replica.pool import STREAMS_MIN, Pool, departed, joined, settled

NOTE: Final = "note"
JOIN: Final = "join"
LEAVE: Final = "leave"
COLLECT: Final = "collect"


@frozen
class Conditions:
    """Conditions of the simulated network and log.

    Times are in ms; `loss` and `doubled` are probabilities for each datagram.
    """

    loss: float = 0.0
    doubled: float = 0.0
    delay_ms: tuple[int, int] = (1, 10)
    log_ms: tuple[int, int] = (2, 20)
    expiry_ms: int = 2_000
    """The time from a death to the log's entry of it."""
    patience_ms: int = 10_000
    """The time that a group which the log has lost waits for an answer."""


@frozen
class State:
    """A replica as this simulation knows it."""

    chain: bytes
    pool: Pool
    view: View = field(eq=False, repr=False)


@define
class Node:
    """A group: its messenger and what it applied."""

    name: GroupId
    messenger: Messenger
    state: State
    alive: bool = True
    paused: bool = False
    lost: bool = False
    tailing: bool = False
    tailed: Position = BEFORE_ALL
    """The log has pushed its entries up to here."""
    wake: int = 0
    held: list[tuple[GroupId, Message]] = field(factory=list)
    """The messages that arrived while the group was paused, as a socket's buffer keeps them."""


@define
class Track:
    """History of one entry.

    `spread`: first receptions by gossip alone, with hops; `receptions`: all of them.
    """

    position: Position
    at: int
    members: frozenset[GroupId]
    publishers: set[GroupId] = field(factory=set)
    """The entry's writer, and the groups that published it in the writer's place."""
    spread: dict[GroupId, int] = field(factory=dict)
    receptions: dict[GroupId, int] = field(factory=dict)
    applied: dict[GroupId, int] = field(factory=dict)
    sources: dict[GroupId, str] = field(factory=dict)
    published: int = 0


class Simulation:
    """`size` groups that have joined, all of which have applied the log so far."""

    def __init__(self, size: int, settings: GossipSettings, conditions: Conditions, seed: int) -> None:
        self.settings = settings
        self.conditions = conditions
        self.random = Random(seed)
        self.now = 0
        self.log: list[bytes] = []
        self.states: list[State] = []
        self.origin: Position = BEFORE_ALL
        self.nodes: dict[GroupId, Node] = {}
        self.tracks: dict[Position, Track] = {}
        self.datagrams: dict[str, int] = {}
        self.connected: Callable[[GroupId, GroupId], bool] = lambda *_: True
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._sequence = 0
        self._played: dict[tuple[bytes, bytes], State] = {}
        self._names = 0
        pool = Pool(STREAMS_MIN, {})
        self._start = State(bytes(16), pool, view_of(pool.streams, pool.arcs, None))
        names = [self._name() for _ in range(size)]
        chain = self._start.chain
        # all groups have the same view at the end, as nobody plays these entries
        for position, name in enumerate(names):
            payload = msgpack.packb([JOIN, name, position])
            self.log.append(payload)
            chain, pool = digest(chain, payload), joined(pool, name)
            self.states.append(State(chain, pool, self._start.view))
        if names:
            self.states[-1] = State(chain, pool, view_of(pool.streams, pool.arcs, None))
        self.origin = len(self.log) - 1
        for name in names:
            self._add(name, self.origin)

    # -- what happens from outside

    def append(self, kind: str, about: str, writer: GroupId | None = None) -> Position:
        """Append an entry, by a group or by nobody who gossips (a client, a session's end)."""
        position = len(self.log)
        payload = msgpack.packb([kind, about, position])
        before = self.states[-1] if self.states else self._start
        self.log.append(payload)
        self.states.append(self._play(before, payload))
        members = frozenset(n.name for n in self.nodes.values() if n.alive and n.name in before.pool.arcs)
        self.tracks[position] = Track(position, self.now, members, {writer} if writer else set())
        if writer is not None:
            author = self.nodes[writer]
            self._later(self._log_delay(), lambda: self._wrote(author, position, payload))
        for node in self.nodes.values():
            if node.tailing and node.alive:
                self._later(self._log_delay(), lambda node=node: self._pushed(node))  # type: ignore[misc]
        return position

    def join(self) -> GroupId:
        """Let a group join that begins at the log's end."""
        name = self._name()
        self._add(name, len(self.log) - 1)
        self.append(JOIN, name, name)
        return name

    def die(self, name: GroupId) -> None:
        """Stop a group; its session's will follows."""
        self.nodes[name].alive = False
        self.at(self.now + self.conditions.expiry_ms, lambda: self.append(LEAVE, name))

    def collect(self, origin: Position, writer: GroupId | None = None) -> None:
        """Collect garbage: append an entry, after which the log has nothing up to `origin`."""
        assert self.origin <= origin < len(self.log)
        self.append(COLLECT, "", writer)
        self.origin = origin

    def lose(self, name: GroupId) -> None:
        """Cut this group off from the log without its knowledge. Other groups still reach it."""
        self.nodes[name].lost = True

    def pause(self, name: GroupId) -> None:
        """Stop a group until it is resumed; it hears nothing meanwhile."""
        self.nodes[name].paused = True

    def resume(self, name: GroupId, buffer: int = 256) -> None:
        """Let the group continue with the first datagrams that its socket kept."""
        node = self.nodes[name]
        node.paused = False
        held, node.held = node.held[:buffer], []
        for sender, message in held:
            self._receive(node, sender, message)
        self._wake(node)

    def at(self, time: int, what: Callable[[], object]) -> None:
        """Do something at this time."""
        self._push(time, what)

    def run(self, until: int) -> None:
        """Run everything that happens up to this time."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, what = heapq.heappop(self._queue)
            what()
        self.now = until

    def living(self) -> list[Node]:
        """Return the groups that have not died."""
        return [node for node in self.nodes.values() if node.alive]

    def behind(self) -> list[GroupId]:
        """Return live groups that have not applied all of the log, with the log's own chain."""
        return [
            node.name
            for node in self.living()
            if (node.messenger.position, node.messenger.chain) != (len(self.log) - 1, self.states[-1].chain)
        ]

    def settle(self, for_ms: int = 120_000) -> bool:
        """Run until nobody is behind; return whether that happened."""
        end = self.now + for_ms
        while self.behind() and self.now < end:
            self.run(self.now + 250)
        return not self.behind()

    # -- inside: the groups

    def _name(self) -> GroupId:
        self._names += 1
        return f"group-{self._names:05d}"

    def _add(self, name: GroupId, position: Position) -> None:
        state = self.states[position] if position >= 0 else self._start
        random = Random(self.random.getrandbits(64))
        messenger = Messenger(
            name,
            self.settings,
            spreading_for(name, self.settings, state.view, random, self.now),
            random,
            applied=position,
            chain=state.chain,
            view=state.view,
            now=self.now,
        )
        node = self.nodes[name] = Node(name, messenger, state)
        self._after(node)

    def _wrote(self, node: Node, position: Position, payload: bytes) -> None:
        if node.alive:
            node.messenger.wrote(position, payload, self.now)
            self._after(node)

    def _receive(self, node: Node, sender: GroupId, message: Message) -> None:
        if not node.alive:
            return
        if node.paused:
            node.held.append((sender, message))
            return
        if isinstance(message, Carrier):
            self._count(node, message)
        node.messenger.receive(sender, message, self.now)
        self._after(node)

    def _count(self, node: Node, message: Carrier) -> None:
        track = self.tracks.get(message.event.position)
        if track is not None:
            hops = message.round if isinstance(message, TreeEvent) else message.hops
            track.receptions[node.name] = track.receptions.get(node.name, 0) + 1
            track.spread.setdefault(node.name, hops + 1)

    def _after(self, node: Node) -> None:
        """Apply what can be applied, do what is asked, and wake the group when it is due."""
        messenger = node.messenger
        while ready := messenger.ready(self.now):
            position, payload = ready.event.position, ready.event.payload
            assert position == messenger.position + 1, "out of order, or twice"
            assert payload == self.log[position], "not what the log has"
            before = node.state.view
            node.state = self._play(node.state, payload)
            view = node.state.view
            messenger.applied(node.state.chain, None if view is before else view, self.now)
            track = self.tracks.get(position)
            if track is not None:
                assert node.name not in track.applied, "applied twice"
                track.applied[node.name] = self.now
                track.sources[node.name] = ready.source.value
        for output in messenger.outputs():
            self._do(node, output)
        deadline = messenger.deadline()
        if deadline < node.wake or node.wake <= self.now:
            node.wake = max(deadline, self.now + 1)
            self._push(node.wake, lambda: self._wake(node))

    def _wake(self, node: Node) -> None:
        if node.alive and not node.paused and self.now >= node.wake:
            node.messenger.tick(self.now)
            self._after(node)

    def _do(self, node: Node, output: Output) -> None:
        match output:
            case Send():
                self._transmit(node.name, output)
            case ReadLog(first=first, end=end):
                self._later(self._log_delay(), lambda: self._answer(node, first, end))
            case LookAtEnd():
                self._later(self._log_delay(), lambda: self._show_end(node))
            case Tail(on):
                node.tailing = on
                if on:
                    node.tailed = node.messenger.position
                    self._later(self._log_delay(), lambda: self._pushed(node))
            case BeginAgain():
                self._later(self._log_delay(), lambda: self._begin(node))

    def _begin(self, node: Node) -> None:
        if node.alive:
            node.state = self.states[self.origin]
            for position in range(self.origin + 1, len(self.log)):
                self.tracks[position].applied.pop(node.name, None)
            node.messenger.begin(self.origin, node.state.chain, node.state.view, self.now)
            self._after(node)

    def _answer(self, node: Node, first: Position, end: Position) -> None:
        if not node.alive:
            return
        if node.lost:
            self._later(
                self.conditions.patience_ms,
                lambda: self._fail(node, lambda: node.messenger.log_failed(self.now)),
            )
            return
        if first <= self.origin:
            self._begin(node)
            return
        node.messenger.log_answered(self._entries(first, end), self.now)
        self._after(node)

    def _show_end(self, node: Node) -> None:
        if node.lost:
            self._later(self.conditions.patience_ms, lambda: self._fail(node, node.messenger.look_failed))
        elif node.alive:
            node.messenger.end_found(len(self.log), self.now)
            self._after(node)

    def _fail(self, node: Node, fails: Callable[[], None]) -> None:
        """Fail the read, as the group has waited long enough for the log's answer."""
        if node.alive:
            fails()
            self._after(node)

    def _pushed(self, node: Node) -> None:
        if node.alive and node.tailing and not node.lost:
            entries = self._entries(max(node.tailed, self.origin) + 1, len(self.log))
            node.tailed = len(self.log) - 1
            node.messenger.tailed(entries, self.now)
            self._after(node)

    def _entries(self, first: Position, end: Position) -> Sequence[tuple[Position, bytes]]:
        return [(position, self.log[position]) for position in range(first, min(end, len(self.log)))]

    # -- inside: the world

    def _play(self, state: State, payload: bytes) -> State:
        key = (state.chain, payload)
        after = self._played.get(key)
        if after is None:
            kind, about, _ = msgpack.unpackb(payload)
            pool = state.pool
            if kind == JOIN:
                pool = joined(pool, about)
            elif kind == LEAVE:
                pool = departed(pool, about)
            elif kind == COLLECT:
                pool = Pool(pool.streams, {**pool.arcs, **settled(pool.arcs)})
            view = state.view if pool is state.pool else view_of(pool.streams, pool.arcs, state.view)
            after = self._played[key] = State(digest(state.chain, payload), pool, view)
        return after

    def _transmit(self, sender: GroupId, send: Send) -> None:
        message = send.message
        kind = type(message).__name__
        self.datagrams[kind] = self.datagrams.get(kind, 0) + len(send.to)
        if isinstance(message, Carrier):
            track = self.tracks.get(message.event.position)
            if track is not None:
                track.published += 1
                if message.event.publisher == sender:
                    track.publishers.add(sender)
        for receiver in send.to:
            self._datagram(sender, receiver, message)

    def _datagram(self, sender: GroupId, receiver: GroupId, message: Message) -> None:
        node = self.nodes.get(receiver)
        if node is None or not self.connected(sender, receiver):
            return
        low, high = self.conditions.delay_ms
        copies = 1 + (self.random.random() < self.conditions.doubled) if self.conditions.doubled else 1
        for _ in range(copies):
            if self.conditions.loss and self.random.random() < self.conditions.loss:
                continue
            self._later(
                self.random.randint(low, high),
                lambda node=node: self._receive(node, sender, message),  # type: ignore[misc]
            )

    def _log_delay(self) -> int:
        return self.random.randint(*self.conditions.log_ms)

    def _later(self, delay: int, what: Callable[[], object]) -> None:
        self._push(self.now + delay, what)

    def _push(self, time: int, what: Callable[[], object]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (time, self._sequence, what))


def digest(chain: bytes, payload: bytes) -> bytes:
    """Return the next value of a digest chain."""
    return blake2b(chain + payload, digest_size=16).digest()
