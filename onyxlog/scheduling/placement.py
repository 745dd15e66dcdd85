"""Placement of workers, once the number of each task's workers is decided: as few as possible move.

Numbers come first, by class: a flow from classes of workers to tasks in which a worker that stays costs one
less. It starts with everybody staying who can, which no flow of its size beats, and grows along cheapest
paths, which keeps it the cheapest of each size (successive shortest paths). Names come second: who stays, and
who of the others comes, by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from attrs import frozen

from onyxlog.ids import PeerId
from onyxlog.scheduling.demand import Key
from onyxlog.scheduling.requirements import Slots


@frozen
class Seats:
    """The seats of a task: `count` workers, all of which can do its kind."""

    key: Key
    kind: int
    count: int


@frozen
class WorkerPool:
    """Workers that may be placed, their classes, in the order of ids; and which classes can do which kind."""

    class_of: Mapping[PeerId, int]
    able: Sequence[Sequence[int]]
    classes: int

    def by_class(self, peers: Iterable[PeerId]) -> dict[int, list[PeerId]]:
        """Return those of the peers that may be placed, by class."""
        if self.classes == 1:
            return {0: [peer for peer in peers if peer in self.class_of]}
        found: dict[int, list[PeerId]] = {}
        for peer in peers:
            if (number := self.class_of.get(peer)) is not None:
                found.setdefault(number, []).append(peer)
        return found


def place(
    seats: Sequence[Seats],
    pool: WorkerPool,
    present: Mapping[Key, Sequence[PeerId]],
    slots: Slots,
    rank: Callable[[PeerId], int],
) -> dict[Key, list[PeerId]]:
    """Fill all seats; the numbers must be possible (see `seating`).

    Of a task that shrinks, those workers stay that have the lowest slots. Of those who are free to come, the
    lowest `rank` comes first.
    """
    mine = [pool.by_class(present.get(seat.key, ())) for seat in seats]
    counts = (
        [{0: seat.count} for seat in seats] if pool.classes == 1 else _Counts(seats, pool, mine).settled()
    )
    placed: dict[Key, list[PeerId]] = {}
    stayed: set[PeerId] = set()
    wanting: dict[int, list[tuple[Key, int]]] = {}
    for seat, own, count in zip(seats, mine, counts, strict=True):
        chosen: list[PeerId] = []
        for number, amount in count.items():
            staying = own.get(number, [])
            if len(staying) > amount:
                staying = sorted(staying, key=lambda peer: (slots.get((*seat.key, peer), 0), peer))[:amount]
            elif len(staying) < amount:
                wanting.setdefault(number, []).append((seat.key, amount - len(staying)))
            chosen += staying
        placed[seat.key] = chosen
        stayed.update(chosen)
    if wanting:
        coming = pool.by_class(peer for peer in pool.class_of if peer not in stayed)
        for number, wishes in wanting.items():
            arriving = iter(sorted(coming[number], key=rank))
            for key, amount in wishes:
                placed[key] += [next(arriving) for _ in range(amount)]
    return placed


class _Counts:
    """Counts of workers of each class for each task. It is the state of one decision."""

    def __init__(
        self, seats: Sequence[Seats], pool: WorkerPool, mine: Sequence[Mapping[int, Sequence[PeerId]]]
    ) -> None:
        self._seats: Final = seats
        self._able: Final = pool.able
        self._own: Final = [{number: len(peers) for number, peers in own.items()} for own in mine]
        self._free: Final = [0] * pool.classes
        for number in pool.class_of.values():
            self._free[number] += 1
        self._counts: Final[list[dict[int, int]]] = [{} for _ in seats]
        self._missing: Final = [seat.count for seat in seats]

    def settled(self) -> list[dict[int, int]]:
        for index, seat in enumerate(self._seats):
            own = self._own[index]
            for number in self._able[seat.kind]:
                self._give(index, number, min(own.get(number, 0), self._missing[index]))
        # Seats that the fewest classes suit come first: so nearly all find somebody without a path.
        for index in sorted(
            (i for i, missing in enumerate(self._missing) if missing),
            key=lambda i: len(self._able[self._seats[i].kind]),
        ):
            for number in self._able[self._seats[index].kind]:
                self._give(index, number, min(self._free[number], self._missing[index]))
        for index in range(len(self._seats)):
            while self._missing[index]:
                self._reseat(index)
        return self._counts

    def _give(self, index: int, number: int, amount: int) -> None:
        if amount:
            self._counts[index][number] = self._counts[index].get(number, 0) + amount
            self._free[number] -= amount
            self._missing[index] -= amount

    def _cost_of_coming(self, index: int, number: int) -> int:
        """Return the cost of one more of the class: less by one if it is one that stays."""
        return -1 if self._counts[index].get(number, 0) < self._own[index].get(number, 0) else 0

    def _cost_of_going(self, index: int, number: int) -> int:
        return 1 if self._counts[index][number] <= self._own[index].get(number, 0) else 0

    def _reseat(self, wanting: int) -> None:
        """Seat one more for a task, along the cheapest path over classes (Bellman-Ford, as costs may be negative)."""
        best: dict[int, tuple[int, tuple[int, int] | None]] = {
            number: (self._cost_of_coming(wanting, number), None)
            for number in self._able[self._seats[wanting].kind]
        }
        """class -> (cost, (class before it, task that moves from that one to this one))."""
        changed = list(best)
        while changed:
            improved: dict[int, None] = {}
            for index, count in enumerate(self._counts):
                for old in changed:
                    if not count.get(old):
                        continue
                    going = best[old][0] + self._cost_of_going(index, old)
                    for new in self._able[self._seats[index].kind]:
                        if new == old:
                            continue
                        cost = going + self._cost_of_coming(index, new)
                        if new not in best or cost < best[new][0]:
                            best[new] = (cost, (old, index))
                            improved[new] = None
            changed = list(improved)
        ends = [(cost, number) for number, (cost, _) in best.items() if self._free[number]]
        assert ends, f"no worker can be found for {self._seats[wanting]}"
        _, number = min(ends)
        self._free[number] -= 1
        while (step := best[number][1]) is not None:
            old, index = step
            self._counts[index][number] = self._counts[index].get(number, 0) + 1
            self._counts[index][old] -= 1
            number = old
        self._counts[wanting][number] = self._counts[wanting].get(number, 0) + 1
        self._missing[wanting] -= 1
