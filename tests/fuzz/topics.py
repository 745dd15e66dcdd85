"""Partitions for a fuzzed server: everything is answered at once, or at the next call, by what may be said."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from zraft.topics.service import Consumers, Fetched, Offset, RefusalKind, TopicClient, TopicRefusal
from zraft_core.claims.answers import Accepted, Reason, Refused
from zraft_core.claims.commands import ClaimCommand
from zraft_core.claims.state import Claims
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import Answer, Reply, StartRequest
from zraft_core.topics.stamps import Stamp

KINDS: tuple[RefusalKind, ...] = (
    *("not_leader", "no_group", "busy", "gone", "timeout", "too_large", "failed"),
)


class FuzzedPartitions:
    """A `TopicService`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._late: list[tuple[TopicClient, Callable[[], None]]] = []
        self.asked = 0

    def turn(self) -> None:
        """Say what was put off."""
        late, self._late = self._late, []
        for _, say in late:
            say()

    def _say(self, client: TopicClient, id: int, group: GroupId, answer: Callable[[], None]) -> None:
        self.asked += 1
        if self._rng.random() < 0.2:
            refusal = TopicRefusal(
                self._rng.choice(KINDS), group, self._rng.choice((None, ServerId(2))), "words", 7
            )
            self._later(client, lambda: client.on_refused(id, refusal))
        else:
            self._later(client, answer)

    def _later(self, client: TopicClient, say: Callable[[], None]) -> None:
        if self._rng.random() < 0.5:
            say()
        else:
            self._late.append((client, say))

    def produce(self, client: TopicClient, id: int, group: GroupId, requests: Sequence[StartRequest]) -> None:
        for request in requests:
            reply = Reply(request.message.mid, group, self._rng.choice(list(Answer)), offset=3)
            self._say(client, id, group, partial(client.on_reply, id, reply))

    def fetch(
        self, client: TopicClient, id: int, group: GroupId, offset: int, bytes_max: int, wait_ms: int
    ) -> None:
        stamp = Stamp(1, group, 0, GroupId(0))
        found = Fetched(group, [(offset, stamp, b"message")], 0, offset + 1, offset + 1, stamp)
        self._say(client, id, group, lambda: client.on_fetched(id, found))

    def need(self, group: GroupId, time: int) -> None:
        self.asked += 1

    def claim(self, client: TopicClient, id: int, group: GroupId, command: ClaimCommand) -> None:
        answer = self._rng.choice((Accepted(1, 2, 3, False, False, 4), Refused(Reason.HELD, None, 1, 2)))
        self._say(client, id, group, lambda: client.on_claim(id, answer))

    def claims_view(self, client: TopicClient, id: int, group: GroupId, name: str) -> None:
        view = Claims(60_000).view(name, 0)
        self._say(client, id, group, lambda: client.on_claim(id, view))

    def seek(self, client: TopicClient, id: int, group: GroupId, consumer: bytes, offset: int | None) -> None:
        self._say(client, id, group, lambda: client.on_offset(id, Offset(group, offset)))

    def offset_of(self, client: TopicClient, id: int, group: GroupId, consumer: bytes) -> None:
        self._say(client, id, group, lambda: client.on_offset(id, Offset(group, None)))

    def offset_at(self, client: TopicClient, id: int, group: GroupId, time_ms: int) -> None:
        self._say(client, id, group, lambda: client.on_offset(id, Offset(group, time_ms % 9)))

    def consumers(self, client: TopicClient, id: int, group: GroupId) -> None:
        found = ((b"c", 4, None), (b"g", 2, ("anna",)))
        self._say(client, id, group, lambda: client.on_consumers(id, Consumers(group, found, 9)))

    def drop(self, client: TopicClient) -> None:
        self._late = [one for one in self._late if one[0] is not client]
