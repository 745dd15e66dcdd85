"""A producer's stream to one server: requested on every connection; handles its pushes."""

from __future__ import annotations

from typing import Protocol

from zraft_client.calls import Answer, Request
from zraft_client.client import Session
from zraft_client.errors import ClientError, ClosedError
from zraft_client.subscriptions import Subscription
from zraft_client.topics import requests
from zraft_client.topics.links import Link
from zraft_core.ids import ProducerId, ServerId
from zraft_core.topics.messages import Reply
from zraft_core.wire.native.topic_results import ReplicaRefusal


class StreamOwner(Protocol):
    """The producer of a stream."""

    def on_live(self, server: ServerId) -> None:
        """Take note that a server accepted the stream, so that messages can be sent to it."""

    def on_stream_refused(self, server: ServerId, error: ClientError) -> None:
        """Take note that a server refused the stream."""

    def on_replies(self, server: ServerId, replies: list[Reply], refused: list[ReplicaRefusal]) -> None:
        """Take a server's replies to messages, and its refusals."""


class Stream(Subscription[None]):
    """The producer's stream to one server."""

    def __init__(
        self,
        link: Link,
        producer: ProducerId,
        session: Session,
        floor: int,
        owner: StreamOwner,
        *,
        times: bool,
    ) -> None:
        super().__init__(link.client, 0)
        self.link = link
        self.live = False
        """True once the server has said, on this connection, that it takes messages."""
        self._producer = producer
        self._session = session
        self._floor = floor
        self._times = times
        self._owner = owner

    def request(self) -> Request[None]:
        """Return the request for the producer's stream."""
        return requests.subscribe_producer(
            self._producer, self._session.id, self._session.password, self._floor, times=self._times
        )

    def resubscribed(self) -> None:
        """Note that nothing can be sent until the server accepts the stream again."""
        super().resubscribed()
        self.live = False

    def acknowledged(self) -> None:
        """Take note that the server accepted the stream, and tell the producer."""
        super().acknowledged()
        self.live = True
        self._owner.on_live(self.link.server)

    def refused(self, error: ClientError) -> None:
        """Take note that the server refused the stream, and tell the producer unless the client was closed."""
        super().refused(error)
        self.live = False
        if not isinstance(error, ClosedError):
            self._owner.on_stream_refused(self.link.server, error)

    def pushed(self, message: Answer, size: int) -> None:
        """Pass pushed replies and refusals to the producer."""
        replies, refused = requests.replies_of(self._producer, message)
        self._owner.on_replies(self.link.server, replies, refused)

    def message(self, answer: Answer) -> None:
        """Fail, since a stream's pushes are told at once."""
        raise AssertionError("what is pushed is told at once")
