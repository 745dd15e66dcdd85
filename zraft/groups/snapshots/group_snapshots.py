"""When a group's image goes to the disk: not before everything that the group delivered up to it is durable there.

A restart begins with the image and applies the log after it; what entries before it delivered could be made again by
nobody (D-13). So the image waits, as it was, until its deliveries are safe. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define

from zraft.groups.effects import SnapshotTask
from zraft.groups.host import GroupHost
from zraft.groups.identity import Identity
from zraft.groups.partitions_port import PartitionsPort
from zraft.groups.snapshots.delivery_tasks import Sync
from zraft.groups.snapshots.tasks import Begin, Finish, Purge, Result, Task, WriteBlock
from zraft.storage.snapshot_format import SNAPSHOT_ID_BYTES, SnapshotHeader
from zraft.storage.snapshots import WRITE_BYTES_MAX
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

SNAPSHOTS_KEPT = 2
"""The newest, and the one before it: a transfer of that one may be under way."""

ASK_AGAIN_MS = 500
"""A group whose deliveries are not durable yet is asked to make them so again after this."""

RETRY_MS = 10_000
"""After a snapshot that failed (the disk was full) it is written again no sooner."""

PROBLEMS_KEPT_MAX = 16

GROUP_IMAGE_LEVEL = 1
"""Of the header's feature level: an image of a group says itself of which format it is."""


@define
class _Waiting:
    task: SnapshotTask
    asked_at: int | None = None
    not_before: int = 0


class GroupSnapshots:
    """Images on their way to the disk, a few at a time (`groups.snapshots_at_once`).

    Attributes:
        problems: what went wrong since it was last taken, for the log.
    """

    def __init__(
        self,
        identity: Identity,
        host: GroupHost,
        partitions: PartitionsPort,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._identity = identity
        self._host = host
        self._partitions = partitions
        self._entropy = entropy
        self._waiting: dict[GroupId, _Waiting] = {}
        self._writing: dict[GroupId, SnapshotTask] = {}
        self.problems: list[str] = []
        self.taken_total = 0
        self.failed_total = 0

    def turn(
        self, taken: Sequence[SnapshotTask], cluster: bytes, now_ms: int, wall_ms: int
    ) -> tuple[list[Task], list[Sync]]:
        """What the two disks are to do now; `taken` are the images of this turn."""
        for task in taken:
            self._waiting[task.group] = _Waiting(task)
        if not self._waiting:
            return [], []
        writes: list[Task] = []
        syncs: list[Sync] = []
        for group, waiting in tuple(self._waiting.items()):
            task = waiting.task
            if now_ms < waiting.not_before:
                continue
            if self._partitions.cut_index(group) >= task.meta.index:
                del self._waiting[group]
                self._writing[group] = task
                writes += _write(task, self._header(task, cluster, wall_ms))
            elif waiting.asked_at is None or now_ms - waiting.asked_at >= ASK_AGAIN_MS:
                waiting.asked_at = now_ms
                syncs.append(Sync(group))
        return writes, syncs

    @property
    def waits(self) -> bool:
        """Whether an image waits for its deliveries."""
        return bool(self._waiting)

    def forget(self, group: GroupId) -> None:
        """It is gone."""
        self._waiting.pop(group, None)
        self._writing.pop(group, None)

    def performed(self, task: Begin | WriteBlock | Finish, result: Result, now_ms: int) -> bool:
        """The disk has done a part of an image, or could not, and then all of it is tried again; True if it is durable."""
        group, failed = task.group, isinstance(result, StorageError)
        if not failed and not isinstance(task, Finish):
            return False
        taken = self._writing.pop(group, None)
        if taken is None:
            return False
        if not failed:
            self.taken_total += 1
            self._host.snapshotted(group, taken.meta, durable=True)
            return True
        self.failed_total += 1
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(f"no snapshot of group {group} could be written: {result!s}")
        self._waiting[group] = _Waiting(taken, not_before=now_ms + RETRY_MS)
        return False

    def _header(self, task: SnapshotTask, cluster: bytes, wall_ms: int) -> SnapshotHeader:
        identity = self._identity
        return SnapshotHeader(
            task.group,
            task.meta,
            cluster,
            identity.server,
            identity.instance,
            self._entropy(SNAPSHOT_ID_BYTES),
            GROUP_IMAGE_LEVEL,
            wall_ms,
        )


def _write(task: SnapshotTask, header: SnapshotHeader) -> list[Task]:
    group, image = task.group, task.image
    blocks = [image[at : at + WRITE_BYTES_MAX] for at in range(0, len(image), WRITE_BYTES_MAX)]
    return [
        Begin(header),
        *(WriteBlock(group, block) for block in blocks),
        Finish(group, 1, task.digest, 0),
        Purge(group, SNAPSHOTS_KEPT),
    ]
