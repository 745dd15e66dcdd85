"""Number of workers that each kind of task can have together, when some workers can do only some kinds.

It is a maximum flow from classes of workers to kinds of tasks, kept up to date one demand at a time by
augmenting paths. What can be seated together is a matroid: a kind that cannot have one more now cannot have
it later either, unless somebody gives back; and taking in an order of preference yields the best for that
order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final


class Seating:
    """Seats that are taken so far. It is the state of one decision."""

    def __init__(self, supply: Sequence[int], able: Sequence[Sequence[int]]) -> None:
        self._free: Final = list(supply)
        self._able: Final = able
        self._seated: Final = [dict.fromkeys(classes, 0) for classes in able]
        """The number of workers of each class, for each kind."""

    @property
    def free(self) -> int:
        """The workers that are not taken."""
        return sum(self._free)

    def take(self, kind: int, amount: int) -> int:
        """Seat up to `amount` more of a kind; return how many it got."""
        missing = amount
        seated = self._seated[kind]
        for number in self._able[kind]:
            if not missing:
                return amount
            if grant := min(self._free[number], missing):
                self._free[number] -= grant
                seated[number] += grant
                missing -= grant
        while missing and (grant := self._augment(kind, missing)):
            missing -= grant
        return amount - missing

    def take_all(self, demands: Mapping[int, int]) -> bool:
        """Seat all of these amounts by kind, or none of them."""
        taken: list[tuple[int, int]] = []
        for kind, amount in demands.items():
            got = self.take(kind, amount)
            taken.append((kind, got))
            if got < amount:
                for one, back in taken:
                    self.give_back(one, back)
                return False
        return True

    def give_back(self, kind: int, amount: int) -> None:
        """Free this many seats of a kind."""
        seated = self._seated[kind]
        for number in reversed(self._able[kind]):
            back = min(seated[number], amount)
            seated[number] -= back
            self._free[number] += back
            amount -= back
        assert not amount, f"{amount} more given back than kind {kind} had"

    def _augment(self, kind: int, amount: int) -> int:
        """Seat one along a shortest path over classes.

        This kind takes one of a class whose users move on to another class.
        """
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(self._able[kind])
        """class -> (class it would be replaced by one of, kind that moves); None: the one asked for."""
        queue = deque(came)
        while queue:
            number = queue.popleft()
            if self._free[number]:
                return self._shift(kind, amount, number, came)
            for other, seated in enumerate(self._seated):
                if seated.get(number):
                    for next_number in self._able[other]:
                        if next_number not in came:
                            came[next_number] = (number, other)
                            queue.append(next_number)
        return 0

    def _shift(self, kind: int, amount: int, end: int, came: Mapping[int, tuple[int, int] | None]) -> int:
        path: list[tuple[int, int, int]] = []
        number = end
        while (step := came[number]) is not None:
            path.append((step[1], step[0], number))
            number = step[0]
        grant = min([amount, self._free[end], *(self._seated[mover][old] for mover, old, _new in path)])
        self._free[end] -= grant
        for mover, old, new in path:
            self._seated[mover][old] -= grant
            self._seated[mover][new] += grant
        self._seated[kind][number] += grant
        return grant
