"""Errors between us and the disk.

One rule for callers: `DiskFullError` may be waited out, and `CompactedError`, `SnapshotGoneError`, `SnapshotRejectedError`,
`DeliveriesGoneError` and `SegmentGoneError` concern one request, `DeliveriesDifferError` one partition; every other
`StorageError` ends the process.
"""

from __future__ import annotations

from attrs import frozen

from zraft_core.errors import StorageError


class CorruptionError(StorageError):
    """Bytes that were acknowledged as durable are damaged or missing; never skipped, never guessed (D-10)."""

    def __init__(self, path: str, offset: int, found: str, *, advice: str = "") -> None:
        self.path = path
        self.offset = offset
        self.found = found
        advice = advice or (
            "check this disk; then move the data directory aside and let the server join again "
            "with an empty one, so that it is a new instance"
        )
        super().__init__(f"{path}: corrupt at offset {offset}: {found}; {advice}")


class NoSnapshotError(CorruptionError):
    """A file does not begin as a snapshot does: it is something else, or its first bytes are damaged."""


class UnknownFormatError(CorruptionError):
    """A file says of itself that it is of a format that this release does not know, unless it is damaged just there."""


@frozen
class CutSegment:
    """The file of the log's last segment is shorter than it was made and recorded: what stood beyond is gone.

    Attributes:
        file: its path.
        size: bytes that are left.
        made: bytes that it was recorded to have at least.
        end: offset after the last whole frame of this segment; 0 if not even what it begins with is left.
        frame: number of the log's last whole frame; 0 if there is none.
        broken: what is wrong with what follows that frame; "" if nothing does, or zeros.
    """

    file: str
    size: int
    made: int
    end: int
    frame: int
    broken: str

    @property
    def known(self) -> str:
        """Words for what is known of what is lost."""
        if not self.end:
            return "not even what the segment begins with is left, so all that was written to it is lost"
        if self.broken:
            return f"at least one write is lost: {self.broken}"
        if self.end == self.size:
            return "it was cut right behind a write: whether more followed is not known"
        return "no write is known to be lost: free space followed the last one when the file was cut"


class CutShortError(CorruptionError):
    """A file was cut: acknowledged writes may have stood in what is gone, so it is no interrupted write (D-10)."""

    def __init__(self, cut: CutSegment) -> None:
        self.cut = cut
        data = cut.file.rpartition("/wal/")[0]
        super().__init__(
            cut.file,
            cut.size,
            f"the file was cut: {cut.size} bytes are left of {cut.made}, the last whole frame is number {cut.frame} and "
            f"ends at offset {cut.end}; {cut.known}",
            advice=(
                "put the whole file back if you have it; a member of a cluster: move the data directory aside and let the "
                "server join again with an empty one, so that it is a new instance; a server that is alone: "
                f"`zraft log accept-loss {data}` goes on with what is left"
            ),
        )


class CompactedError(StorageError):
    """These entries were compacted: a snapshot holds what they said, and the log begins at `first_index`."""

    def __init__(self, path: str, group: int, index: int, first_index: int) -> None:
        self.group = group
        self.index = index
        self.first_index = first_index
        super().__init__(
            f"{path}: group {group}: entry {index} was compacted, the log begins at {first_index}; "
            "whoever needs it needs a snapshot"
        )


class SnapshotGoneError(StorageError):
    """No finished snapshot of that id is here (any more): the newest one is to be offered instead."""


class SnapshotRejectedError(StorageError):
    """Error of a snapshot that is not the one that the other server offered.

    Nothing of it was kept, and it has to be fetched anew.
    """

    retriable = True


class DeliveriesGoneError(StorageError):
    """Retention removed these deliveries: the log of the partition begins at `first_offset`."""

    def __init__(self, path: str, group: int, offset: int, first_offset: int) -> None:
        self.group = group
        self.offset = offset
        self.first_offset = first_offset
        super().__init__(
            f"{path}: group {group}: delivery {offset} was removed by retention, the log begins at {first_offset}; "
            "go on from there, or keep more (retention_bytes, retention_ms of the topic)"
        )


class DeliveriesDifferError(StorageError):
    """Error of deliveries that differ from those at the same offset: one of the two is wrong (D-26)."""


class SegmentGoneError(StorageError):
    """A delivery segment that another server wants is not here (any more): the list is to be asked for anew."""

    retriable = True


class FsyncError(StorageError):
    """An fsync failed, so the kernel may have dropped the pages: the process has to end and recover (D-10)."""


class WriteError(StorageError):
    """A write failed for another reason than lack of space: the process has to end."""


class DiskFullError(StorageError):
    """No space. Nothing of the attempt counts as written, and the same call may succeed once space is back."""

    retriable = True
