"""What was durable and is damaged stops, and names file and offset; what a crash may do to the rest is cut (D-10)."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.delivery.scenario import (
    DIRECTORY,
    GROUP,
    SMALL,
    between,
    feed,
    history,
    open_log,
    read_all,
)
from tests.unit.storage.scenario import PATH
from zraft.storage.delivery.frames import HEADER_BYTES
from zraft.storage.delivery.inspection import groups_with_deliveries, read_group, verify_deliveries
from zraft.storage.delivery.manifest import load_manifest, store_manifest
from zraft.storage.errors import CorruptionError
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

HISTORY = history(80)
LAST = HISTORY[-1].index
ROOMY = evolve(SMALL, segment_bytes_max=1 << 20, sync_bytes_max=1 << 20, checkpoint_bytes=1 << 20)


def written(*, close: bool = True) -> SimulatedDisk:
    disk = SimulatedDisk()
    log = open_log(disk).log
    feed(log, HISTORY)
    log.sync()
    if close:
        log.close()
    disk.kill()
    return disk


def segment_names(disk: SimulatedDisk) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk.listdir(DIRECTORY) if name.endswith(".seg")]


def flip(disk: SimulatedDisk, path: str, at: int) -> None:
    data = bytearray(disk.contents(path))
    data[at] ^= 4
    disk.replace(path, bytes(data))


def damage_found(disk: SimulatedDisk) -> list[CorruptionError]:
    found = list(verify_deliveries(disk, PATH, GROUP))
    assert len(found) == len(segment_names(disk))
    return [finding.damage for finding in found if finding.damage is not None]


def test_a_whole_directory_has_no_damage_while_written_and_after() -> None:
    for close in (True, False):
        disk = written(close=close)
        assert damage_found(disk) == []
        assert groups_with_deliveries(disk, PATH) == [GROUP]
        placed = list(read_group(disk, PATH, GROUP))
        assert [one.delivery for one in placed] == HISTORY
        assert placed[-1].chain == open_log(disk, seed=2).log.end.chain


def test_a_range_is_read_across_segments() -> None:
    disk = written()
    for first, last in ((0, 0), (5, 30), (40, 79), (79, 100)):
        found = [one.delivery for one in read_group(disk, PATH, GROUP, first=first, last=last)]
        assert found == HISTORY[first : last + 1]


@pytest.mark.parametrize("seed", range(25))
def test_one_wrong_bit_anywhere_is_found_by_verify_and_never_read(seed: int) -> None:
    rng = Random(seed)
    disk = written()
    path = rng.choice(segment_names(disk))
    at = rng.randrange(len(disk.contents(path)))
    flip(disk, path, at)
    (damage,) = damage_found(disk)
    assert damage.path == path
    assert damage.offset <= at
    log = open_log(disk, seed=2).log
    if at < HEADER_BYTES:
        # What checks the records is the id that the manifest tells, so consumers are served all the same.
        assert read_all(log) == HISTORY
        return
    with pytest.raises(CorruptionError) as caught:
        read_all(log)
    assert caught.value.path == path
    good = next(segment.first for segment in log.manifest().segments if path.endswith(segment.name))
    for offset in range(good):
        assert log.read(offset, 0) == [HISTORY[offset]]


def test_a_page_that_cannot_be_read_is_an_error_of_that_file() -> None:
    disk = written()
    path = segment_names(disk)[1]
    disk.spoil(path, 10)
    log = open_log(disk, seed=2).log
    with pytest.raises(OSError, match="cannot be read"):
        read_all(log)


@pytest.mark.parametrize("at", [0, 2, -1])
def test_a_segment_that_the_manifest_lists_and_nobody_finds_is_damage_to_whoever_reads(at: int) -> None:
    """Not the end of what there is, as it is of a group that is removed meanwhile."""
    disk = written()
    path = segment_names(disk)[at]
    disk.remove(path)
    with pytest.raises(CorruptionError, match="the file is missing") as caught:
        list(read_group(disk, PATH, GROUP))
    assert caught.value.path == path


def test_a_group_that_is_removed_while_it_is_read_is_gone_and_not_damaged() -> None:
    disk = written()
    reading = read_group(disk, PATH, GROUP)
    assert next(reading).delivery == HISTORY[0]
    for name in disk.listdir(DIRECTORY):
        disk.unlink(f"{DIRECTORY}/{name}")
    disk.rmdir(DIRECTORY)
    with pytest.raises(StorageError) as caught:
        list(reading)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize("at", [0, 2, -1])
def test_a_missing_segment_stops_the_start(at: int) -> None:
    disk = written()
    path = segment_names(disk)[at]
    disk.remove(path)
    assert len(list(verify_deliveries(disk, PATH, GROUP))) == len(segment_names(disk)) + 1
    with pytest.raises(CorruptionError, match=r"the file is missing; put the file back") as caught:
        open_log(disk, seed=2)
    assert caught.value.path == path


def test_a_missing_or_damaged_manifest_stops_the_start() -> None:
    disk = written()
    data = disk.contents(f"{DIRECTORY}/manifest")
    disk.replace(f"{DIRECTORY}/manifest", data[:-1])
    with pytest.raises(CorruptionError, match="do not match their checksum"):
        open_log(disk, seed=2)
    assert [finding.damage is None for finding in verify_deliveries(disk, PATH, GROUP)] == [False]
    disk.remove(f"{DIRECTORY}/manifest")
    disk.kill()
    with pytest.raises(CorruptionError, match="without it the segments are not known"):
        open_log(disk, seed=3)


def test_files_of_another_group_or_segment_are_recognised() -> None:
    disk = written()
    opened = open_log(disk, seed=2, group=GroupId(5))
    feed(opened.log, HISTORY[:30])
    opened.log.close()
    disk.kill()
    disk.replace(f"{DIRECTORY}/manifest", disk.contents(f"{PATH}/groups/5/deliveries/manifest"))
    with pytest.raises(CorruptionError, match=r"this is group 5's; put each group's files back"):
        open_log(disk, seed=3)
    disk = written()
    first, second, *_ = segment_names(disk)
    disk.replace(first, disk.contents(second))
    assert "put each group's files back" in str(damage_found(disk)[0])


def unsynced(upto: int, synced_upto: int) -> tuple[SimulatedDisk, str]:
    """One segment: frames up to an offset were synced, later ones were not, and the process is dead."""
    disk = SimulatedDisk()
    log = open_log(disk, settings=ROOMY).log
    middle = HISTORY[synced_upto].index
    feed(log, between(HISTORY, 0, middle))
    log.sync()
    feed(log, between(HISTORY, middle, HISTORY[upto].index))
    disk.kill()
    (path,) = segment_names(disk)
    return disk, path


def test_a_damaged_frame_that_a_later_one_calls_durable_is_corruption_else_a_torn_tail() -> None:
    torn = stopped = 0
    for at in range(HEADER_BYTES, 40_000, 211):
        disk, path = unsynced(70, 40)
        if at >= len(disk.contents(path)):
            break
        flip(disk, path, at)
        error = None
        try:
            opened = open_log(disk, settings=ROOMY, seed=2)
        except CorruptionError as found:
            error = found
        if error is not None:
            stopped += 1
            assert error.path == path
            assert error.offset <= at
            assert "was written when that was durable" in str(error)
        else:
            torn += 1
            assert opened.log.end.offset > 40, "what was synced is there"
            assert read_all(opened.log) == HISTORY[: opened.log.end.offset]
            assert opened.report.torn is not None
            assert opened.report.torn.file == path
            feed(opened.log, HISTORY)
            assert read_all(opened.log) == HISTORY
    assert torn > 10
    assert stopped > 10


def test_a_file_shorter_than_what_was_durable_is_corruption() -> None:
    disk = written(close=False)
    path = segment_names(disk)[-1]
    manifest = load_manifest(disk, DIRECTORY, GROUP)
    assert manifest.open
    disk.replace(path, disk.contents(path)[: manifest.segments[-1].size - 1])
    with pytest.raises(CorruptionError, match="the file ends here"):
        open_log(disk, seed=2)


def test_a_manifest_that_tells_of_other_digests_is_found() -> None:
    disk = written()
    manifest = load_manifest(disk, DIRECTORY, GROUP)
    segments = list(manifest.segments)
    end = segments[1].end
    segments[1] = evolve(segments[1], end=evolve(end, chain=bytes(16)))
    store_manifest(disk, DIRECTORY, evolve(manifest, segments=tuple(segments)))
    assert "ends at delivery" in str(damage_found(disk)[0])
    assert "begins with digest" in str(damage_found(disk)[1])


def test_a_file_that_is_not_listed_is_a_leftover() -> None:
    disk = written()
    path = f"{DIRECTORY}/00000000000000ff-0000000000000000.seg"
    disk.replace(path, b"anything")
    opened = open_log(disk, seed=2)
    assert opened.report.leftovers == 1
    assert path not in segment_names(disk)
    assert read_all(opened.log) == HISTORY
