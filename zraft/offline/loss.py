"""The note that an operator has given up what is missing of a log. It is for people: no server reads it."""

from __future__ import annotations

import json
from typing import Final

from zraft.offline.founding import Origin
from zraft.storage.durable import sync_directory, sync_file, writing
from zraft.storage.errors import CutSegment
from zraft.storage.filesystem import FileSystem

NAME: Final = "accepted-loss"


def note_accepted(fs: FileSystem, data: str, cut: CutSegment, origin: Origin, wall_ms: int) -> None:
    """Write beside the segments what was missing and where what is left ends; it is durable on return.

    Raises:
        StorageError: it cannot be written.
    """
    path = f"{data}/wal/{NAME}"
    note = {
        "accepted_ms": wall_ms,
        "file": cut.file.rpartition("/")[2],
        "bytes_left": cut.size,
        "bytes_made": cut.made,
        "last_frame": cut.frame,
        "last_frame_end": cut.end,
        "known": cut.known,
        "last_index": origin.index,
        "last_term": origin.term,
    }
    with writing(path):
        file = fs.create(path)
        try:
            fs.pwrite(file, json.dumps(note, indent=2).encode() + b"\n", 0)
            sync_file(fs, file, path)
        finally:
            fs.close(file)
    sync_directory(fs, f"{data}/wal")
