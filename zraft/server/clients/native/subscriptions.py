"""Subscriptions of one native connection: dictionaries, logs, paths, producers' streams; no I/O.

Source: docs/reference/protocol-native.md, "Subscriptions".
"""

from __future__ import annotations

from typing import Final

from zraft.server.clients.native.feeds import PathSubscription
from zraft.server.clients.native.pending_reads import NO_CONTACT
from zraft.server.clients.native.services import NativeSpeaker
from zraft.server.clients.native.topics import ConnectionTopics
from zraft_core.errors import Code
from zraft_core.wire.native import answers
from zraft_core.wire.native.failures import text_of
from zraft_core.wire.native.partition_requests import PartitionRequest, SubscribeProducer
from zraft_core.wire.native.subscription_requests import (
    Subscribe,
    SubscribeDictionary,
    SubscribeLog,
    SubscribePath,
    Unsubscribe,
)
from zraft_core.znodes.events import AddWatchMode

SUBSCRIPTIONS_MAX: Final = 256


class Subscriptions:
    """Subscriptions of one connection, by the id of the request that began each."""

    __slots__ = ("_connection", "_topics", "_watches")

    def __init__(self, connection: NativeSpeaker) -> None:
        self._connection = connection
        self._watches: dict[int, PathSubscription] = {}
        self._topics: ConnectionTopics | None = None
        """The part for topics, made when the client first asks for something of them."""

    def __bool__(self) -> bool:
        connection = self._connection
        return bool(self._watches) or connection.clients.feeds.has(connection)

    @property
    def outstanding(self) -> int:
        """Requests about topics that are not answered."""
        return 0 if self._topics is None else self._topics.outstanding

    @property
    def polls(self) -> int:
        """The number of fetches that wait for records that do not exist yet."""
        return 0 if self._topics is None else self._topics.polls

    def act_on_topics(self, request: PartitionRequest) -> None:
        """Carry out a request about topics."""
        if self._topics is None:
            self._topics = ConnectionTopics(self._connection)
        if not isinstance(request, SubscribeProducer) or self._has_room(request.id):
            self._topics.act(request)

    def push_topics(self) -> bool:
        """Tell what was gathered of topics; False if something is left for the next turn."""
        return self._topics is None or self._topics.push()

    def subscribe(self, request: Subscribe) -> None:
        """Begin a subscription, or answer why not."""
        connection = self._connection
        clients = connection.clients
        if not self._has_room(request.id):
            return
        if not clients.availability.serving:
            connection.refuse(request.id, Code.CONNECTION_LOSS, NO_CONTACT)
            return
        code = Code.OK
        match request:
            case SubscribePath(path=path, recursive=recursive):
                watch = self._watches[request.id] = PathSubscription(connection, request.id, path)
                mode = AddWatchMode.PERSISTENT_RECURSIVE if recursive else AddWatchMode.PERSISTENT
                clients.watches.add_lasting(path, watch, mode)
            case SubscribeDictionary(directory=path, credit=credit):
                code = clients.feeds.subscribe_dictionary(connection, request.id, path, credit)
            case SubscribeLog(directory=path, prefix=prefix, first=first, credit=credit):
                code = clients.feeds.subscribe_log(connection, request.id, path, prefix, first, credit)
        if code is Code.OK:
            clients.on_follower()
            # The answer must not come behind the subscription's own first part, which is pushed after it.
            connection.write_pushed(answers.encode_result(request.id, connection.machine.last_zxid))
        else:
            connection.refuse(request.id, code, text_of(code, path))

    def _has_room(self, number: int) -> bool:
        """Return whether there is room for a subscription of this id; answer if not."""
        connection, streams = self._connection, self._topics
        feeds = connection.clients.feeds
        if number in self._watches or feeds.has(connection, number) or (streams and streams.has(number)):
            why = f"id {number} is that of another subscription"
        elif (
            len(self._watches) + feeds.count_of(connection) + (streams.count if streams else 0)
            >= SUBSCRIPTIONS_MAX
        ):
            why = f"this connection has {SUBSCRIPTIONS_MAX} subscriptions, more are not allowed"
        else:
            return True
        connection.refuse(number, Code.BAD_ARGUMENTS, f"subscribe: {why}")
        return False

    def unsubscribe(self, request: Unsubscribe) -> None:
        """End a subscription and answer whether there was one."""
        connection = self._connection
        number = request.subscription
        watch = self._watches.pop(number, None)
        if watch is not None:
            connection.clients.watches.remove_watcher(watch)
        elif self._topics is not None and self._topics.unsubscribe(number):
            pass
        elif not connection.clients.feeds.unsubscribe(connection, number):
            why = f"unsubscribe: there is no subscription {number}"
            connection.refuse(request.id, Code.NO_WATCHER, why)
            return
        connection.write_answer(answers.encode_result(request.id, connection.machine.last_zxid))

    def release(self) -> None:
        """Forget all subscriptions, since the connection has ended."""
        for watch in self._watches.values():
            self._connection.clients.watches.remove_watcher(watch)
        self._watches.clear()
        if self._topics is not None:
            self._topics.release()
