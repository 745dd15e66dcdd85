"""Programs that produce to simulated servers and consume from them, as connections that move wherever they must."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.multicast.processes import records_of
from tests.simulation.topic_clients import Deaf
from zraft.topics.service import Fetched, Offset, TopicRefusal, TopicService
from zraft_core.claims.answers import ClaimAnswer, ClaimsView, Granted
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.codec import decode_message
from zraft_core.topics.merger import MergePosition, Merger
from zraft_core.topics.message import Delivery, Message
from zraft_core.topics.messages import Reply
from zraft_core.topics.producer import Ended, ProducerCore, Reach
from zraft_core.topics.registry_values import Table
from zraft_core.topics.stamps import MessageId, Stamp

AGAIN_MS = 150
ROUND_DESTINATIONS_MAX = 5


class Producing(Deaf):
    """A producer's library; `leader` gives the service of who leads a group, if anybody can be reached."""

    def __init__(
        self,
        producer: ProducerCore,
        rng: random.Random,
        leader: Callable[[GroupId], TopicService | None],
        now_ms: Callable[[], int],
        *,
        ordered: bool = False,
        causal: bool = False,
        batches: bool = True,
    ) -> None:
        """`batches`: every third message is a batch, which all servers must know."""
        self.producer = producer
        self._batches = batches
        self.ordered = producer.rounds = ordered
        """Everything comes behind all that was sent before, and if it is `causal`, with a stamp above theirs."""
        self.causal = causal
        self.messages: dict[MessageId, Message] = {}
        self.sent_ms: dict[MessageId, int] = {}
        self.ended: dict[MessageId, Ended] = {}
        self.ended_ms: dict[MessageId, int] = {}
        self._rng = rng
        self._leader = leader
        self._now_ms = now_ms
        self._asked_ms: dict[int, int] = {}
        producer.reach = rng.choice((Reach.ALL, Reach.ALL, Reach.ONE))

    @property
    def is_done(self) -> bool:
        return self.producer.expired or not self.producer.undecided()

    def send(self, groups: Sequence[GroupId], payload: bytes | None = None) -> None:
        """One more message, if there is room for it."""
        rng, producer = self._rng, self.producer
        if not producer.has_room or producer.expired:
            return
        earlier = next((m for m in reversed(self.messages.values()) if m.round is None), None)
        after = earlier if earlier is not None and rng.random() < 0.2 else None
        if payload is None:
            payload = b"%d/%d " % (producer.producer, producer.last + 1) * rng.choice((1, 1, 1, 60))
        records = records_of(producer.last + 1) if self._batches else 0
        if self.ordered:
            message = producer.multicast(groups, payload, ordered=True, causal=self.causal, records=records)
        else:
            message = producer.multicast(groups, payload, after=after, records=records)
        self._say(message)

    def _say(self, message: Message) -> None:
        self.messages[message.mid] = message
        self.sent_ms[message.mid] = self._now_ms()
        self._request(message.mid.seq)

    def work(self, table: Table) -> None:
        """Say again what is undecided."""
        self._end(self.producer.on_table(table))
        round_ = self.producer.take_round(ROUND_DESTINATIONS_MAX)
        if round_ is not None:
            self._say(round_)
        now_ms = self._now_ms()
        for seq in self.producer.undecided():
            if now_ms - self._asked_ms.get(seq, -AGAIN_MS) >= AGAIN_MS:
                self._request(seq)

    def _request(self, seq: int) -> None:
        self._asked_ms[seq] = self._now_ms()
        for group, request in self.producer.requests(seq):
            service = self._leader(group)
            if service is not None:
                service.produce(self, 0, group, (request,))

    def on_reply(self, id: int, reply: Reply) -> None:
        self._end(self.producer.on_reply(reply))

    def _end(self, endings: Sequence[Ended]) -> None:
        for ended in endings:
            self.ended[ended.mid] = ended
            self.ended_ms[ended.mid] = self._now_ms()


IN_VAIN_MAX: Final = 2
"""A replica gives nothing of what it has delivered for a turn, just after it took over a state; not again and again."""


class Merging(Deaf):
    """Reads `groups` in one order, from whichever servers; `servers` gives those that can be reached and have a group."""

    def __init__(
        self,
        groups: Sequence[GroupId],
        rng: random.Random,
        servers: Callable[[GroupId], Sequence[tuple[ServerId, TopicService]]],
        now_ms: Callable[[], int],
    ) -> None:
        self.merger = Merger(MergePosition(dict.fromkeys(groups, 0)))
        self.out: list[tuple[Stamp, MessageId]] = []
        self._rng = rng
        self._servers = servers
        self._now_ms = now_ms
        self._asked: dict[GroupId, tuple[int, int]] = {}
        self._of: dict[int, GroupId] = {}
        self._number = 0
        self._needed_ms = 0
        self._in_vain: dict[GroupId, int] = {}
        """The number of times in a row that a group had more than it gave."""

    def work(self) -> None:
        """Ask whom it has not asked, or who did not answer."""
        now_ms = self._now_ms()
        for group in self.merger.groups():
            asked = self._asked.get(group)
            if asked is not None and now_ms < asked[1]:
                continue
            for _, service in self._chosen(group):
                self._number += 1
                wait_ms = self._rng.choice((0, 50, 200))
                self._asked[group] = self._number, now_ms + wait_ms + 60
                self._of[self._number] = group
                bytes_max = self._rng.choice((100, 2_000, 1 << 20))
                service.fetch(self, self._number, group, self.merger.next_offset(group), bytes_max, wait_ms)
        if now_ms - self._needed_ms >= 15:
            self._needed_ms = now_ms
            for group, time in self.merger.needed().items():
                for _, service in self._chosen(group):
                    service.need(group, time)

    def _chosen(self, group: GroupId) -> Sequence[tuple[ServerId, TopicService]]:
        servers = self._servers(group)
        return [self._rng.choice(servers)] if servers else []

    def on_fetched(self, id: int, fetched: Fetched) -> None:
        group = self._of.pop(id)
        asked = self._asked.get(group)
        if asked is None or asked[0] != id:
            return  # it was given up
        del self._asked[group]
        found = [
            Delivery(offset, stamp, decode_message(message), 0)
            for offset, stamp, message in fetched.deliveries
        ]
        if fetched.next != self.merger.next_offset(group) + sum(one.message.span for one in found):
            raise BrokenPromiseError("fetch", f"{fetched} at offset {self.merger.next_offset(group)}")
        in_vain = 1 + self._in_vain.get(group, 0) if not found and fetched.next < fetched.end else 0
        if in_vain > IN_VAIN_MAX:
            raise BrokenPromiseError(
                "fetch", f"nothing, {in_vain} times in a row, of what is there: {fetched}"
            )
        self._in_vain[group] = in_vain
        self.merger.feed(group, found, fetched.frontier)
        self.out += [(one.stamp, one.message.mid) for one in self.merger.take(1_000)]

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        if refusal.kind in ("gone", "failed"):
            raise BrokenPromiseError("fetch", str(refusal))
        self._asked.pop(self._of.pop(id), None)


class Claiming(Deaf):
    """Claims that were granted, most of them for nobody; and offsets, of which a read shows what was stored before it."""

    def __init__(self) -> None:
        self.granted: list[tuple[str, int]] = []
        self.answers = 0
        self.refusals = 0
        self.reads = 0
        self._number = 0
        self._stored: dict[tuple[GroupId, bytes], int] = {}
        self._seeks: dict[int, tuple[GroupId, bytes]] = {}
        self._asked: dict[int, int] = {}

    def seek(self, service: TopicService, group: GroupId, consumer: bytes) -> None:
        """Store a higher number than before."""
        self._number += 1
        self._seeks[self._number] = group, consumer
        service.seek(self, self._number, group, consumer, self._number)

    def ask(self, service: TopicService, group: GroupId, consumer: bytes) -> None:
        """Read it; what is known to be stored by now must be there."""
        self._number += 1
        self._asked[self._number] = self._stored.get((group, consumer), 0)
        service.offset_of(self, self._number, group, consumer)

    def on_claim(self, id: int, answer: ClaimAnswer | ClaimsView) -> None:
        self.answers += 1
        if isinstance(answer, Granted):
            self.granted.append((f"g{answer.claim.attempt % 3}", answer.claim.epoch))

    def on_offset(self, id: int, offset: Offset) -> None:
        if id in self._seeks:
            key = self._seeks.pop(id)
            self._stored[key] = max(self._stored.get(key, 0), id)
            return
        self.reads += 1
        least = self._asked.pop(id)
        if (offset.offset or 0) < least:
            raise BrokenPromiseError("read", f"{offset}; {least} was stored before it was asked for (6.4)")

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        self.refusals += 1
