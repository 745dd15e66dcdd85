"""The thread in which one worker's user code runs: one thing at a time, and never in the group's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog

T = TypeVar("T")
PATIENCE_S: Final = 10.0
"""Seconds that a stop waits for user code that is under way; after that it is left alone."""

log = structlog.get_logger()


class TaskThread:
    """A worker's thread. `inline`: run everything at once in the caller, for simulations and measurements."""

    def __init__(self, name: str, *, inline: bool = False) -> None:
        self._name = name
        self._executor = None if inline else ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function in the thread, and return its result."""
        if self._executor is None:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    async def last(self, function: Callable[[], T]) -> None:
        """Run a function after what is under way; give up if that takes too long."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.run(function)
        except TimeoutError:
            log.warning("user code does not end", thread=self._name, waited_s=PATIENCE_S)

    def close(self) -> None:
        """End the thread after what it does now."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
