"""The replicated dictionary through which head, servers and clients of a distributed benchmark talk.

Each process keeps a copy to which changes are pushed, and waits for conditions on it; nobody polls.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from zraft_bench.records import from_plain, to_plain
from zraft_core.errors import ZraftError

T = TypeVar("T")

FOREVER: Final = None

LEAVE_S: Final = 5.0
"""Seconds for the last entry of a machine: half of what the head waits for it."""


class BoardError(ZraftError):
    """The replicated dictionary cannot be reached, or what was waited for did not come."""


class Board(ABC):
    """A copy of the dictionary, and how to change it. For one event loop."""

    def __init__(self) -> None:
        self.view: dict[str, Any] = {}
        self._changed = asyncio.Event()
        self._failure: BoardError | None = None

    @abstractmethod
    async def put(self, key: str, value: Any, *, fresh: bool = False) -> bool:
        """Set `key` to a message. With `fresh`, do so only if it does not exist, and return False if it does.

        Raises:
            BoardError: the dictionary was lost.
        """

    @abstractmethod
    async def remove(self, key: str) -> None:
        """Remove a key; nothing happens if it does not exist.

        Raises:
            BoardError: the dictionary was lost.
        """

    async def take_leave(self, key: str, value: Any) -> None:
        """Write the last entry of a machine.

        The head ends the servers as soon as it has seen this, perhaps before the answer is here.
        """
        with suppress(BoardError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self.put(key, value)

    def get(self, kind: type[T], key: str) -> T | None:
        """Return the message under `key` as far as this copy knows.

        Raises:
            RecordError: the value is no such message.
        """
        found = self.view.get(key)
        return None if found is None else from_plain(kind, found, key)

    async def wait(
        self, condition: Callable[[Board], T | None], what: str, timeout_s: float | None = FOREVER
    ) -> T:
        """Wait until `condition` returns something true; return that.

        Raises:
            BoardError: it did not in time, or the dictionary was lost; the message says `what` was waited
                for.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if self._failure is not None:
                        raise self._failure
                    changed = self._changed
                    if found := condition(self):
                        return found
                    await changed.wait()
        except TimeoutError:
            raise BoardError(f"waited {timeout_s:g} s in vain for {what}") from None

    def numbers(self, prefix: str) -> list[int]:
        """Return N of every key `prefix/N`, growing."""
        tails = (key.removeprefix(prefix + "/") for key in self.view if key.startswith(prefix + "/"))
        return sorted(int(tail) for tail in tails if tail.isdecimal())

    async def claim(self, prefix: str, value: Any, first: int = 1, last: int = 254) -> int:
        """Return the lowest free number N for which `prefix/N` could be made.

        Raises:
            BoardError: all numbers are taken, or the dictionary was lost.
        """
        for number in range(first, last + 1):
            if f"{prefix}/{number}" not in self.view and await self.put(
                f"{prefix}/{number}", value, fresh=True
            ):
                return number
        raise BoardError(f"{prefix}: all numbers from {first} to {last} are taken")

    # -- for implementations

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Take keys with their new values, None if they are gone."""
        for key, value in changes.items():
            if value is None:
                self.view.pop(key, None)
            else:
                self.view[key] = value
        self._wake()

    def fail(self, error: BoardError) -> None:
        """End the board with an error, which everybody who waits for it gets."""
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class MemoryDictionary:
    """A dictionary for boards of one event loop: for tests, and for what needs no servers."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self.boards: list[MemoryBoard] = []

    def board(self) -> MemoryBoard:
        """Return a board for one more participant."""
        self.boards.append(MemoryBoard(self))
        self.boards[-1].apply(self.entries)
        return self.boards[-1]

    def change(self, key: str, value: Any) -> None:
        """Set a key, or remove it if the value is None, and tell all boards in the next pass of the loop."""
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value
        loop = asyncio.get_running_loop()
        for board in self.boards:
            loop.call_soon(board.apply, {key: value})


class MemoryBoard(Board):
    """The board of a participant of a `MemoryDictionary`. Changes arrive a turn later, as they would from elsewhere."""

    def __init__(self, dictionary: MemoryDictionary) -> None:
        super().__init__()
        self._dictionary = dictionary

    async def put(self, key: str, value: Any, *, fresh: bool = False) -> bool:
        """Set `key` to a message.

        With `fresh`, do so only if it does not exist, and return False if it does.
        """
        if fresh and key in self._dictionary.entries:
            return False
        self._dictionary.change(key, to_plain(value))
        await asyncio.sleep(0)
        return True

    async def remove(self, key: str) -> None:
        """Remove a key; nothing happens if it does not exist."""
        self._dictionary.change(key, None)
        await asyncio.sleep(0)
