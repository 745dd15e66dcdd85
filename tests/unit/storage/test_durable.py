"""Errors of the operating system that are none, and durable names."""

from __future__ import annotations

from pathlib import Path

from zraft.storage.durable import make_directories
from zraft.storage.filesystem import RealFileSystem


class OvertakenDisk(RealFileSystem):
    """Another thread makes each directory between our look at it and our making it."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        super().mkdir(path)

    def fsync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().fsync_directory(path)


def test_a_directory_that_another_thread_made_meanwhile_is_as_good_and_its_name_is_made_durable(
    tmp_path: Path,
) -> None:
    """The threads of snapshots and of deliveries open a new group at once; the slower one ended the server."""
    disk = OvertakenDisk()
    make_directories(disk, f"{tmp_path}/groups/7")
    assert (tmp_path / "groups" / "7").is_dir()
    assert disk.synced == [str(tmp_path), f"{tmp_path}/groups"]
