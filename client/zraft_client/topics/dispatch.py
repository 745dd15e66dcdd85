"""Schedule of a producer's messages: which ones go to which groups now, first or again.

Pure.

Times are seconds of any monotonic clock, handed in. A message is repeated until it is decided. It is repeated
at once to a group of which another leader was named, soon to one that was busy or asked to wait, at growing
intervals to all where nothing was heard, and not while destinations still say that they have it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Final

from attrs import frozen

from zraft_core.ids import GroupId
from zraft_core.topics.message import Message
from zraft_core.topics.messages import Answer, Reply, StartRequest
from zraft_core.topics.producer import Ended, ProducerCore
from zraft_core.topics.stamps import MessageId

REPEAT_S: Final = 1.0
REPEAT_S_MAX: Final = 8.0
SOON_S: Final = 0.02
SOON_S_MAX: Final = 1.0
"""The longest wait after BUSY and RETRY, which doubles."""
REFUSED_S: Final = 0.05
"""The wait after a server that does not lead and knows nobody who does."""
NEVER: Final = float("inf")

_UNDER_WAY: Final = frozenset((Answer.ACCEPTED, Answer.DELIVERED, Answer.FAILED, Answer.DECIDED))


class _State:
    """State of a message: when it is due, and how often it was asked to wait."""

    __slots__ = ("due", "heard", "interval", "message", "repeat", "sooner", "waits")

    def __init__(self, due: float, message: Message, interval: float) -> None:
        self.due = due
        self.interval = interval
        self.repeat = due
        """When the message is due to all its destinations."""
        self.sooner: set[GroupId] = set()
        """Destinations to which it is due before."""
        self.heard: float | None = None
        """When a destination last said that it has it, since it was last sent."""
        self.waits = 0
        self.message = message


@frozen
class Outgoing:
    """Requests to one group, in the order of their numbers."""

    group: GroupId
    requests: tuple[StartRequest, ...]


class Dispatch:
    """The undecided messages of one producer.

    One of which nothing is heard is sent again after `repeat_s`, then ever later.
    """

    def __init__(self, producer: ProducerCore, *, repeat_s: float = REPEAT_S) -> None:
        self.producer = producer
        self._repeat_s = repeat_s
        self.pending_bytes = 0
        self._states: dict[int, _State] = {}
        self._heap: list[tuple[float, int]] = []
        self._held: set[int] = set()
        """Messages that wait here, because others must be decided first that have no destination in common (D-17a)."""
        self._behind: dict[MessageId, list[int]] = {}
        """Numbers of messages that are to come behind another one."""

    def __len__(self) -> int:
        return len(self._states)

    def add(self, message: Message, now: float) -> None:
        """Add a message that the producer has just numbered."""
        self._states[message.mid.seq] = _State(now, message, self._repeat_s)
        self.pending_bytes += len(message.payload)
        if message.after is not None:
            self._behind.setdefault(message.after.mid, []).append(message.mid.seq)
        heapq.heappush(self._heap, (now, message.mid.seq))

    @property
    def next_due(self) -> float | None:
        """The time at which `take` has something next."""
        while self._heap:
            due, seq = self._heap[0]
            state = self._states.get(seq)
            if state is not None and state.due == due:
                return due
            heapq.heappop(self._heap)
        return None

    def take(self, now: float) -> list[Outgoing]:
        """Return what is to be sent now. It is due again after an interval, each longer than the one before."""
        due: set[int] = set()
        while (at := self.next_due) is not None and at <= now:
            seq = heapq.heappop(self._heap)[1]
            state = self._states[seq]
            if state.heard is None or now < state.repeat:
                due.add(seq)
            else:
                # It is under way: it is sent again only if nothing more is heard for as long.
                state.repeat = max(now, state.heard + state.interval)
                state.heard = None
                self._set_due(seq, state, state.repeat)
        found: dict[GroupId, list[StartRequest]] = {}
        for seq in sorted(due):
            state = self._states[seq]
            requests = self.producer.requests(seq)
            if not requests:
                state.due = NEVER
                if self.producer.waits(seq):
                    self._held.add(seq)
                continue
            some = [one for one in requests if one[0] in state.sooner] if now < state.repeat else []
            state.sooner.clear()
            if some:
                requests = some
            else:
                state.repeat, state.heard = now + state.interval, None
                state.interval = min(2 * state.interval, REPEAT_S_MAX)
            self._set_due(seq, state, state.repeat)
            for group, request in requests:
                found.setdefault(group, []).append(request)
        return [Outgoing(group, tuple(requests)) for group, requests in found.items()]

    def again(self, group: GroupId, now: float) -> None:
        """Send to a group again, as its present leader may not have heard what was sent before."""
        for seq, state in self._states.items():
            if now < state.due < NEVER and group in state.message.destinations:
                state.sooner.add(group)
                self._set_due(seq, state, now)

    def on_reply(self, reply: Reply, now: float) -> list[Ended]:
        """Take what a group says of a message; return what ended by it."""
        ended = self.producer.on_reply(reply)
        if ended:
            self.ended(ended, now)
            return ended
        state = self._states.get(reply.mid.seq)
        if state is None:
            return []
        if reply.answer in _UNDER_WAY:
            state.heard = now
        elif reply.answer is Answer.STAGED:
            state.heard = now
            if not self.producer.requests(reply.mid.seq):
                state.due = NEVER  # it is staged everywhere, and waits for its round
        elif reply.answer in (Answer.RETRY, Answer.BUSY):
            wait = min(SOON_S * (1 << min(state.waits, 8)), SOON_S_MAX)
            state.waits += 1
            state.sooner.add(reply.sender)
            self._set_due(reply.mid.seq, state, min(state.due, now + wait))
        elif reply.answer is Answer.STALE:
            state.repeat = min(state.repeat, now + SOON_S)
            self._set_due(reply.mid.seq, state, min(state.due, state.repeat))
        return []

    def ended(self, ended: Collection[Ended], now: float) -> None:
        """Note that the producer says that these are decided; what waits for one of them may go."""
        for one in ended:
            state = self._states.pop(one.mid.seq, None)
            self._held.discard(one.mid.seq)
            if state is not None:
                self.pending_bytes -= len(state.message.payload)
        for one in ended:
            for seq in self._behind.pop(one.mid, ()):
                state = self._states.get(seq)
                if state is not None and state.waits:  # it was asked to wait for that one
                    state.waits = 0
                    self._set_due(seq, state, now)
        for seq in [seq for seq in self._held if self.producer.requests(seq)]:
            self._held.discard(seq)
            self._set_due(seq, self._states[seq], now)

    def _set_due(self, seq: int, state: _State, due: float) -> None:
        state.due = due
        heapq.heappush(self._heap, (due, seq))
