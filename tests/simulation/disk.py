"""A disk in memory that outlives the processes using it, and loses whatever a real one may lose.

Implements `zraft.storage.filesystem.FileSystem`. Writes go to a page cache in pages of 4,096 bytes, and names
to pending directory operations; `fdatasync` and `fsync_directory` make them durable. A process that is
killed loses nothing (`kill`); a power failure loses any subset of what was not synced, and may tear pages
(`crash`). A failed fsync leaves pages that look written but never will be, as Linux does. Everything
random comes from the generator handed in, so one seed gives one run.

Not thread-safe: simulations have one thread.
"""

from __future__ import annotations

import errno
import os
from enum import Enum, auto
from random import Random
from typing import Final

from attrs import evolve, frozen

PAGE_BYTES: Final = 4096
TEAR_BYTES: Final = 64
"""Pieces that a torn page falls into: finer than any disk's sector, so a harsher test than any disk."""


class ProcessDied(BaseException):
    """The simulated process no longer exists. Not an `Exception`: nobody survives their own death by catching it."""


class Trouble(Enum):
    """What can happen at a step. During: only a part of it has happened when the process dies."""

    DIE_BEFORE = auto()
    DIE_DURING = auto()
    DIE_AFTER = auto()
    EIO = auto()
    ENOSPC = auto()


@frozen
class DiskStatistics:
    """`steps` counts the calls that change something, the ones that `SimulatedDisk.fail_at` numbers."""

    steps: int
    fdatasyncs: int
    bytes_written: int


class _Inode:
    """A file: its pages as processes see them, as the disk holds them, and which of them a sync would write."""

    __slots__ = ("dirty", "durable", "durable_size", "is_directory", "pages", "reserved", "size")

    def __init__(self, *, is_directory: bool = False) -> None:
        self.is_directory = is_directory
        self.pages: dict[int, bytes] = {}
        self.size = 0
        self.reserved = 0  # bytes that have blocks, so that writing them cannot run out of space
        self.dirty: set[int] = set()
        self.durable: dict[int, bytes] = {}
        self.durable_size = 0

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first, last = offset // PAGE_BYTES, (end - 1) // PAGE_BYTES
        data = b"".join(self.pages.get(page, _ZEROS) for page in range(first, last + 1))
        start = offset - first * PAGE_BYTES
        return data[start : start + end - offset]

    def write(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            page, start = divmod(offset, PAGE_BYTES)
            piece = view[: PAGE_BYTES - start]
            old = self.pages.get(page, _ZEROS)
            self.pages[page] = b"".join((old[:start], piece, old[start + len(piece) :]))
            self.dirty.add(page)
            offset += len(piece)
            view = view[len(piece) :]
        self.size = max(self.size, offset)
        self.reserved = max(self.reserved, self.size)

    def truncate(self, size: int) -> None:
        page, start = divmod(size, PAGE_BYTES)
        for gone in [number for number in self.pages if number > page or (number == page and start == 0)]:
            del self.pages[gone]
            self.dirty.add(gone)
        if start and page in self.pages:
            self.pages[page] = self.pages[page][:start] + bytes(PAGE_BYTES - start)
            self.dirty.add(page)
        self.size = size
        self.reserved = size

    def flush(self, pages: list[int]) -> None:
        for page in pages:
            if page in self.pages:
                self.durable[page] = self.pages[page]
            else:
                self.durable.pop(page, None)
        self.durable_size = self.size

    def lose(self, rng: Random) -> None:
        """Power failure: each dirty page reaches the disk whole, not at all, or torn; the size does or does not."""
        for page in sorted(self.dirty):
            new = self.pages.get(page, _ZEROS)
            old = self.durable.get(page, _ZEROS)
            fate = rng.randrange(3)
            if fate == 0:
                continue
            if fate == 1:
                self.durable[page] = new
            else:
                self.durable[page] = b"".join(
                    (new if rng.random() < 0.5 else old)[at : at + TEAR_BYTES]
                    for at in range(0, PAGE_BYTES, TEAR_BYTES)
                )
        if self.size != self.durable_size and rng.random() < 0.5:
            self.durable_size = self.size
        self.dirty.clear()
        self.pages = dict(self.durable)
        self.truncate(self.durable_size)
        self.dirty.clear()
        self.durable = dict(self.pages)


_ZEROS: Final = bytes(PAGE_BYTES)


@frozen
class _NameChange:
    """A pending directory operation: `path` becomes `inode`, or disappears if None; a rename also removes `source`.

    `directories`: those that have to be synced for it to be durable; before that it is, as a whole, or is not. Two if a
    rename leaves one directory for another.
    """

    directories: frozenset[str]
    path: str
    inode: _Inode | None
    source: str | None = None

    def apply(self, names: dict[str, _Inode]) -> None:
        if self.source is not None:
            names.pop(self.source, None)
        if self.inode is None:
            names.pop(self.path, None)
        else:
            names[self.path] = self.inode
            if self.source is not None and self.inode.is_directory:
                for name in [name for name in names if name.startswith(self.source + "/")]:
                    names[_moved(name, self.source, self.path)] = names.pop(name)

    def synced(self, directory: str) -> _NameChange:
        """What is left to do for it."""
        return evolve(self, directories=self.directories - {directory})

    def after_move(self, source: str, target: str) -> _NameChange:
        """The same in a directory that has another name now."""
        return evolve(
            self,
            directories=frozenset(_moved(one, source, target) for one in self.directories),
            path=_moved(self.path, source, target),
            source=None if self.source is None else _moved(self.source, source, target),
        )


class SimulatedDisk:
    """One machine's disk. Hand the same object to every process that the simulation starts on that machine.

    `full` makes every call that needs new blocks fail with ENOSPC until it is set back. Not `reserves`: it cannot
    reserve space, as some file systems cannot.
    """

    __slots__ = (
        "_died",
        "_durable_names",
        "_fdatasyncs",
        "_files",
        "_locks",
        "_names",
        "_next_file",
        "_pending",
        "_steps",
        "_troubles",
        "_unreadable",
        "_written",
        "full",
        "reserves",
    )

    def __init__(self) -> None:
        root = _Inode(is_directory=True)
        self._names: dict[str, _Inode] = {"/": root}
        self._durable_names: dict[str, _Inode] = {"/": root}
        self._pending: list[_NameChange] = []
        self._files: dict[int, _Inode] = {}
        self._next_file = 3
        self._locks: dict[int, _Inode] = {}
        self._troubles: dict[int, tuple[Trouble, Random]] = {}
        self._unreadable: set[tuple[str, int]] = set()
        self._steps = 0
        self._fdatasyncs = 0
        self._written = 0
        self._died = False
        self.full = False
        self.reserves = True

    # --- what happens to it

    def fail_at(self, step: int, trouble: Trouble, rng: Random) -> None:
        """At the `step`-th changing call from now (1 is the next), `trouble` happens; `rng` decides the details."""
        assert step >= 1, f"{step=}"
        self._troubles[self._steps + step] = (trouble, rng)

    def kill(self) -> None:
        """The process ends; the machine goes on, so nothing written is lost. Planned troubles are forgotten."""
        self._files.clear()
        self._locks.clear()
        self._troubles.clear()
        self._died = False

    def crash(self, rng: Random) -> None:
        """Power failure: any subset of what was not synced is lost, and pages may be torn."""
        self.kill()
        for change in self._pending:
            if rng.random() < 0.5:
                change.apply(self._durable_names)
        self._pending.clear()
        for path in sorted(self._durable_names, key=len):
            if path != "/" and _parent(path) not in self._durable_names:
                del self._durable_names[path]
        self._names = dict(self._durable_names)
        for inode in dict.fromkeys(self._names[path] for path in sorted(self._names)):
            inode.lose(rng)

    def spoil(self, path: str, offset: int) -> None:
        """From now on reading the page at `offset` fails with EIO."""
        self._unreadable.add((path, offset // PAGE_BYTES))

    def contents(self, path: str) -> bytes:
        """The whole file as processes see it, for tests."""
        inode = self._names[path]
        return inode.read(0, inode.size)

    def replace(self, path: str, data: bytes) -> None:
        """Put other contents there, durably and behind everybody's back: bit rot, or an operator's hand."""
        inode = self._names.setdefault(path, _Inode())
        self._durable_names[path] = inode
        inode.truncate(0)
        inode.write(data, 0)
        inode.flush(sorted(inode.dirty))
        inode.dirty.clear()

    def remove(self, path: str) -> None:
        """Take the file or directory away, with all below it, durably and behind everybody's back."""
        for names in (self._names, self._durable_names):
            for name in [name for name in names if name == path or name.startswith(path + "/")]:
                del names[name]

    @property
    def died(self) -> bool:
        """Whether the process that used it has died at one of its steps, and nobody has started another."""
        return self._died

    def statistics(self) -> DiskStatistics:
        """Counts since the disk was made."""
        return DiskStatistics(self._steps, self._fdatasyncs, self._written)

    # --- FileSystem

    def open(self, path: str) -> int:
        self._alive()
        return self._new_file(self._file_at(path))

    def create(self, path: str) -> int:
        after = self._step()
        inode = self._names.get(path)
        if inode is None:
            inode = _Inode()
            self._change(path, inode)
        elif inode.is_directory:
            raise _error(errno.EISDIR, path)
        inode.truncate(0)
        self._finish(after)
        return self._new_file(inode)

    def close(self, file: int) -> None:
        # Closing after death is what `finally` does on the way out; it must not hide why.
        self._files.pop(file, None)
        self._locks.pop(file, None)

    def size(self, file: int) -> int:
        return self._inode(file).size

    def pread(self, file: int, size: int, offset: int) -> bytes:
        inode = self._inode(file)
        for path, page in self._unreadable:
            start = page * PAGE_BYTES
            if self._names.get(path) is inode and offset < start + PAGE_BYTES and start < offset + size:
                raise _error(errno.EIO, path)
        return inode.read(offset, size)

    def pwrite(self, file: int, data: bytes, offset: int) -> None:
        inode = self._inode(file)
        data = bytes(data)
        trouble = self._step(partial=True)
        if trouble is not None and trouble[0] is not Trouble.DIE_AFTER:
            what, rng = trouble
            inode.write(data[: rng.randrange(len(data) + 1)], offset)
            if what is Trouble.DIE_DURING:
                self._die()
            raise _error(errno.EIO if what is Trouble.EIO else errno.ENOSPC, "pwrite")
        if self.full and offset + len(data) > inode.reserved:
            inode.write(data[: max(0, inode.reserved - offset)], offset)
            raise _error(errno.ENOSPC, "pwrite")
        inode.write(data, offset)
        self._written += len(data)
        self._finish(trouble)

    def fdatasync(self, file: int) -> None:
        inode = self._inode(file)
        trouble = self._step(partial=True)
        pages = sorted(inode.dirty)
        if trouble is not None and trouble[0] is not Trouble.DIE_AFTER:
            what, rng = trouble
            if what is Trouble.DIE_DURING:
                self._die()  # which pages made it is decided by `crash`, as for any unsynced page
            # The pages that did not make it are marked clean all the same: processes go on seeing them,
            # no later sync writes them, and a power failure takes them away.
            inode.flush([page for page in pages if rng.random() < 0.5])
            inode.dirty.clear()
            raise _error(errno.EIO if what is Trouble.EIO else errno.ENOSPC, "fdatasync")
        inode.flush(pages)
        inode.dirty.clear()
        self._fdatasyncs += 1
        self._finish(trouble)

    def fallocate(self, file: int, size: int) -> None:
        inode = self._inode(file)
        after = self._step()
        if not self.reserves:
            raise _error(errno.EOPNOTSUPP, "fallocate")
        if self.full and size > inode.reserved:
            raise _error(errno.ENOSPC, "fallocate")
        inode.size = max(inode.size, size)
        inode.reserved = max(inode.reserved, size)
        self._finish(after)

    def ftruncate(self, file: int, size: int) -> None:
        inode = self._inode(file)
        after = self._step()
        inode.truncate(size)
        self._finish(after)

    def rename(self, source: str, target: str) -> None:
        after = self._step()
        inode = self._names.get(source)
        if inode is None:
            raise _error(errno.ENOENT, source)
        replaced = self._names.get(target)
        if replaced is not None and (inode.is_directory or replaced.is_directory):
            raise _error(errno.EEXIST, target)
        if inode.is_directory:
            self._pending = [change.after_move(source, target) for change in self._pending]
        self._change(target, inode, source)
        self._finish(after)

    def unlink(self, path: str) -> None:
        after = self._step()
        self._file_at(path)
        self._change(path, None)
        self._finish(after)

    def mkdir(self, path: str) -> None:
        after = self._step()
        if path in self._names:
            raise _error(errno.EEXIST, path)
        self._change(path, _Inode(is_directory=True))
        self._finish(after)

    def rmdir(self, path: str) -> None:
        after = self._step()
        if self.listdir(path):
            raise _error(errno.ENOTEMPTY, path)
        self._change(path, None)
        self._finish(after)

    def listdir(self, path: str) -> list[str]:
        self._alive()
        inode = self._names.get(path)
        if inode is None:
            raise _error(errno.ENOENT, path)
        if not inode.is_directory:
            raise _error(errno.ENOTDIR, path)
        return sorted(
            name.rpartition("/")[2] for name in self._names if name != "/" and _parent(name) == path
        )

    def fsync_directory(self, path: str) -> None:
        after = self._step()
        if path not in self._names:
            raise _error(errno.ENOENT, path)
        pending = []
        for change in self._pending:
            rest = change.synced(path)
            if rest.directories:
                pending.append(rest)
            else:
                change.apply(self._durable_names)
        self._pending = pending
        self._finish(after)

    def lock(self, path: str) -> int:
        after = self._step()
        inode = self._names.get(path)
        if inode is None:
            inode = _Inode()
            self._change(path, inode)
        if any(held is inode for held in self._locks.values()):
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        inode.truncate(0)
        inode.write(b"1\n", 0)
        self._finish(after)
        file = self._new_file(inode)
        self._locks[file] = inode
        return file

    # --- inside

    def _step(self, *, partial: bool = False) -> tuple[Trouble, Random] | None:
        """Count a changing call and let its trouble happen. What the call itself must act out is returned."""
        self._alive()
        self._steps += 1
        planned = self._troubles.pop(self._steps, None)
        if planned is None:
            return None
        match planned[0]:
            case Trouble.DIE_BEFORE:
                self._die()
            case Trouble.DIE_AFTER:
                return planned
            case _ if partial:
                return planned
            case Trouble.DIE_DURING:
                self._die()  # names and sizes change at once or not at all
            case Trouble.EIO:
                raise _error(errno.EIO, "injected")
            case Trouble.ENOSPC:
                raise _error(errno.ENOSPC, "injected")
        return None

    def _finish(self, trouble: tuple[Trouble, Random] | None) -> None:
        if trouble is not None:
            self._die()

    def _die(self) -> None:
        self._died = True
        raise ProcessDied(f"at step {self._steps}")

    def _alive(self) -> None:
        if self._died:
            raise ProcessDied("the process has ended; call kill() or crash() before the next one starts")

    def _inode(self, file: int) -> _Inode:
        self._alive()
        inode = self._files.get(file)
        if inode is None:
            raise _error(errno.EBADF, f"file {file}")
        return inode

    def _file_at(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise _error(errno.ENOENT, path)
        if inode.is_directory:
            raise _error(errno.EISDIR, path)
        return inode

    def _new_file(self, inode: _Inode) -> int:
        file = self._next_file
        self._next_file += 1
        self._files[file] = inode
        return file

    def _change(self, path: str, inode: _Inode | None, source: str | None = None) -> None:
        directory = _parent(path)
        if directory not in self._names:
            raise _error(errno.ENOENT, path)
        directories = {directory} if source is None else {directory, _parent(source)}
        change = _NameChange(frozenset(directories), path, inode, source)
        change.apply(self._names)
        self._pending.append(change)


def _moved(path: str, source: str, target: str) -> str:
    return target + path[len(source) :] if path == source or path.startswith(source + "/") else path


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
