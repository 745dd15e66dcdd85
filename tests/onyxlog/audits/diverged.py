"""Data directories in which one server's log has other entries than the others', under the same terms."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from attrs import evolve

from tests.onyxlog.audits.conftest import age
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import UnsyncedFileSystem
from zraft.storage.inspection import read_records
from zraft.storage.records import BaseRecord, EntryRecord
from zraft.storage.settings import WalSettings
from zraft.storage.wal import Wal
from zraft_core.ids import ServerId

VICTIM = 3


def diverged(generated: Path, path: Path, indexes: Collection[int]) -> None:
    """A copy of generated directories; the log of server 3 is written anew, with a bit changed in these entries."""
    shutil.copytree(generated, path)
    victim = path / f"server-{VICTIM}"
    fs = UnsyncedFileSystem()
    records = list(read_records(fs, str(victim)))
    shutil.rmtree(victim)
    directory = DataDirectory.open(
        fs, str(victim), server=ServerId(VICTIM), entropy=lambda size: bytes(range(size))
    )
    wal, _ = Wal.open(fs, directory, settings=WalSettings(segment_bytes_max=32 << 10))
    frames: dict[int, list[Any]] = {}
    for placed in records:
        record = placed.record
        if isinstance(record, BaseRecord):
            continue
        if isinstance(record, EntryRecord) and record.entry.index in indexes:
            payload = record.entry.payload[:-1] + bytes([record.entry.payload[-1] ^ 1])
            record = evolve(record, entry=evolve(record.entry, payload=payload))
        frames.setdefault(placed.frame, []).append(record)
    for body in frames.values():
        wal.append(body)
    wal.close()
    directory.close()
    age(path)
