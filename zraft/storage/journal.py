"""Journal of a server beside its log, for audits: leaderships, commits, digests of its state.

`<data>/journal/` holds a few files that grow by one small record at a time. They are evidence, nothing else: no server reads
them, nothing waits for them, none is synced; of what cannot be written the caller is told. Bytes:
docs/explanation/storage.md, "Journal".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum, unique
from typing import Any, Final

import msgpack
from attrs import frozen
from crc32c import crc32c

from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft_core.ids import INSTANCE_BYTES

FORMAT: Final = 1
DIRECTORY: Final = "journal"
SUFFIX: Final = ".jnl"
FILE_BYTES_MAX: Final = 4 << 20
FILES_KEPT: Final = 8
"""Thirty-two megabytes in all: months of a calm cluster."""
DIGEST_BYTES: Final = 16
RECORD_BYTES_MAX: Final = 1 << 16
_CRC_BYTES: Final = 5
"""A record's checksum: always `ce` and four bytes."""
_RECORD_BEGINS: Final = b"\x99"
"""A record is an array of nine."""


@unique
class NoteKind(IntEnum):
    """Kinds of notes; the numbers stand in files."""

    OPENED = 1
    """This process began; `index` is where its log ended, `term` its hard state's."""
    BECAME_LEADER = 2
    """`index` is its first entry's, `votes` who voted for it."""
    STEPPED_DOWN = 3
    """It leads no more; `term` is the one that it led."""
    COMMITTED = 4
    """The entry (`index`, `term`) is committed, as far as this server knows."""
    DIGEST = 5
    """The state after `index` has this digest."""
    CLOSED = 6
    """The process ended in good order."""


@frozen
class JournalNote:
    """One record. `digest` has 16 bytes, big-endian, or is None."""

    kind: NoteKind
    group: int
    term: int
    index: int
    wall_ms: int
    votes: tuple[int, ...] = ()
    digest: bytes | None = None


@frozen
class JournalHeader:
    """Header of a journal file: whose it is, and of which boot."""

    server: int
    instance: bytes
    boot: int


@frozen
class PlacedNote:
    """A note, its number in the boot, and where it stands."""

    seq: int
    offset: int
    note: JournalNote


class JournalWriter:
    """Writer of notes; it never raises.

    `on_error` is told when the disk begins to refuse, with None when it takes them again; `lost_total` counts what it
    refused.
    """

    def __init__(
        self,
        fs: FileSystem,
        data: str,
        header: JournalHeader,
        *,
        on_error: Callable[[OSError | None], None] = lambda _: None,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_kept: int = FILES_KEPT,
    ) -> None:
        self._fs = fs
        self._path = f"{data}/{DIRECTORY}"
        self._header = header
        self._on_error = on_error
        self._file_bytes_max = file_bytes_max
        self._files_kept = files_kept
        self._file: int | None = None
        self._size = 0
        self._number = 0
        self._seq = 0
        self._failing = False
        self.lost_total = 0

    def add(self, note: JournalNote) -> bool:
        """Write a note; False if the disk refuses it. Costs a write of some fifty bytes, which goes to the page cache."""
        self._seq += 1
        try:
            if self._file is None or self._size >= self._file_bytes_max:
                self._next_file()
            assert self._file is not None
            data = encode_note(self._seq, note)
            self._fs.pwrite(self._file, data, self._size)
            self._size += len(data)
        except OSError as error:
            self.lost_total += 1
            if not self._failing:
                self._failing = True
                self._on_error(error)
            return False
        if self._failing:
            self._failing = False
            self._on_error(None)
        return True

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._fs.close(self._file)
            self._file = None

    def _next_file(self) -> None:
        self.close()
        fs, path, header = self._fs, self._path, self._header
        names = [name for name in self._names() if name.endswith(SUFFIX)]
        for name in names[: max(0, len(names) - self._files_kept + 1)]:
            fs.unlink(f"{path}/{name}")
        self._number += 1
        self._file = fs.create(f"{path}/{header.boot:010d}-{self._number:06d}{SUFFIX}")
        data = encode_header(header)
        self._size = 0
        fs.pwrite(self._file, data, 0)
        self._size = len(data)

    def _names(self) -> list[str]:
        try:
            return self._fs.listdir(self._path)
        except FileNotFoundError:
            self._fs.mkdir(self._path)
            return []


def encode_header(header: JournalHeader) -> bytes:
    """Return a header as bytes."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_map_header(5)
    for key, value in (
        ("format", FORMAT),
        ("server", header.server),
        ("instance", header.instance),
        ("boot", header.boot),
    ):
        packer.pack(key)
        packer.pack(value)
    data = bytes(packer.bytes()) + b"\xa3crc"
    return data + b"\xce" + crc32c(data).to_bytes(4, "big")


def encode_note(seq: int, note: JournalNote) -> bytes:
    """Return an array of 9.

    It has seq, kind, group, term, index, wall time, votes, digest or nil, and CRC-32C of what
    precedes it.
    """
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(9)
    for value in (
        seq,
        int(note.kind),
        note.group,
        note.term,
        note.index,
        note.wall_ms,
        note.votes,
        note.digest,
    ):
        packer.pack(value)
    data = bytes(packer.bytes())
    return data + b"\xce" + crc32c(data).to_bytes(4, "big")


def read_journal(data: bytes, path: str) -> tuple[JournalHeader, Iterator[PlacedNote]]:
    """Return a file's header and its notes, up to one that is being written or was torn by a crash.

    Raises:
        CorruptionError: the header or, while the notes are read, a record that others follow is damaged.
    """
    unpacker = _unpacker()
    unpacker.feed(data)
    try:
        fields: Any = unpacker.unpack()
        end = unpacker.tell()
    except (ValueError, msgpack.UnpackException):
        fields, end = None, 0
    match fields:
        case {
            "format": 1,
            "server": int(server),
            "instance": bytes(instance),
            "boot": int(boot),
            "crc": int(crc),
        } if len(instance) == INSTANCE_BYTES and crc32c(data[: end - _CRC_BYTES]) == crc:
            return JournalHeader(server, instance, boot), _notes(data, end, path)
    raise CorruptionError(
        path, 0, f"no header of a journal of format {FORMAT}", advice="nothing but audits needs the file"
    )


def _notes(data: bytes, start: int, path: str) -> Iterator[PlacedNote]:
    unpacker = _unpacker()
    unpacker.feed(memoryview(data)[start:])
    at = start
    while at < len(data):
        number, note, end = _unpacked(unpacker, data, start, at)
        if note is None:
            if not _note_follows(data, at + 1):
                return  # the end of the file as a crash left it, or as it is being written
            raise CorruptionError(
                path,
                at,
                "a note that does not match its checksum",
                advice="nothing but audits needs the file",
            )
        yield PlacedNote(number, at, note)
        at = end


def _unpacked(unpacker: Any, data: bytes, start: int, at: int) -> tuple[int, JournalNote | None, int]:
    """Return (number, note, end) of the record at `at`; note is None if damaged. The unpacker was fed from `start` on."""
    try:
        fields = unpacker.unpack()
    except (ValueError, msgpack.UnpackException):
        return 0, None, at
    end = start + unpacker.tell()
    note = _note(fields)
    if note is None or crc32c(data[at : end - _CRC_BYTES]) != fields[8]:
        return 0, None, at
    return fields[0], note, end


def _note_follows(data: bytes, at: int) -> bool:
    """Return whether a whole record begins at `at` or behind it.

    A damaged length can reach over whole records to the end of the file: the damaged one's own end says nothing.
    """
    while (at := data.find(_RECORD_BEGINS, at)) >= 0:
        if not data.startswith(_RECORD_BEGINS, at + 1):  # an array's first member is a number
            unpacker = _unpacker()
            unpacker.feed(data[at : at + RECORD_BYTES_MAX])
            if _unpacked(unpacker, data, at, at)[1] is not None:
                return True
        at += 1
    return False


def _note(fields: Any) -> JournalNote | None:
    match fields:
        case (int(), int(kind), int(group), int(term), int(index), int(wall_ms), tuple(votes), digest, int()):
            if kind in NoteKind._value2member_map_ and (
                digest is None or (isinstance(digest, bytes) and len(digest) == DIGEST_BYTES)
            ):
                return JournalNote(NoteKind(kind), group, term, index, wall_ms, votes, digest)
    return None


def _unpacker() -> Any:
    return msgpack.Unpacker(
        use_list=False, max_buffer_size=0, max_str_len=64, max_bin_len=64, max_array_len=512, max_map_len=16
    )
