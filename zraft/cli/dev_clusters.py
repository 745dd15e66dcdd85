"""Notes about clusters that `zraft dev` runs here, so that the same user's commands find the key.

Each running `zraft dev` keeps a note in the user's directory for state: where its servers are, and where the
key is. It holds a lock on its note, which the system drops when the process ends, however it ends. So a note
with a lock is of a running cluster, and one without is left over; that needs no process id, which another
process may have by now.

A note only says which key to try. The servers prove that they hold the same key before they get any request
(`zraft.transport.bulk`), and neither end shows the key to the other.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from attrs import frozen

from zraft.program.state_directory import state_directory
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError

NOTE_BYTES_MAX: Final = 16_384
NOTES_MAX: Final = 100
"""The number of notes that are read, the newest ones. The next cluster at the same first port replaces a
note.
"""
_SUFFIX: Final = ".json"


@frozen
class DevCluster:
    """A cluster of `zraft dev`: its servers, its data directory, and its key, which a single server does not have."""

    servers: tuple[Address, ...]
    data: Path
    key: Path | None


@frozen
class Note:
    """A cluster of which there is a note, and whether its `zraft dev` still runs."""

    cluster: DevCluster
    running: bool


def notes_directory(environ: Mapping[str, str]) -> Path:
    """Return where the notes are.

    Raises:
        RuntimeError: as `state_directory`.
    """
    return state_directory(environ) / "dev"


@contextmanager
def announced(
    cluster: DevCluster, environ: Mapping[str, str], on_failed: Callable[[str], None]
) -> Iterator[None]:
    """Keep a note of `cluster` while inside. The cluster works without one, so a failure is only reported."""
    try:
        directory = _open_directory(notes_directory(environ), make=True)
    except (OSError, RuntimeError) as error:
        on_failed(f"commands will not find the key by themselves, there is no place to note it: {error}")
        yield
        return
    name = f"{cluster.servers[0].port}{_SUFFIX}"
    descriptor = None
    try:
        try:
            descriptor = _write(directory, name, cluster)
        except OSError as error:
            on_failed(f"commands will not find the key by themselves, it cannot be noted: {error}")
        yield
    finally:
        if descriptor is not None:
            _remove(directory, name, descriptor)
            os.close(descriptor)
        os.close(directory)


def notes(environ: Mapping[str, str]) -> list[Note]:
    """Return all notes of this user that can be read, those of running clusters first."""
    found = []
    try:
        directory = _open_directory(notes_directory(environ), make=False)
    except (OSError, RuntimeError):
        return []
    try:
        with os.scandir(directory) as listed:
            entries = [one for one in listed if one.name.endswith(_SUFFIX)]
        for entry in sorted(entries, key=_written_at, reverse=True)[:NOTES_MAX]:
            with suppress(OSError, ValueError):
                found.append(_read(directory, entry.name))
    finally:
        os.close(directory)
    return sorted(found, key=lambda note: not note.running)


def _written_at(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:  # removed meanwhile, with its cluster
        return 0


def running_at(addresses: Iterable[Address], known: Sequence[Note]) -> DevCluster | None:
    """Return the running cluster that all of these addresses belong to; None if there is none."""
    wanted = set(map(_numeric, addresses))
    return next((one.cluster for one in known if one.running and wanted <= {*one.cluster.servers}), None)


def touched_by(addresses: Iterable[Address], known: Sequence[Note]) -> DevCluster | None:
    """Return the first cluster, running or not, that any of these addresses belongs to."""
    wanted = set(map(_numeric, addresses))
    return next((one.cluster for one in known if wanted & {*one.cluster.servers}), None)


def _numeric(address: Address) -> Address:
    return Address("127.0.0.1", address.port) if address.host == "localhost" else address


def _open_directory(path: Path, *, make: bool) -> int:
    """Return a descriptor, so that what is done below it is done in the directory that was judged.

    Raises:
        OSError: it cannot be opened, or others than this user may write to it.
    """
    if make:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _require_ours(descriptor, str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_ours(descriptor: int, path: str) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path}: belongs to somebody else, or others may write to it")


def _write(directory: int, name: str, cluster: DevCluster) -> int:
    """Put the note in its place, locked before it is seen there; return the descriptor that holds the lock."""
    temporary = f".{name}.{os.getpid()}"
    text = json.dumps(
        {
            "servers": list(map(str, cluster.servers)),
            "data": str(cluster.data),
            "key": None if cluster.key is None else str(cluster.key),
        }
    )
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)  # it is left of a process of the same number that was killed
    descriptor = os.open(
        temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, text.encode())
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    return descriptor


def _remove(directory: int, name: str, descriptor: int) -> None:
    """Remove a note unless a later cluster has replaced it."""
    with suppress(OSError):
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if os.path.samestat(there, os.fstat(descriptor)):
            os.unlink(name, dir_fd=directory)


def _read(directory: int, name: str) -> Note:
    """Read a note.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no note of this user's.
    """
    # O_NONBLOCK, so that a named pipe in its place is not waited for.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
    try:
        _require_ours(descriptor, name)
        text = os.read(descriptor, NOTE_BYTES_MAX)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            running = True
        else:
            running = False
    finally:
        os.close(descriptor)
    match json.loads(text):
        case {"servers": [str(), *_] as servers, "data": str(data), "key": str() | None as key}:
            try:
                addresses = tuple(parse_address(one, name) for one in servers)
            except (ConfigError, AttributeError) as error:
                raise ValueError(f"{name}: no note of a cluster") from error
            return Note(DevCluster(addresses, Path(data), None if key is None else Path(key)), running)
    raise ValueError(f"{name}: no note of a cluster")
