"""Requests of one native connection about topics: streams, fetches, commands to partitions; no I/O.

Between a connection and the partitions of its server (`TopicService`). Requests go through at once. Answers are gathered, so
that all of a turn are one message per stream and one per fetch.

Source: docs/reference/protocol-native.md, "Topics".
"""

from __future__ import annotations

import hmac
from typing import Any, Final

from zraft.config.features import LEVEL_OF_TOPICS
from zraft.server.clients.connection import ANSWERS_BYTES_MAX
from zraft.server.clients.native.access import (
    ConnectionAccess,
    Need,
    OfGroup,
    Right,
    Verdict,
    needs,
    sees_consumer,
    sees_topic,
    writes_topic,
)
from zraft.server.clients.native.services import NativeSpeaker
from zraft.topics.service import Consumers, Fetched, Offset, TopicRefusal, TopicService
from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.claims.codec import encode_answer, encode_view
from zraft_core.errors import Code
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.codec import decode_registry
from zraft_core.topics.messages import Reply
from zraft_core.topics.registry_commands import CloseProducer
from zraft_core.wire.native import partition_requests as wire
from zraft_core.wire.native import topic_requests
from zraft_core.wire.native.failures import text_of
from zraft_core.wire.native.requests import Write
from zraft_core.wire.native.topic_answers import (
    encode_fetched,
    encode_replies,
    encode_topics,
    reply_rows,
)
from zraft_core.wire.native.topic_results import (
    ClaimResult,
    ClaimsResult,
    ConsumersResult,
    OffsetResult,
    RefusedResult,
    ReplicaRefusal,
)
from zraft_core.znodes.txn import Command

POLLS_MAX: Final = 4_096
"""Reads of partitions that one connection may have under way, those that no fetch waits for any more included."""

PART_COST: Final = 4
"""A message to a partition, or a read of one, takes about as long as this many requests of a dictionary."""

FETCH_BYTES, PART_BYTES = 512, 64
"""A fetch that waits holds so many bytes, and so many for each of its partitions. They count as an answer that is due."""

NO_TOPICS: Final = (
    "this server has no topics yet: the feature level rises by itself, about a second after all members run a release "
    f"that knows level {LEVEL_OF_TOPICS}; try again"
)


def cost_of(request: wire.PartitionRequest) -> int:
    """Return for how many more requests this one counts in the turn that carries it out."""
    match request:
        case wire.Produce(requests=parts) | wire.Fetch(parts=parts) | wire.Need(partitions=parts):
            return PART_COST * len(parts)
    return PART_COST


def _no_group(group: GroupId, verdict: Verdict) -> ReplicaRefusal:
    return ReplicaRefusal(group, "no_group", None, None, verdict.value)


class _Stream:
    """A producer's messages on this connection, and what is to be told of them."""

    __slots__ = ("id", "number", "producer", "refused", "replies", "session", "times")

    def __init__(self, number: int, asked: int, producer: ProducerId, session: int, times: bool) -> None:
        self.number = number
        self.id = asked
        self.producer = producer
        self.session = session
        self.times = times
        self.replies: list[Reply] = []
        self.refused: dict[GroupId, ReplicaRefusal] = {}


class _Fetching:
    """A fetch that is not answered."""

    __slots__ = ("bytes", "denied", "number", "parts", "polls", "refused")

    def __init__(self, number: int, partitions: int) -> None:
        self.number = number
        self.denied = ""
        """Why the client may not have what it asked for."""
        self.bytes = FETCH_BYTES + PART_BYTES * partitions
        """The bytes that are held for it, with the deliveries in `parts`."""
        self.polls: list[_Poll] = []
        self.parts: list[tuple[Any, ...]] = []
        self.refused: list[ReplicaRefusal] = []


class _Poll:
    """A read of one partition. It may outlive the fetch that began it; the next one of the same offset waits for it."""

    __slots__ = ("key", "waiting")

    def __init__(self, key: tuple[GroupId, int] | None) -> None:
        self.key = key
        self.waiting: list[_Fetching] = []


class ConnectionTopics:
    """The share of one connection; a `TopicClient`."""

    __slots__ = ("_access", "_acls", "_asked", "_connection", "_last", "_polls", "_ripe", "_streams", "_told")

    def __init__(self, connection: NativeSpeaker) -> None:
        self._connection = connection
        self._acls = connection.machine.topic_acls
        self._access = ConnectionAccess(connection)
        self._last = 0
        self._asked: dict[int, _Stream | _Poll | int] = {}
        """Requests by the numbers that partitions are given: a stream, a read, or the id of a request that
        has one answer.
        """
        self._streams: dict[int, _Stream] = {}
        """Streams by the client's ids."""
        self._polls: dict[tuple[GroupId, int], _Poll] = {}
        self._ripe: dict[_Fetching, None] = {}
        self._told: dict[_Stream, None] = {}

    @property
    def outstanding(self) -> int:
        """Requests of partitions that are not answered."""
        return len(self._asked) - len(self._streams)

    @property
    def polls(self) -> int:
        """The number of `outstanding` requests that wait for records that do not exist yet."""
        return len(self._polls)

    @property
    def count(self) -> int:
        """Subscriptions."""
        return len(self._streams)

    def has(self, number: int) -> bool:
        """Return whether this is the id of a stream."""
        return number in self._streams

    def unsubscribe(self, number: int) -> bool:
        """End a stream; return whether there was one."""
        stream = self._streams.pop(number, None)
        if stream is None:
            return False
        del self._asked[stream.id]
        self._told.pop(stream, None)
        return True

    def release(self) -> None:
        """Forget all requests, since the connection is over."""
        service = self._connection.clients.topics
        if service is not None:
            service.drop(self)
        for table in (self._asked, self._streams, self._polls, self._ripe, self._told):
            table.clear()

    def _ask(self, what: _Stream | _Poll | int) -> int:
        self._last += 1
        self._asked[self._last] = what
        return self._last

    # -- requests

    def act(self, request: wire.PartitionRequest) -> None:
        """Pass a request to the partitions, or refuse it."""
        service = self._connection.clients.topics
        if self._acls.exist and not self._may_pass(request):
            return
        if isinstance(request, wire.Produce):
            self._produce(service, request)
            return
        if service is None:
            self._connection.refuse(request.id, Code.UNIMPLEMENTED, NO_TOPICS, retriable=True)
            return
        match request:
            case wire.SubscribeProducer():
                self._subscribe(request)
            case wire.Fetch():
                self._fetch(service, request)
            case wire.Need(number, times):
                for group, time in times:
                    service.need(group, time)
                self._connection.answer(number)
            case wire.Claim(number, group, command):
                service.claim(self, self._ask(number), group, command)
            case wire.LookAtClaims(number, group, name):
                service.claims_view(self, self._ask(number), group, name)
            case wire.SeekOffset(number, group, consumer, offset):
                service.seek(self, self._ask(number), group, consumer, offset)
            case wire.ReadOffset(number, group, consumer):
                service.offset_of(self, self._ask(number), group, consumer)
            case wire.FindOffset(number, group, time_ms):
                service.offset_at(self, self._ask(number), group, time_ms)
            case wire.ListConsumers(number, group):
                service.consumers(self, self._ask(number), group)

    def _may_pass(self, request: wire.PartitionRequest) -> bool:
        """Return whether the ACLs let a request pass; answer it if not."""
        for need in needs(request):
            verdict = self._access.verdict(need)
            if verdict is Verdict.GRANTED:
                continue
            if isinstance(request, wire.Produce):
                if verdict is not Verdict.GONE:  # which takes no message any more, and says so
                    self._refuse_messages(request, need, verdict)
                    return False
            elif verdict is Verdict.DENIED:
                why = self._access.deny(self._connection.last_operation, need)
                self._connection.refuse(request.id, Code.NO_AUTH, why)
                return False
            elif isinstance(need, OfGroup) and not isinstance(request, wire.Fetch | wire.Need):
                # What a fetch gives is judged again.
                self._connection.answer(request.id, RefusedResult(_no_group(need.group, verdict)))
                return False
        return True

    def _refuse_messages(self, request: wire.Produce, need: Need, verdict: Verdict) -> None:
        """Refuse the messages of a request: a producer cannot go on without them, since their numbers would be missing."""
        stream = self._streams.get(request.stream)
        if stream is None:
            return
        if verdict is Verdict.DENIED:
            self._end_stream(stream, Code.NO_AUTH, self._access.deny("produce", need))
        else:
            self.on_refused(stream.id, TopicRefusal("busy", request.group, detail=verdict.value))

    # -- producers

    def _subscribe(self, request: wire.SubscribeProducer) -> None:
        connection = self._connection
        machine = connection.machine
        session = connection.session if request.session is None else request.session
        if machine.last_zxid < request.floor:
            why = (
                f"this server has applied up to zxid {machine.last_zxid:#x}, the floor is {request.floor:#x}"
            )
            connection.refuse(request.id, Code.CONNECTION_LOSS, f"subscribe: {why}")
            return
        if request.session is None and not session:
            why = "subscribe: a producer belongs to a session: say hello first, or prove a session by its password"
            connection.refuse(request.id, Code.BAD_ARGUMENTS, why)
            return
        if request.session is not None:
            known = machine.sessions.get(session)
            if known is None or not hmac.compare_digest(known.password, request.password):
                text = text_of(Code.SESSION_EXPIRED)
                connection.refuse(request.id, Code.SESSION_EXPIRED, f"subscribe: {text}")
                return
        if self._owner(request.producer) != session:
            why = f"subscribe: the session has no producer {request.producer}, or it was closed"
            connection.refuse(request.id, Code.NO_NODE, why)
            return
        stream = _Stream(request.id, 0, request.producer, session, request.times)
        stream.id = self._ask(stream)
        self._streams[request.id] = stream
        connection.answer(request.id)

    def _owner(self, producer: ProducerId) -> int | None:
        return self._connection.machine.registry.producers.get(producer)

    def _produce(self, service: TopicService | None, request: wire.Produce) -> None:
        stream = self._streams.get(request.stream)
        if stream is None:
            return  # it may have ended on the way
        if service is None or self._owner(stream.producer) != stream.session:
            self._end_stream(
                stream,
                Code.SESSION_EXPIRED,
                f"produce: producer {stream.producer} was closed, with its session or by it",
            )
            return
        for start in request.requests:
            if start.message.mid.producer != stream.producer:
                why = f"found a message of producer {start.message.mid.producer}, expected {stream.producer}"
                self._end_stream(stream, Code.BAD_ARGUMENTS, f"produce: {why}")
                return
        service.produce(self, stream.id, request.group, request.requests)

    def _end_stream(self, stream: _Stream, code: Code, why: str) -> None:
        self.unsubscribe(stream.number)
        self._connection.refuse(stream.number, code, why)

    def on_reply(self, id: int, reply: Reply) -> None:
        """Gather a leader's reply to a message for the end of the turn."""
        stream = self._asked.get(id)
        if isinstance(stream, _Stream):
            stream.replies.append(reply)
            if stream not in self._told:
                self._told[stream] = None
                self._connection.clients.on_topics(self._connection)

    # -- reading

    def _fetch(self, service: TopicService, request: wire.Fetch) -> None:
        fetching = _Fetching(request.id, len(request.parts))
        self._owe(fetching.bytes)
        for part in request.parts:
            key = (part.group, part.offset)
            poll = self._polls.get(key) if request.wait_ms else None
            if poll is not None:
                poll.waiting.append(fetching)
                fetching.polls.append(poll)
                continue
            if len(self._polls) >= POLLS_MAX:
                detail = f"{POLLS_MAX} reads of this connection are under way; ask again later"
                fetching.refused.append(ReplicaRefusal(part.group, "busy", None, None, detail))
                self._ripen(fetching)
                continue
            poll = _Poll(key if request.wait_ms else None)
            poll.waiting.append(fetching)
            fetching.polls.append(poll)
            if poll.key is not None:
                self._polls[poll.key] = poll
            service.fetch(self, self._ask(poll), part.group, part.offset, part.bytes_max, request.wait_ms)

    def on_fetched(self, id: int, fetched: Fetched) -> None:
        """Gather what a partition gave to a fetch."""
        poll = self._take_poll(id)
        if poll is None:
            return
        if self._acls.exist and not self._may_have(poll, fetched.group):
            return
        deliveries = [(offset, stamp, message) for offset, stamp, message in fetched.deliveries]
        row = (fetched.group, fetched.first, fetched.next, fetched.end, fetched.frontier, deliveries)
        size = sum([len(message) for _, _, message in deliveries])
        for fetching in poll.waiting:
            fetching.parts.append(row)
            fetching.bytes += size
            self._ripen(fetching)
        self._owe(size * len(poll.waiting))

    def _may_have(self, poll: _Poll, group: GroupId) -> bool:
        """Return whether the ACLs, as they are by now, let the client have what a partition gave; refuse it if not."""
        need = OfGroup(Right.READ, group)
        verdict = self._access.verdict(need)
        if verdict is Verdict.GRANTED:
            return True
        for fetching in poll.waiting:
            if verdict is Verdict.DENIED:
                fetching.denied = self._access.deny("fetch", need)
            else:
                fetching.refused.append(_no_group(group, verdict))
            self._ripen(fetching)
        return False

    def _owe(self, size: int) -> None:
        """Count bytes that are held until a fetch is answered: nobody bounds how many fetches a client has under way."""
        connection = self._connection
        connection.due_bytes += size
        if connection.due_bytes >= ANSWERS_BYTES_MAX:
            connection.clients.sums.count_output(connection)

    def _take_poll(self, id: int) -> _Poll | None:
        poll = self._asked.get(id)
        if not isinstance(poll, _Poll):
            return None
        del self._asked[id]
        if poll.key is not None:
            del self._polls[poll.key]
        return poll

    def _ripen(self, fetching: _Fetching) -> None:
        self._ripe[fetching] = None
        self._connection.clients.on_topics(self._connection)

    # -- everything that has one answer

    def on_claim(self, id: int, answer: ClaimAnswer | ClaimsView) -> None:
        """Answer a claim's command, or a request for claims."""
        if isinstance(answer, ClaimsView):
            self._answer(id, ClaimsResult(encode_view(answer)))
        else:
            self._answer(id, ClaimResult(encode_answer(answer)))

    def on_offset(self, id: int, offset: Offset) -> None:
        """Answer a request for an offset."""
        self._answer(id, OffsetResult(offset.offset))

    def on_consumers(self, id: int, consumers: Consumers) -> None:
        """Answer a request for who consumes a partition."""
        found = consumers.found
        if self._acls.exist:
            found = tuple([row for row in found if sees_consumer(self._connection, row[0])])
        self._answer(id, ConsumersResult(found, consumers.end))

    def _answer(self, id: int, result: object) -> None:
        number = self._asked.get(id)
        if isinstance(number, int):
            del self._asked[id]
            self._connection.answer(number, result)

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        """Refuse a request, or tell a stream or fetch that one of its partitions refused."""
        refused = ReplicaRefusal(refusal.group, refusal.kind, refusal.leader, refusal.first, refusal.detail)
        asked = self._asked.get(id)
        if isinstance(asked, _Stream):
            asked.refused[refusal.group] = refused
            self._told[asked] = None
            self._connection.clients.on_topics(self._connection)
        elif isinstance(asked, _Poll):
            self._take_poll(id)
            for fetching in asked.waiting:
                fetching.refused.append(refused)
                self._ripen(fetching)
        else:
            self._answer(id, RefusedResult(refused))

    # -- the end of a turn

    def push(self) -> bool:
        """Tell what was gathered; False if something is left for the next turn."""
        connection = self._connection
        zxid = connection.machine.last_zxid
        told, self._told = self._told, {}
        for stream in told:
            replies, stream.replies = stream.replies, []
            refused, stream.refused = stream.refused, {}
            rows = reply_rows(replies, stream.times)
            connection.push(encode_replies(stream.number, zxid, rows, list(refused.values())))
        for fetching in list(self._ripe):
            if connection.closing:
                return True  # an answer before this one was too much, and `release` forgot all others
            if connection.wants_flush:
                return False
            del self._ripe[fetching]
            connection.due_bytes -= fetching.bytes
            connection.clients.turn.taken += 1 + (fetching.bytes >> 10)
            for poll in fetching.polls:
                if fetching in poll.waiting:
                    poll.waiting.remove(fetching)
            if fetching.denied:
                connection.refuse(fetching.number, Code.NO_AUTH, fetching.denied)
            else:
                connection.push(encode_fetched(fetching.number, zxid, fetching.parts, fetching.refused))
        return True


# -- group 0's share


def topic_command(connection: NativeSpeaker, write: Write) -> Command | tuple[Code, str]:
    """Return the command of a write that is about topics, or why it is not taken."""
    machine = connection.machine
    if machine.feature_level < LEVEL_OF_TOPICS:
        return Code.UNIMPLEMENTED, NO_TOPICS
    if write.kind == topic_requests.REGISTER_PRODUCER:
        if not connection.session:
            return Code.BAD_ARGUMENTS, f"{write.kind}: a producer belongs to a session; say hello first"
        return topic_requests.register_command(connection.session)
    if write.kind == topic_requests.CLOSE_PRODUCER and not _may_close(connection, write.command):
        return Code.NO_NODE, f"{write.kind}: the session has no such producer"
    return write.command


def _may_close(connection: NativeSpeaker, command: Command) -> bool:
    """Return whether a producer may be closed: not what is another session's.

    What is closed may be closed again: a repeat gets the answer of the first time.
    """
    close = decode_registry(command[1])
    assert isinstance(close, CloseProducer), f"{close} is no CloseProducer"
    if close.producer > connection.machine.last_zxid:
        return False  # ids are zxids: this one is none yet, as far as is known here
    return connection.machine.registry.producers.get(close.producer, connection.session) == connection.session


def read_topics(connection: NativeSpeaker, number: int, known: bytes | None) -> bytes:
    """Return the answer to `topics`; `known` is the digest of what the client has."""
    registry = connection.machine.registry
    zxid = connection.machine.last_zxid
    topics = list(registry.topics.values())
    unwritable: list[int] = []
    if connection.machine.topic_acls.exist:
        # Groups stay in the table, without a name: one that is missing there counts as deleted, and a producer that has a
        # message under way would give it up.
        topics = [one for one in topics if sees_topic(connection, one.name)]
        unwritable = [one.topic for one in topics if not writes_topic(connection, one.name)]
    return encode_topics(
        number,
        zxid,
        position=registry.position,
        epoch=registry.epoch,
        servers={one.server: one.address for one in connection.view.members() if one.address},
        topics=topics,
        groups=[
            (record.group, record.topic, record.preferred, sorted({server for server, _ in record.wanted}))
            for record in registry.groups.values()
        ],
        deleting=registry.deleting,
        destinations_max=registry.settings.destinations_max,
        features=connection.machine.feature_level,
        known=known,
        unwritable=unwritable,
    )
