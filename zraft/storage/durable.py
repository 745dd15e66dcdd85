"""Translation of the operating system's errors to the declared ones, so that a failed fsync is treated alike."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from zraft.storage.errors import DiskFullError, FsyncError, WriteError
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import StorageError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn the system's errors inside into errors about reading `path`.

    Raises:
        StorageError: the disk failed.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({_reason(error)}); {_advice(error, 'read')}") from error


def names_if_there(fs: FileSystem, path: str) -> list[str]:
    """Return the names in a directory; none if it does not exist.

    A running server may just have removed that of a group.

    Raises:
        StorageError: the disk failed.
    """
    with reading(path):
        try:
            return fs.listdir(path)
        except FileNotFoundError:
            return []


def size_if_there(fs: FileSystem, path: str) -> int | None:
    """Return a file's size in bytes; None if it does not exist.

    Raises:
        StorageError: the disk failed.
    """
    with reading(path):
        try:
            file = fs.open(path)
        except FileNotFoundError:
            return None
        try:
            return fs.size(file)
        finally:
            fs.close(file)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn the system's errors inside into errors about writing `path`.

    Raises:
        DiskFullError: there is no space.
        WriteError: the disk failed otherwise.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: str, error: OSError) -> StorageError:
    """Return what `writing` makes of a system's error, for the frequent write that cannot afford its `with`."""
    if error.errno in _NO_SPACE:
        return DiskFullError(f"{path}: no space left; free some on this file system")
    return WriteError(f"{path}: cannot be written ({_reason(error)}); {_advice(error, 'write')}")


def reserve(fs: FileSystem, file: int, size: int) -> bool:
    """Grow the file to at least `size` bytes, and reserve space for them; False: the file system cannot.

    Raises:
        OSError: no space, or the disk failed.
    """
    try:
        fs.fallocate(file, size)
    except OSError as error:
        if error.errno not in _CANNOT_RESERVE:
            raise
        return False
    return fs.size(file) >= size


def sync_file(fs: FileSystem, file: int, path: str) -> None:
    """Make the file's bytes durable.

    Raises:
        FsyncError: the kernel may have dropped the pages, so a second fsync that succeeds proves nothing.
    """
    try:
        fs.fdatasync(file)
    except OSError as error:
        raise fsync_error(path, error) from error


def sync_directory(fs: FileSystem, path: str) -> None:
    """Make the names in a directory durable.

    Raises:
        FsyncError: the disk failed, as for `sync_file`.
    """
    try:
        fs.fsync_directory(path)
    except OSError as error:
        raise fsync_error(path, error) from error


def make_directories(fs: FileSystem, path: str) -> None:
    """Make the directory and those above it, as far as they are missing. Durable on return if it was missing."""
    with reading(path):
        try:
            fs.listdir(path)
            return
        except FileNotFoundError:
            pass
    parent = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    make_directories(fs, parent)
    with writing(path), suppress(FileExistsError):
        # Snapshots and deliveries of a group are below one directory, and each has a thread: the other one was faster.
        fs.mkdir(path)
    sync_directory(fs, parent)


def remove_directory(fs: FileSystem, path: str) -> None:
    """Remove the files of a directory, then the directory, as far as they are there.

    Durable when the directory above is synced. Can be repeated after a crash.
    """
    names = _names_in(fs, path)
    if names is None:
        return
    for name in names:
        with writing(f"{path}/{name}"):
            fs.unlink(f"{path}/{name}")
    with writing(path):
        fs.rmdir(path)


def remove_if_hollow(fs: FileSystem, path: str) -> bool:
    """Remove a directory in which there is nothing but empty directories. False: there is, and it stays."""
    names = _names_in(fs, path)
    if names is None:
        return True
    inner = [f"{path}/{name}" for name in names]
    with reading(path):
        for one in inner:
            try:
                if fs.listdir(one):
                    return False
            except NotADirectoryError:
                return False
    for one in (*inner, path):
        with writing(one):
            fs.rmdir(one)
    return True


def _names_in(fs: FileSystem, path: str) -> list[str] | None:
    """Return the names in a directory; None if there is no such directory."""
    with reading(path):
        try:
            return fs.listdir(path)
        except FileNotFoundError:
            return None


def fsync_error(path: str, error: OSError) -> FsyncError:
    """Return what `sync_file` makes of a system's error, for the frequent sync that is spared the call."""
    return FsyncError(
        f"{path}: fsync failed ({_reason(error)}); the server has to end: check the disk, then start it again"
    )


def _advice(error: OSError, verb: str) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"this user is not allowed to {verb} it: start the server as the user that the data directory belongs to, "
            "or give it to this one"
        )
    if error.errno == errno.EROFS:
        return "the file system is read-only; mount it for writing, and look why it is: kernels do that to failing disks"
    return "check the path, its owner and the disk"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
