"""Snapshot files: what is written is read, everything else is noticed, and trouble stays with the snapshot."""

from __future__ import annotations

import io
from random import Random

import msgpack
import pytest
import zstandard

from tests.simulation.disk import SimulatedDisk, Trouble
from tests.unit.storage.lifetime import (
    CLUSTER,
    header_of,
    image_of,
    open_store,
    snapshot_bytes,
    write_snapshot,
)
from tests.unit.storage.scenario import GROUP, OTHER, PATH, SMALL, Model, entries
from tests.unit.storage.test_segment_format import bitwise_crc32c
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.errors import (
    CorruptionError,
    DiskFullError,
    FsyncError,
    SnapshotGoneError,
    SnapshotRejectedError,
    WriteError,
)
from zraft.storage.snapshot_format import FOOTER_BYTES, SnapshotFileReader, decode_header, encode_header
from zraft.storage.snapshots import READ_AT_ONCE_MAX, SnapshotStore
from zraft.storage.wal import Wal

SNAP = f"{PATH}/groups/0/snap"


def meta(index: int, term: int = 1) -> SnapshotMeta:
    return SnapshotMeta(index, term, 2 * index + 1, b"members")


def store_with(*indices: int) -> tuple[SimulatedDisk, SnapshotStore]:
    disk = SimulatedDisk()
    _, store = open_store(disk)
    for index in indices:
        write_snapshot(store, meta(index))
    return disk, store


def reopened(disk: SimulatedDisk) -> SnapshotStore:
    disk.kill()
    return open_store(disk, seed=2)[1]


def test_what_was_written_is_read_after_a_restart() -> None:
    disk, store = store_with(3, 9)
    assert store.newest is not None
    again = reopened(disk)
    assert again.infos == store.infos
    assert again.newest == store.newest
    assert again.fallback == store.infos[0]
    for info in again.infos:
        assert b"".join(again.blocks(info)) == b"".join(image_of(info.meta))
        assert (info.items, info.digest, info.zxid) == (
            7,
            1 << 127 | info.meta.index,
            2 * info.meta.index + 1,
        )
        assert info.size == len(disk.contents(info.path))
    assert again.statistics().bytes == sum(info.size for info in again.infos)


def test_any_messagepack_library_reads_a_snapshot_and_the_checksums_are_the_documented_ones() -> None:
    disk, store = store_with(5)
    info = store.newest
    assert info is not None
    data = disk.contents(info.path)
    header, block, footer = msgpack.Unpacker(io.BytesIO(data))
    length = header["bytes"]
    assert header == {
        "format": 1,
        "bytes": length,
        "group": 0,
        "index": 5,
        "term": 1,
        "next_position": 11,
        "membership": b"members",
        "cluster": CLUSTER,
        "server": 1,
        "instance": bytes(16),
        "id": info.id,
        "feature_level": 1,
        "wall_time_ms": 1_700_000_000_000,
        "crc": bitwise_crc32c(data[: length - 4]),
    }
    seed = bitwise_crc32c(info.id)
    kind, number, size, crc, compressed = block
    image = b"".join(image_of(info.meta))
    assert (kind, number, size, zstandard.decompress(compressed)) == (1, 1, len(image), image)
    numbers = b"".join(value.to_bytes(4, "big") for value in (number, size, len(compressed)))
    assert crc == bitwise_crc32c(compressed, bitwise_crc32c(numbers, seed))
    digest = info.digest.to_bytes(16, "big")
    assert footer == [2, 1, 7, 11, len(image), digest, bitwise_crc32c(data[-FOOTER_BYTES:-4], seed)]


def test_pieces_are_gathered_into_blocks_and_never_split() -> None:
    _, store = store_with()
    pieces = [bytes([number]) * size for number, size in enumerate((100_000, 200_000, 5, 1 << 20, 7), 1)]
    store.begin(header_of(meta(4)))
    for piece in pieces:
        store.write(piece)
    blocks = list(store.blocks(store.finish(0, 0, 0)))
    assert blocks == [b"".join(pieces[:2]), b"".join(pieces[2:4]), pieces[4]]


def read_whole(disk: SimulatedDisk, path: str) -> bytes:
    with SnapshotFileReader(disk, path) as file:
        return b"".join(file.blocks())


def test_every_flipped_bit_is_noticed_with_file_and_offset() -> None:
    disk = SimulatedDisk()
    _, store = open_store(disk)
    store.begin(header_of(meta(4)))
    store.write(b"some znodes" * 3)
    path = store.finish(1, 2, 3).path
    data = disk.contents(path)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.replace(path, bytes(flipped))
        with pytest.raises(CorruptionError, match=rf"{path}: corrupt at offset \d+: ") as noticed:
            read_whole(disk, path)
        assert noticed.value.offset <= bit // 8
        assert reopened(disk).newest is None
    disk.replace(path, data)
    assert read_whole(disk, path) == b"some znodes" * 3


def test_file_cut_at_any_length_is_noticed() -> None:
    disk, store = store_with(4)
    path = store.infos[0].path
    data = disk.contents(path)
    for length in [*range(300), *range(len(data) - FOOTER_BYTES - 5, len(data))]:
        disk.replace(path, data[:length])
        with pytest.raises(CorruptionError):
            read_whole(disk, path)
    disk.replace(path, data + b"\0")
    with pytest.raises(CorruptionError, match="does not end with a footer"):
        read_whole(disk, path)


def test_missing_block_is_noticed_although_every_checksum_is_right() -> None:
    disk, store = store_with()
    store.begin(header_of(meta(4)))
    for number in range(3):
        store.write(bytes([number]) * 300_000)
    path = store.finish(1, 2, 3).path
    data = disk.contents(path)
    with SnapshotFileReader(disk, path) as file:
        _, ends = None, list(file.verify())
    for cut in (data[: ends[0]] + data[ends[1] :], data[: ends[1]] + data[ends[2] :]):
        disk.replace(path, cut)
        with pytest.raises(
            CorruptionError, match=r"no head of block 2|2 blocks of 600000 bytes, the footer says 3 of 900000"
        ):
            read_whole(disk, path)


@pytest.mark.parametrize(("format", "known"), [(0, 1), (2, 1)])
def test_snapshot_of_another_format_says_so(format: int, known: int) -> None:
    disk, store = store_with(4)
    path = store.infos[0].path
    data = bytearray(disk.contents(path))
    data[data.index(b"format") + 6] = format
    disk.replace(path, bytes(data))
    again = reopened(disk)
    assert again.newest is None
    assert f"snapshot of format {format}, this release knows {known}; start the release" in str(
        again.damaged[0]
    )


def test_header_round_trips_whatever_its_length() -> None:
    for size in (0, 31, 32, 255, 256, 70_000):
        header = header_of(SnapshotMeta(1 << 40, 1 << 33, 1 << 50, bytes(size)), group=OTHER)
        data = encode_header(header)
        assert decode_header(data + b"rest", "x") == (header, len(data))


# --- an older one instead of a damaged one


def damage(disk: SimulatedDisk, path: str) -> None:
    data = bytearray(disk.contents(path))
    data[len(data) // 2] ^= 4
    disk.replace(path, bytes(data))


def test_older_good_snapshot_is_used_if_the_newest_is_damaged() -> None:
    disk, store = store_with(3, 6, 9)
    damage(disk, store.infos[2].path)
    again = reopened(disk)
    assert [info.meta.index for info in again.infos] == [3, 6]
    assert [error.path for error in again.damaged] == [store.infos[2].path]
    assert "goes on with an older snapshot if its log still reaches back" in str(again.damaged[0])
    # It is written again, and stands where the damaged one stood.
    write_snapshot(again, meta(9))
    assert again.damaged == ()
    assert [info.meta.index for info in reopened(disk).infos] == [3, 6, 9]


def test_log_that_is_kept_back_to_the_second_newest_survives_the_loss_of_the_newest() -> None:
    for compact_to_newest in (False, True):
        disk = SimulatedDisk()
        directory, store = open_store(disk)
        wal, _ = Wal.open(disk, directory, settings=SMALL)
        model = Model()
        metas = []
        for _ in range(2):
            for _ in range(5):
                records = entries(model, GROUP, 1, 1500)
                wal.append(records)
                model.apply(records)
            metas.append(model.group(GROUP).meta(model.group(GROUP).last_index))
            write_snapshot(store, metas[-1])
            kept = store.newest if compact_to_newest else store.fallback
            if kept is not None:
                assert wal.compact(GROUP, kept.meta.index) > 0
        disk.kill()
        damage(disk, store.infos[1].path)
        directory, store = open_store(disk, seed=2)
        assert store.newest is not None
        assert store.newest.meta == metas[0]
        snapshots = {GROUP: store.newest.meta}
        if compact_to_newest:
            with pytest.raises(
                CorruptionError,
                match=r"the log begins after entry \d+ .* the newest good one ends at 5; .*join again",
            ):
                Wal.open(disk, directory, settings=SMALL, snapshots=snapshots)
        else:
            _, recovered = Wal.open(disk, directory, settings=SMALL, snapshots=snapshots)
            assert recovered.groups[GROUP].last_index == 10


def test_snapshot_that_rots_later_is_no_longer_offered_once_verified() -> None:
    disk, store = store_with(3, 6)
    newest = store.infos[1]
    store.verify(newest.id)
    damage(disk, newest.path)
    with pytest.raises(CorruptionError, match=newest.path):
        list(store.blocks(newest))
    with pytest.raises(CorruptionError, match=newest.path):
        store.verify(newest.id)
    assert store.newest == store.infos[0]
    assert store.newest.meta.index == 3


def test_renamed_file_is_refused() -> None:
    disk, store = store_with(3)
    disk.replace(f"{SNAP}/{9:016x}-{1:016x}.snap", disk.contents(store.infos[0].path))
    again = reopened(disk)
    assert [info.meta.index for info in again.infos] == [3]
    assert "the header says group 0, index 3, term 1: the file was renamed" in str(again.damaged[0])


def test_purge_keeps_the_newest_and_removes_damaged_ones_before_it() -> None:
    disk, store = store_with(3, 5, 6, 9)
    damage(disk, store.infos[1].path)
    with pytest.raises(CorruptionError):
        store.verify(store.infos[1].id)
    gone = store.infos[0]
    assert store.purge(2) == 2
    assert [info.meta.index for info in store.infos] == [6, 9]
    assert disk.listdir(SNAP) == [f"{index:016x}-{1:016x}.snap" for index in (6, 9)]
    with pytest.raises(SnapshotGoneError, match="is not here any more; take the newest"):
        store.read(gone.id, 0, 10)
    assert store.purge(2) == 0


def test_a_snapshot_that_is_purged_while_it_is_read_is_read_to_its_end() -> None:
    """A slow download would otherwise never end where snapshots are taken often; nobody else begins to read it."""
    disk, store = store_with(3, 5, 6, 9)
    slow, other, third, newest = store.infos
    whole = disk.contents(slow.path)
    read = store.read(slow.id, 0, 100)
    assert store.purge(1) == 3
    for gone in (other, third):
        with pytest.raises(SnapshotGoneError):
            store.read(gone.id, 0, 10)
    while piece := store.read(slow.id, len(read), 100):
        read += piece
        store.read(newest.id, 0, 10)
        if len(read) == slow.size:
            break
    assert read == whole
    with pytest.raises(SnapshotGoneError):
        store.read(slow.id, 0, 10)


def test_only_so_many_purged_snapshots_are_kept_open() -> None:
    _, store = store_with(3, 5, 6, 9)
    for info in store.infos[: READ_AT_ONCE_MAX + 1]:
        store.read(info.id, 0, 10)
    first, second = store.infos[:2]
    store.purge(1)
    with pytest.raises(SnapshotGoneError):
        store.read(first.id, 10, 10)
    assert len(store.read(second.id, 10, 10)) == 10
    store.close()


def test_temporaries_are_removed_and_foreign_files_left_alone() -> None:
    disk, _ = store_with(3)
    disk.replace(f"{SNAP}/x.snap.tmp", b"half")
    disk.replace(f"{SNAP}/notes", b"an operator's")
    again = reopened(disk)
    assert disk.listdir(SNAP) == [f"{3:016x}-{1:016x}.snap", "notes"]
    assert len(again.infos) == 1


# --- from another server


def test_snapshot_is_received_in_pieces_and_resumed() -> None:
    info, data = snapshot_bytes(meta(40))
    disk, store = store_with(3)
    assert store.receive(info.id, info.size) == 0
    assert store.store(info.id, 0, data[:100]) == 100
    assert store.store(info.id, 0, data[:100]) == 100  # repeated
    assert store.store(info.id, 300, data[300:400]) == 100  # out of turn
    assert store.receive(info.id, info.size) == 100
    assert store.store(info.id, 100, data[100:]) == info.size
    received = store.complete(info.id)
    assert received == info
    assert store.complete(info.id) == received
    assert store.receive(info.id, info.size) == info.size
    assert store.newest == received
    assert b"".join(store.blocks(received)) == b"".join(image_of(info.meta))
    assert store.read(info.id, 10, 50) == data[10:60]
    assert store.read(info.id, info.size, 50) == b""
    assert reopened(disk).newest == received


def test_another_offer_replaces_what_was_being_received() -> None:
    (first, data), (second, other) = snapshot_bytes(meta(40)), snapshot_bytes(meta(50))
    disk, store = store_with()
    store.receive(first.id, first.size)
    store.store(first.id, 0, data[:100])
    assert store.receive(second.id, second.size) == 0
    with pytest.raises(SnapshotGoneError, match="is not being received"):
        store.store(first.id, 100, data[100:])
    store.store(second.id, 0, other)
    store.complete(second.id)
    assert disk.listdir(SNAP) == [f"{50:016x}-{1:016x}.snap"]


def test_damaged_incomplete_or_foreign_snapshot_is_rejected_and_not_kept() -> None:
    info, data = snapshot_bytes(meta(40))
    disk, store = store_with(3)
    store._directory.set_cluster(b"d" * 16)
    wrong = bytearray(data)
    wrong[len(data) // 2] ^= 1
    for sent, why in (
        (bytes(wrong), "arrived damaged"),
        (data[:-1], "has .* bytes of"),
        (data, f"of cluster {CLUSTER.hex()}, expected {(b'd' * 16).hex()}"),
    ):
        store.receive(info.id, info.size)
        store.store(info.id, 0, sent)
        with pytest.raises(SnapshotRejectedError, match=why) as rejected:
            store.complete(info.id)
        assert rejected.value.retriable
        assert len(disk.listdir(SNAP)) == 1
    other = b"\1" * 16
    store.receive(other, info.size)
    store.store(other, 0, data)
    with pytest.raises(SnapshotRejectedError, match="of snapshot id"):
        store.complete(other)


# --- trouble


def everything(store: SnapshotStore) -> None:
    info, data = snapshot_bytes(meta(40))
    write_snapshot(store, meta(9))
    have = store.receive(info.id, info.size)
    while have < info.size:
        have = store.store(info.id, have, data[have : have + 5000])
    store.complete(info.id)
    store.purge(1)


def steps_of_everything() -> int:
    disk, store = store_with(3)
    before = disk.statistics().steps
    everything(store)
    return disk.statistics().steps - before


@pytest.mark.parametrize("trouble", [Trouble.ENOSPC, Trouble.EIO])
def test_trouble_at_every_step_is_a_declared_error_and_a_full_disk_hurts_nothing_else(
    trouble: Trouble,
) -> None:
    """D-10: a failed fsync ends the process; a full disk takes the unfinished snapshot only."""
    errors = set()
    for step in range(1, steps_of_everything() + 1):
        disk = SimulatedDisk()
        directory, store = open_store(disk)
        wal, _ = Wal.open(disk, directory, settings=SMALL)
        write_snapshot(store, meta(3))
        disk.fail_at(step, trouble, Random(step))
        with pytest.raises((DiskFullError, WriteError, FsyncError), match=SNAP) as raised:
            everything(store)
        errors.add(raised.type)
        if raised.type is DiskFullError:
            assert raised.value.retriable
            wal.append(entries(Model(), GROUP, 1, 100))
            store.close()
            everything(store)
            assert len(disk.listdir(SNAP)) == 1
    assert errors == ({DiskFullError, FsyncError} if trouble is Trouble.ENOSPC else {WriteError, FsyncError})


def test_snapshot_on_a_full_disk_is_taken_away_and_what_was_there_stays() -> None:
    disk, store = store_with(3)
    disk.full = True
    info, _ = snapshot_bytes(meta(40))
    for attempt in (lambda: write_snapshot(store, meta(9)), lambda: store.receive(info.id, info.size)):
        with pytest.raises(DiskFullError, match="no space left"):
            attempt()
        assert len(disk.listdir(SNAP)) == 1
        assert store.statistics().bytes == store.infos[0].size
    disk.full = False
    write_snapshot(store, meta(9))
    assert [entry.meta.index for entry in reopened(disk).infos] == [3, 9]


def test_aborted_snapshot_leaves_nothing() -> None:
    disk, store = store_with()
    store.begin(header_of(meta(4)))
    store.write(b"x" * 500_000)
    assert store.statistics().bytes > 0
    store.abort()
    assert disk.listdir(SNAP) == []
    assert store.statistics().bytes == 0
