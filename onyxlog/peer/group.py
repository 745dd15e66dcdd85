"""A peer group: one incarnation after the other, each under a new id and in a session of its own, until it is stopped."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from typing import Final

import structlog

from onyxlog.access import REFUSED
from onyxlog.errors import EntryError, OnyxlogError
from onyxlog.ids import GroupId
from onyxlog.peer.backoff import PROVEN_S, restart_ms
from onyxlog.peer.entry_source import MakeSource, from_log
from onyxlog.peer.incarnation import Ending, Incarnation
from onyxlog.peer.log.port import LogPort, OpenPort
from onyxlog.peer.metrics import PeerMetrics
from onyxlog.peer.recording import Recordings
from onyxlog.peer.settings import GroupSettings
from onyxlog.peer.task_runner import MakeRunner
from zraft_core.errors import ConfigError, ZraftError

ID_BYTES: Final = 8

log = structlog.get_logger()


def random_id() -> str:
    """Return an id that nobody has drawn before."""
    return secrets.token_hex(ID_BYTES)


class PeerGroup:
    """A peer group. Use `start` and `stop`, or `run` until cancelled."""

    def __init__(
        self,
        settings: GroupSettings,
        open_port: OpenPort,
        make_runner: MakeRunner,
        *,
        make_source: MakeSource = from_log,
        metrics: PeerMetrics | None = None,
        recordings: Recordings | None = None,
        rng: random.Random | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Prepare a group.

        `new_id` never returns the same twice; an incarnation's id is the group's name and one of these.
        """
        self._settings = settings
        self._open_port = open_port
        self._make_runner = make_runner
        self._make_source = make_source
        self._metrics = PeerMetrics() if metrics is None else metrics
        self._recordings = recordings
        self._rng = random.Random() if rng is None else rng
        self._new_id = new_id
        self._stopping = False
        self._incarnation: Incarnation | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.incarnations = 0

    @property
    def incarnation(self) -> Incarnation | None:
        """The present incarnation; None between two."""
        return self._incarnation

    @property
    def id(self) -> GroupId | None:
        """The id of the present incarnation, or None between two."""
        return None if self._incarnation is None else self._incarnation.group

    def start(self) -> asyncio.Task[None]:
        """Begin in the background. The task ends with `stop`, or with an error that a restart cannot cure."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.run(), name="peer group")
        return self._task

    async def stop(self) -> None:
        """Leave, and end the session."""
        self._stopping = True
        self._wake.set()
        if self._incarnation is not None:
            await self._incarnation.leave()
        if self._task is not None:
            await self._task

    async def until(self, condition: Callable[[Incarnation], bool]) -> None:
        """Wait until `condition` holds for the present incarnation; it is checked after each batch of entries.

        Raises:
            OnyxlogError: the group was stopped before. What the group ended with is raised, too.
        """
        task = self.start()
        while True:
            incarnation = self._incarnation
            if incarnation is not None and incarnation.begun and condition(incarnation):
                return
            change = incarnation.changed if incarnation is not None else self._begun
            await asyncio.wait((change, task), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                raise OnyxlogError(f"group {self._settings.name}: stopped while something was waited for")

    async def run(self) -> None:
        """Run until `stop`.

        Raises:
            ConfigError: the log was begun with other parameters, or something else that only a person can
                change.
            EntryError: the log holds something that this release does not understand.
        """
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._stopping:
            began = loop.time()
            cause = await self._live_once()
            if self._stopping or cause is None:
                return
            failures = 1 if loop.time() - began > PROVEN_S else failures + 1
            self._metrics.restarts.labels(cause).inc()
            wait_s = restart_ms(failures, self._rng.random()) / 1000
            log.info("group begins again under a new id", cause=cause, after_s=round(wait_s, 3))
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _live_once(self) -> str | None:
        """Live one incarnation; return why it has to begin again, None if it left on purpose."""
        port: LogPort | None = None
        group = f"{self._settings.name}-{self._new_id()}"
        self.incarnations += 1
        try:
            port = await self._opened()
            if port is None:
                return None
            self._incarnation = Incarnation(
                self._settings,
                group,
                port,
                make_runner=self._make_runner,
                make_source=self._make_source,
                metrics=self._metrics,
                rng=self._rng,
                recorder=None if self._recordings is None else self._recordings.of(group),
            )
            self._begun.set_result(None)
            self._begun = asyncio.get_running_loop().create_future()
            ending = await self._incarnation.run()
            return None if ending is Ending.LEFT else ending.value
        except (ConfigError, EntryError, *REFUSED):
            raise  # waiting would not cure it
        except ZraftError as error:
            log.warning("group failed", group=group, error=f"{type(error).__name__}: {error}")
            return "failed"
        except Exception:
            log.exception("group failed", group=group)
            return "mistake"
        finally:
            self._incarnation = None
            if self._recordings is not None:
                self._recordings.close(group)
            if port is not None:
                await _close(port, group)

    async def _opened(self) -> LogPort | None:
        """Return an open port, None if the group was stopped meanwhile: it waits long for a service that nobody reaches."""

        async def opened() -> LogPort:
            return await self._open_port()

        loop = asyncio.get_running_loop()
        opening, stopping = loop.create_task(opened()), loop.create_task(self._wake.wait())
        try:
            await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
            return opening.result() if opening.done() else None
        finally:
            stopping.cancel()
            if not opening.done():
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)


async def _close(port: LogPort, group: GroupId) -> None:
    try:
        await port.close()
    except Exception as error:
        # the session then ends by itself, a timeout later
        log.warning("log not closed", group=group, error=f"{type(error).__name__}: {error}")
