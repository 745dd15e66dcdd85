"""The leaderships that are to move to their preferred servers: a few at a time, and none again at once. Pure."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from zraft.groups.settings import GroupSettings
from zraft.raft.settings import NEVER
from zraft_core.ids import GroupId


@define
class _Move:
    """A move that waits until tick `due`; once begun, it counts as under way until tick `gives_up_at`."""

    due: int
    tries: int = 0
    gives_up_at: int | None = None


TRIES_COUNTED_MAX = 64
"""A target that never takes over is tried once in this many pauses at least."""


class Moves:
    """The groups that this server leads although another one should.

    Attributes:
        begun: how many moves were begun.
        due_at: tick before which `begin` has nothing to do; `NEVER` if there is nothing to move.
    """

    __slots__ = ("_moves", "_next_at", "_settings", "begun", "due_at")

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._moves: dict[GroupId, _Move] = {}
        self._next_at = 0
        self.begun = 0
        self.due_at: float = NEVER

    def __len__(self) -> int:
        return len(self._moves)

    def add(self, group: GroupId, now: int) -> None:
        """Add a group that another server should lead. The move begins a pause from now at the earliest."""
        if group not in self._moves:
            move = self._moves[group] = _Move(now + self._settings.transfer_pause_ticks)
            self.due_at = min(self.due_at, max(self._next_at, move.due))

    def discard(self, group: GroupId) -> None:
        """Drop a group that is led by its preferred server, or no longer from here."""
        self._moves.pop(group, None)
        if not self._moves:
            self.due_at = NEVER

    def begin(self, now: int, begin: Callable[[GroupId], bool]) -> None:
        """Begin the move that is due longest, if it is time.

        Args:
            begin: begins the move of a group, and returns whether that was possible.
        """
        if now < self._next_at:
            return
        self._begin_one(now, begin)
        self.due_at = max(self._next_at, min((move.due for move in self._moves.values()), default=NEVER))

    def _begin_one(self, now: int, begin: Callable[[GroupId], bool]) -> None:
        settings = self._settings
        under_way = 0
        for move in self._moves.values():
            if move.gives_up_at is not None:
                if now >= move.gives_up_at:
                    move.gives_up_at = None
                else:
                    under_way += 1
        self._next_at = now + settings.transfer_pause_ticks
        for group, move in sorted(self._moves.items(), key=lambda item: (item[1].due, item[0])):
            if under_way >= settings.transfers_at_once or move.due > now:
                return
            if move.gives_up_at is not None:
                continue
            move.tries = min(move.tries + 1, TRIES_COUNTED_MAX)
            move.due = now + move.tries * settings.transfer_pause_ticks
            if begin(group):
                move.gives_up_at = now + settings.raft.election_timeout_ticks
                self.begun += 1
                return
