"""Choice of which connection has to go when too many have not shown yet who they are.

Were it always the newest, whoever opens that many and says nothing would keep everybody else out.

Pure: time is handed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")

PATIENCE_S: Final = 1.0
"""An honest client needs milliseconds, over a bad network hundreds of them."""


class Newcomers(Generic[T]):
    """Connections that are not through yet, at most `count_max`."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._since: dict[T, tuple[str, float]] = {}
        """(address, since when) of each, the oldest first."""
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._since))

    def __contains__(self, one: T) -> bool:
        return one in self._since

    def enter(self, one: T, address: str, now: float, spared: Container[T] = ()) -> T | None:
        """Admit `one`, and return who must go for it: `one` itself if nobody else should, None if there is room.

        The oldest goes, of those who have had the time, or of an address that has twice as many as that of `one`.
        Whoever is in `spared` waits for this server, not the other way round, and stays.
        """
        goes: T | None = None
        if len(self._since) >= self._count_max:
            goes = self._displaced(address, now, spared)
            if goes is None:
                return one
            self.leave(goes)
        self._since[one] = address, now
        self._counts[address] += 1
        return goes

    def _displaced(self, address: str, now: float, spared: Container[T]) -> T | None:
        few = 2 * (self._counts[address] + 1)
        heaviest, count = max(self._counts.items(), key=lambda item: item[1], default=("", 0))
        for one, (where, since) in self._since.items():
            if one not in spared and (now - since >= PATIENCE_S or (where == heaviest and count >= few)):
                return one
        return None

    def leave(self, one: T) -> None:
        """Forget a connection that has shown who it is, or is gone. It may be called again."""
        found = self._since.pop(one, None)
        if found is not None:
            self._counts[found[0]] -= 1
            if not self._counts[found[0]]:
                del self._counts[found[0]]
