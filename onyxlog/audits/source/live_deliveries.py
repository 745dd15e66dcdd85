"""Following of what partitions deliver on running servers.

Knows no Spark.

Deliveries follow from committed entries only, so whatever is whole may be given; after a power failure a
server writes the same ones again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from onyxlog.audits.errors import AuditError
from onyxlog.audits.source.directories import ServerDirectory
from onyxlog.audits.source.file_tables import FilePiece, delivery_groups
from onyxlog.audits.source.options import Options
from zraft.storage.delivery.frames import HEAD_BYTES, DeliveryFrameHead
from zraft.storage.delivery.manifest import Manifest, load_manifest
from zraft.storage.delivery.recovery import directory_of
from zraft.storage.delivery.scanning import scan_heads
from zraft.storage.durable import reading
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import StorageError

Offsets = dict[str, dict[str, int]]
"""The offset of the next delivery, by data directory and group (as text)."""
DELIVERY_BYTES: Final = 256
"""The bytes that a delivery takes on a disk, roughly, by which `bytes_per_batch` counts."""


class LiveDeliveries:
    """The table `deliveries` of several servers."""

    def __init__(self, options: Options, directories: Sequence[ServerDirectory], fs: FileSystem) -> None:
        self._options = options
        self._directories = directories
        self._fs = fs
        self._frozen: Offsets | None = None

    def freeze(self) -> None:
        """Give only what exists now."""
        self._frozen = self._ends()

    def initial(self) -> Offsets:
        """Return the first existing delivery or, if the stream is to begin with what is new, the next one."""
        return {} if self._options.starting == "earliest" else self._ends()

    def latest(self, start: Offsets, bytes_max: int | None) -> Offsets:
        """Return how far deliveries go, about `bytes_max` further than `start`.

        Groups that are gone stay at their offsets.
        """
        there = self._ends() if self._frozen is None else self._frozen
        logs = sum(map(len, there.values()))
        most = None if bytes_max is None or not logs else max(1, bytes_max // DELIVERY_BYTES // logs)
        end: Offsets = {path: dict(groups) for path, groups in start.items()}
        for path, groups in there.items():
            for group, offset in groups.items():
                before = start.get(path, {}).get(group, self._first(path, int(group)))
                limit = offset if most is None else min(offset, before + most)
                end.setdefault(path, {})[group] = max(before, limit)
        return end

    def pieces(self, start: Offsets, end: Offsets) -> Sequence[FilePiece]:
        """Return a piece per server and group that has something new.

        Raises:
            AuditError: retention removed it before it was read.
        """
        found = []
        for directory in self._directories:
            path = directory.path
            for group, upto in end.get(path, {}).items():
                first = self._first(path, int(group))
                before = start.get(path, {}).get(group)
                if before is not None and before < min(first, upto):
                    raise AuditError(
                        f"{path}: group {group}: deliveries {before} to {min(first, upto) - 1} were removed by retention "
                        "before they were read; begin anew without the checkpoint, or keep more (retention of the topic)"
                    )
                begin = first if before is None else before
                if begin < upto:
                    shown, stops = self._options.payloads, self._options.stops
                    found.append(
                        FilePiece(
                            "deliveries",
                            path,
                            directory,
                            int(group),
                            begin,
                            upto,
                            payloads=shown,
                            stops=stops,
                        )
                    )
        return found

    def done(self, end: Offsets) -> None:
        """Do nothing, since nothing is kept."""

    def _ends(self) -> Offsets:
        wanted = self._options.group
        return {
            directory.path: {
                str(group): self._end(directory.path, group)
                for group in delivery_groups(self._fs, directory.path)
                if wanted in (None, group)
            }
            for directory in self._directories
        }

    def _manifest(self, path: str, group: int) -> Manifest | None:
        """Return the manifest; None if it does not exist (yet, or any more), or is damaged and that is no error."""
        try:
            return load_manifest(self._fs, directory_of(path, group), group)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            if self._options.stops and isinstance(error, CorruptionError):
                return None
            raise

    def _first(self, path: str, group: int) -> int:
        manifest = self._manifest(path, group)
        return 0 if manifest is None else manifest.base.offset

    def _end(self, path: str, group: int) -> int:
        """Return where the last whole delivery ends: of an open segment more may count than the manifest says."""
        manifest = self._manifest(path, group)
        if manifest is None:
            return 0
        end = manifest.end.offset
        if not manifest.open:
            return end
        segment = manifest.segments[-1]
        name = f"{directory_of(path, group)}/{segment.name}"
        try:
            with reading(name):
                file = self._fs.open(name)
                try:
                    return max(end, self._whole_end(file, crc32c(segment.id)))
                finally:
                    self._fs.close(file)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return end
            raise

    def _whole_end(self, file: int, seed: int) -> int:
        """Return where whole frames end.

        Heads are whole before the records behind them are, so the newest frame's are checked, too.
        """
        end = 0
        newest: tuple[int, DeliveryFrameHead] | None = None
        for position, head in scan_heads(self._fs, file, seed=seed, limit=self._fs.size(file)):
            end = head.offset
            newest = position, head
        if newest is not None:
            position, head = newest
            records = self._fs.pread(file, head.length, position + HEAD_BYTES)
            if len(records) == head.length and crc32c(records, seed) == head.crc:
                end = head.end_offset
        return end
