"""Reads of a partition that must not be answered by a leader that was deposed: they wait for a quorum round. Pure.

One round at a time, for all that wait when it begins: its number is asked for with `GroupHost.read_index`, and counts for
whatever began earlier. The same rounds stand behind expiry of claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

_Query = TypeVar("_Query")

ASK_AGAIN_MS: Final = 500
"""A round that was not confirmed by then was lost."""


class QuorumReads(Generic[_Query]):
    """`contexts` gives numbers that were never used before, not even by an earlier process; they ascend.

    Attributes:
        confirmed: the number of the newest round that a quorum confirmed, 0 before the first.
    """

    def __init__(self, contexts: Iterator[int]) -> None:
        self._contexts = contexts
        self._waiting: list[_Query] = []
        self._asked: list[_Query] = []
        self._under_way: int | None = None
        self._begun_at = 0
        self._newest = 0
        self._wanted = False
        self.confirmed = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._asked)

    def add(self, query: _Query) -> None:
        """Let a read wait for a round that begins from now on."""
        self._waiting.append(query)

    def want(self) -> None:
        """Begin a round, though nobody reads."""
        self._wanted = True

    @property
    def next_round(self) -> int:
        """Lower bound of the number of every round that begins from now on."""
        return self._newest + 1

    def begin(self, run_ms: int) -> int | None:
        """Return the number of the round to ask for now; None if none is needed, or one is under way."""
        lost = self._under_way is not None and run_ms - self._begun_at >= ASK_AGAIN_MS
        if self._under_way is not None and not lost:
            return None
        if not (lost or self._wanted or self._waiting):
            return None
        self._asked += self._waiting
        self._waiting, self._wanted = [], False
        self._begun_at = run_ms
        self._under_way = self._newest = next(self._contexts)
        return self._under_way

    def answered(self, number: int) -> list[_Query]:
        """Return the queries of a confirmed round: what was committed when it began is applied."""
        if number != self._under_way:
            return []
        self._under_way = None
        self.confirmed = number
        asked, self._asked = self._asked, []
        return asked

    def due_in(self, run_ms: int) -> int | None:
        """Return after how long the round that is under way counts as lost; None without a round."""
        return None if self._under_way is None else max(0, self._begun_at + ASK_AGAIN_MS - run_ms)

    def take_all(self) -> list[_Query]:
        """Return all queries, which nobody can answer here any more, since the leadership is over."""
        queries = [*self._asked, *self._waiting]
        self._asked, self._waiting = [], []
        return queries

    def keep(self, wanted: Callable[[_Query], bool]) -> None:
        """Keep only the wanted queries; nobody waits for the others any more."""
        self._asked = [one for one in self._asked if wanted(one)]
        self._waiting = [one for one in self._waiting if wanted(one)]
