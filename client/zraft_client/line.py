"""Callers that wait for room, first come, first served.

Nobody passes a caller that came before: neither a small message a large one that finds no room yet, nor a
call that finds room at once those that were waiting for it. This module knows neither messages nor what room
is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class Line:
    """One line, of one event loop.

    Args:
        has_room: whether there is room for so many callers, of so many bytes together, beside what is
            under way.
    """

    def __init__(self, has_room: Callable[[int, int], bool]) -> None:
        self._has_room = has_room
        self._waiting: OrderedDict[asyncio.Future[None], int | None] = OrderedDict()
        """Waiting callers, with the bytes they want room for, or None. Any of many thousands may leave, in O(1)."""
        self._called: dict[asyncio.Future[None], int] = {}
        """Callers whose turn it is and who have not come yet: the room that they will take is not free any more."""
        self._called_bytes = 0
        self._over = False

    @property
    def is_waited_in(self) -> bool:
        """True if somebody waits for room."""
        return bool(self._waiting)

    def may_pass(self, size: int) -> bool:
        """Return whether a caller has its turn, and room for `size` bytes, without waiting."""
        return not (self._waiting or self._called) and self._has_room(1, size)

    async def turn(self, size: int) -> None:
        """Wait until all who came before have had their turn, and for room for `size` bytes.

        The caller takes the room before it awaits anything else, or calls `admit` if it does without.
        """
        if not self.may_pass(size):
            await self._wait(size)

    async def passed(self) -> None:
        """Wait until all who came before have had their turn, or have left."""
        if self._waiting or self._called:
            await self._wait(None)

    async def _wait(self, size: int | None) -> None:
        if self._over:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = size
        try:
            await waiter
        except asyncio.CancelledError:
            self._waiting.pop(waiter, None)
            self._come(waiter)
            self.admit()  # its turn may have come as it was cancelled, or it was the one that had no room
            raise
        self._come(waiter)

    def _come(self, waiter: asyncio.Future[None]) -> None:
        self._called_bytes -= self._called.pop(waiter, 0)

    def admit(self) -> None:
        """Admit as many callers as have room now."""
        while self._waiting:
            waiter, size = next(iter(self._waiting.items()))
            if not waiter.done():
                if size is not None and not self._over:
                    if not self._has_room(len(self._called) + 1, self._called_bytes + size):
                        return
                    self._called[waiter] = size
                    self._called_bytes += size
                waiter.set_result(None)
            del self._waiting[waiter]

    def end(self) -> None:
        """End the line: nobody waits any more, now or later."""
        self._over = True
        self.admit()
