"""An event loop whose clock jumps to the next timer when nothing else is to do: minutes pass at once, always alike."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """For programs without sockets, processes and threads."""

    def __init__(self) -> None:
        super().__init__()
        self._time = 0.0

    def time(self) -> float:
        return self._time

    def _run_once(self) -> None:
        if not self._ready:  # type: ignore[attr-defined]
            timers = [one.when() for one in self._scheduled if not one.cancelled()]  # type: ignore[attr-defined]
            if timers:
                self._time = max(self._time, min(timers))
        super()._run_once()  # type: ignore[misc]


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a loop of this kind."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
