"""The part of `zraft snapshot save` that reads topics, as a client of the servers, into an archive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click
from attrs import define

from zraft.cli.client_options import Access
from zraft.offline.archive import ArchiveWriter, PartitionWriter
from zraft.offline.manifest import Manifest, SavedPartition
from zraft.storage.delivery.values import StoredDelivery
from zraft.topics.anew import KeptTopic
from zraft_core.errors import ZraftError
from zraft_core.ids import GroupId
from zraft_core.topics.registry_values import Retention

if TYPE_CHECKING:
    from zraft_client.topics.cutting import TopicsCut
    from zraft_client.topics.directory import Directory
    from zraft_client.topics.values import Topic
    from zraft_core.topics.message import Delivery

Advance = Callable[[int, int], None]

ATTEMPTS_MAX: Final = 3
"""How often a partition is begun anew of which retention removes what comes next."""
HINT: Final = (
    "topics are read as a client reads them: give --tls-ca if servers require TLS, --auth or --tls-certificate if they "
    "require to know who reads; --no-topics saves the znodes alone"
)


def read_topics(access: Access, archive: ArchiveWriter, snapshot: bytes, advance: Advance) -> Manifest:
    """Write all topics up to one time to the archive, whose snapshot has this digest; return the manifest, not yet written.

    Args:
        advance: is told up to which offsets partitions are saved, and at which they ended, each time the sum.

    Raises:
        ZraftError: a partition cannot be read, or the archive not be written.
    """
    return asyncio.run(_read(access, archive, snapshot, advance))


async def _read(access: Access, archive: ArchiveWriter, snapshot: bytes, advance: Advance) -> Manifest:
    from zraft_client.client import Client
    from zraft_client.errors import ClientError
    from zraft_client.topics import Topics
    from zraft_client.topics.cutting import cut_topics

    # Without a session: nothing is written to the cluster.
    client = Client(
        access.connect, session=False, auth=access.auth, tls=access.tls, timeout_s=access.timeout_s
    )
    try:
        async with client, Topics(client) as topics:
            cut = await cut_topics(topics.directory, access.timeout_s)
            return await _Saving(topics.directory, archive, access.timeout_s, cut, advance).save(snapshot)
    except ClientError as error:
        raise ZraftError(f"{error}; {HINT}") from error


@define
class _Saving:
    """One save of all partitions of a cut, one after the other. `passed` counts the offsets that were passed."""

    directory: Directory
    archive: ArchiveWriter
    timeout_s: float
    cut: TopicsCut
    advance: Advance
    passed: int = 0

    async def save(self, snapshot: bytes) -> Manifest:
        """Save them; return the manifest."""
        saved_ms = time.time_ns() // 1_000_000
        topics: list[KeptTopic] = []
        partitions: list[SavedPartition] = []
        for topic in self.cut.topics:
            found = await self._topic(topic, saved_ms)
            if found is None:
                click.echo(f"topic {topic.name}: was deleted meanwhile, and is left out", err=True)
                continue
            partitions += found
            retention = Retention(topic.retention_bytes, topic.retention_age_ms)
            groups = tuple(one.group for one in found)
            topics.append(KeptTopic(topic.id, topic.name, topic.wanted, groups, retention))
        return Manifest(
            snapshot, self.cut.cut.time, saved_ms, self.cut.features, tuple(topics), tuple(partitions)
        )

    @property
    def _offsets(self) -> int:
        """The sum of the offsets at which partitions ended before the cut."""
        return sum(one.end for one in self.cut.consumption.values())

    async def _topic(self, topic: Topic, saved_ms: int) -> list[SavedPartition] | None:
        """Return what was saved of a topic; None, and nothing is in the archive, if it was deleted."""
        from zraft_client.topics.errors import NoTopicError

        begin, found = self.archive.size, []
        try:
            for number, group in enumerate((*topic.partitions, *topic.adding)):
                saved = await self._partition(topic.name, number, group, saved_ms)
                # The change that adds a partition is the first that it delivers. One that has nothing below the cut does
                # not belong to the topic there, and the new cluster adds another one.
                if number < len(topic.partitions) or saved.end:
                    found.append(saved)
        except NoTopicError:
            self.archive.cut(begin)
            return None
        return found

    async def _partition(self, topic: str, number: int, group: GroupId, saved_ms: int) -> SavedPartition:
        from zraft_client.topics.errors import OffsetGoneError

        begin, called = self.archive.size, f"{topic}/{number}"
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await self._copy(group, called, saved_ms)
            except OffsetGoneError:
                self.archive.cut(begin)
                if attempt == ATTEMPTS_MAX:
                    raise
                click.echo(f"{called}: retention removed what came next; it is begun anew", err=True)
        raise AssertionError

    async def _copy(self, group: GroupId, called: str, saved_ms: int) -> SavedPartition:
        from zraft_client.topics.cutting import deliveries_below, first_offset
        from zraft_core.claims.anew import claims_anew
        from zraft_core.claims.snapshot import encode_snapshot
        from zraft_core.topics.cut import after_conditions

        directory, cut, timeout_s = self.directory, self.cut.cut, self.timeout_s
        consumption = self.cut.consumption[group]
        offsets = dict(consumption.offsets)
        first = await first_offset(directory, group, called, timeout_s)
        writer = PartitionWriter(self.archive, group, first)
        async for deliveries in deliveries_below(directory, cut, group, called, timeout_s, first):
            for delivery in deliveries:
                writer.add(_stored(delivery, writer.number, saved_ms))
            after_conditions(offsets, group, deliveries)
            self.advance(self.passed + writer.end, self._offsets)
        end = writer.end
        self.passed += end
        for name in [name for name, offset in offsets.items() if offset > end]:
            click.echo(
                f"{called}: consumer {name.decode(errors='backslashreplace')} is at offset {offsets[name]}, beyond the "
                f"end; it is saved at {end}",
                err=True,
            )
            offsets[name] = end
        claims = claims_anew(consumption.groups, end)
        return writer.finish(offsets, encode_snapshot(claims))


def _stored(delivery: Delivery, part: int, saved_ms: int) -> StoredDelivery:
    """Return a delivery as it is stored. When it came is not told to clients, so it counts as young as the backup."""
    from zraft_core.topics.codec import encode_message

    message = delivery.message
    return StoredDelivery(
        delivery.offset,
        (delivery.stamp.time, delivery.stamp.group, delivery.stamp.sub, delivery.stamp.single),
        *message.mid,
        encode_message(message),
        part,
        saved_ms,
        message.span,
    )
