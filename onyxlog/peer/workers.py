"""Starts and stops of virtual peers' tasks as the log says: one at a time per peer, the newest only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from onyxlog.ids import PeerId, Position
from onyxlog.peer.task_runner import TaskRunner
from onyxlog.peer.watching import Spawn
from onyxlog.replica.effects import StartTask, StopTask

log = structlog.get_logger()
Wanted = StartTask | StopTask


class Workers:
    """The tasks of a group's virtual peers. A request for the present state, or from an older entry, does nothing."""

    def __init__(
        self, runner: TaskRunner, failed: Callable[[PeerId, BaseException], None], spawn: Spawn
    ) -> None:
        self._runner = runner
        self._failed = failed
        self._spawn = spawn
        self._wanted: dict[PeerId, tuple[Position, Wanted]] = {}
        self._done: dict[PeerId, Wanted] = {}
        self._busy: set[PeerId] = set()

    @property
    def running(self) -> dict[PeerId, StartTask]:
        """The tasks that were started and not stopped since."""
        return {peer: done for peer, done in self._done.items() if isinstance(done, StartTask)}

    @property
    def settled(self) -> bool:
        """Wait until every request is carried out."""
        return not self._busy

    def want(self, position: Position, wanted: Wanted) -> None:
        """Request a task, because of the entry at `position`."""
        newest, present = self._wanted.get(wanted.peer, (position, None))
        if position < newest or wanted in (present, None if present else self._done.get(wanted.peer)):
            return
        self._wanted[wanted.peer] = (position, wanted)
        if wanted.peer not in self._busy:
            self._busy.add(wanted.peer)
            self._spawn(self._bring(wanted.peer))

    def forget(self, peer: PeerId, position: Position) -> None:
        """Stop what a virtual peer runs that is out. Its id is never used again."""
        known = self._wanted.get(peer)
        running = self._done.get(peer) if known is None else known[1]
        if isinstance(running, StartTask):
            self.want(position, StopTask(peer, running.job, "left"))

    async def _bring(self, peer: PeerId) -> None:
        try:
            while (next_one := self._wanted.get(peer)) is not None:
                await self._carry_out(next_one[1])
                if self._wanted.get(peer) is next_one:
                    del self._wanted[peer]
        finally:
            self._busy.discard(peer)

    async def _carry_out(self, wanted: Wanted) -> None:
        try:
            if isinstance(wanted, StartTask):
                await self._runner.start(wanted)
            else:
                await self._runner.stop(wanted)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except Exception as error:
            log.exception("task failed", peer=wanted.peer, job=wanted.job)
            self._done.pop(wanted.peer, None)
            self._failed(wanted.peer, error)
            return
        if isinstance(wanted, StartTask):
            self._done[wanted.peer] = wanted
        else:
            self._done.pop(wanted.peer, None)
