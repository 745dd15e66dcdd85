"""The core of gossip in one group: messages, answers of the log and time in; messages, reads and entries to apply out.

It owns how entries get here and in which order they may be applied. How events spread is a `Spreading`. It knows no
clock, socket or disk, and draws from the generator that is handed in. What is to be applied is pulled, one entry at a
time, as only the replica can tell the chain after it:

    while ready := messenger.ready(now):
        chain, view = play(ready.event)
        messenger.applied(chain, view, now)
    for output in messenger.outputs(): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from attrs import evolve

from onyxlog.gossip.buffer import Mismatch, Offered, OrderingBuffer, Ready, Source
from onyxlog.gossip.messages import (
    Carrier,
    Event,
    Found,
    Heartbeat,
    Message,
    PoolEvent,
    RumourEvent,
    Send,
    TreeEvent,
    Want,
)
from onyxlog.gossip.outputs import BeginAgain, GossipCounters, LookAtEnd, Output, ReadLog, Reason, Tail
from onyxlog.gossip.pacing import Gap, Idle, Pulse, Watch
from onyxlog.gossip.repair import answers, fits_datagram
from onyxlog.gossip.settings import GossipSettings
from onyxlog.gossip.spreading import Spreading
from onyxlog.gossip.streams import View, ranked
from onyxlog.ids import BEFORE_ALL, GroupId, Position


class Messenger:
    """The messenger of one group. `now`: ms of a clock that does not go back, the same for all calls."""

    def __init__(
        self,
        me: GroupId,
        settings: GossipSettings,
        spreading: Spreading,
        random: Random,
        *,
        applied: Position,
        chain: bytes,
        view: View,
        now: int,
    ) -> None:
        self.me = me
        self.counters = GossipCounters()
        self._settings = settings
        self._spreading = spreading
        self._random = random
        self._buffer = OrderingBuffer(
            applied,
            chain,
            window=settings.window,
            history=settings.history,
            history_bytes=settings.history_bytes,
        )
        self._view = view
        self._others: tuple[GroupId, ...] = ()
        self._origin = BEFORE_ALL
        self._outputs: list[Output] = []
        self.on_arrived: Callable[[GroupId, Carrier, bool], None] | None = None
        """Called with every event that arrives by spreading, and whether it is the first of its position."""
        self._heard: set[Position] = set()
        """Positions that arrived by spreading, or were published from here, as far back as events are kept."""
        self._to_publish: dict[Position, int] = {}
        self._reading: ReadLog | None = None
        self._informant: GroupId | None = None
        self._against: list[GroupId] = []
        self._joined = False
        self._sentinel = False
        self._tailing = False
        self._gap = Gap(settings, random)
        self._idle = Idle(settings, random, now)
        self._pulse = Pulse(settings, random, now)
        self._watch = Watch(settings, now)
        self._see(view, now)

    @property
    def position(self) -> Position:
        """The position of the entry that was applied last."""
        return self._buffer.applied

    @property
    def chain(self) -> bytes:
        """The digest chain after the entry that was applied last."""
        return self._buffer.chain

    # -- what arrives

    def wrote(self, position: Position, payload: bytes, now: int) -> None:
        """Note that the log accepted an entry of this group.

        It is published once all entries before it are applied here.
        """
        newest = position > self._buffer.newest
        if self._buffer.offer(self._event(position, payload), Source.OWN) is not Offered.BEYOND:
            self._to_publish[position] = now
        if newest:
            self._idle.looked(now, found=True)
        self._after_news(now)

    def receive(self, sender: GroupId, message: Message, now: int) -> None:
        """Take a message of another group."""
        match message:
            case PoolEvent(event) | RumourEvent(event) | TreeEvent(event):
                first = self._arrived(event, now)
                if self.on_arrived is not None:
                    self.on_arrived(sender, message, first)
                self._send(self._spreading.receive(sender, message, first, now))
            case Heartbeat():
                self._heartbeat(sender, message, now)
            case Want(first=begin, end=end):
                self._give(sender, begin, end)
            case Found(events=events, end=end):
                self._found(events, now)
            case _:
                self._send(self._spreading.receive(sender, message, False, now))
        self._after_news(now)

    def log_answered(self, entries: Sequence[tuple[Position, bytes]], now: int) -> None:
        """Take the entries of the last read that was asked for: positions without gaps from its first on."""
        read, self._reading = self._reading, None
        if read is None:
            return
        known = self._buffer.newest
        own = max(self._to_publish, default=BEFORE_ALL)
        for position, payload in entries:
            self._buffer.offer(self._event(position, payload), Source.LOG)
            # Nobody told of it, or only this group, whose own entry waits for it. So nobody has published it.
            if self._joined and (position > known or position < own):
                self._to_publish.setdefault(position, now)
        self.counters.read_entries += len(entries)
        if len(entries) < read.end - read.first:  # there are no more entries: this is the log's end
            self._idle.looked(now, found=bool(entries))
        self._gap.forget()
        self._after_news(now)

    def log_failed(self, now: int) -> None:
        """Note that the read failed; it is tried again after a while."""
        self._reading = None
        self._gap.forget()
        self._idle.back_off(now)
        self._after_news(now)

    def end_found(self, end: Position, now: int) -> None:
        """Note that the log's next entry gets the position `end`. If there is nothing new, all groups are told."""
        asked = self._watch.answered()
        # An entry that exists and is not here is on its way from the log. Otherwise others find it, as nobody
        # tells them not to look.
        if asked is not None and end - 1 == self._buffer.newest == self._buffer.applied:
            self._idle.looked(asked, found=False)
            self.greet(now)

    def look_failed(self) -> None:
        """Note that the log did not answer; nobody is told anything."""
        self._watch.answered()

    def tailed(self, entries: Sequence[tuple[Position, bytes]], now: int) -> None:
        """Take entries that the log pushed. An empty sequence says that the log will push what comes."""
        self._tailing = True
        for position, payload in entries:
            self.counters.tailed_entries += 1
            offered = self._buffer.offer(self._event(position, payload), Source.TAIL)
            if offered is Offered.NEW and self._joined and position not in self._heard:
                self._to_publish.setdefault(position, now + self._settings.sentinel_wait_ms)
        if entries:
            self._idle.looked(now, found=True)
        self._after_news(now)

    def tail_lost(self, now: int) -> None:
        """Note that the log pushes no more for now."""
        self._tailing = False
        self._idle.back_off(now)

    def begin(self, applied: Position, chain: bytes, view: View, now: int) -> None:
        """Continue from the log's origin, which replaced the replica.

        That follows a garbage collection, or a request of this group.
        """
        self.counters.begun_again += 1
        self._reading = None
        self._origin = applied
        self._against.clear()
        self._gap.forget()
        self._buffer.begin(applied, chain)
        self._to_publish = {p: due for p, due in self._to_publish.items() if p > applied}
        self._see(view, now)
        self._after_news(now)

    # -- what is applied

    def ready(self, now: int) -> Ready | None:
        """Return the entry to apply next, after which `applied` must be called at once; None if it is not here."""
        found = self._buffer.ready()
        if isinstance(found, Mismatch):
            self._contradicted(found.publisher)
            self._read(self._buffer.applied + 1, self._buffer.applied + 2, Reason.MISMATCH)
            return None
        if found is not None and found.source is Source.GOSSIP:
            self._against.clear()
        return found

    def applied(self, chain: bytes, view: View | None, now: int) -> None:
        """Note that the ready entry is applied, with this chain after it. `view` None: the same groups as before."""
        ready = self._buffer.ready()
        assert isinstance(ready, Ready), "applied without an entry that was ready"
        event = self._buffer.advance(chain)
        self.counters.applied[ready.source.value] += 1
        self._heard.discard(event.position - self._settings.history)
        if view is not None:
            self._see(view, now)
        self._publish_due(now)
        self._after_news(now)

    def refuse(self) -> None:
        """Note that the ready entry, which came from a group, cannot be read. The log is asked for it."""
        self.counters.mismatches += 1
        self._buffer.distrust()
        self._read(self._buffer.applied + 1, self._buffer.applied + 2, Reason.MISMATCH)

    def greet(self, now: int) -> None:
        """Tell everybody that this group exists, and how far it is."""
        if self._others:
            self._outputs.append(Send(self._others, self._beat(now)))

    # -- time

    def tick(self, now: int) -> None:
        """Do what is due at this time."""
        self._send(self._spreading.tick(now))
        self._publish_due(now)
        if self._pulse.due(now):
            self._pulse.beaten(now)
            if self._others:
                self._outputs.append(Send((self._random.choice(self._others),), self._beat(now)))
        if self._watch.due(now):
            self._watch.beaten(now)
            # That nothing was pushed shows nothing: the log may have lost this group.
            if self._tailing and self._joined and self._others and self._watch.asks(now):
                self.counters.looks += 1
                self._outputs.append(LookAtEnd())
        if self._gap.due(now):
            self._mend(now)
        elif self._idle.due(now) and self._reading is None and not self._tailing:
            self._idle.polling(now)
            first = self._buffer.applied + 1
            self._read(first, first + self._settings.read_entries_max, Reason.POLL)

    def deadline(self) -> int:
        """Return when to call `tick` next, at the latest."""
        dues = [self._pulse.at, *self._to_publish_dues()]
        spreading = self._spreading.deadline()
        if spreading is not None:
            dues.append(spreading)
        if self._gap.at is not None:
            dues.append(self._gap.at)
        if self._reading is None and not self._tailing:
            dues.append(self._idle.at)
        if self._tailing:
            dues.append(self._watch.at)
        return min(dues)

    def outputs(self) -> list[Output]:
        """Return what is to be done, in order; each output is returned once."""
        outputs, self._outputs = self._outputs, []
        return outputs

    # -- inside

    def _event(self, position: Position, payload: bytes) -> Event:
        return Event(position, payload, b"", self._origin, self.me)

    def _send(self, sends: Iterable[Send]) -> None:
        self._outputs.extend(sends)

    def _see(self, view: View, now: int) -> None:
        self._view = view
        groups = view.current.groups()
        self._others = tuple(group for group in groups if group != self.me)
        # Nobody else tells anything to a group that has not joined.
        self._joined = len(self._others) < len(groups)
        sentinel = not self._joined or self.me in ranked(BEFORE_ALL, groups, self._settings.sentinels)
        if sentinel != self._sentinel:
            self._sentinel = sentinel
            self._tailing = False
            self._outputs.append(Tail(sentinel))
        self._send(self._spreading.membership(view, now))

    def _arrived(self, event: Event, now: int) -> bool:
        """Take an event in; return whether it arrives by spreading for the first time."""
        if event.position > self._buffer.newest:
            self._idle.looked(now, found=True)
            self._informant = event.publisher  # the sender has applied all entries before it
        offered = self._buffer.offer(event, Source.GOSSIP)
        self.counters.offered[offered.value] += 1
        if event.position in self._heard or event.position <= self._buffer.applied - self._settings.history:
            return False
        if offered is not Offered.BEYOND:  # the event is not kept, so it may come again
            self._heard.add(event.position)
        return offered is not Offered.BEYOND

    def _heartbeat(self, sender: GroupId, beat: Heartbeat, now: int) -> None:
        if beat.applied > self._buffer.newest:
            self._buffer.heard_of(beat.applied)
            self._informant = sender
            self._idle.looked(now - beat.age_ms, found=True)
        elif beat.applied == self._buffer.newest:
            self._idle.looked(now - beat.age_ms, found=False)
        own = self._buffer.chain_at(beat.applied)
        if own is not None and own != beat.chain:
            self._contradicted(sender)
        self._spreading.knows(sender, beat.applied, now)
        if beat.applied < self._buffer.applied and not beat.answer:
            self._outputs.append(Send((sender,), self._beat(now, answer=True)))

    def _beat(self, now: int, *, answer: bool = False) -> Heartbeat:
        return Heartbeat(self._buffer.applied, self._buffer.chain, self._idle.age(now), answer)

    def _give(self, sender: GroupId, first: Position, end: Position) -> None:
        events = self._buffer.kept(first, min(end, first + self._settings.repair_entries_max))
        for found in answers(events, end, self._settings):
            self.counters.repairs_given += len(found.events)
            self._outputs.append(Send((sender,), found))

    def _found(self, events: Sequence[Event], now: int) -> None:
        for event in events:
            if self._buffer.offer(event, Source.PEER) is Offered.NEW:
                self._send(self._spreading.learn(event, now))
        if not events:
            self._gap.hurry(now)

    def _mend(self, now: int) -> None:
        """Ask a peer, or read the log, for what has been missing for long enough."""
        missing = self._buffer.missing()
        if missing is None or self._reading is not None:
            self._gap.forget()
            return
        first, end = missing
        if self._buffer.must_come_from_log():
            self._read(first, end, Reason.MISMATCH)
        elif end - first > self._settings.repair_entries_max:
            self._read(first, min(end, first + self._settings.read_entries_max), Reason.BEHIND)
        elif self._gap.attempts >= self._settings.repair_attempts or not self._others:
            self._read(first, end, Reason.GAP)
        else:
            whom = self._informant if self._gap.attempts == 0 else None
            if whom is None or whom not in self._others:
                whom = self._random.choice(self._others)
            self._gap.asked(now)
            self.counters.repairs_asked += 1
            self._outputs.append(Send((whom,), Want(first, end)))

    def _read(self, first: Position, end: Position, reason: Reason) -> None:
        if self._reading is None:
            self._reading = ReadLog(first, end, reason)
            self._gap.forget()
            self.counters.reads[reason.value] += 1
            self._outputs.append(self._reading)

    def _contradicted(self, by: GroupId) -> None:
        """Count that a group has another chain than this one. After several in a row this one is wrong."""
        self.counters.mismatches += 1
        if by not in self._against:
            self._against.append(by)
        if len(self._against) >= min(self._settings.divergence, max(1, len(self._others))):
            why = f"at position {self._buffer.applied} other groups have another replica: {', '.join(self._against)}"
            self._against.clear()
            self._outputs.append(BeginAgain(why))

    def _publish_due(self, now: int) -> None:
        """Publish what this group must publish, once it is applied here: only then is the chain before it known."""
        for position in sorted(p for p, due in self._to_publish.items() if due <= now):
            if position > self._buffer.applied:
                break
            del self._to_publish[position]
            if position in self._heard:
                continue
            for event in self._buffer.kept(position, position + 1):
                self._heard.add(position)
                self.counters.published += 1
                if fits_datagram(event, self._settings):
                    self._send(self._spreading.publish(evolve(event, publisher=self.me), now))
                else:
                    self.greet(now)  # so that all groups know that it exists, and read it

    def _to_publish_dues(self) -> list[int]:
        return [due for position, due in self._to_publish.items() if position <= self._buffer.applied]

    def _after_news(self, now: int) -> None:
        """Check again whether something is missing."""
        missing = self._buffer.missing()
        if missing is None:
            self._gap.forget()
        elif self._reading is None:
            self._gap.noticed(missing[0], now)
        self._pulse.at_position(self._buffer.newest, now)
        self._watch.at_position(self._buffer.newest, now)
