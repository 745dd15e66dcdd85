"""Writing of the groups' images to the disk: in slices, at most one per turn, while the groups go on.

An image of a topic's group waits until everything that the group delivered up to it is durable. A restart
begins with the image and applies the log after it, and nobody could repeat the deliveries of entries before
it (D-13). Everything that touches the disk happens elsewhere (`tasks`). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, Protocol

from attrs import define, frozen

from zraft.groups.identity import Identity
from zraft.groups.snapshots.delivery_tasks import SyncDeliveries
from zraft.groups.snapshots.tasks import Abort, Begin, Finish, Purge, Result, WriteBlock
from zraft.groups.snapshots.work import Work
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.snapshot_format import SNAPSHOT_ID_BYTES, SnapshotHeader, SnapshotInfo
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP, GroupId

SLICE_ITEMS: Final = 400
"""How many items are packed in one turn: they take about a millisecond."""

SLICE_BYTES_MAX: Final = 256 * 1024
"""The largest slice, in bytes."""

SLICE_GAP_MS: Final = 4
"""The least time between two slices: snapshots take at most about a third of the loop's time."""

UNHURRIED_GAP_MS: Final = 20
"""The time between two slices of images that may wait: they take about a twentieth of the loop's time."""

BLOCKS_QUEUED_MAX: Final = 8
"""How many pieces may wait for the disk; beyond that images wait as well."""

RETRY_MS: Final = 10_000
"""How long a group waits for its next snapshot after one that failed, because the disk was full, say."""

ASK_AGAIN_MS: Final = 500
"""How long after `SyncDeliveries` was asked for a group whose deliveries are not durable it is asked for again."""


class Image(Protocol):
    """The state of one moment, given out in slices while its machine goes on.

    Attributes:
        items, digest: of the whole image, once it is `exhausted`.
        zxid: that of the image's last change.
    """

    items: int
    zxid: int

    @property
    def digest(self) -> int:
        """The digest of the whole image, once it is `exhausted`."""

    @property
    def exhausted(self) -> bool:
        """True if all of it was given out."""

    def step(self, items: int, bytes_max: int) -> bytes:
        """Return the next slice, of up to `bytes_max` bytes, for the work of up to `items` items."""

    def close(self) -> None:
        """Give up what is left of it."""


class SmallImage:
    """An image that was taken whole, as a partition's is: mostly one slice."""

    items = 1
    zxid = 0

    def __init__(self, image: bytes, digest: int) -> None:
        self._left = image
        self.digest = digest

    @property
    def exhausted(self) -> bool:
        """True if all of it was given out."""
        return not self._left

    def step(self, items: int, bytes_max: int) -> bytes:
        """Return the next slice, of up to `bytes_max` bytes."""
        piece, self._left = self._left[:bytes_max], self._left[bytes_max:]
        return piece

    def close(self) -> None:
        """Give up what is left of it."""
        self._left = b""


@frozen
class Written:
    """An attempt to write an image that has ended.

    Attributes:
        meta: what the image covers.
        info: the durable snapshot; None if it could not be written.
        size: bytes of the image before compression.
    """

    group: GroupId
    meta: SnapshotMeta
    info: SnapshotInfo | None
    size: int


@define
class _Writing:
    """An image on its way: it waits, its slices are written, or the disk finishes it."""

    header: SnapshotHeader
    image: Image
    size: int = 0
    begun: bool = False
    finishing: bool = False
    synced_at: int | None = None


class SnapshotWriter:
    """Writes the images of all groups of one server, one at a time of each group.

    Args:
        entropy: returns so many random bytes, for ids of snapshots.
        work: gets what the disks are to do.
        cut_index: returns the index of a topic's group up to which all its deliveries are durable.

    Attributes:
        images: those on their way, by group.
    """

    def __init__(
        self,
        identity: Identity,
        entropy: Callable[[int], bytes],
        work: Work,
        cut_index: Callable[[GroupId], int],
    ) -> None:
        self._identity = identity
        self._entropy = entropy
        self._work = work
        self._cut_index = cut_index
        self.images: dict[GroupId, _Writing] = {}
        self._retry_at: dict[GroupId, int] = {}
        self._queued = 0
        self._next_at = 0
        self._gap_ms = SLICE_GAP_MS

    def may_begin(self, group: GroupId, now_ms: int) -> bool:
        """Return whether the group's last attempt succeeded, or failed long enough ago."""
        return now_ms >= self._retry_at.get(group, 0)

    def write(
        self,
        group: GroupId,
        meta: SnapshotMeta,
        image: Image,
        *,
        cluster: bytes,
        feature_level: int,
        wall_ms: int,
    ) -> None:
        """Write this image from now on, instead of one under way; `performed` tells what became of it."""
        identity = self._identity
        self.abandon(group)
        self.images[group] = _Writing(
            SnapshotHeader(
                group,
                meta,
                cluster,
                identity.server,
                identity.instance,
                self._entropy(SNAPSHOT_ID_BYTES),
                feature_level,
                wall_ms,
            ),
            image,
        )

    def step(self, now_ms: int, received: Container[GroupId], hurries: Callable[[], bool]) -> None:
        """Do the turn's share: at most one slice, of one image.

        Args:
            received: groups for which another server's state is on its way: their images would be obsolete.
            hurries: returns whether the slice after this one is to come after `SLICE_GAP_MS`.
        """
        for group, writing in self.images.items():
            if writing.begun or group in received or not self.may_begin(group, now_ms):
                continue
            if self._is_covered(writing, now_ms):
                writing.begun = True
                self._work.tasks.append(Begin(writing.header))
                self._queued += 1
        if now_ms < self._next_at or self._queued > BLOCKS_QUEUED_MAX:
            return
        for group, writing in self.images.items():
            if writing.begun and not writing.finishing and group not in received:
                self._gap_ms = SLICE_GAP_MS if hurries() else UNHURRIED_GAP_MS
                self._next_at = now_ms + self._gap_ms
                self._give_slice(group, writing)
                return

    def _is_covered(self, writing: _Writing, now_ms: int) -> bool:
        """Return whether all deliveries up to the image's index are durable."""
        group = writing.header.group
        if group == COORDINATION_GROUP or self._cut_index(group) >= writing.header.meta.index:
            return True
        if writing.synced_at is None or now_ms - writing.synced_at >= ASK_AGAIN_MS:
            writing.synced_at = now_ms
            self._work.deliveries.append(SyncDeliveries(group))
        return False

    def _give_slice(self, group: GroupId, writing: _Writing) -> None:
        image, tasks = writing.image, self._work.tasks
        block = image.step(SLICE_ITEMS, SLICE_BYTES_MAX)
        if block:
            writing.size += len(block)
            tasks.append(WriteBlock(group, block))
            self._queued += 1
        if image.exhausted:
            tasks.append(Finish(group, image.items, image.digest, image.zxid))
            writing.finishing = True
        else:
            # The other images have their turn before its next slice.
            self.images[group] = self.images.pop(group)

    def performed(
        self, task: Begin | WriteBlock | Finish | Abort | Purge, result: Result, now_ms: int
    ) -> Written | None:
        """Take the result of a task that the disk has done.

        Returns:
            The attempt that ended with this task; None if none did.
        """
        group = task.group
        if isinstance(task, Begin | WriteBlock):
            self._queued -= 1
        writing = self.images.get(group)
        if writing is None or not writing.begun or isinstance(task, Purge):
            # Tasks of an earlier attempt say nothing of this one.
            return None
        meta = writing.header.meta
        if isinstance(result, StorageError):
            self._retry_at[group] = now_ms + RETRY_MS
            self.abandon(group)
            self._work.tasks.append(Abort(group))
            of_group = "" if group == COORDINATION_GROUP else f" of group {group}"
            self._work.failed(f"no snapshot{of_group} could be written: {result}")
            return Written(group, meta, None, writing.size)
        if isinstance(result, SnapshotInfo):
            self._retry_at.pop(group, None)
            del self.images[group]
            return Written(group, meta, result, writing.size)
        return None

    def abandon(self, group: GroupId) -> None:
        """Stop writing the group's image; the tasks under way come to nothing."""
        writing = self.images.pop(group, None)
        if writing is not None:
            writing.image.close()

    def forget(self, group: GroupId) -> None:
        """Forget a group that is gone."""
        self.abandon(group)
        self._retry_at.pop(group, None)

    @property
    def wake_in_ms(self) -> int | None:
        """The ms after which a turn can go on with an image; None if only the disk can, or there is none."""
        for writing in self.images.values():
            if writing.begun and not writing.finishing:
                return self._gap_ms
        return None
