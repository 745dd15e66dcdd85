"""The snapshots of one group: written, received, verified, read, purged.

`<data>/groups/<id>/snap/<index>-<term>.snap`, both in 16 hexadecimal digits, so that names sort by index. A
file is written under a name ending in `.tmp`, fsynced, renamed, and its directory fsynced: a name that ends in
`.snap` is a whole snapshot, or the disk is damaged. Layout: `zraft.storage.snapshot_format` and docs/explanation/storage.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import zstandard
from attrs import evolve, frozen

from zraft.storage.directory import DataDirectory
from zraft.storage.durable import make_directories, reading, reserve, sync_directory, sync_file, writing
from zraft.storage.errors import CorruptionError, DiskFullError, SnapshotGoneError, SnapshotRejectedError
from zraft.storage.filesystem import FileSystem
from zraft.storage.snapshot_format import (
    COMPRESSION_LEVEL,
    SnapshotFileReader,
    SnapshotFooter,
    SnapshotHeader,
    SnapshotInfo,
    encode_block,
    encode_footer,
    encode_header,
)
from zraft_core.ids import GroupId

WRITE_BYTES_MAX: Final = 1 << 20
"""Largest piece that `SnapshotStore.write` takes."""
KEEP_DEFAULT: Final = 3
_BLOCK_BYTES: Final = 256 << 10
"""Pieces are gathered up to here before they are compressed: small ones compress badly."""
_SYNC_BYTES: Final = 8 << 20
"""A file is synced every so many bytes: one sync of all of it would hold up the log's for seconds."""
_TEMPORARY_SUFFIX: Final = ".tmp"
_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})\.snap")


def snapshots_of(data: str, group: int) -> str:
    """Return the directory of a group's snapshots."""
    return f"{data}/groups/{group}/snap"


@frozen
class SnapshotStatistics:
    """`bytes` is the length of all files, unfinished ones included."""

    snapshots: int
    bytes: int


class _Output:
    """A file that grows, not yet under its final name. Synced as it grows."""

    __slots__ = ("_file", "_fs", "_unsynced", "length", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self.path = path
        self.length = 0
        self._unsynced = 0
        with writing(path):
            self._file = fs.create(path)

    def reserve(self, size: int) -> None:
        with writing(self.path):
            reserve(self._fs, self._file, size)

    def write(self, data: bytes) -> None:
        with writing(self.path):
            self._fs.pwrite(self._file, data, self.length)
        self.length += len(data)
        self._unsynced += len(data)
        if self._unsynced >= _SYNC_BYTES:
            self.sync()

    def sync(self) -> None:
        sync_file(self._fs, self._file, self.path)
        self._unsynced = 0

    def close(self) -> None:
        self._fs.close(self._file)

    def discard(self) -> None:
        self._fs.close(self._file)
        with writing(self.path):
            self._fs.unlink(self.path)


READ_AT_ONCE_MAX: Final = 2
"""A follower's and an operator's; what was purged meanwhile takes space as long as it is open."""


class _Writing:
    """A snapshot of our own under way."""

    __slots__ = ("blocks", "gathered", "gathered_bytes", "header", "output", "size")

    def __init__(self, header: SnapshotHeader, output: _Output) -> None:
        self.header = header
        self.output = output
        self.blocks = 0
        self.size = 0
        self.gathered: list[bytes] = []
        self.gathered_bytes = 0


class _Incoming:
    """A snapshot that another server sends."""

    __slots__ = ("id", "output", "size")

    def __init__(self, id: bytes, size: int, output: _Output) -> None:
        self.id = id
        self.size = size
        self.output = output


class SnapshotStore:
    """One group's snapshots on this disk. All methods block and belong to one thread; properties may be read by any.

    A full disk raises `DiskFullError` and takes away what was being written or received; the finished ones stay.
    """

    __slots__ = (
        "_compressor",
        "_directory",
        "_fs",
        "_group",
        "_incoming",
        "_path",
        "_read",
        "_writing",
        "damaged",
        "infos",
    )

    def __init__(self, fs: FileSystem, directory: DataDirectory, group: GroupId, path: str) -> None:
        """Take what `open` found; private, use `open`."""
        self._fs = fs
        self._directory = directory
        self._group = group
        self._path = path
        self._compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)
        self._writing: _Writing | None = None
        self._incoming: _Incoming | None = None
        self._read: dict[bytes, tuple[str, int, int]] = {}
        self.infos: tuple[SnapshotInfo, ...] = ()
        """The finished ones, oldest first."""
        self.damaged: tuple[CorruptionError, ...] = ()
        """Files that `open` or `verify` found damaged; they are left for inspection until `purge`."""

    @classmethod
    def open(cls, fs: FileSystem, directory: DataDirectory, group: GroupId) -> SnapshotStore:
        """Find the group's snapshots, and remove what was being written when the process before ended.

        The newest one is read and verified whole, checksums without decompression (a gigabyte a second), because
        the log is opened on the strength of it: a damaged one has to be known before, so that an older one is taken
        instead. Of the others only header and footer are verified here; `blocks` verifies all that it gives.

        Raises:
            StorageError: the directory cannot be read or written.
        """
        path = snapshots_of(directory.path, group)
        make_directories(fs, path)
        # The process before may have been killed between making a name and fsyncing it.
        above = path
        while above != directory.path:
            sync_directory(fs, above)
            above = above.rpartition("/")[0]
        sync_directory(fs, above)
        store = cls(fs, directory, group, path)
        with reading(path):
            names = fs.listdir(path)
        for name in names:
            if name.endswith(_TEMPORARY_SUFFIX):
                with writing(f"{path}/{name}"):
                    fs.unlink(f"{path}/{name}")
        infos: list[SnapshotInfo] = []
        for name in filter(_NAME.fullmatch, reversed(names)):
            try:
                infos.append(store._examine(f"{path}/{name}", whole=not infos))
            except CorruptionError as error:
                store.damaged += (error,)
        store.infos = tuple(reversed(infos))
        return store

    @property
    def newest(self) -> SnapshotInfo | None:
        """The one to start from and to send."""
        infos = self.infos
        return infos[-1] if infos else None

    @property
    def fallback(self) -> SnapshotInfo | None:
        """The one to start from should the newest turn out to be damaged: the log is worth keeping back to it."""
        infos = self.infos
        return infos[-2] if len(infos) > 1 else None

    def statistics(self) -> SnapshotStatistics:
        """Return sizes for metrics; any thread may call it."""
        writing_, incoming = self._writing, self._incoming
        unfinished = (writing_.output.length if writing_ else 0) + (incoming.size if incoming else 0)
        infos = self.infos
        return SnapshotStatistics(len(infos), sum(info.size for info in infos) + unfinished)

    # --- writing

    @property
    def writing(self) -> bool:
        """True if a snapshot of our own was begun and neither finished nor given up."""
        return self._writing is not None

    def begin(self, header: SnapshotHeader) -> None:
        """Begin a snapshot of our own; one that was under way is given up."""
        assert header.group == self._group, f"{header.group=} in the store of group {self._group}"
        self.abort()
        path = f"{self._final_path(header)}{_TEMPORARY_SUFFIX}"
        self._writing = _Writing(header, _Output(self._fs, path))
        self._put(encode_header(header))

    def write(self, block: bytes) -> None:
        """Add a piece of the image, uncompressed, at most `WRITE_BYTES_MAX`; `blocks` never splits it."""
        writing_ = self._writing
        assert writing_ is not None, "no snapshot was begun"
        assert len(block) <= WRITE_BYTES_MAX, f"piece of {len(block)} bytes, limit {WRITE_BYTES_MAX}"
        writing_.gathered.append(block)
        writing_.gathered_bytes += len(block)
        if writing_.gathered_bytes >= _BLOCK_BYTES:
            self._put_block(writing_)

    def finish(self, items: int, digest: int, zxid: int) -> SnapshotInfo:
        """Complete it: durable under its final name on return, and the newest unless a newer one was received."""
        writing_ = self._writing
        assert writing_ is not None, "no snapshot was begun"
        if writing_.gathered_bytes:
            self._put_block(writing_)
        footer = SnapshotFooter(writing_.blocks, items, zxid, writing_.size, digest)
        self._put(encode_footer(footer, writing_.header.seed))
        self._writing = None
        path = self._make_final(writing_.output, writing_.header)
        info = SnapshotInfo(writing_.header, path, writing_.output.length, items, digest, zxid)
        self._add(info)
        return info

    def abort(self) -> None:
        """Give up what was begun, if anything."""
        writing_, self._writing = self._writing, None
        if writing_ is not None:
            writing_.output.discard()

    def _put_block(self, writing_: _Writing) -> None:
        raw = b"".join(writing_.gathered)
        writing_.gathered.clear()
        writing_.gathered_bytes = 0
        writing_.blocks += 1
        writing_.size += len(raw)
        self._put(encode_block(writing_.blocks, raw, writing_.header.seed, self._compressor))

    def _put(self, data: bytes) -> None:
        assert self._writing is not None
        try:
            self._writing.output.write(data)
        except DiskFullError:
            # Give back what it did get: others need it.
            self.abort()
            raise

    # --- receiving

    def receive(self, id: bytes, size: int) -> int:
        """Begin or resume the snapshot `id` of `size` bytes from another server; how many of them are here.

        Another one that was being received is given up. Space is reserved at once, so that a disk that is too small
        says so before anything was transferred.
        """
        assert size > 0, f"{size=}"
        if any(info.id == id for info in self.infos):
            return size
        incoming = self._incoming
        if incoming is not None and (incoming.id, incoming.size) == (id, size):
            return incoming.output.length
        self.give_up_receiving()
        output = _Output(self._fs, f"{self._path}/{id.hex()}.snap{_TEMPORARY_SUFFIX}")
        self._incoming = _Incoming(id, size, output)
        try:
            output.reserve(size)
        except DiskFullError:
            self.give_up_receiving()
            raise
        return 0

    def store(self, id: bytes, offset: int, data: bytes) -> int:
        """Add bytes of the file, and return how many are here now.

        Bytes that do not continue what is here are ignored.

        Raises:
            SnapshotGoneError: this snapshot is not being received.
            StorageError: the bytes cannot be written.
        """
        incoming = self._incoming
        if incoming is None or incoming.id != id:
            raise SnapshotGoneError(f"{self._path}: snapshot {id.hex()} is not being received")
        if offset == incoming.output.length and offset + len(data) <= incoming.size:
            try:
                incoming.output.write(data)
            except DiskFullError:
                self.give_up_receiving()
                raise
        return incoming.output.length

    def complete(self, id: bytes) -> SnapshotInfo:
        """Verify all that was received and make it one of ours, durable on return.

        Raises:
            SnapshotRejectedError: it is incomplete, damaged, another group's or another cluster's; nothing of it was kept.
        """
        for info in self.infos:
            if info.id == id:
                return info
        incoming = self._incoming
        if incoming is None or incoming.id != id:
            raise SnapshotGoneError(f"{self._path}: snapshot {id.hex()} is not being received")
        try:
            info = self._judge_incoming(incoming)
        except (CorruptionError, SnapshotRejectedError) as error:
            self.give_up_receiving()
            if isinstance(error, CorruptionError):
                raise SnapshotRejectedError(
                    f"{self._path}: snapshot {id.hex()} arrived damaged (at offset {error.offset}: {error.found}); "
                    "it is fetched again; if that goes on, check the disk of the server that sends it"
                ) from error
            raise
        self._incoming = None
        path = self._make_final(incoming.output, info.header)
        info = evolve(info, path=path)
        self._add(info)
        return info

    def give_up_receiving(self) -> None:
        """Forget what was received, if anything."""
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.output.discard()

    def _judge_incoming(self, incoming: _Incoming) -> SnapshotInfo:
        if incoming.output.length != incoming.size:
            raise SnapshotRejectedError(
                f"{self._path}: snapshot {incoming.id.hex()} has {incoming.output.length} bytes of {incoming.size}"
            )
        info = self._examine(incoming.output.path, whole=True)
        header, cluster = info.header, self._directory.cluster
        for what, found, expected in (
            ("snapshot id", header.id.hex(), incoming.id.hex()),
            ("group", header.group, self._group),
            ("cluster", header.cluster.hex(), (cluster or header.cluster).hex()),
        ):
            if found != expected:
                raise SnapshotRejectedError(
                    f"{self._path}: the snapshot received is of {what} {found}, expected {expected}"
                )
        return info

    # --- reading

    def read(self, id: bytes, offset: int, length: int) -> bytes:
        """Return bytes of a finished file, to be sent; empty at its end.

        The receiver verifies them.

        A file that was purged can be read on by who has begun to, up to its end: a slow reader would otherwise never
        come to the end of any. At most `READ_AT_ONCE_MAX` are open; their space is given back when they are closed.

        Raises:
            SnapshotGoneError: it was purged before it was asked for, or others were read since.
        """
        path, file, size = self._opened(id)
        with reading(path):
            data = self._fs.pread(file, length, offset)
        if offset + len(data) >= size:
            self._release(id)
        return data

    def blocks(self, info: SnapshotInfo) -> Iterator[bytes]:
        """Yield what was written, verified and decompressed.

        The pieces have at most `snapshot_format.BLOCK_BYTES_MAX`.

        Raises:
            CorruptionError: it is damaged; `open` finds out the same and takes an older one.
        """
        with SnapshotFileReader(self._fs, info.path) as file:
            yield from file.blocks()

    def verify(self, id: bytes) -> None:
        """Read a finished file whole. A damaged one is no longer offered, nor counted among `infos`.

        Raises:
            CorruptionError: it is damaged.
        """
        info = self._find(id)
        try:
            self._examine(info.path, whole=True)
        except CorruptionError as error:
            self.infos = tuple(other for other in self.infos if other.id != id)
            self.damaged += (error,)
            self._release(id)
            raise

    def purge(self, keep: int = KEEP_DEFAULT) -> int:
        """Remove all but the newest `keep` (1 or more), and damaged ones if a newer good one is here; how many were."""
        assert keep >= 1, f"{keep=}"
        newest = self.newest
        gone = [info.path for info in self.infos[:-keep]]
        if newest is not None:
            gone += [error.path for error in self.damaged if error.path < newest.path]
        for path in gone:
            with writing(path):
                self._fs.unlink(path)
            self.infos = tuple(info for info in self.infos if info.path != path)
            self.damaged = tuple(error for error in self.damaged if error.path != path)
        if gone:
            sync_directory(self._fs, self._path)
        return len(gone)

    def close(self) -> None:
        """Give up what is under way."""
        self.abort()
        self.give_up_receiving()
        for id in list(self._read):
            self._release(id)

    # --- inside

    def _opened(self, id: bytes) -> tuple[str, int, int]:
        """Return (path, file, size) of a snapshot that is read; the one read last is the last of `_read`."""
        found = self._read.pop(id, None)
        if found is None:
            info = self._find(id)
            with reading(info.path):
                found = (info.path, self._fs.open(info.path), info.size)
            while len(self._read) >= READ_AT_ONCE_MAX:
                self._release(next(iter(self._read)))
        self._read[id] = found
        return found

    def _release(self, id: bytes) -> None:
        found = self._read.pop(id, None)
        if found is not None:
            self._fs.close(found[1])

    def _find(self, id: bytes) -> SnapshotInfo:
        for info in self.infos:
            if info.id == id:
                return info
        raise SnapshotGoneError(
            f"{self._path}: snapshot {id.hex()} is not here any more; take the newest one"
        )

    def _examine(self, path: str, *, whole: bool) -> SnapshotInfo:
        with SnapshotFileReader(self._fs, path) as file:
            name = path.rpartition("/")[2]
            if _NAME.fullmatch(name) and path != self._final_path(file.header):
                raise CorruptionError(
                    path,
                    0,
                    f"the header says group {file.header.group}, index {file.header.meta.index}, "
                    f"term {file.header.meta.term}: the file was renamed",
                    advice="give it its name back, or remove it",
                )
            if whole:
                for _ in file.verify():
                    pass
            return file.info

    def _final_path(self, header: SnapshotHeader) -> str:
        path = self._path
        if header.group != self._group:
            path = f"{self._directory.path}/groups/{header.group}/snap"
        return f"{path}/{header.meta.index:016x}-{header.meta.term:016x}.snap"

    def _make_final(self, output: _Output, header: SnapshotHeader) -> str:
        try:
            output.sync()
        finally:
            output.close()
        path = self._final_path(header)
        try:
            with writing(path):
                self._fs.rename(output.path, path)
        except DiskFullError:
            with writing(output.path):
                self._fs.unlink(output.path)
            raise
        sync_directory(self._fs, self._path)
        return path

    def _add(self, info: SnapshotInfo) -> None:
        others = [other for other in self.infos if other.path != info.path]
        self.damaged = tuple(error for error in self.damaged if error.path != info.path)
        self.infos = tuple(sorted((*others, info), key=_age))


def _age(info: SnapshotInfo) -> tuple[int, int]:
    return info.meta.index, info.meta.term
