"""The data directory (D-1): who owns it, whose it is, how often it was started."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, Final

import msgpack
import pytest
from attrs import evolve

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from tests.unit.storage.scenario import PATH, SERVER, entropy_of, open_wal
from zraft.storage.directory import DataDirectory, Meta, decode_meta, encode_meta
from zraft.storage.errors import CorruptionError, DiskFullError, FsyncError, WriteError
from zraft.storage.filesystem import RealFileSystem
from zraft_core.errors import StorageError
from zraft_core.ids import Instance, ServerId


def start(disk: SimulatedDisk, seed: int = 1, server: ServerId = SERVER) -> DataDirectory:
    return DataDirectory.open(disk, PATH, server=server, entropy=entropy_of(seed))


def test_instance_is_kept_and_boot_number_and_boot_id_change() -> None:
    disk = SimulatedDisk()
    first = start(disk, seed=1)
    assert (first.server, first.boot, first.cluster, len(first.instance), len(first.boot_id)) == (
        1,
        1,
        None,
        16,
        8,
    )
    first.close()
    second = start(disk, seed=2)
    assert second.instance == first.instance
    assert second.boot == 2
    assert second.boot_id != first.boot_id


def test_boot_number_is_durable_before_open_returns() -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        for boot in range(1, 5):
            assert start(disk).boot == boot
            disk.crash(Random(seed * 10 + boot))


@pytest.mark.parametrize("trouble", [Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER])
def test_crash_at_any_step_of_opening_never_repeats_a_boot_number(trouble: Trouble) -> None:
    died = 0
    for step in range(1, 30):
        disk = SimulatedDisk()
        used = 0
        instance = None
        for boot in range(3):
            if boot == 1 or step % 3 == 0:
                disk.fail_at(step, trouble, Random(step))
            try:
                directory = start(disk, seed=boot)
            except ProcessDied:
                died += 1
                disk.crash(Random(step + boot))
                continue
            assert directory.boot > used
            # Once a boot was in use, its directory is not formatted anew.
            assert instance in (None, directory.instance)
            used, instance = directory.boot, directory.instance
            disk.crash(Random(step + boot))
        assert start(disk).boot > used
    assert died > 6


def test_cluster_is_set_once_and_durable() -> None:
    disk = SimulatedDisk()
    directory = start(disk)
    directory.set_cluster(b"c" * 16)
    directory.set_cluster(b"c" * 16)
    with pytest.raises(StorageError, match=r"/data/meta: belongs to cluster 6363.*not to 6464"):
        directory.set_cluster(b"d" * 16)
    disk.crash(Random(1))
    assert start(disk).cluster == b"c" * 16


def test_second_process_is_told_the_first_ones_pid(tmp_path: Path) -> None:
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, f"{tmp_path}/deep/data", server=SERVER, entropy=os.urandom)
    script = (
        "import os, sys\n"
        "from zraft.storage.directory import DataDirectory\n"
        "from zraft.storage.filesystem import RealFileSystem\n"
        "DataDirectory.open(RealFileSystem(), sys.argv[1], server=1, entropy=os.urandom)\n"
    )
    command = [sys.executable, "-c", script, f"{tmp_path}/deep/data"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert refused.returncode == 1
    assert f"/deep/data/lock: process {os.getpid()} uses this data directory" in refused.stderr
    assert directory.boot == 1
    directory.close()
    subprocess.run(command, capture_output=True, env=environment, check=True)
    assert DataDirectory.open(fs, f"{tmp_path}/deep/data", server=SERVER, entropy=os.urandom).boot == 3


def test_lock_of_a_directory_that_failed_to_open_is_released() -> None:
    disk = SimulatedDisk()
    start(disk).close()
    with pytest.raises(StorageError):
        start(disk, server=ServerId(2))
    assert start(disk).boot == 2


def test_another_servers_directory_is_refused() -> None:
    disk = SimulatedDisk()
    start(disk).close()
    with pytest.raises(
        StorageError, match="/data/meta: this is the data directory of server 1, not of server 2"
    ):
        start(disk, server=ServerId(2))


def test_missing_meta_beside_a_wal_is_not_formatted_anew() -> None:
    """D-1: a voter that forgot its votes must not come back under its old name."""
    disk = SimulatedDisk()
    open_wal(disk)
    disk.kill()
    disk.remove(f"{PATH}/meta")
    with pytest.raises(
        StorageError, match="/data/meta: is missing although /data/wal exists; move the whole"
    ):
        start(disk)


def test_foreign_directory_is_not_formatted() -> None:
    disk = SimulatedDisk()
    disk.mkdir(PATH)
    disk.create(f"{PATH}/holiday.jpg")
    with pytest.raises(StorageError, match=r"neither empty nor a data directory \(found holiday.jpg\)"):
        start(disk)


def reseal(data: bytes, **changes: Any) -> bytes:
    """A meta file with other values and a right checksum."""
    directory = decode_meta(data, "meta")
    return encode_meta(evolve(directory, **changes))


@pytest.mark.parametrize(
    ("format", "advice"), [(0, "the release before"), (2, "newer release"), (0x7F, "newer")]
)
def test_meta_of_another_format_says_which_release_to_use(format: int, advice: str) -> None:
    from crc32c import crc32c

    disk = SimulatedDisk()
    start(disk).close()
    data = bytearray(disk.contents(f"{PATH}/meta"))
    data[8] = format
    data[-4:] = crc32c(bytes(data[:-4])).to_bytes(4, "big")
    disk.replace(f"{PATH}/meta", bytes(data))
    with pytest.raises(StorageError, match=f"/data/meta: data directory of format {format}.*{advice}"):
        start(disk)


def test_every_flipped_bit_and_every_length_of_meta_is_refused() -> None:
    disk = SimulatedDisk()
    start(disk).close()
    good = disk.contents(f"{PATH}/meta")
    damaged: list[bytes] = [good[:length] for length in range(len(good))] + [good + b"\0", good + good]
    for bit in range(len(good) * 8):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(data))
    for wrong in damaged:
        with pytest.raises(
            CorruptionError, match=r"/data/meta: corrupt at offset 0: .*move the whole data directory"
        ):
            decode_meta(wrong, f"{PATH}/meta")


def test_random_bytes_as_meta_raise_only_declared_errors() -> None:
    from crc32c import crc32c

    rng = Random(1)
    for _ in range(500):
        body = rng.choice((b"", b"\x87\xa6format\x01", b"\x82\xa6format\x01\xa3crc\xce")) + rng.randbytes(
            rng.randrange(60)
        )
        body += rng.choice((b"", b"\xa3crc\xce"))
        for data in (body, body + crc32c(body).to_bytes(4, "big")):
            with pytest.raises(StorageError):
                decode_meta(data, "meta")


def test_any_messagepack_library_reads_meta() -> None:
    disk = SimulatedDisk()
    directory = start(disk)
    fields = msgpack.unpackb(disk.contents(f"{PATH}/meta"))
    assert fields.pop("crc") > 0
    assert fields == {
        "format": 1,
        "server": 1,
        "instance": directory.instance,
        "boot": 1,
        "cluster": None,
        "newest_segment": 0,
    }
    assert reseal(disk.contents(f"{PATH}/meta"), boot=5) != disk.contents(f"{PATH}/meta")


META_BEFORE: Final = bytes.fromhex(
    "87a6666f726d617401a673657276657201a8696e7374616e6365c41069696969696969696969696969696969a4626f6f7403a7636c7573746572c410"
    "63636363636363636363636363636363ae6e65776573745f7365676d656e7407a3637263ce91fd6fda"
)
"""As the release wrote it that recorded no length of the newest segment."""


def test_meta_of_the_release_before_is_read_and_written_as_it_is() -> None:
    meta = decode_meta(META_BEFORE, "meta")
    assert meta == Meta(SERVER, Instance(b"i" * 16), 3, b"c" * 16, 7, None)
    assert encode_meta(meta) == META_BEFORE


def test_a_recorded_length_is_one_more_key_which_the_release_before_skips() -> None:
    """It takes every map that has its keys, `format` first and `crc` last, and writes those alone."""
    data = encode_meta(evolve(decode_meta(META_BEFORE, "meta"), newest_bytes=65_536))
    before, now = msgpack.unpackb(META_BEFORE), msgpack.unpackb(data)
    assert list(now) == [*list(before)[:-1], "newest_bytes", "crc"]
    assert {name: now[name] for name in before if name != "crc"} == {
        name: value for name, value in before.items() if name != "crc"
    }
    assert data[1:9] == META_BEFORE[1:9], "the format, where any release looks for it"


def test_errors_of_the_disk_name_the_path_and_leave_the_old_meta() -> None:
    # Steps of opening an existing directory: lock, create meta.tmp, pwrite, fdatasync, rename, fsync.
    for step, trouble, error in (
        (2, Trouble.EIO, WriteError),
        (3, Trouble.ENOSPC, DiskFullError),
        (4, Trouble.EIO, FsyncError),
        (4, Trouble.ENOSPC, FsyncError),
        (5, Trouble.EIO, WriteError),
        (6, Trouble.EIO, FsyncError),
    ):
        disk = SimulatedDisk()
        start(disk).close()
        disk.fail_at(step, trouble, Random(1))
        with pytest.raises(error, match=PATH):
            start(disk)
        assert start(disk).boot >= 2


def test_unreadable_meta_is_a_storage_error() -> None:
    disk = SimulatedDisk()
    start(disk).close()
    disk.spoil(f"{PATH}/meta", 0)
    with pytest.raises(StorageError, match="/data/meta: cannot be read") as refused:
        start(disk)
    assert isinstance(refused.value.__cause__, OSError)
    assert refused.value.__cause__.errno == errno.EIO


def test_file_in_place_of_the_directory_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file"):
        DataDirectory.open(RealFileSystem(), str(tmp_path / "file"), server=SERVER, entropy=os.urandom)


class Refusing:
    """A disk on which some calls fail with an error of the operating system's."""

    def __init__(self, disk: SimulatedDisk, error: int, *calls: str) -> None:
        self._disk, self._error, self._calls = disk, error, calls

    def __getattr__(self, name: str) -> Any:
        if name in self._calls:

            def refuse(path: str, *_: object) -> None:
                raise OSError(self._error, os.strerror(self._error), path)

            return refuse
        return getattr(self._disk, name)


@pytest.mark.parametrize(
    ("error", "calls", "advice"),
    [
        (errno.EACCES, ("listdir",), "is not allowed to read .* belongs to"),
        (errno.EACCES, ("lock",), "is not allowed to write .* belongs to"),
        (errno.EPERM, ("create",), "is not allowed to write .* belongs to"),
        (errno.EROFS, ("lock",), "read-only; mount it for writing"),
        (errno.EROFS, ("create",), "read-only; mount it for writing"),
        (errno.EIO, ("listdir",), "check the path, its owner and the disk"),
    ],
)
def test_directory_that_cannot_be_used_says_why_and_what_to_do(
    error: int, calls: tuple[str, ...], advice: str
) -> None:
    disk = SimulatedDisk()
    DataDirectory.open(disk, "/data", server=ServerId(1), entropy=bytes)
    disk.kill()
    with pytest.raises(StorageError, match=f"/data.*{advice}"):
        DataDirectory.open(Refusing(disk, error, *calls), "/data", server=ServerId(1), entropy=bytes)


def test_lost_meta_beside_snapshots_is_not_formatted_anew() -> None:
    disk = SimulatedDisk()
    disk.mkdir("/data")
    disk.mkdir("/data/groups")
    with pytest.raises(StorageError, match="/data/meta: is missing although /data/groups exists"):
        DataDirectory.open(disk, "/data", server=ServerId(1), entropy=bytes)
