"""Servers whose disks misbehave on command: a small one that can be filled, and one that fails, under LD_PRELOAD."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.processes.cluster import Cluster

SOURCE: Final = Path(__file__).with_name("faulty_disk.c")
MS_RDONLY: Final = 1
MS_REMOUNT: Final = 32
MNT_DETACH: Final = 2
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class FaultyCluster(Cluster):
    """Every server's disk does what its order says; see `faulty_disk.c`. Needs a C compiler."""

    def __init__(self, directory: Path, *, servers: int = 3, env: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, servers=servers, env=env)
        self._library = directory / "faulty_disk.so"
        subprocess.run(
            [
                os.environ.get("CC", "cc"),
                "-shared",
                "-fPIC",
                "-O1",
                "-o",
                str(self._library),
                str(SOURCE),
                "-ldl",
            ],
            check=True,
        )

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        where = (data or self.servers[number].data).resolve()
        return [
            *("env", f"LD_PRELOAD={self._library}", f"FAULTY_DISK_DIR={where}"),
            f"FAULTY_DISK_ORDER={self._order(number)}",
            *super().command(number, data=data),
        ]

    def _order(self, number: int) -> Path:
        return self.directory / f"disk-{number}.order"

    def order(self, number: int, what: str) -> None:
        """From now on the disk of server `number` does this; "" is no trouble."""
        file = self._order(number)
        temporary = file.with_suffix(".tmp")
        temporary.write_text(what)
        temporary.rename(file)


class SmallDisk:
    """A file system of a few megabytes of its own, mounted at a path; use as a context manager.

    Attributes:
        mounted: False where this process must not mount (then it is no file system at all, and the test has to take
            another way).
    """

    def __init__(self, path: Path, megabytes: int) -> None:
        self._path = path
        self._megabytes = megabytes
        self._ballast = path / "lost+found"
        self.mounted = False

    def __enter__(self) -> SmallDisk:
        self._path.mkdir()
        options = f"size={self._megabytes}m".encode()
        code = _LIBC.mount(b"tmpfs", os.fsencode(self._path), b"tmpfs", 0, options)
        if code and ctypes.get_errno() not in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise OSError(ctypes.get_errno(), "cannot mount a tmpfs", str(self._path))
        self.mounted = not code
        return self

    def __exit__(self, *_: object) -> None:
        if self.mounted:
            _LIBC.umount2(os.fsencode(self._path), MNT_DETACH)

    def fill(self, *, leave: int = 0) -> None:
        """Take all space but `leave` bytes."""
        with self._ballast.open("ab", buffering=0) as file:
            while True:
                found = os.statvfs(self._path)
                size = min(1 << 20, found.f_bavail * found.f_frsize - leave)
                if size <= 0:
                    return
                file.write(bytes(size))

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink()

    def remount_read_only(self) -> None:
        options = f"size={self._megabytes}m".encode()
        if _LIBC.mount(b"tmpfs", os.fsencode(self._path), b"tmpfs", MS_RDONLY | MS_REMOUNT, options):
            raise OSError(ctypes.get_errno(), "cannot remount", str(self._path))
