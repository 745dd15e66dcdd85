"""A log on a real disk whose process is killed at each step that changes the disk, one after the other: run by tests.

    python -m tests.processes.dying_log DIR

Every life begins with a log that was closed, makes its segment longer, begins two more, and closes the last. After each
death the log has what was acknowledged and at most one write more, and a cut of its last byte is refused. Ends with an
error otherwise, else prints how many deaths there were.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Final

from zraft.raft.messages import Entry, EntryKind
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import CutShortError
from zraft.storage.filesystem import FileSystem, RealFileSystem
from zraft.storage.records import EntryRecord
from zraft.storage.segments import segment_path
from zraft.storage.settings import WalSettings
from zraft.storage.wal import Wal
from zraft_core.ids import COORDINATION_GROUP, ServerId

SETTINGS: Final = WalSettings(segment_bytes_max=16_384, tail_bytes_max=4_096)
PAYLOAD: Final = bytes(5_000)
WRITES: Final = 8
CHANGES: Final = frozenset(
    {
        *("create", "pwrite", "fdatasync", "fallocate", "ftruncate"),
        *("rename", "unlink", "fsync_directory"),
    }
)


class DyingFileSystem:
    """The real one, until the process ends before change number `last`."""

    def __init__(self, last: int) -> None:
        self._left = last
        self._real = RealFileSystem()

    def __getattr__(self, name: str) -> Any:
        if name in CHANGES:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._real, name)


def _open(fs: FileSystem, data: str) -> tuple[DataDirectory, Wal, int]:
    directory = DataDirectory.open(fs, data, server=ServerId(1), entropy=os.urandom)
    try:
        wal, recovered = Wal.open(fs, directory, settings=SETTINGS)
    except BaseException:
        directory.close()
        raise
    group = recovered.groups.get(COORDINATION_GROUP)
    return directory, wal, group.last_index if group is not None else 0


def _live(fs: FileSystem, data: str, acknowledged: int) -> None:
    """Append, and say each index to that pipe when it is durable."""
    directory, wal, last = _open(fs, data)
    for index in range(last + 1, last + 1 + WRITES):
        entry = Entry(index, 1, EntryKind.COMMANDS, index, 1, PAYLOAD)
        wal.append([EntryRecord(COORDINATION_GROUP, entry)])
        os.write(acknowledged, bytes([index]))
    wal.close()
    directory.close()


def _die(data: str, step: int) -> tuple[bool, int]:
    """One life: whether it was killed, and the last index that was acknowledged in it, 0 if none was."""
    hear, say = os.pipe()
    child = os.fork()
    if not child:
        try:
            _live(DyingFileSystem(step), data, say)
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(say)
    _, status = os.waitpid(child, 0)
    with os.fdopen(hear, "rb") as pipe:
        heard = pipe.read()
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0, f"step {step}: failed before it came to it"
    return killed, max(heard, default=0)


def _check(data: str, first: int, acknowledged: int, step: int) -> None:
    directory, wal, last = _open(RealFileSystem(), data)
    assert max(first, acknowledged) <= last <= max(first, acknowledged) + 1, (
        f"step {step}: {last=}, {acknowledged=}"
    )
    wal.close()
    path = segment_path(f"{data}/wal", directory.newest_segment)
    directory.close()
    os.truncate(path, os.stat(path).st_size - 1)
    try:
        _open(RealFileSystem(), data)
    except CutShortError:
        return
    raise AssertionError(f"step {step}: {path} was cut, and nobody noticed")


def main(place: Path) -> None:
    closed = str(place / "closed")
    os.mkdir(closed)
    directory, wal, _ = _open(RealFileSystem(), closed)
    wal.append([EntryRecord(COORDINATION_GROUP, Entry(1, 1, EntryKind.COMMANDS, 1, 1, PAYLOAD))])
    wal.close()
    directory.close()
    step, killed = 0, True
    while killed:
        step += 1
        data = str(place / "life")
        shutil.copytree(closed, data)
        killed, acknowledged = _die(data, step)
        _check(data, 1, acknowledged, step)
        shutil.rmtree(data)
    print(step - 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
