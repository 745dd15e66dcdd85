"""Deliveries that every server agrees on, a log of them on a simulated disk, and its life through crashes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from random import Random

from attrs import define

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.scenario import PATH, SERVER, entropy_of
from zraft.storage.delivery.fetching import SegmentFetch
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.manifest import joined, load_manifest, seam
from zraft.storage.delivery.open_files import OpenFiles
from zraft.storage.delivery.points import IndexCache
from zraft.storage.delivery.recovery import DeliveryReport, directory_of
from zraft.storage.delivery.settings import DeliverySettings
from zraft.storage.delivery.values import Mark, StoredDelivery, beginning, encode_deliveries
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import FileSystem
from zraft_core.ids import GroupId

GROUP = GroupId(7 << 32)
START = beginning(GROUP)
DIRECTORY = directory_of(PATH, GROUP)
SMALL = DeliverySettings(
    segment_bytes_max=4096,
    frame_bytes_max=1200,
    compression_level=0,
    sync_bytes_max=2500,
    checkpoint_bytes=1500,
    index_stride_bytes=600,
    indices_max=3,
    files_max=4,
)


def history(count: int, seed: int = 1, sizes: Sequence[int] = (0, 5, 40, 300, 700)) -> list[StoredDelivery]:
    """The first `count` deliveries of a partition: one to three of an entry, and entries that deliver nothing
    between."""
    rng = Random(seed)
    found: list[StoredDelivery] = []
    index, t, sub, time = 1, 0, 0, 1_700_000_000_000
    while len(found) < count:
        index += rng.randint(1, 3)
        time += rng.randint(-20, 60)
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.5:
                t, sub = t + rng.randint(1, 5), 0
                stamp = (t, 3, 0, 0)
            else:
                sub += 1
                stamp = (t, 3, sub, GROUP)
            payload = (b"%d of %d;" % (len(found), index) * 100)[: rng.choice(sizes)]
            found.append(
                StoredDelivery(len(found), stamp, rng.randint(1, 9), len(found), payload, index, time)
            )
    # No entry is cut in two.
    last = found[count - 1].index
    return [one for one in found if one.index <= last]


HISTORY_SHORT = history(40)


def mark_after(deliveries: Sequence[StoredDelivery], index: int, start: Mark = START) -> Mark:
    """Where the log stands when entries up to `index` are applied."""
    upto = [one for one in deliveries if one.index <= index]
    _, chain = encode_deliveries(upto, start.chain)
    return Mark(len(upto), upto[-1].stamp if upto else None, chain, index)


def between(deliveries: Sequence[StoredDelivery], after: int, upto: int) -> list[StoredDelivery]:
    """What entries above `after` and up to `upto` deliver."""
    return [one for one in deliveries if after < one.index <= upto]


@define
class Opened:
    directory: DataDirectory
    files: OpenFiles
    indices: IndexCache
    log: DeliveryLog
    report: DeliveryReport


def open_log(
    fs: FileSystem,
    *,
    settings: DeliverySettings = SMALL,
    seed: int = 1,
    expected: Mark | None = None,
    group: GroupId = GROUP,
) -> Opened:
    directory = DataDirectory.open(fs, PATH, server=SERVER, entropy=entropy_of(seed))
    files = OpenFiles(fs, settings.files_max)
    indices = IndexCache(
        fs, files, indices_max=settings.indices_max, stride_bytes=settings.index_stride_bytes
    )
    log, report = DeliveryLog.open(
        fs, directory, group, files=files, indices=indices, settings=settings, expected=expected
    )
    return Opened(directory, files, indices, log, report)


def read_all(log: DeliveryLog, bytes_max: int = 900) -> list[StoredDelivery]:
    """Everything from the beginning on, in several reads."""
    found: list[StoredDelivery] = []
    offset = log.base.offset
    while more := log.read(offset, bytes_max):
        found += more
        offset = found[-1].offset + 1
    return found


def feed(log: DeliveryLog, deliveries: Sequence[StoredDelivery], rng: Random | None = None) -> None:
    """Append them in batches of whole entries."""
    rng = rng if rng is not None else Random(5)
    indices = sorted({one.index for one in deliveries})
    at = 0
    while at < len(indices):
        some = indices[at : at + rng.randint(1, 5)]
        log.append(between(deliveries, some[0] - 1, some[-1]), some[-1])
        at += len(some)


def fetch(fs: FileSystem, log: DeliveryLog, donor: DeliveryLog, piece: int = 1500) -> SegmentFetch:
    """Receive what the donor has, in pieces; not completed yet."""
    incoming = SegmentFetch(fs, log, donor.manifest())
    while (wanted := incoming.next) is not None:
        incoming.store(wanted.id, wanted.offset, donor.read_file(wanted.id, wanted.offset, piece))
    return incoming


class Life:
    """One server's deliveries of one group through crashes, beside what its write-ahead log would still hold.

    `purged` is how far that was removed, on the strength of `durable_index`; what is after it is applied again.
    `base` is the beginning that was acknowledged, `base_after` what a call under way would make of it.
    """

    def __init__(self, disk: SimulatedDisk, deliveries: Sequence[StoredDelivery]) -> None:
        self.disk = disk
        self.history = list(deliveries)
        self.marks = [START]  # before each offset
        for one in deliveries:
            _, chain = encode_deliveries([one], self.marks[-1].chain)
            self.marks.append(Mark(one.offset + 1, one.stamp, chain, one.index))
        self.applied = 0
        self.purged = 0
        self.base = self.base_after = 0
        self.boot = 0
        self.may_be_full = False
        self.opened: Opened

    @property
    def log(self) -> DeliveryLog:
        return self.opened.log

    def mark(self, index: int) -> Mark:
        """Where the log stands when entries up to that one are applied."""
        return self.marks[bisect_right(self.history, index, key=lambda one: one.index)]

    def start(self) -> None:
        """Open; everything that was said to be durable must be there, and all that is there must be right."""
        self.boot += 1
        expected = self.mark(self.purged)
        self.opened = open_log(self.disk, seed=self.boot, expected=expected)
        log = self.log
        assert log.end.offset >= expected.offset
        assert log.base.offset in (self.base, self.base_after)
        self.base = self.base_after = log.base.offset
        assert read_all(log, 5000) == self.history[log.base.offset : log.end.offset]
        assert log.end.chain == self.marks[log.end.offset].chain
        assert self.mark(log.durable_index).offset <= log.end.offset
        names = self.disk.listdir(DIRECTORY)
        assert not [name for name in names if name.endswith((".tmp", ".part", ".gone"))]
        assert sum(name.endswith(".seg") for name in names) == len(log.manifest().segments)
        self.applied = self.purged

    def apply(self, upto: int) -> None:
        """Entries up to that index."""
        if upto > self.applied:
            self.log.append(between(self.history, self.applied, upto), upto)
            self.applied = upto

    def purge(self) -> None:
        """Remove what the deliveries allow of the write-ahead log."""
        self.purged = max(self.purged, min(self.log.durable_index, self.applied))

    def sync(self) -> None:
        self.log.sync()
        assert self.log.durable_index >= self.applied
        self.purge()

    def cut(self, offset: int) -> None:
        """Retention. Without space the segment that is being written cannot be closed, and stays."""
        stored = load_manifest(self.disk, DIRECTORY, GROUP)
        closed_ones = stored.segments[:-1] if stored.open else stored.segments
        ends = [segment.end.offset for segment in closed_ones]
        closed = max([self.base, *(end for end in ends if end <= offset)])
        end = self.log.end.offset
        self.base_after = end if end <= offset else closed
        self.log.cut(offset)
        self.base = self.log.base.offset
        assert self.base == self.base_after or (self.may_be_full and self.base <= closed)
        self.base_after = self.base

    def install(self, donor: DeliveryLog, upto: int) -> None:
        """A snapshot at entry `upto` from another server, with its delivery segments."""
        incoming = fetch(self.disk, self.log, donor)
        self.log.sync()
        own, shipped = self.log.manifest(), donor.manifest()
        self.base_after = joined(own, shipped, seam(own, shipped)).base.offset
        incoming.complete()
        assert self.log.base.offset == self.base_after
        self.base = self.base_after
        self.purged = self.applied = max(self.applied, upto)
