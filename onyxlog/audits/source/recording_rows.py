"""Rows of what peers recorded: entries and replica digests, gossip, reads of the log; a file per incarnation of a group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from typing import Final

from onyxlog.audits.source.file_tables import FilePiece, Values
from onyxlog.errors import EntryError
from onyxlog.peer.recording import Heading, PlacedRecord, RecordKind, read_recording
from onyxlog.replica.codec import decode_record, name_of

RECORDED: Final = frozenset({"onyx_entries", "replica_digests", "gossip", "log_reads"})


def recording_values(piece: FilePiece) -> Iterator[Values]:
    """Yield the rows of a table that one recording has, from `first` up to `end`, which are ends of records.

    Raises:
        EntryError: the file is damaged, or another release's.
    """
    with _mapped(piece.path) as data:
        if not data:
            return
        heading, records = read_recording(data, piece.path, piece.first)
        for placed in records:
            if piece.end is not None and placed.end > piece.end:
                return
            yield from _rows(piece, heading, placed)


def recording_file(path: str) -> Values:
    """Return the row of `files` of a recording; read whole."""
    end = items = 0
    damage: str | None = None
    with _mapped(path) as data:
        try:
            for placed in read_recording(data, path)[1] if data else ():
                end, items = placed.end, items + 1
        except EntryError as error:
            damage = str(error).removeprefix(f"{path}: ").removeprefix(f"offset {end}: ")
        size = len(data)
    torn = size - end if damage is None else 0
    return (0, "", path, 0 if damage is None else end, "recording", None, size, end, items, torn, damage)


def recording_size(path: str) -> int:
    """Return the number of bytes of the file."""
    return os.stat(path).st_size


def recorded_bytes(piece: FilePiece, known: int) -> int:
    """Return up to where the file holds whole records; up to damage if that `stops` the reading."""
    end = known
    with _mapped(piece.path) as data:
        try:
            for placed in read_recording(data, piece.path, known)[1] if data else ():
                end = placed.end
        except EntryError:
            if not piece.stops:
                raise
        return end if data else 0


@contextmanager
def _mapped(path: str) -> Iterator[mmap | bytes]:
    """Yield the file as it is now; b"" if it is empty."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        data = mmap(file.fileno(), 0, access=ACCESS_READ)
        try:
            yield data
        finally:
            data.close()


def _rows(piece: FilePiece, heading: Heading, placed: PlacedRecord) -> Iterator[Values]:
    kind, seq, at_ms, *said = placed.values
    whose = (heading.tenancy, heading.group)
    where = (piece.path, placed.offset)
    match piece.table, kind, said:
        case "onyx_entries", RecordKind.ORIGIN, [position, chain, digest, origin]:
            yield (
                *(*whose, seq, position, "origin", "", None, 0, at_ms, "", chain, digest, origin),
                *where,
            )
        case "onyx_entries", RecordKind.ENTRY, [position, chain, digest, source, entry]:
            record = decode_record(entry, f"{piece.path}, offset {placed.offset}")
            yield (
                *(*whose, seq, position, name_of(record.command), record.author, record.cause),
                *(record.at_ms, at_ms, source, chain, digest, entry, *where),
            )
        case "replica_digests", RecordKind.ORIGIN | RecordKind.ENTRY, [position, chain, digest, *_]:
            yield (*whose, position, "recorded", chain, digest, at_ms, 0, "", *where)
        case "gossip", RecordKind.RECEIVED, [position, sender, publisher, first, stream, root, hops]:
            yield (
                *(*whose, seq, at_ms, "received", position, sender, publisher, first, stream, root, hops, 0),
                *where,
            )
        case "gossip", RecordKind.SENT, [position, publisher, copies, stream, root, hops]:
            yield (
                *(*whose, seq, at_ms, "sent", position, "", publisher, False, stream, root, hops, copies),
                *where,
            )
        case "log_reads", RecordKind.LOG_READ, [reason, first, count]:
            yield (*whose, seq, at_ms, reason, first, count, *where)
