"""A producer as asyncio programs use it: records to one or many partitions, delivered once whatever breaks on the way.

It is the shell around `Gatherer` and `Dispatch`: it owns the streams to servers, the clocks and the futures of
callers. It gathers, numbers, repeats and follows leaders by itself; a program only decides what to do about what
it raises.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final

from zraft_client.client import Session
from zraft_client.errors import (
    BadArgumentsError,
    ClientError,
    ClosedError,
    DeadlineError,
    FailedError,
    NoAuthError,
    UnknownOutcomeError,
)
from zraft_client.line import Line
from zraft_client.topics import requests
from zraft_client.topics.directory import Directory
from zraft_client.topics.dispatch import REFUSED_S, REPEAT_S, Dispatch, Outgoing
from zraft_client.topics.errors import LinkError, NeverDeliveredError, NoTopicError, ProducerEndedError
from zraft_client.topics.gathering import BATCH_BYTES, OPEN_MAX, Gatherer, Gathering, Groups
from zraft_client.topics.links import Link
from zraft_client.topics.options import (
    Acknowledge,
    Consumed,
    Destination,
    Order,
    Partitioner,
    destinations_of,
    has_all,
    round_robin_partitioner,
)
from zraft_client.topics.payloads import (
    Compression,
    Content,
    check_size,
    checked_headers,
    encode_content,
)
from zraft_client.topics.sent import Sent, SentMessage, error_of_end
from zraft_client.topics.streams import Stream
from zraft_client.topics.values import Metadata, Receipt, Record
from zraft_client.values import ConnectionState
from zraft_core.errors import Code
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.records import Headers
from zraft_core.records.compression import require
from zraft_core.topics.message import Condition, Message
from zraft_core.topics.messages import Reply
from zraft_core.topics.producer import Ended, ProducerCore, Reach
from zraft_core.topics.stamps import Stamp
from zraft_core.wire.native.topic_results import ReplicaRefusal

WINDOW: Final = 1024
"""Messages under way; it bounds what partitions keep of a producer, so no larger one works."""
BUFFER_BYTES_MAX: Final = 32 * 1024 * 1024
CLOSED_MAX: Final = 64
"""Batches that are full and wait for the end of the loop's turn; then callers wait for it, too."""
POST_BYTES_MAX: Final = 256 * 1024
"""Bytes of one `produce` with more than one message in it."""
POST_MESSAGES_MAX: Final = 1024
TABLE_AGE_S: Final = 30.0
"""New partitions are used after so long at the latest."""
REFRESH_PAUSE_S: Final = 0.1
TROUBLE_S: Final = 10.0
"""The time for which `why_waiting` tells what a server said of a partition: it says so again while that is so."""


class Producer:
    """One registered producer, from `Topics.producer`. Use it as an async context manager, or `open` and `close`.

    It is not for several threads. When its session expires, everything under way ends as unknown, and further
    calls raise ProducerEndedError: open another one.

    Args:
        linger_s: how long a batch waits for more records. 0: until the end of the loop's turn, or until there is room
            for it under way.
        batch_bytes_max: bytes of a batch before it is compressed; a larger record travels alone, and with 0 every
            record does.
        clock: seconds since 1970, for timestamps of records.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        window: int = WINDOW,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        acknowledge: Acknowledge = Acknowledge.DELIVERED,
        order: Order = Order.PARTITION,
        reach: Reach = Reach.ALL,
        compression: Compression = Compression.NONE,
        linger_s: float = 0.0,
        batch_bytes_max: int = BATCH_BYTES,
        partitioner: Partitioner | None = None,
        repeat_s: float = REPEAT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        require(compression.codec)
        self._directory = directory
        self._repeat_s = repeat_s
        self._window = min(window, WINDOW)
        self._buffer_bytes_max = buffer_bytes_max
        self._acknowledge = acknowledge
        self._order = order
        self._reach = reach
        self._compression = compression
        self._partitioner = partitioner or round_robin_partitioner()
        self._stays = partitioner is None
        self._clock = clock
        self._gatherer = Gatherer(
            batch_bytes_max=batch_bytes_max, linger_s=linger_s, in_order=order is not Order.PARTITION
        )
        self._core: ProducerCore | None = None
        self._dispatch: Dispatch | None = None
        self._session: Session | None = None
        self._floor_zxid = 0
        self._streams: dict[ServerId, Stream] = {}
        self._sent: dict[int, SentMessage] = {}
        self._pending = 0
        self._metadata: Metadata | None = None
        """The table that the next three are of."""
        self._batches = False
        self._topics: dict[str, Groups] = {}
        self._partitions: dict[Destination, Groups] = {}
        """The partitions of each destination that records went to."""
        self._kept: dict[object, Groups] = {}
        """The partitions that records without a key went to last, by what was asked for.

        They are kept while their batch takes more: if each record went to the next partition, batches would be small, and
        in orders FIFO and CAUSAL each would hold one record.
        """
        self._waiting: set[GroupId] = set()
        """Groups to which everything is sent again soon."""
        self._troubles: dict[GroupId, tuple[float, str]] = {}
        """Why a group could not be sent to, and when that was so last."""
        self._last: Message | None = None
        self._seen = 0
        self._line = Line(self._has_room)
        self._looking_up = 0
        self._lookup = asyncio.Lock()
        """Calls wait for it in their order; it is free when nobody has to look anything up."""
        self._flushing: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Waiters, with the number up to which everything has to be decided; the numbers ascend."""
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._pumping = False
        self._ended: ClientError | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._wants_table = asyncio.Event()
        self._removers: list[Callable[[], None]] = []

    # -- life

    async def __aenter__(self) -> Producer:
        await self.open()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.close(flush=kind is None)

    async def open(self) -> None:
        """Register with the cluster. The errors of `zraft_client.errors` are raised."""
        assert self._core is None, "a producer is opened once"
        client = self._directory.client
        producer, zxid = await client.ask(requests.register_producer())
        session = client.session
        assert session is not None, "a producer was registered without a session"
        metadata = await self._directory.refresh()
        self._session = session
        self._floor_zxid = zxid
        self._core = ProducerCore(producer, metadata.table, window=self._window, reach=self._reach)
        self._dispatch = Dispatch(self._core, repeat_s=self._repeat_s)
        self._removers = [
            client.add_listener(self._on_state),
            self._directory.links.listen(self._on_link),
        ]
        self._refresher = asyncio.get_running_loop().create_task(self._keep_table(), name="zraft producer")

    async def close(self, *, flush: bool = True) -> None:
        """End it, after what is under way is decided; without `flush` that ends as unknown. No further call is taken.

        Raises:
            ProducerEndedError: its session expired before everything was decided.
        """
        if self._core is None:
            self._ended = self._ended or ClosedError("the producer was closed before it was opened")
            return
        self._closing = True
        try:
            if flush and self._ended is None:
                await self.flush()
        finally:
            await self._close(self._core)

    async def _close(self, core: ProducerCore) -> None:
        alive = self._ended is None
        self._end(ClosedError("the producer was closed"))
        for remove in self._removers:
            remove()
        self._removers = []
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.gather(self._refresher, return_exceptions=True)
        if alive and self._directory.client.state is not ConnectionState.CLOSED:
            try:
                await self._directory.client.ask(requests.close_producer(core.producer))
            except FailedError:
                return  # it ends with its session

    @property
    def id(self) -> ProducerId:
        """The producer's id, which its messages carry.

        Raises:
            ClosedError: the producer was not opened.
        """
        if self._core is None:
            raise ClosedError("the producer was not opened; use `async with`, or `await producer.open()`")
        return self._core.producer

    @property
    def pending(self) -> int:
        """The number of records that are not decided."""
        return self._pending

    # -- sending

    async def send(
        self,
        to: Destination | Iterable[Destination],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | None = None,
        after: Sent | None = None,
        consumed: Consumed | None = None,
    ) -> Receipt:
        """Multicast a record as `send_soon` does, wait for it, and return its receipt."""
        return await (
            await self.send_soon(
                to, value, key=key, headers=headers, timestamp=timestamp, after=after, consumed=consumed
            )
        )

    async def send_soon(
        self,
        to: Destination | Iterable[Destination],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | None = None,
        after: Sent | None = None,
        consumed: Consumed | None = None,
    ) -> Sent:
        """Multicast a record to all of `to`, atomically; wait only for room.

        Calls have their turn in the order in which they are made. One that is cancelled while it waits sends
        nothing. Records to the same destinations travel together, as one message; with `after` or `consumed` one
        travels alone. `timestamp`: milliseconds since 1970, now by default. `after`: an earlier record of this
        producer; this one is ordered behind it wherever both go. Await what is returned for the outcome.

        Raises:
            NoTopicError: a topic or partition does not exist, as far as this client may know.
            NoAuthError: this client may not produce to a topic.
            EncodingError: the record is too large, or not bytes.
            BadArgumentsError: it has more destinations than the setting topics_destinations_max allows.
            ProducerEndedError: nothing can be sent any more.
            ClosedError: likewise.
        """
        if self._closing and self._ended is None:
            raise ClosedError("the producer is being closed, and takes no further records")
        found = checked_headers(headers) if headers else ()
        size = check_size(key, value, found, timestamp)
        if type(to) is not str and type(to) is not tuple:
            to = tuple(destinations_of(to))  # it may be an iterator
        if self._looking_up or self._lacks(to):
            await self._look_up(destinations_of(to))
        if not self._line.may_pass(size):
            self._pump_soon()
            await self._line.turn(size)
        try:
            return self._gather(to, key, value, found, timestamp, size, after, consumed)
        except BaseException:
            self._line.admit()  # another call may take the room that this one does not
            raise

    async def send_many(
        self,
        to: Destination | Iterable[Destination],
        values: Iterable[bytes],
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> list[Sent]:
        """Multicast a record of each value as `send_soon` does; wait only for room.

        What `send_soon` raises of a value is raised; the values before it are sent, and those behind it are not.
        """
        return [await self.send_soon(to, value, key=key, headers=headers) for value in values]

    def saw(self, record: Record | Stamp) -> None:
        """Note that the program has seen this record: in order CAUSAL, later messages have stamps above it."""
        stamp = record.stamp if isinstance(record, Record) else record
        self._seen = max(self._seen, stamp.time)

    async def flush(self) -> None:
        """Wait until everything is decided that was sent before, also what waits for room.

        Raises:
            ProducerEndedError: the session expired before.
        """
        self._opened()
        await self._line.passed()
        core, _ = self._opened()
        last = self._gatherer.close()
        if last is not None:
            self._pump_soon()
            await last.until_known()
            self._opened()
        if core.floor < core.last:
            decided = asyncio.get_running_loop().create_future()
            self._flushing.append((core.last, decided))
            await decided
            self._opened()

    def why_waiting(self, sent: Sent) -> str:
        """Return what a record waits for, as far as servers have told; "" once its outcome is known.

        It is for messages to people. Of a record that one of its destinations has accepted, the producer hears nothing
        more until it is delivered.
        """
        message, core = sent.together.message, self._core
        if sent.done() or core is None:
            return ""
        if message is None:
            return "the record is not sent yet: it waits for others, or for room"
        now = asyncio.get_running_loop().time()
        metadata = self._directory.metadata
        homes = {} if metadata is None else metadata.homes
        said = []
        for group in core.undecided_at(message.mid.seq):
            topic, partition = homes.get(group, ("group", group))
            at, trouble = self._troubles.get(group, (0.0, ""))
            if not trouble or now - at > TROUBLE_S:
                trouble = "has not delivered it"
            said.append(f"{topic}/{partition}: {trouble}")
        if core.is_accepted(message.mid.seq):
            said.append(
                "it is accepted, and is delivered when all these work: `zraft status` says which do not"
            )
        return "; ".join(said)

    def _opened(self) -> tuple[ProducerCore, Dispatch]:
        if self._ended is not None:
            raise self._ended
        if self._core is None or self._dispatch is None:
            raise ClosedError("the producer was not opened; use `async with`, or `await producer.open()`")
        return self._core, self._dispatch

    def _has_room(self, count: int, size: int) -> bool:
        """Return whether there is room. A single record goes alone if it is larger than the buffer."""
        core, dispatch = self._core, self._dispatch
        if core is None or dispatch is None:
            return False
        # What is no batch takes a place in the window by itself.
        if self._gatherer.closed + count > (CLOSED_MAX if self._batches else core.room):
            return False
        before = dispatch.pending_bytes + self._gatherer.size
        return before + size <= self._buffer_bytes_max or (not before and count == 1)

    def _lacks(self, to: Destination | Iterable[Destination]) -> bool:
        """Return whether the table lacks a topic or partition, or may have an old limit."""
        if self._metadata is not self._directory.metadata or self._ended is not None:
            self._adopt()
        if type(to) is str:  # as most
            return to not in self._topics
        if type(to) is tuple and to in self._partitions:
            return False
        names = destinations_of(to)
        metadata = self._metadata
        return metadata is None or len(names) > metadata.destinations_max or not has_all(metadata, names)

    def _adopt(self) -> Metadata:
        """Go by the table that the directory has now.

        Raises:
            ProducerEndedError: nothing can be sent any more.
            ClosedError: likewise.
        """
        self._opened()
        metadata = self._directory.metadata
        assert metadata is not None, "a producer that is open has a table"
        if metadata is not self._metadata:
            self._metadata = metadata
            self._batches = metadata.knows_batches
            self._topics = {
                one.name: one.partitions
                for one in metadata.topics.values()
                if one.partitions and one.id not in metadata.unwritable and metadata.takes(one)
            }
            self._partitions = {}
            self._kept = {}
            self._troubles = {g: said for g, said in self._troubles.items() if g in metadata.placements}
            self._on_table(metadata)
        return metadata

    async def _look_up(self, names: Sequence[Destination]) -> None:
        """Ask for a table that has all topics and partitions named, after those who ask already.

        A partition that is given up is replaced within moments, so that is waited for.
        """
        self._looking_up += 1
        try:
            async with self._lookup:
                if not self._lacks(names):
                    return
                metadata = await self._replaced(names)
                _check_writable(metadata, names)
                for name in names:
                    if isinstance(name, tuple):
                        metadata.group(*name)
                    elif not metadata.topic(name).partitions:
                        raise NoTopicError(
                            f"topic {name!r}: it is just being created, and has no partition yet"
                        )
        finally:
            self._looking_up -= 1

    async def _replaced(self, names: Sequence[Destination]) -> Metadata:
        """Return a new table, in which no partition of the topics named waits for another in its place.

        Raises:
            DeadlineError: one still does after the client's timeout.
        """
        loop = asyncio.get_running_loop()
        timeout_s = self._directory.client.timeout_s
        deadline = loop.time() + timeout_s
        while True:
            await self._directory.refresh()
            metadata = self._adopt()
            topics = [metadata.topics.get(one if isinstance(one, str) else one[0]) for one in names]
            lost = [one.name for one in topics if one is not None and not metadata.takes(one)]
            if not lost:
                return metadata
            if loop.time() >= deadline:
                raise DeadlineError(
                    f"topic {lost[0]!r}: a partition of it was given up, and after {timeout_s:g} s no other one has taken "
                    "its place: `zraft status` says what that waits for"
                )
            await asyncio.sleep(REFRESH_PAUSE_S)

    def _gather(
        self,
        to: Destination | Iterable[Destination],
        key: bytes | None,
        value: bytes,
        headers: Headers,
        timestamp: int | None,
        size: int,
        after: Sent | None,
        consumed: Consumed | None,
    ) -> Sent:
        """Add a record to a batch, or to what is sent next."""
        metadata = self._adopt()
        groups = self._kept.get(to) if key is None else None
        if groups is None or not self._gatherer.takes(groups, size):
            groups = self._groups(metadata, to, key)
            if key is None and self._stays:
                if len(self._kept) >= OPEN_MAX:
                    self._kept.clear()
                self._kept[to] = groups
        if timestamp is None:
            timestamp = int(self._clock() * 1000)
        if self._batches and after is None and consumed is None:
            now = asyncio.get_running_loop().time()
            sent = Sent(*self._gatherer.add(groups, key, value, headers, timestamp, size, now))
        else:
            alone = Gathering(groups)
            if self._batches:
                alone.builder.append(key, value, headers, timestamp)
            else:
                content = Content(value, key, {name: one or b"" for name, one in headers})
                alone.payload = encode_content(content, self._compression)
            alone.after = None if after is None else after.together
            alone.condition = None if consumed is None else _condition(metadata, consumed)
            self._gatherer.add_alone(alone, size)
            sent = Sent(alone.sent, 0)
        self._pending += 1
        if not self._batches:
            self._post_due(asyncio.get_running_loop().time())
        self._pump_soon()
        return sent

    def _groups(
        self, metadata: Metadata, to: Destination | Iterable[Destination], key: bytes | None
    ) -> Groups:
        """Return the partitions that a record goes to.

        Raises:
            NoTopicError: there is no such topic or partition any more.
            NoAuthError: this client may not produce to one of them any more.
            BadArgumentsError: these are too many.
        """
        if type(to) is str and to in self._topics:  # as most
            return (self._partitioner(to, key, self._topics[to]),)
        if type(to) is tuple and (known := self._partitions.get(to)) is not None:
            return known
        names = destinations_of(to)
        if metadata.unwritable:
            _check_writable(metadata, names)
        found = {
            metadata.group(*name)
            if isinstance(name, tuple)
            else self._partitioner(name, key, metadata.topic(name).partitions)
            for name in names
        }
        if len(found) > metadata.destinations_max:
            # This comes before it has a number: a producer whose message is refused by servers has a gap, and
            # cannot continue.
            raise BadArgumentsError(
                f"destinations: found {len(found)} partitions, expected at most {metadata.destinations_max} "
                "(setting topics_destinations_max)",
                Code.BAD_ARGUMENTS,
            )
        groups = tuple(sorted(found))
        if len(names) == 1 and isinstance(names[0], tuple):
            self._partitions[names[0]] = groups
        return groups

    def _post_due(self, now: float) -> None:
        """Give a number to each message that is to be sent now, as far as the window has room."""
        core, _ = self._opened()
        if len(self._gatherer):
            # Who waits for room waits for the end of messages that take it.
            for one in self._gatherer.take(inf if self._line.is_waited_in else now, core.room):
                self._post(core, one, now)

    def _post(self, core: ProducerCore, one: Gathering, now: float) -> None:
        metadata, dispatch = self._directory.metadata, self._dispatch
        assert metadata is not None
        assert dispatch is not None
        if not core.table.groups.issuperset(one.groups):
            self._pending -= one.builder.count or 1
            one.sent.on_end(
                {}, partial(NeverDeliveredError, "a destination was deleted or given up before it was sent")
            )
            return
        payload = one.payload
        if payload is None:
            payload = one.builder.finish(self._compression.codec)
        causal = self._order is Order.CAUSAL
        depends = self._seen if causal else 0
        if self._order is not Order.PARTITION and self._has_rounds(metadata):
            message = core.multicast(
                one.groups,
                payload,
                condition=one.condition,
                depends=depends,
                ordered=True,
                causal=causal,
                records=one.builder.count,
            )
        else:
            before = one.after.message if one.after is not None else None
            if before is None and self._order is not Order.PARTITION:
                before = self._last
            message = core.multicast(
                one.groups,
                payload,
                after=before,
                condition=one.condition,
                depends=depends,
                records=one.builder.count,
            )
        self._last = one.sent.message = message
        self._sent[message.mid.seq] = one.sent
        dispatch.add(message, now)

    def _has_rounds(self, metadata: Metadata) -> bool:
        """Return whether ordered messages may go many at a time.

        It begins when nothing is under way in the old manner.
        """
        core, _ = self._opened()
        if not core.rounds and metadata.knows_rounds and not self._sent:
            core.rounds = True
            for stream in self._streams.values():
                stream.close()  # the next ones ask for the times of stamps
            self._streams.clear()
        return core.rounds

    # -- the loop

    def _pump_soon(self) -> None:
        """Send everything of one turn of the loop together."""
        if not self._pumping and self._ended is None:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        dispatch = self._dispatch
        if self._ended is not None or dispatch is None:
            return
        now = asyncio.get_running_loop().time()
        self._post_due(now)
        metadata = self._directory.metadata
        round_ = None if metadata is None else dispatch.producer.take_round(metadata.destinations_max)
        if round_ is not None:
            dispatch.add(round_, now)
        for outgoing in dispatch.take(now):
            self._send(outgoing)
        self._line.admit()
        self._arm()

    def _arm(self) -> None:
        assert self._dispatch is not None
        assert self._core is not None
        due = self._dispatch.next_due
        gathered = self._gatherer.next_due if self._core.has_room else None
        if gathered is not None and (due is None or gathered < due):
            due = gathered
        if due is None or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _send(self, outgoing: Outgoing) -> None:
        """Send to the server that seems to lead; one without a stream gets it as soon as there is one."""
        server = self._directory.leader(outgoing.group)
        if server is None:
            self._note_trouble(outgoing.group, "nobody knows where it is")
            self._wants_table.set()
            return
        try:
            stream = self._stream_to(server)
        except LinkError as error:
            self._note_trouble(outgoing.group, str(error))
            self._directory.not_there(outgoing.group, server)
            self._wants_table.set()
            return
        if not stream.live:
            if stream.link.is_late:
                self._note_trouble(outgoing.group, f"server {server} does not answer")
                # Another replica may lead by now; this one is asked again if nobody does.
                self._directory.not_there(outgoing.group, server)
            self._again_later(outgoing.group)
            return
        part: list[Any] = []
        size = 0
        for request in outgoing.requests:
            length = len(request.message.payload) + 128
            if part and (
                size + length > POST_BYTES_MAX
                or len(part) >= POST_MESSAGES_MAX
                or requests.kind_of(request) != requests.kind_of(part[0])
            ):
                stream.link.client.post(requests.produce(stream.id, outgoing.group, part))
                part, size = [], 0
            part.append(request)
            size += length
        stream.link.client.post(requests.produce(stream.id, outgoing.group, part))

    def _stream_to(self, server: ServerId) -> Stream:
        link = self._directory.link_to(server)
        stream = self._streams.get(server)
        if stream is not None and stream.link is link:
            return stream
        if stream is not None:
            stream.close()
        core, _ = self._opened()
        assert self._session is not None
        stream = Stream(link, core.producer, self._session, self._floor_zxid, self, times=core.rounds)
        self._streams[server] = link.client.subscribe(stream)
        return stream

    # -- what servers say

    def on_live(self, server: ServerId) -> None:
        """Note that a server takes messages on a stream: send what it should have heard (again)."""
        if self._ended is not None or self._dispatch is None:
            return
        now = asyncio.get_running_loop().time()
        for group in self._groups_under_way():
            if self._directory.leader(group) == server:
                self._dispatch.again(group, now)
        self._pump_soon()

    def _groups_under_way(self) -> set[GroupId]:
        return {group for sent in self._sent.values() if sent.message for group in sent.message.destinations}

    def on_stream_refused(self, server: ServerId, error: ClientError) -> None:
        """Note that a server takes no messages of this producer."""
        self._streams.pop(server, None)
        why = f"producer {self.id}: {error}"
        # The right was taken away since the table was fetched: its numbers would have a gap.
        self._end(NoAuthError(why, error.code) if isinstance(error, NoAuthError) else ProducerEndedError(why))

    def on_replies(self, server: ServerId, replies: list[Reply], refused: list[ReplicaRefusal]) -> None:
        """Take what partitions said by way of a server."""
        core, dispatch = self._core, self._dispatch
        if self._ended is not None or core is None or dispatch is None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for reply in replies:
            for ended in dispatch.on_reply(reply, now):
                self._on_ended(ended)
        for seq in core.take_accepted():
            accepted = self._sent.get(seq)
            if accepted is not None:
                accepted.on_accepted(counts=self._acknowledge is Acknowledge.ACCEPTED)
        self._moved()
        for one in refused:
            self._on_refused(server, one)
        if core.expired:
            self._end(ProducerEndedError(f"producer {core.producer} was closed, or its session expired"))
            return
        if core.table_wanted:
            self._wants_table.set()
        self._pump_soon()

    def _on_refused(self, server: ServerId, refused: ReplicaRefusal) -> None:
        if refused.kind == "too_large":
            self._fail_too_large(refused)
            return
        self._note_trouble(refused.group, f"server {server}: {refused.detail or refused.kind}")
        if refused.kind in ("not_leader", "no_group", "timeout"):
            self._directory.not_there(refused.group, server, refused.leader)
            if refused.kind == "no_group":
                self._wants_table.set()
        if refused.leader in (None, server):
            self._again_later(refused.group)
        else:
            self._again(refused.group)

    def _note_trouble(self, group: GroupId, trouble: str) -> None:
        self._troubles[group] = asyncio.get_running_loop().time(), trouble

    def _again_later(self, group: GroupId) -> None:
        """Send what goes to a group again soon, once for all messages of it."""
        if group not in self._waiting and self._ended is None:
            self._waiting.add(group)
            asyncio.get_running_loop().call_later(REFUSED_S, self._again, group)

    def _again(self, group: GroupId) -> None:
        self._waiting.discard(group)
        if self._ended is None and self._dispatch is not None:
            self._dispatch.again(group, asyncio.get_running_loop().time())
            self._pump_soon()

    def _fail_too_large(self, refused: ReplicaRefusal) -> None:
        """Fail a message that no server will ever take, as later ones of this producer would wait for it for ever."""
        self._end(
            ProducerEndedError(
                f"group {refused.group} will never take a message: {refused.detail}; the producer cannot go on, because its "
                "numbers would have a gap"
            )
        )

    def _on_ended(self, ended: Ended) -> None:
        sent = self._sent.pop(ended.mid.seq, None)
        if sent is not None and sent.message is not None:
            self._pending -= sent.message.span
            metadata = self._directory.metadata
            homes = {} if metadata is None else metadata.homes
            offsets = {homes[group]: offset for group, offset in ended.offsets.items() if group in homes}
            sent.on_end(offsets, error_of_end(ended, conditional=sent.message.condition is not None))

    def _moved(self) -> None:
        """Note that something was decided: there may be room, and flushes may be over."""
        assert self._core is not None
        flushing = self._flushing
        while flushing and flushing[0][0] <= self._core.floor:
            waiter = flushing.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)
        self._line.admit()

    def _on_table(self, metadata: Metadata) -> None:
        core, dispatch = self._core, self._dispatch
        if self._ended is not None or core is None or dispatch is None:
            return
        ended = core.on_table(metadata.table)
        dispatch.ended(ended, asyncio.get_running_loop().time())
        for one in ended:
            self._on_ended(one)
        self._moved()
        self._pump_soon()

    # -- what else happens

    def _on_state(self, state: ConnectionState) -> None:
        if state in (ConnectionState.EXPIRED, ConnectionState.CLOSED):
            why = "its session expired" if state is ConnectionState.EXPIRED else "its client was closed"
            self._end(ProducerEndedError(f"producer {self.id}: {why}"))

    def _on_link(self, link: Link) -> None:
        """Note that a server went down, and with it what it has not answered."""
        if link.is_up or self._ended is not None or self._dispatch is None:
            return
        stream = self._streams.get(link.server)
        if stream is None or stream.link is not link:
            return
        stream.live = False
        for group in self._groups_under_way():
            self._again_later(group)

    async def _keep_table(self) -> None:
        """Fetch the table of groups when it is wanted, and once in a while."""
        while True:
            try:
                async with asyncio.timeout(TABLE_AGE_S):
                    await self._wants_table.wait()
            except TimeoutError:
                pass
            self._wants_table.clear()
            try:
                self._on_table(await self._directory.refresh())
            except ClosedError:
                return
            except ClientError:
                self._wants_table.set()
            await asyncio.sleep(REFRESH_PAUSE_S)
            for group in self._groups_under_way():
                if self._directory.leader(group) is not None:
                    self._pump_soon()

    def _end(self, why: ClientError) -> None:
        """End: nothing is sent any more; what is under way is unknown, unless it is known to be accepted."""
        if self._ended is not None:
            return
        self._ended = why
        for seq, sent in self._sent.items():
            what = f"message {seq} of producer {self._core.producer if self._core else None}"
            sent.on_end(
                {}, partial(UnknownOutcomeError, f"{what}: {why}; it is delivered everywhere or nowhere")
            )
        self._sent.clear()
        for one in self._gatherer.take_all():
            one.sent.on_end({}, lambda: why)  # it was not sent
        self._pending = 0
        for _, waiter in self._flushing:
            if not waiter.done():
                waiter.set_result(None)
        self._flushing.clear()
        self._line.end()


def _check_writable(metadata: Metadata, names: Iterable[Destination]) -> None:
    """Refuse topics that this client may not produce to, before a record for them has a number.

    Raises:
        NoTopicError: there is no such topic.
        NoAuthError: the client may see it and not write it.
    """
    for one in names:
        name = one if isinstance(one, str) else one[0]
        if metadata.topic(name).id in metadata.unwritable:
            raise NoAuthError(
                f"topic {name!r}: this client may not produce to it. Whoever has the cluster's key can grant it WRITE: "
                f"`zraft topic acl add {name} SCHEME:ID:w`",
                Code.NO_AUTH,
            )


def _condition(metadata: Metadata, consumed: Consumed) -> Condition:
    home = metadata.group(consumed.topic, consumed.partition)
    return Condition(home, consumed.consumer, consumed.expected, consumed.following)
