"""Progress of a group in a partition: all below a floor is consumed, and islands above it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import frozen

Range = tuple[int, int]
"""[first, upto)"""


@frozen
class Progress:
    """`islands` are sorted, apart from each other and from `floor`, and not empty."""

    floor: int = 0
    islands: tuple[Range, ...] = ()

    def __attrs_post_init__(self) -> None:
        end = self.floor
        for first, upto in self.islands:
            assert end < first < upto, f"{self.floor=} {self.islands=}"
            end = upto

    def after(self, first: int, upto: int) -> Progress:
        """Return the progress with [first, upto) consumed, too."""
        if upto <= self.floor or first >= upto:
            return self
        return self.after_all(((first, upto),))

    def after_all(self, ranges: Iterable[Range]) -> Progress:
        """Return the progress with all of these ranges consumed, too."""
        merged: list[Range] = [(0, self.floor)]
        for a, b in sorted((*self.islands, *ranges)):
            if a <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], b))
            else:
                merged.append((a, b))
        return Progress(merged[0][1], tuple(merged[1:]))

    def touches(self, first: int, upto: int) -> bool:
        """Return whether some of [first, upto) is consumed."""
        return first < self.floor or any(first < b and a < upto for a, b in self.islands)


NOTHING: Final = Progress()
