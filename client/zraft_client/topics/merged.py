"""All partitions of a topic in one order, the same for every consumer of it, as asyncio programs use it.

It wraps `zraft_core.topics.merger`: it reads every partition, and asks idle ones to let the others' messages
pass. New partitions of the topic join at the same place for everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from attrs import evolve

from zraft_client.errors import BadArgumentsError, ClientError, ClosedError
from zraft_client.topics import requests
from zraft_client.topics.directory import Directory
from zraft_client.topics.errors import LinkError, NoTopicError, OffsetGoneError
from zraft_client.topics.payloads import PayloadError
from zraft_client.topics.polling import RECORDS_MAX, Polling
from zraft_client.topics.reading import Reader
from zraft_client.topics.records import records_of
from zraft_client.topics.requests import Part
from zraft_client.topics.values import Record, Topic
from zraft_core.ids import GroupId, ServerId
from zraft_core.records import MissingPackageError
from zraft_core.topics.merger import MergePosition, Merger
from zraft_core.topics.message import Delivery
from zraft_core.topics.registry_values import OFFSETS_SKIPPED

BUFFERED_MAX: Final = 4096
NEED_S: Final = 0.02
"""Seconds between two questions to idle partitions while a message waits for them."""
NEED_S_MAX: Final = 0.5


class _Cursor:
    """One partition of the merger."""

    def __init__(
        self, owner: MergedConsumer, merger: Merger, group: GroupId, home: tuple[str, int] | None
    ) -> None:
        self._owner = owner
        self._merger = merger
        self._group = group
        self.home = home
        """The topic's name and the partition's number, if they were known: a group that is lost has none later."""
        self.error: ClientError | None = None

    @property
    def group(self) -> GroupId:
        return self._group

    @property
    def offset(self) -> int:
        return self._merger.next_offset(self._group)

    @property
    def has_room(self) -> bool:
        return self.error is None and self._merger.room(self._group) > 0

    def on_part(self, asked: int, part: Part) -> None:
        if asked == self.offset:
            self._merger.feed(self._group, part.deliveries, part.frontier)
        self._owner.on_arrival()

    def on_gone(self, asked: int, first: int) -> None:
        if asked == 0 and first % OFFSETS_SKIPPED == 0:
            # It took the place of another one, and nothing of it is gone.
            self._merger.begin(self._group, first)
            return
        self.error = OffsetGoneError(
            f"partition {self._group}: found deliveries from {first} on, expected {asked}: retention removed it, and one "
            "order over all partitions cannot be told without it",
            first,
        )
        self._owner.on_arrival()

    def on_removed(self) -> None:
        if not self._owner.on_lost(self._group):
            self.error = NoTopicError(f"partition {self._group}: its topic was deleted")
        self._owner.on_arrival()

    def on_failure(self) -> None:
        self._owner.on_arrival()


class MergedConsumer(Polling):
    """Consumer of one topic in one order, from `Topics.merged`.

    Use it as an async context manager, or `open` and `close`.

    Args:
        topic: its name.
        position: where another one stopped (`position()`); None begins at the first message.
    """

    def __init__(
        self,
        directory: Directory,
        topic: str,
        *,
        position: MergePosition | None = None,
        wait_ms: int = 1_000,
    ) -> None:
        super().__init__()
        self.topic = topic
        self._directory = directory
        self._begin = position
        self._merger: Merger | None = None
        self._reader = Reader(directory, wait_ms=wait_ms)
        self._cursors: dict[GroupId, _Cursor] = {}
        self._needing: asyncio.Task[None] | None = None
        self._topic_id = 0
        self._records: Iterator[Record] | None = None
        """The rest of the next message, which the merger still holds; None if nothing of it was asked for yet."""
        self._seen = 0
        """The number of its records that were returned."""

    async def __aenter__(self) -> MergedConsumer:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Find the partitions and begin to read.

        Raises:
            BadArgumentsError: `position` is of other partitions than the topic's.
            NoTopicError: there is no such topic.
        """
        topic = await self._directory.topic(self.topic)
        self._topic_id = topic.id
        begin = self._begin
        if begin is None:
            # A partition that was added begins with the change that added it, so it may be read from the start.
            begin = MergePosition(dict.fromkeys(topic.partitions, 0))
        else:
            begin = evolve(begin, offsets=self._offsets_left(begin.offsets, topic))
        self._merger = Merger(begin, buffered_max=BUFFERED_MAX)
        self._seen = begin.seen
        self._join()
        self._needing = asyncio.get_running_loop().create_task(self._need(), name="zraft merged consumer")

    def _offsets_left(self, offsets: Mapping[GroupId, int], topic: Topic) -> Mapping[GroupId, int]:
        """Return the offsets of those partitions of a position that are left.

        Those that took others' places are added by changes which the partitions that are left deliver; if none is left,
        all are new.

        Raises:
            BadArgumentsError: the position is of another topic.
        """
        left = {
            group: offset for group, offset in offsets.items() if group in (*topic.partitions, *topic.adding)
        }
        if not all(group in left or self._is_lost(group) for group in offsets):
            raise BadArgumentsError(
                f"position: it is of partitions {sorted(offsets)}, topic {self.topic!r} has {topic.partitions}"
            )
        return left or dict.fromkeys(topic.partitions, 0)

    def _is_lost(self, group: GroupId) -> bool:
        """Return whether a partition of the topic was given up, and is replaced."""
        metadata = self._directory.metadata
        assert metadata is not None
        gone = group in metadata.replaced or (
            group not in metadata.placements and metadata.table.removed(group)
        )
        # Ids of a topic's groups are above its own: lower ones are of a former topic of the same name.
        return gone and group > self._topic_id

    def on_lost(self, group: GroupId) -> bool:
        """Go on without a partition whose group is gone; return False if that is because the topic is deleted."""
        merger, metadata = self._opened(), self._directory.metadata
        topic = None if metadata is None else metadata.topics.get(self.topic)
        if topic is None or topic.id != self._topic_id:
            return False
        merger.lose(group)
        if not merger.groups():
            merger.add(topic.partitions)
        self._join()
        return True

    async def close(self) -> None:
        """Stop reading."""
        self._closed = True
        self._arrival.set()
        if self._needing is not None:
            self._needing.cancel()
            await asyncio.gather(self._needing, return_exceptions=True)
        await self._reader.close()

    def _opened(self) -> Merger:
        if self._merger is None or self._closed:
            raise ClosedError("the consumer was closed, or never opened: use `async with`, or open()")
        return self._merger

    def _join(self) -> None:
        """Begin to read what the merger wants to be read."""
        merger = self._opened()
        for group in [
            group for group in merger.groups() if group not in self._cursors and self._is_lost(group)
        ]:
            merger.lose(group)  # an earlier change names it
        new = [group for group in merger.groups() if group not in self._cursors]
        metadata = self._directory.metadata
        for group in new:
            home = None if metadata is None else metadata.homes.get(group)
            self._cursors[group] = _Cursor(self, merger, group, home)
        self._reader.add([self._cursors[group] for group in new])

    # -- records

    async def poll(self, timeout_s: float = 0.0, *, limit: int = RECORDS_MAX) -> list[Record]:
        """Return the next records of the topic's order, at most `limit`; wait so long for the first.

        A message to several partitions comes once, with one of them.

        Raises:
            OffsetGoneError: retention has removed the next record.
            NoTopicError: the topic was deleted.
            PayloadError: the next records are damaged; the poll after this one goes on behind their message.
            MissingPackageError: the next records are compressed, and the package for that is not installed.
        """
        return await self._polled(timeout_s, limit)

    def position(self) -> MergePosition:
        """Return where another consumer continues behind what was returned so far."""
        return evolve(self._opened().position(), seen=self._seen)

    def _taken(self, limit: int) -> list[Record]:
        merger = self._opened()
        found: list[Record] = []
        while len(found) < limit and (delivery := merger.next()) is not None:
            if self._records is None:
                self._records = self._records_of(delivery)
            try:
                for record in islice(self._records, limit - len(found)):
                    found.append(record)
                    self._seen += 1
            except (PayloadError, MissingPackageError) as error:
                self._records = None
                if found:
                    break  # these first; the next poll comes to it again
                if isinstance(error, PayloadError):
                    self._pass()
                raise
            if len(found) < limit or self._seen >= delivery.message.span:
                self._pass()
        self._join()
        self._reader.kick()
        return found

    def _pass(self) -> None:
        """Go on behind the next message."""
        self._opened().take(1)
        self._records, self._seen = None, 0

    def _records_of(self, delivery: Delivery) -> Iterator[Record]:
        """Return the records of the next message that were not returned yet."""
        metadata = self._directory.metadata
        homes = {} if metadata is None else metadata.homes
        group = self._group_of(delivery.message.destinations)
        place = self._cursors[group].home or homes.get(group, (self.topic, -1))
        return records_of(delivery, *place, delivery.offset + self._seen)

    def _group_of(self, destinations: tuple[GroupId, ...]) -> GroupId:
        """Return the first partition of the topic that the message went to."""
        return next(group for group in destinations if group in self._cursors)

    def _raise_failure(self) -> None:
        if self._reader.failure is not None:
            raise self._reader.failure
        for cursor in self._cursors.values():
            if cursor.error is not None:
                raise cursor.error

    # -- idle partitions

    async def _need(self) -> None:
        """Ask partitions that hold the next message up to advance, again and again while they do."""
        pause = NEED_S
        last: dict[GroupId, int] = {}
        while not self._closed:
            needed = self._opened().needed()
            if not needed:
                last = {}
                pause = NEED_S
                await asyncio.sleep(NEED_S)
                continue
            pause = min(2 * pause, NEED_S_MAX) if needed == last else NEED_S
            last = needed
            servers: dict[ServerId, dict[GroupId, int]] = {}
            for group, time in needed.items():
                server = self._reader.server_of(group) or self._directory.leader(group)
                if server is not None:
                    servers.setdefault(server, {})[group] = time
            for server, times in servers.items():
                try:
                    await self._directory.link_to(server).ask(requests.need(times), 1.0)
                except LinkError:
                    continue  # other readers there go elsewhere, too
                except ClosedError:
                    return
            await asyncio.sleep(pause)
