"""The few operations on files that storage uses, so that the simulator can replace the disk under it.

Nothing else in this package touches `os`. The promises are POSIX's and no more: a write is durable after
`fdatasync` of its file, a name after `fsync_directory` of its directory, and before that a crash keeps
any subset of both.
"""

from __future__ import annotations

import fcntl
import os
from typing import Protocol


class FileSystem(Protocol):
    """Files are numbers from `open` or `create`, valid until `close`. All errors are `OSError`.

    Calls on different files may run in different threads at once, as may `pread` beside `pwrite`
    of other bytes of one file.
    """

    def open(self, path: str) -> int:
        """An existing file, for reading and writing."""
        ...

    def create(self, path: str) -> int:
        """A new empty file; one that already exists is emptied."""
        ...

    def close(self, file: int) -> None: ...

    def size(self, file: int) -> int:
        """Length in bytes, preallocated zeros included."""
        ...

    def pread(self, file: int, size: int, offset: int) -> bytes:
        """`size` bytes at `offset`; fewer only at the end of the file."""
        ...

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        """All of `data`. After an error any part of it may have been written."""
        ...

    def fdatasync(self, file: int) -> None: ...

    def fallocate(self, file: int, size: int) -> None:
        """Grow to at least `size` bytes of zeros whose blocks are reserved; never shrinks."""
        ...

    def ftruncate(self, file: int, size: int) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces `target`."""
        ...

    def unlink(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory; ENOTEMPTY if it is not."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in order."""
        ...

    def fsync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> int:
        """Create the file if need be, lock it for this process until `close`, write the process id into it.

        Raises:
            BlockingIOError: another process holds it; the file then says which.
        """
        ...


class RealFileSystem:
    """The operating system's files (Linux)."""

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR)

    def create(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def close(self, file: int) -> None:
        os.close(file)

    def size(self, file: int) -> int:
        return os.fstat(file).st_size

    def pread(self, file: int, size: int, offset: int) -> bytes:
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
        written = os.pwrite(file, data, offset)
        # A short write is how Linux reports a disk that fills up in the middle, and its limit of 2 GiB a call.
        while written < len(data):
            written += os.pwrite(file, memoryview(data)[written:], offset + written)

    def fdatasync(self, file: int) -> None:
        os.fdatasync(file)

    def fallocate(self, file: int, size: int) -> None:
        os.posix_fallocate(file, 0, size)

    def ftruncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def fsync_directory(self, path: str) -> None:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def lock(self, path: str) -> int:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, b"%d\n" % os.getpid(), 0)
        except OSError:
            os.close(file)
            raise
        return file


class ReadOnlyFileSystem(RealFileSystem):
    """The operating system's files, for looking at what may belong to a running server, or to somebody else."""

    def open(self, path: str) -> int:
        """An existing file, for reading only: all that would change it fails."""
        return os.open(path, os.O_RDONLY)
