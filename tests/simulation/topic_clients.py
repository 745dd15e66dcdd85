"""Connections to partitions that simulations and tests put in the place of real ones."""

from __future__ import annotations

from zraft.topics.service import Consumers, Fetched, Offset, TopicRefusal
from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.topics.messages import Reply


class Deaf:
    """It asked for nothing, or does not listen."""

    def on_reply(self, id: int, reply: Reply) -> None: ...
    def on_fetched(self, id: int, fetched: Fetched) -> None: ...
    def on_claim(self, id: int, answer: ClaimAnswer | ClaimsView) -> None: ...
    def on_offset(self, id: int, offset: Offset) -> None: ...
    def on_consumers(self, id: int, consumers: Consumers) -> None: ...
    def on_refused(self, id: int, refusal: TopicRefusal) -> None: ...


class Remembering(Deaf):
    """It keeps what producers and consumers are answered."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.fetched: list[Fetched] = []
        self.refused: list[TopicRefusal] = []

    def on_reply(self, id: int, reply: Reply) -> None:
        self.replies.append(reply)

    def on_fetched(self, id: int, fetched: Fetched) -> None:
        self.fetched.append(fetched)

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        self.refused.append(refusal)
