"""List of the files of a group's deliveries, and every change of it.

Each change is one durable step, before which the old files count and after which the new ones do.

Changed by one thread; `view` and `listing` may be read by any.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from attrs import evolve

from zraft.storage.delivery.manifest import Manifest, Segment, store_manifest
from zraft.storage.delivery.open_files import OpenFiles
from zraft.storage.delivery.points import IndexCache, store_points
from zraft.storage.delivery.reading import DeliveryView
from zraft.storage.delivery.recovery import gone_name
from zraft.storage.delivery.tail import Tail
from zraft.storage.delivery.values import Mark
from zraft.storage.durable import reading, sync_directory, writing
from zraft.storage.errors import DiskFullError
from zraft.storage.filesystem import FileSystem


class SegmentList:
    """The closed segments, oldest first, and the tail if one is being written."""

    __slots__ = (
        "_files",
        "_fs",
        "_indices",
        "_mutex",
        "_removing",
        "closed",
        "group",
        "path",
        "tail",
        "view",
    )

    def __init__(
        self, fs: FileSystem, path: str, files: OpenFiles, indices: IndexCache, recovered: Manifest
    ) -> None:
        self._fs = fs
        self.path = path
        self.group = recovered.group
        self._files = files
        self._indices = indices
        self.closed = recovered.segments
        self.tail: Tail | None = None
        self._removing: list[str] = []  # markers of removals that the manifest does not tell yet
        self._mutex = threading.Lock()
        ends = tuple(segment.end.offset for segment in recovered.segments)
        self.view = DeliveryView(
            0, recovered.base, recovered.segments, None, None, ends, _bytes(recovered.segments)
        )
        """The view that readers go by."""

    @property
    def all(self) -> tuple[Segment, ...]:
        """The segments, with the tail as far as it is written."""
        return self.closed if self.tail is None else (*self.closed, self.tail.segment)

    def written(self) -> Manifest:
        """Return all that was written, durable or not."""
        return Manifest(self.group, self.view.base, self.all)

    def durable(self) -> Manifest:
        """Return the durable deliveries, as a start has to know them."""
        tail = self.tail
        if tail is None:
            return Manifest(self.group, self.view.base, self.closed)
        return Manifest(self.group, self.view.base, (*self.closed, tail.durable), True)

    def listing(self) -> Manifest:
        """Return the durable deliveries, as another server takes them.

        Nothing that is still written, and nothing empty is in it. Any thread may call it.
        """
        with self._mutex:
            durable = self.durable()
        segments = tuple(segment for segment in durable.segments if segment.end.offset > segment.first)
        return evolve(durable, segments=segments, open=False)

    def grown(self) -> None:
        """Let readers see the new frames of the tail."""
        assert self.tail is not None
        with self._mutex:
            self.view = evolve(self.view, tail=self.tail.segment)

    def checkpoint(self) -> None:
        """Note durably how much of the tail is durable, so that a start need not read it."""
        self._store(self.durable())

    def begin(self, tail: Tail) -> None:
        """Begin the next segment; its file is durable.

        Raises:
            DiskFullError: it is gone again, and nothing has changed.
        """
        assert self.tail is None, "one segment is written at a time"
        try:
            # This comes before the first frame: a start does not look at files that the manifest does not
            # list.
            self._store(Manifest(self.group, self.view.base, (*self.closed, tail.segment), True))
        except DiskFullError:
            self._unlink([tail.segment])
            raise
        self._publish(self.view.base, self.closed, tail)

    def close_tail(self) -> None:
        """Make the tail durable and a closed segment, also to a start. Without one, nothing.

        Raises:
            DiskFullError: it is durable, and goes on being the tail.
        """
        tail = self.tail
        if tail is None:
            return
        tail.sync()
        segment = tail.segment
        empty = segment.end.offset == segment.first
        closed = self.closed if empty else (*self.closed, segment)
        self._store(Manifest(self.group, self.view.base, closed))
        self._publish(self.view.base, closed, None)
        if empty:
            self._unlink([segment])
            return
        index = f"{self.path}/{segment.index_name}"
        self._indices.put(index, tail.points)
        store_points(self._fs, index, segment, tail.points)

    def remove(self, count: int) -> None:
        """Remove the oldest `count` closed segments. Needs no space on the disk."""
        gone, newest = self.closed[:count], self.closed[count - 1]
        marker = f"{self.path}/{gone_name(newest)}"
        with writing(marker):
            # It is decided from here on, whatever a crash leaves of the files; and it took no space to say
            # so.
            self._fs.rename(f"{self.path}/{newest.name}", marker)
        sync_directory(self._fs, self.path)
        self._publish(newest.end, self.closed[count:], self.tail)
        self._removing.append(marker)
        self._unlink(gone)
        with writing(marker):
            # Its space comes back now, its name goes when the manifest says the same.
            file = self._fs.open(marker)
            try:
                self._fs.ftruncate(file, 0)
            finally:
                self._fs.close(file)
        try:
            self._store(self.durable())
        except DiskFullError:
            pass  # the marker tells it as well; the next manifest takes its place

    def replace(self, manifest: Manifest, fetched: Sequence[Segment], parts: Mapping[bytes, str]) -> None:
        """Let `manifest` say which segments there are; the `fetched` ones among them have the names that `parts` tells.

        Raises:
            DiskFullError: nothing has changed; the call can be repeated.
        """
        assert self.tail is None, "the tail is closed first"
        with reading(self.path):
            present = set(self._fs.listdir(self.path))
        for segment in fetched:
            part, path = parts[segment.id], f"{self.path}/{segment.name}"
            if part in present:  # otherwise it was renamed when this was tried before, on a full disk
                with writing(path):
                    self._fs.rename(f"{self.path}/{part}", path)
            # It may have replaced a shorter copy of the same segment, whose beginning is equal.
            self._files.forget(path)
            self._indices.forget(f"{self.path}/{segment.index_name}")
        sync_directory(self._fs, self.path)
        before = self.closed
        self._store(manifest)
        self._publish(manifest.base, manifest.segments, None)
        kept = {segment.id for segment in manifest.segments}
        self._unlink([segment for segment in before if segment.id not in kept])

    def _store(self, manifest: Manifest) -> None:
        store_manifest(self._fs, self.path, manifest)
        while self._removing:
            with writing(self._removing[-1]):
                self._fs.unlink(self._removing[-1])
            self._removing.pop()

    def _unlink(self, segments: Sequence[Segment]) -> None:
        """Remove files that count no more, and their indices. Not made durable: a start removes what a crash leaves."""
        with reading(self.path):
            present = set(self._fs.listdir(self.path))
        for segment in segments:
            self._files.forget(f"{self.path}/{segment.name}")
            self._indices.forget(f"{self.path}/{segment.index_name}")
            for name in (segment.index_name, segment.name):
                if name in present:
                    with writing(f"{self.path}/{name}"):
                        self._fs.unlink(f"{self.path}/{name}")

    def _publish(self, base: Mark, closed: tuple[Segment, ...], tail: Tail | None) -> None:
        """Let everybody see which files there are now."""
        with self._mutex:
            self.closed, self.tail = closed, tail
            self.view = DeliveryView(
                self.view.version + 1,
                base,
                closed,
                tail.segment if tail is not None else None,
                tail.points if tail is not None else None,
                tuple(segment.end.offset for segment in closed),
                _bytes(closed),
            )


def _bytes(segments: Sequence[Segment]) -> int:
    return sum(segment.size for segment in segments)
