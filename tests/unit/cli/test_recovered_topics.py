"""What `zraft recover` makes of the partitions in a directory: what one has delivered is at all that are here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.offline.backups import PRODUCER, TOPICS, A, B, C
from tests.unit.offline.states import CLUSTER, ONE, server_directory
from tests.unit.topics.groups import remote
from zraft.cli.recovered_topics import RecoveredTopics, recovered_topics
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.server.partitions.machine import PartitionMachine
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.values import StoredDelivery
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.records import EntryRecord, HardStateRecord
from zraft.storage.wal import Wal
from zraft.topics.anew import registry_anew
from zraft.topics.entries import BatchEntry, BirthEntry, PartitionEntry, encode_entry
from zraft.topics.registry import Registry
from zraft.tree.machine import Machine
from zraft_core.ids import GroupId, Instance, ProducerId
from zraft_core.topics.codec import decode_message
from zraft_core.topics.commands import Advance, Batch, PartitionCommand, Start
from zraft_core.topics.message import Condition, Message
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.stamps import MessageId
from zraft_core.topics.view import View

VIEW = View(PRODUCER, 0, frozenset((ProducerId(0), PRODUCER)), frozenset(), frozenset((A, B, C)))
BIRTH = BirthEntry(1, 0, VIEW, PartitionSettings(), born=True, heartbeat_ms=500)


def message(seq: int, *groups: GroupId, number: int = 0, step: Condition | None = None) -> Message:
    return Message(MessageId(PRODUCER, seq), groups, b"payload %d" % seq, number, condition=step)


def single(seq: int, group: GroupId, number: int, step: Condition | None = None) -> Start:
    return Start(message(seq, group, number=number, step=step), 0, 0)


class Directory:
    """The directory of a server with replicas of partitions."""

    def __init__(self, path: Path, *, holds: bool = True) -> None:
        instance = server_directory(path, count=1)
        self.path = path
        self.machine = Machine()
        disk = ONE, instance if holds else Instance(b"old disk of one!")
        self.machine.registry.become(registry_anew(Registry(), TOPICS, disk, 1 << 40))

    def replica(
        self, group: GroupId, *batches: Sequence[PartitionCommand], stored: int | None = None
    ) -> None:
        """Add a group whose log has these entries; its segments have as many deliveries as `stored` says, or all."""
        fs = RealFileSystem()
        directory = DataDirectory.open(fs, str(self.path), server=ONE, entropy=os.urandom)
        wal, _ = Wal.open(fs, directory)
        wal.append([HardStateRecord(group, HardState(1, ONE))])
        machine = PartitionMachine(group)
        entries: list[PartitionEntry] = [BIRTH, *(BatchEntry(1, Batch(1, tuple(one))) for one in batches)]
        position = 1
        for index, one in enumerate(entries, 1):
            entry = Entry(index, 1, EntryKind.COMMANDS, position, one.count, encode_entry(one))
            position = entry.next_position
            wal.append([EntryRecord(group, entry)])
            assert machine.apply(entry), machine.error
        wal.close()
        delivered = [one for applied in machine.take_fresh() for one in applied.deliveries]
        disk = DeliveryDisk(fs, directory)
        disk.open(group)
        for delivery in delivered[:stored]:
            disk.append(group, [delivery], delivery.index)
        disk.close_all()
        directory.close()

    def recovered(self) -> RecoveredTopics:
        fs = RealFileSystem()
        directory = DataDirectory.open(fs, str(self.path), server=ONE, entropy=os.urandom)
        try:
            found = recovered_topics(fs, directory, self.machine)
        finally:
            directory.close()
        assert found is not None
        return found


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "data")


def read(found: RecoveredTopics, group: GroupId) -> list[StoredDelivery]:
    return [one for part in found.topics.read(group) for one in part]


def seqs(found: RecoveredTopics, group: GroupId) -> list[int]:
    return [one.number for one in read(found, group)]


def test_a_message_that_one_partition_here_has_delivered_is_delivered_at_the_others_here(
    directory: Directory,
) -> None:
    both, undecided = message(1, A, B), message(2, A, B)
    directory.replica(A, [Start(both, 0, 0), remote(both, B, 3)], [single(5, A, 1)], [Start(undecided, 0, 0)])
    directory.replica(B, [single(6, B, 1), Start(both, 0, 0)], [Start(undecided, 0, 0)])
    found = directory.recovered()
    assert seqs(found, A) == [1, 5]
    assert seqs(found, B) == [6, 1], "in the order of stamps; what nobody here has delivered is nowhere"
    at_a, at_b = read(found, A)[0], read(found, B)[1]
    assert (at_a.stamp, at_a.payload) == (at_b.stamp, at_b.payload)
    assert at_b.offset == 1
    assert decode_message(at_b.payload) == both
    assert found.topics.time >= at_a.stamp[0]
    assert "orders/1: offsets 0 to 2; 1 of the messages were delivered only at other partitions here" in (
        "\n".join(found.lines)
    )


def test_a_message_that_was_delivered_here_is_not_delivered_again(directory: Directory) -> None:
    both = message(1, A, B)
    directory.replica(A, [Start(both, 0, 0), remote(both, B, 1)], [Advance(50), single(5, A, 1)])
    directory.replica(B, [Start(both, 0, 0), remote(both, A, 1)])
    found = directory.recovered()
    assert seqs(found, A) == [1, 5]
    assert seqs(found, B) == [1]


def test_what_only_the_log_holds_is_read_from_it(directory: Directory) -> None:
    directory.replica(A, *([single(n, A, n)] for n in range(1, 8)), stored=3)
    found = directory.recovered()
    assert seqs(found, A) == list(range(1, 8))
    assert [one.offset for one in read(found, A)] == list(range(7))


def test_a_partition_that_is_not_here_begins_empty_and_that_is_said(directory: Directory) -> None:
    directory.replica(A, [single(1, A, 1)])
    found = directory.recovered()
    assert [one.partitions for one in found.topics.topics] == [(A, B), (C,)]
    assert seqs(found, C) == []
    assert "audit/0: HAS NO REPLICA HERE, begins empty at offset 0" in found.lines


def test_a_disk_that_had_left_a_partition_is_said_to_have_less(tmp_path: Path) -> None:
    directory = Directory(tmp_path / "data", holds=False)
    directory.replica(A, [single(1, A, 1)])
    (line,) = (line for line in directory.recovered().lines if line.startswith("orders/0"))
    assert "offsets 0 to 1; THIS DISK HAD LEFT the partition" in line


def test_a_step_counts_if_its_message_stays_and_not_if_it_goes(directory: Directory) -> None:
    """D-9d, over the loss of everything else: a step and its result stay together."""
    done = message(1, A, B, step=Condition(B, b"done", 0, 4))
    lost = message(2, A, B, step=Condition(B, b"lost", 0, 4))
    unheard = message(3, A, B, step=Condition(B, b"unheard", 0, 9))
    directory.replica(
        A,
        [Start(done, 0, 0), remote(done, B, 1, void=False)],
        [Start(unheard, 0, 0), remote(unheard, B, 7, void=False)],
    )
    directory.replica(B, [Start(done, 0, 0)], [Start(lost, 0, 0)])
    found = directory.recovered()
    assert seqs(found, B) == [1, 3]
    (kept,) = (one for one in found.topics.partitions if one.group == B)
    # Offsets go no further than the partition.
    assert {name: offset for name, offset in kept.offsets.items() if offset} == {b"done": 2, b"unheard": 2}


def test_segments_that_do_not_reach_the_log_are_damage(directory: Directory) -> None:
    directory.replica(A, [single(1, A, 1)], [single(2, A, 2)])
    (manifest,) = directory.path.glob(f"groups/{A}/deliveries/*.seg")
    manifest.unlink()
    with pytest.raises(CorruptionError, match="the file is missing"):
        directory.recovered()


def test_a_cluster_without_topics_has_none(tmp_path: Path) -> None:
    server_directory(tmp_path / "data", count=1)
    fs = RealFileSystem()
    opened = DataDirectory.open(fs, str(tmp_path / "data"), server=ONE, entropy=os.urandom)
    assert opened.cluster == CLUSTER
    assert recovered_topics(fs, opened, Machine()) is None
    opened.close()
