"""The file of a backup with topics: a tar archive of a snapshot, the deliveries of partitions in parts, and a manifest.

docs/explanation/storage.md, "Backups with topics". It is written in one pass and read at any place; memory is bounded by a
part. The manifest comes last, because only then counts and digests are known: a file without it is no whole backup.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import zstandard
from attrs import frozen

from zraft.offline.manifest import (
    MANIFEST_BYTES_MAX,
    Manifest,
    SavedPartition,
    decode_manifest,
    encode_manifest,
)
from zraft.storage.delivery.values import (
    DeliveryFormatError,
    StoredDelivery,
    beginning,
    decode_deliveries,
    encode_deliveries,
)
from zraft.storage.durable import reading, writing
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem, ReadOnlyFileSystem
from zraft_core.claims.snapshot import decode_snapshot
from zraft_core.claims.state import Claims
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import GroupId
from zraft_core.topics.message import DIGEST_BYTES

SNAPSHOT: Final = "group-0.snap"
MANIFEST: Final = "manifest"
PART_BYTES: Final = 4 << 20
"""A part is written once its messages take so many bytes."""
PART_BYTES_MAX: Final = 64 << 20
"""The most that a part takes: one more message comes to it before it is written."""
_READ_BYTES: Final = 1 << 20
_BLOCK: Final = tarfile.BLOCKSIZE
_MODE: Final = 0o600
_MARK: Final = b"ustar"
_MARK_AT: Final = 257
_ADVICE: Final = "use another copy of the file"


def part_name(group: GroupId, number: int) -> str:
    """Return the name of part `number`, from 1, of a partition."""
    return f"topics/{group:016x}/{number:08d}"


def is_archive(fs: FileSystem, path: str) -> bool:
    """Return whether the file begins as such an archive does, and not as a snapshot.

    Raises:
        StorageError: it cannot be read.
    """
    with reading(path):
        file = fs.open(path)
        try:
            start = fs.pread(file, _BLOCK, 0)
        finally:
            fs.close(file)
    return start[_MARK_AT:].startswith(_MARK)


class ArchiveWriter:
    """Writer of an archive into an open, empty file, one member after the other.

    Attributes:
        size: the bytes that were written so far.
    """

    def __init__(self, fs: FileSystem, file: int, path: str, saved_ms: int) -> None:
        self._fs = fs
        self._file = file
        self._path = path
        self._saved_ms = saved_ms
        self.size = 0

    def member(self, name: str, size: int, pieces: Iterable[bytes]) -> bytes:
        """Write a member of `size` bytes, and return the digest of it.

        Raises:
            StorageError: the file cannot be written.
        """
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, _MODE, self._saved_ms // 1000
        self._put(info.tobuf(tarfile.GNU_FORMAT))
        digest = blake2b(digest_size=DIGEST_BYTES)
        written = 0
        for piece in pieces:
            digest.update(piece)
            written += len(piece)
            self._put(piece)
        if written != size:
            raise StorageError(
                f"{self._path}: {name}: found {written} bytes, expected {size}; nothing was saved"
            )
        self._put(bytes(-size % _BLOCK))
        return digest.digest()

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest and the end. It is for the caller to make the file durable.

        Raises:
            StorageError: the file cannot be written.
        """
        data = encode_manifest(manifest)
        self.member(MANIFEST, len(data), (data,))
        self._put(bytes(2 * _BLOCK))
        self._put(bytes(-self.size % tarfile.RECORDSIZE))

    def cut(self, size: int) -> None:
        """Drop the members from `size` bytes on.

        Raises:
            StorageError: the file cannot be cut.
        """
        with writing(self._path):
            self._fs.ftruncate(self._file, size)
        self.size = size

    def _put(self, data: bytes) -> None:
        with writing(self._path):
            self._fs.pwrite(self._file, data, self.size)
        self.size += len(data)


class PartitionWriter:
    """Writer of one partition's deliveries, in parts.

    Args:
        first: the offset of the first delivery that will come.

    Attributes:
        end: the offset behind the last delivery that came.
    """

    def __init__(self, archive: ArchiveWriter, group: GroupId, first: int) -> None:
        self._archive = archive
        self._group = group
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self._chain = beginning(group).chain
        self._gathered: list[StoredDelivery] = []
        self._gathered_bytes = 0
        self._first = self.end = first
        self._messages = self._size = self._stored = 0
        self.parts = 0

    def add(self, delivery: StoredDelivery) -> None:
        """Take the next delivery.

        Raises:
            StorageError: the file cannot be written.
        """
        assert delivery.offset == self.end, f"{delivery.offset=} after {self.end}"
        self._gathered.append(delivery)
        self._gathered_bytes += len(delivery.payload)
        self._messages += 1
        self.end = delivery.end
        if self._gathered_bytes >= PART_BYTES:
            self._put()

    @property
    def number(self) -> int:
        """The number of the part to which the next delivery goes: its `index`."""
        return self.parts + 1

    def _put(self) -> None:
        records, self._chain = encode_deliveries(self._gathered, self._chain)
        data = self._compressor.compress(b"".join(records))
        self.parts += 1
        self._archive.member(part_name(self._group, self.parts), len(data), (data,))
        self._digest.update(data)
        self._size += self._gathered_bytes
        self._stored += len(data)
        self._gathered, self._gathered_bytes = [], 0

    def finish(self, offsets: Mapping[bytes, int], claims: bytes) -> SavedPartition:
        """Write the last part, and return what the manifest says.

        Raises:
            StorageError: the file cannot be written.
        """
        if self._gathered:
            self._put()
        return SavedPartition(
            self._group,
            self._first,
            self.end,
            self._messages,
            self._size,
            self._stored,
            self.parts,
            self._digest.digest(),
            self._chain,
            tuple(sorted(offsets.items())),
            claims,
        )


@frozen
class _Member:
    """The place of a member's bytes in the file."""

    at: int
    size: int


class MemberFileSystem(ReadOnlyFileSystem):
    """The one member of an archive, as a file of its own that can be opened at the archive's path."""

    def __init__(self, at: int, size: int) -> None:
        self._at = at
        self._size = size

    def size(self, file: int) -> int:
        """Return the member's size in bytes."""
        return self._size

    def pread(self, file: int, size: int, offset: int) -> bytes:
        """Return bytes of the member, fewer only at its end."""
        return super().pread(file, max(0, min(size, self._size - offset)), self._at + offset)


class ArchiveReader:
    """Reader of one archive, which checks everything that it gives.

    Attributes:
        path, size: the file's, the latter in bytes.
        manifest: what it holds.

    Raises (on construction and from all methods):
        CorruptionError: it is no whole archive as it was written; says where.
        StorageError: it cannot be read.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Open it, find its members, and read the manifest."""
        self._fs = fs
        self.path = path
        with reading(path):
            self._file = fs.open(path)
        try:
            with reading(path):
                self.size = fs.size(self._file)
            self._members = self._found()
            self.manifest = self._read_manifest()
            self._check_members()
        except BaseException:
            fs.close(self._file)
            raise

    def close(self) -> None:
        """Close the file."""
        self._fs.close(self._file)

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def snapshot(self) -> MemberFileSystem:
        """Return the snapshot of the coordination group, as a file at this path."""
        member = self._members[SNAPSHOT]
        return MemberFileSystem(member.at, member.size)

    def verify(self) -> Iterator[int]:
        """Read everything and compare all digests; gives how many bytes were read so far."""
        done = 0
        digest = blake2b(digest_size=DIGEST_BYTES)
        for piece in self._pieces(SNAPSHOT):
            digest.update(piece)
            done += len(piece)
            yield done
        if digest.digest() != self.manifest.snapshot:
            raise self._corrupt(self._members[SNAPSHOT].at, f"{SNAPSHOT}: it does not match its digest")
        for partition in self.manifest.partitions:
            before = done
            for number, _ in enumerate(self.parts(partition), 1):
                done += self._members[part_name(partition.group, number)].size
                yield done
            done = before + partition.stored

    def parts(self, partition: SavedPartition) -> Iterator[Sequence[StoredDelivery]]:
        """Yield the deliveries of a partition, part by part; the last one comes before all of them are compared."""
        digest = blake2b(digest_size=DIGEST_BYTES)
        decompressor = zstandard.ZstdDecompressor()
        chain, offset, messages = beginning(partition.group).chain, partition.first, 0
        at = self._members[MANIFEST].at
        for number in range(1, partition.parts + 1):
            name = part_name(partition.group, number)
            member = self._members[name]
            at = member.at
            if member.size > PART_BYTES_MAX:
                raise self._corrupt(at, f"{name}: {member.size} bytes, limit {PART_BYTES_MAX}")
            data = b"".join(self._pieces(name))
            digest.update(data)
            try:
                if zstandard.frame_content_size(data) > PART_BYTES_MAX:
                    raise DeliveryFormatError(f"it says that it is of more than {PART_BYTES_MAX} bytes")
                raw = decompressor.decompress(data, max_output_size=PART_BYTES_MAX)
                found: list[StoredDelivery] = []
                for one, after in decode_deliveries(raw, chain):
                    if one.offset != offset or one.index != number:
                        raise DeliveryFormatError(
                            f"found offset {one.offset} of part {one.index}, expected {offset}"
                        )
                    chain, offset = after, one.end
                    found.append(one)
            except (zstandard.ZstdError, DeliveryFormatError) as error:
                raise self._corrupt(at, f"{name}: {error}") from error
            messages += len(found)
            yield found
        if (digest.digest(), chain, offset, messages) != (
            partition.digest,
            partition.chain,
            partition.end,
            partition.messages,
        ):
            raise self._corrupt(
                at, f"the members of group {partition.group} do not match their digest, or are not all of it"
            )

    def claims(self, partition: SavedPartition) -> Claims:
        """Return the claims with which a copy of a partition begins."""
        try:
            return decode_snapshot(partition.claims)
        except ProtocolError as error:
            raise self._corrupt(self._members[MANIFEST].at, f"group {partition.group}: {error}") from error

    # -- inside

    def _found(self) -> dict[str, _Member]:
        members: dict[str, _Member] = {}
        at = 0
        while True:
            with reading(self.path):
                block = self._fs.pread(self._file, _BLOCK, at)
            if len(block) < _BLOCK:
                raise self._corrupt(at, f"the file ends here, before its end was written ({_CUT})")
            if not block.strip(b"\0"):
                return members
            try:
                info = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
            except tarfile.HeaderError as error:
                raise self._corrupt(at, f"no header of a member: {error}") from error
            if not info.isreg() or info.name in members or info.size < 0:
                raise self._corrupt(at, f"found member {info.name!r}, which no backup has")
            members[info.name] = _Member(at + _BLOCK, info.size)
            at += _BLOCK + info.size + -info.size % _BLOCK
            if at > self.size:
                raise self._corrupt(self.size, f"the file ends in member {info.name} ({_CUT})")

    def _read_manifest(self) -> Manifest:
        member = self._members.get(MANIFEST)
        if member is None:
            raise self._corrupt(self.size, f"the manifest is missing, which is written last ({_CUT})")
        if member.size > MANIFEST_BYTES_MAX:
            raise self._corrupt(member.at, f"a manifest of {member.size} bytes, limit {MANIFEST_BYTES_MAX}")
        try:
            return decode_manifest(b"".join(self._pieces(MANIFEST)))
        except ProtocolError as error:
            raise self._corrupt(member.at, str(error)) from error

    def _check_members(self) -> None:
        left = dict(self._members)
        for name in self._expected():
            if left.pop(name, None) is None:
                raise self._corrupt(self.size, f"member {name} is missing")
        for name, member in left.items():
            raise self._corrupt(member.at, f"found member {name!r}, which its manifest does not name")

    def _expected(self) -> Iterator[str]:
        yield SNAPSHOT
        yield MANIFEST
        for one in self.manifest.partitions:
            for number in range(1, one.parts + 1):
                yield part_name(one.group, number)

    def _pieces(self, name: str) -> Iterator[bytes]:
        member = self._members[name]
        for at in range(0, member.size, _READ_BYTES):
            with reading(self.path):
                yield self._fs.pread(self._file, min(_READ_BYTES, member.size - at), member.at + at)

    def _corrupt(self, at: int, found: str) -> CorruptionError:
        return CorruptionError(self.path, at, found, advice=_ADVICE)


_CUT: Final = "it was copied in part, or is still being written"
