"""One timeout for many things: what was started first is due first, so a look costs one comparison."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Everything started and not yet stopped or due. Times in seconds of any clock that does not go back."""

    __slots__ = ("_started", "_timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._started: dict[T, float] = {}

    def __len__(self) -> int:
        return len(self._started)

    def start(self, one: T, now: float) -> None:
        """Start the time of `one` now, also if it ran before."""
        if one in self._started:
            del self._started[one]  # a dict keeps the place of a key that is set again
        self._started[one] = now

    def stop(self, one: T) -> None:
        """Stop the time of `one`, if it runs."""
        if one in self._started:
            del self._started[one]

    def due(self, now: float) -> list[T]:
        """Return those whose time is over; each is given once."""
        found: list[T] = []
        for one, started in self._started.items():
            if now - started < self._timeout_s:
                break
            found.append(one)
        for one in found:
            del self._started[one]
        return found
