"""Topics and partitions as another cluster begins with them: what was delivered stays, whoever had to do with it goes.

Pure. Ids, epochs and times are above all that the old cluster can have given out after the copy was made (D-15, D-18), so
what was lost is never taken for something else: its producers are retired, its views are older, and its stamps are lower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from zraft.topics.partition import Partition
from zraft.topics.registry import TIMES_SKIPPED, Registry
from zraft_core.ids import EPOCHS_SKIPPED, GroupId, Instance, ServerId
from zraft_core.topics.registry_values import GroupRecord, Retention, Topic
from zraft_core.topics.stamps import AFTER_ALL_GROUPS, TIME_MAX, FinalTime


@frozen
class KeptTopic:
    """A topic to go on with: its id, its partitions in their order, and how many there are to be."""

    topic: int
    name: str
    wanted: int
    partitions: tuple[GroupId, ...]
    retention: Retention


@frozen
class KeptPartition:
    """The state of a partition to go on with: where its deliveries end, and how far consumers are that say so by offset."""

    group: GroupId
    next_offset: int
    chain: bytes
    offsets: Mapping[bytes, int]
    log_time_ms: int


def time_anew(time: int) -> int | None:
    """Return the time above which a cluster delivers that begins with a copy of everything up to `time`; None at the end."""
    anew = time + TIMES_SKIPPED
    return anew if anew <= TIME_MAX else None


def registry_anew(
    old: Registry, topics: Iterable[KeptTopic], disk: tuple[ServerId, Instance], zxid: int
) -> Registry:
    """Return the registry with these topics, each partition on `disk` alone; placement gives it more (D-18).

    Old producers are not in it, nor deletions and changes that were under way. As its position is `zxid`, which is above
    all of the old cluster's, their ids count as retired and removed.
    """
    registry = Registry(old.settings, old.group_settings)
    registry.position = zxid
    registry.epoch = old.epoch + EPOCHS_SKIPPED
    registry.last_change = old.last_change + EPOCHS_SKIPPED
    if old.last_loss:
        registry.last_loss, registry.times = zxid, old.times + TIMES_SKIPPED
    disks = (disk,)
    for one in topics:
        registry.restore_topic(
            Topic(one.topic, one.name, one.wanted, one.partitions, retention=one.retention)
        )
        for group in one.partitions:
            record = GroupRecord(group, one.topic, disks, disk[0], disks, born=True)
            if group in old.groups:
                record = evolve(record, first_offset=old.groups[group].first_offset)
            registry.restore_group(record)
    registry.forget_history()
    return registry


def partition_anew(kept: KeptPartition, registry: Registry, time: int) -> Partition:
    """Return a partition that has delivered up to `time`, and in which nothing is under way and no producer is known."""
    partition = Partition(kept.group, registry.view(), settings=registry.group_settings)
    partition.clock = time
    partition.floor = FinalTime(time, AFTER_ALL_GROUPS)
    partition.next_offset = kept.next_offset
    partition.chain = kept.chain
    partition.offsets.update(kept.offsets)
    partition.restore_log_time(kept.log_time_ms)
    return partition
