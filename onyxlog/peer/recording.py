"""Recording of a peer group for audits: what it applied, what gossip brought, what the log gave.

One file per incarnation, `TENANCY-GROUP.onyx`: MessagePack, a map and then an array per record, each ending in its CRC-32.
Docs: docs/reference/data-source.md, "Recordings of peers". Nothing hangs on it: what cannot be written ends the recording,
not the group.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum, unique
from mmap import mmap
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack
import structlog
from attrs import frozen

from onyxlog.errors import EntryError
from onyxlog.gossip.messages import Carrier, PoolEvent, RumourEvent, TreeEvent
from onyxlog.ids import GroupId, Position
from onyxlog.replica.codec import encode_origin, encode_record
from onyxlog.replica.commands import Entry
from onyxlog.replica.digests import digest
from onyxlog.replica.replica import Replica

FORMAT: Final = 1
SUFFIX: Final = ".onyx"
RECORD_BYTES_MAX: Final = 1 << 30
_CRC_BYTES: Final = 5
"""Always `ce` and four bytes."""
SOURCES_KEPT_MAX: Final = 4_096
HEADING_BYTES_MAX: Final = 1_024
READ_BYTES: Final = 1 << 20
_RECORD_BEGINS: Final = re.compile(rb"\x98\x01|\x99\x02|\x9b\x03|\x9a\x04|\x97\x05")
"""First two bytes of a record: an array, and for each kind its length."""

Buffer = bytes | mmap

log = structlog.get_logger()


@unique
class RecordKind(IntEnum):
    """The first number of a record; a layout never changes, a new one is a new kind."""

    ORIGIN = 1
    """[1, seq, at_ms, position, chain, digest, origin]"""
    ENTRY = 2
    """[2, seq, at_ms, position, chain, digest, source, entry]"""
    RECEIVED = 3
    """[3, seq, at_ms, position, sender, publisher, first, stream | nil, root | nil, hops]"""
    SENT = 4
    """[4, seq, at_ms, position, publisher, copies, stream | nil, root | nil, hops]"""
    LOG_READ = 5
    """[5, seq, at_ms, reason, first, count]"""


@frozen
class Heading:
    """Heading of a recording."""

    tenancy: str
    group: GroupId


@frozen
class PlacedRecord:
    """A record's values without its checksum, and where it begins and ends in the file."""

    offset: int
    end: int
    values: tuple[Any, ...]


class Recorder:
    """Recorder of one incarnation. Records stand in a buffer until `flush`."""

    def __init__(self, path: Path, heading: Heading, *, now_ms: Callable[[], int]) -> None:
        """Begin a file.

        Raises:
            OSError: the file cannot be made.
        """
        self._path = path
        self._now_ms = now_ms
        self._seq = 0
        self._brought: dict[Position, str] = {}
        self._file: BinaryIO | None = path.open("wb")
        self._put(_sealed({"format": FORMAT, "tenancy": heading.tenancy, "group": heading.group}))
        self.flush()

    def origin(self, replica: Replica, chain: bytes) -> None:
        """Record that the group continues from this replica."""
        self._add(RecordKind.ORIGIN, replica.version, chain, digest(replica), encode_origin(replica, chain))

    def brought(self, position: Position, source: str) -> None:
        """Note who brought the entry that will be applied at a position; without a note it is the log."""
        if len(self._brought) < SOURCES_KEPT_MAX:
            self._brought[position] = source

    def applied(self, entry: Entry, replica: Replica, chain: bytes) -> None:
        """Record that the entry led to this replica, and to this value of the chain."""
        source = self._brought.pop(entry.position, "log")
        self._add(
            RecordKind.ENTRY, entry.position, chain, digest(replica), source, encode_record(entry.record)
        )

    def received(self, sender: GroupId, message: Carrier, first: bool) -> None:
        """Record that an event arrived by spreading; `first`: nobody had brought it before."""
        event = message.event
        self._add(RecordKind.RECEIVED, event.position, sender, event.publisher, first, *_way(message))

    def sent(self, message: Carrier, copies: int) -> None:
        """Record that an event was published, or passed on, to so many groups."""
        self._add(RecordKind.SENT, message.event.position, message.event.publisher, copies, *_way(message))

    def log_read(self, reason: str, first: Position, count: int) -> None:
        """Record that the log was read, and gave so many entries from `first` on."""
        self._add(RecordKind.LOG_READ, reason, first, count)

    def flush(self) -> None:
        """Write the buffered records; an error ends the recording."""
        if self._file is not None:
            try:
                self._file.flush()
            except OSError as error:
                self._end(error)

    def close(self) -> None:
        """Write the buffered records and close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _add(self, kind: RecordKind, *values: Any) -> None:
        self._seq += 1
        self._put(_sealed((int(kind), self._seq, self._now_ms(), *values)))

    def _put(self, data: bytes) -> None:
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError as error:
                self._end(error)

    def _end(self, error: OSError) -> None:
        log.warning("recording ends", file=str(self._path), error=str(error))
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # closing writes what is left, to the same disk
                file.close()


class Recordings:
    """Recorders of the groups of a process, in one directory."""

    def __init__(
        self,
        directory: Path,
        tenancy: str,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Make the directory.

        Raises:
            OSError: the directory cannot be made.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._tenancy = tenancy
        self._now_ms = now_ms
        self._open: dict[GroupId, Recorder] = {}

    def of(self, group: GroupId) -> Recorder:
        """Return the recorder of the group's present incarnation."""
        recorder = self._open.get(group)
        if recorder is None:
            path = self._directory / f"{self._tenancy}-{group}{SUFFIX}"
            recorder = self._open[group] = Recorder(path, Heading(self._tenancy, group), now_ms=self._now_ms)
        return recorder

    def close(self, group: GroupId) -> None:
        """End the recording of a group, if it has one."""
        recorder = self._open.pop(group, None)
        if recorder is not None:
            recorder.close()


def read_recording(data: Buffer, path: str, start: int = 0) -> tuple[Heading, Iterator[PlacedRecord]]:
    """Return a recording's heading and its records, up to one that is being written or was torn by a crash.

    `start`: where a record ended; 0 is the beginning. Memory is bounded by the largest record.

    Raises:
        EntryError: the heading, or while the records are read one that others follow, is not what was written.
    """
    unpacker = _unpacker()
    unpacker.feed(data[:HEADING_BYTES_MAX])
    try:
        found = unpacker.unpack()
        end = unpacker.tell()
    except (ValueError, msgpack.UnpackException):
        found, end = None, 0
    match found:
        case {"format": 1, "tenancy": str(tenancy), "group": str(group), "crc": int(crc)} if (
            zlib.crc32(data[: end - _CRC_BYTES]) == crc
        ):
            return Heading(tenancy, group), _records(data, max(start, end), path)
    raise EntryError(
        f"{path}: expected the heading of a recording of format {FORMAT}, found {bytes(data[:40])!r}"
    )


def _records(data: Buffer, start: int, path: str) -> Iterator[PlacedRecord]:
    unpacker = _unpacker()
    at = fed = start
    while True:
        try:
            values = unpacker.unpack()
        except msgpack.OutOfData:
            if fed >= len(data):
                break
            unpacker.feed(data[fed : fed + READ_BYTES])
            fed += READ_BYTES
            continue
        except (ValueError, msgpack.UnpackException):
            values = None
        end = start + unpacker.tell()
        if not _is_sealed(values, data[at : end - _CRC_BYTES]):
            break
        yield PlacedRecord(at, end, values[:-1])
        at = end
    if at < len(data) and _record_follows(data, at + 1):
        raise EntryError(f"{path}: offset {at}: a record that does not match its checksum")


def _is_sealed(values: Any, before: bytes) -> bool:
    return type(values) is tuple and values[-1:] == (zlib.crc32(before),)


def _record_follows(data: Buffer, at: int) -> bool:
    """Return whether a whole record of at most `READ_BYTES` begins at `at` or behind it.

    A damaged length can reach over whole records to the end of the file: the damaged one's own end says nothing.
    """
    for found in _RECORD_BEGINS.finditer(data, at):
        begin = found.start()
        unpacker = _unpacker()
        unpacker.feed(data[begin : begin + READ_BYTES])
        with suppress(ValueError, msgpack.UnpackException):
            values = unpacker.unpack()
            if _is_sealed(values, data[begin : begin + unpacker.tell() - _CRC_BYTES]):
                return True
    return False


def _unpacker() -> Any:
    return msgpack.Unpacker(use_list=False, max_buffer_size=RECORD_BYTES_MAX)


def _sealed(values: dict[str, Any] | tuple[Any, ...]) -> bytes:
    """Return the map or array with one more item, the CRC-32 of all bytes before it."""
    packer = msgpack.Packer(autoreset=False)
    if isinstance(values, dict):
        packer.pack_map_header(len(values) + 1)
        for key, value in values.items():
            packer.pack(key)
            packer.pack(value)
        packer.pack("crc")
    else:
        packer.pack_array_header(len(values) + 1)
        for value in values:
            packer.pack(value)
    data = bytes(packer.bytes())
    return data + b"\xce" + zlib.crc32(data).to_bytes(4, "big")


def _way(message: Carrier) -> tuple[int | None, int | None, int]:
    """Return stream, root and hops, as far as this way of spreading has them."""
    match message:
        case PoolEvent():
            return message.stream, message.root, message.hops
        case RumourEvent():
            return message.stream, None, message.hops
        case TreeEvent():
            return None, None, message.round
