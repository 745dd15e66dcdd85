"""Table `files`: every file of the directories that is read, how far it is good, and what is wrong with it."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class FileRow(Placed):
    """One file of a data directory.

    Attributes:
        kind: `wal`, `snapshot`, `deliveries` or `journal`.
        size: bytes of the file; `good`: bytes up to which all checksums hold and no rule of the format is broken.
        items: frames, blocks or lines in that.
        torn: bytes after it that were being written, or that a crash cut short.
        damage: what is wrong at `file_offset`, None if nothing is.
    """

    kind: str
    group: int | None = None
    size: int
    good: int
    items: int
    torn: int = 0
    damage: str | None = None


FILES: Final = Table("files", FileRow, "files, how far each is good, and what is wrong with it")
"""The table. As a stream it has files when something in them is found damaged."""
