"""Checkpoints in the log's service: parts of workers, which one is complete, and which coordinator decides that.

Below `state/`: `checkpoints/<job>/parts/…` (`onyxlog.jobs.checkpoints`), and
`checkpoints/<job>/latest/<version>`, the last complete checkpoint as the coordinator of that allocation
version sees it. A coordinator begins by writing its own; from then on, what an older one, which has not heard
of its end, still completes is ignored. The order of steps in `take_over` and `complete` is what makes this
so; docs/explanation/onyxlog.md, "Exactly once", has the argument.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgpack
import zstandard

from onyxlog.errors import EntryError
from onyxlog.ids import JobId, Position, TaskName
from onyxlog.jobs.barriers import Barrier, WorkerKey
from onyxlog.jobs.checkpoints import (
    Checkpoint,
    CompletedCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
    latest_path,
    part_path,
    version_path,
)
from onyxlog.peer.log.port import LogPort
from zraft_core.errors import ProtocolError
from zraft_core.messagepack import unpack

LEVEL: Final = 1
PART_BYTES_MAX: Final = 1 << 30
NONE: Final = b""
"""The contents of a checkpoint where a version began from nothing."""


class CheckpointStore:
    """The checkpoints of one job."""

    def __init__(self, port: LogPort, job: JobId) -> None:
        self._port = port
        self._job = job

    async def take_over(self, version: Position, resume_from: JobId | None = None) -> Checkpoint | None:
        """Return the checkpoint that the workers of `version` begin from. Only for its coordinator."""
        found = await self._newest_before(version)
        if found is None and resume_from is not None:
            found = await CheckpointStore(self._port, resume_from).newest()
        await self._port.put_state(self._latest(version), encode_checkpoint(found) if found else NONE)
        # A coordinator that completed a checkpoint between our reading and our writing may have removed parts
        # of the one we read, as it did not see ours. Now it does.
        again = await self._newest_before(version)
        if again is not None and again != found:
            found = again
            await self._port.put_state(self._latest(version), encode_checkpoint(found))
        return found

    async def complete(self, version: Position, completed: CompletedCheckpoint) -> bool:
        """Note that all parts are stored: jobs begin from this checkpoint.

        Return False if a newer version has taken over.
        """
        await self._port.put_state(self._latest(version), encode_checkpoint(completed.checkpoint))
        versions = await self._versions()
        if versions and max(versions) > version:
            return False
        for other in versions:
            if other < version:
                # This includes versions that never completed one. Parts go first: while `latest` exists, they
                # are found.
                await self._port.remove_state(version_path(self._job, other))
                await self._port.remove_state(self._latest(other))
        for path in completed.over:
            await self._port.remove_state(path)
        return True

    async def newest(self) -> Checkpoint | None:
        """Return what another job would begin from (`resume_from`)."""
        return await self._newest_before(None)

    async def put_part(self, barrier: Barrier, worker: WorkerKey, part: Mapping[str, Any]) -> int:
        """Store what a worker holds; return how many bytes it takes."""
        packed = msgpack.packb(part, use_bin_type=True)
        data = zstandard.ZstdCompressor(level=LEVEL).compress(packed)
        await self._port.put_state(part_path(self._job, barrier, worker), data)
        return len(data)

    async def parts(self, checkpoint: Checkpoint, task: TaskName, slots: Iterable[int]) -> dict[int, Any]:
        """Return what the workers of a task held, by slot."""
        keys = [WorkerKey(task, slot) for slot in sorted(slots)]
        found = await asyncio.gather(*(self._part(checkpoint.path_of(key)) for key in keys))
        return {key.slot: part for key, part in zip(keys, found, strict=True)}

    async def _part(self, path: str) -> Any:
        data = await self._port.state(path)
        if data is None:
            raise EntryError(
                f"state/{path}: expected a part of a checkpoint, found nothing; was it removed by hand?"
            )
        try:
            packed = zstandard.ZstdDecompressor().decompress(data, max_output_size=PART_BYTES_MAX)
            return unpack(packed, lists=True, any_keys=True)
        except (zstandard.ZstdError, ProtocolError) as error:
            raise EntryError(f"state/{path}: not a part of a checkpoint: {error}") from error

    async def _newest_before(self, version: Position | None) -> Checkpoint | None:
        versions = [other for other in await self._versions() if version is None or other < version]
        for other in sorted(versions, reverse=True):
            path = self._latest(other)
            data = await self._port.state(path)
            if data is not None:
                return decode_checkpoint(data, f"state/{path}") if data else None
        return None

    async def _versions(self) -> list[Position]:
        return [int(name) for name in await self._port.states(latest_path(self._job)) if name.isdigit()]

    def _latest(self, version: Position) -> str:
        return f"{latest_path(self._job)}/{version:010d}"


async def forget_checkpoints(port: LogPort, job: JobId) -> None:
    """Remove all that a job stored: checkpoints and positions of inputs. It cannot be resumed afterwards."""
    await port.remove_state(f"checkpoints/{job}")
    await port.remove_state(f"positions/{job}")


def position_path(job: JobId, task: TaskName, partition: int) -> str:
    """Return where the position is kept below which everything is acknowledged, with delivery at-least-once."""
    return f"positions/{job}/{task}/{partition}"
