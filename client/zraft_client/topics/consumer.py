"""A consumer as asyncio programs use it: partitions from any offset, each in its order; offsets kept in the service.

`MergedConsumer` gives one order over several partitions of a topic, and with `zraft_client.claims` consumers
share them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Any, Final

from zraft_client.errors import BadArgumentsError, ClientError, ClosedError
from zraft_client.topics import requests
from zraft_client.topics.bounds import bounds_of
from zraft_client.topics.directory import Directory
from zraft_client.topics.errors import NoTopicError, OffsetGoneError
from zraft_client.topics.payloads import PayloadError
from zraft_client.topics.polling import RECORDS_MAX, Polling
from zraft_client.topics.reading import Reader
from zraft_client.topics.records import records_of
from zraft_client.topics.requests import Part
from zraft_client.topics.values import Record
from zraft_core.ids import GroupId
from zraft_core.records import MissingPackageError
from zraft_core.topics.message import Delivery

BUFFERED_MAX: Final = 4096
BUFFER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes per partition; a fetch under way may exceed it once."""

PARTITIONS_AGE_S: Final = 30.0
"""Partitions that were added to a topic are read after so long at the latest."""
JOIN_AGAIN_S: Final = 0.5

Partition = tuple[str, int]


class Start(Enum):
    """Places to begin a partition that has no given offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    STORED = "stored"
    """A consumer begins where `commit` of the same name stopped; otherwise at the beginning."""


class _Cursor:
    """The place in one partition."""

    def __init__(
        self, owner: Consumer, topic: str, partition: int, group: GroupId, offset: int, topic_id: int
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.buffer: deque[Delivery] = deque()
        self.buffered_bytes = 0
        self.error: ClientError | None = None
        self.paused = False
        self.removed = False
        self.first = 0
        self.end = 0
        self.damage: PayloadError | MissingPackageError | None = None
        """Why the next records cannot be read; the next poll raises it. Damaged ones are passed over."""
        self._owner = owner
        self.group = group
        self._read = offset
        self._delivery: Delivery | None = None
        """The message before those in the buffer; None if nothing of it is left."""
        self._records: Iterator[Record] = iter(())
        """The rest of it."""
        self.position = offset
        """The offset of the next record that the program gets."""

    @property
    def offset(self) -> int:
        return self._read

    @property
    def has_room(self) -> bool:
        return (
            self.error is None
            and not self.paused
            and len(self.buffer) < BUFFERED_MAX
            and self.buffered_bytes < BUFFER_BYTES_MAX
        )

    def on_part(self, asked: int, part: Part) -> None:
        if asked == self._read:
            self.first, self.end = part.first, part.end
            self.buffer.extend(part.deliveries)
            self.buffered_bytes += sum(len(one.message.payload) for one in part.deliveries)
            self._read = max(part.next, self._read) if part.deliveries else self._read
        self._owner.on_arrival()

    def on_gone(self, asked: int, first: int) -> None:
        if asked != self._read:
            return
        self.first = first
        if self._owner.skips_gone:
            self._read = first
            if not self.buffer and self._delivery is None:
                self.position = first
        else:
            self.error = OffsetGoneError(
                f"{self.topic}/{self.partition}: found records from {first} on, expected {asked}: retention removed it, or "
                "it was lost with a partition that was given up",
                first,
            )
            self._owner.on_arrival()

    def on_removed(self) -> None:
        if self._owner.on_replaced(self):
            return
        self.removed = True
        self.error = NoTopicError(f"{self.topic}/{self.partition}: the topic was deleted")
        self._owner.on_arrival()

    def on_failure(self) -> None:
        self._owner.on_arrival()

    def seek(self, offset: int) -> None:
        self.buffer.clear()
        self.buffered_bytes = 0
        self._delivery = self.damage = None
        self._read = self.position = offset
        if not self.removed:
            self.error = None

    def take(self, limit: int) -> list[Record]:
        """Return at most so many records that are here."""
        found: list[Record] = []
        while len(found) < limit and self.damage is None and (delivery := self._next()) is not None:
            try:
                for record in islice(self._records, limit - len(found)):
                    found.append(record)
                    self.position = record.offset + 1
            except PayloadError as error:
                self.damage = error
            except MissingPackageError as error:
                self.damage = error
                self._records = self._records_of(delivery)
                break
            if len(found) < limit:
                self.position, self._delivery = delivery.end, None
        return found

    def _next(self) -> Delivery | None:
        """Return the message whose records come next."""
        if self._delivery is None and self.buffer:
            delivery = self._delivery = self.buffer.popleft()
            self.buffered_bytes -= len(delivery.message.payload)
            self._records = self._records_of(delivery)
            if delivery.message.partitions is not None:
                self._owner.on_change(self.topic, delivery.message.partitions)
        return self._delivery

    def _records_of(self, delivery: Delivery) -> Iterator[Record]:
        """Return the records of a message; of one that begins before the position, the rest is meant."""
        return records_of(delivery, self.topic, self.partition, self.position)


class Consumer(Polling):
    """Consumer of some partitions, from `Topics.consumer`.

    Use it as an async context manager, or `open` and `close`.

    Args:
        what: topics, of which all partitions are read, those too that are added later, and (topic,
            partition) pairs.
        name: under which `commit` keeps offsets in the partitions themselves, 1 to 255 bytes.
        start: where to begin; `seek` sets another offset for a partition. One that is added later begins
            at its first record, or with STORED where `commit` of the same name stopped.
        skip_gone: if the next record is gone, continue at the oldest one; if not, OffsetGoneError is raised. Retention
            removes records, and a partition that is given up loses them.
    """

    def __init__(
        self,
        directory: Directory,
        what: str | Partition | Iterable[str | Partition],
        *,
        name: bytes | str | None = None,
        start: Start = Start.EARLIEST,
        skip_gone: bool = True,
        wait_ms: int | None = None,
        bytes_max: int | None = None,
    ) -> None:
        super().__init__()
        self._directory = directory
        self._what = _listed(what)
        self._name = name.encode() if isinstance(name, str) else name
        if start is Start.STORED and not self._name:
            raise BadArgumentsError(
                "start: found STORED without a name, expected the one that offsets are stored under"
            )
        self._start = start
        self.skips_gone = skip_gone
        options: dict[str, Any] = {}
        if wait_ms is not None:
            options["wait_ms"] = wait_ms
        if bytes_max is not None:
            options["bytes_max"] = bytes_max
        self._reader = Reader(directory, **options)
        self._cursors: dict[Partition, _Cursor] = {}
        self._turn = 0
        self._topics: dict[str, int] = {}
        """The ids of the topics that are read as a whole: another one of the same name is not meant."""
        self._told: dict[str, tuple[GroupId, ...]] = {}
        """The partitions of these topics that changes in their partitions' logs named."""
        self._grown = asyncio.Event()
        self._joining: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Consumer:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Find the partitions and begin to read.

        Raises:
            NoTopicError: a topic or partition does not exist.
            DeadlineError: a partition did not tell its offsets in time.
        """
        partitions: dict[Partition, GroupId] = {}
        ids: dict[str, int] = {}
        if any(isinstance(one, str) for one in self._what):
            await self._directory.refresh_quietly()
        for one in self._what:
            if isinstance(one, str):
                topic = await self._directory.topic(one)
                self._topics[one] = topic.id
                partitions |= {(one, number): group for number, group in enumerate(topic.partitions)}
            else:
                topic = await self._directory.topic(one[0])
                partitions[one] = (await self._directory.known()).group(*one)
            ids[topic.name] = topic.id
        starts = await asyncio.gather(*(self._first(group) for group in partitions.values()))
        for (key, group), offset in zip(partitions.items(), starts, strict=True):
            self._cursors[key] = _Cursor(self, *key, group, offset, ids[key[0]])
        self._reader.add(self._cursors.values())
        if self._topics:
            self._joining = asyncio.get_running_loop().create_task(self._join_later(), name="zraft consumer")

    async def _first(self, group: GroupId) -> int:
        timeout_s = self._directory.client.timeout_s
        if self._start is Start.LATEST:
            return (await bounds_of(self._directory, group, timeout_s)).end
        if self._start is Start.STORED and self._name is not None:
            return await self._directory.ask_leader(group, requests.offset(group, self._name), timeout_s) or 0
        return 0

    async def close(self) -> None:
        """Stop reading. Offsets are not committed by this."""
        self._closed = True
        self._arrival.set()
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        await self._reader.close()

    # -- partitions that are added, and those whose groups are replaced

    def on_replaced(self, cursor: _Cursor) -> bool:
        """Read the group that has taken the place of a cursor's group; return False if there is none.

        Its offsets begin above all of the old one's, so the next read is told that there is a gap.
        """
        metadata = self._directory.metadata
        topic = None if metadata is None else metadata.topics.get(cursor.topic)
        if topic is None or topic.id != cursor.topic_id or cursor.partition >= len(topic.partitions):
            return False
        group = topic.partitions[cursor.partition]
        if group == cursor.group:
            return False
        cursor.group = group
        self._reader.add([cursor])
        return True

    def on_change(self, topic: str, partitions: tuple[GroupId, ...]) -> None:
        """Note a change of a topic: from this place of a partition's log on the topic has these partitions."""
        if len(partitions) > len(self._told.get(topic, ())):
            self._told[topic] = partitions
            self._grown.set()

    async def _join_later(self) -> None:
        """Read partitions that were added: when a change of the topic is read, and once in a while in any case."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PARTITIONS_AGE_S):
                    await self._grown.wait()
            self._grown.clear()
            try:
                await self._directory.refresh_quietly()
                joined = await self._join()
            except ClosedError:
                return
            except ClientError:
                joined = False
            if not joined:
                self._grown.set()
                await asyncio.sleep(JOIN_AGAIN_S)

    async def _join(self) -> bool:
        """Begin to read what is not read yet; return False if not all of it can be found yet."""
        metadata = await self._directory.known()
        complete = True
        new: dict[Partition, GroupId] = {}
        for name, id in self._topics.items():
            topic = metadata.topics.get(name)
            if topic is None or topic.id != id:
                continue  # it was deleted, which its partitions tell
            groups = max(topic.partitions, self._told.get(name, ()), key=len)
            found = [group for group in groups if group in metadata.placements]
            complete = complete and len(found) == len(groups)
            new |= {(name, number): group for number, group in enumerate(groups) if group in found}
        new = {key: group for key, group in new.items() if key not in self._cursors}
        stored = self._start is Start.STORED
        for key, group in new.items():
            first = await self._first(group) if stored else 0
            cursor = self._cursors[key] = _Cursor(self, *key, group, first, self._topics[key[0]])
            self._reader.add([cursor])
        return complete

    # -- records

    async def poll(self, timeout_s: float = 0.0, *, limit: int = RECORDS_MAX) -> list[Record]:
        """Return at most `limit` records that are here; wait so long for the first one.

        Each partition's are in its order.

        Raises:
            OffsetGoneError: retention has removed the next record, and `skip_gone` is off.
            NoTopicError: a topic was deleted, and everything of it was read.
            PayloadError: the next records are damaged; the poll after this one goes on behind their message.
            MissingPackageError: the next records are compressed, and the package for that is not installed.
        """
        return await self._polled(timeout_s, limit)

    def _taken(self, limit: int) -> list[Record]:
        """Return a few of each partition in turn, so that a busy one starves nobody."""
        cursors = list(self._cursors.values())
        self._raise_damage(cursors)
        found: list[Record] = []
        for place in range(len(cursors)):
            cursor = cursors[(self._turn + place) % len(cursors)]
            if not cursor.paused:
                found += cursor.take(limit - len(found))
            if len(found) >= limit:
                self._turn = (self._turn + place + 1) % len(cursors)
                break
        self._reader.kick()
        return found

    def _raise_damage(self, cursors: Iterable[_Cursor]) -> None:
        """Raise what was wrong with records, before any others are taken, which would be lost."""
        for cursor in cursors:
            if cursor.damage is not None and not cursor.paused:
                damage, cursor.damage = cursor.damage, None
                raise damage

    def _raise_failure(self) -> None:
        self._raise_damage(self._cursors.values())
        if self._closed:
            raise ClosedError("the consumer was closed")
        if self._reader.failure is not None:
            raise self._reader.failure
        for cursor in self._cursors.values():
            if cursor.error is not None and not cursor.paused:
                raise cursor.error

    # -- offsets

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that are read. Partitions that are added to a topic join."""
        return tuple(self._cursors)

    def positions(self) -> dict[Partition, int]:
        """Return the offset of the next record of each partition."""
        return {key: cursor.position for key, cursor in self._cursors.items()}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at another offset, before or behind.

        Raises:
            BadArgumentsError: the offset is below 0.
            NoTopicError: the partition is not read here.
        """
        if offset < 0:
            raise BadArgumentsError(f"offset: found {offset}, expected 0 or more")
        cursor = self._cursor(topic, partition)
        cursor.seek(offset)
        self._reader.moved(cursor.group)

    def pause(self, topic: str, partition: int) -> None:
        """Neither read nor return records of it until `resume`."""
        self._cursor(topic, partition).paused = True

    def resume(self, topic: str, partition: int) -> None:
        """Continue with a partition that was paused."""
        self._cursor(topic, partition).paused = False
        self._arrival.set()
        self._reader.kick()

    def lag(self) -> dict[Partition, int]:
        """Return how many records of each partition the program has not got, as far as its end was seen."""
        return {key: max(0, cursor.end - cursor.position) for key, cursor in self._cursors.items()}

    async def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Keep offsets under the consumer's name: those given, or the present ones.

        It is not conditional: the last one wins.

        Raises:
            BadArgumentsError: the consumer has no name, or a partition keeps no more names.
            DeadlineError: a partition did not answer in time.
        """
        name = self._named()
        wanted = self.positions() if offsets is None else offsets
        cursors = [(self._cursor(*key), offset) for key, offset in wanted.items()]
        timeout_s = self._directory.client.timeout_s
        found = await asyncio.gather(
            *(
                self._directory.ask_leader(one.group, requests.seek(one.group, name, offset), timeout_s)
                for one, offset in cursors
            )
        )
        for (cursor, _), stored in zip(cursors, found, strict=True):
            if stored is None:
                raise BadArgumentsError(
                    f"{cursor.topic}/{cursor.partition}: the partition keeps as many consumers' offsets as "
                    "topics.consumers_max allows"
                )

    async def committed(self) -> dict[Partition, int | None]:
        """Return the offsets kept under the consumer's name.

        Raises:
            BadArgumentsError: the consumer has no name.
            DeadlineError: a partition did not answer in time.
        """
        name = self._named()
        timeout_s = self._directory.client.timeout_s
        found = await asyncio.gather(
            *(
                self._directory.ask_leader(one.group, requests.offset(one.group, name), timeout_s)
                for one in self._cursors.values()
            )
        )
        return dict(zip(self._cursors, found, strict=True))

    def _named(self) -> bytes:
        if not self._name:
            raise BadArgumentsError("name: offsets are stored under a consumer's name, and this one has none")
        return self._name

    def _cursor(self, topic: str, partition: int) -> _Cursor:
        found = self._cursors.get((topic, partition))
        if found is None:
            raise NoTopicError(
                f"{topic}/{partition}: found {len(self._cursors)} partitions read here, not this one"
            )
        return found


def _listed(what: str | Partition | Iterable[str | Partition]) -> list[str | Partition]:
    if isinstance(what, str):
        return [what]
    if isinstance(what, tuple) and len(what) == 2 and isinstance(what[0], str) and isinstance(what[1], int):
        return [(what[0], what[1])]
    return list(what)
