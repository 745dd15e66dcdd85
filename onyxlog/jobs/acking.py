"""Acknowledgements for at-least-once delivery: XOR shows which segments of an input are completely processed.

Storm and Onyx 0.9 do the same.

A root is a segment of an input. Each segment that is made from it carries the root and a random number, its
ack. A worker that has processed a segment XORs its ack and those of all segments that it made of it, and
sends the result to the input that owns the root, which XORs what it is sent. Each ack is in there twice, once
from the worker that made the segment and once from the one that processed it, so that the whole is zero when
nothing is under way any more; before that it is zero by chance once in 2**64. A root whose tree is not done
in time is sent again under a new number, and acks for the old one are ignored.

Pure: randomness is handed in, time is ticks. The acks of one allocation version mean nothing in another.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

from attrs import frozen

T = TypeVar("T", bound=Hashable)

OWNER_BITS: Final = 16
ROOT_BITS: Final = 48
OWNERS_MAX: Final = 2**OWNER_BITS


class Lineage(NamedTuple):
    """Origin of a segment: its root and its ack."""

    root: int
    """64 bits. The upper 16 are the number, in the job, of the input's worker that owns the root."""
    ack: int
    """64 bits, random, not zero."""


def owner_of(root: int) -> int:
    """Return the number of the worker that owns a root."""
    return root >> ROOT_BITS


class AckBatch:
    """Batch of acks for the owners of roots: one number for each root that the worker touched."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._values: dict[int, int] = {}

    def settle(self, parent: Lineage, children: int) -> list[Lineage]:
        """Note that a segment was processed and that `children` were made of it; return their lineages."""
        root, value = parent
        made = []
        if children:
            bits = self._rng.getrandbits
            # a zero would hide a segment
            made = [Lineage(root, bits(64) or 1) for _ in range(children)]
            for _, ack in made:
                value ^= ack
        values = self._values
        values[root] = values.get(root, 0) ^ value
        return made

    def take(self) -> list[tuple[int, int]]:
        """Return (root, value) of all that was settled since the last call.

        Values of zero say nothing and are left out.
        """
        values, self._values = self._values, {}
        return [(root, value) for root, value in values.items() if value]


@frozen
class Overdue(Generic[T]):
    """A root to be sent again. `attempt`: how many times it was sent."""

    token: T
    attempt: int


class Roots(Generic[T]):
    """The roots that a worker of an input owns. By its `token` the worker finds a segment again to send it once more.

    At most `pending_max` are under way: the input reads no more while it `is_full`.
    """

    def __init__(self, owner: int, rng: Random, *, timeout_ticks: int, pending_max: int) -> None:
        assert 0 <= owner < OWNERS_MAX, f"{owner=}"
        assert timeout_ticks > 0, f"{timeout_ticks=}"
        assert pending_max > 0, f"{pending_max=}"
        self._owner = owner << ROOT_BITS
        self._rng = rng
        self._timeout = timeout_ticks
        self._pending_max = pending_max
        # (token, attempt, deadline) of each root, and what its acks are together. They are in the order of
        # deadlines, as all have the same time and the clock goes forward.
        self._trees: dict[int, tuple[T, int, int]] = {}
        self._values: dict[int, int] = {}
        self._now = 0

    def __len__(self) -> int:
        return len(self._trees)

    @property
    def is_full(self) -> bool:
        """True if as many segments are under way as may be."""
        return len(self._trees) >= self._pending_max

    def begin(self, token: T, now: int, attempt: int = 1) -> Lineage:
        """Return the lineage of a segment that is about to be sent for the `attempt`th time."""
        assert now >= self._now, f"the clock went back from {self._now} to {now}"
        self._now = now
        bits = self._rng.getrandbits
        while (root := self._owner | bits(ROOT_BITS)) in self._trees:
            pass
        ack = self._values[root] = bits(64) or 1
        self._trees[root] = (token, attempt, now + self._timeout)
        return Lineage(root, ack)

    def settle(self, values: Iterable[tuple[int, int]]) -> list[T]:
        """Take what workers told; return the tokens of all roots that are done by it.

        Roots that are over are ignored.
        """
        done = []
        known = self._values
        for root, value in values:
            held = known.get(root)
            if held is None:
                continue
            if held != value:
                known[root] = held ^ value
            else:
                del known[root]
                done.append(self._trees.pop(root)[0])
        return done

    def retry(self, root: int) -> Overdue[T] | None:
        """Give a root up at once, as a flow condition says; return None if it is over already."""
        return self._give_up(root) if root in self._trees else None

    def overdue(self, now: int) -> list[Overdue[T]]:
        """Give up and return the roots whose time is over; the caller begins them again."""
        late = []
        for root, (_, _, deadline) in self._trees.items():
            if deadline > now:
                break
            late.append(root)
        return [self._give_up(root) for root in late]

    def _give_up(self, root: int) -> Overdue[T]:
        token, attempt, _ = self._trees.pop(root)
        del self._values[root]
        return Overdue(token, attempt)


class Frontier:
    """Progress of an input whose segments have growing positions.

    All below `position` are done, which may be stored.

    It remembers only what is under way, however far behind that is.
    """

    def __init__(self, position: int = 0) -> None:
        self._position = position
        self._next = position
        self._under_way: set[int] = set()
        # Positions under way, and some that were: a done one is removed when it comes to the top, or when
        # most are done.
        self._lowest: list[int] = []

    @property
    def position(self) -> int:
        """The first position that has to be read again after a failure."""
        return self._position

    def begin(self, position: int) -> None:
        """Begin a position. They come in order, perhaps with gaps; one that is sent again was begun before."""
        assert position >= self._next, f"position {position} after {self._next - 1}"
        if not self._under_way:
            self._position = position
        self._next = position + 1
        self._under_way.add(position)
        heappush(self._lowest, position)

    def go_on_from(self, position: int) -> None:
        """Note that all positions before `position` were begun.

        The source says so, as the next one is not always one more.
        """
        assert position >= self._next, f"position {position} after {self._next - 1}"
        self._next = position
        if not self._under_way:
            self._position = position

    def done(self, position: int) -> None:
        """Note that a position is done; call this once for each that was begun."""
        self._under_way.remove(position)
        while self._lowest and self._lowest[0] not in self._under_way:
            heappop(self._lowest)
        if len(self._lowest) > 2 * len(self._under_way) + 64:
            self._lowest = sorted(self._under_way)
        self._position = self._lowest[0] if self._lowest else self._next
