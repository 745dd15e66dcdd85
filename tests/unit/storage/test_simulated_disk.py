"""The simulated disk: equal to the real one while nothing fails, and as forgetful as allowed when something does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.simulation.disk import PAGE_BYTES, ProcessDied, SimulatedDisk, Trouble
from zraft.storage.filesystem import FileSystem, RealFileSystem


def outcome(call: Callable[..., Any], *args: object) -> Any:
    """What a call returned or which errno it raised, so that two file systems can be compared."""
    try:
        return call(*args)
    except OSError as error:
        return type(error), error.errno


def random_steps(fs: FileSystem, root: str, seed: int) -> list[object]:
    """The same calls for the same seed; everything a caller can see."""
    rng = Random(seed)
    seen: list[object] = []
    open_files: dict[str, int] = {}
    names = ["a", "b", "c"]
    for _ in range(80):
        name = rng.choice(names)
        path = f"{root}/{name}"
        file = open_files.get(name)
        match rng.randrange(11):
            case 0:
                if file is not None:
                    fs.close(open_files.pop(name))
                result = outcome(fs.create, path)
                open_files[name] = result
                result = "created"
            case 1:
                result = outcome(fs.open, path)
                if isinstance(result, int):
                    if file is not None:
                        fs.close(file)
                    open_files[name] = result
                    result = "opened"
            case 2 if file is not None:
                data = rng.randbytes(rng.choice((1, 100, 5000)))
                result = outcome(fs.pwrite, file, data, rng.randrange(9000))
            case 3 if file is not None:
                result = outcome(fs.ftruncate, file, rng.randrange(9000))
            case 4 if file is not None:
                result = outcome(fs.fallocate, file, rng.randrange(1, 9000))
            case 5 if file is not None:
                result = outcome(fs.pread, file, rng.randrange(12000), rng.randrange(12000))
            case 6:
                other = rng.choice(names)
                result = outcome(fs.rename, path, f"{root}/{other}")
                if result is None and other != name:
                    if other in open_files:
                        fs.close(open_files.pop(other))
                    if name in open_files:
                        open_files[other] = open_files.pop(name)
            case 7:
                result = outcome(fs.unlink, path)
            case 8:
                result = outcome(fs.mkdir, f"{root}/d{rng.randrange(2)}"), outcome(fs.listdir, f"{root}/d1")
            case 9:
                result = outcome(fs.fsync_directory, root), outcome(fs.listdir, f"{root}/nowhere")
            case _:
                result = None if file is None else (outcome(fs.fdatasync, file), fs.size(file))
        seen.append((result[0], result[1]) if isinstance(result, tuple) else result)
        seen.append(fs.listdir(root))
        seen.extend(fs.pread(file, 20000, 0) for _, file in sorted(open_files.items()))
    for file in open_files.values():
        fs.close(file)
    return seen


@pytest.mark.parametrize("seed", range(12))
def test_real_and_simulated_disk_show_the_same_without_a_crash(tmp_path: Path, seed: int) -> None:
    disk = SimulatedDisk()
    disk.mkdir("/root")
    assert random_steps(RealFileSystem(), str(tmp_path), seed) == random_steps(disk, "/root", seed)


def test_second_lock_is_refused_by_both_disks(tmp_path: Path) -> None:
    for fs, root in ((RealFileSystem(), str(tmp_path)), (SimulatedDisk(), "")):
        held = fs.lock(f"{root}/lock")
        with pytest.raises(BlockingIOError):
            fs.lock(f"{root}/lock")
        fs.close(held)
        fs.close(fs.lock(f"{root}/lock"))


def written_file(disk: SimulatedDisk, path: str, data: bytes) -> int:
    file = disk.create(path)
    disk.pwrite(file, data, 0)
    return file


def test_synced_bytes_and_names_survive_every_crash() -> None:
    for seed in range(30):
        disk = SimulatedDisk()
        file = written_file(disk, "/f", b"x" * 9000)
        disk.fdatasync(file)
        disk.fsync_directory("/")
        disk.crash(Random(seed))
        assert disk.contents("/f") == b"x" * 9000


def test_unsynced_bytes_may_survive_in_any_subset_of_pages_and_torn() -> None:
    outcomes = set()
    for seed in range(200):
        disk = SimulatedDisk()
        file = written_file(disk, "/f", bytes(2 * PAGE_BYTES))
        disk.fdatasync(file)
        disk.fsync_directory("/")
        disk.pwrite(file, b"n" * (2 * PAGE_BYTES), 0)
        disk.crash(Random(seed))
        first, second = (disk.contents("/f")[at : at + PAGE_BYTES].count(b"n") for at in (0, PAGE_BYTES))
        outcomes.add(
            tuple("none" if n == 0 else "all" if n == PAGE_BYTES else "torn" for n in (first, second))
        )
    assert len(outcomes) == 9, outcomes


def test_names_survive_only_with_their_directory_synced() -> None:
    survived = set()
    for seed in range(60):
        disk = SimulatedDisk()
        disk.fdatasync(written_file(disk, "/old", b"1"))
        disk.fsync_directory("/")
        disk.fdatasync(written_file(disk, "/new", b"2"))
        disk.rename("/new", "/old")
        disk.crash(Random(seed))
        survived.add((tuple(disk.listdir("/")), disk.contents("/old")))
    # Rename kept; creation alone kept; nothing kept. Never neither of the two contents.
    assert survived == {(("old",), b"2"), (("new", "old"), b"1"), (("old",), b"1")}


def test_killed_process_loses_nothing_but_its_files_and_locks() -> None:
    disk = SimulatedDisk()
    disk.lock("/lock")
    file = written_file(disk, "/f", b"abc")
    disk.kill()
    assert disk.contents("/f") == b"abc"
    disk.lock("/lock")
    with pytest.raises(OSError) as refused:
        disk.pread(file, 1, 0)
    assert refused.value.errno == errno.EBADF


def test_failed_fsync_leaves_pages_that_a_later_fsync_does_not_save() -> None:
    lost = 0
    for seed in range(20):
        disk = SimulatedDisk()
        file = written_file(disk, "/f", b"abc")
        disk.fsync_directory("/")
        disk.fail_at(1, Trouble.EIO, Random(seed))
        with pytest.raises(OSError):
            disk.fdatasync(file)
        disk.fdatasync(file)
        assert disk.contents("/f") == b"abc"
        disk.crash(Random(seed))
        lost += disk.contents("/f") != b"abc"
    assert 0 < lost < 20


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [(Trouble.DIE_BEFORE, set()), (Trouble.DIE_AFTER, {10}), (Trouble.DIE_DURING, {3, 7})],
)
def test_death_at_a_write_leaves_what_it_says(trouble: Trouble, expected: set[int]) -> None:
    lengths = set()
    for seed in range(60):
        disk = SimulatedDisk()
        file = disk.create("/f")
        disk.fail_at(1, trouble, Random(seed))
        with pytest.raises(ProcessDied):
            disk.pwrite(file, b"0123456789", 0)
        with pytest.raises(ProcessDied):
            disk.listdir("/")
        disk.kill()
        lengths.add(len(disk.contents("/f")))
    assert expected <= lengths
    assert (lengths == {0}) == (trouble is Trouble.DIE_BEFORE)


def test_full_disk_refuses_new_blocks_and_takes_reserved_ones() -> None:
    disk = SimulatedDisk()
    file = disk.create("/f")
    disk.fallocate(file, 5000)
    disk.full = True
    disk.pwrite(file, b"x" * 5000, 0)
    calls: list[Callable[[], object]] = [
        lambda: disk.pwrite(file, b"yy", 4999),
        lambda: disk.fallocate(file, 6000),
    ]
    for call in calls:
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.errno == errno.ENOSPC
    disk.full = False
    disk.pwrite(file, b"yy", 4999)


def test_spoiled_page_fails_reads_of_it_only() -> None:
    disk = SimulatedDisk()
    file = written_file(disk, "/f", bytes(3 * PAGE_BYTES))
    disk.spoil("/f", PAGE_BYTES + 5)
    assert disk.pread(file, PAGE_BYTES, 0) == bytes(PAGE_BYTES)
    with pytest.raises(OSError):
        disk.pread(file, 10, PAGE_BYTES)


def test_one_seed_gives_one_disk() -> None:
    def run() -> bytes:
        disk = SimulatedDisk()
        disk.fsync_directory("/")
        for number in range(5):
            written_file(disk, f"/{number}", Random(number).randbytes(20000))
        disk.crash(Random(3))
        return b"".join(disk.contents(f"/{name}") for name in disk.listdir("/"))

    assert run() == run()
