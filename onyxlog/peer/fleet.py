"""Many peer groups in one process and event loop, each with a session of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from onyxlog.peer.entry_source import MakeSource, from_log
from onyxlog.peer.group import PeerGroup, random_id
from onyxlog.peer.incarnation import Incarnation
from onyxlog.peer.live_metrics import LiveMetrics
from onyxlog.peer.log.port import OpenPort
from onyxlog.peer.metrics import PeerMetrics
from onyxlog.peer.recording import Recordings
from onyxlog.peer.settings import GroupSettings
from onyxlog.peer.task_runner import MakeRunner


class Fleet:
    """Groups that share nothing but the process and its metrics. Stop it, or use it as an async context manager."""

    def __init__(
        self,
        open_port: OpenPort,
        make_runner: MakeRunner,
        *,
        make_source: MakeSource = from_log,
        metrics: PeerMetrics | None = None,
        recordings: Recordings | None = None,
        rng: random.Random | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Begin without groups; `new_id` is as in `PeerGroup`."""
        self._open_port = open_port
        self._make_runner = make_runner
        self._make_source = make_source
        self._recordings = recordings
        self._rng = rng
        self._new_id = new_id
        self.metrics = PeerMetrics() if metrics is None else metrics
        self.groups: list[PeerGroup] = []
        self.metrics.registry.register(LiveMetrics(self.incarnations))

    def incarnations(self) -> list[Incarnation]:
        """Return the present incarnations."""
        return [group.incarnation for group in self.groups if group.incarnation is not None]

    def start(self, settings: GroupSettings) -> PeerGroup:
        """Start one more group, in the background."""
        group = PeerGroup(
            settings,
            self._open_port,
            self._make_runner,
            make_source=self._make_source,
            metrics=self.metrics,
            recordings=self._recordings,
            rng=self._rng,
            new_id=self._new_id,
        )
        self.groups.append(group)
        group.start()
        return group

    async def run(self) -> None:
        """Wait until all groups have stopped. The first that a restart cannot cure ends this with its error."""
        tasks = [group.start() for group in self.groups]
        if tasks:
            await asyncio.gather(*tasks)

    async def until(
        self, condition: Callable[[Incarnation], bool], groups: Iterable[PeerGroup] | None = None
    ) -> None:
        """Wait until `condition` holds for the present incarnation of each of these groups (of all), one after the other.

        Raises:
            OnyxlogError: what a group that is waited for ended with.
            ConfigError: likewise.
        """
        for group in tuple(self.groups if groups is None else groups):
            await group.until(condition)

    async def joined(self) -> None:
        """Wait until every group is a member."""
        await self.until(lambda incarnation: incarnation.core.joined)

    async def stop(self) -> None:
        """Let all groups leave, and end their sessions.

        Raises:
            Exception: the error that the first failed group ended with.
        """
        stopped = await asyncio.gather(*(group.stop() for group in self.groups), return_exceptions=True)
        self.groups.clear()
        for one in stopped:
            if isinstance(one, BaseException):
                raise one

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
