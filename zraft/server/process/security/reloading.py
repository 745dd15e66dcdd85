"""Reloading of something made of files when they change, without a restart.

A file that cannot be used changes nothing: what was loaded before stays, and the log names the file. Files are looked at
and read in a thread, because a disk or a network file system may make one wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import structlog

from zraft_core.errors import ConfigError

POLL_S: Final = 2.0
"""The interval at which files are looked at. A change is taken once it was the same twice, so that a
certificate and its key can be replaced one after the other.
"""

T = TypeVar("T")
Signature = tuple[tuple[int, int, int] | None, ...]

log = structlog.get_logger()


def signature(files: Sequence[Path]) -> Signature:
    """Return a value that changes when a file or who may read it changes; None if a file is missing."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = os.stat(file)
            found.append((status.st_ino, status.st_ctime_ns, status.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


class Reloading(Generic[T]):
    """The value that `load` makes of `files`, as of the last time that it could."""

    def __init__(self, what: str, files: Sequence[Path], load: Callable[[T | None], T]) -> None:
        """Load at once.

        `load` gets the value in force, None at first.

        Raises:
            ConfigError: the files cannot be used; there is nothing to go on with.
        """
        self._what = what
        self._files = files
        self._load = load
        self._taken = signature(files)
        self._seen = self._taken
        self.value = load(None)
        self.failures_total = 0

    def poll(self, *, now: bool = False) -> bool:
        """Look at the files, and load them if they changed; with `now` in any case. True if there is a new value. Blocks."""
        seen, self._seen = self._seen, signature(self._files)
        if not now and (self._seen == self._taken or self._seen != seen):
            return False
        self._taken = self._seen
        try:
            self.value = self._load(self.value)
        except ConfigError as error:
            self.failures_total += 1
            log.error("reload failed, the former files stay in force", what=self._what, error=str(error))
            return False
        log.info("reloaded", what=self._what, files=[str(file) for file in self._files])
        return True


class Polled(Protocol):
    """A `Reloading` of whatever."""

    def poll(self, *, now: bool = False) -> bool:
        """Read changed files again, with `now` in any case; return whether there is a new value. Blocks."""


async def keep_fresh(
    reloadings: Sequence[Polled], hangup: asyncio.Event, after_each: Callable[[], None]
) -> None:
    """Poll them all until cancelled; at once, and load unasked, when `hangup` is set (SIGHUP)."""
    while True:
        after_each()
        try:
            # `wait_for` would swallow a cancellation that comes with the event, before Python 3.12.
            async with asyncio.timeout(POLL_S):
                await hangup.wait()
        except TimeoutError:
            pass
        now = hangup.is_set()
        hangup.clear()
        for one in reloadings:
            await asyncio.to_thread(one.poll, now=now)
