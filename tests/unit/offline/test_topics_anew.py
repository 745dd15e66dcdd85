"""A cluster that is made of a backup has the old one's topics, and nothing of who had to do with them (D-15, D-18)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.offline.backups import (
    PRODUCER,
    SAVED_MS,
    TOPICS,
    A,
    B,
    C,
    Kept,
    backup,
    delivery,
    several,
    snapshot_file,
)
from tests.unit.offline.states import FOUNDERS, ONE, ORIGIN, rich
from tests.unit.offline.test_founding import CutShort, CutShortError
from tests.unit.topics.groups import apply
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.groups.recovery import Recovery, recover
from zraft.offline import archive as archives
from zraft.offline.archive import ArchiveReader
from zraft.offline.errors import OfflineError
from zraft.offline.founding import Founded, check_empty, claimed, found
from zraft.offline.topics_anew import TopicsToKeep, topics_of
from zraft.raft.membership.value import Membership
from zraft.server.partitions.machine import PartitionMachine, mark_of_image
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.values import StoredDelivery
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import ReadOnlyFileSystem, RealFileSystem
from zraft.storage.settings import WalSettings
from zraft.topics.anew import registry_anew
from zraft.topics.applied import StartVerdict
from zraft.topics.placement import Disk, PlacementSituation, decide
from zraft.topics.registry import TIMES_SKIPPED, Registry
from zraft_core.claims.anew import POSITIONS_SKIPPED
from zraft_core.claims.answers import ClaimsView
from zraft_core.errors import StorageError
from zraft_core.ids import EPOCHS_SKIPPED, GroupId, Instance, ProducerId, ServerId
from zraft_core.topics.commands import Start, ViewChanged
from zraft_core.topics.message import COORDINATOR, Message
from zraft_core.topics.registry_commands import PlaceGroup, RegisterProducer
from zraft_core.topics.stamps import MessageId

CUT = 1_000
READERS = ClaimsView("readers", (), None, 9, 4, ((6, 8),), 0, 0, 0, 700, 12, 55)


def restored(path: Path, file: Path, fs: RealFileSystem | None = None) -> Founded:
    """As `zraft snapshot restore` does it."""
    fs = RealFileSystem() if fs is None else fs
    with ArchiveReader(ReadOnlyFileSystem(), str(file)) as archive, claimed(fs, str(path)):
        check_empty(fs, str(path))
        return found(
            fs,
            str(path),
            rich(),
            FOUNDERS,
            ORIGIN,
            replaces=None,
            entropy=os.urandom,
            wall_ms=SAVED_MS + 5,
            topics=topics_of(archive),
        )


class Server:
    """What a server finds when it starts in a directory."""

    def __init__(self, path: Path) -> None:
        fs = RealFileSystem()
        self.directory = DataDirectory.open(fs, str(path), server=ONE, entropy=os.urandom)
        self.recovery: Recovery = recover(fs, self.directory, WalSettings())
        self.disk = DeliveryDisk(fs, self.directory)
        machine = self.recovery.coordination.machine
        assert machine is not None
        self.tree = machine
        self.registry: Registry = machine.registry

    def group(self, group: GroupId) -> tuple[PartitionMachine, DeliveryLog, Membership, int]:
        """A partition, its deliveries, who votes in its group, and the next position of its log."""
        stored = self.recovery.groups.take(group)
        assert stored.snapshot is not None
        meta, image = stored.snapshot
        assert stored.log.first_index == meta.index + 1
        log, _ = self.disk.open(group, expected=mark_of_image(group, image, meta.index))
        machine = PartitionMachine(group)
        machine.prepare_restore(image)()
        return machine, log, Membership.decode(meta.membership), meta.next_position

    def close(self) -> None:
        self.disk.close_all()
        self.recovery.wal.close()
        self.directory.close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The first server of the new cluster."""
    monkeypatch.setattr(archives, "PART_BYTES", 300)
    file = tmp_path / "backup"
    partitions = {
        A: Kept(several(A, 20), offsets={b"billing": 7}, views=(READERS,)),
        B: Kept(several(B, 3, first=40), first=40),
        C: Kept(),
    }
    backup(file, snapshot_file(tmp_path / "old"), partitions, time=CUT)
    restored(tmp_path / "new", file)
    return Server(tmp_path / "new")


def records(log: DeliveryLog) -> list[StoredDelivery]:
    found: list[StoredDelivery] = []
    while (following := found[-1].end if found else log.base.offset) < log.end.offset:
        found += log.read(following)
    return found


def test_topics_keep_their_ids_partitions_and_retention_on_the_founders_disk(server: Server) -> None:
    registry, disks = server.registry, ((ONE, server.directory.instance),)
    assert {t.name: (t.topic, t.wanted, t.partitions, t.retention) for t in registry.topics.values()} == {
        t.name: (t.topic, t.wanted, t.partitions, t.retention) for t in TOPICS
    }
    for record in registry.groups.values():
        assert (record.founders, record.wanted, record.former, record.preferred) == (disks, disks, (), ONE)
        assert record.born
    assert server.tree.digest() == server.tree.full_digest()
    assert server.tree.feature_level == FEATURE_LEVEL_MAX
    server.close()


def test_every_partition_has_its_deliveries_at_their_offsets_and_one_voter(server: Server) -> None:
    for group, expected in ((A, several(A, 20)), (B, several(B, 3, first=40)), (C, [])):
        machine, log, membership, _ = server.group(group)
        found = records(log)
        assert [(one.offset, one.stamp, one.payload) for one in found] == [
            (one.offset, one.stamp, one.payload) for one in expected
        ]
        assert {one.time for one in found} <= {SAVED_MS}
        assert machine.next_offset == (expected[-1].end if expected else 0)
        assert membership.voters == (ONE,)
        assert membership.members[ONE].instance == server.directory.instance
    server.close()


def test_a_partition_goes_on_above_the_cut_and_above_what_was_lost(server: Server) -> None:
    machine, log, _, _ = server.group(A)
    partition = machine.partition
    assert partition is not None
    assert partition.frontier()[:1] == (CUT + TIMES_SKIPPED,)
    assert partition.clock == CUT + TIMES_SKIPPED
    for left in (partition.pending.entries, partition.settled.entries, partition.rows):
        assert not left
    producer = ProducerId(server.registry.position + 1)
    server.registry.apply(RegisterProducer(77), producer)
    apply(partition, ViewChanged(server.registry.view()))
    applied = apply(
        partition, Start(Message(MessageId(producer, 1), (A,), b"new", 1), 0, server.registry.epoch)
    )
    (one,) = applied.delivered
    assert one.offset == 20
    assert one.stamp > log.end.stamp  # type: ignore[operator]
    log.append(
        [StoredDelivery(one.offset, (*one.stamp,), producer, 1, b"new", log.durable_index + 1, SAVED_MS)],
        log.durable_index + 1,
    )
    assert log.end.offset == 21
    server.close()


def test_producers_of_the_old_cluster_are_retired_for_good(server: Server) -> None:
    machine, _, _, _ = server.group(A)
    partition = machine.partition
    assert partition is not None
    assert set(server.registry.producers) == {COORDINATOR}
    for old in (PRODUCER, ProducerId(PRODUCER + 1_000)):
        assert partition.retired(old), "also one that was registered after the backup"
        again = Message(MessageId(old, 99), (A,), b"late", 21)
        assert partition.verdict(again, 0, server.registry.epoch) is StartVerdict.KNOWN
    server.close()


def test_ids_epochs_and_changes_are_above_those_of_the_old_cluster() -> None:
    old = Registry()
    old.position, old.epoch, old.last_change = 50, 3, 4
    new = registry_anew(old, TOPICS, (ONE, Instance(b"i" * 16)), 1 << 60)
    assert (new.position, new.epoch, new.last_change) == (1 << 60, 3 + EPOCHS_SKIPPED, 4 + EPOCHS_SKIPPED)
    assert new.changes_floor == new.last_change
    assert new.view().groups == {A, B, C}
    assert new.table().removed(GroupId(C + 1)), "what was created after the backup counts as removed"
    assert new.view_since(A) == new.view()


def test_consumers_go_on_where_they_were(server: Server) -> None:
    machine, _, _, position = server.group(A)
    partition, claims = machine.partition, machine.claims
    assert partition is not None
    assert claims is not None
    assert partition.offsets == {b"billing": 7}
    view = claims.view("readers")
    assert (view.floor, view.islands, view.claims, view.heartbeat_ms) == (4, ((6, 8),), (), 700)
    assert position == READERS.position + POSITIONS_SKIPPED + 1
    assert machine.log_time_ms == READERS.log_time_ms, "log time never goes back"
    server.close()


def test_placement_gives_the_partitions_to_the_others_once_they_have_joined(server: Server) -> None:
    disks = {ONE: Disk(server.directory.instance), ServerId(2): Disk(Instance(b"2" * 16))}
    commands = decide(PlacementSituation(server.registry, disks, 2))
    placed = [one for one in commands if isinstance(one, PlaceGroup)]
    assert {one.group for one in placed} == {A, B, C}
    assert all(len(one.wanted) == 2 for one in placed)
    assert not decide(PlacementSituation(server.registry, {ONE: disks[ONE]}, 3)), (
        "alone there is nothing to do"
    )
    server.close()


def test_a_damaged_part_leaves_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "backup"
    backup(file, snapshot_file(tmp_path / "old"), {A: Kept(several(A, 20)), B: Kept(), C: Kept()})
    data = bytearray(file.read_bytes())
    at = data.index(b"topics/") + 512 + 30
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptionError, match=str(file)):
        restored(tmp_path / "new", file)
    assert not (tmp_path / "new").exists()


def test_cut_short_anywhere_it_refuses_to_start_and_can_be_repeated(tmp_path: Path) -> None:
    file = tmp_path / "backup"
    backup(
        file,
        snapshot_file(tmp_path / "old"),
        {A: Kept(several(A, 20)), B: Kept(several(B, 3, 40), 40), C: Kept()},
    )
    whole = CutShort(0)
    restored(tmp_path / "whole", file, whole)
    for at in range(1, whole.changes, 7):
        path = tmp_path / f"cut-{at}"
        with pytest.raises(CutShortError):
            restored(path, file, CutShort(at))
        if path.is_dir() and "founding" in os.listdir(path):
            with pytest.raises(StorageError, match="cut short"):
                DataDirectory.open(RealFileSystem(), str(path), server=ONE, entropy=os.urandom)
        restored(path, file)
        server = Server(path)
        assert [one.offset for one in records(server.group(A)[1])] == list(range(20))
        assert [one.offset for one in records(server.group(B)[1])] == [40, 41, 42]
        server.close()


def test_times_that_are_used_up_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "backup"
    kept = Kept([delivery(A, 0, time=2**62 - 5)])
    backup(file, snapshot_file(tmp_path / "old"), {A: kept, B: Kept(), C: Kept()}, time=2**62 - 4)
    with pytest.raises(OfflineError, match="none is left that is far enough above it"):
        restored(tmp_path / "new", file)
    assert not (tmp_path / "new").exists()


def test_a_backup_of_a_newer_level_is_refused(tmp_path: Path) -> None:
    newer = TopicsToKeep(CUT, FEATURE_LEVEL_MAX + 1, (), (), lambda _: iter(()))
    fs = RealFileSystem()
    with pytest.raises(OfflineError, match="feature level"), claimed(fs, str(tmp_path / "new")):
        found(
            fs,
            str(tmp_path / "new"),
            rich(),
            FOUNDERS,
            ORIGIN,
            replaces=None,
            entropy=os.urandom,
            wall_ms=1,
            topics=newer,
        )
