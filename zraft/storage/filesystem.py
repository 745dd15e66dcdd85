"""The few operations on files that storage uses, so that the simulator can replace the disk under it.

Nothing else in this package touches `os`. The promises are POSIX's and no more: a write is durable after
`fdatasync` of its file, a name after `fsync_directory` of its directory, and before that a crash keeps
any subset of both.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final, Protocol

SYNCS_DATA: Final = hasattr(os, "fdatasync")
"""Whether the system syncs the contents of a file without its times: Linux does, macOS does not."""

_CANNOT_SYNC_FULLY: Final = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)
"""What file systems of macOS answer that do not know a full sync, such as those of a network."""


class FileSystem(Protocol):
    """Files are numbers from `open` or `create`, valid until `close`. All errors are `OSError`.

    Calls on different files may run in different threads at once, as may `pread` beside `pwrite`
    of other bytes of one file.
    """

    def open(self, path: str) -> int:
        """Return an existing file, for reading and writing."""
        ...

    def create(self, path: str) -> int:
        """Return a new empty file; one that already exists is emptied."""
        ...

    def close(self, file: int) -> None:
        """Close a file."""

    def size(self, file: int) -> int:
        """Return the length in bytes, preallocated zeros included."""
        ...

    def pread(self, file: int, size: int, offset: int) -> bytes:
        """Return `size` bytes at `offset`; fewer only at the end of the file."""
        ...

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        """Write all of `data`. After an error any part of it may have been written."""
        ...

    def fdatasync(self, file: int) -> None:
        """Make a file's contents durable."""

    def fallocate(self, file: int, size: int) -> None:
        """Grow to at least `size` bytes of zeros whose blocks are reserved; never shrinks."""
        ...

    def ftruncate(self, file: int, size: int) -> None:
        """Cut a file, or lengthen it with zeros."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file in one step, replacing `target`."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def mkdir(self, path: str) -> None:
        """Make a directory that only its owner can read."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory; ENOTEMPTY if it is not."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, in order."""
        ...

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    def lock(self, path: str) -> int:
        """Create the file if need be, lock it for this process until `close`, write the process id into it.

        Raises:
            BlockingIOError: another process holds it; the file then says which.
        """
        ...


class RealFileSystem:
    """The operating system's files. For servers in production that is Linux; on macOS, they are for development."""

    def open(self, path: str) -> int:
        """Open a file that exists, to read and write."""
        return os.open(path, os.O_RDWR)

    def create(self, path: str) -> int:
        """Make an empty file that only its owner can read, or empty the one that exists."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def close(self, file: int) -> None:
        """Close a file."""
        os.close(file)

    def size(self, file: int) -> int:
        """Return a file's size in bytes."""
        return os.fstat(file).st_size

    def pread(self, file: int, size: int, offset: int) -> bytes:
        """Read `size` bytes at `offset`, fewer only at the end of the file."""
        data = os.pread(file, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(file, missing, offset + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        written = os.pwrite(file, data, offset)
        # A short write is how Linux reports a disk that fills up in the middle, and its limit of 2 GiB a call.
        while written < len(data):
            written += os.pwrite(file, memoryview(data)[written:], offset + written)

    def fdatasync(self, file: int) -> None:
        """Make a file's contents durable."""
        if SYNCS_DATA:
            os.fdatasync(file)
        else:
            _sync_fully(file)

    def fallocate(self, file: int, size: int) -> None:
        """Allocate the first `size` bytes of a file on the disk.

        Raises:
            OSError: there is no space, or (EOPNOTSUPP) the system cannot reserve any, as on macOS.
        """
        if not hasattr(os, "posix_fallocate"):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        os.posix_fallocate(file, 0, size)

    def ftruncate(self, file: int, size: int) -> None:
        """Cut a file, or lengthen it with zeros."""
        os.ftruncate(file, size)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing the target."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make a directory that only its owner can read."""
        os.mkdir(path, 0o700)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if SYNCS_DATA:
                os.fsync(file)
            else:
                _sync_fully(file)
        finally:
            os.close(file)

    def lock(self, path: str) -> int:
        """Lock a file for this process, and write the process id into it."""
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, b"%d\n" % os.getpid(), 0)
        except OSError:
            os.close(file)
            raise
        return file


def _sync_fully(file: int) -> None:
    """Make a file durable where fsync does not: on macOS it leaves the bytes in the cache of the disk.

    Source: fcntl(2) of macOS, F_FULLFSYNC.
    """
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:
        try:
            fcntl.fcntl(file, full_sync)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC_FULLY:
                raise
        else:
            return
    os.fsync(file)


class UnsyncedFileSystem(RealFileSystem):
    """The operating system's files, without waiting for the disk. What is written survives the process, and no power cut.

    It is for data that nobody relies on, such as that of servers inside a test.
    """

    def fdatasync(self, file: int) -> None:
        """Do nothing."""

    def fsync_directory(self, path: str) -> None:
        """Do nothing."""


class ReadOnlyFileSystem(RealFileSystem):
    """The operating system's files, for looking at what may belong to a running server, or to somebody else."""

    def open(self, path: str) -> int:
        """Return an existing file, for reading only: all that would change it fails."""
        return os.open(path, os.O_RDONLY)
