"""History of producers and groups, so that a group whose view is a little older gets a difference."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.view import ViewDelta

CHANGES_KEPT: Final = 4096
"""Changes of ids that are remembered; a bound, not a promise."""


class Became(Enum):
    """Changes of a producer or a group."""

    OPENED = "opened"
    CLOSED = "closed"
    RETIRED = "retired"
    CREATED = "created"
    DELETING = "deleting"
    REMOVED = "removed"
    GIVEN_UP = "given up"


_OF_GROUPS: Final = frozenset((Became.CREATED, Became.DELETING, Became.REMOVED, Became.GIVEN_UP))


class History:
    """The newest changes, as far as this process saw them: no part of the replicated state."""

    def __init__(self) -> None:
        self._changes: deque[tuple[int, Became, int]] = deque(maxlen=CHANGES_KEPT)
        self._forgotten = 0
        """The position up to which something may be missing."""

    def note(self, zxid: int, what: Became, which: int) -> None:
        """Note the newest change."""
        if len(self._changes) == CHANGES_KEPT:
            self._forgotten = self._changes[0][0]
        self._changes.append((zxid, what, which))

    def forget(self, position: int) -> None:
        """Forget all changes up to a position; none came after it."""
        self._changes.clear()
        self._forgotten = position

    def since(self, base: int, position: int, epoch: int) -> ViewDelta | None:
        """Return the state of each id that changed after `base`; None if that is not remembered."""
        if base < self._forgotten:
            return None
        became: dict[tuple[bool, int], Became] = {}
        newest: list[tuple[int, Became, int]] = []
        for change in reversed(self._changes):
            if change[0] <= base:
                break
            newest.append(change)
        for _, what, which in reversed(newest):
            became[what in _OF_GROUPS, which] = what
        named = {
            what: tuple(sorted(which for (_, which), last in became.items() if last is what))
            for what in Became
        }
        return ViewDelta(
            base,
            position,
            epoch,
            tuple(map(ProducerId, named[Became.OPENED])),
            tuple(map(ProducerId, named[Became.CLOSED])),
            tuple(map(ProducerId, named[Became.RETIRED])),
            tuple(map(GroupId, named[Became.CREATED])),
            tuple(map(GroupId, named[Became.DELETING])),
            tuple(map(GroupId, named[Became.REMOVED])),
            tuple(map(GroupId, named[Became.GIVEN_UP])),
        )
