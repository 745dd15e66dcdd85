"""Answers to connections that a turn gathers, and gives when the turn is over. Pure."""

from __future__ import annotations

from zraft.topics.service import Consumers, Fetched, Offset, RefusalKind, TopicClient, TopicRefusal
from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import Reply

Asker = tuple[TopicClient, int]
"""A connection and its number for the request."""

AnswerValue = Reply | Fetched | ClaimAnswer | ClaimsView | Offset | Consumers | TopicRefusal


class TopicAnswers:
    """Answers in the order in which they were found, to connections that were met and not dropped.

    Attributes:
        waiting: (connection, its number for the request, answer), to be given when the turn is over.
    """

    def __init__(self) -> None:
        self._here: set[TopicClient] = set()
        self.waiting: list[tuple[TopicClient, int, AnswerValue]] = []
        self.replies_total = 0
        self.refusals_total = 0

    def meet(self, client: TopicClient) -> None:
        """Note a connection that asks for something."""
        self._here.add(client)

    def give(self, asker: Asker, value: AnswerValue) -> None:
        """Answer at the end of the turn."""
        self.waiting.append((*asker, value))

    def refuse(
        self,
        asker: Asker,
        kind: RefusalKind,
        group: GroupId,
        detail: str = "",
        *,
        leader: ServerId | None = None,
        first: int | None = None,
    ) -> None:
        """Answer that it was not done."""
        self.refusals_total += 1
        self.give(asker, TopicRefusal(kind, group, leader, detail, first))

    def drop(self, client: TopicClient) -> None:
        """Drop a connection that is gone; what is found for it from now on is for nobody."""
        self._here.discard(client)

    def deliver(self) -> None:
        """Give the answers, since the turn is over."""
        waiting, self.waiting = self.waiting, []
        for client, id, value in waiting:
            if client not in self._here:
                continue
            if isinstance(value, Reply):
                self.replies_total += 1
                client.on_reply(id, value)
            elif isinstance(value, Fetched):
                client.on_fetched(id, value)
            elif isinstance(value, Offset):
                client.on_offset(id, value)
            elif isinstance(value, Consumers):
                client.on_consumers(id, value)
            elif isinstance(value, TopicRefusal):
                client.on_refused(id, value)
            else:
                client.on_claim(id, value)
